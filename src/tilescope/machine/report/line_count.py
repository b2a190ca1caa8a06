"""What ran, by the line of the program that it was made from: how often, which share of all, and what its accesses cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilescope.machine.report.run import InstructionCount, KernelRun
from tilescope.sentence import shortened
from tilescope.value import Value

_SHOWN_TEXT = 40  # characters of an instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCount(Value):
    """One line of a program and how often warps ran its instructions; `share` is of all that ran.

    Wavefronts of shared memory and sectors of global memory stand beside the least possible; None: it has no such access.
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
    """The lines that ran, those that ran most first; if the text names no source, its instructions.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { bar.sync 0; ret; }"
    >>> line_counts(Kernel(text).run(grid=2, block=64))[0]
    LineCount(line='PTX line 1: bar.sync 0', instructions=1, warps=4, share=0.5)
    """
    has_source = any(row.source_line is not None for row in run.instructions)
    rows_of_line: dict[str, list[InstructionCount]] = {}
    for row in run.instructions:
        line = row.source_line
        if line is None and has_source:
            line = "no source line"
        elif line is None:
            line = f"PTX line {row.ptx_line}: {shortened(row.ptx_text, _SHOWN_TEXT)}"
        rows_of_line.setdefault(line, []).append(row)
    in_all = sum(row.warps for row in run.instructions) or 1
    counts = [_line_count(line, rows, in_all) for line, rows in rows_of_line.items()]
    return tuple(sorted((count for count in counts if count.warps), key=lambda count: -count.warps))


def costly_lines(run: KernelRun) -> tuple[LineCount, ...]:
    """The same lines, those first that lose most to bank conflicts and scattered accesses."""
    return tuple(sorted(line_counts(run), key=lambda count: -count.excess))


def _line_count(line: str, rows: list[InstructionCount], in_all: int) -> LineCount:
    warps = sum(row.warps for row in rows)
    return LineCount(
        line=line,
        instructions=len(rows),
        warps=warps,
        share=warps / in_all,
        wavefronts=_summed(row.wavefronts for row in rows),
        least_wavefronts=_summed(row.least_wavefronts for row in rows),
        sectors=_summed(row.sectors for row in rows),
        least_sectors=_summed(row.least_sectors for row in rows),
    )


def _summed(counts: Iterable[int | None]) -> int | None:
    """The sum of what was counted; None where nothing was."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
