"""Does it fit, in tensor memory: whether a load finds D, an instruction its scale factors, copies the right atoms.

D in its layout        ── tcgen05.ld by a warp ──▶     the quarter, the lanes, the columns
scale factors          ── instruction, column, id ──▶  the word of this k, the byte of the word
atoms in shared memory ── tcgen05.cp ──▶               each atom in the columns where instructions look for it
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tilescope.errors import printed
from tilescope.mma.descriptor import Tcgen05Descriptor
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_format import ScaleOperand
from tilescope.mma.scale_layout import SCALE_K, ScaleLayout
from tilescope.mma.scale_packing import ATOM_BYTES
from tilescope.mma.tcgen05_kind import WIDE_K, Documented
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS, TmemAddress
from tilescope.mma.tmem_form import named_move
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import entries, integer, is_one_of, known_name
from tilescope.rule import ARGUMENT_TYPE
from tilescope.value import Value

TmemCause = Literal[
    "lane-quarter", "lane-start", "packing", "columns", "scale-id", "scale-column", "scale-type", "atom-order", "atom-missing",
    "atom-rows",
]  # fmt: skip


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


def tmem_compatible(
    held: TmemLayout | ScaleLayout, reader: Any, *, warp: Any = None, address: Any = None, operand: Any = None, k: Any = None,
) -> TmemAgreement:  # fmt: skip
    """Whether a load, an instruction or copies agree with what lies in tensor memory.

    A TmemLayout (of D) is read by tcgen05.ld, whose opcode is `reader`, by `warp`, at `address`. The scale factors of `operand`
    are read by an InstructionDescriptor for the instruction that begins at `k`, with the word at `address`; or they are brought
    by copies, (Tcgen05Descriptor, address) each.
    """
    if isinstance(held, TmemLayout):
        return _loaded(held, reader, warp, TmemAddress.of(0 if address is None else address))
    operand = known_name("operand", operand, ("A", "B"), "operand with scale factors")
    if isinstance(reader, InstructionDescriptor):
        return _scaled(held, reader, operand, k, TmemAddress.of(0 if address is None else address))
    return _copied(held, _pairs(reader), operand)


def _loaded(held: TmemLayout, opcode: Any, warp: Any, address: TmemAddress) -> TmemAgreement:
    """Whether a warp's load stays in its quarter and meets the matrix."""
    move = named_move(opcode.strip().casefold() if isinstance(opcode, str) else printed(opcode))
    number = integer("warp", warp, 0)

    def differs(cause: TmemCause, sentence: str, correction: TmemAddress | None = None) -> TmemAgreement:
        return TmemAgreement(False, held.operand, sentence, cause, correction)

    own = number % QUARTERS * QUARTER_LANES
    if address.quarter != number % QUARTERS:
        right = TmemAddress(own + address.lane % QUARTER_LANES, address.column)
        return differs("lane-quarter", (
            f"Lane quarter: warp {number} reaches lanes {own} to {own + QUARTER_LANES - 1} alone ({number} mod 4), and the address names "
            f"lane {address.lane}. Set its lane field: {right}."
        ), right)  # fmt: skip
    halves = (0, 16) if move.form.lanes == 16 else (0,)
    if address.lane % QUARTER_LANES not in halves:
        right = TmemAddress(own, address.column)
        return differs(
            "lane-start",
            f"Lane: .{move.form.name} starts at lane {own} of its quarter, not {address.lane}. Use {right}.",
            right,
        )
    wide = held.element_bits == 16 and held.operand == "D"
    if move.packed and not wide:
        return differs(
            "packing",
            f"Packing: {move.opcode} takes the low halves of cells, and elements of {held.operand} fill them.",
        )
    first, last = held.base.column, held.base.column + held.columns - 1
    reads = address.column, address.column + move.columns * move.form.places - 1
    if reads[0] < first or reads[1] > last:
        right = TmemAddress(address.lane, first)
        return differs("columns", (
            f"Columns: {move.opcode} reads columns {reads[0]} to {reads[1]}, and {held.operand} lies in {first} to {last}."
        ), right)  # fmt: skip
    lanes = [lane for lane in held.lanes if address.lane <= lane < address.lane + move.form.lanes]
    rows = sorted({place[0] for lane in lanes if (place := held.element_at(lane, address.column)) is not None})
    if not rows:
        return differs(
            "lane-start",
            f"Lanes: nothing of {held.operand} lies in lanes {address.lane} to {address.lane + move.form.lanes - 1}.",
        )
    half = f", in {len(lanes)} of {move.form.lanes} lanes" if len(lanes) < move.form.lanes else ""
    return TmemAgreement(True, held.operand, f"Warp {number} loads rows {_runs(rows)} of {held.operand}{half}.")


