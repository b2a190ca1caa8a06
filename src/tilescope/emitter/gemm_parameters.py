"""The parameters of a GEMM's kernel besides its matrices, in order, with the arguments of the program's launch.

a_map, b_map, c_map │ partial, arrived │ m_rows │ global_scale │ a_scales, b_scales │ experts │ alpha, bias,
residual (or its map), beta
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

from tilescope.data_type import DataType
from tilescope.machine.launch.launch_description import FillName
from tilescope.planner.block_scales import a_scale_shape, b_scale_shape
from tilescope.planner.fused_epilogue import RESIDUAL_TYPES
from tilescope.planner.gemm_maps import launch_rows
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.product import ACCUMULATOR_BYTES

ALPHA = 0.5  # of the program's own launch, as beta: sums of small whole numbers stay exact
BETA = 2.0
SCALE_ARRAYS = ("a_scales", "b_scales")  # of blocks, applied in registers


class Parameter(NamedTuple):
    """A parameter of the kernel: a number, or an array of `size` elements."""

    declaration: str  # the C type, in front of the name
    name: str
    data_type: str
    value: float = 0  # of a number
    size: int = 0  # of an array; 0: a number
    fill: FillName = "zeros"
    by_map: bool = False  # the kernel takes C's map of the array

    def __str__(self) -> str:
        return f"{self.declaration} {self.name}"

    @property
    def in_kernel(self) -> str:
        """Its declaration in the kernel."""
        return f"const __grid_constant__ TensorMap {self.given}" if self.by_map else str(self)

    @property
    def given(self) -> str:
        """The name of what the kernel is given."""
        return f"{self.name}_map" if self.by_map else self.name

    @property
    def is_checked(self) -> bool:
        """Whether the kernel that checks takes it, too."""
        return self.name in ("experts", "bias", "residual")


def gemm_parameters(gemm: GemmPlan) -> tuple[Parameter, ...]:
    """The parameters behind the maps, or matrices.

    >>> from tilescope.planner import plan_gemm
    >>> gemm = plan_gemm(256, 256, 256, "bf16", epilogue="bias+residual", tile=(64, 64, 64))
    >>> print(*(each.given for each in gemm_parameters(gemm)), sep=", ")
    m_rows, bias, residual_map, beta
    """
    return tuple(_list_parameters(gemm))


def residual_type(gemm: GemmPlan) -> DataType:
    """The type of the residual: that of C, of 8 bits bf16."""
    return gemm.output_type if gemm.output_type.ptx in RESIDUAL_TYPES else DataType.named("bf16")


def _list_parameters(gemm: GemmPlan) -> Iterator[Parameter]:
    if gemm.workspace_bytes:
        yield Parameter("Sums*", "partial", "f32", size=gemm.workspace_bytes // ACCUMULATOR_BYTES)
        yield Parameter("unsigned*", "arrived", "u32", size=gemm.counters)
    rows = launch_rows(gemm)
    yield Parameter("int", "m_rows", "s32", value=rows)
    if gemm.scales is not None and gemm.scales.name == "nvfp4":
        yield Parameter("float", "global_scale", "f32", value=1.0)
    if gemm.block_scales:
        _, n, k = gemm.shape
        a_items = gemm.batch.count if gemm.batch.stacks("a") else 1
        a_scales, b_scales = a_items * prod(a_scale_shape(rows, k)), gemm.batch.count * prod(b_scale_shape(n, k))
        for name, size in zip(SCALE_ARRAYS, (a_scales, b_scales), strict=True):
            yield Parameter("const float*", name, "f32", size=size, fill="ones")
    if gemm.batch.rows == "contiguous":
        yield Parameter("const int*", "experts", "s32", size=rows)
    if gemm.batch.rows == "masked":
        yield Parameter("const int*", "experts", "s32", size=gemm.batch.count, fill="ones")
    fused = gemm.fused
    if fused.scale:
        yield Parameter("float", "alpha", "f32", value=ALPHA)
    columns = fused.columns(gemm.shape[1])
    if fused.bias:
        yield Parameter("const float*", "bias", "f32", size=gemm.batch.count * gemm.shape[1], fill="random")
    if fused.residual:
        elements = (gemm.batch.count if gemm.batch.stacks("c") else 1) * rows * columns
        yield Parameter(
            "const Residual*",
            "residual",
            residual_type(gemm).ptx,
            size=elements,
            fill="random",
            by_map=gemm.stages_residual,
        )
        yield Parameter("float", "beta", "f32", value=BETA)
