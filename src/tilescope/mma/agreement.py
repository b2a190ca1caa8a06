"""Does it fit? Whether what was written is what an instruction reads, in shared memory or in tensor memory.

written                          read by                                     compared in
TMA copies, a plan, a layout     a descriptor, a loop of them, a layout      smem_agreement.py
an accumulator, scale factors    a load, an instruction, tcgen05.cp          tmem_agreement.py
"""

from __future__ import annotations

from typing import Any

from tilescope.layout import Major
from tilescope.mma.scale_layout import ScaleLayout
from tilescope.mma.smem_agreement import Agreement, smem_compatible
from tilescope.mma.tmem_agreement import TmemAgreement, tmem_compatible
from tilescope.mma.tmem_layout import TmemLayout


def compatible(
    tensor_map_or_plan: Any,
    descriptor: Any = None,
    *,
    major: Major | None = None,
    tile_major: Major | None = None,
    rows: int | None = None,
    k: int | None = None,
    origin: tuple[int, int] = (0, 0),
    smem_address: int = 0,
    copies: Any = None,
    data_type: Any = None,
    cta_rank: int | None = None,
    operand: Any = None,
    warp: int | None = None,
    address: Any = None,
) -> Agreement | TmemAgreement:
    """Whether a descriptor reads the bytes that TMA copies wrote; if not, where and why.

    The tile is written by one copy of the tensor map's box to `smem_address`, by `copies` ((coords, smem_offset_bytes), …), or by
    a plan's copies. A `Layout` has its own start; `smem_address` replaces it. A whole loop (`wgmma_descriptors`,
    `tcgen05_descriptors`, a plan's own) or a `Layout` as reader needs no further arguments.

        rows, k      elements that one descriptor reads, from (mn, k) = `origin` on
        major        majorness set in the instruction
        tile_major   "K" if the map's innermost dimension is k, "MN" if it is mn; a plan sets it, otherwise it is `major`
        data_type    type that the tensor core reads, if the map moves the bytes as another, such as uint8
        cta_rank     the block's place in a pair (cta_group::2): the copies must load its half of the rows; for scale
                     factors: that the instruction is a pair's

    Tensor memory is compared too: an accumulator (`tmem_layout`) with the load of a `warp` at an `address`, such
    as compatible(d, "tcgen05.ld.32x32b.x32", warp=1, address=0x200000); scale factors (`scale_layout`) of `operand` with the
    instruction descriptor that reads them for `k`, or with the copies that load them. See tmem_agreement.py.

    >>> from tilescope.mma.operand_descriptor import WgmmaDescriptor
    >>> from tilescope.tensor_map import TensorMap
    >>> a = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
    >>> right = WgmmaDescriptor(0x480, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    >>> print(compatible(a, right, smem_address=0x480))
    All 64 x 16 elements (mn x k) are where the descriptor reads them.
    >>> print(compatible(a, WgmmaDescriptor.decode(right.encode() | 1 << 49), smem_address=0x480))
    Element (mn 0, k 0) was written at 0x490 and is read at 0x480, where (mn 0, k 8) lies; 1024 of 1024 elements differ. \
Base offset: TMA swizzles by the absolute address, which is base offset 0; the descriptor says 1. Use base_offset=0.
    """
    if isinstance(tensor_map_or_plan, TmemLayout | ScaleLayout):
        return tmem_compatible(
            tensor_map_or_plan,
            descriptor,
            warp=warp,
            address=address,
            operand=operand,
            k=k,
            cta_rank=cta_rank,
        )
    return smem_compatible(
        tensor_map_or_plan,
        descriptor,
        major=major,
        tile_major=tile_major,
        rows=rows,
        k=k,
        origin=origin,
        smem_address=smem_address,
        copies=copies,
        data_type=data_type,
        cta_rank=cta_rank,
    )
