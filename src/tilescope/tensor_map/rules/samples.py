"""The maps that rules show their limits with, and the sources that they quote."""

from __future__ import annotations

CUDA_H = "cuda.h, cuTensorMapEncodeTiled"
CUDA_H_IM2COL = "cuda.h, cuTensorMapEncodeIm2col"
CUDA_H_WIDE = "cuda.h, cuTensorMapEncodeIm2colWide"
PTX_COPY = 'PTX ISA, "cp.async.bulk.tensor"'
PTX_REPLACE = 'PTX ISA, "tensormap.replace"'
H200 = "measured on an H200"

MATRIX = {"data_type": "bf16", "dims": (4096, 4096), "strides_bytes": (8192,), "box": (64, 64)}
BYTES = {"data_type": "u8", "dims": (256, 1024, 8), "strides_bytes": (256, 262144), "box": (256, 64, 8)}
SLICES = {  # channels in slices of 8: W, slices, N
    "data_type": "f16",
    "dims": (8, 8, 8),
    "strides_bytes": (256, 2048),
    "box": (8, 1, 8),
    "interleave": "16B",
}
IMAGES = {
    "data_type": "f16",
    "dims": (64, 32, 32, 8),
    "strides_bytes": (128, 4096, 131072),
    "lower_corner": (-1, -1),
    "upper_corner": (-1, -1),
    "channels_per_pixel": 64,
    "pixels_per_column": 64,
}
WIDE = {
    "data_type": "f16",
    "dims": (64, 32, 32, 8),
    "strides_bytes": (128, 4096, 131072),
    "lower_width": -1,
    "upper_width": -1,
    "channels_per_pixel": 64,
    "pixels_per_column": 64,
    "swizzle": "128B",
    "arch": "sm_100",
}
PADDED = {  # 4-bit values that take a byte each in shared memory
    "data_type": "16u4_align16b",
    "dims": (4096, 64),
    "strides_bytes": (2048,),
    "box": (128, 8),
    "swizzle": "128B",
    "arch": "sm_100",
}
SIX_BITS = PADDED | {"data_type": "16u6_align16b", "strides_bytes": (3072,)}
