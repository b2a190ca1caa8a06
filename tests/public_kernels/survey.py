"""How many public kernels the machine runs: those of Triton's tutorials and unit tests, and CuTe's tutorials, compiled here.

    python survey.py --triton CHECKOUT [--cute] [NAME …]

CHECKOUT is a clone of the repository of Triton; --cute takes the examples of the nvidia-cutlass wheel, and nvcc. No card is
needed. A kernel counts as run if the machine accepts its text, it finishes, and no finding is an error. What does not is
listed with the reason.
"""

# ruff: noqa: T201  a report is printed

import argparse
import collections
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from cute_launches import CUTE_LAUNCHES
from public_source import kernel_of
from triton_launches import TRITON_LAUNCHES

import tilescope as ts
from tilescope.machine.launch.argument_builder import build_array
from tilescope.machine.launch.argument_text import parse_argument
from tilescope.machine.launch.launch_description import ArrayArgument

TRITON_TYPES = {
    "f16": "fp16",
    "bf16": "bf16",
    "f32": "fp32",
    "f64": "fp64",
    "s8": "i8",
    "s16": "i16",
    "s32": "i32",
    "s64": "i64",
    "u8": "u8",
    "u32": "u32",
    "u64": "u64",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
}


def taken(word, index, is_gluon):
    """(argument, type in the signature) of one word: f32:64x64, desc:f16:128x64/64x32, 7, 1.5."""
    if word.startswith("desc:"):
        array_word, _, block = word.removeprefix("desc:").partition("/")
        described = parse_argument(array_word, index)
        shape = [int(extent) for extent in block.split("x")]
        end = f",{layout_of(shape, described.data_type)!r}>" if is_gluon else ">"
        element = TRITON_TYPES[described.data_type]
        return build_array(described, index), f"tensordesc<{element}[{','.join(map(str, shape))}]{end}"
    described = parse_argument(word, index)
    if isinstance(described, ArrayArgument):
        return build_array(described, index), f"*{TRITON_TYPES[described.data_type]}"
    if isinstance(described.value, float):
        return described.value, "fp32"
    hint = ":1" if described.value == 1 else ":16" if described.value and described.value % 16 == 0 else ""
    return described.value, f"i32{hint}"


def layout_of(block, data_type):
    from triton.experimental.gluon import language as gl

    element = {
        "f16": gl.float16,
        "f32": gl.float32,
        "bf16": gl.bfloat16,
        "e4m3": gl.float8e4nv,
        "s32": gl.int32,
        "s8": gl.int8,
    }
    return gl.NVMMASharedLayout.get_default_for(block, element[data_type])


def triton_run(checkout, launch):
    """The run of a kernel, or the reason why there is none."""
    function = kernel_of(checkout / launch.file, launch.kernel)
    given = [taken(word, index, function.is_gluon()) for index, word in enumerate(launch.arguments.split())]
    constants = {name: value(function) if callable(value) else value for name, value in launch.constants.items()}
    kernel = ts.Kernel.from_triton(function, [told for _, told in given], constants, **launch.options)
    return kernel.run(launch.grid, args=[argument for argument, _ in given], remedies=False)


def judged(run):
    """Why a run does not count; empty where it does."""
    if run.outcome != "finished":
        return f"{run.outcome}: {run.findings[0]}"
    errors = [finding for finding in run.findings if finding.severity == "error"]
    return f"{len(errors)} error findings: {errors[0]}" if errors else ""


def attempted(make):
    try:
        return judged(make())
    except ts.TilescopeError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001  one that fails otherwise is a row too
        return f"{type(error).__name__}: {error}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triton", type=Path, help="a clone of Triton's repository")
    parser.add_argument("--cute", action="store_true", help="compile the tutorials of the nvidia-cutlass wheel")
    parser.add_argument("names", nargs="*", help="only kernels whose name has one of these")
    asked = parser.parse_args()
    np.seterr(all="ignore")
    rows = []
    if asked.triton:
        rows += [
            (launch.name, launch.arch, lambda launch=launch: triton_run(asked.triton, launch))
            for launch in TRITON_LAUNCHES
        ]
    if asked.cute:
        rows += [(launch.name, launch.arch, launch.run) for launch in CUTE_LAUNCHES]
    counts = collections.Counter()
    refused = []
    for name, arch, make in rows:
        if asked.names and not any(part in name for part in asked.names):
            continue
        start = time.monotonic()
        reason = attempted(make)
        counts[arch, not reason] += 1
        print(f"{'runs' if not reason else 'NOT '} {arch:6} {name} ({time.monotonic() - start:.1f} s)", flush=True)
        if reason:
            refused.append((name, reason))
    for name, reason in refused:
        print(f"\n{name}\n    {reason[:600]}")
    print()
    for arch in sorted({arch for arch, _ in counts}):
        whole = counts[arch, True] + counts[arch, False]
        print(f"{arch}: {counts[arch, True]} of {whole} run, {100 * counts[arch, True] / whole:.0f} %")
    whole = sum(counts.values())
    good = sum(count for (_, runs), count in counts.items() if runs)
    print(f"all: {good} of {whole} run, {100 * good / max(whole, 1):.0f} %")


if __name__ == "__main__":
    main()
