"""Whether loads, instructions and copies match the contents of tensor memory.

D in its layout        ── tcgen05.ld by a warp ──▶     the quarter, the lanes, the columns
scale factors          ── instruction, column, id ──▶  the word of this k, the byte of the word
atoms in shared memory ── tcgen05.cp ──▶               each atom in the columns where instructions look for it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.operand_descriptor import Tcgen05Descriptor
from tilescope.mma.scale_lanes import ScaleOperand
from tilescope.mma.scale_layout import ATOM_COPY, ATOM_STRIDE_BYTES, PAIR_B_COPY, SCALE_K, ScaleLayout
from tilescope.mma.scale_packing import ATOM_BYTES, ATOM_ROWS, ATOM_SCALES
from tilescope.mma.tcgen05_kind import WIDE_K, Documented
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS, TmemAddress, cells_of
from tilescope.mma.tmem_form import TmemMove, directed_move
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.mma.tmem_load import fills_low_halves
from tilescope.reading import entries, integer, known_name, plain_int
from tilescope.rule import ARGUMENT_TYPE
from tilescope.sentence import argument_said, format_value
from tilescope.value import Value

NO_STEP_AT_K = SCALE_K.worded(
    limit="instructions of kind {kind} begin at multiples of {step} below {end}",
    fix="Use 0, the first k of an instruction.",
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
_MAX_COPIES = 1 << 16  # that are read


@dataclass(frozen=True, slots=True)
class TmemAgreement(Documented, Value):
    """The result of `compatible` for tensor memory: true if everything agrees, otherwise the cause and the correct value.

    A warp accesses its own quarter, even if its address names another. So such a load agrees, with cause "lane-quarter"
    as a warning: PTX requires the warp's own lanes, and debug builds trap.

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
    """Whether a load, an instruction or copies match the contents of tensor memory.

    A TmemLayout (of D) is read by tcgen05.ld, whose opcode is `reader`, by `warp`, at `address`. The scale factors
    of `operand` are read by an InstructionDescriptor for the instruction that begins at `k`, with the word at
    `address`; or they are brought by copies, (Tcgen05Descriptor, address) each. A `cta_rank` says that the
    instruction is a pair's: a word with m = 128 can be either. Copies of shape 64x128b.warpx2::01_23 (a ScaleCopy
    names its shape) are those of B for a pair with m = 128.
    """
    place = TmemAddress.of(0 if address is None else address)
    if isinstance(held, TmemLayout):
        return _check_load(held, _Load.of(reader, warp, place))
    scaled = known_name("operand", operand, _SCALED_OPERANDS, "operand with scale factors")
    if isinstance(reader, InstructionDescriptor):
        return _check_scales(held, reader, scaled, k=k, address=place, is_pair=cta_rank is not None)
    return _check_copies(held, _listed_copies(reader), scaled)


class _Load(NamedTuple):
    """A warp's tcgen05.ld, which stays in the warp's own quarter."""

    move: TmemMove
    warp: int
    address: TmemAddress

    @classmethod
    def of(cls, opcode: object, warp: object, address: TmemAddress) -> _Load:
        """The load by its opcode."""
        return cls(directed_move("ld", opcode), integer("warp", warp, 0), address)

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


def _check_load(held: TmemLayout, load: _Load) -> TmemAgreement:
    """Whether a warp's load reads the matrix."""
    misplaced = _find_misplaced_load(held, load)
    if misplaced is not None:
        return misplaced
    name = held.operand
    lane_of, column_of, _ = cells_of(held.bit_addresses()[: held.rows])
    inside = (load.lane <= lane_of) & (lane_of <= load.last_lane)
    rows = np.flatnonzero((inside & (column_of == load.address.column)).any(axis=(1, 2))).tolist()
    if not rows:
        nothing = f"Lanes: nothing of {name} is in lanes {load.lane} to {load.last_lane}."
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
        f"PTX requires it in the lane field: {own_address}."
    )
    return TmemAgreement(True, name, warned, "lane-quarter", own_address)


def _find_misplaced_load(held: TmemLayout, load: _Load) -> TmemAgreement | None:
    """Why a load cannot read the matrix with any contents of its lanes."""
    move = load.move
    name = held.operand
    if load.lane % move.form.lanes:
        start = TmemAddress(load.quarter_lane, load.address.column)
        sentence = (
            f"Lane: .{move.form.name} starts at lane {load.quarter_lane} of its quarter, not {load.lane}. Use {start}."
        )
        return TmemAgreement(False, name, sentence, "lane-start", start)
    if move.packed and not fills_low_halves(held):
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


