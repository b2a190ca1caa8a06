"""Tensor memory as a value: allocation, and what tcgen05.ld, st, cp and shift do to its cells.

    memory = TensorMemory().alloc(64)                             every operation gives the next memory
    memory = memory.store("32x32b.x4", registers, address, warp=0)
    registers = memory.load("16x256b.x2", address, warp=0)

    tcgen05.alloc              one warp asks for 32, 64, 128, 256 or 512 columns, all lanes; it waits until they are free
    tcgen05.relinquish_…       the block will not ask again, so that a second block on the SM need not wait for it
    tcgen05.dealloc            with the address and the columns of the alloc; everything is freed before the kernel ends

What the hardware would answer with a hang, a trap or nonsense is refused with its rule: columns that were not allocated, a lane
that the shape does not start at. A warp reaches its own quarter whatever quarter the lane field names: DeepGEMM lets all four
warps pass lane 0. PTX asks for the warp's own, and debug builds trap: a warning. All of it is known from documents.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.errors import Severity, Violation, argument_type, raise_all
from tilescope.mma.fragment import array_where, as_array, fragment
from tilescope.mma.tcgen05_kind import Check, Documented, blackwell_rule, failed
from tilescope.mma.tmem_address import ALLOC_COLUMNS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TMEM_LANES, TmemAddress
from tilescope.mma.tmem_agreement import tmem_budget
from tilescope.mma.tmem_form import TMEM_REDUCTION, TmemMove, copied_words, copy_notes, cp_shape, named_move
from tilescope.mma.tmem_layout import TMEM_EXTENT, TMEM_LANE
from tilescope.reading import attempted, entries, flag, integer, plain_int
from tilescope.rule import ARGUMENT_RANGE, UNKNOWN_NAME
from tilescope.sentence import by, counted, printed
from tilescope.value import Value, array_field, read_only

_SEVERITY: dict[str, Severity] = {"alloc-order": "warning", "quarter": "warning", "unconfirmed": "note"}
_MEMORY = "ts.TensorMemory()"
_STORE = f'{_MEMORY}.alloc(64).store("32x32b.x8", np.zeros((32, 8), np.uint32), {{}}, warp=1).findings'
_LOAD = f"{_MEMORY}.alloc(64).load({{}})"
# fmt: off
(TMEM_ALLOC, TMEM_ALLOC_ORDER, TMEM_FULL, TMEM_RELINQUISHED, TMEM_DEALLOC, TMEM_LEAK, TMEM_QUARTER, TMEM_SPLIT, TMEM_UNALLOCATED,
 TMEM_UNCONFIRMED) = (
    blackwell_rule(f"tmem-{name}", demand, source, passing, failing, severity=_SEVERITY.get(name, "error"))
    for name, demand, source, passing, failing in (
        ("alloc", "tcgen05.alloc takes 32, 64, 128, 256 or 512 columns.", "tcgen05.alloc",
         f"{_MEMORY}.alloc(64)", f"{_MEMORY}.alloc(48)"),
        ("alloc-order", "Successive allocations of a block should not grow.", "tcgen05.alloc",
         f"{_MEMORY}.alloc(64).alloc(32).findings", f"{_MEMORY}.alloc(32).alloc(64).findings"),
        ("full", "alloc waits until a free range is found; a block that holds the columns itself would wait forever.",
         "tcgen05.alloc", f"{_MEMORY}.alloc(256).alloc(256)", f"{_MEMORY}.alloc(512).alloc(32)"),
        ("relinquished", "A block that gave up its right to allocate does not allocate again.",
         "tcgen05.relinquish_alloc_permit", f"{_MEMORY}.alloc(32).relinquish()", f"{_MEMORY}.relinquish().alloc(32)"),
        ("dealloc", "dealloc gives back exactly what one alloc got.", "tcgen05.dealloc",
         f"{_MEMORY}.alloc(64).dealloc(0, 64)", f"{_MEMORY}.alloc(64).dealloc(0, 32)"),
        ("leak", "A kernel frees all columns before it ends.", "tcgen05.alloc: all of it is deallocated before the kernel exits",
         f"{_MEMORY}.alloc(32).dealloc(0, 32).exit_problems()", f"{_MEMORY}.alloc(32).exit_problems()"),
        ("quarter", "A warp reaches the 32 lanes of the quarter that is its number modulo 4, and the lane field names them.",
         "tcgen05.ld: Access restrictions; DeepGEMM passes lane 0 in every warp, CuTe asserts",
         _STORE.format("32 << 16"), _STORE.format(0)),
        ("split", "Only .16x32bx2 has an immediate: how many columns its second half lies further on.",
         "tcgen05.ld: immHalfSplitoff", _LOAD.format('"16x32bx2.x8", 0, warp=0, split=8'), _LOAD.format('"32x32b.x8", 0, warp=0, split=8')),
        ("unallocated", "Instructions touch columns that the block has allocated.",
         "the run-time checks that ptxas emits with -g-tensor-memory-access-check",
         _LOAD.format('"32x32b.x64", 0, warp=0'), _LOAD.format('"32x32b.x64", 32, warp=0')),
        ("unconfirmed", "Documents leave open which way tcgen05.shift moves and what .unpack::16b leaves in the upper halves.",
         "tcgen05.shift and tcgen05.st", f"{_MEMORY}.alloc(32).findings", f"{_MEMORY}.alloc(32).shift(0).findings"),
    )
)
# fmt: on
SLICE_COLUMNS = 32  # what a bit of the hardware's book stands for
SHIFT_ROWS, SHIFT_COLUMNS = 31, 8  # PTX ISA, "Data movement shape": tcgen05.shift is .31x256b, implicitly
Cells = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


class _Reached(NamedTuple):
    """What a warp's load or store touches: lane and column of every (thread, value); and what is advised against."""

    places: tuple[Places, Places]
    warnings: list[Violation]


