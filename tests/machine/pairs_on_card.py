"""Run the kernels of pairs/ on a card: python tests/machine/pairs_on_card.py OUTPUT.json [--wrong] [NAME or NAME:MISTAKE …]

Right kernels must leave what the table says in every run. With --wrong the mistakes run as well: what became of each is told
(right, wrong, fault, hang), which is no judgement: a mistake may well give the right result. Needs numpy, ml_dtypes, a driver that
compiles PTX, and src on PYTHONPATH. A kernel that hangs or faults ends its process; the rest go on in another one.
"""

# ruff: noqa: T201  a report is printed

import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "golden" / "kernels_own")]

from pair_kernels import variant  # noqa: E402  # beside this file
from pair_table import TABLE  # noqa: E402
from record import CLUSTER_DIMENSION, Attribute, Card, Config, three  # noqa: E402

import tilescope as ts  # noqa: E402
from tilescope.machine.memory import contents_of  # noqa: E402
from tilescope.tensor_map.replacement import edited_descriptor  # noqa: E402

SECONDS = 5  # for all runs of one kernel
RUNS = 20
KERNELS = {pairs.name: pairs for pairs in TABLE}


class Placed:
    """The arrays of one launch on the card, by their address in the memory that maps were made with."""

    def __init__(self, card, memory):
        self.card = card
        self.memory = memory
        self.addresses = {}
        self.kept = []  # so that no other array gets their place

    def address(self, array):
        """Where an array lies on the card."""
        own = self.memory.place(array)
        if own not in self.addresses:
            self.addresses[own] = self.card.placed(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
        return self.addresses[own]

    def parameter(self, argument):
        """The bytes of a parameter: an array's address, or a map that points at the array on the card."""
        if callable(argument):
            made = argument(self.memory)
            if isinstance(made, np.ndarray):  # the bytes of a map that lies in memory
                return self.parameter(np.frombuffer(self.descriptor(made.tobytes()), np.uint8).copy())
            return self.descriptor(made.encode())
        self.kept.append(argument)
        return self.address(argument).to_bytes(8, "little")

    def descriptor(self, blob):
        """A map over an array as a map over the same array on the card."""
        region = contents_of(self.memory).region_at(ts.decode_tensor_map(blob).address)
        return edited_descriptor(blob, "global_address", self.address(region.array))

    def taken(self, array):
        """The bytes that an array has on the card now, in its own shape; all memory is given back."""
        wanted = self.address(array)
        for address in self.addresses.values():
            if address != wanted:
                self.card.call("cuMemFree_v2", ctypes.c_uint64(address))
        return self.card.taken(wanted, array.nbytes).view(array.dtype).reshape(array.shape)


def run_once(card, function, pairs, seed):
    """Whether one run of a kernel leaves what it must."""
    memory = ts.Memory()
    case = pairs.make(np.random.default_rng(seed))
    placed = Placed(card, memory)
    buffers = [ctypes.create_string_buffer(data, len(data)) for data in map(placed.parameter, case.args)]
    pointers = (ctypes.c_void_p * len(buffers))(*[ctypes.addressof(buffer) for buffer in buffers])
    attribute = Attribute(CLUSTER_DIMENSION)
    attribute.value[:3] = three([pairs.cluster or 1])
    config = Config(three([pairs.grid]), three([pairs.block]), 0, None)
    config.attributes = ctypes.pointer(attribute)
    config.attribute_count = 0 if pairs.cluster is None else 1
    card.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
    card.call("cuCtxSynchronize")
    return np.array_equal(placed.taken(case.out), case.expected)


def run_often(card, label):
    """How often a kernel, NAME or NAME:MISTAKE, gave the right result."""
    name, _, mistake = label.partition(":")
    pairs = KERNELS[name]
    text = variant(pairs.text, mistake or None)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    card.call("cuModuleLoadData", ctypes.byref(module), text.encode() + b"\0")
    card.call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    right = sum(run_once(card, function, pairs, seed) for seed in range(RUNS))
    card.call("cuModuleUnload", module)
    return "right" if right == RUNS else f"wrong in {RUNS - right} of {RUNS} runs"


def child(labels):
    card = Card()
    for label in labels:
        print("begin", label, flush=True)
        try:
            print("end", label, run_often(card, label), flush=True)
        except RuntimeError as reason:
            print("end", label, "fault:", reason, flush=True)
            return  # the context is gone


def attempted(labels):
    """What became of the kernels that one process came to, by label; these are taken off the list."""
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / "log"
        with log.open("w") as file:
            process = subprocess.Popen([sys.executable, __file__, "--child", *labels], stdout=file)
            size_bytes, since = 0, time.monotonic()
            while process.poll() is None:
                time.sleep(0.02)
                if log.stat().st_size > size_bytes:
                    size_bytes, since = log.stat().st_size, time.monotonic()
                if time.monotonic() - since > SECONDS + 10 * (size_bytes == 0):
                    process.kill()
                    process.wait()
                    break
        lines = [line.split(" ", 2) for line in log.read_text().splitlines()]
    results = {line[1]: "hang" for line in lines if line[0] == "begin"}
    results |= {line[1]: line[2] for line in lines if line[0] == "end"}
    labels[:] = [label for label in labels if label not in results] if results else []
    return results


def main(output, *options):
    labels = [option for option in options if option != "--wrong"]
    if not labels:
        labels = list(KERNELS)
        if "--wrong" in options:
            labels += [f"{pairs.name}:{mistake}" for pairs in TABLE for mistake in pairs.mistakes]
    results = {}
    while labels:
        results |= attempted(labels)
    Path(output).write_text(json.dumps(results, indent=1) + "\n")
    for label, result in results.items():
        if result != "right":
            print(f"{label}: {result}")
    counts = {kind: Counter() for kind in ("right", "wrong")}
    for label, result in results.items():
        counts["wrong" if ":" in label else "right"][result.split(" ")[0].rstrip(":")] += 1
    print({kind: dict(count) for kind, count in counts.items()})


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(sys.argv[2:])
    else:
        main(*sys.argv[1:])
