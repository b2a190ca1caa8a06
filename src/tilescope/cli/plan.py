"""`tilescope plan`: what to do with a tile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilescope.cli.options import emit_options, extents, given, numbers, output_options, print_source
from tilescope.cli.output import Output
from tilescope.errors import PlanError
from tilescope.planner import Unplanned
from tilescope.planner import plan as find_plans


@click.command()
@click.argument("tile", type=extents, metavar="MNxK")
@click.argument("data_type", metavar="TYPE")
@click.option("--major", help="K or MN: which dimension is contiguous. [default: K]")
@click.option(
    "--consumer",
    help='wgmma, tcgen05, ldmatrix, or a pattern such as "ld.b128 columns". [default: the best the architecture has]',
)
@click.option("--arch", help="[default: the card's; sm_90 where none is named]")
@click.option(
    "--card", help="Whose rates weigh the plans, such as H200. [default: the one that stands for the architecture]"
)
@click.option("--swizzle", help="Only this swizzle.")
@click.option("--atom-order", help="Only this order: column or row.")
@click.option("--operand", help="A or B.")
@click.option("--stages", type=int, help="Tiles in flight. [default: 1]")
@click.option("--copy", help="tma, cp.async or ld.global. [default: tma, or cp.async where there is no TMA]")
@click.option("--direction", help="load or store. [default: load]")
@click.option("--traffic", help="dense or sparse: chooses the L2 promotion. [default: dense]")
@click.option("--fold", is_flag=True, help="Also offer maps of rank 3 and 4 that take one copy.")
@click.option("--global-shape", type=extents, metavar="MNxK", help="The whole matrix: strides and edges.")
@click.option(
    "--strides-bytes",
    type=numbers,
    metavar="BYTES",
    help="Bytes from row to row of the matrix. [default: its own rows]",
)
@click.option("--why", is_flag=True, help="Name the reasons of every refused candidate.")
@emit_options
@output_options
def plan(
    tile: tuple[int, ...],
    data_type: str,
    why: bool,
    emit: str | None,
    source_path: Path | None,
    output: Output,
    **options: Any,
) -> int:
    """Plan the path of a tile of MN x K elements of TYPE, such as: tilescope plan 128x64 bf16.

    Every swizzle, atom order and box split is tried, checked by the real rules, proven in the emulator and ranked.
    """
    try:
        report = find_plans(tile, data_type, **given(options))  # type: ignore[arg-type]
    except PlanError as error:
        output.show(Unplanned(f"{' x '.join(map(str, tile))} {data_type}", error.violations))
        return 1
    if emit is not None:
        from tilescope.emitter import emit as source_of

        return print_source(source_of(report.best, emit), source_path)  # type: ignore[arg-type]
    output.show(report, extra={"best": report.best.kernel_facts()} if report.candidates else None, why=why)
    return 0 if report.candidates else 1
