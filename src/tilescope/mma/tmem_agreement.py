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
from tilescope.errors import RuleError, Violation, argument_type, raise_all
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_layout import ATOM_COPY, PAIR_B_COPY, SCALE_K, ScaleLayout, ScaleOperand
from tilescope.mma.scale_packing import ATOM_BYTES
from tilescope.mma.tcgen05_kind import WIDE_K, Documented, blackwell_rule
from tilescope.mma.tmem_address import ALLOC_COLUMNS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TmemAddress
from tilescope.mma.tmem_form import named_move
from tilescope.mma.tmem_layout import DATAPATHS, TmemLayout
from tilescope.reading import entries, integer, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_TYPE
from tilescope.sentence import printed
from tilescope.value import Value

TmemCause = Literal[
    "lane-quarter", "lane-start", "packing", "columns", "scale-byte", "scale-column", "scale-type", "atom-order", "atom-missing",
    "atom-rows",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TmemAgreement(Documented, Value):
    """The answer of `compatible` about tensor memory: true where all agrees, else the cause and what would be right.

    A warp reaches its own quarter whatever quarter its address names. So such a load agrees, with cause "lane-quarter" as a
    warning: PTX asks for the warp's own lanes, and debug builds trap.

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


Check = tuple[Any, TmemCause, TmemAddress | None, str]  # whether it fails; cause, right address, sentence


def _verdict(subject: str, agreed: str, checks: tuple[Check, ...], scale_id: int | None = None) -> TmemAgreement:
    """The first check that fails, or the sentence for all of them."""
    for fails, cause, right, sentence in checks:
        if fails:
            return TmemAgreement(False, subject, sentence, cause, right, None if right is None else scale_id)
    return TmemAgreement(True, subject, agreed)


def tmem_compatible(
    held: TmemLayout | ScaleLayout, reader: Any, *, warp: Any = None, address: Any = None, operand: Any = None, k: Any = None,
    cta_rank: Any = None,
) -> TmemAgreement:  # fmt: skip
    """Whether a load, an instruction or copies agree with what lies in tensor memory.

    A TmemLayout (of D) is read by tcgen05.ld, whose opcode is `reader`, by `warp`, at `address`. The scale factors of `operand`
    are read by an InstructionDescriptor for the instruction that begins at `k`, with the word at `address`; or they are brought
    by copies, (Tcgen05Descriptor, address) each. A `cta_rank` says that the instruction is a pair's: a word with m = 128 can be
    either. Copies of shape 64x128b.warpx2::01_23 (a ScaleCopy names its shape) are those of B for a pair with m = 128.
    """
    place = TmemAddress.of(0 if address is None else address)
    if isinstance(held, TmemLayout):
        return _loaded(held, reader, warp, place)
    operand = known_name("operand", operand, ("A", "B"), "operand with scale factors")
    if isinstance(reader, InstructionDescriptor):
        return _scaled(held, reader, operand, k, place, 1 if cta_rank is None else 2)
    return _copied(held, _listed_copies(reader), operand)


def _loaded(held: TmemLayout, opcode: Any, warp: Any, address: TmemAddress) -> TmemAgreement:
    """Whether a warp's load, which stays in the warp's own quarter, meets the matrix."""
    move = named_move(opcode.strip().casefold() if isinstance(opcode, str) else printed(opcode))
    number, name, reach = integer("warp", warp, 0), held.operand, move.form.lanes
    own = number % QUARTERS * QUARTER_LANES
    lane = own + address.lane % QUARTER_LANES
    end = lane + reach - 1
    first, last = held.base.column, held.base.column + held.columns - 1
    reads = address.column, address.column + move.columns * move.form.places - 1
    lane_of, column_of = np.divmod(held.bit_addresses()[: held.rows] >> 5, 1 << 16)
    inside = (lane <= lane_of) & (lane_of <= end)
    rows = np.flatnonzero((inside & (column_of == address.column)).any(axis=(1, 2))).tolist()
    whole, start = TmemAddress(lane, address.column), TmemAddress(own, address.column)
    used, span = len(np.unique(lane_of[inside])), f"{rows[0]} to {rows[-1]}" if rows else ""
    part = f", in {used} of {reach} lanes" if used < reach else ""
    agreed = f"Warp {number} loads rows {span} of {name}{part}."
    # fmt: off
    verdict = _verdict(name, agreed, (
        (lane % reach, "lane-start", start,
            f"Lane: .{move.form.name} starts at lane {own} of its quarter, not {lane}. Use {start}."),
        (move.packed and (held.element_bits, name) != (16, "D"), "packing", None,
            f"Packing: {move.opcode} takes the low halves of cells, and elements of {name} fill them."),
        (reads[0] < first or reads[1] > last, "columns", TmemAddress(lane, first),
            f"Columns: {move.opcode} reads columns {reads[0]} to {reads[1]}, and {name} lies in {first} to {last}."),
        (not rows, "lane-start", None, f"Lanes: nothing of {name} lies in lanes {lane} to {end}."),
    ))
    # fmt: on
    if not verdict or whole == address:
        return verdict
    warned = (
        f"{agreed} Lane quarter: warp {number} reaches lanes {own} to {own + QUARTER_LANES - 1} alone ({number} mod 4), and the "
        f"address names lane {address.lane}. The hardware takes the warp's own quarter, as DeepGEMM relies on; PTX asks for it in the "
        f"lane field: {whole}."
    )
    return TmemAgreement(True, name, warned, "lane-quarter", whole)


def _scaled(
    scales: ScaleLayout,
    word: InstructionDescriptor,
    operand: ScaleOperand,
    k: Any,
    address: TmemAddress,
    cta_group: int,
) -> TmemAgreement:
    """Whether an instruction finds the scales of its own k."""
    where: Any = {"m": word.m, "cta_group": cta_group if word.m == 128 else 2}
    columns, form = scales.columns_per_word(operand, **where), scales.format
    steps = {step.k: step for step in scales.steps(word.k, operand, **where)}
    if not is_one_of(k, steps):
        limit = f"instructions of kind {word.mma_kind} begin at multiples of {word.k} below {scales.k}"
        raise SCALE_K.error("k", f"k = {printed(k)}", limit, "Use 0, the first k of an instruction.", k=plain_int(k))
    step = steps[int(k)]
    told = word.a_scale_id if operand == "A" else word.b_scale_id
    one, right = len(step.scales) == 1, TmemAddress(0, step.column)
    blocks = f"block {step.scales[0]}" if one else f"blocks {step.scales[0]} to {step.scales[-1]}"
    wide = " That scales of k = 96 run on into the next word rests on one source: CUTLASS." * (word.k == WIDE_K)
    agreed = f"The instruction at k {k} reads {blocks}, byte {step.scale_id} of the word at column {step.column}.{wide}"
    # fmt: off
    return _verdict(f"SF{operand}", agreed, (
        ((word.mma_kind, word.scale_type) != (form.mma_kind, form.scale_type), "scale-type", None, (
            f"Scale type: the scales are {form.name} ({form.scale_type}, kind {form.mma_kind}), "
            f"the instruction is of kind {word.mma_kind} with {word.scale_type}.")),
        (address.column != step.column, "scale-column", right, (
            f"Scale column: k {step.k} needs {blocks}, whose word lies at column {step.column}; the instruction's address names column "
            f"{address.column}. The word of the next 4 blocks is {columns} columns further.")),
        (told != step.scale_id, "scale-byte", right, (
            f"Scale id: k {step.k} needs {blocks}, which begin{'s' * one} at byte {step.scale_id} of the word; the descriptor says {told}. "
            f"Use {operand.lower()}_scale_id={step.scale_id}.")),
    ), step.scale_id)
    # fmt: on


class _Copy(NamedTuple):
    """A tcgen05.cp of scale factors; a shape that was not named is that of one atom."""

    shape: str
    descriptor: Tcgen05Descriptor
    address: TmemAddress


def _copied(scales: ScaleLayout, copies: list[_Copy], operand: ScaleOperand) -> TmemAgreement:
    """Whether copies leave the atoms where instructions look for them."""
    down, along = scales.atoms
    in_halves = any(copy.shape == PAIR_B_COPY for copy in copies)
    where: Any = {"m": 128, "cta_group": 2} if in_halves else {}
    first = min(copy.descriptor.start_address for copy in copies)
    base = min(copy.address.column for copy in copies)
    places = {copy.address.column: divmod(copy.descriptor.start_address - first, ATOM_BYTES) for copy in copies}
    rest = max(rest for _, rest in places.values())
    modes = dict.fromkeys((copy.descriptor.swizzle.name, copy.descriptor.stride_bytes) for copy in copies)
    swizzle, stride = next((mode for mode in modes if mode != ("none", 128)), ("none", 128))
    wanted = {base + to.column: at.start_address // ATOM_BYTES for _, at, to in scales.copies(operand, **where)}
    column = next((column for column, atom in sorted(wanted.items()) if places.get(column, (None, 0))[0] != atom), base)
    atom, (other, _), right = wanted[column], places.get(column, (-1, 0)), TmemAddress(0, column)

    # an atom holds 128 rows; a copy of a pair's B brings two, half of n each
    row, word = (0, atom // 2) if in_halves else divmod(atom, along)
    other_row, other_word = (0, other // 2) if in_halves else divmod(other, along)
    rows = f"both halves of {scales.rows} columns" if in_halves else f"rows {128 * row} to {128 * row + 127}"
    which = f"{rows}, blocks {4 * word} to {4 * word + 3}"
    agreed = f"The copies bring all {down} x {along} atoms where instructions look for them."
    order = "In shared memory the atoms along k follow each other"
    columns = scales.columns_per_word(operand, **where)
    further = f"in tensor memory the next word of k is {columns} columns on, the next 128 rows 4"
    if in_halves:
        agreed = f"The copies bring both halves of n, {along} words of k each, where instructions look for them."
        order = "In shared memory the atoms of the two halves of n follow each other, word of k by word of k"
        further = f"in tensor memory the next word of k is {columns} columns on"
    # fmt: off
    return _verdict(f"SF{operand}", agreed, (
        ((swizzle, stride) != ("none", 128), "atom-rows", None, (
            "Rows of an atom: 8 rows of 16 bytes follow each other, so the copy needs swizzle none and stride 128 bytes; "
            f"its descriptor has {swizzle} and {stride}.")),
        (rest, "atom-rows", None, f"Rows of an atom: a copy starts {rest} bytes after one; atoms are {ATOM_BYTES} bytes."),
        (other < 0, "atom-missing", right, f"Atom missing: no copy brings {which} to column {column}."),
        (other != atom, "atom-order", right, (
            f"Atom order: column {column} gets atom {other} (rows from {128 * other_row}, blocks from {4 * other_word}), "
            f"and instructions look there for atom {atom} ({which}). {order}; {further}.")),
    ))
    # fmt: on


def _listed_copies(copies: Any) -> list[_Copy]:
    """Copies as a shape, a descriptor and an address; pairs of the last two are of one atom."""
    listed = [entries(copy, 4) or [] for copy in entries(copies, 1 << 16) or ()]
    known = all(
        len(copy) in (2, 3)
        and isinstance(copy[-2], Tcgen05Descriptor)
        and all(isinstance(name, str) for name in copy[:-2])
        for copy in listed
    )
    if not listed or not known:
        limit = "an InstructionDescriptor, or copies: (Tcgen05Descriptor, address) each"
        raise ARGUMENT_TYPE.error("descriptor", printed(copies), limit, "Use scale_layout(…).copies().")
    return [_Copy(copy[0] if len(copy) == 3 else ATOM_COPY, copy[-2], TmemAddress.of(copy[-1])) for copy in listed]


_BUDGET = 'ts.TensorMemory.budget({{"D": (ts.tmem_layout((128, 256)), {})}}).violations'
TMEM_BUDGET = blackwell_rule(
    "tmem-budget", "Accumulators, A, metadata and scale factors fit into 512 columns together.", "Tensor Memory",
    _BUDGET.format(2), _BUDGET.format(3),
)  # fmt: skip
_COPY_COLUMNS = 4  # tcgen05.cp writes, and metadata lies, at multiples of them
_UPPER_LANE = 16
_LESS_SCALES = "Use a narrower accumulator, or copy the scale factors of fewer k at a time."
_FIXES = {
    "D": "Use a narrower accumulator, or one stage fewer of it.",
    "A": "Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.",
} | dict.fromkeys(("SFA", "SFB", "metadata"), _LESS_SCALES)


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
    >>> print(budget.violations[0])
    tmem-budget: A needs 32 columns after 512 taken ones; tensor memory has 512 columns. Use a narrower accumulator, one stage \
fewer of it, or keep A in shared memory.
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
        taken = [part.first_column + part.columns for part in self.parts if part.first_column is not None]
        return next(column for column in ALLOC_COLUMNS if column >= max(taken, default=0)) if self.fits else None


def tmem_budget(parts: Mapping[str, Any]) -> TmemBudget:
    """Whether accumulators, A, metadata and scale factors fit, by name: layouts, or (layout, count); what does not, and why.

    Accumulators that use half of each quarter (layouts C and F) share their columns: the second one starts at lane 16.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> scales = scale_layout(128, 256, "nvfp4").tensor_memory("A")
    >>> budget = tmem_budget({"D": (tmem_layout((128, 128)), 2), "SFA": scales})
    >>> [(part.name, part.first_column, part.columns) for part in budget.parts], budget.alloc_columns
    ([('D 0', 0, 128), ('D 1', 128, 128), ('SFA', 256, 16)], 512)
    """
    placed: list[TmemPart] = []
    problems: list[Violation] = []
    after = needed = 0
    half: TmemPart | None = None  # whose columns have free lanes
    for name, layout in _listed(parts):
        columns, operand = layout.columns, layout.operand
        shares = operand == "D" and DATAPATHS[layout.datapath or "D"].is_half
        if shares and half is not None and columns <= half.columns:
            placed.append(TmemPart(name, operand, columns, half.first_column, _UPPER_LANE))
            half = None
            continue
        alignment = 1 if operand in ("D", "A") else _COPY_COLUMNS
        first = rounded_up(after, alignment)
        needed += first + columns - after
        fits = first + columns <= TMEM_COLUMNS
        placed.append(TmemPart(name, operand, columns, first if fits else None))
        if fits:
            after, half = first + columns, placed[-1] if shares else half
            continue
        found, values = f"{name} needs {columns} columns after {after} taken ones", {"columns": columns, "taken": after}
        limit = f"tensor memory has {TMEM_COLUMNS} columns"
        problems.append(TMEM_BUDGET.violation(name, found, limit, _FIXES[operand], part=name, **values))
    return TmemBudget(tuple(placed), needed, tuple(problems))


def _listed(parts: Any) -> list[tuple[str, TmemLayout]]:
    if not isinstance(parts, Mapping) or not parts:
        fix = 'Use {"D": tmem_layout((128, 256))}, for example.'
        raise RuleError([argument_type("parts", parts, "layouts of tensor memory by name", fix)])
    listed: list[tuple[str, TmemLayout]] = []
    problems = []
    for name, part in parts.items():
        layout, count = (part, 1) if isinstance(part, TmemLayout) else (*(entries(part, 3) or ()), None, None)[:2]
        if not isinstance(layout, TmemLayout) or not isinstance(count, int) or not 1 <= count <= TMEM_COLUMNS:
            wanted, fix = "a layout of tensor memory, or (layout, count)", "Use tmem_layout((128, 256))."
            problems.append(argument_type(str(name), part, wanted, fix))
        else:
            listed += [(str(name) if count == 1 else f"{name} {number}", layout) for number in range(count)]
    raise_all(problems)
    return listed
