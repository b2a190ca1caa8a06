"""The tensor maps of a GEMM: one for A, B and C, of all rows that a launch has, and of every item of a batch.

    A, K-major            (k, m)                      box (64, tile m)
    of a batch            (k, m, count)               box (64, tile m, 1)
    B, gates side by side (k, 8, 2, n / 16)           box (64, 8, 2, tile n / 16): 8 rows of gates, 8 of the others, in turn

The number of rows is known only at the launch; without one, the plan's number is used.
"""

from __future__ import annotations

from math import prod

from tilescope.arithmetic import rounded_up
from tilescope.planner.fused_epilogue import GATE_GROUP
from tilescope.planner.planned_gemm import PlannedGemm
from tilescope.planner.plans import Plan
from tilescope.tensor_map import TensorMap


def launch_rows(gemm: PlannedGemm) -> int:
    """Rows of A that a launch of the plan's own size has: of contiguous experts all, their groups filled up to whole tiles."""
    m = gemm.shape[0]
    if gemm.batch.rows == "contiguous":
        return gemm.batch.count * rounded_up(m, gemm.tile[0])
    return m


def gemm_map(gemm: PlannedGemm, matrix: str, address: int = 0, m: int | None = None) -> TensorMap:
    """The map of A, B or C ("a", "b", "c") for a launch with m rows.

    >>> from tilescope.planner import plan_gemm
    >>> gemm = plan_gemm(100, 512, 256, "bf16", batch=4, tile=(64, 64, 64))
    >>> gemm_map(gemm, "a").dims, gemm_map(gemm, "c", m=60).dims
    ((256, 100, 4), (512, 60, 4))
    """
    rows = launch_rows(gemm) if m is None else m
    _, n, k = gemm.shape
    plan: Plan | None
    if matrix == "c":
        plan = gemm.epilogue
        assert plan is not None
        columns = gemm.fused.columns(n)
        tensor_map = plan.tensor_map(address, (columns, rows) if gemm.schedule.swapped else (rows, columns))
        elements = rows * columns
    else:
        plan, mn = (gemm.a, rows) if matrix == "a" else (gemm.b, n)
        tensor_map = plan.tensor_map(address, (mn, k))
        elements = mn * k
    if matrix == "b" and gemm.fused.gate == "side by side":
        tensor_map = _taken_in_turn(tensor_map)
    if not gemm.batch.stacks(matrix):
        return tensor_map
    item_bytes = elements * plan.problem.data_type.bits // 8
    return _remade(
        tensor_map, (*tensor_map.dims, gemm.batch.count), (*tensor_map.strides_bytes, item_bytes), (*tensor_map.box, 1)
    )


def _taken_in_turn(made: TensorMap) -> TensorMap:
    """Two matrices of rows, one below the other, of which a box takes 8 rows each in turn."""
    k, n = made.dims
    (row_bytes,) = made.strides_bytes
    width, height = made.box
    dims = (k, GATE_GROUP, 2, n // (2 * GATE_GROUP))
    strides = (row_bytes, n // 2 * row_bytes, GATE_GROUP * row_bytes)
    return _remade(made, dims, strides, (width, GATE_GROUP, 2, height // (2 * GATE_GROUP)))


def _remade(made: TensorMap, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]) -> TensorMap:
    assert prod(box) == prod(made.box)
    return TensorMap(
        made.data_type,
        dims,
        strides,
        box,
        swizzle=made.swizzle,
        l2_promotion=made.l2_promotion,
        address=made.address,
        arch=made.arch,
    )
