"""Does it fit, in tensor memory: all that a kernel keeps there; and loads, instructions and copies to what lies there.

D in its layout        ── tcgen05.ld by a warp ──▶     the quarter, the lanes, the columns
scale factors          ── instruction, column, id ──▶  the word of this k, the byte of the word
atoms in shared memory ── tcgen05.cp ──▶               each atom in the columns where instructions look for it

A budget gives the parts of a kernel their columns, in the order in which it lists them:

    column   0         128       256  260  264       512
             │ D0      │ D1      │SFA │SFB │ free     │       one alloc of 512 columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, Violation, Wording, argument_type, raise_all
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_layout import ATOM_COPY, ATOM_STRIDE_BYTES, PAIR_B_COPY, SCALE_K, ScaleLayout, ScaleOperand
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES
from tilescope.mma.tcgen05_kind import BLACKWELL, WIDE_K, Documented
from tilescope.mma.tmem_address import ALLOC_COLUMNS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TmemAddress
from tilescope.mma.tmem_form import TmemMove, named_move
from tilescope.mma.tmem_layout import TmemLayout, TmemOperand
from tilescope.reading import entries, integer, known_name, plain_int
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import printed
from tilescope.value import Value

NO_STEP_AT_K = SCALE_K.worded(
    limit="instructions of kind {kind} begin at multiples of {step} below {end}",
    fix="Use 0, the first k of an instruction.",
)
TMEM_BUDGET = rule(
    "tmem-budget",
    "Accumulators, A, metadata and scale factors fit into 512 columns together.",
    argument="{part}",
    found="{part} needs {columns} columns after {taken} taken ones",
    limit="tensor memory has {most} columns",
    fix="Use a narrower accumulator, or one stage fewer of it.",
    source="PTX ISA, Tensor Memory",
    architectures=BLACKWELL,
    passing='ts.TensorMemory.budget({"D": (ts.tmem_layout((128, 256)), 2)}).violations',
    failing='ts.TensorMemory.budget({"D": (ts.tmem_layout((128, 256)), 3)}).violations',
)
A_OVER_BUDGET = TMEM_BUDGET.worded(fix="Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.")
SCALES_OVER_BUDGET = TMEM_BUDGET.worded(
    fix="Use a narrower accumulator, or copy the scale factors of fewer k at a time."
)
TmemCause = Literal[
    "lane-quarter",
    "lane-start",
    "packing",
    "columns",
    "scale-byte",
    "scale-column",
    "scale-type",
    "atom-order",
    "atom-missing",
    "atom-rows",
]
_SCALED_OPERANDS: tuple[ScaleOperand, ...] = ("A", "B")


@dataclass(frozen=True, slots=True)
class TmemAgreement(Documented, Value):
    """The answer of `compatible` about tensor memory: true where all agrees, else the cause and what would be right.

    A warp reaches its own quarter whatever quarter its address names. So such a load agrees, with cause
    "lane-quarter" as a warning: PTX asks for the warp's own lanes, and debug builds trap.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> warned = tmem_compatible(tmem_layout((128, 64)), "tcgen05.ld.32x32b.x64", warp=1, address=0)
    >>> bool(warned), warned.cause, warned.correction
    (True, 'lane-quarter', TmemAddress(lane=32))
    """

    agrees: bool
    subject: str  # what was looked for
    sentence: str
    cause: TmemCause | None = None  # why it does not agree, or what is advised against
    correction: TmemAddress | None = None  # the address that would be right
    scale_id: int | None = None  # the id that would be right

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        return self.sentence


def tmem_compatible(
    held: TmemLayout | ScaleLayout,
    reader: object,
    *,
    warp: object = None,
    address: TmemAddress | int | None = None,
    operand: object = None,
    k: object = None,
    cta_rank: object = None,
) -> TmemAgreement:
    """Whether a load, an instruction or copies agree with what lies in tensor memory.

    A TmemLayout (of D) is read by tcgen05.ld, whose opcode is `reader`, by `warp`, at `address`. The scale factors
    of `operand` are read by an InstructionDescriptor for the instruction that begins at `k`, with the word at
    `address`; or they are brought by copies, (Tcgen05Descriptor, address) each. A `cta_rank` says that the
    instruction is a pair's: a word with m = 128 can be either. Copies of shape 64x128b.warpx2::01_23 (a ScaleCopy
    names its shape) are those of B for a pair with m = 128.
    """
    place = TmemAddress.of(0 if address is None else address)
    if isinstance(held, TmemLayout):
        return _loaded(held, _Load.of(reader, warp, place))
    scaled = known_name("operand", operand, _SCALED_OPERANDS, "operand with scale factors")
    if isinstance(reader, InstructionDescriptor):
        return _scaled(held, reader, scaled, k=k, address=place, is_pair=cta_rank is not None)
    return _copied(held, _listed_copies(reader), scaled)


class _Load(NamedTuple):
    """A warp's tcgen05.ld, which stays in the warp's own quarter."""

    move: TmemMove
    warp: int
    address: TmemAddress

    @classmethod
    def of(cls, opcode: object, warp: object, address: TmemAddress) -> _Load:
        """The load by its opcode."""
        move = named_move(opcode.strip().casefold() if isinstance(opcode, str) else printed(opcode))
        return cls(move, integer("warp", warp, 0), address)

    @property
    def quarter_lane(self) -> int:
        """The first lane that the warp reaches."""
        return self.warp % QUARTERS * QUARTER_LANES

    @property
    def lane(self) -> int:
        """The first lane that is loaded."""
        return self.quarter_lane + self.address.lane % QUARTER_LANES

    @property
    def last_lane(self) -> int:
        return self.lane + self.move.form.lanes - 1

    @property
    def last_column(self) -> int:
        return self.address.column + self.move.columns * self.move.form.places - 1


def _loaded(held: TmemLayout, load: _Load) -> TmemAgreement:
    """Whether a warp's load meets the matrix."""
    misplaced = _misplaced(held, load)
    if misplaced is not None:
        return misplaced
    name = held.operand
    lane_of, column_of = np.divmod(held.bit_addresses()[: held.rows] >> 5, 1 << 16)
    inside = (load.lane <= lane_of) & (lane_of <= load.last_lane)
    rows = np.flatnonzero((inside & (column_of == load.address.column)).any(axis=(1, 2))).tolist()
    if not rows:
        nothing = f"Lanes: nothing of {name} lies in lanes {load.lane} to {load.last_lane}."
        return TmemAgreement(False, name, nothing, "lane-start")
    agreed = f"Warp {load.warp} loads rows {rows[0]} to {rows[-1]} of {name}"
    used_lanes = len(np.unique(lane_of[inside]))
    if used_lanes < load.move.form.lanes:
        agreed += f", in {used_lanes} of {load.move.form.lanes} lanes"
    own_address = TmemAddress(load.lane, load.address.column)
    if own_address == load.address:
        return TmemAgreement(True, name, f"{agreed}.")
    last_of_quarter = load.quarter_lane + QUARTER_LANES - 1
    warned = (
        f"{agreed}. Lane quarter: warp {load.warp} reaches lanes {load.quarter_lane} to {last_of_quarter} alone "
        f"({load.warp} mod 4), and the address names lane {load.address.lane}. "
        "The hardware takes the warp's own quarter, as DeepGEMM relies on; "
        f"PTX asks for it in the lane field: {own_address}."
    )
    return TmemAgreement(True, name, warned, "lane-quarter", own_address)


