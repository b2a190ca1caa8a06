"""banks: the wavefronts of random warp accesses, counted by Nsight Compute, or told from clocks where it does not work.

Nsight Compute counts exactly, one launch a case. Where `ncu` is missing or may not read the counters, blocks time many
accesses in a row: clocks grow with wavefronts, and two accesses of known cost tell by how much, for every operation.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Suite
from tilescope.smem.banks import wavefronts
from tilescope.smem.op import SMEM_OP, SmemOp

_OPS = tuple(SMEM_OP)  # as kernels/accesses.cu numbers them
_SMEM_BYTES = 32768
_ALL = 0xFFFFFFFF
_COUNTERS = {name: f"l1tex__data_pipe_lsu_wavefronts_mem_shared_{name}.sum" for name in ("op_ld", "op_st")}
_CASES = "accesses.json"  # beside the kernels
_TRIES, _WARPS, _TIMES = 5, 16, 64  # of a timed access


def _draw(random: random.Random, _arch: str) -> Case:
    """Lanes at a stride, through a swizzle, in pairs, or anywhere."""
    op = SmemOp.named(random.choice(_OPS))
    size = op.access_bytes
    pattern = random.choice(("stride", "stride", "swizzle", "pairs", "any", "few lines"))
    stride, shift, mask = random.randint(0, 33), random.randint(0, 5), random.randint(0, 31)
    partner = random.choice((1, 2))
    near = [random.randrange(64) for _ in range(32)]
    far = [random.randrange(_SMEM_BYTES // size) for _ in range(32)]
    units = {
        "stride": [lane * stride for lane in range(32)],
        "swizzle": [lane * 32 ^ lane * stride & mask for lane in range(32)],
        "pairs": [far[lane & ~partner] for lane in range(32)],
        "any": far,
        "few lines": near,
    }[pattern]
    active = _ALL if op.is_matrix or random.random() < 0.7 else random.randint(1, _ALL)
    lanes = [(unit << shift if pattern == "stride" else unit) * size % _SMEM_BYTES for unit in units]
    return {"op": op.name, "lanes": lanes, "active": active}


def _predict(case: Case) -> bytes:
    return _word(wavefronts(case["op"], case["lanes"], case["active"]))


def _word(count: int) -> bytes:
    return int(count).to_bytes(4, "little")


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    counts = _counted(device, cases)
    if counts is None:
        counts = _timed(device, cases)
    return [_word(count) for count in counts]


def _counted(device: Device, cases: list[Case]) -> list[int] | None:
    """Wavefronts as Nsight Compute counts them; None where it does not work here."""
    program = shutil.which("ncu")
    if program is None:
        return None
    assert device.cubins is not None
    device.cubins.joinpath(_CASES).write_text(json.dumps(cases), "utf-8")
    options = ["--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none"]
    options += ["--metrics", ",".join(_COUNTERS.values())]
    done = subprocess.run(  # noqa: S603  NVIDIA's own profiler
        [program, *options, sys.executable, "-m", __name__, str(device.cubins)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if done.returncode else _counts(done.stdout, cases)


def _counts(report: str, cases: list[Case]) -> list[int] | None:
    """The counter of each launch in an `ncu --csv --page raw` report; None where a launch is missing."""
    table = report[report.find('"ID"') :]
    rows = [row for row in csv.DictReader(io.StringIO(table)) if (row.get("ID") or "").isdigit()]
    if len(rows) != len(cases):
        return None
    columns = [_COUNTERS[SmemOp.named(case["op"]).counter] for case in cases]
    return [round(float(row[column].replace(",", ""))) for row, column in zip(rows, columns, strict=True)]


def _launch_all() -> None:
    """Launch every case once: what runs under Nsight Compute."""
    folder = Path(sys.argv[1])
    device, cases = Device(folder), json.loads(folder.joinpath(_CASES).read_text("utf-8"))
    lanes = device.upload(np.array([case["lanes"] for case in cases], np.int32))
    out = device.allocate(4)
    for number, case in enumerate(cases):
        device.launch(
            "accesses:one_access", np.int32(_OPS.index(case["op"])), lanes + number * 128, np.uint32(case["active"]),
            out, blocks=1, threads=32, smem_bytes=_SMEM_BYTES,
        )  # fmt: skip


def _timed(device: Device, cases: list[Case]) -> list[int]:
    """Wavefronts from clocks: cost = start + slope x wavefronts, both from two accesses of the same operation."""
    names = sorted({case["op"] for case in cases})
    references = [case for name in names for case in _references(name)]
    cycles = cycles_of(device, [*references, *cases])
    lines = {}
    for number, name in enumerate(names):
        few, many = (wavefronts(name, case["lanes"]) for case in _references(name))
        slope = (cycles[2 * number + 1] - cycles[2 * number]) / (many - few)
        lines[name] = (cycles[2 * number] - slope * few, slope)
    counts = []
    for case, found in zip(cases, cycles[len(references) :], strict=True):
        start, slope = lines[case["op"]]
        counts.append(max(0, round((found - start) / slope)))
    return counts


def _references(op: str) -> tuple[Case, Case]:
    """An access in which every bank is asked once in each turn, and one in which one bank is asked for everything."""
    size = SmemOp.named(op).access_bytes
    return (
        {"op": op, "lanes": [lane * size for lane in range(32)], "active": _ALL},
        {"op": op, "lanes": [lane * 128 for lane in range(32)], "active": _ALL},
    )


def cycles_of(device: Device, cases: list[Case]) -> npt.NDArray[np.float64]:
    """Clocks of one access of each case, the least of several tries."""
    cycles = device.allocate(len(cases) * _TRIES * 4)
    device.launch(
        "accesses:timed_accesses", device.upload(np.array([_OPS.index(case["op"]) for case in cases], np.int32)),
        device.upload(np.array([case["lanes"] for case in cases], np.int32)),
        device.upload(np.array([case["active"] for case in cases], np.uint32)), cycles, device.allocate(4),
        np.uint32(0), blocks=len(cases), threads=32 * _WARPS, smem_bytes=200 * 1024,
    )  # fmt: skip
    least: npt.NDArray[np.float64] = device.download(cycles, (len(cases), _TRIES), "<u4").min(axis=1)
    return least / (_TIMES * _WARPS)


BANKS = Suite(
    "banks", _draw, _predict, _run, lambda _, data: [("wavefronts", np.frombuffer(data, "<u4"))], ("accesses",),
    count=500, together=500, feature="stmatrix",
)  # fmt: skip

if __name__ == "__main__":
    _launch_all()
