"""Kernels in Triton and Gluon whose PTX is recorded beside them."""

# ruff: noqa: N803, N806, RUF005  constants of a kernel are written large; shapes are lists, which Gluon adds

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@triton.jit
def product(
    a, b, c, M, N, K, ZERO: tl.constexpr, SUM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """C = A B by pointers, masked at every edge."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), SUM)
    for first in range(0, K, BK):
        k = first + ks
        x = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=ZERO)
        y = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=ZERO)
        total = tl.dot(x, y, total, out_dtype=SUM)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr):
    """C = A B^T by descriptors that the kernel makes, one tile after another."""
    of_a = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    of_b = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    of_c = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, BLOCKS, flatten=True):
        m, n = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for first in range(0, K, BK):
            total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total)
        of_c.store([m, n], total.to(tl.float16))


@triton.jit
def clustered(of_a, of_b, of_c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B^T by descriptors of the host."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total)
    of_c.store([m, n], total.to(tl.float16))


@triton.jit
def added(source, target, BM: tl.constexpr):
    """Every block adds its rows to the same tile."""
    target.atomic_add([0, 0], source.load([tl.program_id(0) * BM, 0]))


@triton.jit
def in_turn(a, b, c, turns, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Parts of K, added in order by blocks that wait for each other."""
    tile, part = tl.program_id(0), tl.program_id(1)
    across = tl.cdiv(N, BN)
    rows = tile // across * BM + tl.arange(0, BM)
    columns = tile % across * BN + tl.arange(0, BN)
    k = part * BK + tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK * SPLIT):
        total = tl.dot(
            tl.load(a + rows[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + columns[None, :]), total
        )
        k += BK * SPLIT
    at = c + rows[:, None] * N + columns[None, :]
    while tl.atomic_add(turns + tile, 0, sem="acquire") != part:
        pass
    if part > 0:
        total += tl.load(at)
    tl.store(at, total)
    tl.debug_barrier()
    tl.atomic_add(turns + tile, 1, sem="release")


@triton.jit
def _linear(a, b, c, d):
    return a * c, b * c + d


@triton.jit
def scans(x, sums, backwards, pairs, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums along both dimensions, and the scan of pairs that a linear recurrence is."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(value, 1))
    tl.store(backwards + at, tl.cumsum(value, 0, reverse=True))
    _, second = tl.associative_scan((value, value + 1), 1, _linear)
    tl.store(pairs + at, second)


@triton.jit
def sorts(x, down, top, ROWS: tl.constexpr, COLUMNS: tl.constexpr, K: tl.constexpr):
    """Rows sorted, and their largest values."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    value = tl.load(x + at)
    tl.store(down + at, tl.sort(value, descending=True))
    tl.store(top + tl.arange(0, ROWS)[:, None] * K + tl.arange(0, K)[None, :], tl.topk(value, K))


@triton.jit
def extremes(x, places, values, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Largest and smallest values and where they stand; sums of whole numbers."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + row[:, None] * COLUMNS + column[None, :])
    tl.store(places + row, tl.argmax(value, 1))
    tl.store(places + ROWS + row, tl.argmin(value, 1))
    whole = value.to(tl.int32)
    tl.store(places + 2 * ROWS + row, tl.sum(whole, 1))
    tl.store(places + 3 * ROWS + row, tl.xor_sum(whole, 1))
    tl.store(places + 4 * ROWS + row, tl.max(whole, 1))
    tl.store(values + column, tl.max(value, 0))
    tl.store(values + COLUMNS + column, tl.min(value, 0))


@triton.jit
def gathers(x, index, y, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Values of a row in another order."""
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(y + at, tl.gather(tl.load(x + at), tl.load(index + at), 1))


@triton.jit
def turned(x, y, M, N, B: tl.constexpr):
    """A transposed matrix."""
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    value = tl.load(x + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N), other=0)
    tl.store(y + j[:, None] * M + i[None, :], tl.trans(value), mask=(j[:, None] < N) & (i[None, :] < M))


@triton.jit
def dropped(x, y, bits, n, seed, B: tl.constexpr):
    """Random numbers of a counter (Philox)."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    first, second, third, fourth = tl.randint4x(seed, at)
    tl.store(bits + at, first ^ second ^ third ^ fourth, mask=at < n)
    tl.store(y + at, tl.where(tl.rand(seed, at) > 0.5, tl.load(x + at, mask=at < n), 0.0), mask=at < n)


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    """Softmax of one row a block."""
    row, at = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * n + at, value / tl.sum(value, 0), mask=at < n)


@triton.jit
def layer_norm(x, y, weight, bias, means, scales, n, eps, B: tl.constexpr):
    """Layer norm of one row a block; the mean and 1 / sqrt(variance) are kept for the backward pass."""
    row, at = tl.program_id(0), tl.arange(0, B)
    value = tl.load(x + row * n + at, mask=at < n, other=0.0)
    mean = tl.sum(value, 0) / n
    value = tl.where(at < n, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(value * value, 0) / n + eps)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    normed = value * scale * tl.load(weight + at, mask=at < n) + tl.load(bias + at, mask=at < n)
    tl.store(y + row * n + at, normed, mask=at < n)


@triton.jit
def attention_forward(q, k, v, out, sums, n, scale, B: tl.constexpr, D: tl.constexpr):
    """softmax(Q K^T) V of B rows a block, one block of keys after another; log2 of each row's sum is kept."""
    rows, columns = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    at = rows[:, None] * D + columns[None, :]
    queries = tl.load(q + at)
    largest = tl.full((B,), -float("inf"), tl.float32)
    total = tl.zeros((B,), tl.float32)
    result = tl.zeros((B, D), tl.float32)
    for first in range(0, n, B):
        other = (first + tl.arange(0, B))[:, None] * D + columns[None, :]
        scores = tl.dot(queries, tl.load(k + other).T) * scale
        now = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        shrunk = tl.exp2(largest - now)
        total = total * shrunk + tl.sum(weights, 1)
        result = tl.dot(weights.to(tl.float16), tl.load(v + other), result * shrunk[:, None])
        largest = now
    tl.store(sums + rows, largest + tl.log2(total))
    tl.store(out + at, (result / total[:, None]).to(tl.float16))


@triton.jit
def attention_backward(q, k, v, grad, sums, dots, dq, dk, dv, n, scale, B: tl.constexpr, D: tl.constexpr):
    """The gradients of B rows: first of keys and values, over all queries; then of queries, over all keys."""
    mine, columns = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, D)
    at = mine[:, None] * D + columns[None, :]
    keys, values = tl.load(k + at), tl.load(v + at)
    of_keys, of_values = tl.zeros((B, D), tl.float32), tl.zeros((B, D), tl.float32)
    for first in range(0, n, B):
        rows = first + tl.arange(0, B)
        other = rows[:, None] * D + columns[None, :]
        queries, gradient = tl.load(q + other), tl.load(grad + other)
        weights = tl.exp2(tl.dot(keys, queries.T) * scale - tl.load(sums + rows)[None, :])
        of_values = tl.dot(weights.to(tl.float16), gradient, of_values)
        change = weights * (tl.dot(values, gradient.T) - tl.load(dots + rows)[None, :])
        of_keys = tl.dot(change.to(tl.float16), queries, of_keys)
    tl.store(dk + at, (of_keys * scale).to(tl.float16))
    tl.store(dv + at, of_values.to(tl.float16))
    queries, gradient = tl.load(q + at), tl.load(grad + at)
    own_sums, own_dots = tl.load(sums + mine)[:, None], tl.load(dots + mine)[:, None]
    of_queries = tl.zeros((B, D), tl.float32)
    for first in range(0, n, B):
        other = (first + tl.arange(0, B))[:, None] * D + columns[None, :]
        keys, values = tl.load(k + other), tl.load(v + other)
        weights = tl.exp2(tl.dot(queries, keys.T) * scale - own_sums)
        change = weights * (tl.dot(gradient, values.T) - own_dots)
        of_queries = tl.dot(change.to(tl.float16), keys, of_queries)
    tl.store(dq + at, (of_queries * scale).to(tl.float16))


