"""A kernel that runs tcgen05 instructions between a picture of tensor memory before and one after.

smem     bytes that lie in shared memory from SMEM on, in every block
before   (blocks, 128, columns) words that are stored to tensor memory
body     what thread 0 of block 0 issues: %r1 is the address of the columns, %a0, %a1 … are 64-bit arguments
after    (blocks, 128, columns) words that are loaded when a commit has said that all of it is done
"""

from typing import NamedTuple

import numpy as np

import tilescope as ts

SMEM = 0x2000  # a shared address whose bits 0 to 12 are 0
SMEM_BYTES = 0x10000
WORDS = ("{w0}", 32)


class Ran(NamedTuple):
    """The tensor memory after the instructions, and what was found."""

    after: np.ndarray
    findings: tuple


def text(body, columns, *, blocks, arguments, target):
    names = [f"p{number}" for number in range(arguments)]
    parameters = "".join(f", .param .u64 {name}" for name in names)
    loaded = "".join(f"ld.param.u64 %a{number}, [{name}];" for number, name in enumerate(names))
    group = f"cta_group::{blocks}"
    meet = "barrier.cluster.arrive; barrier.cluster.wait; " if blocks == 2 else ""  # the other block is known to run
    registers = ", ".join(f"%w{number}" for number in range(columns))
    reads = "".join(f"ld.global.u32 %w{number}, [%d5+{4 * number}];" for number in range(columns))
    writes = "".join(f"st.global.u32 [%d6+{4 * number}], %w{number};" for number in range(columns))
    commit = f"tcgen05.commit.{group}.mbarrier::arrive::one.shared::cluster"
    arrive = f"{commit}.b64 [done];" if blocks == 1 else f"{commit}.multicast::cluster.b64 [done], %h1;"
    return f"""
.version 8.8
.target {target}
.address_size 64
.extern .shared .align 1024 .b8 dynamic[];
.visible .entry k(.param .u64 image, .param .u64 before, .param .u64 after{parameters})
{{
    .shared .align 8 .b64 full;
    .shared .align 8 .b64 done;
    .shared .align 4 .b32 at;
    .reg .b16 %h<2>;
    .reg .b32 %r<20>;
    .reg .b32 %w<{columns}>;
    .reg .b64 %d<9>;
    .reg .b64 %a<{max(arguments, 1)}>;
    .reg .pred %p<9>;
    ld.param.u64 %d1, [image];
    ld.param.u64 %d2, [before];
    ld.param.u64 %d3, [after];
    {loaded}
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %cluster_ctarank;
    setp.eq.u32 %p1, %r2, 0;
    setp.lt.u32 %p2, %r2, 32;
    setp.eq.and.u32 %p3, %r3, 0, %p1;
    setp.eq.u32 %p6, %r3, %r3;
    setp.ne.u32 %p7, %r3, %r3;
    mad.lo.u32 %r4, %r3, 128, %r2;
    mul.wide.u32 %d4, %r4, {4 * columns};
    add.u64 %d5, %d2, %d4;
    add.u64 %d6, %d3, %d4;
    {meet}@%p2 tcgen05.alloc.{group}.sync.aligned.shared::cta.b32 [at], {columns};
    @%p1 mbarrier.init.shared.b64 [full], 1;
    @%p1 mbarrier.init.shared.b64 [done], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ld.shared.b32 %r1, [at];
    shl.b32 %r5, %r2, 16;
    and.b32 %r5, %r5, 0x600000;
    add.u32 %r5, %r5, %r1;
    {reads}
    tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%r5], {{{registers}}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    mov.u32 %r6, {SMEM};
    shl.b32 %r7, %r3, 24;
    add.u32 %r6, %r6, %r7;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], {SMEM_BYTES};
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%d1], {SMEM_BYTES}, [full];
FULL:
    mbarrier.try_wait.parity.shared.b64 %p4, [full], 0;
    @!%p4 bra FULL;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    tcgen05.fence::after_thread_sync;
    mov.b16 %h1, 3;
    @!%p3 bra DONE;
    {body}
    {arrive}
DONE:
    mbarrier.try_wait.parity.shared.b64 %p5, [done], 0;
    @!%p5 bra DONE;
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{registers}}}, [%r5];
    tcgen05.wait::ld.sync.aligned;
    {writes}
    bar.sync 0;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    @%p2 tcgen05.dealloc.{group}.sync.aligned.b32 %r1, {columns};
    ret;
}}
"""