_EMPTY = read_only(np.zeros((TMEM_LANES, TMEM_COLUMNS), np.uint32))


@dataclass(frozen=True, slots=True, eq=False)
class TensorMemory(Documented, Value):
    """The tensor memory of one block: 128 x 512 cells of 32 bits, and who has which columns.

    >>> memory = TensorMemory().alloc(32)
    >>> registers = np.arange(128, dtype=np.uint32).reshape(32, 4)
    >>> memory = memory.store("32x32b.x4", registers, memory.last_address, warp=0)
    >>> memory.load("16x128b.x1", memory.last_address, warp=0)[13].tolist()  # lanes 3 and 11, column 1
    [13, 45]
    """

    cells: Cells = array_field("uint32", default_factory=lambda: _EMPTY)
    allocations: tuple[tuple[int, int], ...] = ()  # first column, columns; in the order in which they were made
    may_allocate: bool = True
    findings: tuple[Violation, ...] = ()  # what is accepted, but advised against or rests on little

    budget = staticmethod(tmem_budget)

    def __post_init__(self) -> None:
        problems: list[Violation] = []
        cells, findings = as_array("cells", self.cells), entries(self.findings, 1 << 16)
        if cells.shape != _EMPTY.shape or cells.dtype != np.uint32:
            found, limit = f"an array of shape {cells.shape}", f"{by(_EMPTY.shape)} cells of uint32"
            fix = "Leave cells out: memory starts with zeros."
            problems.append(ARGUMENT_RANGE.violation("cells", found, limit, fix, shape=cells.shape))
        listed, firsts = entries(self.allocations, 17), range(0, TMEM_COLUMNS, SLICE_COLUMNS)
        ranges = [tuple(map(plain_int, entries(entry, 3) or ())) for entry in listed or ()]
        known = [len(entry) == 2 and entry[0] in firsts and entry[1] in ALLOC_COLUMNS for entry in ranges]
        if listed is None or not all(known):
            found, limit = printed(self.allocations), "pairs of a first column and 32, 64, 128, 256 or 512 columns"
            fix = "Leave allocations out, and call alloc(128)."
            problems.append(TMEM_ALLOC.violation("allocations", found, limit, fix))
        attempted(problems, True, flag, "may_allocate", self.may_allocate)
        if findings is None or not all(isinstance(finding, Violation) for finding in findings):
            problems.append(argument_type("findings", self.findings, "a tuple of violations", "Leave findings out."))
        raise_all(problems)
        object.__setattr__(self, "cells", read_only(cells.copy()) if cells.flags.writeable else cells)
        object.__setattr__(self, "allocations", tuple(ranges))

    @property
    def last_address(self) -> TmemAddress:
        """What the latest alloc wrote to shared memory: lane 0 of its first column."""
        if not self.allocations:
            limit = "an address comes from tcgen05.alloc"
            raise TMEM_ALLOC.error("allocations", "no allocation", limit, "Call alloc(128) first.")
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
        size, taken = plain_int(columns) or 0, self.allocated
        problems = []
        if size not in ALLOC_COLUMNS:
            nearest = next((known for known in ALLOC_COLUMNS if known >= size), ALLOC_COLUMNS[-1])
            limit, fix = "tcgen05.alloc takes 32, 64, 128, 256 or 512", f"Use {nearest}."
            problems.append(TMEM_ALLOC.violation("columns", f"{printed(columns)} columns", limit, fix, columns=size))
        if not self.may_allocate:
            found, limit = "alloc after relinquish_alloc_permit", "the block has given up its right to allocate"
            fix = f"Call alloc({size}) before relinquish()."
            problems.append(TMEM_RELINQUISHED.violation("columns", found, limit, fix))
        raise_all(problems)
        first = next((start for start in range(0, TMEM_COLUMNS, size) if not taken[start : start + size].any()), None)
        if first is None:
            used, listed = int(taken.sum()), self._listed()
            found = f"{size} columns, with {used} of {TMEM_COLUMNS} taken: {listed}"
            limit = "alloc waits until an aligned range is free; this block would wait for itself"
            values = {"columns": size, "taken": used, "limit": TMEM_COLUMNS, "listed": listed}
            fix = f"Free {size} columns first, or ask for fewer."
            raise TMEM_FULL.error("columns", found, limit, fix, allocations=self.allocations, **values)
        last = self.allocations[-1][1] if self.allocations else TMEM_COLUMNS
        limit, fix = "successive allocations of a block should not grow", f"Allocate {size} columns first, then {last}."
        growth = size > last, TMEM_ALLOC_ORDER, "columns", f"{size} columns after {last}", limit, fix
        notes = failed(growth, columns=size, before=last)
        return replace(self, allocations=(*self.allocations, (first, size)), findings=(*self.findings, *notes))

    def dealloc(self, address: Any, columns: int) -> TensorMemory:
        """tcgen05.dealloc: gives back exactly what one alloc got."""
        place, size = TmemAddress.of(address), plain_int(columns)
        if (place.column, size) not in self.allocations or place.lane:
            found, limit = f"{printed(columns)} columns at {place}", f"this block has {self._listed() or 'no columns'}"
            own = self.allocations[0] if self.allocations else None
            fix = "Call alloc(32) first." if own is None else f"Use dealloc({own[0]}, {own[1]})."
            values = {"columns": size, "lane": place.lane, "column": place.column}
            raise TMEM_DEALLOC.error("address", found, limit, fix, **values)
        kept = tuple(allocation for allocation in self.allocations if allocation != (place.column, size))
        return replace(self, allocations=kept)

    def relinquish(self) -> TensorMemory:
        """tcgen05.relinquish_alloc_permit: no alloc of this block follows."""
        return replace(self, may_allocate=False)

    def exit_problems(self) -> tuple[Violation, ...]:
        """What the kernel left undone if it ended now: columns that it did not free."""
        return tuple(
            TMEM_LEAK.violation(
                "allocations", f"columns {first} to {first + columns - 1} still allocated", "a kernel frees all it allocated",
                f"Free {columns} columns from column {first} on with tcgen05.dealloc before the kernel ends.",
                first=first, last=first + columns - 1,
            )
            for first, columns in self.allocations
        )  # fmt: skip

    def load(self, instruction: str, address: Any, *, warp: int, split: int | None = None) -> Cells:
        """tcgen05.ld by one warp: registers (32, n) of its threads.

        `instruction` is such as "16x256b.x2" or a whole opcode. `split` is the immediate of .16x32bx2: how many columns its
        second half lies further on (by default right behind the first). ld.red gives one register more. The warp reads its own
        quarter; where the lane field names another, `ts.compatible` warns.
        """
        move = _named("ld", instruction)
        registers: Cells = self.cells[self._reached(move, address, warp, split).places]
        if move.packed:
            registers = np.ascontiguousarray((registers & 0xFFFF).astype(np.uint16)).view(np.uint32)
        if move.reduction is None:
            return registers
        if move.form.places > 1:
            limit = "no document says whether threads 16 apart are combined"
            raise TMEM_REDUCTION.error("instruction", move.opcode, limit, "Use .32x32b.")
        return np.concatenate([registers, _reduced(registers, *move.reduction.split("."))], axis=1)

    def store(
        self, instruction: str, registers: npt.ArrayLike, address: Any, *, warp: int, split: int | None = None
    ) -> TensorMemory:
        """tcgen05.st by one warp: the next memory. With .unpack::16b the upper halves of the cells become zero (unconfirmed).

        The warp writes its own quarter; a lane field that names another is a warning in `findings`.
        """
        move = _named("st", instruction)
        reached = self._reached(move, address, warp, split)
        shape = QUARTER_LANES, move.registers
        array = array_where(
            "registers", registers, lambda array: array.shape == shape and array.dtype.str[1:] in ("i4", "u4", "f4"),
            f"{move.opcode} takes {by(shape)} registers of 32 bits", f"Use a uint32 array of shape {shape}.", registers=shape,
        )  # fmt: skip
        words, cells = np.ascontiguousarray(array).view(np.uint32), self.cells.copy()
        cells[reached.places] = words.view(np.uint16) if move.packed else words
        notes = reached.warnings
        if move.packed:
            left_open = "no document says what .unpack::16b leaves in the upper halves of cells: zeros here"
            notes = [*notes, _unconfirmed(".unpack::16b", left_open)]
        return self._next(cells, notes)

    def copy(
        self, shape: str, smem: npt.ArrayLike, descriptor: Any, address: Any, *, smem_address: int = 0,
        decompress: str | None = None,
    ) -> TensorMemory:  # fmt: skip
        """tcgen05.cp: rows of shared memory, as the descriptor finds them, into lanes; see tmem_form.py for the shapes.

        `decompress` is "b8x16.b4x16_p64" or "b8x16.b6x16_p32": 16 values padded to 16 bytes become a byte each.

        >>> from tilescope.mma.scale_layout import scale_layout
        >>> atom = scale_layout(128, 64, "nvfp4").copies()[0]
        >>> smem = np.arange(512, dtype=np.uint16).astype(np.uint8)
        >>> memory = TensorMemory().alloc(32).copy(atom.shape, smem, atom.descriptor, atom.address)
        >>> hex(memory.cells[37, 2])  # row 5 of the atom, its third word, in the second quarter
        '0x5b5a5958'
        """
        row, place = cp_shape(shape), TmemAddress.of(address)
        words = copied_words(row, smem, descriptor, smem_address, decompress)
        lanes = place.lane + row.lanes
        last, problems = int(lanes.max()), self._column_problems(place.column, row.columns)
        found, limit = f".{row.name} at lane {place.lane} reaches lane {last}", f"lanes end at {TMEM_LANES - 1}"
        reach = last >= TMEM_LANES, TMEM_EXTENT, "address", found, limit, "Use lane 0."
        raise_all([*problems, *failed(reach, lane=place.lane, last=last)])
        cells = self.cells.copy()
        cells[lanes[:, :, None], place.column + np.arange(row.columns)] = words[:, None, :]
        return self._next(cells, copy_notes(place.column, decompress))

    def shift(self, address: Any) -> TensorMemory:
        """tcgen05.shift.down: 32 bytes of 31 lanes of a quarter move by one lane, .31x256b in PTX's table of data movement shapes.

        PTX says "downwards across all the rows, except the last, by one row". Here lane l goes to lane l + 1, and what the last
        lane held is lost; which way "down" is, is unconfirmed.
        """
        place = TmemAddress.of(address)
        problems = self._column_problems(place.column, SHIFT_COLUMNS)
        start = _lane_check(place.lane, QUARTER_LANES, "tcgen05.shift starts at a multiple of 32 lanes")
        raise_all([*problems, *failed(start, lane=place.lane)])
        cells, columns = self.cells.copy(), slice(place.column, place.column + SHIFT_COLUMNS)
        moved = slice(place.lane, place.lane + SHIFT_ROWS)
        cells[moved.start + 1 : moved.stop + 1, columns] = self.cells[moved, columns]
        left_open = (
            f"PTX moves {SHIFT_ROWS} rows (.31x256b) and calls the direction down. Lane l goes to lane l + 1 here; "
            "a public read-back on a B200 saw lane l + 1 go to lane l, in all four quarters"
        )
        return self._next(cells, [_unconfirmed("tcgen05.shift.down", left_open)])

    def _next(self, cells: Cells, notes: list[Violation]) -> TensorMemory:
        return replace(self, cells=read_only(cells), findings=tuple(dict.fromkeys((*self.findings, *notes))))

    def _reached(self, move: TmemMove, address: Any, warp: Any, split: Any) -> _Reached:
        """Lane and column of every (thread, value) of a warp, in its own quarter; or all that is wrong."""
        place, problems = TmemAddress.of(address), list[Violation]()
        number = attempted(problems, place.quarter, integer, "warp", warp, 0)
        own, form, further = number % QUARTERS * QUARTER_LANES, move.form, plain_int(split)
        lane = own + place.lane % QUARTER_LANES
        no_split = split is not None and (form.places == 1 or further is None or further < 0)
        starts = f".{form.name} starts at the first lane of a quarter{', or 16 further on' * (form.lanes < 32)}"
        # fmt: off
        problems += failed(
            _lane_check(place.lane, form.lanes, starts),
            (no_split, TMEM_SPLIT, "split", f"split = {printed(split)} with .{form.name}",
             "only .16x32bx2 has a split, a number of columns", "Leave split out."),
            warp=number, lane=place.lane, split=further,
        )
        # fmt: on
        warnings = []
        if place.lane != lane:
            found = f"warp {number} at lane {place.lane}"
            reached = f"lanes {own} to {own + 31}, whatever the field names"
            limit = f"a warp reaches the 32 lanes of its own quarter, {number} mod 4: {reached}"
            fix = f"Set the lane field to {lane}: PTX asks for it, and debug builds trap."
            warnings.append(TMEM_QUARTER.violation("address", found, limit, fix, warp=number, lane=place.lane))
        step = 0 if no_split else move.columns if further is None else further
        for first in range(move.form.places):
            problems += self._column_problems(place.column + first * step, move.columns)
        raise_all(problems)
        matrix, lanes, columns = fragment(move.opcode).indices()
        return _Reached((lane + lanes, place.column + columns + matrix * step), warnings)

    def _column_problems(self, first: int, columns: int) -> list[Violation]:
        last = first + columns - 1
        found, values = f"columns {first} to {last}", {"first": first, "last": last}
        if last >= TMEM_COLUMNS:
            limit = f"columns end at {TMEM_COLUMNS - 1}"
            fix = f"Use column {TMEM_COLUMNS - columns} or before, or move fewer."
            return [TMEM_EXTENT.violation("address", found, limit, fix, **values)]
        if self.allocated[first : last + 1].all():
            return []
        limit = f"this block has {self._listed() or 'no columns'}"
        fix = f"Allocate {counted(columns, 'column')} there first."
        return [TMEM_UNALLOCATED.violation("address", found, limit, fix, **values)]

    def _listed(self) -> str:
        return ", ".join(f"columns {first} to {first + columns - 1}" for first, columns in self.allocations)


