"""The plan of each tile: swizzle, boxes, maps and descriptors, as `plan` gives them for one tile.

A tile's rows and columns become the planner's (mn, k) by its major; its tensor may have 2 to 5 dimensions:

    tensor 4 x 4096 x 16 x 128 (batch, length, heads, d), rows along length
    map    dims (128, 4096, 16, 4)    box (64, 176, 1, 1)

An image has an im2col map: rows of the tile are pixels, and every tap of the filter has its offsets.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple

from tilescope.arch import Arch
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.kernel_plan.cluster_arrivals import acting_blocks
from tilescope.kernel_plan.kernel_description import MULTIPLICATIONS, KernelTile, TensorOfTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.layout import Major
from tilescope.planner.plan_search import candidates
from tilescope.planner.plans import Plan
from tilescope.planner.problem import CopyName, Direction, Operand, Problem
from tilescope.planner.proof import proven
from tilescope.tensor_map import Convolution, Im2colMap, TensorMap

_SWIZZLE_ALIGNMENT = 1024  # where the pattern of every swizzle starts anew
_BULK_ALIGNMENT = 128  # of what TMA writes unswizzled
_THREAD_ALIGNMENT = 16  # of tiles that only threads use
_CONSUMER: dict[str, Literal["wgmma", "tcgen05"]] = {"wgmma": "wgmma", "tcgen05.mma": "tcgen05"}


class _Use(NamedTuple):
    """How a kernel uses a tile, in the planner's terms."""

    shape: tuple[int, int]
    data_type: DataType
    major: Major
    consumer: str | None
    operand: Operand | None
    copy: CopyName
    direction: Direction
    swizzle: str | None
    arch: Arch


def plan_tile(kernel: KernelDescription, tile: KernelTile, arch: Arch) -> Plan | None:
    """The best plan of a tile, proven in the emulator; None if nothing but threads uses it, or no plan serves it.

    A tile without a plan is stored packed, row by row.
    """
    use = _use_of(kernel, tile, arch)
    return None if use is None else _best_plan(use)


def _use_of(kernel: KernelDescription, tile: KernelTile, arch: Arch) -> _Use | None:
    if tile.memory != "shared" or 1 in tile.shape:
        return None
    loaded = any(step.operation == "load" for _, step in kernel.writes_of(tile.name))
    stored = any(step.operation == "store" for _, step in kernel.reads_of(tile.name))
    multiplied = [step for _, step in kernel.reads_of(tile.name) if step.operation in MULTIPLICATIONS]
    if not (loaded or stored or multiplied):
        return None
    consumer: str | None = None
    operand: Operand | None = None
    if multiplied:
        consumer = _CONSUMER[multiplied[0].operation]
        operand = "A" if multiplied[0].a == tile.name else "B"
        if tile.name not in (multiplied[0].a, multiplied[0].b):
            return None  # scale factors and metadata have separate layouts
    elif loaded:
        consumer = "ldmatrix"
    direction: Direction = "load" if loaded or multiplied else "store"
    rows, columns = tile.shape
    shape = (rows, columns) if tile.major == "K" or not multiplied else (columns, rows)
    major: Major = tile.major if multiplied else "K"
    copy: CopyName = "tma" if loaded or direction == "store" else "ld.global"
    return _Use(shape, tile.data_type, major, consumer, operand, copy, direction, tile.swizzle, arch)


@lru_cache(maxsize=512)
def _best_plan(use: _Use) -> Plan | None:
    try:
        problem = Problem(
            use.shape,
            use.data_type,
            major=use.major,
            consumer=use.consumer,
            operand=use.operand,
            copy=use.copy,
            direction=use.direction,
            swizzle=use.swizzle,  # type: ignore[arg-type]  # a name of the table, as the file was checked
            arch=use.arch,
        )
        ranked = candidates(problem).plans
    except RuleError:
        return None
    return proven(ranked[0]) if ranked else None


def tile_alignment(kernel: KernelDescription, tile: KernelTile, planned: Plan | None) -> int:
    """The bytes that a tile in shared memory is aligned to."""
    if planned is not None:
        return _BULK_ALIGNMENT if planned.swizzle.name == "none" else _SWIZZLE_ALIGNMENT
    steps = [step for _, step in (*kernel.writes_of(tile.name), *kernel.reads_of(tile.name))]
    return _THREAD_ALIGNMENT if all(step.operation == "threads" for step in steps) else _BULK_ALIGNMENT


def stage_stride_bytes(tile: KernelTile, planned: Plan | None, alignment: int) -> int:
    """Bytes from one stage of a tile to the next."""
    return rounded_up(tile.stage_bytes if planned is None else planned.smem_bytes, alignment)


def tensor_map_of(kernel: KernelDescription, tile: KernelTile, planned: Plan) -> TensorMap | Im2colMap | None:
    """The tensor map of a tile's tensor, with 2 to 5 dimensions; None if threads copy it.

    The first two dimensions are the tile's own, innermost first; boxes are 1 along the others. If every block of a cluster
    sends its slice, a box has the rows of a slice.
    """
    if planned.boxes is None:
        return None
    flat = planned.tensor_map(0)
    if tile.tensor is not None and tile.tensor.filter:
        return convolution_of(tile, tile.tensor, flat).tensor_map
    if tile.multicast == "slices" and acting_blocks(kernel) > 1:
        columns, rows = flat.box
        flat = replace(flat, box=(columns, rows // kernel.cluster))
    tensor = tile.tensor
    if tensor is None or flat.rank != 2:
        return flat
    element_bits = tile.data_type.bits
    pitches = [1]
    for extent in reversed(tensor.shape[1:]):
        pitches.insert(0, pitches[0] * extent)
    last = len(tensor.shape) - 1
    order = [last, tensor.rows, *(axis for axis in reversed(range(last)) if axis != tensor.rows)]
    return TensorMap(
        data_type=flat.data_type,
        dims=tuple(tensor.shape[axis] for axis in order),
        strides_bytes=tuple(pitches[axis] * element_bits // 8 for axis in order[1:]),
        box=(*flat.box, *(1 for _ in order[2:])),
        swizzle=flat.swizzle,
        l2_promotion=flat.l2_promotion,
        oob_fill=flat.oob_fill,
        arch=flat.arch,
    )


def convolution_of(tile: KernelTile, image: TensorOfTile, flat: TensorMap) -> Convolution:
    """The im2col map of an image, with the offsets of the filter's taps; `flat` is the map of only the tile."""
    return Convolution.of(
        image.shape,
        (1, *image.filter),
        flat.data_type,
        pad=image.padding,
        stride=image.stride,
        dilation=image.dilation,
        channels_per_pixel=flat.box[0],
        pixels_per_column=tile.shape[0],
        swizzle=flat.swizzle.name,
        l2_promotion=flat.l2_promotion.name,
        arch=flat.arch,
    )
