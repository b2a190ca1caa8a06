"""What the driver accepts and a careful engineer would want to know."""

from __future__ import annotations

from collections.abc import Iterator
from operator import lt

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import Says, checked, option_rule, rounded_up
from tilescope.tensor_map.rules.box import LARGEST_EXTENT, ROW_BITS
from tilescope.tensor_map.rules.samples import H200, MATRIX
from tilescope.tensor_map.tiled import TensorMap


def _exceeds_block(a: AnyMap) -> bool:
    """Whether a copy needs more shared memory than a block has; an interleaved box has at least three dimensions."""
    if min(a.element_strides) < 1 or (a.interleave.slice_bytes and a.rank < 3):
        return False
    return 0 < a.arch.smem_per_block_bytes < a.rows * a.pitch_bytes


@checked(
    "smem-capacity",
    "The shared memory of one copy fits the largest that a block can have.",
    _exceeds_block,
    severity="warning",
    source="CUDA programming guide, compute capabilities; the driver's own check can miss it",
    basis="documented",
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
def _smem_capacity(a: AnyMap, violation: Says) -> Iterator[Violation]:
    rows, pitch_bytes, most = a.rows, a.pitch_bytes, a.arch.smem_per_block_bytes
    argument = "box" if a.subject == "tiled" else "pixels_per_column"
    numbers = {"smem_bytes": rows * pitch_bytes, "rows": rows, "pitch_bytes": pitch_bytes, "most_bytes": most}
    found = f"a copy of {rows * pitch_bytes} shared bytes ({rows} rows of {pitch_bytes})"
    limit = f"a block of {a.arch.name} has at most {most} bytes"
    fix = f"Use boxes of at most {most // pitch_bytes} rows and more copies."
    yield violation(argument, found, limit, fix, None, **numbers)


@checked(
    "box-larger",
    "A box is no larger than the tensor; what lies beyond its end is filled.",
    lambda a: any(map(lt, a.dims, a.box)),
    severity="note",
    source=f"accepted by the driver ({H200})",
    subjects=("tiled",),
    passing=MATRIX | {"dims": (4096, 64)},
    failing=MATRIX | {"dims": (4096, 32)},
)
def _box_larger(a: TensorMap, violation: Says) -> Iterator[Violation]:
    wholes = list(a.dims)
    if a.interleave.slice_bytes:
        wholes[-2:-1] = a.box[-2:-1]  # one slice a copy, whatever the box says
    elif ROW_BITS % a.data_type.bits == 0:
        wholes[0] = rounded_up(wholes[0], ROW_BITS // a.data_type.bits)  # rows are multiples of 16 bytes
    trimmed = tuple(min(extent, max(whole, 1)) for extent, whole in zip(a.box, wholes, strict=True))
    for axis, (extent, dim) in enumerate(zip(a.box, a.dims, strict=True)):
        if trimmed[axis] < extent <= LARGEST_EXTENT and dim >= 1:
            argument = f"box[{axis}]"
            found, limit = (
                f"{argument} = {extent} over dims[{axis}] = {dim}",
                "the rest of the box is fill, and counts in the transaction",
            )
            fix = f"Use {argument} = {trimmed[axis]} unless the fill is wanted."
            yield violation(argument, found, limit, fix, {"box": trimmed}, extent=extent, dim=dim)


@checked(
    "store-overrun",
    "Rows of the tensor end on a multiple of 16 bytes, if it is ever stored to.",
    lambda a: not a.interleave.slice_bytes and a.dims[0] * a.data_type.bits % ROW_BITS and a.dims[0] > 0,
    severity="note",
    source=H200,
    passing=MATRIX,
    failing={"data_type": "bf16", "dims": (100, 64), "strides_bytes": (208,), "box": (64, 64)},
)
def _store_overrun(a: AnyMap, violation: Says) -> Iterator[Violation]:
    row_bits = a.dims[0] * a.data_type.bits
    beyond, inside = -row_bits % ROW_BITS // 8, row_bits % ROW_BITS / 8
    found = f"dims[0] = {a.dims[0]} elements end {inside:g} bytes into a 16-byte piece"
    limit = f"a store or reduction also overwrites the {beyond} bytes behind the last element of each row"
    fix = f"Pad every row by {beyond} bytes, or store its last elements with threads."
    numbers = {"elements": a.dims[0], "inside_bytes": inside, "overwritten_bytes": beyond}
    yield violation("dims[0]", found, limit, fix, None, **numbers)


@checked(
    "address-128",
    "Under a swizzle the global address is a multiple of 128 bytes.",
    lambda a: a.swizzle.bits and a.address % 128 and a.address % 16 == 0,
    severity="note",
    source="CUDA programming guide, swizzle table; 16 bytes are enough for the hardware",
    passing=MATRIX | {"swizzle": "128B", "address": 0x1080},
    failing=MATRIX | {"swizzle": "128B", "address": 0x1010},
)
def _address_128(a: AnyMap, violation: Says) -> Iterator[Violation]:
    found = f"address = {a.address:#x} under swizzle {a.swizzle.name}"
    limit = "the guide asks for 128 bytes; 16 is enough for the hardware"
    fix, change = "Align the allocation to 128 bytes for whole cache lines.", {"address": a.address // 128 * 128}
    yield violation("address", found, limit, fix, change, address=a.address)


SMALL_TENSOR_BYTES = 128 * 1024
CLEAR_SIZE_FLAG = "((uint64_t*)&map)[1] &= ~(1ull << 21)"
_BLACKWELL = architectures_with("packed_types")
_PADDED_ROWS = {"data_type": "bf16", "dims": (64, 64), "strides_bytes": (256,), "box": (64, 64), "arch": "sm_100"}


@checked(
    "descriptor-size-flag",
    "On Blackwell, bit 21 of word 1 is clear in the descriptor of a tensor that is not dense and whose memory is less than "
    "128 KiB.",
    lambda a: a.arch.name in _BLACKWELL and a.reach_bytes < SMALL_TENSOR_BYTES and not a.is_dense,
    severity="warning",
    source="NVIDIA, release notes of driver 595.71.05, known issues (quoted in triton-lang/triton#10442); CUTLASS and Triton "
    "clear the bit",
    basis="documented",
    architectures=_BLACKWELL,
    passing=_PADDED_ROWS | {"strides_bytes": (128,)},
    failing=_PADDED_ROWS,
)
def size_flag_check(a: AnyMap, violation: Says) -> Iterator[Violation]:
    """What drivers up to 595.71.05 may write wrongly for this tensor."""
    found = f"a tensor with gaps between its rows that spans {a.reach_bytes} bytes"
    limit = (
        "below 128 KiB, drivers up to 595.71.05 wrongly set bit 21 of word 1, and a copy now and then ends in an "
        "illegal access"
    )
    fix = f"Clear it after the encode call, as CUTLASS and Triton do: {CLEAR_SIZE_FLAG}."
    numbers = {"reach_bytes": a.reach_bytes, "limit_bytes": SMALL_TENSOR_BYTES}
    yield violation("strides_bytes", found, limit, fix, None, **numbers)


option_rule(
    "l2-256B",
    "Prefer L2 promotion 128B: 256B was never faster.",
    lambda a: a.l2_promotion.name == "256B",
    found="l2_promotion = 256B",
    limit="128B moved 7 to 14 % more bytes a second on an H200",
    change={"l2_promotion": "128B"},
    severity="note",
    source=f"{H200}: 256B never won",
    passing=MATRIX | {"l2_promotion": "128B"},
    failing=MATRIX | {"l2_promotion": "256B"},
)
