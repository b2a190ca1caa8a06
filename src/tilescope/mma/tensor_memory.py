"""Tensor memory as a value: allocation, and what tcgen05.ld, st, cp and shift do to its cells.

    memory = TensorMemory().alloc(64)                             every operation gives the next memory
    memory = memory.store("32x32b.x4", registers, address, warp=0)
    registers = memory.load("16x256b.x2", address, warp=0)

    tcgen05.alloc              one warp asks for 32, 64, 128, 256 or 512 columns, all lanes; it waits for them
    tcgen05.relinquish_…       the block will not ask again, so that a second block on the SM need not wait for it
    tcgen05.dealloc            with the address and the columns of the alloc; everything is freed before the kernel ends

Operations that would hang, trap or give undefined data on the hardware are refused with their rule: columns that were
not allocated, a lane at which the shape cannot start. A warp accesses its own quarter, even if the lane field names
another: DeepGEMM lets all four warps pass lane 0. PTX requires the warp's own, and debug builds trap, so it is a
warning. All of it is known from documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import Violation, argument_type, raise_all
from tilescope.mma.fragment import fragment
from tilescope.mma.tcgen05_kind import BLACKWELL, Documented
from tilescope.mma.tmem_address import ALLOC_COLUMNS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.mma.tmem_budget import tmem_budget
from tilescope.mma.tmem_copy import copied_words, copy_notes, cp_shape
from tilescope.mma.tmem_form import TMEM_REDUCTION, TmemMove, directed_move
from tilescope.mma.tmem_layout import TMEM_EXTENT, TMEM_LANE
from tilescope.reading import array_where, as_array, entries, flag, integer, plain_int, try_read
from tilescope.rule import ARGUMENT_RANGE, rule
from tilescope.sentence import by, format_value
from tilescope.value import Value, array_field, read_only

TMEM_ALLOC = rule(
    "tmem-alloc",
    "tcgen05.alloc takes 32, 64, 128, 256 or 512 columns.",
    argument="columns",
    found="{asked} columns",
    limit="tcgen05.alloc takes 32, 64, 128, 256 or 512",
    fix="Use {nearest}.",
    source="PTX ISA, tcgen05.alloc",
    architectures=BLACKWELL,
    passing="ts.TensorMemory().alloc(64)",
    failing="ts.TensorMemory().alloc(48)",
)
BAD_ALLOCATIONS = TMEM_ALLOC.worded(
    argument="allocations",
    found="{asked}",
    limit="pairs of a first column and 32, 64, 128, 256 or 512 columns, none of which is in two pairs",
    fix="Leave allocations out, and call alloc(128).",
)
NO_ALLOCATION = TMEM_ALLOC.worded(
    argument="allocations",
    found="no allocation",
    limit="an address comes from tcgen05.alloc",
    fix="Call alloc(128) first.",
)
TMEM_ALLOC_ORDER = rule(
    "tmem-alloc-order",
    "Successive allocations of a block should not grow.",
    argument="columns",
    found="{columns} columns after {before}",
    limit="successive allocations of a block should not grow",
    fix="Allocate {columns} columns first, then {before}.",
    source="PTX ISA, tcgen05.alloc",
    architectures=BLACKWELL,
    severity="warning",
    passing="ts.TensorMemory().alloc(64).alloc(32).findings",
    failing="ts.TensorMemory().alloc(32).alloc(64).findings",
)
TMEM_FULL = rule(
    "tmem-full",
    "alloc waits until enough columns are free; a block that holds the columns itself would wait forever.",
    argument="columns",
    found="{columns} columns, with {taken} of {most} taken: {listed}",
    limit="alloc waits until an aligned range is free; this block would wait for itself",
    fix="Free {columns} columns first, or ask for fewer.",
    source="PTX ISA, tcgen05.alloc",
    architectures=BLACKWELL,
    passing="ts.TensorMemory().alloc(256).alloc(256)",
    failing="ts.TensorMemory().alloc(512).alloc(32)",
)
TMEM_RELINQUISHED = rule(
    "tmem-relinquished",
    "A block does not allocate after it has relinquished its allocation permit.",
    argument="columns",
    found="alloc after relinquish_alloc_permit",
    limit="the block has given up its right to allocate",
    fix="Call alloc({columns}) before relinquish().",
    source="PTX ISA, tcgen05.relinquish_alloc_permit",
    architectures=BLACKWELL,
    passing="ts.TensorMemory().alloc(32).relinquish()",
    failing="ts.TensorMemory().relinquish().alloc(32)",
)
TMEM_DEALLOC = rule(
    "tmem-dealloc",
    "dealloc frees exactly the columns of one alloc.",
    argument="address",
    found="{asked} columns at {place}",
    limit="this block has {listed}",
    fix="Use dealloc({own_first}, {own_columns}).",
    source="PTX ISA, tcgen05.dealloc",
    architectures=BLACKWELL,
    passing="ts.TensorMemory().alloc(64).dealloc(0, 64)",
    failing="ts.TensorMemory().alloc(64).dealloc(0, 32)",
)
NOTHING_TO_FREE = TMEM_DEALLOC.worded(fix="Call alloc(32) first.")
TMEM_LEAK = rule(
    "tmem-leak",
    "A kernel frees all columns before it exits.",
    argument="allocations",
    found="columns {first} to {last} still allocated",
    limit="a kernel frees all it allocated",
    fix="Free {columns} columns from column {first} on with tcgen05.dealloc before the kernel ends.",
    source="PTX ISA, tcgen05.alloc: all of it is deallocated before the kernel exits",
    architectures=BLACKWELL,
    passing="ts.TensorMemory().alloc(32).dealloc(0, 32).exit_problems()",
    failing="ts.TensorMemory().alloc(32).exit_problems()",
)
TMEM_QUARTER = rule(
    "tmem-quarter",
    "A warp accesses the 32 lanes of the quarter given by its number modulo 4, and the lane field names them.",
    argument="address",
    found="warp {warp} at lane {lane}",
    limit=(
        "a warp accesses only the 32 lanes of its quarter, {warp} mod 4: "
        "lanes {first_lane} to {last_lane}, whatever the field names"
    ),
    fix="Set the lane field to {right_lane}: PTX requires it, and debug builds trap.",
    source="PTX ISA, tcgen05.ld: Access restrictions; DeepGEMM passes lane 0 in every warp, CuTe asserts",
    architectures=BLACKWELL,
    severity="warning",
    passing=('ts.TensorMemory().alloc(64).store("32x32b.x8", np.zeros((32, 8), np.uint32), 32 << 16, warp=1).findings'),
    failing='ts.TensorMemory().alloc(64).store("32x32b.x8", np.zeros((32, 8), np.uint32), 0, warp=1).findings',
)
TMEM_SPLIT = rule(
    "tmem-split",
    "Only .16x32bx2 has an immediate: the distance in columns to its second half.",
    argument="split",
    found="split = {asked} with .{form}",
    limit="only .16x32bx2 has a split, a number of columns",
    fix="Leave split out.",
    source="PTX ISA, tcgen05.ld: immHalfSplitoff",
    architectures=BLACKWELL,
    passing='ts.TensorMemory().alloc(64).load("16x32bx2.x8", 0, warp=0, split=8)',
    failing='ts.TensorMemory().alloc(64).load("32x32b.x8", 0, warp=0, split=8)',
)
TMEM_UNALLOCATED = rule(
    "tmem-unallocated",
    "Instructions access only columns that the block has allocated.",
    argument="address",
    found="columns {first} to {last}",
    limit="this block has {listed}",
    fix="Allocate {columns:column} there first.",
    source="the run-time checks that ptxas emits with -g-tensor-memory-access-check",
    architectures=BLACKWELL,
    passing='ts.TensorMemory().alloc(64).load("32x32b.x64", 0, warp=0)',
    failing='ts.TensorMemory().alloc(64).load("32x32b.x64", 32, warp=0)',
)
TMEM_UNCONFIRMED = rule(
    "tmem-unconfirmed",
    "The documentation does not specify the direction of tcgen05.shift, and the upper halves after .unpack::16b.",
    argument="instruction",
    found="tcgen05.shift.down",
    limit=(
        "PTX moves {rows} rows (.31x256b) and calls the direction down. Lane l + 1 goes to lane l here, "
        "as a public read-back on a B200 saw in all four quarters"
    ),
    fix="Try it on a card before you rely on it.",
    source="PTX ISA, tcgen05.shift and tcgen05.st",
    architectures=BLACKWELL,
    severity="note",
    passing="ts.TensorMemory().alloc(32).findings",
    failing="ts.TensorMemory().alloc(32).shift(0).findings",
)
UNCONFIRMED_UNPACK = TMEM_UNCONFIRMED.worded(
    found=".unpack::16b",
    limit="unconfirmed: no document says what .unpack::16b leaves in the upper halves of cells: zeros here",
)
UNKNOWN_REDUCTION = TMEM_REDUCTION.worded(
    found="{opcode}", limit="no document says whether threads 16 apart are combined", fix="Use .32x32b."
)
COLUMNS_BEYOND_MEMORY = TMEM_EXTENT.worded(
    found="columns {first} to {last}",
    limit="columns end at {end}",
    fix="Use column {room} or before, or move fewer.",
)
COPY_BEYOND_LANES = TMEM_EXTENT.worded(
    found=".{shape} at lane {lane} reaches lane {last}", limit="lanes end at {end}", fix="Use lane 0."
)
START_OF_QUARTER = TMEM_LANE.worded(
    found="lane {lane}", limit=".{form} starts at the first lane of a quarter", fix="Use lane {below}."
)
START_OF_HALF_QUARTER = START_OF_QUARTER.worded(limit=".{form} starts at the first lane of a quarter, or 16 further on")
START_OF_SHIFT = START_OF_QUARTER.worded(limit="tcgen05.shift starts at a multiple of 32 lanes")
SLICE_COLUMNS = 32  # what a bit of the hardware's allocation table covers
_MAX_ALLOCATIONS = TMEM_COLUMNS // SLICE_COLUMNS
SHIFT_ROWS = 31  # PTX ISA, "Data movement shape": tcgen05.shift is .31x256b, implicitly
SHIFT_COLUMNS = 8
Cells = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


class _Reached(NamedTuple):
    """What a warp's load or store touches: lane and column of every (thread, value); and what is advised against."""

    places: tuple[Places, Places]
    warnings: list[Violation]


