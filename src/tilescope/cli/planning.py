"""`tilescope plan`, `gemm`, `sweep`, `pipeline`: what to do with a tile, with a product, with many; and why it hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from tilescope.cli.command import (
    INPUT_FILE,
    STDOUT,
    Output,
    command,
    listed,
    output_file,
    progress_bars,
    reading,
    refuse,
    write_to,
)
from tilescope.cli.map_source import STDIN, read_input
from tilescope.errors import PlanError
from tilescope.inputs import Input, chosen, flag
from tilescope.inputs.beside import plan_facts
from tilescope.inputs.plans import GEMM, PIPELINE, PLAN, PROBLEM
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.simulation import MAX_STATES, simulate
from tilescope.pipeline.template import template_names, template_text
from tilescope.pipeline.toml_text import toml_text
from tilescope.planner import GemmPlan, PlanReport, Unplanned, plan_gemm
from tilescope.planner import plan as find_plans
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.sweeping import combinations, read_problems
from tilescope.planner.sweeping import sweep as swept
from tilescope.sentence import by
from tilescope.written import extents, number

_WHY = Input("why", "--why", "Name every other candidate, and the reasons of those refused", read=flag)
_EMIT = Input(
    "emit", "--emit", "Print source code instead", "cuda, ptx, cute, triton (or gluon, its language) or python."
)
_SOURCE_FILE = click.option("-o", "path", type=output_file, metavar="FILE", help="With --emit: write it to FILE.")
_MAX_STATES = Input("max_states", "--max-states", "States to search at most", read=number, default=str(MAX_STATES))
_LISTED = ("tile", "data_type", "major", "consumer", "arch", "card", "swizzle", "atom_order", "copy", "direction")
_SWEPT = tuple(
    replace(row, option=row.option or {"tile": "--tile", "data_type": "--type"}[row.name], read=listed(row.read))
    for row in PLAN
    if row.name in _LISTED
)


@command(*PLAN, _WHY, _EMIT)
@_SOURCE_FILE
def plan(tile: Any, data_type: str, output: Output, **said: Any) -> int:
    """Plan the path of a tile of MN x K elements of TYPE, such as: tilescope plan 128x64 bf16.

    Every swizzle, atom order and box split is tried, checked by the real rules, proven in the emulator and ranked.
    """
    return _show_plan(f"{by(tile)} {data_type}", output, partial(find_plans, tile, data_type), **said)


@command(*GEMM, _WHY, _EMIT)
@_SOURCE_FILE
def gemm(shape: Any, data_type: str, output: Output, **said: Any) -> int:
    """Plan the operands, stages and epilogue of a GEMM together, such as: tilescope gemm 4096x4096x4096 bf16.

    Every tile shape worth trying is planned and ranked. Exit status 1: there is no plan, and these are the reasons.
    """
    m, n, k = shape
    return _show_plan(f"GEMM {by(shape)} {data_type}", output, partial(plan_gemm, m, n, k, data_type), **said)


def _show_plan(
    asked: str, output: Output, find: Callable[..., PlanReport | GemmPlan], *,
    why: bool, emit: Any = None, path: Path = STDOUT, **said: Any,
) -> int:  # fmt: skip
    """Draw what `find` plans, or write its source with `emit`; if there is no plan, say why."""
    try:
        planned = find(**said)
    except PlanError as error:
        return output.show(Unplanned(asked, error.violations), ok=False)
    if emit is not None:
        from tilescope.emitter.emission import emit_file

        file = "" if path == STDOUT else path.name
        best = planned.best if isinstance(planned, PlanReport) else planned
        write_to(path, emit_file(best, emit, file).encode())
        return 0
    if isinstance(planned, GemmPlan):
        return output.show(planned, extra=planned.kernel_facts(), why=why)
    return output.show(planned, extra=plan_facts(planned), ok=bool(planned.candidates), why=why)


@command(*_SWEPT)
@click.argument("file", required=False, type=INPUT_FILE)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that plan.")
def sweep(workers: int, output: Output, file: str | None = None, **lists: Any) -> int:
    """Plan many problems and print a table: every combination of the options, or those of FILE.

    Every option takes one value, or several with commas. FILE is JSON (a list of objects), TOML ([[problem]]) or CSV (a
    line of names first), with the arguments of `tilescope plan`; - is stdin.

    \b
    tilescope sweep --tile 64x64,128x64,128x128 --type bf16,e4m3 --major K,MN
    tilescope sweep problems.csv --json

    Exit status 1: no problem has a plan.
    """  # noqa: D301  \b keeps the lines below it apart
    both = "give a FILE of problems, or options such as --tile 64x64,128x64 --type bf16, and not both."
    lacking = file is None and not {"tile", "data_type"} <= set(lists)
    refuse(((file is None) == (not lists), both), (lacking, "a problem needs --tile and --type."))
    problems = list(combinations(lists)) if file is None else read_problems(read_input(file))
    with progress_bars() as show, ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        table = swept(_counted(problems, show), executor=pool)
    return output.show(table, ok=bool(table.planned))


def _counted(problems: list[Any], show: Any) -> Iterator[Any]:
    """The problems, each shown on the bar when its turn comes."""
    for count, problem in enumerate(problems, 1):
        if show is not None:
            show("problems", count, len(problems))
        yield problem


@command(
    *PIPELINE,
    *PROBLEM,
    Input("block", "--block", "The block whose timeline is drawn", "", number, "that of the mistake, or 0"),
    _MAX_STATES,
    Input("describe", "--describe", "Print the description, as a FILE holds it, and do not run it", read=flag),
    Input("template", "--template", "Print a description with comments to start from", choices=template_names()),
)
@click.argument("words", nargs=-1, metavar="FILE | TILE… TYPE")
def pipeline(
    words: tuple[str, ...],
    describe: bool,
    output: Output,
    block: int | None = None,
    template: str | None = None,
    **said: Any,
) -> int:
    """Run a pipeline in every order: proven, or the mistake and the shortest way into it.

    FILE describes barriers, slots and roles as JSON or TOML (see docs/pipelines.md); - is stdin. Without a FILE, the
    pipeline of tiles or of a GEMM is planned and run:

    \b
    tilescope pipeline kernel.toml
    tilescope pipeline 128x64 bf16 --stages 4
    tilescope pipeline 128x64 256x64 bf16 --stages 3 --consumers 2 --cluster 2x1
    tilescope pipeline 256x64 96x64 bf16 --arch sm_100 --cta-group 2 --cluster 2x1
    tilescope pipeline 4096x4096x4096 bf16
    tilescope pipeline --template ping-pong > kernel.toml

    With --cta-group 2 a tile is that of both blocks, as m and n of tcgen05.mma are: each block brings half of A's rows and
    half of B's columns.

    \b
    Templates: producer-consumers, ping-pong, cooperative-store,
    flash-attention-3, multicast-cluster, two-block-tcgen05, split-k.

    Exit status 1: a mistake, or undecided.
    """  # noqa: D301  \b keeps the lines below it apart
    refuse(
        (template is not None and words, "--template prints a file to start from; leave the words out."),
        (template is None and not words, "name a FILE, tiles and their TYPE such as 128x64 bf16, or a --template."),
    )
    if template is not None:
        text = template_text(template)
        return _print_description(Pipeline.from_text(text.encode(), f"{template}.toml"), text, output)
    described = _from_file(words[0]) if len(words) == 1 else _planned(words, **said)
    if describe:
        return _print_description(described, toml_text(described), output)
    beyond = block is not None and not 0 <= block < described.blocks
    refuse((beyond, f"--block {block}: the cluster has blocks 0 to {described.blocks - 1}."))
    simulation = simulate(described, **chosen((_MAX_STATES,), said))
    return output.show(simulation, ok=simulation.verdict == "proven", block=block)


def _print_description(described: Pipeline, text: str, output: Output) -> int:
    """Print a description as TOML, or as JSON where that is asked for."""
    click.echo(json.dumps(described.to_dict(), indent=2) if output.as_json else text.rstrip("\n"))
    return 0


def _from_file(name: str) -> Pipeline:
    missing = f"there is no file {name!r}; a planned pipeline is a tile and a type: 128x64 bf16."
    refuse((name != STDIN and not Path(name).exists(), missing))
    return Pipeline.from_text(read_input(name), "stdin" if name == STDIN else Path(name).name)


def _planned(words: tuple[str, ...], *, no_multicast: bool, **said: Any) -> Pipeline:
    *tiles, data_type = words
    shapes = [reading(extents)(tile) for tile in tiles]
    problem = chosen(PROBLEM, said)
    planned: Any
    if len(shapes) == 1 and len(shapes[0]) == 3:
        refuse((problem.keys() & {"copy", "direction"}, "--copy and --direction are for tiles; a GEMM has both."))
        m, n, k = shapes[0]
        planned = plan_gemm(m, n, k, data_type, **problem)
    else:
        planned = [find_plans(shape, data_type, **problem).best for shape in shapes]
    return plan_pipeline(planned, multicast=not no_multicast, **chosen(PIPELINE, said))
