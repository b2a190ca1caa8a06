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
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Piece, Result, Suite
from tilescope.smem.banks import wavefronts
from tilescope.smem.op import SMEM_OP, SmemOp

_OPS = tuple(name for name, row in SMEM_OP.items() if not row.is_copy)  # as kernels/accesses.cu numbers them
_SMEM_BYTES = 32768
_ALL = 0xFFFFFFFF
_COUNTERS = {
    "op_ld": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "op_st": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
_CASES = "accesses.json"  # in the folder of the kernels
_TRIES = 5  # of a timed access, of which the fastest counts
_WARPS = 16  # that make it side by side
_TIMES = 64  # in a row


def _draw(random: random.Random, _arch: str) -> Case:
    """Lanes at a stride, through a swizzle, in pairs, or anywhere."""
    op = SmemOp.named(random.choice(_OPS))
    size = op.access_bytes
    pattern = random.choice(("stride", "stride", "swizzle", "pairs", "any", "few lines"))
    stride = random.randint(0, 33)
    shift = random.randint(0, 5)
    mask = random.randint(0, 31)
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


def _predict(case: Case) -> list[Piece]:
    return [Piece("wavefronts", np.array([wavefronts(case["op"], case["lanes"], case["active"])], "<u4"))]


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    counts = _count_by_ncu(device, cases)
    if counts is None:
        counts = _time_accesses(device, cases).tolist()
    return ([np.array([count], "<u4")] for count in counts)


def _count_by_ncu(device: Device, cases: list[Case]) -> list[int] | None:
    """Wavefronts as Nsight Compute counts them; None where it does not work here."""
    program = shutil.which("ncu")
    if program is None or device.cubins is None:
        return None
    device.cubins.joinpath(_CASES).write_text(json.dumps(cases), "utf-8")
    options = ["--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none"]
    options += ["--metrics", ",".join(_COUNTERS.values()), sys.executable, "-m", __name__, str(device.cubins)]
    done = subprocess.run([program, *options], capture_output=True, encoding="utf-8", errors="replace", check=False)  # noqa: S603  NVIDIA's profiler
    table = csv.DictReader(io.StringIO(done.stdout[done.stdout.find('"ID"') :]))
    rows = [row for row in table if (row.get("ID") or "").isdigit()]
    if done.returncode or len(rows) != len(cases):
        return None
    columns = [_COUNTERS[SmemOp.named(case["op"]).counter] for case in cases]
    return [round(float(row[column].replace(",", ""))) for row, column in zip(rows, columns, strict=True)]


def _launch_all() -> None:
    """Launch every case once: what runs under Nsight Compute."""
    folder = Path(sys.argv[1])
    device = Device(folder)
    for case in json.loads(folder.joinpath(_CASES).read_text("utf-8")):
        device.launch(
            "accesses:one_access",
            _OPS.index(case["op"]),
            np.array(case["lanes"], np.int32),
            case["active"],
            device.allocate(4),
            blocks=1,
            threads=32,
            smem_bytes=_SMEM_BYTES,
        )


def _time_accesses(device: Device, cases: list[Case]) -> Array:
    """Wavefronts from clocks, which grow with them: two accesses of the same operation tell by how much."""
    # in the first, every bank is accessed once in every iteration; in the second, all accesses are to one bank
    ops = [SmemOp.named(case["op"]) for case in cases]
    steps = [op.access_bytes for op in ops] + [128] * len(cases)
    reference_cases = [
        {"op": op.name, "lanes": [lane * step for lane in range(32)], "active": _ALL}
        for op, step in zip(ops * 2, steps, strict=True)
    ]
    low, high, cycles = np.split(cycles_of(device, [*reference_cases, *cases]), 3)
    few, many = np.split(np.concatenate([_predict(case)[0].numbers for case in reference_cases]).astype(np.float64), 2)
    return np.asarray(few + (cycles - low) * (many - few) / (high - low)).round().clip(0)


def cycles_of(device: Device, cases: list[Case]) -> Array:
    """Clocks of one access of every case, the least of several tries."""
    cycles = np.empty((len(cases), _TRIES), "<u4")
    operations = np.array([_OPS.index(case["op"]) for case in cases], np.int32)
    lanes = np.array([case["lanes"] for case in cases], np.uint32)
    active = np.array([case["active"] for case in cases], np.uint32)
    device.launch(
        "accesses:timed_accesses",
        operations,
        lanes,
        active,
        0,
        device.allocate(4),
        out=[cycles],
        blocks=len(cases),
        threads=32 * _WARPS,
        smem_bytes=200 * 1024,
    )
    return np.asarray(cycles.min(axis=1) / (_TIMES * _WARPS))


BANKS = Suite("banks", _draw, _predict, _run, kernels=("accesses",), count=500, together=500, feature="stmatrix")

if __name__ == "__main__":
    _launch_all()
