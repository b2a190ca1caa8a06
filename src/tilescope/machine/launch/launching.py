"""A described launch, run: its arguments made, the kernel run, and the arrays that it changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all
from tilescope.machine.address import WINDOW_BYTES, WINDOWS
from tilescope.machine.kernel import DEFAULT_MAX_STEPS, Kernel
from tilescope.machine.launch.argument_making import ReadArray, made_arguments
from tilescope.machine.launch.argument_text import argument_words
from tilescope.machine.launch.kernel_arguments import ARGUMENT_COUNT
from tilescope.machine.launch.launch_description import ALL, CORNERS, Blocks, LaunchDescription, MemoryDescription
from tilescope.machine.launch.launch_shape import extents
from tilescope.machine.launch.launch_template import sample_arguments
from tilescope.machine.memory import Memory, contents_of
from tilescope.machine.report.run import KernelRun
from tilescope.ptx.source_name import parameter_name, source_name
from tilescope.rule import ptx_example, rule
from tilescope.sentence import shortened
from tilescope.tma.array_file import read_array
from tilescope.value import Value, hex_field

Array = npt.NDArray[Any]
Shown = int | float | str  # numbers as JSON takes them; infinities and NaN as text
_FIRST_VALUES = 4
_SHOWN_CHARACTERS = 60  # of an argument; the bytes of a large struct are not shown whole
_RUN = "ts.machine.launch.launching.launched"
_DESCRIPTION = "ts.machine.launch.launch_description.LaunchDescription"
_RECORDED = "ts.machine.launch.launch_description.MemoryDescription"
_ZEROS = "lambda file: np.zeros(64, 'u1')"
_KERNEL = f"ts.Kernel({ptx_example('empty.ptx')})"

LAUNCH_SHAPE_MISSING = rule(
    "launch-missing",
    "A launch says how many blocks the grid has, and how many threads a block has if the kernel does not.",
    argument="{name}",
    found="no {name}",
    limit="{entry} does not say it",
    fix="Add {example}.",
    source="CUDA, kernel launch: grid and block dimensions",
    passing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=(1,), block=(32,)))",
    failing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=(1,)))",
)

LAUNCH_MEMORY = rule(
    "launch-memory",
    "Pieces of memory of a recorded launch, at their addresses of the card, overlap neither each other nor shared or local memory.",
    argument="memory",
    found="{size_bytes} bytes at {address:#x}",
    limit="{other} lies there",
    fix="Record the launch again: addresses differ from run to run.",
    source="the machine: where shared, local and parameter memory lie among generic addresses",
    passing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=1, block=32, memory=[{_RECORDED}(address=0x7F0000000000, file='a')]), {_ZEROS})",
    failing=f"{_RUN}({_KERNEL}, {_DESCRIPTION}(grid=1, block=32, memory=[{_RECORDED}(address=0x7E0000000000, file='a')]), {_ZEROS})",
)
ARGUMENTS_MISSING = ARGUMENT_COUNT.worded(
    found="no arguments",
    fix="Add {examples}, with your own types and shapes; --template writes a launch file instead.",
)
NO_RECORDED_FILE = LAUNCH_MEMORY.worded(
    found="{file}: {reason}",
    limit="the bytes of the memory are read from there",
    fix="Name a file of the archive, or one beside the launch file.",
)
OTHER_SIZE_AFTER = LAUNCH_MEMORY.worded(
    found="{file} has {after_bytes:byte}",
    limit="the memory at {address:#x} has {size_bytes:byte}, before the launch and after it",
    fix="Name the file that was recorded for this memory, or leave out `after`.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputArray(Value):
    """An array that a kernel changed: which argument, how much of it, and what it holds now.

    `first` are the first elements that changed, `least` and `most` those of the whole array that are numbers.
    """

    argument: int
    name: str
    data_type: str
    shape: tuple[int, ...]
    changed: int
    first: tuple[Shown, ...]
    least: Shown | None
    most: Shown | None
    nans: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOutcome(Value):
    """Memory of a recorded launch after the run here: the bytes that changed, and those that differ from the card's."""

    address: int = hex_field()
    size_bytes: int
    changed_bytes: int
    differing_bytes: int | None  # None: the recording does not have what the card left
    first_difference: int | None = hex_field(default=None)
    missing_bytes: int = 0


