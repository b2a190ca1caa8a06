"""`tilescope gemm`: what to do with a whole product."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tilescope.cli.options import emit_options, extents, given, output_options, print_source
from tilescope.cli.output import Output
from tilescope.errors import PlanError
from tilescope.planner import Unplanned, plan_gemm


@click.command()
@click.argument("shape", type=extents, metavar="MxNxK")
@click.argument("data_type", metavar="TYPE")
@click.option("--arch", help="[default: the card's; sm_90 where none is named]")
@click.option(
    "--card", help="Whose rates weigh the tiles, such as H200. [default: the one that stands for the architecture]"
)
@click.option("--consumer", help="wgmma, tcgen05 or ldmatrix. [default: the best the architecture has]")
@click.option("--tile", type=extents, metavar="MxNxK", help="This tile instead of the best.")
@click.option("--stages", type=int, help="[default: as many as fit and help]")
@click.option("--a-major", help="K or MN. [default: K]")
@click.option("--b-major", help="K or MN. [default: K]")
@click.option("--output-type", help="Type of C. [default: TYPE; s32 for b1]")
@click.option("--sms", type=int, help="Multiprocessors to plan for. [default: the card's]")
@click.option("--why", is_flag=True, help="Name every other tile, and the reasons of those refused.")
@emit_options
@output_options
def gemm(
    shape: tuple[int, ...],
    data_type: str,
    why: bool,
    emit: str | None,
    source_path: Path | None,
    output: Output,
    **options: Any,
) -> int:
    """Plan the operands, stages and epilogue of a GEMM together, such as: tilescope gemm 4096x4096x4096 bf16.

    Every tile shape worth trying is planned and ranked. Exit status 1: there is no plan, and these are the reasons.
    """
    if len(shape) != 3:
        raise click.BadParameter(f"{len(shape)} extents; a product has three: MxNxK.", param_hint="shape")
    try:
        found = plan_gemm(*shape, data_type, **given(options))
    except PlanError as error:
        output.show(Unplanned(f"GEMM {' x '.join(map(str, shape))} {data_type}", error.violations))
        return 1
    if emit is not None:
        from tilescope.emitter import emit as source_of

        return print_source(source_of(found, emit), source_path)  # type: ignore[arg-type]
    output.show(found, extra=found.kernel_facts(), why=why)
    return 0
