"""The sources that rules quote, and the maps and copies that they show their limits with."""

from __future__ import annotations

from typing import Any

Sample = dict[str, Any]
CUDA_H = "cuda.h, cuTensorMapEncodeTiled"
PTX_COPY = 'PTX ISA, "cp.async.bulk.tensor"'
PTX_REPLACE = 'PTX ISA, "tensormap.replace"'
H200 = "measured on an H200"

MATRIX: Sample = {"data_type": "bf16", "dims": (4096, 4096), "strides_bytes": (8192,), "box": (64, 64)}
BYTES: Sample = {"data_type": "u8", "dims": (256, 1024, 8), "strides_bytes": (256, 262144), "box": (256, 64, 8)}
# Channels in slices of 8: W, slices, N.
SLICES = {"data_type": "f16", "dims": (8, 8, 8), "strides_bytes": (256, 2048), "box": (8, 1, 8), "interleave": "16B"}
_PIXELS: Sample = {
    "data_type": "f16",
    "dims": (64, 32, 32, 8),
    "strides_bytes": (128, 4096, 131072),
    "channels_per_pixel": 64,
    "pixels_per_column": 64,
}
IMAGES = _PIXELS | {"lower_corner": (-1, -1), "upper_corner": (-1, -1)}
WIDE = _PIXELS | {"lower_width": -1, "upper_width": -1, "swizzle": "128B", "arch": "sm_100"}
# 4-bit values that take a byte in shared memory.
_FOUR_BITS = {"data_type": "16u4_align16b", "dims": (4096, 64), "strides_bytes": (2048,), "box": (128, 8)}
PADDED = _FOUR_BITS | {"swizzle": "128B", "arch": "sm_100"}
SIX_BITS = PADDED | {"data_type": "16u6_align16b", "strides_bytes": (3072,)}


def copy_sample(direction: str, *coords: int, **more: object) -> Sample:
    """A copy in an example, with its map."""
    return {"copy": {"direction": direction, "coords": coords} | more}