@triton.jit
def normed(x, y, weight, bias, n, eps, B: tl.constexpr):
    """Layer norm of one row a block."""
    row = tl.program_id(0)
    total = tl.zeros((B,), tl.float32)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        total += tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    mean = tl.sum(total) / n
    squares = tl.zeros((B,), tl.float32)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        value = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        value = tl.where(at < n, value - mean, 0.0)
        squares += value * value
    scale = 1 / tl.sqrt(tl.sum(squares) / n + eps)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        value = (tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32) - mean) * scale
        value = value * tl.load(weight + at, mask=at < n) + tl.load(bias + at, mask=at < n)
        tl.store(y + row * n + at, value.to(tl.float16), mask=at < n)


@triton.jit
def convolved(x, w, y, H, W, B: tl.constexpr, C: tl.constexpr):
    """A 3 x 3 convolution, channels last."""
    pixel, channel = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, C)
    total = tl.zeros((B, C), tl.float32)
    for tap in tl.static_range(9):
        row, column = pixel // W + tap // 3 - 1, pixel % W + tap % 3 - 1
        inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
        value = tl.load(x + (row * W + column)[:, None] * C + channel[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot(value, tl.load(w + tap * C * C + channel[:, None] * C + channel[None, :]), total)
    tl.store(y + pixel[:, None] * C + channel[None, :], total.to(tl.float16), mask=(pixel < H * W)[:, None])


@gluon.jit
def _produced(of_a, of_b, tiles_a, tiles_b, full, empty, m, n, k_tiles, STAGES: gl.constexpr):
    BK: gl.constexpr = of_a.block_shape[1]
    for i in range(k_tiles):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
        mbarrier.expect(full.index(slot), of_a.block_type.nbytes + of_b.block_type.nbytes)
        tma.async_load(of_a, [m, i * BK], full.index(slot), tiles_a.index(slot))
        tma.async_load(of_b, [n, i * BK], full.index(slot), tiles_b.index(slot))


@gluon.jit
def _consumed(of_a, of_c, tiles_a, tiles_b, tile_c, full, empty, m, n, k_tiles, STAGES: gl.constexpr, N: gl.constexpr):
    BM: gl.constexpr = of_a.block_shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16])
    total = gl.zeros([BM, N], gl.float32, layout)
    for i in range(k_tiles):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)
        total = warpgroup_mma(tiles_a.index(slot), tiles_b.index(slot).permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(0, deps=[total])
        mbarrier.arrive(empty.index(slot), count=1)
    tile_c.store(total.to(gl.float16))
    fence_async_shared()
    tma.async_store(of_c, [m, n], tile_c)
    tma.store_wait(0)


@gluon.jit
def specialised(of_a, of_b, of_c, k_tiles, STAGES: gl.constexpr):
    """A ring between a warp that loads and a warpgroup that multiplies."""
    m, n = gl.program_id(0) * of_a.block_shape[0], gl.program_id(1) * of_b.block_shape[0]
    tiles_a = gl.allocate_shared_memory(of_a.dtype, [STAGES] + of_a.block_type.shape, of_a.layout)
    tiles_b = gl.allocate_shared_memory(of_b.dtype, [STAGES] + of_b.block_type.shape, of_b.layout)
    tile_c = gl.allocate_shared_memory(of_c.dtype, of_c.block_type.shape, of_c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    gl.warp_specialize(
        [
            (
                _consumed,
                (of_a, of_c, tiles_a, tiles_b, tile_c, full, empty, m, n, k_tiles, STAGES, of_b.block_shape[0]),
            ),
            (_produced, (of_a, of_b, tiles_a, tiles_b, full, empty, m, n, k_tiles, STAGES)),
        ],
        [1],
        [24],
    )
