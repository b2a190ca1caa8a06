"""`tilescope sweep`: many problems planned, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import click

from tilescope.cli.command import INPUT_FILE, Output, asked_by, output_options, parameters, progress_bars, show
from tilescope.cli.manual import ManualCommand
from tilescope.cli.map_source import read_input
from tilescope.planner import plan
from tilescope.planner.sweeping import Sweep, combinations, read_problems
from tilescope.planner.sweeping import sweep as swept
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.plan_questions import PLAN_INPUTS
from tilescope.questions.question import Answer, Input, Reader, as_options
from tilescope.sentence import fill_template, saying_arguments

_LISTED = ("tile", "data_type", "major", "consumer", "arch", "card", "swizzle", "atom_order", "copy", "direction")
_OPTION_OF_WORD = {"tile": "--tile", "data_type": "--type"}
_HELP = """Plan many problems and print a table: every combination of the options, or those of FILE.

Every option takes one value, or several with commas. FILE is JSON (a list of objects), TOML ([[problem]]) or CSV (a
line of names first), with the arguments of `tilescope plan`; - is stdin.
"""


def several(read: Reader) -> Reader:
    """A reader of several values with commas between them: bf16,e4m3."""

    def read_several(text: str) -> tuple[object, ...]:
        return tuple(read(piece.strip()) for piece in text.split(","))

    return read_several


def _swept_input(row: Input) -> Input:
    """An input of a plan, of which a sweep takes several values."""
    return replace(row, option=row.option or _OPTION_OF_WORD[row.name], read=several(row.read))


SWEPT_INPUTS = tuple(_swept_input(row) for row in PLAN_INPUTS if row.name in _LISTED)


@saying_arguments(as_options(PLAN_INPUTS))
def sweep(
    *, file: str | None, workers: int, as_json: bool, is_quiet: bool, svg_path: Path | None, **said: object
) -> int:
    """Plan the problems and show the table."""
    output = Output(as_json, svg_path, is_quiet=is_quiet)
    output.require_one_on_stdout()
    lists = dict(asked_by(SWEPT_INPUTS, said))
    if (file is None) == (not lists):
        raise click.UsageError(
            "give a FILE of problems, or options such as --tile 64x64,128x64 --type bf16, and not both."
        )
    if file is None and not {"tile", "data_type"} <= lists.keys():
        raise click.UsageError("a problem needs --tile and --type.")
    problems = list(combinations(lists)) if file is None else read_problems(read_input(file))
    with progress_bars() as show_progress, ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        table = swept(_count_on_bar(problems, show_progress), executor=pool)
    return show(Answer(table, first=_summarize_sweep(table), is_yes=bool(table.planned)), output)


def _summarize_sweep(table: Sweep) -> FirstLine:
    """How many problems have a plan."""
    if table.planned == len(table.rows):
        return make_line("{planned} of {rows} problems have a plan.", planned=table.planned, rows=len(table.rows))
    lacking = next(row for row in table.rows if not row.has_plan)
    facts = {"planned": table.planned, "rows": len(table.rows), "asked": lacking.asked}
    verdict = fill_template("{planned} of {rows} problems have a plan; {asked} has none", facts)
    return refusal_line(verdict, lacking.violations) if lacking.violations else FirstLine(f"{verdict}.")


def _count_on_bar(
    problems: Sequence[Mapping[str, object]], show_progress: Callable[[str, int, int], None] | None
) -> Iterator[Mapping[str, object]]:
    """The problems, each shown on the bar when its turn comes."""
    for count, problem in enumerate(problems, 1):
        if show_progress is not None:
            show_progress("problems", count, len(problems))
        yield problem


COMMANDS = (
    ManualCommand(
        "sweep",
        callback=sweep,
        params=[
            *parameters(SWEPT_INPUTS, (plan,)),
            click.Argument(["file"], required=False, type=INPUT_FILE),
            click.Option(
                ["--workers"],
                type=click.IntRange(1, 64),
                default=1,
                show_default=True,
                help="Processes that plan.",
            ),
            *output_options(),
        ],
        help=_HELP,
    ),
)