def _check_scales(
    scales: ScaleLayout,
    word: InstructionDescriptor,
    operand: ScaleOperand,
    *,
    k: object,
    address: TmemAddress,
    is_pair: bool,
) -> TmemAgreement:
    """Whether an instruction reads the scales of its k."""
    cta_group = 2 if is_pair or word.m != 128 else 1
    columns = scales.columns_per_word(operand, m=word.m, cta_group=cta_group)
    steps = {step.k: step for step in scales.steps(word.k, operand, m=word.m, cta_group=cta_group)}
    first_k = plain_int(k)
    if first_k not in steps:
        raise NO_STEP_AT_K.error(k=first_k, asked=format_value(k), kind=word.mma_kind, step=word.k, end=scales.k)
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
    blocks = f"block {step.scales[0]}"
    begin = "begins"
    if len(step.scales) > 1:
        blocks = f"blocks {step.scales[0]} to {step.scales[-1]}"
        begin = "begin"
    if address.column != step.column:
        sentence = (
            f"Scale column: k {step.k} needs {blocks}, whose word is at column {step.column}; "
            f"the instruction's address names column {address.column}. "
            f"The word of the next 4 blocks is {columns} columns further."
        )
        return TmemAgreement(False, subject, sentence, "scale-column", right, step.scale_id)
    scale_id = word.a_scale_id if operand == "A" else word.b_scale_id
    if scale_id != step.scale_id:
        sentence = (
            f"Scale id: k {step.k} needs {blocks}, which {begin} at byte {step.scale_id} of the word; "
            f"the descriptor says {scale_id}. Use {argument_said(f'{operand.lower()}_scale_id', step.scale_id)}."
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


def _check_copies(scales: ScaleLayout, copies: list[_Copy], operand: ScaleOperand) -> TmemAgreement:
    """Whether copies leave the atoms where instructions look for them."""
    in_halves = any(copy.shape == PAIR_B_COPY for copy in copies)  # of a pair's B: two atoms each, half of n
    cta_group = 2 if in_halves else 1
    first_column = min(copy.address.column for copy in copies)
    expected_atoms = {
        first_column + copy.address.column: copy.descriptor.start_address // ATOM_BYTES
        for copy in scales.copies(operand, cta_group=cta_group)
    }
    crooked = _crooked_rows(copies)
    subject = f"SF{operand}"
    if crooked is not None:
        return TmemAgreement(False, subject, crooked, "atom-rows")
    first_byte = min(copy.descriptor.start_address for copy in copies)
    atoms = {copy.address.column: (copy.descriptor.start_address - first_byte) // ATOM_BYTES for copy in copies}
    for column, atom in sorted(expected_atoms.items()):
        copied_atom = atoms.get(column)
        if copied_atom == atom:
            continue
        right = TmemAddress(0, column)
        which = _atom_in_words(scales, atom, in_halves=in_halves)
        if copied_atom is None:
            sentence = f"Atom missing: no copy loads {which} to column {column}."
            return TmemAgreement(False, subject, sentence, "atom-missing", right)
        other = _atom_place(scales, copied_atom, in_halves=in_halves)
        word_columns = scales.columns_per_word(operand, cta_group=cta_group)
        sentence = (
            f"Atom order: column {column} gets atom {copied_atom} (rows from {other.row}, blocks from {other.block}), "
            f"and instructions look there for atom {atom} ({which}). {_atom_order(word_columns, in_halves=in_halves)}."
        )
        return TmemAgreement(False, subject, sentence, "atom-order", right)
    down, along = scales.atoms
    if in_halves:
        agreed = f"The copies load both halves of n, {along} words of k each, where instructions look for them."
    else:
        agreed = f"The copies load all {down} x {along} atoms where instructions look for them."
    return TmemAgreement(True, subject, agreed)


def _crooked_rows(copies: list[_Copy]) -> str | None:
    """Why copies do not read whole atoms, if they do not."""
    for copy in copies:
        swizzle = copy.descriptor.swizzle.name
        stride_bytes = copy.descriptor.stride_bytes
        if swizzle != "none" or stride_bytes != ATOM_STRIDE_BYTES:
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
    """An atom has 128 rows; a copy of a pair's B transfers two, half of n each."""
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
    listed = entries(copies, _MAX_COPIES) or []
    read = [_read_copy(entries(copy, 4) or []) for copy in listed]
    readable = [copy for copy in read if copy is not None]
    if not listed or len(readable) < len(listed):
        raise ARGUMENT_TYPE.error(
            argument="descriptor",
            found=format_value(copies),
            limit="an InstructionDescriptor, or copies: (Tcgen05Descriptor, address) each",
            fix="Use scale_layout(…).copies().",
        )
    return [_Copy(shape, descriptor, TmemAddress.of(address)) for shape, descriptor, address in readable]


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
