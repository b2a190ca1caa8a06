"""What accesses cost, and why: one access lane by lane and bank by bank, patterns on a layout of a tile.

>>> report = bank_report("ld.b32", [lane * 64 for lane in range(32)])
>>> report.wavefronts, report.ideal, report.excess
(16, 1, 15)
>>> first = report.groups[0].collisions[0]
>>> first.banks, first.lanes[:3], [hex(address) for address in first.addresses[:3]]
((0,), ((0,), (2,), (4,)), ['0x0', '0x80', '0x100'])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilescope.arch import WARP_LANES
from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError
from tilescope.layout import AtomOrder, Layout, Major, oriented
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE
from tilescope.smem.access import Access
from tilescope.smem.banks import LANE_ALIGNMENT, checked_lanes, count_ideal, count_wavefronts, pairs_merge
from tilescope.smem.op import BANK_BYTES, SmemOp, SmemOpName
from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.value import Value, hex_field, row_field

MISALIGNED_ROWS = LANE_ALIGNMENT.worded(
    argument="--pad",
    found="--pad {pad_bytes} makes a row {row_bytes} + {pad_bytes} bytes",
    limit="{op} takes addresses that are multiples of {multiple_bytes}",
    fix="Use --pad {enough_bytes}, {enough_elements:element}: --pad counts bytes.",
)
COUNTER_CAVEAT = (
    "Compare the wavefront counter first: the conflict counter also takes in waiting for other traffic, and counters "
    "without _op_ld or _op_st count one more for the launch. Nsight Compute's n-way is wavefronts per instruction, so a "
    "16-byte load or an ldmatrix.x4 without any conflict shows as 4-way."
)
_ALIGNED = "{} is .aligned: PTX wants all 32 lanes to execute it; here inactive lanes' rows are left out."
_COPIED = (
    "Counted as for cp.async.ca with the bytes of every group of lanes in one 128-byte line of global memory: other sources take more "
    "wavefronts. cp.async.cg goes past L1, where banks count for nothing: it is quick where every 8 lanes write one line."
)
_MERGED = "Lanes ask in pairs (i, i ^ 1 or i, i ^ 2), so neighbouring groups of this load go together in twos."


@dataclass(frozen=True, slots=True)
class BankCollision(Value):
    """Lanes of one group that wait for each other: different words in the same bank or banks.

    A 16-byte access takes four banks at once: a piece. `lanes[i]` are the lanes that access the piece at
    `addresses[i]`.
    """

    banks: tuple[int, ...]
    addresses: tuple[int, ...] = hex_field()  # first byte of each piece of len(banks) words
    lanes: tuple[tuple[int, ...], ...] = ()  # of every piece; lanes of one piece are served together

    @property
    def degree(self) -> int:
        """Wavefronts that these banks need."""
        return len(self.addresses)

    @property
    def words(self) -> tuple[tuple[int, ...], ...]:
        """The 4-byte words of each piece, as address / 4.

        >>> bank_report("ld.b64", [lane * 128 for lane in range(32)]).groups[0].collisions[0].words[1]
        (32, 33)
        """
        span = range(len(self.banks))
        return tuple(tuple(address // BANK_BYTES + word for word in span) for address in self.addresses)


@dataclass(frozen=True, slots=True)
class BankGroup(Value):
    """Lanes that share a wavefront if they do not conflict."""

    lanes: tuple[int, ...]  # the active ones
    wavefronts: int
    busiest_bank: int | None  # the lowest of those that need `wavefronts`; None without active lanes
    collisions: tuple[BankCollision, ...]  # the worst first


@dataclass(frozen=True, slots=True)
class BankReport(Value):
    """The cost of one warp-wide shared-memory access, and its reason.

    >>> report = bank_report("ldmatrix.x4", [lane % 16 * 128 + lane // 16 * 16 for lane in range(32)])
    >>> report.wavefronts, report.ideal, report.verdict
    (32, 4, '8-way conflict')
    """

    op: SmemOp = row_field(SmemOp.named)
    lane_address: tuple[int | None, ...] = hex_field()  # of 32 lanes; None: inactive, or not used by an ldmatrix
    groups: tuple[BankGroup, ...] = ()  # after merging
    wavefronts: int = 0
    ideal: int = 0  # groups with an active lane: one wavefront each
    counters: Mapping[str, int] = field(default_factory=dict, hash=False)  # Nsight Compute, for each execution
    notes: tuple[str, ...] = ()

    @property
    def excess(self) -> int:
        """Wavefronts that conflicts add."""
        return self.wavefronts - self.ideal

    @property
    def conflict_free(self) -> bool:
        """Whether no lane waits for another of its group."""
        return self.excess == 0

    @property
    def degree(self) -> int:
        """Wavefronts of the worst group: an n-way conflict."""
        return max((group.wavefronts for group in self.groups), default=0)

    @property
    def busiest_bank(self) -> int | None:
        """The lowest bank that needs `degree` wavefronts in one group; None without active lanes."""
        return next((group.busiest_bank for group in self.groups if group.wavefronts == self.degree), None)

    @property
    def verdict(self) -> str:
        """In two words: "no conflict", or the worst group's "n-way conflict"."""
        return verdict(self.excess, self.degree)


def verdict(excess: int, degree: int) -> str:
    """The cost in two words.

    >>> verdict(0, 1), verdict(28, 8)
    ('no conflict', '8-way conflict')
    """
    return f"{degree}-way conflict" if excess else "no conflict"


def bank_report(op: SmemOpName | SmemOp, lane_address: Any, active: Any = None) -> BankReport:
    """Cost of one warp access such as "ld.b128" or "ldmatrix.x4"; lane i starts at byte `lane_address[i]`.

    >>> bank_report("ld.b128", [lane * 16 for lane in range(32)]).verdict
    'no conflict'
    >>> report = bank_report("ld.b32", [lane * 132 for lane in range(32)], active=0x0000FFFF)
    >>> report.wavefronts, len(report.groups[0].lanes)
    (1, 16)
    """
    row = SmemOp.named(op)
    address, mask = checked_lanes(row, lane_address, active)
    if address.ndim != 1:
        raise ARGUMENT_RANGE.error(
            argument="lane_address",
            found=f"an array of shape {(*address.shape[:-1], WARP_LANES)}",
            limit="a report is about the 32 addresses of one access",
            fix="Use wavefronts() to count many at once.",
        )
    places: list[int] = address.tolist()
    used = [True] * row.lanes if mask is None else mask.tolist()
    merged = bool(pairs_merge(row, address[None], None if mask is None else mask[None])[0])
    per_group = 2 * row.lanes_per_group if merged else row.lanes_per_group
    groups = tuple(
        _group(row, [lane for lane in range(first, first + per_group) if used[lane]], places)
        for first in range(0, row.lanes, per_group)
    )
    wavefronts = sum(group.wavefronts for group in groups)
    ideal = sum(1 for group in groups if group.lanes)
    shown = [place if taken else None for place, taken in zip(places, used, strict=True)]
    return BankReport(
        op=row,
        lane_address=(*shown, *[None] * (WARP_LANES - row.lanes)),
        groups=groups,
        wavefronts=wavefronts,
        ideal=ideal,
        counters={
            row.wavefront_counter: wavefronts,
            row.conflict_counter: wavefronts - ideal,
        },
        notes=_notes(row, merged=merged, masked=mask is not None),
    )


def _notes(row: SmemOp, *, merged: bool, masked: bool) -> tuple[str, ...]:
    """What a reader of the counts must know of the operation and its lanes."""
    notes = []
    if merged:
        notes.append(_MERGED)
    if row.is_matrix and masked:
        notes.append(_ALIGNED.format(row.name))
    if row.is_copy:
        notes.append(_COPIED)
    notes.append(COUNTER_CAVEAT)
    return tuple(notes)


def _group(row: SmemOp, lanes: list[int], places: list[int]) -> BankGroup:
    """What the lanes of one group cost: different pieces in one bank wait for each other."""
    cell_bytes = row.cell_bytes
    # first bank → piece, and exclusive users → lanes
    pieces_by_bank: dict[int, dict[tuple[int, int], list[int]]] = {}
    for lane in lanes:
        piece = places[lane] // cell_bytes * cell_bytes
        turn = (piece, 0 if row.words_merge else lane)
        pieces_by_bank.setdefault(piece % SMEM_LINE_BYTES // BANK_BYTES, {}).setdefault(turn, []).append(lane)
    degree = max(map(len, pieces_by_bank.values()), default=0)
    collisions = [
        BankCollision(
            banks=tuple(range(bank, bank + cell_bytes // BANK_BYTES)),
            addresses=tuple(piece for piece, _ in pieces),
            lanes=tuple(map(tuple, pieces.values())),
        )
        for bank, pieces in sorted(pieces_by_bank.items())
        if len(pieces) > 1
    ]
    return BankGroup(
        lanes=tuple(lanes),
        wavefronts=degree,
        busiest_bank=min((bank for bank, pieces in pieces_by_bank.items() if len(pieces) == degree), default=None),
        collisions=tuple(sorted(collisions, key=lambda collision: -collision.degree)),
    )


@dataclass(frozen=True, slots=True)
class AccessCost(Value):
    """The cost of one pattern: all its instructions together, and the worst of them explained."""

    name: str
    op: SmemOp = row_field(SmemOp.named)
    instructions: int = 0
    wavefronts: int = 0
    ideal: int = 0
    worst: BankReport | None = None  # of the first instruction with the most wavefronts; None: no instruction

    @property
    def excess(self) -> int:
        """Wavefronts that conflicts add."""
        return self.wavefronts - self.ideal

    @property
    def verdict(self) -> str:
        """In two words: "no conflict", or the worst group's "n-way conflict"."""
        return verdict(self.excess, self.worst.degree if self.worst else 0)


@dataclass(frozen=True, slots=True)
class TileReport(Value):
    """The costs of access patterns on a layout.

    >>> tile = (64, 64)
    >>> report = tile_report([Access.rows(tile, 16, "st.b128"), Access.ldmatrix(tile, 16)], Layout(tile, 16))
    >>> [(cost.name, cost.wavefronts, cost.ideal, cost.verdict) for cost in report.costs]
    [('st.b128 rows', 64, 64, 'no conflict'), ('ldmatrix.x4', 512, 64, '8-way conflict')]
    """

    layout: Layout | None  # None: the patterns hold shared addresses
    costs: tuple[AccessCost, ...]

    @property
    def wavefronts(self) -> int:
        """Of all patterns together."""
        return sum(cost.wavefronts for cost in self.costs)

    @property
    def ideal(self) -> int:
        """Wavefronts of all patterns without any conflict."""
        return sum(cost.ideal for cost in self.costs)

    @property
    def excess(self) -> int:
        """Wavefronts that conflicts add."""
        return self.wavefronts - self.ideal

    @property
    def conflict_free(self) -> bool:
        """Whether no pattern has a conflict."""
        return self.excess == 0


def tile_report(accesses: Access | Iterable[Access], layout: Layout | None = None) -> TileReport:
    """The cost of each pattern on `layout`; without a layout, of its addresses unchanged.

    >>> tile_report([Access.ldmatrix((64, 64), 16)], Layout((64, 64), 16, swizzle="128B")).conflict_free
    True
    """
    return TileReport(layout, tuple(_cost(access, layout) for access in access_list(accesses)))


def cured_report(accesses: Access | Iterable[Access], layout: Layout, cure: Layout) -> TileReport:
    """The cost on another layout, `cure`; its reports explain the instructions that were worst on `layout`.

    >>> sick, cure = Layout((64, 64), 16), Layout((64, 64), 16, swizzle="128B")
    >>> cured_report(Access.ldmatrix((64, 64), 16), sick, cure).costs[0].worst.wavefronts
    4
    """
    return TileReport(cure, tuple(_cost(access, cure, access.on(layout)) for access in access_list(accesses)))


def layout_as_written(
    tile: tuple[int, int],
    bits: int,
    swizzle: Swizzle | str = "none",
    *,
    pad: int | None = None,
    atom: tuple[int, int] | None = None,
    atom_order: AtomOrder = "column",
    major: Major = "K",
    start: int = 0,
) -> Layout:
    """The layout of a tile under a swizzle; without padding and atom, its rows are one span wide, as TMA writes them.

    >>> layout_as_written((64, 128), 16, "128B").atom
    (64, 64)
    >>> layout_as_written((128, 64), 16, "128B", major="MN").atom  # 64 rows of 128 contiguous mn
    (64, 64)
    """
    mode = Swizzle.named(swizzle)
    rows, columns = oriented(major, *tile)
    row_bytes = columns * bits // 8
    span_bytes = mode.span_bytes
    if span_bytes and atom is None and pad is None:
        if row_bytes > span_bytes and row_bytes % span_bytes == 0:
            atom = oriented(major, rows, span_bytes * 8 // bits)
        elif row_bytes < span_bytes:
            pad = span_bytes - row_bytes
    return Layout(
        tile,
        bits,
        atom=atom,
        atom_order=atom_order,
        padding_bytes=pad or 0,
        major=major,
        swizzle=mode,
        start=start,
    )


def padded_report(accesses: list[Access], layout: Layout, pad: int) -> TileReport:
    """The cost of each pattern on a tile whose rows are padded by `pad` bytes; a padding that misaligns them is named."""
    patterns = access_list(accesses)
    try:
        return tile_report(patterns, layout)
    except RuleError:
        _require_aligned_rows(patterns, layout, pad)
        raise


def _require_aligned_rows(accesses: list[Access], layout: Layout, pad: int) -> None:
    """Refuse a padding that no wide access can take; people who mean elements write --pad 1."""
    widest = max(accesses, key=lambda access: access.op.access_bytes).op
    width = widest.access_bytes
    row_bytes = layout.as_rows().shape[1] * layout.element_bits // 8
    if pad % width and row_bytes % width == 0:
        enough_bytes = rounded_up(pad, width)
        raise MISALIGNED_ROWS.error(
            pad_bytes=pad,
            row_bytes=row_bytes,
            op=widest.name,
            multiple_bytes=width,
            enough_bytes=enough_bytes,
            enough_elements=enough_bytes * 8 // layout.element_bits,
        )


def access_list(accesses: Access | Iterable[Access]) -> list[Access]:
    """One pattern or several as a list; a RuleError for anything else."""
    if isinstance(accesses, Access):
        return [accesses]
    patterns = _entries(accesses)
    wrong = [pattern for pattern in patterns if not isinstance(pattern, Access)]
    if wrong or not patterns:
        raise ARGUMENT_TYPE.error(
            argument="accesses",
            found=f"a {type(wrong[0]).__name__}" if wrong else "none",
            limit="one Access or more",
            fix="Use Access.rows((64, 64), 16), for example.",
        )
    return patterns


def _entries(values: Iterable[Access]) -> list[Access]:
    """What a sequence lists, or a value that is none as the only entry of a list."""
    try:
        return list(values)
    except (TypeError, NotImplementedError):  # memoryviews of several dimensions claim to be iterable
        alone: Any = values
        return [alone]


def _cost(access: Access, layout: Layout | None, explain_as: Access | None = None) -> AccessCost:
    """The cost of a pattern. `worst` reports its worst instruction, or the one that is worst in `explain_as`."""
    placed = isinstance(layout, Layout) and access.layout is not None and access.layout == layout
    here = access if layout is None or placed else access.on(layout)
    address, mask = here.flat()
    counts = count_wavefronts(here.op, address, mask)
    worst = None
    if len(counts):
        ranked = counts if explain_as is None else count_wavefronts(explain_as.op, *explain_as.flat())
        chosen = np.unravel_index(int(ranked.argmax()), here.lane_address.shape[:-1])
        worst = bank_report(here.op, here.lane_address[chosen], None if here.active is None else here.active[chosen])
    return AccessCost(
        name=access.name,
        op=here.op,
        instructions=len(counts),
        wavefronts=int(counts.sum()),
        ideal=int(count_ideal(here.op, address, mask).sum()),
        worst=worst,
    )
