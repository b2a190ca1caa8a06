"""What the driver accepts and a careful engineer would want to know."""

from __future__ import annotations

from operator import lt

from tilescope.arch import architectures_with
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Facts, ManyFacts, checked, rounded_up
from tilescope.tensor_map.kinds import TensorMap
from tilescope.tensor_map.rules.tensor import LARGEST_EXTENT, ROW_BITS
from tilescope.tensor_map.samples import BYTES, H200, MATRIX


def _exceeds_block(a: AnyMap) -> Facts | None:
    """A copy that needs more shared memory than a block has; an interleaved box has at least three dimensions."""
    most_bytes = a.arch.smem_per_block_bytes
    is_countable = min(a.element_strides) >= 1 and (a.rank >= 3 or not a.interleave.slice_bytes)
    if not is_countable or not 0 < most_bytes < a.smem_bytes:
        return None
    facts = {name: getattr(a, name) for name in ("smem_bytes", "rows", "pitch_bytes")}
    argument = "box" if a.subject == "tiled" else "pixels_per_column"
    return facts | {"argument": argument, "most_bytes": most_bytes, "most_rows": most_bytes // a.pitch_bytes}


checked(
    "smem-capacity",
    "The shared memory of one copy fits the largest that a block can have.",
    _exceeds_block,
    "{argument}",
    "a copy of {smem_bytes} shared bytes ({rows} rows of {pitch_bytes})",
    "a block of {a.arch.name} has at most {most_bytes} bytes",
    "Use copies of at most {most_rows} rows.",
    severity="warning",
    documented="CUDA programming guide, compute capabilities; the driver's own check can miss it",
    examples=(
        BYTES | {"swizzle": "128B"},
        {"box": (128, 64, 8)},
        {"box": (16, 256, 256), "element_strides": (1, 5, 1)},
    ),
)


def _larger_extents(a: TensorMap) -> ManyFacts:
    wholes = list(a.dims)
    if a.interleave.slice_bytes:
        wholes[-2:-1] = a.box[-2:-1]  # one slice a copy, whatever the box says
    elif ROW_BITS % a.data_type.bits == 0:
        wholes[0] = rounded_up(wholes[0], ROW_BITS // a.data_type.bits)  # rows are multiples of 16 bytes
    trimmed = tuple(min(extent, max(whole, 1)) for extent, whole in zip(a.box, wholes, strict=True))
    for axis, (extent, dim) in enumerate(zip(a.box, a.dims, strict=True)):
        if trimmed[axis] < extent <= LARGEST_EXTENT and dim >= 1:
            yield {"axis": axis, "extent": extent, "dim": dim, "taken": trimmed[axis], "change": {"box": trimmed}}


checked(
    "box-larger",
    "A box is no larger than the tensor; what lies beyond its end is filled.",
    lambda a: any(map(lt, a.dims, a.box)) and _larger_extents(a),
    "box[{axis}]",
    "box[{axis}] = {extent} over dims[{axis}] = {dim}",
    "the rest of the box is fill, and counts in the transaction",
    "Use box[{axis}] = {taken} unless the fill is wanted.",
    severity="note",
    source=f"accepted by the driver ({H200})",
    subjects=("tiled",),
    examples=(MATRIX, {"dims": (4096, 64)}, {"dims": (4096, 32)}),
)


checked(
    "store-overrun",
    "Rows of the tensor end on a multiple of 16 bytes, if it is ever stored to.",
    lambda a: not a.interleave.slice_bytes and a.dims[0] * a.data_type.bits % ROW_BITS and a.dims[0] > 0,
    "dims[0]",
    "dims[0] = {elements} elements end {inside_bytes:g} bytes into a 16-byte piece",
    "a store or reduction also overwrites the {overwritten_bytes} bytes behind the last element of each row",
    "Pad every row by {overwritten_bytes} bytes, or store its last elements with threads.",
    values=lambda a: {
        "elements": a.dims[0],
        "inside_bytes": a.dims[0] * a.data_type.bits % ROW_BITS / 8,
        "overwritten_bytes": -a.dims[0] * a.data_type.bits % ROW_BITS // 8,
    },
    severity="note",
    source=H200,
    examples=(MATRIX, {}, {"dims": (100, 64), "strides_bytes": (208,)}),
)
checked(
    "address-128",
    "Under a swizzle the global address is a multiple of 128 bytes.",
    lambda a: a.swizzle.bits and a.address % 128 and a.address % 16 == 0,
    "address",
    "address = {address:#x} under swizzle {a.swizzle.name}",
    "the guide asks for 128 bytes; 16 is enough for the hardware",
    "Align the allocation to 128 bytes for whole cache lines.",
    values=lambda a: {"address": a.address, "change": {"address": a.address // 128 * 128}},
    severity="note",
    source="CUDA programming guide, swizzle table; 16 bytes are enough for the hardware",
    examples=(MATRIX, {"swizzle": "128B", "address": 0x1080}, {"swizzle": "128B", "address": 0x1010}),
)

SMALL_TENSOR_BYTES = 128 * 1024
CLEAR_SIZE_FLAG = "Clear it after the encode call, as CUTLASS and Triton do: ((uint64_t*)&map)[1] &= ~(1ull << 21)."
_BLACKWELL = architectures_with("packed_types")
SIZE_FLAG = checked(
    "descriptor-size-flag",
    "On Blackwell, bit 21 of word 1 is clear in the descriptor of a tensor that is not dense and whose memory is less than "
    "128 KiB.",
    lambda a: a.arch.name in _BLACKWELL and a.reach_bytes < SMALL_TENSOR_BYTES and not a.is_dense,
    "strides_bytes",
    "a tensor with gaps between its rows that spans {reach_bytes} bytes",
    "below 128 KiB, drivers up to 595.71.05 wrongly set bit 21 of word 1, and a copy now and then ends in an illegal "
    "access",
    CLEAR_SIZE_FLAG,
    values=lambda a: {"reach_bytes": a.reach_bytes},
    severity="warning",
    documented="NVIDIA, release notes of driver 595.71.05, known issues (quoted in triton-lang/triton#10442); CUTLASS and "
    "Triton clear the bit",
    architectures=_BLACKWELL,
    examples=(MATRIX | {"dims": (64, 64), "strides_bytes": (256,), "arch": "sm_100"}, {"strides_bytes": (128,)}, {}),
)
checked(
    "l2-256B",
    "Prefer L2 promotion 128B: 256B was never faster.",
    lambda a: a.l2_promotion.name == "256B",
    found="l2_promotion = 256B",
    limit="128B moved 7 to 14 % more bytes a second on an H200",
    change={"l2_promotion": "128B"},
    severity="note",
    source=f"{H200}: 256B never won",
    examples=(MATRIX, {"l2_promotion": "128B"}, {"l2_promotion": "256B"}),
)
