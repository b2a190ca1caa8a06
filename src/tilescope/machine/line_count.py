"""What ran, by the line of the program that it was made from: how many instructions, how often, which share of all."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.machine.run import KernelRun
from tilescope.sentence import shortened
from tilescope.value import Value

_SHOWN_TEXT = 40  # characters of an instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCount(Value):
    """One line of a program and how often warps ran its instructions; `share` is of all that ran."""

    line: str
    instructions: int
    warps: int
    share: float


def line_counts(run: KernelRun) -> tuple[LineCount, ...]:
    """The lines of which anything ran, those that ran most first; instructions where the text names no source.

    >>> from tilescope.machine.kernel import Kernel
    >>> text = ".version 8.0 .target sm_90 .address_size 64 .entry k() { bar.sync 0; ret; }"
    >>> line_counts(Kernel(text).run(grid=2, block=64))[0]
    LineCount(line='PTX line 1: bar.sync 0', instructions=1, warps=4, share=0.5)
    """
    has_source = any(row.source_line is not None for row in run.instructions)
    instructions: dict[str, int] = {}
    warps: dict[str, int] = {}
    for row in run.instructions:
        unsaid = "no source line" if has_source else f"PTX line {row.ptx_line}: {shortened(row.ptx_text, _SHOWN_TEXT)}"
        line = unsaid if row.source_line is None else row.source_line
        instructions[line] = instructions.get(line, 0) + 1
        warps[line] = warps.get(line, 0) + row.warps
    in_all = sum(warps.values()) or 1
    counts = [
        LineCount(line=line, instructions=instructions[line], warps=count, share=count / in_all)
        for line, count in warps.items()
        if count
    ]
    return tuple(sorted(counts, key=lambda count: -count.warps))
