"""Kernels for Triton's interpreter; what they compute is what the PTX beside them does, and the recorded matmul and attention."""

# ruff: noqa: N803, PLR0917  Triton's constants are upper-case, and its kernels take many arguments

import triton
import triton.language as tl


@triton.jit
def softmax(source, target, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns
    x = tl.load(source + row + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(target + row + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def layer_norm(source, target, weights, biases, columns, epsilon, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    row = tl.program_id(0) * columns
    x = tl.load(source + row + at, mask=inside, other=0.0)
    centred = tl.where(inside, x - tl.sum(x, axis=0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    w = tl.load(weights + at, mask=inside)
    b = tl.load(biases + at, mask=inside)
    tl.store(target + row + at, centred * scale * w + b, mask=inside)


@triton.jit
def elementwise(x, y, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + at, mask=at < n)
    b = tl.load(y + at, mask=at < n)
    tl.store(target + at, a * tl.sigmoid(a) + b, mask=at < n)


@triton.jit
def reduction(source, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(source + at, mask=at < n, other=0.0), axis=0))


@triton.jit
def matmul(a, b, c, extent, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, extent, BK):
        left = tl.load(a + rows[:, None] * extent + first + k[None, :])
        right = tl.load(b + columns[:, None] * extent + first + k[None, :])
        total = tl.dot(left, tl.trans(right), total)
    tl.store(c + rows[:, None] * extent + columns[None, :], total.to(tl.float16))


@triton.jit
def attention(q, k, v, target, scale, keys, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + rows[:, None] * D + d[None, :])
    total = tl.zeros((BM, D), tl.float32)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    sums = tl.zeros((BM,), tl.float32)
    for first in range(0, keys, BN):
        columns = first + tl.arange(0, BN)
        own_keys = tl.load(k + columns[:, None] * D + d[None, :])
        values = tl.load(v + columns[:, None] * D + d[None, :])
        scores = tl.dot(queries, tl.trans(own_keys)) * scale
        now = tl.maximum(largest, tl.max(scores, axis=1))
        powers = tl.exp2(scores - now[:, None])
        fade = tl.exp2(largest - now)
        sums = sums * fade + tl.sum(powers, axis=1)
        total = tl.dot(powers.to(tl.float16), values, total * fade[:, None])
        largest = now
    tl.store(target + rows[:, None] * D + d[None, :], (total / sums[:, None]).to(tl.float16))
