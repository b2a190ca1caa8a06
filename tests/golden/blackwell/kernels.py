"""Kernels in Triton and Gluon for sm_100 whose PTX is recorded beside them, and how they are compiled.

python kernels.py      needs Triton 3.9, no card: writes NAME.ptx and smem_bytes.json here
"""

# ruff: noqa: N803, T201  constants of a kernel are written large

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tma,
)

HERE = Path(__file__).parent
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where nobody says it


@triton.jit
def product(
    of_a, of_b, of_c, K, SUM: tl.constexpr, OUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """C = A B^T, tiles by TMA."""
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), SUM)
    for first in range(0, K, BK):
        total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total, out_dtype=SUM)
    of_c.store([m, n], total.to(OUT))


@triton.jit
def specialised(of_a, of_b, of_c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr):
    """C = A B^T by blocks that stay: warps that load, that multiply and that store."""
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, BLOCKS, warp_specialize=True):
        m, n = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), tl.float32)
        for first in range(0, K, BK):
            total = tl.dot(of_a.load([m, first]), of_b.load([n, first]).T, total)
        of_c.store([m, n], total.to(tl.float16))


@triton.jit
def pointers(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A B by pointers, masked at every edge."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for first in range(0, K, BK):
        k = first + ks
        x = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        total = tl.dot(x, y, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


@triton.jit
def attention(of_q, of_k, of_v, of_o, N, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, WS: tl.constexpr):
    """softmax(Q K^T) V of one head; P goes through tensor memory."""
    m = tl.program_id(0) * BM
    q = of_q.load([m, 0])
    top = tl.full((BM,), -float("inf"), tl.float32)
    bottom = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for n in tl.range(0, N, BN, warp_specialize=WS):
        s = tl.dot(q, of_k.load([n, 0]).T) * scale
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = tl.dot(p.to(tl.float16), of_v.load([n, 0]), total * alpha[:, None])
        bottom = bottom * alpha + tl.sum(p, 1)
        top = new
    of_o.store([m, 0], (total / bottom[:, None]).to(tl.float16))


@triton.jit
def scaled(
    of_a,
    of_sa,
    of_b,
    of_sb,
    of_c,
    K,
    TYPE: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PACK: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """C = A B^T with a scale factor for every VECTOR elements of k, in atoms of 128 x 4."""
    pm, pn = tl.program_id(0), tl.program_id(1)
    words: tl.constexpr = BK // VECTOR // 4
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(K // BK):
        a = of_a.load([pm * BM, step * (BK // PACK)])
        b = of_b.load([pn * BN, step * (BK // PACK)])
        sa = of_sa.load([0, pm * (BM // 128), step * words, 0, 0])
        sb = of_sb.load([0, pn * (BN // 128), step * words, 0, 0])
        sa = sa.reshape(BM // 128, words, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BM, BK // VECTOR)
        sb = sb.reshape(BN // 128, words, 32, 4, 4).trans(0, 3, 2, 1, 4).reshape(BN, BK // VECTOR)
        total = tl.dot_scaled(a, sa, TYPE, b.T, sb, TYPE, total)
    of_c.store([pm * BM, pn * BN], total)


@gluon.jit
def pair(of_a, of_b, of_c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    """C = A B^T by two blocks with one instruction: each holds half of A and half of B."""
    m, n = gl.program_id(0) * BM, gl.program_id(1) * BN
    a = gl.allocate_shared_memory(of_a.dtype, of_a.block_type.shape, of_a.layout)
    b = gl.allocate_shared_memory(of_b.dtype, of_b.block_type.shape, of_b.layout)
    c = gl.allocate_shared_memory(of_c.dtype, of_c.block_type.shape, of_c.layout)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = TensorMemoryLayout([128, BN], col_stride=1, cga_layout=[[1, 0]], two_ctas=True)
    d = allocate_tensor_memory(gl.float32, [BM, BN], layout)
    phase = 0
    for first in range(0, K, BK):
        mbarrier.expect(full, of_a.nbytes_per_cta + of_b.nbytes_per_cta)
        tma.async_load(of_a, [m, first], full, a)
        tma.async_load(of_b, [n, first], full, b)
        mbarrier.wait(full, phase, deps=[a, b])
        tcgen05_mma(a, b.permute((1, 0)), d, use_acc=first > 0, mbarriers=[done])
        mbarrier.wait(done, phase, deps=[a, b])
        phase ^= 1
    c.store(d.load().to(of_c.dtype))
    fence_async_shared()
    tma.async_store(of_c, [m, n], c)
    tma.store_wait(0)


@gluon.jit
def rows(of_in, of_out, at, column, N: gl.constexpr, W: gl.constexpr):
    """Rows of a matrix by tile::gather4, to the same rows of another by tile::scatter4."""
    held = gl.allocate_shared_memory(of_in.dtype, [N, W], of_in.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    layout: gl.constexpr = gl.SliceLayout(0, gl.BlockedLayout([1, 4], [32, 1], [1, 4], [1, 0]))
    chosen = gl.load(at + gl.arange(0, N, layout))
    mbarrier.expect(full, N * of_in.block_type.nbytes)
    tma.async_gather(of_in, chosen, column, full, held)
    mbarrier.wait(full, 0)
    tma.async_scatter(of_out, chosen, 0, held)
    tma.store_wait(0)


def descriptor(type_name, *shape, layout=None):
    """How a signature names a descriptor of the host."""
    extents = ",".join(map(str, shape))
    return f"tensordesc<{type_name}[{extents}]>" if layout is None else f"tensordesc<{type_name}[{extents}],{layout!r}>"


def swizzled(cga=()):
    return gl.NVMMASharedLayout(
        swizzle_byte_width=128, element_bitwidth=16, rank=2, cga_layout=[list(one) for one in cga]
    )


def tiles(a, b, c, k="i32", **further):
    return {"of_a": a, "of_b": b, "of_c": c, **further, "K": k}


HALF_TILES = tiles(descriptor("fp16", 128, 64), descriptor("fp16", 32, 64), descriptor("fp16", 128, 32))
F16 = {"SUM": tl.float32, "OUT": tl.float16}
F32 = {"SUM": tl.float32, "OUT": tl.float32}
S32 = {"SUM": tl.int32, "OUT": tl.int32}
Q_TILES = {"of_q": descriptor("fp16", 128, 32), "of_o": descriptor("fp16", 128, 32), "N": "i32", "scale": "fp32"}
KV_TILES = {"of_k": descriptor("fp16", 32, 32), "of_v": descriptor("fp16", 32, 32)}
ATTENTION = {"BM": 128, "BN": 32, "D": 32}


def scaled_tiles(type_name, scale, words):
    tile = descriptor(type_name, 128, 128)
    factors = descriptor(scale, 1, 1, words, 2, 256)
    return {
        "of_a": tile,
        "of_b": tile,
        "of_sa": factors,
        "of_sb": factors,
        "of_c": descriptor("fp32", 128, 128),
        "K": "i32",
    }


PAIR = swizzled([(1, 0)])
# name → kernel, signature, constants, options
KERNELS = {
    "product": (product, HALF_TILES, {**F16, "BM": 128, "BN": 32, "BK": 64}, {"num_stages": 3}),
    "attention": (attention, {**Q_TILES, **KV_TILES}, {**ATTENTION, "WS": False}, {"num_stages": 2}),
    "nvfp4": (
        scaled,
        scaled_tiles("u8", "fp8e4nv", 4),
        {"TYPE": "e2m1", "BM": 128, "BN": 128, "BK": 256, "PACK": 2, "VECTOR": 16},
        {"num_stages": 2},
    ),
    "pair": (
        pair,
        tiles(*(descriptor("fp16", rows, width, layout=PAIR) for rows, width in ((256, 64), (64, 64), (256, 64)))),
        {"BM": 256, "BN": 64, "BK": 64},
        {"num_ctas": 2},
    ),
    "rows": (
        rows,
        {
            "of_in": descriptor("fp16", 1, 64, layout=swizzled()),
            "of_out": descriptor("fp16", 1, 64, layout=swizzled()),
            "at": "*i32",
            "column": "i32",
        },
        {"N": 32, "W": 64},
        {},
    ),
}
# compiled by slow tests alone
FURTHER = {
    "product_64": (
        product,
        tiles(*[descriptor("bf16", 64, 64)] * 3),
        {"SUM": tl.float32, "OUT": tl.bfloat16, "BM": 64, "BN": 64, "BK": 64},
        {},
    ),
    "product_tf32": (
        product,
        tiles(descriptor("fp32", 128, 32), descriptor("fp32", 64, 32), descriptor("fp32", 128, 64)),
        {**F32, "BM": 128, "BN": 64, "BK": 32},
        {},
    ),
    "product_e4m3": (
        product,
        tiles(descriptor("fp8e4nv", 128, 64), descriptor("fp8e4nv", 64, 64), descriptor("fp32", 128, 64)),
        {**F32, "BM": 128, "BN": 64, "BK": 64},
        {},
    ),
    "product_i8": (
        product,
        tiles(descriptor("i8", 128, 64), descriptor("i8", 64, 64), descriptor("i32", 128, 64)),
        {**S32, "BM": 128, "BN": 64, "BK": 64},
        {},
    ),
    "product_clustered": (
        product,
        tiles(descriptor("fp16", 256, 64), descriptor("fp16", 64, 64), descriptor("fp16", 256, 64)),
        {**F16, "BM": 256, "BN": 64, "BK": 64},
        {"num_ctas": 2},
    ),
    "specialised": (
        specialised,
        {**HALF_TILES, "M": "i32", "N": "i32"},
        {"BM": 128, "BN": 32, "BK": 64, "BLOCKS": 1},
        {"num_stages": 3},
    ),
    "pointers": (
        pointers,
        {"a": "*fp16", "b": "*fp16", "c": "*fp16", "M": "i32", "N": "i32", "K": "i32"},
        {"BM": 128, "BN": 64, "BK": 64},
        {"num_stages": 3},
    ),
    "attention_specialised": (attention, {**Q_TILES, **KV_TILES}, {**ATTENTION, "WS": True}, {"num_stages": 2}),
    "mxfp8": (
        scaled,
        scaled_tiles("fp8e4nv", "u8", 1),
        {"TYPE": "e4m3", "BM": 128, "BN": 128, "BK": 128, "PACK": 1, "VECTOR": 32},
        {"num_stages": 2},
    ),
    "mxfp4": (
        scaled,
        scaled_tiles("u8", "u8", 2),
        {"TYPE": "e2m1", "BM": 128, "BN": 128, "BK": 256, "PACK": 2, "VECTOR": 32},
        {"num_stages": 2},
    ),
}


def compiled(name):
    """The PTX of a kernel, debug sections and paths taken out, and how it is launched."""
    function, signature, constants, options = (KERNELS | FURTHER)[name]
    given = {argument: signature.get(argument, "constexpr") for argument in function.arg_names}
    source = GluonASTSource if isinstance(function, gluon.GluonJITFunction) else ASTSource
    made = triton.compile(
        source(function, given, constants) if source is ASTSource else source(function, given, constexprs=constants),
        target=GPUTarget("cuda", 100, 32),
        options={"num_warps": 4, **options},
    )
    text = re.sub(r"^\s*\.section\s+\S+\s*\{.*?^\s*\}\s*$", "", made.asm["ptx"], flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", text)
    text = re.sub(r"^\s*//[^\n]*\n", "", text, flags=re.MULTILINE)
    launch = {"smem_bytes": made.metadata.shared, "threads": 32 * made.metadata.num_warps}
    return re.sub(r"\n{2,}", "\n", text).rstrip() + "\n", launch


if __name__ == "__main__":
    launches = {}
    for chosen in sys.argv[1:] or KERNELS:
        ptx, launches[chosen] = compiled(chosen)
        (HERE / f"{chosen}.ptx").write_text(ptx)
        print(chosen, len(ptx), launches[chosen])
    (HERE / "launches.json").write_text(json.dumps(launches, indent=1) + "\n")