def _misplaced(held: TmemLayout, load: _Load) -> TmemAgreement | None:
    """Why a load cannot meet the matrix whatever lies in its lanes."""
    move, name = load.move, held.operand
    if load.lane % move.form.lanes:
        start = TmemAddress(load.quarter_lane, load.address.column)
        sentence = (
            f"Lane: .{move.form.name} starts at lane {load.quarter_lane} of its quarter, not {load.lane}. Use {start}."
        )
        return TmemAgreement(False, name, sentence, "lane-start", start)
    if move.packed and (held.element_bits, name) != (16, "D"):
        sentence = f"Packing: {move.opcode} takes the low halves of cells, and elements of {name} fill them."
        return TmemAgreement(False, name, sentence, "packing")
    first = held.base.column
    last = first + held.columns - 1
    if load.address.column < first or load.last_column > last:
        sentence = (
            f"Columns: {move.opcode} reads columns {load.address.column} to {load.last_column}, "
            f"and {name} lies in {first} to {last}."
        )
        return TmemAgreement(False, name, sentence, "columns", TmemAddress(load.lane, first))
    return None


def _scaled(
    scales: ScaleLayout,
    word: InstructionDescriptor,
    operand: ScaleOperand,
    *,
    k: object,
    address: TmemAddress,
    is_pair: bool,
) -> TmemAgreement:
    """Whether an instruction finds the scales of its own k."""
    cta_group = 2 if is_pair or word.m != 128 else 1
    columns = scales.columns_per_word(operand, m=word.m, cta_group=cta_group)
    steps = {step.k: step for step in scales.steps(word.k, operand, m=word.m, cta_group=cta_group)}
    first_k = plain_int(k)
    if first_k not in steps:
        raise NO_STEP_AT_K.error(k=first_k, asked=printed(k), kind=word.mma_kind, step=word.k, end=scales.k)
    step = steps[first_k]
    subject = f"SF{operand}"
    form = scales.format
    if (word.mma_kind, word.scale_type) != (form.mma_kind, form.scale_type):
        sentence = (
            f"Scale type: the scales are {form.name} ({form.scale_type}, kind {form.mma_kind}), "
            f"the instruction is of kind {word.mma_kind} with {word.scale_type}."
        )
        return TmemAgreement(False, subject, sentence, "scale-type")
    right = TmemAddress(0, step.column)
    if len(step.scales) == 1:
        blocks, begin = f"block {step.scales[0]}", "begins"
    else:
        blocks, begin = f"blocks {step.scales[0]} to {step.scales[-1]}", "begin"
    if address.column != step.column:
        sentence = (
            f"Scale column: k {step.k} needs {blocks}, whose word lies at column {step.column}; "
            f"the instruction's address names column {address.column}. "
            f"The word of the next 4 blocks is {columns} columns further."
        )
        return TmemAgreement(False, subject, sentence, "scale-column", right, step.scale_id)
    scale_id = word.a_scale_id if operand == "A" else word.b_scale_id
    if scale_id != step.scale_id:
        sentence = (
            f"Scale id: k {step.k} needs {blocks}, which {begin} at byte {step.scale_id} of the word; "
            f"the descriptor says {scale_id}. Use {operand.lower()}_scale_id={step.scale_id}."
        )
        return TmemAgreement(False, subject, sentence, "scale-byte", right, step.scale_id)
    agreed = f"The instruction at k {step.k} reads {blocks}, byte {step.scale_id} of the word at column {step.column}."
    if word.k == WIDE_K:
        agreed += " That scales of k = 96 run on into the next word rests on one source: CUTLASS."
    return TmemAgreement(True, subject, agreed)


