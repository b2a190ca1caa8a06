"""Time running kernels without a GPU: milliseconds, and instructions per second.

The first kernels are launched as they were recorded on a card. Larger launches, of recorded kernels and of kernels compiled by Triton 3.9
(kernels/), have the sizes of typical tests. A warp instruction is one instruction of one warp, as profilers count them. A
step is one instruction, executed by all threads of a block that are at its program counter.

The last two columns compare with Triton's interpreter (TRITON_INTERPRET=1), which checks nothing, in the same rounds: its
time, and the ratio of its time to that of a run with findings. They need Triton and torch.

python benchmarks/run.py
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ratio import Work, is_tiny, run, shown_time, sized, timings

import tilescope as ts

KERNELS = Path(__file__).parent.parent / "tests" / "golden" / "kernels"
LARGER = Path(__file__).parent / "kernels"
NAMES = sized(
    ("mm_tma_f16", "attention", "mm_pointers_odd", "softmax", "emitted_gemm_f16", "histogram"), tiny=("softmax",)
)
ROWS = sized(64, tiny=4)  # of softmax and layer norm, 4096 elements each
WORDS = sized(1 << 20, tiny=1 << 13)  # of element-wise kernels and reductions
EXTENT = sized(1024, tiny=128)  # of matrices, and of a sequence of attention with two heads of 64
GOALS_SECONDS = {"mm_tma_f16": 0.5}  # without numba and findings
FINDINGS_GOAL = 2.0  # ratio to the run without findings
FINDINGS_FROM_SECONDS = 0.02  # shorter runs have no goal


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


def of_triton(name, grid, arrays, numbers, smem_bytes=16):
    """A launch of a kernel of 128 threads: arrays, numbers, and two scratch pointers of Triton."""
    text = (LARGER / f"{name}.ptx").read_text("utf-8")
    kernel = ts.Kernel(text)

    def launch(*, findings=False):
        args = [*[array.copy() for array in arrays], *numbers, 0, 0]
        return kernel.run(grid, 128, args, smem_bytes=smem_bytes, findings=findings, advice="none")

    return launch


def of_maps(name, grid, boxes, arrays, numbers):
    """A launch of a recorded kernel that takes tensor maps, each with the extents and strides of its array."""
    case = recorded(name)

    def launch(*, findings=False):
        memory = ts.Memory()
        args = []
        for array, box_rows in zip([array.copy() for array in arrays], boxes, strict=True):
            rows, columns = array.shape
            args += [memory.map(array, (64, box_rows), swizzle="128B"), rows, columns, columns, 1]
        options = {"memory": memory, "smem_bytes": case.launch["smem_bytes"], "findings": findings}
        return case.kernel.run(grid, case.launch["block"], [*args, *numbers, 0, 0], advice="none", **options)

    return launch


def random_arrays():
    """The arrays of the larger launches, by name."""
    random = np.random.default_rng(0)
    return {
        "rows": random.standard_normal((ROWS, 4096)).astype(np.float32),
        "weights": random.standard_normal(4096).astype(np.float32),
        "words": random.standard_normal(WORDS).astype(np.float32),
        "square": random.standard_normal((EXTENT, EXTENT)).astype(np.float16),
        "keys": random.standard_normal((EXTENT, 64)).astype(np.float16),
        "queries": random.standard_normal((2 * EXTENT, 64)).astype(np.float16),
    }


def interpreted_launches():
    """Triton's interpreter on the same launches, by the first words of the rows' names; empty if Triton is not installed.

    A trial with --tiny leaves it out: a process in which Triton interprets can do nothing else with it.
    """
    if is_tiny():
        return {}
    sys.path.insert(0, str(LARGER))
    from interpreted import launches

    return launches(ROWS, WORDS, EXTENT, random_arrays()) or {}


def larger_launches():
    """Launches by the names of their rows."""
    rows, weights, words, square, keys, queries = random_arrays().values()
    tiles = EXTENT // 128
    zeros = np.zeros_like
    return {
        f"softmax {ROWS} x 4096": of_triton("softmax", ROWS, [rows, zeros(rows)], [4096]),
        f"layer norm {ROWS} x 4096": of_triton("layer_norm", ROWS, [rows, zeros(rows), weights, weights], [4096, 1e-5]),
        f"element-wise {WORDS}": of_triton("elementwise", WORDS // 1024, [words, words, zeros(words)], [WORDS], 0),
        f"reduction {WORDS}": of_triton("reduction", WORDS // 4096, [words, np.zeros(1, np.float32)], [WORDS]),
        f"attention 1 x 2 x {EXTENT} x 64": of_maps(
            "attention", 2 * tiles, (128, 64, 64, 128), [queries, keys, keys, zeros(queries)], [0.18, EXTENT]
        ),
        f"matmul {EXTENT}^3": of_maps(
            "mm_tma_f16", (tiles, tiles), (128, 128, 128), [square, square, zeros(square)], [EXTENT]
        ),
    }


def interpreter_of(name, interpreted):
    """The interpreter's function for a row; None if it has no such kernel or is not installed."""
    return next((launch for kernel, launch in interpreted.items() if name.startswith(f"{kernel} ")), None)


def shown_interpreter(name, measured):
    """The two columns about the interpreter."""
    if measured is None:
        return "" if name in NAMES else f"{'left out' if is_tiny() else 'not installed':>16}"
    return f"{shown_time(measured.seconds):>16}{measured.ratio:8.2f}"


def main():
    print(
        f"{'kernel':28}{'time':>10}{'goal':>10}{'with findings':>16}{'ratio':>8}{'goal':>7}"
        f"{'warp instructions':>20}{'steps':>10}{'warp instr. / s':>18}{'steps / s':>12}{'interpreter':>16}{'ratio':>8}"
    )
    launches = {name: partial(launched, recorded(name)) for name in NAMES} | larger_launches()
    interpreted = interpreted_launches()
    for name, launch in launches.items():
        interpreter = interpreter_of(name, interpreted)
        with_findings, plain, *others = timings(
            Work("with findings", partial(launch, findings=True)),
            Work("plain", launch),
            *([] if interpreter is None else [Work("interpreter", interpreter)]),
        )
        done = launch()
        assert done.outcome == "finished", f"{name}: {done.outcome}"
        warps = sum(row.warps for row in done.instructions)
        goal = GOALS_SECONDS.get(name)
        shown_goal = "" if goal is None else shown_time(goal)
        shown_ratio_goal = f"{FINDINGS_GOAL:.2f}" if plain.seconds > FINDINGS_FROM_SECONDS else ""
        print(
            f"{name:28}{shown_time(plain.seconds):>10}{shown_goal:>10}{shown_time(with_findings.seconds):>16}"
            f"{1 / plain.ratio:8.2f}{shown_ratio_goal:>7}{warps:20,}{done.steps:10,}"
            f"{warps / plain.seconds:18,.0f}{done.steps / plain.seconds:12,.0f}"
            f"{shown_interpreter(name, others[0] if others else None)}"
        )


if __name__ == "__main__":
    run(main)
