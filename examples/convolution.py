"""A 3 x 3 convolution as a matrix product: im2col copies bring the pixels of one filter tap, wgmma's operand A.

Nothing is unfolded in memory. Every tap of the filter is one more copy with other offsets, and the padding is filled by the
copy itself. The sum over taps and channels equals a convolution written as loops.

    $ python examples/convolution.py
    base positions from (-1, -1), up to (-1, -1) off the last pixel
    GEMM of m, n, k = 64, 32, 576: 9 taps, 8192 bytes a copy
    equal to a convolution written as loops: True
"""

import numpy as np

import tilescope as ts

n, height, width, channels, filters = 1, 8, 8, 64, 32
random = np.random.default_rng(0)
image = random.integers(-3, 4, (n, height, width, channels)).astype(np.float16)
weights = random.integers(-3, 4, (filters, 3, 3, channels)).astype(np.float16)

convolution = ts.Im2colMap.for_convolution(
    n,
    height,
    width,
    channels,
    3,
    3,
    pad=1,
    data_type="f16",
    channels_per_pixel=64,
    pixels_per_column=64,
    swizzle="128B",
)
tensor_map = convolution.tensor_map
print(f"base positions from {tensor_map.lower_corner}, up to {tensor_map.upper_corner} off the last pixel")
print(
    f"GEMM of m, n, k = {convolution.gemm[0]}, {filters}, {convolution.gemm[2]}: 9 taps, {tensor_map.smem_bytes} bytes a copy"
)

product = np.zeros((height * width, filters), np.float32)
for (row, column), offsets in convolution.taps:
    smem = ts.load(tensor_map, image, convolution.coords(0, 0), offsets=offsets)
    pixels = tensor_map.swizzle.unswizzle(smem).view(np.float16).reshape(64, channels)  # A: 64 pixels x 64 channels
    tap_weights = weights[:, row, column, :]
    product += ts.emulate_mma(pixels, tap_weights.T, data_type="f16")

padded = np.pad(image.astype(np.float32), ((0, 0), (1, 1), (1, 1), (0, 0)))
expected = np.zeros_like(product)
for row in range(3):
    for column in range(3):
        window = padded[0, row : row + height, column : column + width].reshape(-1, channels)
        expected += window @ weights[:, row, column, :].astype(np.float32).T
print("equal to a convolution written as loops:", np.array_equal(product, expected))
