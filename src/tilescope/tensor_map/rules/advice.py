"""What the driver accepts and a careful engineer would want to know."""

from __future__ import annotations

from tilescope.arch import architectures_with
from tilescope.tensor_map.checking import Breach, Found, checked
from tilescope.tensor_map.geometry import Geometry, TiledGeometry, rounded_up
from tilescope.tensor_map.rules.box import LARGEST_EXTENT, ROW_BITS
from tilescope.tensor_map.rules.samples import H200, MATRIX


@checked(
    "smem-capacity",
    "The shared memory of one copy fits the largest that a block can have.",
    severity="warning",
    source="CUDA programming guide, compute capabilities; the driver's own check can miss it",
    basis="documented",
    reads=(
        *("box", "channels_per_pixel", "pixels_per_column", "mode", "element_strides"),
        *("data_type", "swizzle", "interleave", "dims", "arch"),
    ),
    passing=MATRIX | {"box": (64, 256), "swizzle": "128B"},
    failing={
        "data_type": "u8",
        "dims": (16, 256, 256),
        "strides_bytes": (16, 4096),
        "box": (16, 256, 256),
        "element_strides": (1, 5, 1),
        "swizzle": "128B",
    },
)
def _smem_capacity(a: Geometry) -> Found:
    if min(a.element_strides, default=1) < 1 or (a.interleave.slice_bytes and a.rank < 3):
        return ()
    rows, pitch_bytes = a.rows, a.pitch_bytes
    if not 0 < a.arch.smem_per_block_bytes < rows * pitch_bytes:
        return ()
    return Breach(
        "box" if a.subject == "tiled" else "pixels_per_column",
        f"a copy of {rows * pitch_bytes} shared bytes ({rows} rows of {pitch_bytes})",
        f"a block of {a.arch.name} has at most {a.arch.smem_per_block_bytes} bytes",
        "Use a smaller box and more copies.",
        values={"smem_bytes": rows * pitch_bytes, "rows": rows, "pitch_bytes": pitch_bytes},
    )


