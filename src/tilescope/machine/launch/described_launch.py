"""Run a described launch: build its arguments, run the kernel, and report the arrays that it changed.

description = read_launch(content, "launch.toml")
outcome = run_launch(kernel, description)
outcome.run                       the run, as Kernel.run returns it
outcome.arrays[0]                 the array of argument 0, after the run
outcome.outputs                   the arrays that changed: how many elements, and the first of them
outcome.memory                    of a recorded launch: which bytes differ from those the card left
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.kernel import DEFAULT_MAX_STEPS, Kernel
from tilescope.machine.launch.argument_builder import ReadArray, build_arguments
from tilescope.machine.launch.argument_text import format_arguments
from tilescope.machine.launch.kernel_arguments import ARGUMENT_COUNT
from tilescope.machine.launch.launch_description import ALL, CORNERS, Blocks, LaunchDescription
from tilescope.machine.launch.launch_shape import read_extents
from tilescope.machine.launch.launch_template import choose_sample_arguments
from tilescope.machine.launch.recorded_memory import MemoryOutcome, compare_recorded_memory, place_recorded_memory
from tilescope.machine.memory import Memory
from tilescope.machine.report.run import KernelRun
from tilescope.machine.run_arguments import Advice, Smem
from tilescope.ptx.source_name import parameter_name, source_name
from tilescope.rule import ptx_example, rule
from tilescope.sentence import shorten
from tilescope.tma.array_file import read_array
from tilescope.value import Value

Array = npt.NDArray[Any]
JsonNumber = int | float | str  # infinities and NaN as text
_FIRST_VALUES = 4
_SHOWN_CHARACTERS = 60  # of an argument; the bytes of a large struct are not shown whole
_RUN = "ts.machine.launch.described_launch.run_launch"
_DESCRIPTION = "ts.machine.launch.launch_description.LaunchDescription"
_KERNEL = f"ts.Kernel({ptx_example('empty.ptx')})"

LAUNCH_SHAPE_MISSING = rule(
    "launch-missing",
    "A launch has the number of blocks of the grid, and the threads of a block if the kernel does not specify them.",
    argument="{name}",
    found="no {name}",
    limit="{entry} does not say it",
    fix="Add {example}.",
    source="CUDA, kernel launch: grid and block dimensions",
    passing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=(1,), block=(32,)))",
    failing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=(1,)))",
)
ARGUMENTS_MISSING = ARGUMENT_COUNT.worded(
    found="no arguments",
    fix="Add {examples}, with your own types and shapes; --template writes a launch file instead.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputArray(Value):
    """An array that a kernel changed: its argument, the number of changed elements, and its values after the run.

    `first` are the first elements that changed. `least` and `most` are those of the whole array, NaNs left out.
    """

    argument: int
    name: str
    data_type: str
    shape: tuple[int, ...]
    changed: int
    first: tuple[JsonNumber, ...]
    least: JsonNumber | None
    most: JsonNumber | None
    nans: int


class LaunchOutcome(NamedTuple):
    """A run, the arrays of its arguments by number, those that it changed, and the memory of a recorded launch."""

    run: KernelRun
    arrays: Mapping[int, Array]
    outputs: tuple[OutputArray, ...]
    memory: tuple[MemoryOutcome, ...] = ()


def run_launch(
    kernel: Kernel,
    launch: LaunchDescription,
    read: ReadArray = read_array,
    *,
    smem: Smem | None = None,
    max_seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
    advice: Advice = "fixes",
) -> LaunchOutcome:
    """Run a kernel as a launch describes it; `read` returns the array of a file that the launch names.

    `smem`, `max_seconds`, `progress` and `advice` are those of `Kernel.run`.

    >>> from tilescope.machine.launch.launch_description import ArrayArgument
    >>> text = '''.version 8.0 .target sm_90 .address_size 64
    ... .visible .entry set(.param .u64 a) {
    ...     .reg .b64 %rd<2>;
    ...     ld.param.u64 %rd1, [a];
    ...     st.global.u32 [%rd1+8], 7;
    ...     ret;
    ... }'''
    >>> array = ArrayArgument(data_type="s32", shape=(4,), fill="zeros")
    >>> outcome = run_launch(Kernel(text), LaunchDescription(grid=(1,), block=(1,), arguments=(array,)))
    >>> outcome.arrays[0].tolist(), outcome.outputs[0].changed
    ([0, 0, 7, 0], 1)
    """
    raise_all(_find_missing(kernel, launch))
    assert launch.grid is not None
    memory = Memory()
    recorded = [place_recorded_memory(description, memory, read) for description in launch.memory]
    built = build_arguments(launch.arguments, memory, read)
    before = {index: array.copy() for index, array in built.arrays.items()}
    run = kernel.run(
        launch.grid,
        launch.block,
        built.arguments,
        memory=memory,
        smem_bytes=launch.smem_bytes,
        cluster=launch.cluster,
        arch=launch.arch,
        blocks=select_blocks(launch.blocks, launch.grid),
        seed=launch.seed,
        max_steps=DEFAULT_MAX_STEPS if launch.max_steps is None else launch.max_steps,
        max_seconds=max_seconds,
        progress=progress,
        advice=advice,
        smem=smem,
    )
    if kernel.host is None:
        names = [parameter_name(kernel.entry, parameter.name) for parameter in kernel.parameters]
    else:
        names = [parameter.name for parameter in kernel.host.parameters]
    outputs = [
        _describe_output(index, names[index], array, before[index])
        for index, array in built.arrays.items()
        if array.tobytes() != before[index].tobytes()
    ]
    memory_outcomes = [compare_recorded_memory(placed, read) for placed in recorded]
    return LaunchOutcome(run, built.arrays, tuple(outputs), tuple(memory_outcomes))


def _find_missing(kernel: Kernel, launch: LaunchDescription) -> Iterator[Violation]:
    """Grid, block and arguments that neither the launch nor the kernel specifies."""
    entry = kernel.module.functions[kernel.entry]
    name = source_name(kernel.entry)
    if launch.grid is None:
        yield LAUNCH_SHAPE_MISSING.violation(name="grid", entry=name, example="--grid 4, or grid = [4]")
    if launch.block is None and entry.required_threads is None and kernel.host is None:
        yield LAUNCH_SHAPE_MISSING.violation(name="block", entry=name, example="--block 128, or block = [128]")
    if not launch.arguments and kernel.parameters and kernel.host is None:
        samples = format_arguments(choose_sample_arguments(kernel))
        yield ARGUMENTS_MISSING.violation(
            entry=name,
            wanted=len(kernel.parameters),
            names=[parameter_name(kernel.entry, parameter.name) for parameter in kernel.parameters],
            examples=" ".join(f"--arg {shorten(text, _SHOWN_CHARACTERS)}" for text in samples),
        )


def select_blocks(blocks: Blocks, grid: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """The blocks to run; None for all. Corners are the first and last block along every axis.

    >>> select_blocks("corners", (3, 2))
    ((0, 0, 0), (2, 0, 0), (0, 1, 0), (2, 1, 0))
    """
    if blocks == ALL:
        return None
    if blocks != CORNERS:
        assert not isinstance(blocks, str)
        return blocks
    ends = [sorted({0, extent - 1}) for extent in read_extents("grid", tuple(grid))]
    return tuple((x, y, z) for z, y, x in itertools.product(*reversed(ends)))


def _describe_output(index: int, name: str, array: Array, before: Array) -> OutputArray:
    bits = f"u{array.dtype.itemsize}"
    is_changed = array.view(bits).reshape(-1) != before.view(bits).reshape(-1)
    changed = array.reshape(-1)[is_changed]
    is_nan = _is_nan(array)
    numbers = array[~is_nan]
    return OutputArray(
        argument=index,
        name=name,
        data_type=_name_type(array.dtype),
        shape=array.shape,
        changed=int(is_changed.sum()),
        first=tuple(_to_json(value) for value in changed[:_FIRST_VALUES]),
        least=_to_json(numbers.min()) if numbers.size else None,
        most=_to_json(numbers.max()) if numbers.size else None,
        nans=int(is_nan.sum()),
    )


def _name_type(dtype: np.dtype[Any]) -> str:
    try:
        return DataType.named(dtype).ptx
    except RuleError:
        return str(dtype)


def _is_nan(array: Array) -> npt.NDArray[np.bool_]:
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, np.bool_)
    with np.errstate(invalid="ignore"):  # a signaling NaN
        return np.isnan(array.astype(np.float64))


def _to_json(value: Any) -> JsonNumber:
    """A number as JSON can hold it; infinities and NaN as text."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int):
        return plain
    number = float(plain)
    return number if np.isfinite(number) else str(number)
