"""Kernels of Triton and Gluon for the tests of the driver."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def copy_rows(x, out, row_stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    tl.store(out + row * n + at, tl.load(x + row * row_stride + at, mask=at < n), mask=at < n)


@triton.jit
def lose_updates(count):
    tl.store(count, tl.load(count) + 1)


@triton.jit
def follow_pointers(table, out, BLOCK: tl.constexpr):
    x = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(x + at))


@triton.jit
def meet(arrived, out, programs):
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < programs:
        pass
    tl.store(out + tl.program_id(0), tl.program_id(0))


@triton.jit
def copy_described(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    out.store([at, 0], x.load([at, 0]))


@triton.jit
def copy_device_described(x, out, rows, columns, BLOCK: tl.constexpr):
    shape = [rows, columns]
    source = tl.make_tensor_descriptor(x, shape, [columns, 1], [BLOCK, 32])
    target = tl.make_tensor_descriptor(out, shape, [columns, 1], [BLOCK, 32])
    at = tl.program_id(0) * BLOCK
    target.store([at, 0], source.load([at, 0]))


@triton.jit
def check_and_print(x, n):
    tl.device_assert(n > 0, "n is positive")
    tl.device_print("n is", n)
    tl.store(x, n)


@triton.jit
def use_tuple(pair, out):
    tl.store(out, tl.load(pair[0]) + pair[1])


@triton.jit
def fixed_sum(x, out, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        total += tl.sum(tl.load(x + start + tl.arange(0, BLOCK)))
    tl.store(out, total)


@triton.jit
def product(a, b, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def too_large(x, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 64)
    tl.store(x + tl.arange(0, BLOCK), BLOCK)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=1) for block in (128, 64, 32)], key=["n"], reset_to_zero=["out"]
)
@triton.jit
def add_up(x, out, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= 64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0)))


@gluon.jit
def gluon_copy(x, out, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(out + at, gl.load(x + at, mask=at < n), mask=at < n)
