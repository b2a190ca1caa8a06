"""Running recorded kernels without a GPU: milliseconds, and instructions a second.

A warp instruction is one instruction of one warp, as a profiler counts them; a step is one instruction of all threads that
stand at it together, which is what costs time here.

python benchmarks/run.py
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ratio import Work, run, shown_time, sized, timings

import tilescope as ts

KERNELS = Path(__file__).parent.parent / "tests" / "golden" / "kernels"
NAMES = sized(("mm_tma_f16", "attention", "mm_pointers_odd", "softmax", "emitted_gemm_f16"), tiny=("softmax",))
GOALS_SECONDS = {"mm_tma_f16": 0.5}  # with numpy alone, without findings
FINDINGS_GOAL = 3.0  # times the run without them …
FINDINGS_FROM_SECONDS = 0.1  # … where that takes as long


class Recorded(NamedTuple):
    """A kernel and its launch, as they were recorded on a card."""

    kernel: ts.Kernel
    launch: dict
    arrays: list


def recorded(name):
    recording = np.load(KERNELS / f"{name}.npz")
    launch = json.loads(str(recording["launch"]))
    kernel = ts.Kernel((KERNELS / f"{name}.ptx").read_text("utf-8"), launch["entry"])
    arrays = [
        recording[f"before{number}"].view(described["type"]).reshape(described["shape"])
        for number, described in enumerate(launch["arrays"])
    ]
    return Recorded(kernel, launch, arrays)


def launched(case, *, findings=False):
    """Run a kernel on copies of its arrays."""
    memory = ts.Memory()
    arrays = [array.copy() for array in case.arrays]
    arguments = []
    for param in case.launch["params"]:
        match param["kind"]:
            case "map":
                array = arrays[param["array"]]
                arguments.append(memory.map(array, param["box"], swizzle=param["swizzle"]))
            case "array":
                arguments.append(arrays[param["array"]])
            case _:
                arguments.append(param["value"])
    return case.kernel.run(
        case.launch["grid"],
        case.launch["block"],
        arguments,
        memory=memory,
        smem_bytes=case.launch["smem_bytes"],
        findings=findings,
    )


def main():
    print(
        f"{'kernel':20}{'time':>10}{'goal':>10}{'with findings':>16}{'ratio':>8}{'goal':>7}"
        f"{'warp instructions':>20}{'steps':>10}{'warp instr. / s':>18}{'steps / s':>12}"
    )
    for name in NAMES:
        case = recorded(name)
        plain, with_findings = timings(
            Work("plain", lambda case=case: launched(case)),
            Work("with findings", lambda case=case: launched(case, findings=True)),
        )
        done = launched(case)
        assert done.outcome == "finished", f"{name}: {done.outcome}"
        warps = sum(row.warps for row in done.instructions)
        goal = GOALS_SECONDS.get(name)
        shown_goal = "" if goal is None else shown_time(goal)
        shown_ratio_goal = f"{FINDINGS_GOAL:.2f}" if plain.seconds > FINDINGS_FROM_SECONDS else ""
        print(
            f"{name:20}{shown_time(plain.seconds):>10}{shown_goal:>10}{shown_time(with_findings.seconds):>16}"
            f"{with_findings.ratio:8.2f}{shown_ratio_goal:>7}{warps:20,}{done.steps:10,}"
            f"{warps / plain.seconds:18,.0f}{done.steps / plain.seconds:12,.0f}"
        )


if __name__ == "__main__":
    run(main)