class Launched(NamedTuple):
    """A run, the arrays of its arguments by number, those that it changed, and the memory of a recorded launch."""

    run: KernelRun
    arrays: Mapping[int, Array]
    outputs: tuple[OutputArray, ...]
    memory: tuple[MemoryOutcome, ...] = ()


def launched(
    kernel: Kernel,
    launch: LaunchDescription,
    read: ReadArray = read_array,
    *,
    smem_block: Sequence[int] | None = None,
    smem_at: str | None = None,
    max_seconds: float | None = None,
    remedies: bool = True,
    advice: bool = False,
) -> Launched:
    """Run a kernel as a launch describes it; `read` gives the arrays of the files that it names.

    `smem_block`, `smem_at`, `max_seconds`, `remedies` and `advice` are those of `Kernel.run`.

    >>> from tilescope.machine.launch.launch_description import ArrayArgument
    >>> text = '''.version 8.0 .target sm_90 .address_size 64
    ... .visible .entry set(.param .u64 a) {
    ...     .reg .b64 %rd<2>;
    ...     ld.param.u64 %rd1, [a];
    ...     st.global.u32 [%rd1+8], 7;
    ...     ret;
    ... }'''
    >>> array = ArrayArgument(data_type="s32", shape=(4,), fill="zeros")
    >>> done = launched(Kernel(text), LaunchDescription(grid=(1,), block=(1,), arguments=(array,)))
    >>> done.arrays[0].tolist(), done.outputs[0].changed
    ([0, 0, 7, 0], 1)
    """
    raise_all(_missing(kernel, launch))
    assert launch.grid is not None
    memory = Memory()
    recorded = [_placed(one, memory, read) for one in launch.memory]
    made = made_arguments(launch.arguments, memory, read)
    before = {index: array.copy() for index, array in made.arrays.items()}
    run = kernel.run(
        launch.grid,
        launch.block,
        made.arguments,
        memory=memory,
        smem_bytes=launch.smem_bytes,
        cluster=launch.cluster,
        arch=launch.arch,
        blocks=chosen_blocks(launch.blocks, launch.grid),
        seed=launch.seed,
        max_steps=DEFAULT_MAX_STEPS if launch.max_steps is None else launch.max_steps,
        max_seconds=max_seconds,
        remedies=remedies,
        advice=advice,
        smem_block=smem_block,
        smem_at=smem_at,
    )
    if kernel.host is None:
        names = [parameter_name(kernel.entry, parameter.name) for parameter in kernel.parameters]
    else:
        names = [parameter.name for parameter in kernel.host.parameters]
    outputs = [
        _output(index, names[index], array, before[index])
        for index, array in made.arrays.items()
        if array.tobytes() != before[index].tobytes()
    ]
    return Launched(run, made.arrays, tuple(outputs), tuple(_memory_outcome(one, read) for one in recorded))


def _missing(kernel: Kernel, launch: LaunchDescription) -> Iterator[Violation]:
    """What neither the launch nor the kernel says: grid, block, and arguments where there are none."""
    entry = kernel.module.functions[kernel.entry]
    name = source_name(kernel.entry)
    if launch.grid is None:
        yield LAUNCH_SHAPE_MISSING.violation(name="grid", entry=name, example="--grid 4, or grid = [4]")
    if launch.block is None and entry.required_threads is None and kernel.host is None:
        yield LAUNCH_SHAPE_MISSING.violation(name="block", entry=name, example="--block 128, or block = [128]")
    if not launch.arguments and kernel.parameters and kernel.host is None:
        yield ARGUMENTS_MISSING.violation(
            entry=name,
            wanted=len(kernel.parameters),
            names=[parameter_name(kernel.entry, parameter.name) for parameter in kernel.parameters],
            examples=" ".join(
                f"--arg {shortened(text, _SHOWN_CHARACTERS)}" for text in argument_words(sample_arguments(kernel))
            ),
        )