_EMPTY = read_only(np.zeros((TMEM_LANES, TMEM_COLUMNS), np.uint32))


@dataclass(frozen=True, slots=True, eq=False)
class TensorMemory(Documented, Value):
    """The tensor memory of one block: 128 x 512 cells of 32 bits, and the allocated columns.

    >>> memory = TensorMemory().alloc(32)
    >>> registers = np.arange(128, dtype=np.uint32).reshape(32, 4)
    >>> memory = memory.store("32x32b.x4", registers, memory.last_address, warp=0)
    >>> memory.load("16x128b.x1", memory.last_address, warp=0)[13].tolist()  # lanes 3 and 11, column 1
    [13, 45]
    """

    cells: Cells = array_field("uint32", default_factory=lambda: _EMPTY)
    allocations: tuple[tuple[int, int], ...] = ()  # first column, columns; in the order in which they were made
    may_allocate: bool = True
    findings: tuple[Violation, ...] = ()  # accepted, but not recommended or weakly supported

    budget = staticmethod(tmem_budget)

    def __post_init__(self) -> None:
        problems: list[Violation] = []
        cells = as_array("cells", self.cells)
        if cells.shape != _EMPTY.shape or cells.dtype != np.uint32:
            wrong_cells = ARGUMENT_RANGE.violation(
                argument="cells",
                found=f"an array of shape {cells.shape}",
                limit=f"{by(_EMPTY.shape)} cells of uint32",
                fix="Leave cells out: memory starts with zeros.",
                shape=cells.shape,
            )
            problems.append(wrong_cells)
        allocations = _read_allocations(self.allocations)
        if allocations is None:
            problems.append(BAD_ALLOCATIONS.violation(asked=format_value(self.allocations)))
        try_read(problems, True, flag, "may_allocate", self.may_allocate)
        findings = entries(self.findings, 1 << 16)
        if findings is None or not all(isinstance(finding, Violation) for finding in findings):
            problems.append(argument_type("findings", self.findings, "a tuple of violations", "Leave findings out."))
        raise_all(problems)
        object.__setattr__(self, "cells", read_only(cells.copy()) if cells.flags.writeable else cells)
        object.__setattr__(self, "allocations", allocations)

    @property
    def last_address(self) -> TmemAddress:
        """The address that the latest alloc wrote to shared memory: lane 0 of its first column."""
        if not self.allocations:
            raise NO_ALLOCATION.error()
        return TmemAddress(0, self.allocations[-1][0])

    @property
    def allocated(self) -> npt.NDArray[np.bool_]:
        """Which columns are allocated."""
        taken = np.zeros(TMEM_COLUMNS, np.bool_)
        for first, columns in self.allocations:
            taken[first : first + columns] = True
        return taken

    def alloc(self, columns: int) -> TensorMemory:
        """tcgen05.alloc: the lowest free range that starts at a multiple of its size (one source).

        The hardware waits for columns that are taken. No other block can free this block's columns, so that is refused.

        >>> TensorMemory().alloc(256).alloc(64).allocations
        ((0, 256), (256, 64))
        """
        size = plain_int(columns) or 0
        problems = []
        if size not in ALLOC_COLUMNS:
            nearest = next((allowed for allowed in ALLOC_COLUMNS if allowed >= size), ALLOC_COLUMNS[-1])
            problems.append(TMEM_ALLOC.violation(columns=size, asked=format_value(columns), nearest=nearest))
        if not self.may_allocate:
            problems.append(TMEM_RELINQUISHED.violation(columns=size))
        raise_all(problems)
        findings = self.findings
        if self.allocations and size > self.allocations[-1][1]:
            growth = TMEM_ALLOC_ORDER.violation(columns=size, before=self.allocations[-1][1])
            findings = (*findings, growth)
        allocations = (*self.allocations, (self._first_free(size), size))
        return replace(self, allocations=allocations, findings=findings)

    def _first_free(self, size: int) -> int:
        """The first column of the lowest free range; refused if there is none."""
        taken = self.allocated
        for first in range(0, TMEM_COLUMNS, size):
            if not taken[first : first + size].any():
                return first
        raise TMEM_FULL.error(
            allocations=self.allocations,
            columns=size,
            taken=int(taken.sum()),
            most=TMEM_COLUMNS,
            listed=self._describe_columns(),
        )

    def dealloc(self, address: Any, columns: int) -> TensorMemory:
        """tcgen05.dealloc: frees exactly the columns of one alloc."""
        place = TmemAddress.of(address)
        size = plain_int(columns)
        if (place.column, size) not in self.allocations or place.lane:
            wording = TMEM_DEALLOC if self.allocations else NOTHING_TO_FREE
            own_first, own_columns = self.allocations[0] if self.allocations else (None, None)
            raise wording.error(
                columns=size,
                lane=place.lane,
                column=place.column,
                asked=format_value(columns),
                place=str(place),
                listed=self._describe_columns(),
                own_first=own_first,
                own_columns=own_columns,
            )
        remaining = tuple(allocation for allocation in self.allocations if allocation != (place.column, size))
        return replace(self, allocations=remaining)

    def relinquish(self) -> TensorMemory:
        """tcgen05.relinquish_alloc_permit: this block does not allocate again."""
        return replace(self, may_allocate=False)

    def exit_problems(self) -> tuple[Violation, ...]:
        """Violations if the kernel ended now: columns that it did not free."""
        return tuple(
            TMEM_LEAK.violation(first=first, last=first + columns - 1, columns=columns)
            for first, columns in self.allocations
        )

    def load(self, instruction: str, address: Any, *, warp: int, split: int | None = None) -> Cells:
        """tcgen05.ld by one warp: registers (32, n) of its threads.

        `instruction` is such as "16x256b.x2" or a whole opcode. `split` is the immediate of .16x32bx2: how many
        columns its second half lies further on (by default right behind the first). ld.red gives one register more.
        The warp reads its own quarter; where the lane field names another, `ts.compatible` warns.
        """
        move = directed_move("ld", instruction)
        registers: Cells = self.cells[self._find_cells(move, address, warp, split).places]
        if move.packed:
            registers = np.ascontiguousarray((registers & 0xFFFF).astype(np.uint16)).view(np.uint32)
        if move.reduction is None:
            return registers
        if move.form.places > 1:
            raise UNKNOWN_REDUCTION.error(opcode=move.opcode)
        return np.concatenate([registers, reduced_registers(registers, move.reduction)], axis=1)

    def store(
        self, instruction: str, registers: npt.ArrayLike, address: Any, *, warp: int, split: int | None = None
    ) -> TensorMemory:
        """tcgen05.st by one warp: the next memory.

        With .unpack::16b the upper halves of the cells become zero (unconfirmed). The warp writes its own quarter;
        a lane field that names another is a warning in `findings`.
        """
        move = directed_move("st", instruction)
        reached = self._find_cells(move, address, warp, split)
        shape = (QUARTER_LANES, move.registers)
        array = array_where(
            "registers",
            registers,
            lambda array: array.shape == shape and array.dtype.str[1:] in ("i4", "u4", "f4"),
            f"{move.opcode} takes {by(shape)} registers of 32 bits",
            f"Use a uint32 array of shape {shape}.",
            registers=shape,
        )
        words = np.ascontiguousarray(array).view(np.uint32)
        cells = self.cells.copy()
        notes = reached.warnings
        if move.packed:
            cells[reached.places] = words.view(np.uint16)
            notes.append(UNCONFIRMED_UNPACK.violation())
        else:
            cells[reached.places] = words
        return self._next(cells, notes)

    def copy(
        self,
        shape: str,
        smem: npt.ArrayLike,
        descriptor: Any,
        address: Any,
        *,
        smem_address: int = 0,
        decompress: str | None = None,
    ) -> TensorMemory:
        """tcgen05.cp: rows of shared memory, as the descriptor finds them, into lanes; see tmem_copy.py for the shapes.

        `decompress` is "b8x16.b4x16_p64" or "b8x16.b6x16_p32": 16 values padded to 16 bytes become a byte each.

        >>> from tilescope.mma.scale_layout import scale_layout
        >>> atom = scale_layout(128, 64, "nvfp4").copies()[0]
        >>> smem = np.arange(512, dtype=np.uint16).astype(np.uint8)
        >>> memory = TensorMemory().alloc(32).copy(atom.shape, smem, atom.descriptor, atom.address)
        >>> hex(memory.cells[37, 2])  # row 5 of the atom, its third word, in the second quarter
        '0x5b5a5958'
        """
        row = cp_shape(shape)
        place = TmemAddress.of(address)
        words = copied_words(row, smem, descriptor, smem_address, decompress)
        lanes = place.lane + row.lanes
        last = int(lanes.max())
        problems = self._column_problems(place.column, row.columns)
        if last >= TMEM_LANES:
            beyond = COPY_BEYOND_LANES.violation(lane=place.lane, last=last, shape=row.name, end=TMEM_LANES - 1)
            problems.append(beyond)
        raise_all(problems)
        cells = self.cells.copy()
        cells[lanes[:, :, None], place.column + np.arange(row.columns)] = words[:, None, :]
        return self._next(cells, copy_notes(place.column, decompress))

    def shift(self, address: Any) -> TensorMemory:
        """tcgen05.shift.down: 32 bytes of 31 lanes of a quarter move by one lane.

        That is .31x256b in PTX's table of data movement shapes. PTX says "downwards across all the rows, except the
        last, by one row": lane l + 1 goes to lane l, as read back on a B200. What the first lane held is lost, and the
        last lane keeps what it has.
        """
        place = TmemAddress.of(address)
        problems = self._column_problems(place.column, SHIFT_COLUMNS)
        if place.lane % QUARTER_LANES:
            problems.append(START_OF_SHIFT.violation(lane=place.lane, below=_quarter_start(place.lane)))
        raise_all(problems)
        cells = self.cells.copy()
        columns = slice(place.column, place.column + SHIFT_COLUMNS)
        end = place.lane + SHIFT_ROWS
        cells[place.lane : end, columns] = self.cells[place.lane + 1 : end + 1, columns]
        return self._next(cells, [TMEM_UNCONFIRMED.violation(rows=SHIFT_ROWS)])

    def _next(self, cells: Cells, notes: list[Violation]) -> TensorMemory:
        return replace(self, cells=read_only(cells), findings=tuple(dict.fromkeys((*self.findings, *notes))))

    def _find_cells(self, move: TmemMove, address: TmemAddress | int, warp: int, split: int | None) -> _Reached:
        """Lane and column of every (thread, value) of a warp, in its own quarter; or all that is wrong."""
        place = TmemAddress.of(address)
        problems: list[Violation] = []
        warp_number = try_read(problems, place.quarter, integer, "warp", warp, 0)
        first_lane = warp_number % QUARTERS * QUARTER_LANES
        own_lane = first_lane + place.lane % QUARTER_LANES
        form = move.form
        further = plain_int(split)  # columns from the first place to the second
        facts: dict[str, Any] = {"warp": warp_number, "lane": place.lane, "split": further}
        if place.lane % form.lanes:
            wording = START_OF_HALF_QUARTER if form.lanes < QUARTER_LANES else START_OF_QUARTER
            problems.append(wording.violation(form=form.name, below=_quarter_start(place.lane), **facts))
        step = move.columns if further is None else further
        if split is not None and (form.places == 1 or further is None or further < 0):
            problems.append(TMEM_SPLIT.violation(asked=format_value(split), form=form.name, **facts))
            step = 0
        for number in range(form.places):
            problems += self._column_problems(place.column + number * step, move.columns)
        raise_all(problems)
        warnings = []
        if place.lane != own_lane:
            other_quarter = TMEM_QUARTER.violation(
                warp=warp_number,
                lane=place.lane,
                first_lane=first_lane,
                last_lane=first_lane + QUARTER_LANES - 1,
                right_lane=own_lane,
            )
            warnings.append(other_quarter)
        matrix, lanes, columns = fragment(move.opcode).indices()
        return _Reached((own_lane + lanes, place.column + columns + matrix * step), warnings)

    def _column_problems(self, first: int, columns: int) -> list[Violation]:
        last = first + columns - 1
        if last >= TMEM_COLUMNS:
            room = TMEM_COLUMNS - columns
            return [COLUMNS_BEYOND_MEMORY.violation(first=first, last=last, end=TMEM_COLUMNS - 1, room=room)]
        if self.allocated[first : last + 1].all():
            return []
        return [TMEM_UNALLOCATED.violation(first=first, last=last, columns=columns, listed=self._describe_columns())]

    def _describe_columns(self) -> str:
        """The columns that the block has, in words."""
        ranges = [f"columns {first} to {first + columns - 1}" for first, columns in self.allocations]
        return ", ".join(ranges) or "no columns"


