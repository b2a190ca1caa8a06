"""Executed instructions by source line: how often they ran, their share of all, and the cost of their accesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilescope.machine.report.run import InstructionCount, KernelRun
from tilescope.sentence import shorten
from tilescope.value import Value

_SHOWN_TEXT = 40  # characters of an instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCount(Value):
    """One source line and how often warps ran its instructions; `share` is the fraction of all warp instructions.

    Wavefronts of shared memory and sectors of global memory have the minimum beside them; None: no such access.
    """

    line: str
    instructions: int
    warps: int
    share: float
    wavefronts: int | None = None
    least_wavefronts: int | None = None
    sectors: int | None = None
    least_sectors: int | None = None

    @property
    def excess(self) -> int:
        """Wavefronts and sectors beyond the least."""
        excess_wavefronts = (self.wavefronts or 0) - (self.least_wavefronts or 0)
        return excess_wavefronts + (self.sectors or 0) - (self.least_sectors or 0)


def line_counts(run: KernelRun) -> tuple[LineCount, ...]:
    """The lines that ran, the most executed first; the instructions themselves if the text has no source lines.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { bar.sync 0; ret; }"
    >>> line_counts(Kernel(text).run(grid=2, block=64))[0]
    LineCount(line='PTX line 1: bar.sync 0', instructions=1, warps=4, share=0.5)
    """
    if run._line_counts is None:  # of a long text they take a second
        object.__setattr__(run, "_line_counts", _count_lines(run))
    assert run._line_counts is not None
    return run._line_counts


def _count_lines(run: KernelRun) -> tuple[LineCount, ...]:
    has_source = any(row.source_line is not None for row in run.instructions)
    rows_of_line: dict[str, list[InstructionCount]] = {}
    for row in run.instructions:
        line = row.source_line
        if line is None and has_source:
            line = "no source line"
        elif line is None:
            line = f"PTX line {row.ptx_line}: {shorten(row.ptx_text, _SHOWN_TEXT)}"
        rows_of_line.setdefault(line, []).append(row)
    total = sum(row.warps for row in run.instructions) or 1
    counts = [_line_count(line, rows, total) for line, rows in rows_of_line.items()]
    return tuple(sorted((count for count in counts if count.warps), key=lambda count: -count.warps))


def costly_lines(run: KernelRun) -> tuple[LineCount, ...]:
    """The same lines, the highest excess of wavefronts and sectors first."""
    return tuple(sorted(line_counts(run), key=lambda count: -count.excess))


def _line_count(line: str, rows: list[InstructionCount], total: int) -> LineCount:
    warps = sum(row.warps for row in rows)
    return LineCount(
        line=line,
        instructions=len(rows),
        warps=warps,
        share=warps / total,
        wavefronts=_sum_known(row.wavefronts for row in rows),
        least_wavefronts=_sum_known(row.least_wavefronts for row in rows),
        sectors=_sum_known(row.sectors for row in rows),
        least_sectors=_sum_known(row.least_sectors for row in rows),
    )


def _sum_known(counts: Iterable[int | None]) -> int | None:
    """The sum of the counts that are known; None if none is."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
