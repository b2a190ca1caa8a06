"""What counts although the driver accepts the map: advice, and what its own check misses."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd
from operator import lt

from tilescope.arch import architectures_with
from tilescope.arithmetic import rounded_up
from tilescope.errors import Violation
from tilescope.rule import rule
from tilescope.tensor_map.checking import MAPS, TMA_ARCHITECTURES, Check
from tilescope.tensor_map.limits import (
    ALIGNMENT_BYTES,
    LARGEST_BOX_EXTENT,
    LEAST_INTERLEAVED_RANK,
    ROW_BITS,
    SMALL_TENSOR_BYTES,
    SWIZZLED_ALIGNMENT_BYTES,
)
from tilescope.tensor_map.map_object import CLEAR_SIZE_FLAG, SIZE_FLAG_BUG
from tilescope.tensor_map.record import MapRecord, TiledRecord
from tilescope.tensor_map.samples import BYTES, H200, MATRIX

SMEM_CAPACITY = rule(
    "smem-capacity",
    "The shared memory of one copy is at most the largest that a block can have.",
    argument="box",
    found="a copy of {smem_bytes} shared bytes ({rows} rows of {pitch_bytes})",
    limit="a block of {arch} has at most {most_bytes} bytes",
    fix="Use copies of at most {most_rows} rows.",
    source="CUDA programming guide, compute capabilities; the driver's own check can miss it",
    severity="warning",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=BYTES | {"swizzle": "128B", "box": (128, 64, 8)},
    failing=BYTES | {"swizzle": "128B", "box": (16, 256, 256), "element_strides": (1, 5, 1)},
)
_COLUMN_CAPACITY = SMEM_CAPACITY.worded(argument="pixels_per_column")


def _is_beyond_block(a: MapRecord) -> bool:
    if min(a.element_strides) < 1:
        return False  # the rows of such a copy cannot be counted
    return a.smem_bytes > a.arch.smem_per_block_bytes


def _is_interleaved_beyond_block(a: MapRecord) -> bool:
    return len(a.dims) >= LEAST_INTERLEAVED_RANK and _is_beyond_block(a)


def _beyond_block(a: MapRecord) -> Iterator[Violation]:
    wording = SMEM_CAPACITY if a.subject == "tiled" else _COLUMN_CAPACITY
    most_bytes = a.arch.smem_per_block_bytes
    yield wording.violation(
        smem_bytes=a.smem_bytes,
        rows=a.rows,
        pitch_bytes=a.pitch_bytes,
        arch=a.arch.name,
        most_bytes=most_bytes,
        most_rows=most_bytes // a.pitch_bytes,
    )


BOX_LARGER = rule(
    "box-larger",
    "A box is not larger than the tensor; elements beyond the tensor are filled.",
    argument="box[{axis}]",
    found="box[{axis}] = {extent} over dims[{axis}] = {dim}",
    limit="the rest of the box is fill, and counts in the transaction",
    fix="Use box[{axis}] = {taken} unless the fill is wanted.",
    source=f"accepted by the driver ({H200})",
    basis="measured",
    severity="note",
    subjects=("tiled",),
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"dims": (4096, 64)},
    failing=MATRIX | {"dims": (4096, 32)},
)


def _larger_extents(a: TiledRecord) -> Iterator[Violation]:
    useful_extents = list(a.dims)  # what is worth copying
    if a.is_interleaved:
        useful_extents[-2:-1] = a.box[-2:-1]  # one slice per copy, for every box
    elif ROW_BITS % a.data_type.bits == 0:
        # rows are multiples of 16 bytes
        useful_extents[0] = rounded_up(useful_extents[0], ROW_BITS // a.data_type.bits)
    trimmed = tuple(min(extent, max(useful, 1)) for extent, useful in zip(a.box, useful_extents, strict=True))
    for axis, (extent, dim) in enumerate(zip(a.box, a.dims, strict=True)):
        if trimmed[axis] < extent <= LARGEST_BOX_EXTENT and dim >= 1:
            yield BOX_LARGER.violation(axis=axis, extent=extent, dim=dim, taken=trimmed[axis], change={"box": trimmed})


STORE_OVERRUN = rule(
    "store-overrun",
    "Rows of a tensor that is stored to end at a multiple of 16 bytes.",
    argument="dims[0]",
    found="dims[0] = {elements} elements end {inside_bytes:g} bytes into a 16-byte piece",
    limit="a store or reduction also overwrites the {overwritten_bytes} bytes after the last element of each row",
    fix="Use dims[0] = {whole} if those bytes are padding, or store the last elements of each row with threads.",
    source=H200,
    basis="measured",
    severity="note",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX,
    failing=MATRIX | {"dims": (100, 64), "strides_bytes": (208,)},
)


def _overrun_rows(a: MapRecord) -> Iterator[Violation]:
    row_bits = a.dims[0] * a.data_type.bits
    yield STORE_OVERRUN.violation(
        elements=a.dims[0],
        inside_bytes=row_bits % ROW_BITS / 8,
        overwritten_bytes=-row_bits % ROW_BITS // 8,
        whole=rounded_up(a.dims[0], ROW_BITS // gcd(ROW_BITS, a.data_type.bits)),
    )


ADDRESS_128 = rule(
    "address-128",
    "Under a swizzle the global address is a multiple of 128 bytes.",
    argument="address",
    found="address = {address:#x} under swizzle {swizzle}",
    limit="the guide requires 128 bytes; 16 is enough for the hardware",
    fix="Align the allocation to 128 bytes for whole cache lines.",
    source="CUDA programming guide, swizzle table; 16 bytes are enough for the hardware",
    basis="measured",
    severity="note",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"swizzle": "128B", "address": 0x1080},
    failing=MATRIX | {"swizzle": "128B", "address": 0x1010},
)


def _off_cache_lines(a: MapRecord) -> Iterator[Violation]:
    start = a.address // SWIZZLED_ALIGNMENT_BYTES * SWIZZLED_ALIGNMENT_BYTES
    yield ADDRESS_128.violation(address=a.address, swizzle=a.swizzle.name, change={"address": start})


_BLACKWELL = architectures_with("packed_types")
_WITH_GAPS = MATRIX | {"dims": (64, 64), "strides_bytes": (256,), "arch": "sm_100"}
SIZE_FLAG = rule(
    "descriptor-size-flag",
    "On Blackwell, bit 21 of word 1 is clear in the descriptor of a tensor that is not dense and whose memory is less than "
    "128 KiB.",
    argument="strides_bytes",
    found="a tensor with gaps between its rows that spans {reach_bytes} bytes",
    limit=SIZE_FLAG_BUG,
    fix=CLEAR_SIZE_FLAG,
    source="NVIDIA, release notes of drivers 595.71.05 (quoted in triton-lang/triton#10442) and 595.91.07, known issues; "
    "CUTLASS and Triton clear the bit",
    severity="warning",
    subjects=MAPS,
    architectures=_BLACKWELL,
    passing=_WITH_GAPS | {"strides_bytes": (128,)},
    failing=_WITH_GAPS,
)


def _small_with_gaps(a: MapRecord) -> Iterator[Violation]:
    yield SIZE_FLAG.violation(reach_bytes=a.reach_bytes)


L2_256B = rule(
    "l2-256B",
    "Prefer L2 promotion 128B: 256B was never faster.",
    argument="l2_promotion",
    found="l2_promotion = 256B",
    limit="128B moved 7 to 14 % more bytes a second on an H200",
    fix='Use {l2_promotion:="128B"}.',
    source=f"{H200}: 256B never won",
    basis="measured",
    severity="note",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"l2_promotion": "128B"},
    failing=MATRIX | {"l2_promotion": "256B"},
)


def _wide_promotion(_: MapRecord) -> Iterator[Violation]:
    yield L2_256B.violation(change={"l2_promotion": "128B"})


CHECKS = (
    Check(
        SMEM_CAPACITY,
        reads=("arch", "interleave", "swizzle", "data_type", "element_strides", "inner_elements", "rows"),
        find=_beyond_block,
        broken=_is_beyond_block,
        concerns=lambda options: not options.is_interleaved,
    ),
    Check(
        SMEM_CAPACITY,
        reads=("arch", "interleave", "element_strides", "pixels"),
        find=_beyond_block,
        broken=_is_interleaved_beyond_block,
        concerns=lambda options: options.is_interleaved,
    ),
    Check(
        BOX_LARGER,
        reads=("dims", "box", "interleave", "step_bits"),
        find=_larger_extents,
        broken=lambda a: any(map(lt, a.dims, a.box)),
    ),
    Check(
        STORE_OVERRUN,
        reads=("interleave", "dims", "data_type"),
        find=_overrun_rows,
        broken=lambda a: a.dims[0] > 0 and a.dims[0] * a.data_type.bits % ROW_BITS != 0,
        concerns=lambda options: not options.is_interleaved,
    ),
    Check(
        ADDRESS_128,
        reads=("swizzle", "address"),
        find=_off_cache_lines,
        broken=lambda a: a.address % SWIZZLED_ALIGNMENT_BYTES != 0 and a.address % ALIGNMENT_BYTES == 0,
        concerns=lambda options: options.swizzle.bits > 0,
    ),
    Check(
        SIZE_FLAG,
        reads=("arch", "interleave", "step_bits", "dims", "strides_bytes"),
        find=_small_with_gaps,
        broken=lambda a: a.reach_bytes < SMALL_TENSOR_BYTES and not a.is_dense,
        concerns=lambda options: options.arch.name in _BLACKWELL,
    ),
    Check(
        L2_256B,
        reads=("l2_promotion",),
        find=_wide_promotion,
        concerns=lambda options: options.l2_promotion.name == "256B",
    ),
)