def _read_allocations(allocations: object) -> tuple[tuple[int, int], ...] | None:
    """Pairs of a first column and the columns of an alloc; None if an entry is not such a pair, or ranges overlap."""
    listed = entries(allocations, _MAX_ALLOCATIONS + 1)
    if listed is None:
        return None
    ranges = []
    for entry in listed:
        numbers = [plain_int(number) for number in entries(entry, 3) or ()]
        if len(numbers) != 2:
            return None
        first, columns = numbers
        if first is None or first not in range(0, TMEM_COLUMNS, SLICE_COLUMNS):
            return None
        if columns is None or columns not in ALLOC_COLUMNS:
            return None
        ranges.append((first, columns))
    free_from = 0
    for first, columns in sorted(ranges):
        if first < free_from or first + columns > TMEM_COLUMNS:
            return None
        free_from = first + columns
    return tuple(ranges)


_NUMBER_TYPES = {"f32": np.float32, "u32": np.uint32, "s32": np.int32}


def reduced_registers(registers: Cells, reduction: str) -> Cells:
    """The register that ld.red adds: the smallest or largest of the thread's own, as numbers of the type."""
    operation, *options, number_type = reduction.split(".")
    numbers = registers.view(_NUMBER_TYPES[number_type])
    if "abs" in options:
        numbers = np.abs(numbers)
    extreme: np.ufunc = np.minimum if operation == "min" else np.maximum
    if number_type == "f32" and "nan" not in options:  # a NaN does not count
        extreme = np.fmin if operation == "min" else np.fmax
    reduced: Cells = extreme.reduce(numbers, axis=1, keepdims=True).view(np.uint32)
    return reduced


def _quarter_start(lane: int) -> int:
    return lane // QUARTER_LANES * QUARTER_LANES
