"""What the hardware and the driver take of tensor maps and of copies through them: every limit once, by its name.

box        1 to 256 elements in each dimension, rows in multiples of 16 bytes, 228 KiB in all
tensor     1 to 5 dimensions of at most 2^32 elements, strides below 2^40 bytes, an address below 2^57
im2col     1 to 256 channels of 1 to 1024 pixels; corners of 16, 8 or 5 bits
copy       coordinates of 32 bits, shared addresses in multiples of 128 bytes, less than 2^20 bytes
"""

from __future__ import annotations

from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES

MAX_RANK = 5
LEAST_IM2COL_RANK = 3
LEAST_INTERLEAVED_RANK = 3  # W, channel slices, N

ADDRESS_END = 1 << 57
ALIGNMENT_BYTES = CHUNK_BYTES  # of addresses and strides
WIDE_ALIGNMENT_BYTES = 32  # of those under interleave 32B, and of the padded packed types
SWIZZLED_ALIGNMENT_BYTES = 128  # of addresses, as the guide requires; the hardware accepts 16
LARGEST_DIM = 1 << 32
STRIDE_END_BYTES = 1 << 40

LARGEST_BOX_EXTENT = 256  # elements in one dimension; channels of a pixel take the place of the innermost
LARGEST_BOX_BYTES = 228 * 1024  # the driver refuses boxes with more
LARGEST_ELEMENT_STRIDE = 8
LARGEST_PIXELS = 1024  # of an im2col column
ROW_BITS = CHUNK_BYTES * 8  # rows of a box are multiples of this
PADDED_ROW_ELEMENTS = 128  # values in a row of the padded packed types

CORNER_BITS = {3: 16, 4: 8, 5: 5}  # signed bits of an im2col corner, by rank
WIDE_CORNER_BITS = 16
WIDE_128_PIXELS = 128  # pixels that mode W128 loads, for every pixels_per_column

COORD_END = 1 << 31  # coordinates are signed 32-bit numbers
OFFSET_END = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}  # of im2col offsets, by rank
HALO_END = {"W": 512, "W128": 32}  # of im2col-wide copies, by mode
WIDE_OFFSET_END = 32
GATHERED_ROWS = 4  # of gather4 and scatter4
SMEM_ALIGNMENT_BYTES = SMEM_LINE_BYTES  # of the shared address of a copy
TRANSACTION_END_BYTES = 1 << 20  # an mbarrier counts fewer bytes than this

MAP_ALIGNMENT_BYTES = 64  # of the 128 bytes themselves: required by the copy and by the documentation of the call
SMALL_TENSOR_BYTES = 128 * 1024  # which drivers mark in a descriptor
