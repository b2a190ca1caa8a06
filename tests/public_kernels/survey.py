"""How many public kernels the machine runs, and whether their results are right. No card is needed.

    python survey.py --triton CHECKOUT --liger CHECKOUT --learn-cuda CHECKOUT … --wheels --cache FOLDER [NAME …]

Each option is a clone of a repository. --wheels takes what NVIDIA's wheels hold: CuTe's tutorials, CUTLASS, CUB and libcu++. Triton
compiles its kernels, and nvcc the others; FOLDER keeps what they made. A kernel counts as run if the machine accepts its text, it
finishes, no finding is an error, and the result equals a reference computed here. What does not is listed with the reason.
"""

# ruff: noqa: T201  a report is printed

import argparse
import collections
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from cuda_launches import CUDA_LAUNCHES
from cute_launches import CUTE_LAUNCHES
from library_launches import LIBRARY_LAUNCHES
from public_launch import Outcome, Result
from public_source import kernel_of
from triton_launches import TRITON_LAUNCHES
from triton_references import reference_of

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
# The options, and the source that a launch names.
CHECKOUTS = {
    "triton": "Triton",
    "liger": "Liger-Kernel",
    "unsloth": "unsloth",
    "fla": "flash-linear-attention",
    "vllm": "vLLM",
    "learn-cuda": "learn-cuda",
    "thunderkittens": "ThunderKittens",
    "deepgemm": "DeepGEMM",
}
WHEELS = ("CuTe", "CUTLASS", "CUB", "libcu++")
FLOAT_TOLERANCE = 5e-3  # of the largest expected value: half precision, approximate functions


class Row(NamedTuple):
    """A kernel of the survey."""

    source: str
    name: str
    arch: str
    launch: object  # () → Outcome


def build_argument(word, index, is_gluon):
    """(argument, type in the signature) of one word: f32:64x64, desc:f16:128x64/64x32, s32@48 (an array of one number), 7, 1.5."""
    if word.startswith("desc:"):
        array_word, _, block = word.removeprefix("desc:").partition("/")
        described = parse_argument(array_word, index)
        shape = [int(extent) for extent in block.split("x")]
        end = f",{layout_of(shape, described.data_type)!r}>" if is_gluon else ">"
        element = TRITON_TYPES[described.data_type]
        return build_array(described, index), f"tensordesc<{element}[{','.join(map(str, shape))}]{end}"
    if "@" in word:
        type_name, _, number = word.partition("@")
        array = build_array(parse_argument(f"{type_name}:1:zeros", index), index)
        array[:] = int(number)
        return array, f"*{TRITON_TYPES[type_name]}"
    described = parse_argument(word, index)
    if isinstance(described, ArrayArgument):
        return build_array(described, index), f"*{TRITON_TYPES[described.data_type]}"
    if isinstance(described.value, float):
        return described.value, "fp32"
    hint = ":1" if described.value == 1 else ":16" if described.value and described.value % 16 == 0 else ""
    return described.value, f"i32{hint}"


def layout_of(block, data_type):
    """The layout in shared memory that Gluon's tutorials choose for a block."""
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


def launch_triton(checkout, launch):
    """Compile and run a Triton kernel, and compare what it wrote with its reference."""
    function = kernel_of(checkout / launch.file, launch.kernel)
    given = [build_argument(word, index, function.is_gluon()) for index, word in enumerate(launch.arguments.split())]
    constants = {name: value(function) if callable(value) else value for name, value in launch.constants.items()}
    kernel = ts.Kernel.from_triton(function, [type_name for _, type_name in given], constants, **launch.options)
    arguments = [argument for argument, _ in given]
    before = [argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments]
    run = kernel.run(launch.grid, args=arguments, advice="none")
    reference = reference_of(launch)
    expected = reference(before) if reference is not None else {}
    return Outcome([run], [compare(arguments[index], array) for index, array in expected.items()])


def compare(found, expected):
    """The result of a kernel: integers are exact, floats have a tolerance."""
    is_integer = np.issubdtype(found.dtype, np.integer)
    return Result(found, np.reshape(expected, found.shape), 0.0 if is_integer else FLOAT_TOLERANCE)


def launch_cute(launch):
    """Run a tutorial of CuTe, and compare."""
    run, found, expected = launch.launched()
    return Outcome([run], [Result(found, expected)])


def list_rows(folders, cache, *, has_wheels):
    """The kernels of the checkouts that are here, and of the wheels."""
    available = {*folders, *(WHEELS if has_wheels else ())}
    rows = [
        Row(launch.source, launch.name, launch.arch, partial(launch_triton, folders.get(launch.source), launch))
        for launch in (*TRITON_LAUNCHES, *LIBRARY_LAUNCHES)
    ]
    rows += [Row("CuTe", launch.name, launch.arch, partial(launch_cute, launch)) for launch in CUTE_LAUNCHES]
    rows += [
        Row(launch.source, launch.name, launch.arch.rstrip("a"), partial(launch.launch, folders, cache))
        for launch in CUDA_LAUNCHES
    ]
    return [row for row in rows if row.source in available]


def find_problems(row):
    """(why a kernel does not count as run, whether its result was compared)."""
    try:
        outcome = row.launch()
    except ts.TilescopeError as error:
        return [str(error)], False
    except Exception as error:  # noqa: BLE001  one that fails otherwise is a row too
        return [f"{type(error).__name__}: {error}"], False
    return outcome.problems(), bool(outcome.results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option, source in CHECKOUTS.items():
        parser.add_argument(f"--{option}", type=Path, metavar="CHECKOUT", help=f"a clone of {source}'s repository")
    parser.add_argument("--wheels", action="store_true", help=f"kernels of NVIDIA's wheels: {', '.join(WHEELS)}")
    parser.add_argument("--cache", type=Path, help="folder that keeps what was compiled")
    parser.add_argument("names", nargs="*", help="only kernels whose source and name have one of these")
    asked = parser.parse_intermixed_args()
    np.seterr(all="ignore")
    cache = asked.cache or Path(tempfile.mkdtemp(prefix="tilescope-survey-"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(cache / "triton"))
    given = {source: getattr(asked, option.replace("-", "_")) for option, source in CHECKOUTS.items()}
    folders = {source: folder for source, folder in given.items() if folder is not None}
    counts = collections.Counter()
    compared_count = 0
    failures = []
    for row in list_rows(folders, cache, has_wheels=asked.wheels):
        if asked.names and not any(part in f"{row.source} {row.name}" for part in asked.names):
            continue
        start = time.monotonic()
        problems, is_compared = find_problems(row)
        counts[row.source, not problems] += 1
        compared_count += is_compared and not problems
        verdict = "NOT " if problems else "right" if is_compared else "runs"
        print(f"{verdict:5} {row.arch:6} {row.source}: {row.name} ({time.monotonic() - start:.1f} s)", flush=True)
        if problems:
            failures.append((row, problems))
    for row, problems in failures:
        print(f"\n{row.source}: {row.name} ({row.arch})")
        for problem in problems:
            print(f"    {problem[:1500]}")
    print()
    for source in dict.fromkeys(source for source, _ in counts):
        whole = counts[source, True] + counts[source, False]
        print(f"{source}: {counts[source, True]} of {whole} run")
    whole = sum(counts.values())
    good = sum(count for (_, is_run), count in counts.items() if is_run)
    print(
        f"all: {good} of {whole} run, {100 * good / max(whole, 1):.0f} %; the results of {compared_count} were compared"
    )


if __name__ == "__main__":
    main()
