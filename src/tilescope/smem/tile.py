"""What access patterns cost on one layout of a tile, pattern by pattern."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilescope.errors import counted
from tilescope.layout import AtomOrder, Layout
from tilescope.rule import ARGUMENT_TYPE
from tilescope.smem.access import Access
from tilescope.smem.banks import LANE_ALIGNMENT, count_ideal, count_wavefronts
from tilescope.smem.op import SmemOp
from tilescope.smem.report import BankReport, bank_report, verdict
from tilescope.swizzle import Swizzle
from tilescope.value import Value, row_field


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
    """What patterns cost on a layout.

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
    """The cost of each pattern, placed on `layout`; without one, of the addresses as they are.

    >>> tile_report([Access.ldmatrix((64, 64), 16)], Layout((64, 64), 16, swizzle="128B")).conflict_free
    True
    """
    return TileReport(layout, tuple(_cost(access, layout) for access in access_list(accesses)))


def cured_report(accesses: Access | Iterable[Access], layout: Layout, cure: Layout) -> TileReport:
    """The cost on another layout, `cure`; explained are the instructions that were worst on `layout`.

    >>> sick, cure = Layout((64, 64), 16), Layout((64, 64), 16, swizzle="128B")
    >>> cured_report(Access.ldmatrix((64, 64), 16), sick, cure).costs[0].worst.wavefronts
    4
    """
    worst = [_worst(access.on(layout)) for access in access_list(accesses)]
    return TileReport(cure, tuple(map(_cost, access_list(accesses), [cure] * len(worst), worst)))


def layout_as_written(
    tile: tuple[int, int], bits: int, swizzle: Swizzle | str = "none", pad: int | None = None,
    atom: tuple[int, int] | None = None, atom_order: AtomOrder = "column", start: int = 0,
) -> Layout:  # fmt: skip
    """The layout of a tile under a swizzle; where neither padding nor atom is said, rows of one span as TMA writes them.

    >>> layout_as_written((64, 128), 16, "128B").atom
    (64, 64)
    """
    mode, row_bytes = Swizzle.named(swizzle), tile[1] * bits // 8
    span_bytes = mode.span_bytes
    if span_bytes and atom is None and pad is None:
        if row_bytes > span_bytes and row_bytes % span_bytes == 0:
            atom = (tile[0], span_bytes * 8 // bits)
        elif row_bytes < span_bytes:
            pad = span_bytes - row_bytes
    return Layout(tile, bits, atom=atom, atom_order=atom_order, padding_bytes=pad or 0, swizzle=mode, start=start)


def require_aligned_rows(accesses: list[Access], layout: Layout, pad: int) -> None:
    """Refuse a padding that no wide access can take; people who mean elements write --pad 1."""
    widest = max(accesses, key=lambda access: access.op.access_bytes).op
    width = widest.access_bytes
    row_bytes = layout.as_rows().shape[1] * layout.element_bits // 8
    if pad % width and row_bytes % width == 0:
        enough = -(-pad // width) * width
        raise LANE_ALIGNMENT.error(
            "--pad", f"--pad {pad} makes a row {row_bytes} + {pad} bytes",
            f"{widest.name} takes addresses that are multiples of {width}",
            f"Use --pad {enough}, {counted(enough * 8 // layout.element_bits, 'element')}: --pad counts bytes.",
            pad_bytes=pad, row_bytes=row_bytes, multiple_bytes=width,
        )  # fmt: skip


def access_list(accesses: Access | Iterable[Access]) -> list[Access]:
    """One pattern or several as a list; a RuleError for anything else."""
    patterns: list[Any] = [accesses]
    if not isinstance(accesses, Access):
        with suppress(Exception):  # an iterator of the caller's may raise whatever it likes
            patterns = list(accesses)
    wrong = [pattern for pattern in patterns if not isinstance(pattern, Access)]
    if wrong or not patterns:
        shown = f"a {type(wrong[0]).__name__}" if wrong else "none"
        raise ARGUMENT_TYPE.error(
            "accesses", shown, "one Access or more", "Use Access.rows((64, 64), 16), for example."
        )
    return patterns


def _cost(access: Access, layout: Layout | None, explained: int | None = None) -> AccessCost:
    """The cost of a pattern; the worst instruction is explained, or instruction number `explained`."""
    placed = isinstance(layout, Layout) and access.layout is not None and access.layout == layout
    here = access if layout is None or placed else access.on(layout)
    address, mask = here.flat()
    counts = count_wavefronts(here.op, address, mask)
    worst = None
    if len(counts):
        number = int(counts.argmax()) if explained is None else explained
        at = np.unravel_index(number, here.lane_address.shape[:-1])
        worst = bank_report(here.op, here.lane_address[at], None if here.active is None else here.active[at])
    return AccessCost(
        name=access.name,
        op=here.op,
        instructions=len(counts),
        wavefronts=int(counts.sum()),
        ideal=int(count_ideal(here.op, address, mask).sum()),
        worst=worst,
    )


def _worst(placed: Access) -> int:
    """The number of the first instruction with the most wavefronts."""
    counts = count_wavefronts(placed.op, *placed.flat())
    return int(counts.argmax()) if len(counts) else 0
