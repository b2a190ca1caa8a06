"""What a run costs, drawn: lines with their wavefronts and sectors, the worst access by bank, copies by map, operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tilescope.machine.report.line_count import LineCount, costly_lines
from tilescope.machine.report.run import InstructionCount, KernelRun
from tilescope.machine.report.run_costs import OperandRead
from tilescope.sentence import by
from tilescope.view.banks_view import bank_grid
from tilescope.view.drawing import Table
from tilescope.view.drawing_parts import Parts
from tilescope.view.grid import Grid

SHOWN_LINES = 20
_COUNTS_NOTE = (
    "A count above the minimum is shown with it. A wavefront is one pass through shared memory, a sector 32 bytes of "
    "global memory; both are summed over all warps."
)


def cost_parts(run: KernelRun, texts: Mapping[str, str], *, all_lines: bool) -> Parts:
    """The parts of a drawing; `texts` has the source of the lines whose file could be read."""
    return {
        "lines": _lines(run, texts, all_lines=all_lines),
        "worst": _worst(run),
        "traffic": _traffic(run),
        "operands": _operands(run),
    }


def _lines(run: KernelRun, texts: Mapping[str, str], *, all_lines: bool) -> Table:
    records = [
        {
            "line": count.line,
            "warps": count.warps,
            "wavefronts / least": beside_least(count.wavefronts, count.least_wavefronts),
            "sectors / least": beside_least(count.sectors, count.least_sectors),
        }
        | _source(count, texts)
        for count in costly_lines(run)
    ]
    most = None if all_lines else SHOWN_LINES
    title = "What it costs, by source line, worst first"
    return Table.of(records, title, align="lrrr", notes=(_COUNTS_NOTE,), most=most, noun="lines")


def _source(count: LineCount, texts: Mapping[str, str]) -> dict[str, str]:
    """The line itself, set as code, where any line can be read; a backtick would end it."""
    if not texts:
        return {}
    text = texts.get(count.line, "").strip().replace("`", "'")
    return {"source": f"`{text}`" if text else ""}


def beside_least(found: int | None, least: int | None) -> str:
    """A count beside the minimum; a dash if there is nothing to count.

    >>> beside_least(1024, 32), beside_least(8, 8), beside_least(None, None)
    ('1024 / 32', '8', '-')
    """
    if found is None:
        return "-"
    return f"{found}" if found == least else f"{found} / {least}"


def _worst(run: KernelRun) -> Grid | None:
    """The banks of the instruction that lost most to conflicts."""
    rows = [row for row in run.instructions if row.worst is not None]
    if not rows:
        return None
    row = max(rows, key=_excess_wavefronts)
    assert row.worst is not None
    line = row.source_line or f"PTX line {row.ptx_line}"
    where = f"warp {row.worst.warp} of block {row.worst.block}"
    return bank_grid(row.worst.report(), f"Most conflicts: {row.worst.op} of {line}, lanes of {where} by bank")


def _excess_wavefronts(row: InstructionCount) -> int:
    return (row.wavefronts or 0) - (row.least_wavefronts or 0)


def _traffic(run: KernelRun) -> Table:
    records = [
        {
            "copies": "bulk" if row.map_number is None else f"map {row.map_number}",
            "direction": row.direction,
            "boxes": row.boxes,
            "requests": row.requests,
            "bytes a request": f"{row.request_bytes:g}",
            "bytes": row.bytes,
            "swizzle": row.swizzle,
            "L2 promotion": row.l2_promotion,
        }
        for row in run.traffic
    ]
    return Table.of(records, "Copies by TMA, by tensor map", align="llrrrrll")


class _ReadAlike(NamedTuple):
    """The common part of one line's descriptors with any start."""

    line: str
    operand: str
    rows: int
    k: int
    element_bits: int
    major: str
    swizzle: str
    leading_bytes: int
    stride_bytes: int
    base_offset: int


def _read_alike(row: OperandRead) -> _ReadAlike:
    return _ReadAlike(
        row.source_line or f"PTX line {row.ptx_line}",
        row.operand,
        row.rows,
        row.k,
        row.element_bits,
        row.major,
        row.swizzle,
        row.leading_bytes,
        row.stride_bytes,
        row.base_offset,
    )


def _operands(run: KernelRun) -> Table:
    """The operands of wgmma: instructions of a line that differ only in their start are one row."""
    alike: dict[_ReadAlike, list[OperandRead]] = {}
    for row in run.operands:
        alike.setdefault(_read_alike(row), []).append(row)
    records = [
        {
            "line": read.line,
            "operand": read.operand,
            "wgmma": len(rows),
            "reads": sum(row.reads for row in rows),
            "rows x k": by((read.rows, read.k)),
            "bits": read.element_bits,
            "major": read.major,
            "swizzle": read.swizzle,
            "leading": read.leading_bytes,
            "stride": read.stride_bytes,
            "base offset": read.base_offset,
            "from": f"{min(row.first_start for row in rows):#x}",
        }
        for read, rows in alike.items()
    ]
    return Table.of(
        records, "What the descriptors of wgmma read", align="llrrlrllrrrr", most=SHOWN_LINES, noun="operands"
    )
