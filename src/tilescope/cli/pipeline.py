"""`tilescope pipeline`: why it hangs, and what each barrier must expect."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from tilescope.cli.options import extents, output_options
from tilescope.cli.output import Output
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.simulation import MAX_STATES, simulate
from tilescope.planner import plan as find_plans
from tilescope.planner import plan_gemm
from tilescope.planner.barrier_roles import plan_pipeline

_PLAN_OPTIONS = ("arch", "consumer", "copy", "direction")


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="FILE | TILE… TYPE")
@click.option("--stages", type=int, help="[default: those of the plan]")
@click.option("--consumers", type=int, help="Consumer warpgroups. [default: 1; a GEMM of 128 rows or more: 2]")
@click.option("--cluster", type=extents, default="1x1", metavar="XxY", help="Blocks of the cluster. [default: 1x1]")
@click.option("--cta-group", type=int, default=1, help="2: pairs of blocks multiply together (tcgen05). [default: 1]")
@click.option(
    "--arrivals",
    help="A consumer arrives once per warpgroup, warp or thread. [default: warpgroup; threads that read: warp]",
)
@click.option("--no-multicast", is_flag=True, help="Every block of a cluster loads its own tiles whole.")
@click.option("--steps", type=int, help="K steps of the pipeline. [default: 4 x stages + 2]")
@click.option("--arch", help="[default: sm_90]")
@click.option("--consumer", help="wgmma, tcgen05 or ldmatrix. [default: the best the architecture has]")
@click.option("--copy", help="tma, cp.async or ld.global. [default: tma, or cp.async where there is no TMA]")
@click.option("--direction", default="load", help="load or store. [default: load]")
@click.option("--block", type=int, help="The block whose timeline is drawn. [default: that of the mistake, or 0]")
@click.option("--max-states", type=int, default=MAX_STATES, help=f"States to search at most. [default: {MAX_STATES}]")
@click.option("--describe", is_flag=True, help="Print the description, as a FILE holds it, and do not run it.")
@output_options
def pipeline(
    words: tuple[str, ...], block: int | None, max_states: int, describe: bool, output: Output, **options: Any
) -> int:
    """Run a pipeline in every order: proven, or the mistake and the shortest way into it.

    FILE describes barriers, slots and roles as JSON or TOML (see docs/pipelines.md); - is stdin. Or tiles are planned:

    \b
    tilescope pipeline kernel.toml
    tilescope pipeline 128x64 bf16 --stages 4
    tilescope pipeline 128x64 256x64 bf16 --stages 3 --consumers 2 --cluster 2x1
    tilescope pipeline 4096x4096x4096 bf16

    Exit status 1: a mistake, or undecided.
    """  # noqa: D301  \b keeps the lines below it apart
    described = _from_file(words[0]) if len(words) == 1 else _planned(words, options)
    if describe:
        click.echo(json.dumps(described.to_dict(), indent=2))
        return 0
    if block is not None and not 0 <= block < described.blocks:
        raise click.BadParameter(f"{block}; the cluster has blocks 0 to {described.blocks - 1}.", param_hint="--block")
    found = simulate(described, max_states=max_states)
    output.show(found, block=block)
    return 0 if found.verdict == "proven" else 1


def _from_file(name: str) -> Pipeline:
    if name == "-":
        return Pipeline.from_text(sys.stdin.buffer.read(), "stdin")
    if not Path(name).exists():
        raise click.BadParameter(
            f"there is no file {name!r}; a planned pipeline is a tile and a type: 128x64 bf16.", param_hint="FILE"
        )
    return Pipeline.from_file(name)


def _planned(words: tuple[str, ...], options: dict[str, Any]) -> Pipeline:
    *tiles, data_type = words
    shapes = [extents(tile) for tile in tiles]
    given = {name: options[name] for name in _PLAN_OPTIONS}
    plan: Any
    if len(shapes) == 1 and len(shapes[0]) == 3:
        m, n, k = shapes[0]
        plan = plan_gemm(m, n, k, data_type, arch=given["arch"], consumer=given["consumer"])
    else:
        plan = [find_plans(shape, data_type, **given).best for shape in shapes]  # type: ignore[arg-type]
    return plan_pipeline(
        plan, stages=options["stages"], consumers=options["consumers"], cluster=options["cluster"],
        cta_group=options["cta_group"], arrivals=options["arrivals"], multicast=not options["no_multicast"], steps=options["steps"],
    )  # fmt: skip
