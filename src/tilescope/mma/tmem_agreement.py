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
from itertools import groupby
from typing import Any, Literal

from tilescope.errors import RuleError, Violation, argument_type, ceil_div, printed, raise_all
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_format import ScaleOperand
from tilescope.mma.scale_layout import SCALE_K, ScaleLayout
from tilescope.mma.scale_packing import ATOM_BYTES
from tilescope.mma.tcgen05_kind import WIDE_K, Documented, blackwell_rule
from tilescope.mma.tmem_address import ALLOC_COLUMNS, QUARTER_LANES, QUARTERS, TMEM_COLUMNS, TmemAddress
from tilescope.mma.tmem_form import named_move
from tilescope.mma.tmem_layout import DATAPATHS, TmemLayout
from tilescope.reading import entries, integer, is_one_of, known_name, plain_int
from tilescope.rule import ARGUMENT_TYPE
from tilescope.value import Value

TmemCause = Literal[
    "lane-quarter", "lane-start", "packing", "columns", "scale-id", "scale-column", "scale-type", "atom-order", "atom-missing",
    "atom-rows",
]  # fmt: skip


# fmt: off
_SENTENCES: dict[TmemCause, str] = {
    "lane-quarter": "Lane quarter: warp {warp} reaches lanes {own} to {end} alone ({warp} mod 4), and the address names lane {lane}. "
                    "Set its lane field: {right}.",
    "lane-start":   "Lane: .{form} starts at lane {own} of its quarter, not {lane}. Use {right}.",
    "packing":      "Packing: {opcode} takes the low halves of cells, and elements of {operand} fill them.",
    "columns":      "Columns: {opcode} reads columns {reads[0]} to {reads[1]}, and {operand} lies in {first} to {last}.",
    "scale-type":   "Scale type: the scales are {format} ({type}, kind {kind}), the instruction is of kind {mma_kind} with {scale}.",
    "scale-column": "Scale column: k {k} needs {blocks}, whose word lies at column {column}; the instruction's address "
                    "names column {address}. The word of the next 4 blocks is {word_columns} columns further.",
    "scale-id":     "Scale id: k {k} needs {blocks}, which begin{s} at byte {id} of the word; the descriptor says {told}. "
                    "Use {letter}_scale_id={id}.",
    "atom-rows":    "Rows of an atom: 8 rows of 16 bytes follow each other, so the copy needs swizzle none and stride 128 bytes; its "
                    "descriptor has {swizzle} and {stride}.",
    "atom-missing": "Atom missing: no copy brings {which} to column {column}.",
    "atom-order":   "Atom order: column {column} gets atom {other} (rows from {row}, blocks from {block}), and instructions look there for "
                    "atom {atom} ({which}). In shared memory the atoms along k follow each other; in tensor memory the next word of k "
                    "is {word_columns} columns on, the next 128 rows 4.",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class TmemAgreement(Documented, Value):
    """The answer of `compatible` about tensor memory: true where all agrees, else the cause and what would be right.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> wrong = tmem_compatible(tmem_layout((128, 64)), "tcgen05.ld.32x32b.x64", warp=1, address=0)
    >>> bool(wrong), wrong.cause, wrong.correction
    (False, 'lane-quarter', TmemAddress(lane=32))
    """

    agrees: bool
    subject: str  # what was looked for
    sentence: str
    cause: TmemCause | None = None
    correction: TmemAddress | None = None  # the address that would be right
    scale_id: int | None = None  # the id that would be right

    def __bool__(self) -> bool:
        return self.agrees

    def __str__(self) -> str:
        return self.sentence


def _differs(
    subject: str, cause: TmemCause, right: TmemAddress | None = None, scale_id: int | None = None, **facts: Any
) -> TmemAgreement:
    sentence = _SENTENCES[cause].format(right=right, id=scale_id, **facts)
    return TmemAgreement(False, subject, sentence, cause, right, scale_id)


def tmem_compatible(
    held: TmemLayout | ScaleLayout, reader: Any, *, warp: Any = None, address: Any = None, operand: Any = None, k: Any = None,
) -> TmemAgreement:  # fmt: skip
    """Whether a load, an instruction or copies agree with what lies in tensor memory.

    A TmemLayout (of D) is read by tcgen05.ld, whose opcode is `reader`, by `warp`, at `address`. The scale factors of `operand`
    are read by an InstructionDescriptor for the instruction that begins at `k`, with the word at `address`; or they are brought
    by copies, (Tcgen05Descriptor, address) each.
    """
    place = TmemAddress.of(0 if address is None else address)
    if isinstance(held, TmemLayout):
        return _loaded(held, reader, warp, place)
    operand = known_name("operand", operand, ("A", "B"), "operand with scale factors")
    if isinstance(reader, InstructionDescriptor):
        return _scaled(held, reader, operand, k, place)
    return _copied(held, _pairs(reader), operand)


def _loaded(held: TmemLayout, opcode: Any, warp: Any, address: TmemAddress) -> TmemAgreement:
    """Whether a warp's load stays in its quarter and meets the matrix."""
    move = named_move(opcode.strip().casefold() if isinstance(opcode, str) else printed(opcode))
    number, name = integer("warp", warp, 0), held.operand
    own, lane = number % QUARTERS * QUARTER_LANES, address.lane
    if address.quarter != number % QUARTERS:
        right = TmemAddress(own + lane % QUARTER_LANES, address.column)
        return _differs(name, "lane-quarter", right, warp=number, own=own, end=own + QUARTER_LANES - 1, lane=lane)
    if lane % move.form.lanes:
        right = TmemAddress(own, address.column)
        return _differs(name, "lane-start", right, form=move.form.name, own=own, lane=lane)
    if move.packed and (held.element_bits, name) != (16, "D"):
        return _differs(name, "packing", opcode=move.opcode, operand=name)
    first, last = held.base.column, held.base.column + held.columns - 1
    reads = address.column, address.column + move.columns * move.form.places - 1
    if reads[0] < first or reads[1] > last:
        right = TmemAddress(lane, first)
        return _differs(name, "columns", right, opcode=move.opcode, operand=name, reads=reads, first=first, last=last)
    lanes = [used for used in held.lanes if lane <= used < lane + move.form.lanes]
    rows = sorted({place[0] for used in lanes if (place := held.element_at(used, address.column)) is not None})
    if not rows:
        sentence = f"Lanes: nothing of {name} lies in lanes {lane} to {lane + move.form.lanes - 1}."
        return TmemAgreement(False, name, sentence, "lane-start")
    half = f", in {len(lanes)} of {move.form.lanes} lanes" if len(lanes) < move.form.lanes else ""
    return TmemAgreement(True, name, f"Warp {number} loads rows {_runs(rows)} of {name}{half}.")


def _runs(rows: list[int]) -> str:
    """Row numbers as runs.

    >>> _runs([0, 1, 2, 16])
    '0 to 2, 16'
    """
    runs = [[row for _, row in run] for _, run in groupby(enumerate(rows), lambda item: item[1] - item[0])]
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _scaled(
    scales: ScaleLayout, word: InstructionDescriptor, operand: ScaleOperand, k: Any, address: TmemAddress
) -> TmemAgreement:
    """Whether an instruction finds the scales of its own k."""
    steps, form = {step.k: step for step in scales.steps(word.k)}, scales.format
    if not is_one_of(k, steps):
        limit = f"instructions of kind {word.mma_kind} begin at multiples of {word.k} below {scales.k}"
        fix = f"Use {next(iter(steps))}, the first k of an instruction."
        raise SCALE_K.error("k", printed(k), limit, fix, k=plain_int(k))
    step, name = steps[int(k)], f"SF{operand}"
    told = word.a_scale_id if operand == "A" else word.b_scale_id
    if (word.mma_kind, word.scale_type) != (form.mma_kind, form.scale_type):
        kinds: dict[str, Any] = {"format": form.name, "type": form.scale_type, "kind": form.mma_kind}
        return _differs(name, "scale-type", **kinds, mma_kind=word.mma_kind, scale=word.scale_type)
    one = len(step.scales) == 1
    blocks = f"block {step.scales[0]}" if one else f"blocks {step.scales[0]} to {step.scales[-1]}"
    right = TmemAddress(0, step.column), step.scale_id
    facts: dict[str, Any] = {"k": step.k, "blocks": blocks}
    if address.column != step.column:
        facts |= {"column": step.column, "address": address.column, "word_columns": scales.word_columns}
        return _differs(name, "scale-column", *right, **facts)
    if told != step.scale_id:
        return _differs(name, "scale-id", *right, **facts, s="s" * one, told=told, letter=operand.lower())
    sentence = (
        f"The instruction at k {step.k} reads {blocks}, byte {step.scale_id} of the word at column {step.column}."
    )
    if word.k == WIDE_K:
        sentence += " That scales of k = 96 run on into the next word rests on one source: CUTLASS."
    return TmemAgreement(True, name, sentence)


def _copied(
    scales: ScaleLayout, copies: list[tuple[Tcgen05Descriptor, TmemAddress]], operand: ScaleOperand
) -> TmemAgreement:
    """Whether copies leave the atoms where instructions look for them."""
    name, (down, along) = f"SF{operand}", scales.atoms
    wanted = {copy.address.column: copy.descriptor.start_address // ATOM_BYTES for copy in scales.copies(operand)}
    base_smem = min(descriptor.start_address for descriptor, _ in copies)
    base_column = min(address.column for _, address in copies)
    brought: dict[int, int] = {}
    for descriptor, address in copies:
        swizzle, stride = descriptor.swizzle, descriptor.stride_bytes
        if (swizzle.bits, stride) != (0, 128):
            return _differs(name, "atom-rows", swizzle=swizzle.name, stride=stride)
        atom, rest = divmod(descriptor.start_address - base_smem, ATOM_BYTES)
        if rest:
            sentence = f"Rows of an atom: a copy starts {rest} bytes after one; atoms are {ATOM_BYTES} bytes."
            return TmemAgreement(False, name, sentence, "atom-rows")
        brought[address.column - base_column] = atom
    for place, atom in sorted(wanted.items()):
        other = brought.get(place)
        if other != atom:
            (row, word), column = divmod(atom, along), base_column + place
            which = f"rows {128 * row} to {128 * row + 127}, blocks {4 * word} to {4 * word + 3}"
            right = TmemAddress(0, column)
            facts: dict[str, Any] = {"which": which, "column": column}
            if other is None:
                return _differs(name, "atom-missing", right, **facts)
            facts |= {"atom": atom, "other": other, "row": 128 * (other // along), "block": 4 * (other % along)}
            return _differs(name, "atom-order", right, word_columns=scales.word_columns, **facts)
    return TmemAgreement(True, name, f"The copies bring all {down} x {along} atoms where instructions look for them.")


def _pairs(copies: Any) -> list[tuple[Tcgen05Descriptor, TmemAddress]]:
    """Copies as (descriptor, address); a ScaleCopy has its shape before them."""
    listed = [(entries(copy, 4) or [])[-2:] for copy in entries(copies, 1 << 16) or ()]
    if not listed or not all(len(pair) == 2 and isinstance(pair[0], Tcgen05Descriptor) for pair in listed):
        limit = "an InstructionDescriptor, or copies: (Tcgen05Descriptor, address) each"
        raise ARGUMENT_TYPE.error("descriptor", printed(copies), limit, "Use scale_layout(…).copies().")
    return [(descriptor, TmemAddress.of(address)) for descriptor, address in listed]


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
        first = ceil_div(after, alignment) * alignment
        needed += first + columns - after
        fits = first + columns <= TMEM_COLUMNS
        placed.append(TmemPart(name, operand, columns, first if fits else None))
        if fits:
            after, half = first + columns, placed[-1] if shares else half
            continue
        found, limit = (
            f"{name} needs {columns} columns after {after} taken ones",
            f"tensor memory has {TMEM_COLUMNS} columns",
        )
        values = {"part": name, "columns": columns, "taken": after}
        problems.append(TMEM_BUDGET.violation(name, found, limit, _FIXES[operand], **values))
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
