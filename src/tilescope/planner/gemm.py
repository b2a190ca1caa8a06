"""`plan_gemm`: its arguments are read and checked, then the best tile is searched for.

    for every k tile: A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ slices of the tile ─▶ C
                      B (tile_n x tile_k) ─┘

`gemm_choices.py` lists the tiles worth trying, and `gemm_search.py` plans them. The cheapest tile is the answer.
"""

from __future__ import annotations

from typing import Any

from tilescope.arch import Arch, ArchName
from tilescope.card import Card, CardName
from tilescope.data_type import DataType, elements_of_format
from tilescope.errors import PlanError
from tilescope.layout import Major, major_named
from tilescope.mma.consumer import CONSUMER, consumers_of
from tilescope.mma.scale_format import ScaleFormat
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.fused_checks import BATCH_OF_EXPERTS, ROWS_WITHOUT_EXPERTS, unfused_product
from tilescope.planner.fused_epilogue import PLAIN_EPILOGUE, Fused
from tilescope.planner.gemm_batch import EXPERT_ROWS, LARGEST_BATCH, ONE, Batch, Rows
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_request import GemmRequest
from tilescope.planner.gemm_schedule import LARGEST_PARTS, LARGEST_SPLIT
from tilescope.planner.gemm_search import plan_best_tile
from tilescope.planner.multicast_parts import LARGEST_CLUSTER
from tilescope.planner.obstacle import violations
from tilescope.planner.problem import LARGEST_STAGES, resolve_card
from tilescope.planner.product import Product
from tilescope.planner.product_checks import product_problems
from tilescope.reading import flag, integer, integers, known_name, pair, plain_int

LARGEST_SMS = 1024
LARGEST_MATRIX_EXTENT = 1 << 32
_SCALED_ELEMENTS = ("e4m3", "e2m1")  # of formats that are planned by their name


def plan_gemm(
    m: int,
    n: int,
    k: int,
    data_type: Any,
    *,
    arch: ArchName | Arch | None = None,
    card: CardName | Card | None = None,
    consumer: str | None = None,
    a_major: Major = "K",
    b_major: Major = "K",
    output_type: Any = None,
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    sms: int | None = None,
    swapped: bool | None = None,
    split: int | None = None,
    parts: int | None = None,
    group: int | None = None,
    tail: int | None = None,
    dependent: bool = False,
    cta_group: int | None = None,
    dynamic: bool = False,
    multicast: int | tuple[int, int] | None = None,
    ping_pong: bool | None = None,
    scales: Any = None,
    epilogue: Any = None,
    batch: int | None = None,
    experts: int | None = None,
    rows: Rows | None = None,
) -> GemmPlan:
    """Tile shape, stages, swizzles, maps and shared-memory budget of a GEMM, planned together.

    Defaults (None) are the architecture of the card (sm_90 and an H200 without either), its consumer (tcgen05, wgmma or
    ldmatrix) and its SMs. C has the type of the operands; bf16 for 4- to 8-bit types, int32 for b1. `dependent` plans for
    programmatic dependent launch; the previous kernel must not write B. With `cta_group=2`, pairs of blocks use tcgen05, and
    `tile` is the tile of the pair. With `dynamic`, tcgen05 blocks request their next tile by cluster launch control. With
    `multicast=(2, 1)`, two tiles along m form a cluster and share B; with (1, 2), two tiles along n share A. With `ping_pong`,
    two warpgroups of wgmma alternate between tiles. PlanError has the reasons if the product, or the tile, cannot be planned.

    `data_type` may be a format of elements with scale factors for blocks of k: "mxfp8", "mxfp4" or "nvfp4". `scales` names the
    format if the elements are not its default ones: plan_gemm(…, "e5m2", scales="mxfp8"). For 8-bit floats on sm_90,
    scales="block128" has float32 scales for 1 x 128 elements of A and 128 x 128 of B, which the kernel applies in registers.
    "e2m1" without scales is loaded as 16u4_align16b, a byte of shared memory for each element, as kind f8f6f4 reads it.

    `epilogue` is fused with the product: words of scale, bias, relu, gelu, silu, swiglu, swiglu-interleaved and residual, joined
    by +. `batch` products of this shape are stored one after the other. `experts` is the number of groups, each with a separate
    B and m rows of A on average; `rows` is their layout: "contiguous" (groups start at multiples of the tile's m) or "masked".

    >>> low_batch = plan_gemm(8, 4096, 14336, "bf16")
    >>> low_batch.tile, low_batch.schedule, low_batch.b.swizzle.name
    ((8, 64, 128), Schedule(swapped=True, parts=2), '128B')
    >>> pair = plan_gemm(8192, 8192, 8192, "bf16", card="B200")
    >>> pair.tile, pair.a.problem.tile, pair.b.problem.tile, pair.schedule.cta_group
    ((256, 256, 64), (128, 64), (128, 64), 2)
    """
    sms = None if sms is None else integer("sms", sms, 1, LARGEST_SMS)
    stages = None if stages is None else integer("stages", stages, 1, LARGEST_STAGES)
    in_blocks = isinstance(scales, str) and scales == BLOCK_SCALES
    row, scale_format = _read_elements(data_type, None if in_blocks else scales)
    target, device = resolve_card(arch, card)
    output = _choose_output_type(row) if output_type is None else DataType.named(output_type)
    product = Product(
        data_type=row,
        output_type=output,
        arch=target,
        card=device,
        consumer=consumers_of(target)[0] if consumer is None else known_name("consumer", consumer, CONSUMER),
        shape=(
            integer("m", m, 1, LARGEST_MATRIX_EXTENT),
            integer("n", n, 1, LARGEST_MATRIX_EXTENT),
            integer("k", k, 1, LARGEST_MATRIX_EXTENT),
        ),
        a_major=major_named(a_major, "a_major"),
        b_major=major_named(b_major, "b_major"),
        sms=device.sms if sms is None and device is not None else sms,
        scales=scale_format,
        batch=_read_batch(batch, experts, rows),
        fused=PLAIN_EPILOGUE if epilogue is None else Fused.named(epilogue),
        block_scales=in_blocks,
    )
    requested_tile = None
    if tile is not None:
        tile_m, tile_n, tile_k = integers("tile", tile, 3, 1, LARGEST_MATRIX_EXTENT)
        requested_tile = (tile_m, tile_n, tile_k)
    if problems := violations([*product_problems(product), *unfused_product(product)]):
        raise PlanError(problems)
    request = GemmRequest(
        tile=requested_tile,
        stages=stages,
        swapped=None if swapped is None else flag("swapped", swapped),
        split=None if split is None else integer("split", split, 1, LARGEST_SPLIT),
        parts=None if parts is None else integer("parts", parts, 1, LARGEST_PARTS),
        group=None if group is None else integer("group", group, 0, LARGEST_MATRIX_EXTENT),
        tail=None if tail is None else integer("tail", tail, 1, LARGEST_PARTS),
        dependent=flag("dependent", dependent),
        cta_group=None if cta_group is None else integer("cta_group", cta_group, 1, 2),
        dynamic=flag("dynamic", dynamic),
        multicast=None if multicast is None else _read_multicast(multicast),
        ping_pong=None if ping_pong is None else flag("ping_pong", ping_pong),
    )
    return plan_best_tile(product, request)


