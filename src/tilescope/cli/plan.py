"""`tilescope plan`: what to do with a tile."""

from __future__ import annotations

from typing import Any

import click

from tilescope.arch import Arch
from tilescope.cli.options import extents, output_options
from tilescope.cli.output import Output
from tilescope.data_type import DataType
from tilescope.errors import PlanError
from tilescope.planner import Plan, Unplanned, best_consumer
from tilescope.planner import plan as find_plans


@click.command()
@click.argument("tile", type=extents, metavar="MNxK")
@click.argument("data_type", metavar="TYPE")
@click.option("--major", default="K", help="K or MN: which dimension is contiguous. [default: K]")
@click.option(
    "--consumer",
    help='wgmma, tcgen05, ldmatrix, or a pattern such as "ld.b128 columns". [default: the best the architecture has]',
)
@click.option("--arch", default="sm_90", help="[default: sm_90]")
@click.option("--swizzle", help="Only this swizzle.")
@click.option("--atom-order", help="Only this order: column or row.")
@click.option("--operand", help="A or B.")
@click.option("--stages", type=int, default=1, help="Tiles in flight. [default: 1]")
@click.option("--copy", help="tma, cp.async or ld.global. [default: tma, or cp.async where there is no TMA]")
@click.option("--direction", default="load", help="load or store. [default: load]")
@click.option("--traffic", default="dense", help="dense or sparse: chooses the L2 promotion. [default: dense]")
@click.option("--fold", is_flag=True, help="Also offer maps of rank 3 and 4 that take one copy.")
@click.option("--global-shape", type=extents, metavar="MNxK", help="The whole matrix: strides and edges.")
@click.option("--strides-bytes", type=int, help="Bytes from row to row of the matrix. [default: its own rows]")
@click.option("--why", is_flag=True, help="Name the reasons of every refused candidate.")
@output_options
def plan(tile: tuple[int, ...], data_type: str, why: bool, output: Output, **options: Any) -> int:
    """Plan the path of a tile of MN x K elements of TYPE, such as: tilescope plan 128x64 bf16.

    Every swizzle, atom order and box split is tried, checked by the real rules, proven in the emulator and ranked.
    """
    if options["strides_bytes"] is not None:
        options["strides_bytes"] = (options["strides_bytes"],)
    arch = Arch.named(options["arch"])
    options["consumer"] = options["consumer"] or best_consumer(arch)
    options["copy"] = options["copy"] or ("tma" if arch.has("tma") else "cp.async")
    try:
        report = find_plans(tile, data_type, **options)  # type: ignore[arg-type]
    except PlanError as error:
        asked = f"{' x '.join(map(str, tile))} {DataType.named(data_type).name} on {arch.name}"
        output.show(Unplanned(asked, error.violations))
        return 1
    output.show(report, extra={"best": _for_a_kernel(report.best)} if report.candidates else None, why=why)
    return 0 if report.candidates else 1


def _for_a_kernel(plan: Plan) -> dict[str, Any]:
    """What a kernel needs of a plan beyond its own plain data: descriptors of a stage at shared address 0, and so on."""
    facts: dict[str, Any] = {
        "c_expression": plan.c_expression, "stage_bytes": plan.stage_bytes, "total_smem_bytes": plan.total_smem_bytes,
        "barrier_bytes": plan.barrier_bytes, "blocks_per_sm": plan.blocks_per_sm,
    }  # fmt: skip
    if plan.boxes is None:
        facts["chunk_order"] = plan.chunk_order.tolist()
    else:
        facts["tensor_map"] = plan.tensor_map(0, plan.problem.global_shape or plan.problem.tile).to_dict()
    if plan.canonical is not None and plan.problem.consumer != "ldmatrix":
        facts["descriptors"] = [[hex(step.encode()) for step in block] for block in plan.descriptors()]
    return facts
