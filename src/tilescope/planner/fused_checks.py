"""The epilogues and batches that are not planned: other tensor cores than wgmma, gates without their pairs, shared k of unknown rows."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.fused_epilogue import GATE_GROUP
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.obstacle import Broken, broken
from tilescope.planner.product import Product, Tile
from tilescope.rule import rule

_PAIR_COLUMNS = 2 * GATE_GROUP  # 8 columns of gates, and 8 of what they let through
_SUMS = ("bf16", "f16", "tf32", "e4m3", "e5m2")  # types whose sums are float32

GEMM_EPILOGUE = rule(
    "gemm-epilogue",
    "Epilogues and batches are planned for wgmma with float32 accumulators; gated columns come in pairs of 8.",
    argument="{argument}",
    found="{found} with {consumer}",
    limit="they are planned for wgmma",
    fix='Use {consumer:="wgmma"} and {arch:="sm_90"}, or leave {argument} out.',
    source="tilescope's kernels",
    passing='ts.plan_gemm(256, 512, 256, "bf16", epilogue="swiglu")',
    failing='ts.plan_gemm(256, 512, 256, "bf16", epilogue="swiglu", arch="sm_80")',
)
INTEGER_SUMS = GEMM_EPILOGUE.worded(
    argument="epilogue",
    found="epilogue = {fused} with {data_type}",
    limit="its sums are int32; an epilogue is computed with sums of float32",
    fix="Leave epilogue out, or use one of {known:, }.",
)
GATED_COLUMNS = GEMM_EPILOGUE.worded(
    argument="n",
    found="n = {n} with epilogue = {fused}",
    limit="B has 8 columns of gates for 8 of what they let through: n is a multiple of {multiple}",
    fix="Use {n:={up}}.",
)
GATES_MN_MAJOR = GEMM_EPILOGUE.worded(
    argument="b_major",
    found="gates side by side in an MN-major B",
    limit="a tensor map loads 8 rows of gates and 8 of the others in turn, where k is contiguous",
    fix='Use {b_major:="K"}, or {epilogue:="swiglu-interleaved"}.',
)
GATED_TILE = GEMM_EPILOGUE.worded(
    argument="tile",
    found="{columns} columns of sums that a block stores, with epilogue = {fused}",
    limit="8 of gates and 8 of the others make 8 of C: a multiple of {multiple}",
    fix="Use a tile whose n is a multiple of {multiple}, and {split:=1}.",
)
MASKED_SHARING = GEMM_EPILOGUE.worded(
    argument="rows",
    found="masked rows with blocks that share every k, or tiles in groups",
    limit="how many tiles there are is known on the card alone: a block takes one tile after another, down m",
    fix='Use {split:=1}, {parts:=1} and {group:=0}, or {rows:="contiguous"}.',
)
DEPENDENT_EXPERTS = GEMM_EPILOGUE.worded(
    argument="dependent",
    found="a dependent launch with experts",
    limit="the array of rows may come from the kernel before, and is read before that one has ended",
    fix="Use {dependent:=False}.",
)
DEPENDENT_SCALES = GEMM_EPILOGUE.worded(
    argument="dependent",
    found="a dependent launch with scales = {name}",
    limit="the threads that multiply read the scales of A, and only the producer waits for the kernel before",
    fix="Use {dependent:=False}.",
)
ROWS_WITHOUT_EXPERTS = GEMM_EPILOGUE.worded(
    argument="rows",
    found="rows = {rows!r} without experts",
    limit="rows says how the rows of experts are stored",
    fix="Give experts too, or leave rows out.",
)
BATCH_OF_EXPERTS = GEMM_EPILOGUE.worded(
    argument="batch",
    found="batch = {batch} with experts = {experts}",
    limit="experts are a batch with separate rows",
    fix="Leave one of them out.",
)


def unfused_product(product: Product) -> Iterator[Broken]:
    """Why no tile serves the epilogue or the batch."""
    fused, batch = product.fused, product.batch
    requested = {"epilogue": str(fused), "experts" if batch.is_of_experts else "batch": str(batch)}
    arguments = [
        name for name, is_plain in zip(requested, (fused.is_plain, batch.count == 1), strict=True) if not is_plain
    ]
    if arguments and product.consumer != "wgmma":
        for name in arguments:
            yield broken(GEMM_EPILOGUE, argument=name, found=requested[name], consumer=product.consumer)
        return
    if not fused.is_plain and not product.has_float_sums:
        yield broken(INTEGER_SUMS, fused=str(fused), data_type=product.data_type.name, known=_SUMS)
    n = product.shape[1]
    if fused.is_gated and n % _PAIR_COLUMNS:
        up = n + -n % _PAIR_COLUMNS
        yield broken(GATED_COLUMNS, n=n, fused=str(fused), multiple=_PAIR_COLUMNS, up=up, change={"n": up})
    if fused.gate == "side by side" and product.b_major == "MN":
        yield broken(GATES_MN_MAJOR, change={"b_major": "K"})


def unfused_tile(product: Product, tile: Tile, schedule: Schedule) -> Iterator[Broken]:
    """Why a tile does not serve the epilogue or the batch."""
    columns = schedule.share(schedule.sums(tile)[1])
    if product.fused.is_gated and not schedule.swapped and columns % _PAIR_COLUMNS:
        yield broken(GATED_TILE, columns=columns, fused=str(product.fused), multiple=_PAIR_COLUMNS)
    is_shared = not schedule.persistent or schedule.group > 0
    if product.batch.rows == "masked" and is_shared:
        yield broken(MASKED_SHARING, change={"rows": "contiguous"})
    if product.batch.is_of_experts and schedule.dependent:
        yield broken(DEPENDENT_EXPERTS, change={"dependent": False})
    if product.block_scales and schedule.dependent:
        yield broken(DEPENDENT_SCALES, name=BLOCK_SCALES, change={"dependent": False})
