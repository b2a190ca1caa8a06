"""How the kernels of tests/golden/blackwell are launched, and what they should compute."""

from typing import NamedTuple

import ml_dtypes
import numpy as np

import tilescope as ts

LOG2_E = 1.4426950408889634


class Launch(NamedTuple):
    """A launch: its arguments lie in `memory`; `result` should come to be `expected`, within a part of its largest value."""

    memory: ts.Memory
    grid: tuple
    arguments: list
    result: np.ndarray
    expected: np.ndarray
    tolerance: float
    cluster: int | None = None


def described(memory, array, box, swizzle="128B"):
    """A descriptor of the host as Triton passes it: the map, the extents, the strides in elements."""
    tensor_map = memory.map(array, box, swizzle=swizzle, arch="sm_100")
    return [tensor_map, *array.shape, *[stride // array.itemsize for stride in array.strides]]


def normal(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def plain_product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def product(dtype=np.float16, out=np.float16, *, m=128, n=32, k=192, tile=(128, 32, 64), swizzle="128B", sizes=()):
    """C = A B^T, tile by tile."""
    memory = ts.Memory()
    if dtype == np.int8:
        a, b = (
            np.random.default_rng(seed).integers(-128, 128, (rows, k)).astype(np.int8)
            for seed, rows in ((1, m), (2, n))
        )
    else:
        a, b = normal((m, k), dtype, 1), normal((n, k), dtype, 2)
    c = np.zeros((m, n), out)
    tile_m, tile_n, tile_k = tile
    row = min(tile_n, 128 // c.itemsize)
    arguments = [
        *described(memory, a, (tile_k, tile_m), swizzle),
        *described(memory, b, (tile_k, tile_n), swizzle),
        *described(memory, c, (row, tile_m), f"{row * c.itemsize}B"),
        *sizes,
        k,
        0,
        0,
    ]
    tolerance = 2e-3 if np.dtype(dtype).itemsize > 1 else 1e-5
    if np.dtype(out) == ml_dtypes.bfloat16:
        tolerance = 1e-2
    return Launch(memory, (m // tile_m, n // tile_n), arguments, c, plain_product(a, b), tolerance)


def specialised():
    return product(n=64, k=128, sizes=(128, 64))._replace(grid=(1,))


def clustered():
    return product(m=256, n=64, k=128, tile=(128, 64, 64))._replace(cluster=2)


def pair():
    memory = ts.Memory()
    a, b, c = normal((256, 192), np.float16, 1), normal((64, 192), np.float16, 2), np.zeros((256, 64), np.float16)
    arguments = [
        *described(memory, a, (64, 128)),
        *described(memory, b, (64, 32)),
        *described(memory, c, (64, 128)),
        192,
        0,
        0,
    ]
    return Launch(memory, (2, 1), arguments, c, plain_product(a, b), 2e-3, cluster=2)


def pointers():
    a, b, c = normal((130, 100), np.float16, 1), normal((100, 70), np.float16, 2), np.zeros((130, 70), np.float16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    return Launch(ts.Memory(), (2, 2), [a, b, c, 130, 70, 100, 0, 0], c, expected, 2e-3)


def attention():
    memory = ts.Memory()
    q, k, v = (normal((rows, 32), np.float16, seed) for seed, rows in enumerate((128, 96, 96)))
    o = np.zeros_like(q)
    boxes = ((q, (32, 128)), (k, (32, 32)), (v, (32, 32)), (o, (32, 128)))
    arguments = [argument for array, box in boxes for argument in described(memory, array, box, "64B")]
    s = plain_product(q, k) * 0.25
    p = np.exp(s - s.max(axis=1, keepdims=True))
    expected = p @ v.astype(np.float64) / p.sum(axis=1, keepdims=True)
    return Launch(memory, (1,), [*arguments, 96, 0.25 * LOG2_E, 0, 0], o, expected, 3e-3)


def scaled(kind):
    """A block-scaled product of 128 x 128 x 512 (mxfp8: 256)."""
    memory = ts.Memory()
    block, k, step = {"mxfp8": (32, 256, 128), "mxfp4": (32, 512, 256), "nvfp4": (16, 512, 256)}[kind]
    element = ml_dtypes.float8_e4m3fn if kind == "mxfp8" else ml_dtypes.float4_e2m1fn
    a, b = normal((128, k), element, 1), normal((128, k), element, 2)
    random = np.random.default_rng(3)
    if kind == "nvfp4":
        codes = random.uniform(0.5, 4, (2, 128, k // block)).astype(ml_dtypes.float8_e4m3fn)
        factors = codes.astype(np.float64)
    else:
        codes = random.integers(120, 134, (2, 128, k // block)).astype(np.uint8)
        factors = np.exp2(codes.astype(np.float64) - 127)
    tiles = [nibbles(one) if kind != "mxfp8" else one for one in (a, b)]
    atoms = [np.ascontiguousarray(ts.pack_scales(one)).view(np.uint8).reshape(1, 1, -1, 2, 256) for one in codes]
    words = step // block // 4
    c = np.zeros((128, 128), np.float32)
    arguments = []
    for tile, atom in zip(tiles, atoms, strict=True):
        arguments += described(memory, tile, (128, 128))
        arguments += described(memory, atom, (256, 2, words, 1, 1), "none")
    arguments += described(memory, c, (32, 128))
    left, right = (one.astype(np.float64) * own.repeat(block, axis=1) for one, own in zip((a, b), factors, strict=True))
    return Launch(memory, (1, 1), [*arguments, k, 0, 0], c, left @ right.T, 1e-6)


def nibbles(values):
    """Two elements of 4 bits to a byte."""
    codes = values.view(np.uint8) & 15
    return codes[:, ::2] | codes[:, 1::2] << 4


def rows():
    memory = ts.Memory()
    source, target = normal((100, 128), np.float16, 1), np.zeros((100, 64), np.float16)
    at = np.random.default_rng(2).permutation(100)[:32].astype(np.int32)
    expected = np.zeros((100, 64))
    expected[at] = source[at, 64:]
    arguments = [*described(memory, source, (64, 1)), *described(memory, target, (64, 1)), at, 64, 0, 0]
    return Launch(memory, (1,), arguments, target, expected, 0)


LAUNCHES = {
    "product": product,
    "attention": attention,
    "nvfp4": lambda: scaled("nvfp4"),
    "pair": pair,
    "rows": rows,
    "product_64": lambda: product(ml_dtypes.bfloat16, ml_dtypes.bfloat16, m=64, n=64, tile=(64, 64, 64)),
    "product_tf32": lambda: product(np.float32, np.float32, n=64, k=96, tile=(128, 64, 32)),
    "product_e4m3": lambda: product(ml_dtypes.float8_e4m3fn, np.float32, n=64, tile=(128, 64, 64), swizzle="64B"),
    "product_i8": lambda: product(np.int8, np.int32, n=64, tile=(128, 64, 64), swizzle="64B"),
    "product_clustered": clustered,
    "specialised": specialised,
    "pointers": pointers,
    "attention_specialised": attention,
    "mxfp8": lambda: scaled("mxfp8"),
    "mxfp4": lambda: scaled("mxfp4"),
}