def _reduced(registers: Cells, operation: str, *options: str) -> Cells:
    """The register that ld.red adds: the smallest or largest of the thread's own, as numbers of the type."""
    numbers = registers.view({"f32": np.float32, "u32": np.uint32, "s32": np.int32}[options[-1]])
    if "abs" in options:
        numbers = np.abs(numbers)
    keeps_nan = options[-1] != "f32" or "nan" in options
    reduce = {"min": np.minimum if keeps_nan else np.fmin, "max": np.maximum if keeps_nan else np.fmax}[operation]
    reduced: Cells = reduce.reduce(numbers, axis=1, keepdims=True).view(np.uint32)
    return reduced


def _named(direction: str, instruction: Any) -> TmemMove:
    name = instruction.strip().casefold() if isinstance(instruction, str) else ""
    move = named_move(name if name.startswith("tcgen05") else f"tcgen05.{direction}.{name}")
    if move.direction != direction:
        fix = f"Use {'load' if move.direction == 'ld' else 'store'}."
        raise UNKNOWN_NAME.error("instruction", move.opcode, f"this is tcgen05.{direction}", fix)
    return move


def _unconfirmed(found: str, left_open: str) -> Violation:
    fix = "Try it on a card before you rely on it."
    return TMEM_UNCONFIRMED.violation("instruction", found, f"unconfirmed: {left_open}", fix)


def _lane_check(lane: int, multiple: int, limit: str) -> Check:
    return lane % multiple, TMEM_LANE, "address", f"lane {lane}", limit, f"Use lane {lane // 32 * 32}."
