"""The way of an element through a map and a descriptor that somebody has, instead of those of a plan.

    TensorMap("bf16", (64, 128), (128,), (64, 128), swizzle="128B")   the box is the tile: 128 x 64, K-major
    0x4000004000010002                                                reads its second K step

The tile is planned with the map's own box and swizzle. If the descriptor is one of those that the plan makes, the plan is
what the kernel does, and its way of an element is the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arch import ARCH
from tilescope.errors import PlanError
from tilescope.layout import MAJORS, Major, oriented
from tilescope.planner.plan_search import plan
from tilescope.planner.plans import ElementPath, Plan
from tilescope.rule import rule
from tilescope.tensor_map import AnyMap, TensorMap

PATH_DESCRIPTOR = rule(
    "path-descriptor",
    "The descriptor reads the tile that one copy through the map loads.",
    argument="word",
    found="{word} for a box of {box: x } under {swizzle}",
    limit="descriptors of this tile are {known}",
    fix="Use one of them, or the shared address at which the tile starts.",
    source="the plan of a tile with this box and this swizzle",
    passing='ts.web.pages.form_at("/path?given=map&word=0x4000004000010002").answer()',
    failing='ts.web.pages.form_at("/path?given=map&word=0x4000004000010041").answer()',
)
NO_DESCRIPTORS = PATH_DESCRIPTOR.worded(
    argument="box",
    limit="no tensor core reads such a tile by descriptor",
    fix="Use a map of rank 2 whose box is a tile of whole K steps: `tilescope plan` lists some.",
)
_ARCHES = {"wgmma": "sm_90", "tcgen05": "sm_100"}  # that have each reader
_LISTED = 4  # descriptors that a refusal names


def path_of_map(tensor_map: AnyMap, word: int, mn: int, k: int, smem_address: int = 0) -> ElementPath:
    """The way of element (mn, k) of the tile that a map's box is, which a descriptor reads.

    >>> tensor_map = TensorMap("bf16", (64, 128), (128,), (64, 128), swizzle="128B")
    >>> path_of_map(tensor_map, 0x4000004000010002, 37, 21).descriptor.k_step
    1
    """
    words: list[int] = []
    for planned in _plans_of(tensor_map):
        loop = planned.descriptors(smem_address)
        encoded = [descriptor.encode() for block in loop for descriptor in block]
        if word in encoded:
            return planned.path(mn, k, smem_address)
        words += encoded
    wording = PATH_DESCRIPTOR if words else NO_DESCRIPTORS
    raise wording.error(
        word=f"{word:#018x}",
        box=_box(tensor_map),
        swizzle=str(tensor_map.swizzle),
        known=", ".join(f"{each:#018x}" for each in words[:_LISTED]),
    )


def _box(tensor_map: AnyMap) -> tuple[int, ...]:
    return tensor_map.box if isinstance(tensor_map, TensorMap) else ()


def _plans_of(tensor_map: AnyMap) -> Iterator[Plan]:
    """The plans whose tile is the map's box and which need one copy, for every reader and contiguous dimension."""
    if not isinstance(tensor_map, TensorMap) or len(tensor_map.box) != 2:
        return
    for consumer in _ARCHES:
        for major in MAJORS:
            yield from _candidates(tensor_map, consumer, major)


def _candidates(tensor_map: TensorMap, consumer: str, major: Major) -> Iterator[Plan]:
    columns, rows = tensor_map.box
    all_columns, all_rows = tensor_map.dims
    tile = oriented(major, rows, columns)
    try:
        report = plan(
            tile,
            tensor_map.data_type.name,
            major=major,
            consumer=consumer,
            arch=ARCH[_ARCHES[consumer]],
            swizzle=tensor_map.swizzle,
            global_shape=oriented(major, all_rows, all_columns),
            strides_bytes=tensor_map.strides_bytes,
        )
    except PlanError:
        return
    for candidate in report.candidates:
        if candidate.boxes is not None and not candidate.folded and candidate.boxes.box == tensor_map.box:
            yield candidate