def ran(body, before, smem, *arguments, target="sm_100a", seed=None):
    """Run instructions of one thread on tensor memory and shared memory; every block has the same shared memory."""
    before = np.ascontiguousarray(before, np.uint32).reshape(-1, 128, before.shape[-1])
    blocks, _, columns = before.shape
    image = np.zeros(SMEM_BYTES, np.uint8)
    image[: len(smem)] = smem
    after = np.zeros_like(before)
    kernel = ts.Kernel(text(body, columns, blocks=blocks, arguments=len(arguments), target=target))
    run = kernel.run(
        blocks,
        128,
        [image, before, after, *[int(one) for one in arguments]],
        cluster=blocks,
        smem_bytes=SMEM + SMEM_BYTES,
        seed=seed,
        record=False,
        advice="none",
    )
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    return Ran(after, tuple(finding for finding in run.findings if finding.severity != "note"))


class Operand:
    """A matrix of codes in shared memory, as a descriptor without swizzle or with one finds it."""

    def __init__(self, codes, address, *, major="K", swizzle="128B", element_bits=None):
        rows, k = codes.shape
        bits = codes.dtype.itemsize * 8 if element_bits is None else element_bits
        span = {"none": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle]
        atom = 8 * span
        stride = atom if major == "K" else atom * max(1, rows * bits // 8 // span)
        leading = atom * (rows // 8) if major == "K" else atom
        if major == "MN" and swizzle == "none":
            stride, leading = leading, stride
        self.descriptor = ts.Tcgen05Descriptor(address, leading_bytes=leading, stride_bytes=stride, swizzle=swizzle)
        self.addresses = self.descriptor.addresses(major, rows=rows, k=k, element_bits=bits)
        self.codes = codes
        self.word = self.descriptor.encode()

    def write(self, image):
        """Put the elements into bytes that begin at shared address SMEM."""
        size = self.codes.dtype.itemsize
        held = np.ascontiguousarray(self.codes).view(np.uint8).reshape(*self.codes.shape, size)
        for byte in range(size):
            image[self.addresses - SMEM + byte] = held[..., byte]


def padded(values):
    """Rows of bytes: as they are for 8 bits, else 16 elements packed at the front of 16 bytes."""
    bits = {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}.get(str(values.dtype), 8)
    codes = values.view(np.uint8)
    if bits == 8:
        return codes
    single = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little").reshape(len(codes), -1, 16 * bits)
    rows = np.zeros((len(codes), single.shape[1], 16), np.uint8)
    rows[..., : 2 * bits] = np.packbits(single, axis=-1, bitorder="little")
    return rows.reshape(len(codes), -1)


def packed(values):
    """Rows of bytes, two elements of 4 bits to each."""
    codes = values.view(np.uint8)
    return codes[:, ::2] & 15 | codes[:, 1::2] << 4


def write_scales(cells, codes, operand, column, m, group):
    """Scale factors (rows, factors of a row) into the columns from `column` on, in every quarter that reads them."""
    layout = ts.scale_layout(len(codes), 64, "nvfp4").tensor_memory(operand, m=m, cta_group=group, address=column)
    bits = layout.bit_addresses()[: len(codes), : codes.shape[1]]
    for copy in range(bits.shape[2]):
        at = bits[..., copy]
        np.bitwise_or.at(cells, (at >> 21, at % (1 << 21) >> 5), codes.astype(np.uint32) << (at % 32).astype(np.uint32))
