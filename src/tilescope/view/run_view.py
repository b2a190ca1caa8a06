"""The drawing of a run: its outcome, its changes, its findings, and, if requested, the most expensive lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from tilescope.errors import Violation
from tilescope.machine.launch.described_launch import OutputArray
from tilescope.machine.observers.smem_picture import SmemPicture
from tilescope.machine.report.finding_text import describe_finding
from tilescope.machine.report.line_count import line_counts
from tilescope.machine.report.outcome import outcome_sentence
from tilescope.machine.report.run import KernelRun
from tilescope.machine.stepping.run_state import RunState
from tilescope.pipeline.simulation import Simulation
from tilescope.ptx.source_name import source_name
from tilescope.sentence import by, in_percent
from tilescope.view.cost_view import SHOWN_LINES, cost_parts
from tilescope.view.drawing import Drawing, Table
from tilescope.view.pipeline_view import draw_simulation
from tilescope.view.smem_view import smem_parts
from tilescope.view.state_view import state_parts

_FINDINGS = {"error": "What is wrong", "warning": "Worth a look", "note": "Good to know"}
_ACCEPTED = "Accepted"


def draw_kernel_run(
    run: KernelRun,
    *,
    outputs: Iterable[OutputArray] = (),
    accepted: Sequence[Violation] = (),
    lines: bool = False,
    all_lines: bool = False,
    texts: Mapping[str, str] | None = None,
    timeline: Simulation | None = None,
    smem: SmemPicture | None = None,
    state: RunState | None = None,
    is_page: bool = False,
) -> Drawing:
    """The outcome, printf's text, arrays that changed, and findings; the `accepted` ones have a separate title.

    `lines` adds the lines that ran most. With `texts`, the source of lines as far as it is known, the lines have what their
    accesses cost, and what TMA and wgmma did below them. A `timeline` of the run's pipeline, a picture of shared memory, or the
    `state` after a step comes below. A page has room for all of them, and the state comes first there.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    >>> draw_kernel_run(kernel.run(grid=2, block=64)).title
    'k: grid 2, block 64'
    """
    title = f"{source_name(run.entry)}: grid {by(_trim_extents(run.grid))}, block {by(_trim_extents(run.block))}"
    if prod(run.cluster) > 1:
        title += f", cluster {by(_trim_extents(run.cluster))}"
    drawing = Drawing(
        title,
        {
            "outcome": outcome_sentence(run, accepted=accepted),
            **(state_parts(state) if state is not None and is_page else {}),
            "printed": Table(([line] for line in _code_lines(run.printed)), title="printf"),
            "outputs": _outputs(outputs),
            "findings": _findings(run, accepted),
        },
    )
    if texts is not None:
        drawing = drawing.with_parts(cost_parts(run, texts, all_lines=all_lines))
    elif is_page or lines:
        drawing = drawing.with_parts({"lines": _lines(run, all_lines=all_lines)})
    if timeline is not None:
        drawing = drawing.with_parts(dict(draw_simulation(timeline).named))
    if smem is not None:
        drawing = drawing.with_parts(smem_parts(smem))
    if state is not None and not is_page:
        drawing = drawing.with_parts(state_parts(state))
    return drawing


def _findings(run: KernelRun, accepted: Sequence[Violation]) -> tuple[Table, ...]:
    """A table for each finding, those of a severity under its title; accepted findings come last."""
    groups = {
        title: [finding for finding in run.findings if finding.severity == severity and finding not in accepted]
        for severity, title in _FINDINGS.items()
    }
    groups[_ACCEPTED] = [*accepted]
    tables: list[Table] = []
    for title, findings in groups.items():
        tables += [_finding(finding, "" if number else title) for number, finding in enumerate(findings)]
    return tuple(tables)


def _finding(finding: Violation, title: str) -> Table:
    """One finding: its rule and headline, then details and the fix on separate lines."""
    text = describe_finding(finding)
    rows = [(finding.rule, text.headline), ("", text.limit), *text.details, ("fix", text.fix)]
    return Table(rows, title=title)


def _trim_extents(extents: tuple[int, int, int]) -> tuple[int, ...]:
    """Extents without the ones at their end: (4, 1, 1) is 4."""
    x, y, z = extents
    if z > 1:
        return extents
    return (x, y) if y > 1 else (x,)


def _code_lines(printed: str) -> list[str]:
    """Lines that keep their blanks; a backtick would end what is set as code."""
    return [f"`{line}`" for line in printed.replace("`", "'").splitlines()]


def _outputs(outputs: Iterable[OutputArray]) -> Table:
    records = (
        {
            "argument": f"{output.argument} {output.name}",
            "array": f"{output.data_type} {by(output.shape)}",
            "changed": output.changed,
            "first changed": ", ".join(map(_number, output.first)),
            "least": _number(output.least),
            "most": _number(output.most),
            "NaN": output.nans,
        }
        for output in outputs
    )
    return Table.of(records, "Arrays that changed", align="llrlrrr")


def _number(value: float | str | None) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _lines(run: KernelRun, *, all_lines: bool) -> Table:
    counts = line_counts(run)
    shown = counts if all_lines else counts[:SHOWN_LINES]
    records = (
        {
            "line": count.line,
            "instructions": count.instructions,
            "warp executions": count.warps,
            "share": in_percent(count.share),
        }
        for count in shown
    )
    notes = [f"The first {len(shown)} of {len(counts)} lines."] if len(shown) < len(counts) else []
    return Table.of(records, "What ran, by source line", align="lrrr", notes=notes)


DRAWINGS = {KernelRun: draw_kernel_run}