def _runs(rows: list[int]) -> str:
    """Row numbers as runs.

    >>> _runs([0, 1, 2, 16])
    '0 to 2, 16'
    """
    runs: list[list[int]] = []
    for row in rows:
        if runs and row == runs[-1][-1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _scaled(
    scales: ScaleLayout, word: InstructionDescriptor, operand: ScaleOperand, k: Any, address: TmemAddress
) -> TmemAgreement:
    """Whether an instruction finds the scales of its own k."""
    step_k = word.k
    steps = {step.k: step for step in scales.steps(step_k)}
    if not is_one_of(k, steps):
        limit = f"instructions of kind {word.mma_kind} begin at multiples of {step_k} below {scales.k}"
        raise SCALE_K.error("k", printed(k), limit, f"Use {next(iter(steps))}, the first k of an instruction.")
    step, name = steps[int(k)], f"SF{operand}"
    given_id = word.a_scale_id if operand == "A" else word.b_scale_id
    right = TmemAddress(0, step.column)
    if (word.mma_kind, word.scale_type) != (scales.format.mma_kind, scales.format.scale_type):
        return TmemAgreement(False, name, (
            f"Scale type: the scales are {scales.format.name} ({scales.format.scale_type}, kind {scales.format.mma_kind}), the "
            f"instruction is of kind {word.mma_kind} with {word.scale_type}."
        ), "scale-type")  # fmt: skip
    blocks = f"blocks {step.scales[0]} to {step.scales[-1]}" if len(step.scales) > 1 else f"block {step.scales[0]}"
    if address.column != step.column:
        return TmemAgreement(False, name, (
            f"Scale column: k {step.k} needs {blocks}, whose word is {step.column} columns after the first; the instruction is given "
            f"{address.column}. The word of the next 4 blocks is {scales.word_columns} columns further."
        ), "scale-column", right, step.scale_id)  # fmt: skip
    if given_id != step.scale_id:
        return TmemAgreement(False, name, (
            f"Scale id: k {step.k} needs {blocks}, which begin{'s' if len(step.scales) == 1 else ''} at byte {step.scale_id} of the word; "
            f"the descriptor says {given_id}. Use {operand.lower()}_scale_id={step.scale_id}."
        ), "scale-id", right, step.scale_id)  # fmt: skip
    said = f"The instruction at k {step.k} reads {blocks}, byte {step.scale_id} of the word at column {step.column}."
    source = (
        " That scales of k = 96 run on into the next word rests on one source: CUTLASS." if step_k == WIDE_K else ""
    )
    return TmemAgreement(True, name, said + source)


def _copied(
    scales: ScaleLayout, copies: list[tuple[Tcgen05Descriptor, TmemAddress]], operand: ScaleOperand
) -> TmemAgreement:
    """Whether copies leave each atom where instructions look for it."""
    name, (down, along) = f"SF{operand}", scales.atoms
    wanted = {copy.address.column: copy.descriptor.start_address // ATOM_BYTES for copy in scales.copies(operand)}
    base_smem = min(descriptor.start_address for descriptor, _ in copies)
    base_column = min(address.column for _, address in copies)
    brought: dict[int, int] = {}
    for descriptor, address in copies:
        if (descriptor.swizzle.bits, descriptor.stride_bytes) != (0, 128):
            return TmemAgreement(False, name, (
                f"Rows of an atom: 8 rows of 16 bytes follow each other, so the copy needs swizzle none and stride 128 bytes; its "
                f"descriptor has {descriptor.swizzle.name} and {descriptor.stride_bytes}."
            ), "atom-rows")  # fmt: skip
        atom, rest = divmod(descriptor.start_address - base_smem, ATOM_BYTES)
        if rest:
            return TmemAgreement(
                False, name, f"Rows of an atom: a copy starts {rest} bytes after one; atoms are {ATOM_BYTES} bytes.",
                "atom-rows",
            )  # fmt: skip
        brought[address.column - base_column] = atom
    for column, atom in sorted(wanted.items()):
        if brought.get(column) == atom:
            continue
        row, word = divmod(atom, along)
        which = f"rows {128 * row} to {128 * row + 127}, blocks {4 * word} to {4 * word + 3}"
        right = TmemAddress(0, base_column + column)
        if column not in brought:
            return TmemAgreement(
                False, name, f"Atom missing: no copy brings {which} to column {base_column + column}.", "atom-missing", right,
            )  # fmt: skip
        other_row, other_word = divmod(brought[column], along)
        return TmemAgreement(False, name, (
            f"Atom order: column {base_column + column} gets atom {brought[column]} (rows from {128 * other_row}, blocks from "
            f"{4 * other_word}), and instructions look there for atom {atom} ({which}). In shared memory the atoms along k follow "
            f"each other; in tensor memory the next word of k is {scales.word_columns} columns on, the next 128 rows 4."
        ), "atom-order", right)  # fmt: skip
    return TmemAgreement(True, name, f"The copies bring all {down} x {along} atoms where instructions look for them.")


def _pairs(copies: Any) -> list[tuple[Tcgen05Descriptor, TmemAddress]]:
    given = entries(copies, 1 << 16) if isinstance(copies, Iterable) else None
    found: list[tuple[Tcgen05Descriptor, TmemAddress]] = []
    for each in given or ():
        pair = entries(each, 4) or []
        if len(pair) == 3:  # a ScaleCopy has its shape first
            pair = pair[1:]
        if len(pair) != 2 or not isinstance(pair[0], Tcgen05Descriptor):
            found = []
            break
        found.append((pair[0], TmemAddress.of(pair[1])))
    if not found:
        raise ARGUMENT_TYPE.error("descriptor", printed(copies), "an InstructionDescriptor, or copies: (Tcgen05Descriptor, address) each",
            "Use scale_layout(…).copies().",
        )  # fmt: skip
    return found
