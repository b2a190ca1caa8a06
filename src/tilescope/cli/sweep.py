"""`tilescope sweep`: many problems planned, as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import Any

import click

from tilescope.cli.map_source import read_input
from tilescope.cli.options import given, output_options, shapes, words
from tilescope.cli.output import Output
from tilescope.cli.progress import progress_bars
from tilescope.planner.problem_file import combinations, read_problems
from tilescope.planner.sweeping import sweep as swept

_LIST = "one, or several with commas"


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--tile", type=shapes, metavar="MNxK,…", help=f"Tiles: {_LIST}.")
@click.option("--type", "data_type", type=words, metavar="TYPE,…", help=f"Element types: {_LIST}.")
@click.option("--major", type=words, metavar="K,MN", help="[default: K]")
@click.option("--consumer", type=words, metavar="NAME,…", help="wgmma, tcgen05, ldmatrix. [default: the best there is]")
@click.option("--arch", type=words, metavar="ARCH,…", help="[default: sm_90]")
@click.option("--card", type=words, metavar="NAME,…", help="Cards whose rates weigh the plans.")
@click.option("--swizzle", type=words, metavar="MODE,…", help="Only these swizzles.")
@click.option("--atom-order", type=words, metavar="ORDER,…", help="Only these orders: column, row.")
@click.option("--copy", type=words, metavar="NAME,…", help="tma, cp.async, ld.global.")
@click.option("--direction", type=words, metavar="NAME,…", help="load, store. [default: load]")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that plan.")
@output_options
def sweep(file: str | None, workers: int, output: Output, **lists: Any) -> int:
    """Plan many problems and print a table: every combination of the options, or those of FILE.

    FILE is JSON (a list of objects), TOML ([[problem]]) or CSV (a line of names first), with the arguments of `tilescope plan`;
    - is stdin.

    \b
    tilescope sweep --tile 64x64,128x64,128x128 --type bf16,e4m3 --major K,MN
    tilescope sweep problems.csv --json

    Exit status 1: no problem has a plan.
    """  # noqa: D301  \b keeps the lines below it apart
    asked = given(lists)
    if (file is None) == (not asked):
        raise click.UsageError(
            "give a FILE of problems, or options such as --tile 64x64,128x64 --type bf16, and not both."
        )
    if file is None and not {"tile", "data_type"} <= set(asked):
        raise click.UsageError("a problem needs --tile and --type.")
    problems = list(combinations(asked)) if file is None else read_problems(read_input(file))
    with progress_bars() as show, ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        found = swept(_shown(problems, show), executor=pool)
    output.show(found)
    return 0 if found.planned else 1


def _shown(problems: list[dict[str, Any]], show: Any) -> Iterator[dict[str, Any]] | Iterable[dict[str, Any]]:
    """The problems, each counted on the bar when its turn comes."""
    for number, problem in enumerate(problems):
        if show is not None:
            show("problems", number + 1, len(problems))
        yield problem