class _Copy(NamedTuple):
    """A tcgen05.cp of scale factors; a shape that was not named is that of one atom."""

    shape: str
    descriptor: Tcgen05Descriptor
    address: TmemAddress


def _copied(scales: ScaleLayout, copies: list[_Copy], operand: ScaleOperand) -> TmemAgreement:
    """Whether copies leave the atoms where instructions look for them."""
    in_halves = any(copy.shape == PAIR_B_COPY for copy in copies)  # of a pair's B: two atoms each, half of n
    cta_group = 2 if in_halves else 1
    first_column = min(copy.address.column for copy in copies)
    wanted_atoms = {
        first_column + copy.address.column: copy.descriptor.start_address // ATOM_BYTES
        for copy in scales.copies(operand, cta_group=cta_group)
    }
    crooked = _crooked_rows(copies)
    subject = f"SF{operand}"
    if crooked is not None:
        return TmemAgreement(False, subject, crooked, "atom-rows")
    first_byte = min(copy.descriptor.start_address for copy in copies)
    atoms = {copy.address.column: (copy.descriptor.start_address - first_byte) // ATOM_BYTES for copy in copies}
    for column, atom in sorted(wanted_atoms.items()):
        brought = atoms.get(column)
        if brought == atom:
            continue
        right = TmemAddress(0, column)
        which = _atom_in_words(scales, atom, in_halves=in_halves)
        if brought is None:
            sentence = f"Atom missing: no copy brings {which} to column {column}."
            return TmemAgreement(False, subject, sentence, "atom-missing", right)
        other = _atom_place(scales, brought, in_halves=in_halves)
        word_columns = scales.columns_per_word(operand, cta_group=cta_group)
        sentence = (
            f"Atom order: column {column} gets atom {brought} (rows from {other.row}, blocks from {other.block}), "
            f"and instructions look there for atom {atom} ({which}). {_atom_order(word_columns, in_halves=in_halves)}."
        )
        return TmemAgreement(False, subject, sentence, "atom-order", right)
    down, along = scales.atoms
    if in_halves:
        agreed = f"The copies bring both halves of n, {along} words of k each, where instructions look for them."
    else:
        agreed = f"The copies bring all {down} x {along} atoms where instructions look for them."
    return TmemAgreement(True, subject, agreed)


def _crooked_rows(copies: list[_Copy]) -> str | None:
    """Why copies do not read whole atoms, if they do not."""
    for copy in copies:
        swizzle, stride_bytes = copy.descriptor.swizzle.name, copy.descriptor.stride_bytes
        if (swizzle, stride_bytes) != ("none", ATOM_STRIDE_BYTES):
            return (
                "Rows of an atom: 8 rows of 16 bytes follow each other, "
                f"so the copy needs swizzle none and stride {ATOM_STRIDE_BYTES} bytes; "
                f"its descriptor has {swizzle} and {stride_bytes}."
            )
    first_byte = min(copy.descriptor.start_address for copy in copies)
    last_to_column = {copy.address.column: copy.descriptor.start_address - first_byte for copy in copies}
    rest_bytes = max(start % ATOM_BYTES for start in last_to_column.values())
    if rest_bytes:
        return f"Rows of an atom: a copy starts {rest_bytes} bytes after one; atoms are {ATOM_BYTES} bytes."
    return None


class _AtomPlace(NamedTuple):
    """The first row and block of the scales that an atom holds."""

    row: int
    block: int


def _atom_place(scales: ScaleLayout, atom: int, *, in_halves: bool) -> _AtomPlace:
    """An atom holds 128 rows; a copy of a pair's B brings two, half of n each."""
    row, word = (0, atom // 2) if in_halves else divmod(atom, scales.atoms[1])
    return _AtomPlace(row * ATOM_ROWS, word * ATOM_SCALES)


def _atom_in_words(scales: ScaleLayout, atom: int, *, in_halves: bool) -> str:
    row, block = _atom_place(scales, atom, in_halves=in_halves)
    rows = f"rows {row} to {row + ATOM_ROWS - 1}"
    if in_halves:
        rows = f"both halves of {scales.rows} columns"
    return f"{rows}, blocks {block} to {block + ATOM_SCALES - 1}"


def _atom_order(word_columns: int, *, in_halves: bool) -> str:
    if in_halves:
        return (
            "In shared memory the atoms of the two halves of n follow each other, word of k by word of k; "
            f"in tensor memory the next word of k is {word_columns} columns on"
        )
    return (
        "In shared memory the atoms along k follow each other; "
        f"in tensor memory the next word of k is {word_columns} columns on, the next 128 rows 4"
    )


def _listed_copies(copies: object) -> list[_Copy]:
    """Copies as a shape, a descriptor and an address; pairs of the last two are of one atom."""
    listed = [_read_copy(entries(copy, 4) or []) for copy in entries(copies, 1 << 16) or ()]
    known = [copy for copy in listed if copy is not None]
    if not listed or len(known) < len(listed):
        raise ARGUMENT_TYPE.error(
            argument="descriptor",
            found=printed(copies),
            limit="an InstructionDescriptor, or copies: (Tcgen05Descriptor, address) each",
            fix="Use scale_layout(…).copies().",
        )
    return [_Copy(shape, descriptor, TmemAddress.of(address)) for shape, descriptor, address in known]


def _read_copy(fields: list[object]) -> tuple[str, Tcgen05Descriptor, object] | None:
    """Shape, descriptor and address of a copy, the shape left out or not; None if it is no copy."""
    if len(fields) == 2:
        fields = [ATOM_COPY, *fields]
    if len(fields) != 3:
        return None
    shape, descriptor, address = fields
    if not isinstance(shape, str) or not isinstance(descriptor, Tcgen05Descriptor):
        return None
    return shape, descriptor, address


_COPY_COLUMNS = 4  # tcgen05.cp writes, and metadata lies, at multiples of them
_UPPER_LANE = 16


@dataclass(frozen=True, slots=True)
class TmemPart(Value):
    """One matrix of a budget: its columns, and the first of them; None if it does not fit."""

    name: str
    operand: str
    columns: int
    first_column: int | None
    lane: int = 0


@dataclass(frozen=True, slots=True)
class TmemBudget(Documented, Value):
    """What a kernel keeps in tensor memory, and whether it fits.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> wide = tmem_layout((128, 256))
    >>> budget = tmem_budget({"D0": wide, "D1": wide, "A": tmem_layout((128, 64), operand="A")})
    >>> budget.fits, budget.columns, [part.first_column for part in budget.parts]
    (False, 544, [0, 256, None])
    >>> budget.violations[0].found
    'A needs 32 columns after 512 taken ones'
    >>> budget.violations[0].fix
    'Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.'
    """

    parts: tuple[TmemPart, ...]
    columns: int  # of all parts
    violations: tuple[Violation, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether all parts have their columns."""
        return not self.violations

    @property
    def alloc_columns(self) -> int | None:
        """The columns to ask tcgen05.alloc for: a power of two of at least 32; None if the parts do not fit."""
        if not self.fits:
            return None
        ends = [part.first_column + part.columns for part in self.parts if part.first_column is not None]
        return next(columns for columns in ALLOC_COLUMNS if columns >= max(ends, default=0))


def tmem_budget(parts: Mapping[str, Any]) -> TmemBudget:
    """Whether accumulators, A, metadata and scale factors fit; what does not, and why.

    The parts have names, and are layouts or (layout, count). Accumulators that use half of each quarter (layouts C
    and F) share their columns: the second one starts at lane 16.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> scales = scale_layout(128, 256, "nvfp4").tensor_memory("A")
    >>> budget = tmem_budget({"D": (tmem_layout((128, 128)), 2), "SFA": scales})
    >>> [(part.name, part.first_column, part.columns) for part in budget.parts], budget.alloc_columns
    ([('D 0', 0, 128), ('D 1', 128, 128), ('SFA', 256, 16)], 512)
    """
    placed: list[TmemPart] = []
    problems: list[Violation] = []
    taken = 0  # columns, from the first on
    needed = 0
    half_used: TmemPart | None = None  # whose columns have free lanes
    for name, layout in _named_layouts(parts):
        columns, operand = layout.columns, layout.operand
        is_half = operand == "D" and DATAPATHS[layout.datapath or "D"].is_half
        if is_half and half_used is not None and columns <= half_used.columns:
            placed.append(TmemPart(name, operand, columns, half_used.first_column, _UPPER_LANE))
            half_used = None
            continue
        first = taken if operand in ("D", "A") else rounded_up(taken, _COPY_COLUMNS)
        needed += first + columns - taken
        if first + columns > TMEM_COLUMNS:
            placed.append(TmemPart(name, operand, columns, None))
            told = _over_budget(operand)
            problems.append(told.violation(part=name, columns=columns, taken=taken, most=TMEM_COLUMNS))
            continue
        placed.append(TmemPart(name, operand, columns, first))
        taken = first + columns
        if is_half:
            half_used = placed[-1]
    return TmemBudget(tuple(placed), needed, tuple(problems))


def _over_budget(operand: TmemOperand) -> Wording:
    """How it is told that an operand does not fit."""
    if operand == "D":
        return TMEM_BUDGET.wording
    return A_OVER_BUDGET if operand == "A" else SCALES_OVER_BUDGET


def _named_layouts(parts: object) -> list[tuple[str, TmemLayout]]:
    """Every part as often as it is there, several with a number behind their name."""
    if not isinstance(parts, Mapping) or not parts:
        fix = 'Use {"D": tmem_layout((128, 256))}, for example.'
        raise RuleError([argument_type("parts", parts, "layouts of tensor memory by name", fix)])
    listed: list[tuple[str, TmemLayout]] = []
    problems = []
    for name, part in parts.items():
        layout, count = _layout_and_count(part)
        if not isinstance(layout, TmemLayout) or not isinstance(count, int) or not 1 <= count <= TMEM_COLUMNS:
            wanted = "a layout of tensor memory, or (layout, count)"
            problems.append(argument_type(str(name), part, wanted, "Use tmem_layout((128, 256))."))
        elif count == 1:
            listed.append((str(name), layout))
        else:
            listed += [(f"{name} {number}", layout) for number in range(count)]
    raise_all(problems)
    return listed


def _layout_and_count(part: object) -> tuple[object, object]:
    if isinstance(part, TmemLayout):
        return part, 1
    fields = entries(part, 2) or ()
    return (fields[0], fields[1]) if len(fields) == 2 else (None, None)