def _read_multicast(multicast: object) -> tuple[int, int]:
    """Tiles along m and along n that a cluster shares; a number is those along m."""
    along_m_and_n = multicast if plain_int(multicast) is None else (multicast, 1)
    return pair("multicast", along_m_and_n, 1, LARGEST_CLUSTER)


def _read_elements(data_type: object, scales: object) -> tuple[DataType, ScaleFormat | None]:
    """The type of the elements, and the format of their scale factors.

    >>> _read_elements("nvfp4", None)
    (DataType.named('e2m1'), ScaleFormat.named('nvfp4'))
    >>> _read_elements("e5m2", "mxfp8")[1].block
    32
    """
    elements = elements_of_format(data_type)
    if scales is not None:
        return elements or DataType.named(data_type), ScaleFormat.named(scales)
    if elements is None or elements.ptx not in _SCALED_ELEMENTS:
        return DataType.named(data_type), None
    return elements, ScaleFormat.named(data_type)


def _read_batch(batch: int | None, experts: int | None, rows: Rows | None) -> Batch:
    """How many products there are, and how their rows are stored."""
    if experts is None:
        if rows is not None:
            raise ROWS_WITHOUT_EXPERTS.error(rows=rows)
        return ONE if batch is None else Batch(integer("batch", batch, 1, LARGEST_BATCH))
    if batch is not None:
        raise BATCH_OF_EXPERTS.error(batch=batch, experts=experts)
    count = integer("experts", experts, 1, LARGEST_BATCH)
    return Batch(count, "contiguous" if rows is None else known_name("rows", rows, EXPERT_ROWS))


def _choose_output_type(operands: DataType) -> DataType:
    """The default type of C: bf16 for 4- to 8-bit operands, since it can hold their sums, else the operands' type."""
    if operands.name == "b1":
        return DataType.named("s32")
    return operands if operands.bits > 8 else DataType.named("bf16")