class _PlacedMemory(NamedTuple):
    described: MemoryDescription
    content: npt.NDArray[np.uint8]
    before: npt.NDArray[np.uint8]


def _placed(described: MemoryDescription, memory: Memory, read: ReadArray) -> _PlacedMemory:
    """Recorded bytes at the address that they had on the card."""
    content = _recorded_bytes(described.file, read).copy()
    end = described.address + len(content)
    windows = [space for space, start in WINDOWS.items() if described.address < start + WINDOW_BYTES and start < end]
    if windows:
        raise LAUNCH_MEMORY.error(address=described.address, size_bytes=len(content), other=f"{windows[0]} memory")
    if not contents_of(memory).place_at(described.address, content):
        raise LAUNCH_MEMORY.error(
            address=described.address, size_bytes=len(content), other="other memory of the launch"
        )
    return _PlacedMemory(described, content, content.copy())


def _recorded_bytes(file: str, read: ReadArray) -> npt.NDArray[np.uint8]:
    try:
        return np.ascontiguousarray(read(file)).reshape(-1).view(np.uint8)
    except (OSError, ValueError) as error:
        if isinstance(error, RuleError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise NO_RECORDED_FILE.error(file=file, reason=reason) from None


def _memory_outcome(placed: _PlacedMemory, read: ReadArray) -> MemoryOutcome:
    described, content, before = placed
    differing: int | None = None
    first: int | None = None
    if described.after:
        after = _recorded_bytes(described.after, read)
        if len(after) != len(content):
            raise OTHER_SIZE_AFTER.error(
                file=described.after, after_bytes=len(after), address=described.address, size_bytes=len(content)
            )
        differs = np.flatnonzero(content != after)
        differing = len(differs)
        first = described.address + int(differs[0]) if differing else None
    return MemoryOutcome(
        address=described.address,
        size_bytes=len(content),
        changed_bytes=int((content != before).sum()),
        differing_bytes=differing,
        first_difference=first,
        missing_bytes=described.missing_bytes,
    )


def chosen_blocks(blocks: Blocks, grid: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """The blocks to run; None for all. Corners are the first and last block along every axis.

    >>> chosen_blocks("corners", (3, 2))
    ((0, 0, 0), (2, 0, 0), (0, 1, 0), (2, 1, 0))
    """
    if blocks == ALL:
        return None
    if blocks != CORNERS:
        assert not isinstance(blocks, str)
        return blocks
    ends = [sorted({0, extent - 1}) for extent in extents("grid", tuple(grid))]
    return tuple((x, y, z) for z, y, x in itertools.product(*reversed(ends)))


def _output(index: int, name: str, array: Array, before: Array) -> OutputArray:
    bits = f"u{array.dtype.itemsize}"
    is_changed = array.view(bits).reshape(-1) != before.view(bits).reshape(-1)
    changed = array.reshape(-1)[is_changed]
    is_nan = _is_nan(array)
    numbers = array[~is_nan]
    return OutputArray(
        argument=index,
        name=name,
        data_type=_type_name(array.dtype),
        shape=array.shape,
        changed=int(is_changed.sum()),
        first=tuple(_shown(value) for value in changed[:_FIRST_VALUES]),
        least=_shown(numbers.min()) if numbers.size else None,
        most=_shown(numbers.max()) if numbers.size else None,
        nans=int(is_nan.sum()),
    )


def _type_name(dtype: np.dtype[Any]) -> str:
    try:
        return DataType.named(dtype).ptx
    except RuleError:
        return str(dtype)


def _is_nan(array: Array) -> npt.NDArray[np.bool_]:
    if array.dtype.kind in "iub":
        return np.zeros(array.shape, np.bool_)
    return np.isnan(array.astype(np.float64))


def _shown(value: Any) -> Shown:
    """A number as JSON takes it; infinities and NaN as words."""
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, int):
        return plain
    number = float(plain)
    return number if np.isfinite(number) else str(number)
