"""Whole kernels for `tilescope verify kernels`: those of kernels/whole.cu, and GEMMs that `emit` writes from random plans.

NVRTC compiles one source twice: to PTX, which the machine runs, and to a cubin, which the card runs.

    case ──▶ Launch ──┬── source → PTX ────▶ machine ──▶ arrays
                      └── source → cubin ──▶ card ─────▶ arrays
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.emitter import emit
from tilescope.emitter.emission import device_half
from tilescope.emitter.gemm_program import gemm_program
from tilescope.gpu.driver.nvrtc import compile_text, kernel_source
from tilescope.gpu.verify.programs.program_inputs import factors, numbers
from tilescope.gpu.verify.suites import UNTOUCHED, Bytes, Case, Piece, splitmix_bytes
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.cuda_compiler import compile_with_nvrtc
from tilescope.machine.memory import Memory
from tilescope.planner import GemmPlan, plan_gemm
from tilescope.tensor_map import AnyMap

if TYPE_CHECKING:
    from tilescope.gpu.driver.device import Device

TARGET = "sm_90a"
_SEED_BITS = 20  # of what memory holds
_GEMM = "gemm"
_GEMM_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")
_OUTPUT_TYPES = {"tf32": "f32", "s8": "s32", "u8": "s32"}
_SUM_OUTPUTS = ("bf16", "f32")
_GEMM_BLOCKS = 2  # they are persistent: each takes several tiles
_THREADS = (64, 128, 256)


class Address(NamedTuple):
    """A parameter: where array `number` lies."""

    number: int


class Map(NamedTuple):
    """A parameter: the tensor map of array `number`, by value."""

    number: int
    tensor_map: AnyMap


class Launch(NamedTuple):
    """A kernel, its parameters, and the arrays that it starts from, by name."""

    source: str
    entry: str
    blocks: int
    threads: int
    smem_bytes: int
    arrays: dict[str, Bytes]
    parameters: tuple[Address | Map | int, ...]


def draw_kernel(random: random.Random) -> Case:
    """A kernel with its sizes; a RuleError where a GEMM cannot be planned or emitted so: another is drawn."""
    name = random.choice((_GEMM, *_OWN))
    seed = random.getrandbits(_SEED_BITS)
    if name != _GEMM:
        blocks = 2 * random.randint(1, 4)  # clusters have two
        return {"kernel": name, "seed": seed, "blocks": blocks, "threads": random.choice(_THREADS)}
    data_type = random.choice(_GEMM_TYPES)
    majors = ("K", "MN") if DataType.named(data_type).bits == 16 else ("K",)
    options: Case = {
        "tile": [64 * random.randint(1, 2), random.choice((16, 32, 64)), 1024 // DataType.named(data_type).bits],
        "stages": random.randint(2, 4),
        "a_major": random.choice(majors),
        "b_major": random.choice(majors),
        "output_type": _OUTPUT_TYPES.get(data_type) or random.choice(_SUM_OUTPUTS),
    }
    if random.random() < 0.3:
        options |= {"consumer": "ldmatrix", "a_major": "K", "b_major": "K"}
    shape = [8 * random.randint(1, 24), 8 * random.randint(1, 12), options["tile"][2] * random.randint(1, 5)]
    case: Case = {"kernel": _GEMM, "seed": seed, "shape": shape, "data_type": data_type, "options": options}
    emit(_plan_product(case), "cuda")
    return case


def _plan_product(case: Case) -> GemmPlan:
    """With the plain schedule: so many blocks take one tile after another."""
    m, n, k = case["shape"]
    options = case["options"] | {"tile": tuple(case["options"]["tile"])}
    options |= {"swapped": False, "split": 1, "parts": 1, "tail": 1}
    return plan_gemm(m, n, k, case["data_type"], arch="sm_90", **options)


@lru_cache(maxsize=64)
def _gemm_source(gemm: GemmPlan) -> str:
    return device_half(emit(gemm, "cuda"))


def launch_of(case: Case) -> Launch:
    """The launch of a drawn kernel; its arrays are new ones."""
    if case["kernel"] == _GEMM:
        return _gemm_launch(case)
    return _OWN[case["kernel"]](case)


def _gemm_launch(case: Case) -> Launch:
    gemm = _plan_product(case)
    m, n, k = gemm.shape
    arrays = {
        "A": factors(case["data_type"], m * k, case["seed"]).view(np.uint8),
        "B": factors(case["data_type"], n * k, case["seed"] + 1).view(np.uint8),
        "C": _make_untouched(m * n * gemm.output_type.bits // 8),
    }
    parameters: tuple[Address | Map | int, ...] = (Address(0), Address(1), Address(2))
    if gemm.epilogue is not None:
        parameters = (
            Map(0, gemm.a.tensor_map(0, (m, k))),
            Map(1, gemm.b.tensor_map(0, (n, k))),
            Map(2, gemm.epilogue.tensor_map(0, (m, n))),
        )
    threads = gemm_program(gemm).work.threads
    return Launch(_gemm_source(gemm), "gemm_kernel", _GEMM_BLOCKS, threads, gemm.smem_bytes, arrays, (*parameters, m))


def _own(case: Case, arrays: dict[str, Bytes], *further: int) -> Launch:
    """A kernel of kernels/whole.cu: it takes all arrays, then these numbers."""
    addresses = [Address(number) for number in range(len(arrays))]
    return Launch(
        kernel_source("whole"), case["kernel"], case["blocks"], case["threads"], 0, arrays, (*addresses, *further)
    )


def _words(case: Case, count: int) -> Bytes:
    return splitmix_bytes(case["seed"], 4 * count).copy()


def _make_untouched(size_bytes: int) -> Bytes:
    return np.full(size_bytes, UNTOUCHED, np.uint8)


def _block_sums(case: Case) -> Launch:
    count = 5 * case["blocks"] * case["threads"] // 2 + 7
    return _own(case, {"numbers": _words(case, count), "sums": _make_untouched(4 * case["blocks"])}, count)


def _running_sums(case: Case) -> Launch:
    count = case["blocks"] * case["threads"]
    return _own(case, {"numbers": _words(case, count), "sums": _make_untouched(4 * count)})


def _draw_transposition(case: Case) -> Launch:
    """A matrix of as many tiles each way as half the blocks drawn, up to 4."""
    tiles = case["blocks"] // 2
    cells = (32 * tiles) ** 2
    arrays = {"matrix": _words(case, cells), "turned": _make_untouched(4 * cells)}
    return _own(case | {"blocks": tiles * tiles}, arrays, tiles)


def _histogram(case: Case) -> Launch:
    count = 11 * case["blocks"] * case["threads"] + 3
    data = _words(case, ceil_div(count, 4))
    data[::3] &= 7  # values that many threads have
    return _own(case, {"bytes": data, "bins": np.zeros(1024, np.uint8)}, count)


def _last_block(case: Case) -> Launch:
    blocks = case["blocks"]
    arrays = {
        "numbers": _words(case, 2 * blocks * case["threads"]),
        "parts": _make_untouched(8 * blocks),
        "total": _make_untouched(8),
        "ticket": np.zeros(4, np.uint8),
    }
    return _own(case, arrays)


def _cluster_turn(case: Case) -> Launch:
    count = case["blocks"] * case["threads"]
    return _own(case, {"numbers": _words(case, count), "turned": _make_untouched(4 * count)})


def _divergent_floats(case: Case) -> Launch:
    count = case["blocks"] * case["threads"]
    arrays = {
        "numbers": numbers("f32", count, case["seed"]).view(np.uint8),
        "singles": _make_untouched(4 * count),
        "doubles": _make_untouched(8 * count),
        "turns": _make_untouched(4 * count),
    }
    return _own(case, arrays)


_OWN: dict[str, Callable[[Case], Launch]] = {
    "block_sums": _block_sums,
    "running_sums": _running_sums,
    "transposed": _draw_transposition,
    "histogram": _histogram,
    "last_block": _last_block,
    "cluster_turn": _cluster_turn,
    "divergent_floats": _divergent_floats,
}
KERNEL_NAMES = (_GEMM, *_OWN)


@lru_cache(maxsize=64)
def _kernel(text: str, entry: str) -> Kernel:
    return Kernel(compile_with_nvrtc(text.encode(), f"{entry}.cu", TARGET).ptx, entry)


def run_kernel_here(launch: Launch) -> str:
    """Run a kernel without a card: its arrays change. Gives how the run ended."""
    memory = Memory()
    contents = list(launch.arrays.values())
    arguments: list[object] = []
    for parameter in launch.parameters:
        if isinstance(parameter, Map):
            address = memory.place(contents[parameter.number])
            arguments.append(parameter.tensor_map.with_fields(address=address))
        elif isinstance(parameter, Address):
            arguments.append(contents[parameter.number])
        else:
            arguments.append(parameter)
    run = _kernel(launch.source, launch.entry).run(
        grid=launch.blocks,
        block=launch.threads,
        args=arguments,
        memory=memory,
        smem_bytes=launch.smem_bytes,
        findings=False,
        record=False,
        advice="none",
    )
    return run.outcome


def run_kernel_on(device: Device, launch: Launch) -> None:
    """Run a kernel on the card: its arrays change."""
    place = f"{device.load(compile_text(launch.source, TARGET))}:{launch.entry}"
    addresses = [device.upload(contents) for contents in launch.arrays.values()]
    values: list[int | bytes] = []
    for parameter in launch.parameters:
        if isinstance(parameter, Map):
            values.append(device.encode_map(parameter.tensor_map, addresses[parameter.number]))
        elif isinstance(parameter, Address):
            values.append(addresses[parameter.number])
        else:
            values.append(parameter)
    device.launch(place, *values, blocks=launch.blocks, threads=launch.threads, smem_bytes=launch.smem_bytes)
    for address, contents in zip(addresses, launch.arrays.values(), strict=True):
        device.download(address, contents)


def kernel_pieces(launch: Launch) -> list[Piece]:
    """What is compared: all arrays, byte by byte."""
    return [Piece(f"{launch.entry}: {name}, byte {{}}", contents) for name, contents in launch.arrays.items()]