@checked(
    "box-larger", "A box is no larger than the tensor; what lies beyond its end is filled.", severity="note",
    source=f"accepted by the driver ({H200})", subjects=("tiled",), reads=("box", "dims", "data_type", "interleave"),
    passing=MATRIX | {"dims": (4096, 64)}, failing=MATRIX | {"dims": (4096, 32)},
)  # fmt: skip
def _box_larger(a: TiledGeometry) -> Found:
    for extent, whole in zip(a.box, a.dims, strict=True):
        if whole < extent:
            break
    else:
        return ()
    wholes = list(a.dims)
    if a.interleave.slice_bytes:
        wholes[-2:-1] = a.box[-2:-1]  # one slice a copy, whatever the box says
    elif ROW_BITS % a.data_type.bits == 0:
        wholes[0] = rounded_up(wholes[0], ROW_BITS // a.data_type.bits)  # rows are multiples of 16 bytes
    trimmed = tuple(min(extent, max(whole, 1)) for extent, whole in zip(a.box, wholes, strict=True))
    return [
        Breach(
            f"box[{axis}]",
            f"box[{axis}] = {extent} over dims[{axis}] = {a.dims[axis]}",
            "the rest of the box is fill, and counts in the transaction",
            f"Use box[{axis}] = {trimmed[axis]} unless the fill is wanted.",
            {"box": trimmed},
            {"extent": extent, "dim": a.dims[axis]},
        )
        for axis, extent in enumerate(a.box)
        if trimmed[axis] < extent <= LARGEST_EXTENT and a.dims[axis] >= 1
    ]


@checked(
    "store-overrun", "Rows of the tensor end on a multiple of 16 bytes, if it is ever stored to.", severity="note",
    source=H200, reads=("dims", "data_type", "interleave"), passing=MATRIX,
    failing={"data_type": "bf16", "dims": (100, 64), "strides_bytes": (208,), "box": (64, 64)},
)  # fmt: skip
def _store_overrun(a: Geometry) -> Found:
    row_bits = a.dims[0] * a.data_type.bits
    if row_bits % ROW_BITS == 0 or a.interleave.slice_bytes or row_bits < 0:
        return ()
    beyond = -row_bits % ROW_BITS // 8
    inside = row_bits % ROW_BITS / 8
    return Breach(
        "dims[0]", f"dims[0] = {a.dims[0]} elements end {inside:g} bytes into a 16-byte piece",
        f"a store or reduction also overwrites the {beyond} bytes behind the last element of each row",
        f"Pad every row by {beyond} bytes, or store its last elements with threads.",
        values={"elements": a.dims[0], "inside_bytes": inside, "overwritten_bytes": beyond},
    )  # fmt: skip


@checked(
    "address-128", "Under a swizzle the global address is a multiple of 128 bytes.", severity="note",
    source="CUDA programming guide, swizzle table; 16 bytes are enough for the hardware", reads=("address", "swizzle"),
    passing=MATRIX | {"swizzle": "128B", "address": 0x1080}, failing=MATRIX | {"swizzle": "128B", "address": 0x1010},
)  # fmt: skip
def _address_128(a: Geometry) -> Found:
    if a.address % 128 == 0 or not a.swizzle.bits or a.address % 16:
        return ()
    return Breach(
        "address", f"address = {a.address:#x} under swizzle {a.swizzle.name}",
        "the guide asks for 128 bytes; 16 is enough for the hardware",
        "Align the allocation to 128 bytes for whole cache lines.", {"address": a.address // 128 * 128},
        {"address": a.address},
    )  # fmt: skip


SMALL_TENSOR_BYTES = 128 * 1024
CLEAR_SIZE_FLAG = "((uint64_t*)&map)[1] &= ~(1ull << 21)"
_BLACKWELL = architectures_with("packed_types")
_PADDED_ROWS = {"data_type": "bf16", "dims": (64, 64), "strides_bytes": (256,), "box": (64, 64), "arch": "sm_100"}


@checked(
    "descriptor-size-flag",
    "On Blackwell, bit 21 of word 1 is clear in the descriptor of a tensor that is not dense and whose memory is less than "
    "128 KiB.",
    severity="warning",
    source="NVIDIA, release notes of driver 595.71.05, known issues (quoted in triton-lang/triton#10442); CUTLASS and Triton "
    "clear the bit",
    basis="documented",
    reads=("strides_bytes", "dims", "data_type", "interleave", "arch"),
    architectures=_BLACKWELL,
    passing=_PADDED_ROWS | {"strides_bytes": (128,)},
    failing=_PADDED_ROWS,
)
def size_flag_check(a: Geometry) -> Found:
    """What drivers up to 595.71.05 may write wrongly for this tensor."""
    if a.arch.name not in _BLACKWELL or a.reach_bytes >= SMALL_TENSOR_BYTES or a.is_dense:
        return ()
    return Breach(
        "strides_bytes",
        f"a tensor with gaps between its rows that spans {a.reach_bytes} bytes",
        "below 128 KiB, drivers up to 595.71.05 wrongly set bit 21 of word 1, and a copy now and then ends in an illegal "
        "access",
        f"Clear it after the encode call, as CUTLASS and Triton do: {CLEAR_SIZE_FLAG}.",
        values={"reach_bytes": a.reach_bytes, "limit_bytes": SMALL_TENSOR_BYTES},
    )


@checked(
    "l2-256B", "Prefer L2 promotion 128B: 256B was never faster.", severity="note", source=f"{H200}: 256B never won",
    reads=("l2_promotion",), passing=MATRIX | {"l2_promotion": "128B"}, failing=MATRIX | {"l2_promotion": "256B"},
)  # fmt: skip
def _l2_256(a: Geometry) -> Found:
    if a.l2_promotion.name != "256B":
        return ()
    return Breach(
        "l2_promotion", "l2_promotion = 256B", "128B moved 7 to 14 % more bytes a second on an H200",
        'Use l2_promotion="128B".', {"l2_promotion": "128B"},
    )  # fmt: skip
