"""`tilescope gemm`: what to do with a whole product."""

from __future__ import annotations

from typing import Any

import click

from tilescope.arch import Arch
from tilescope.cli.options import extents, output_options
from tilescope.cli.output import Output
from tilescope.data_type import DataType
from tilescope.errors import PlanError
from tilescope.planner import GemmPlan, Unplanned, plan_gemm


@click.command()
@click.argument("shape", type=extents, metavar="MxNxK")
@click.argument("data_type", metavar="TYPE")
@click.option("--arch", default="sm_90", help="[default: sm_90]")
@click.option("--consumer", help="wgmma, tcgen05 or ldmatrix. [default: the best the architecture has]")
@click.option("--tile", type=extents, metavar="MxNxK", help="This tile instead of the best.")
@click.option("--stages", type=int, help="[default: as many as fit, at most 8]")
@click.option("--a-major", default="K", help="K or MN. [default: K]")
@click.option("--b-major", default="K", help="K or MN. [default: K]")
@click.option("--output-type", help="Type of C. [default: TYPE; s32 for b1]")
@click.option("--sms", type=int, default=132, help="Multiprocessors of the card. [default: 132]")
@click.option("--why", is_flag=True, help="Name every other tile, and the reasons of those refused.")
@output_options
def gemm(shape: tuple[int, ...], data_type: str, why: bool, output: Output, **options: Any) -> int:
    """Plan the operands, stages and epilogue of a GEMM together, such as: tilescope gemm 4096x4096x4096 bf16.

    Every tile shape worth trying is planned and ranked. Exit status 1: there is no plan, and these are the reasons.
    """
    if len(shape) != 3:
        raise click.BadParameter(f"{len(shape)} extents; a product has three: MxNxK.", param_hint="shape")
    m, n, k = shape
    try:
        found = plan_gemm(m, n, k, data_type, **options)
    except PlanError as error:
        row, arch = DataType.named(data_type), Arch.named(options["arch"])
        output.show(Unplanned(f"GEMM {m} x {n} x {k} {row.name} on {arch.name}", error.violations))
        return 1
    output.show(found, extra=_beside(found), why=why)
    return 0


def _beside(found: GemmPlan) -> dict[str, Any]:
    """What the plan leads to: where everything lies, the maps of the matrices, the descriptors of the first stage."""
    starts = found.smem_offsets()
    plans = (("a", found.a), ("b", found.b), ("c", found.epilogue))
    maps = {name: plan.tensor_map(0) for name, plan in plans if plan is not None and plan.boxes is not None}
    loops = {}
    if found.a.problem.consumer != "ldmatrix":
        loops = {name: plan.descriptors(starts[name][0]) for name, plan in (("a", found.a), ("b", found.b))}
    return {
        "smem_offsets": starts,
        "tensor_maps": {name: tensor_map.to_dict() for name, tensor_map in maps.items()},
        "descriptors": {name: [[hex(step.encode()) for step in block] for block in loop] for name, loop in loops.items()},
    }  # fmt: skip
