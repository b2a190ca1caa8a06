"""The products that no tile serves: a consumer, type or majorness that the card lacks, or rows of a wrong length.

sm_80, consumer wgmma         Ampere has no wgmma
e4m3, B with n contiguous     wgmma reads elements of 8 bits K-major only
k = 260 of bf16               rows of 520 bytes, no multiple of 16
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.arch import ARCH, architectures_with
from tilescope.data_type import DataType
from tilescope.errors import Wording
from tilescope.planner.block_scales import NAME as BLOCK_SCALES
from tilescope.planner.missing import (
    CONSUMER_FIX,
    CONSUMER_FOUND,
    CONSUMER_LIMIT,
    KIND_FIX,
    KIND_FOUND,
    KIND_LIMIT,
    missing_consumer,
    missing_kind,
)
from tilescope.planner.obstacle import Broken, Obstacle, broken, or_obstacles
from tilescope.planner.planned_scales import SCALED_MMA
from tilescope.planner.product import Product, mma_rows, mma_types
from tilescope.planner.uneven_rows import uneven_rows
from tilescope.rule import rule
from tilescope.sentence import argument_said

_NEVER_STORED = "16u4_align16b"
_PACKED = "16u4_align8b"  # two elements to a byte of shared memory

GEMM_CONSUMER = rule(
    "gemm-consumer",
    "The architecture has the instruction that computes the product: wgmma, tcgen05, or ldmatrix with mma.",
    argument="consumer",
    found=CONSUMER_FOUND,
    limit=CONSUMER_LIMIT,
    fix=CONSUMER_FIX,
    source='PTX ISA, "Target ISA Notes" of the instructions',
    passing='ts.plan_gemm(256, 256, 256, "bf16", consumer="wgmma")',
    failing='ts.plan_gemm(256, 256, 256, "bf16", consumer="tcgen05")',
)
GEMM_TYPE = rule(
    "gemm-type",
    "The tensor core multiplies the type on this architecture, and the copies support it and the type of C.",
    argument="data_type",
    found="{data_type} on {arch}",
    limit="mma on {arch}, fed by ldmatrix in 32-bit registers, multiplies {known:, }",
    fix='Use {data_type:="bfloat16"}[[, or {arch:="{elsewhere}"}]].',
    source='PTX ISA, "mma", "tcgen05.mma"; cuda.h, CUtensorMapDataType',
    passing='ts.plan_gemm(256, 256, 256, "bf16", arch="sm_80")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", arch="sm_80")',
)
FLOAT32_NOT_MULTIPLIED = GEMM_TYPE.worded(
    fix="Use tfloat32: its elements are float32 whose low 13 bits are ignored.",
)
KIND_NOT_MULTIPLIED = GEMM_TYPE.worded(found=KIND_FOUND, limit=KIND_LIMIT, fix=KIND_FIX)
PACKED_WITHOUT_SCALES = GEMM_TYPE.worded(
    found="{data_type} without scale factors",
    limit="only the block-scaled kinds (mxf4, mxf4nvf4) multiply two elements to a byte",
    fix='Use {data_type:="e2m1"}, which takes a byte for each element, or "mxfp4" or "nvfp4" with scale factors.',
)
BITS_NOT_MOVED = GEMM_TYPE.worded(
    limit="TMA moves {data_type} as {moved}, {together} to an element, and a product of bits (and.popc) "
    "is not the product of these bytes",
    fix="Plan the operand tiles as {moved} with ts.plan, k / 8 bytes wide; the product itself is not planned.",
)
RESULT_BITS_NOT_MOVED = GEMM_TYPE.worded(
    argument="output_type",
    limit="TMA moves {data_type} as {moved}, {together} to an element",
    fix='Use {output_type:="int32"}.',
)
PACKED_NOT_MOVED = GEMM_TYPE.worded(
    argument="{argument}",
    limit="TMA moves elements below 8 bits on {known:, }",
    fix="Use {a_byte}, or another type of at least 8 bits.",
)
RESULT_NOT_STORED = GEMM_TYPE.worded(
    argument="output_type",
    limit="TMA cannot store {data_type}",
    fix='Use {output_type:="bfloat16"}.',
)
SCALES_NOT_TAKEN = GEMM_TYPE.worded(
    argument="scales",
    found="scale factors of {format} with {consumer} on {arch}",
    limit="tcgen05 takes scale factors, and mma of sm_120: {homes:, }",
    fix='Use {arch:="{home}"}, or a type without scale factors.',
)
BLOCK_SCALES_NOT_TAKEN = GEMM_TYPE.worded(
    argument="scales",
    found="scales = {name} for {data_type} with {consumer}",
    limit="float32 scales are applied where wgmma multiplies {known: or }, whose sums are promoted in registers",
    fix='Use {data_type:="e4m3"} and {arch:="sm_90"}, or leave scales out.',
)
SCALED_TYPE = GEMM_TYPE.worded(
    argument="scales",
    found="scale factors of {format} for {data_type}",
    limit="kind {kind} takes {known:, }",
    fix='Use {data_type:="{first}"}[[, or {other}]].',
)
GEMM_MAJOR = rule(
    "gemm-major",
    "A and B are MN-major only if the tensor core reads MN-major elements of their width.",
    argument="{argument}",
    found="{operand} MN-major, of {data_type}",
    limit="{instruction} reads MN-major elements of {widths:, } bits",
    fix="Use {k_major}: transpose {operand} once, or while copying.",
    source='PTX ISA, "wgmma.mma_async", "tcgen05.mma", "ldmatrix"',
    passing='ts.plan_gemm(256, 256, 256, "bf16", b_major="MN")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", b_major="MN")',
)


def product_problems(product: Product) -> list[Obstacle]:
    """Why no tile of any shape serves: a consumer, type or majorness that the card lacks, or rows of a wrong length."""
    if missing := missing_consumer(GEMM_CONSUMER.wording, product.consumer, product.arch):
        return list(missing)
    if unscaled := list(_refuse_scales(product)):
        return [*unscaled, *_unknown_type(product), *_unmoved_types(product)]
    if unknown := _unknown_type(product):
        return unknown
    if product.data_type.name == _PACKED:
        return [broken(PACKED_WITHOUT_SCALES, data_type=_PACKED)]
    if unmoved := list(_unmoved_types(product)):
        return list(unmoved)
    uneven = (
        broken(GEMM_ROWS, change={row.extent: row.up}, **row._asdict()) for row in uneven_rows(product, product.shape)
    )
    return [*_unread_majors(product), *uneven]


def _unknown_type(product: Product) -> list[Obstacle]:
    """A type that the tensor core of this architecture does not multiply."""
    reader = product.tensor_core
    element = product.data_type
    if reader.loop is not None:
        extents = or_obstacles(reader.loop.extents, element)
        if isinstance(extents, list):
            return extents
        return list(missing_kind(KIND_NOT_MULTIPLIED, reader, product.arch, element))
    if product.mma_forms:
        return []
    return [
        broken(
            FLOAT32_NOT_MULTIPLIED if element.name in ("float32", "float32_ftz") else GEMM_TYPE,
            data_type=element.name,
            arch=product.arch.name,
            known=mma_types(product.arch),
            elsewhere=next((name for name, other in ARCH.items() if mma_rows(other, element)), None),
        )
    ]


def _refuse_scales(product: Product) -> Iterator[Broken]:
    """Why the tensor core of this architecture does not take these scale factors, or not with these elements."""
    scales = product.scales
    if product.block_scales and not product.is_promoted:
        yield broken(
            BLOCK_SCALES_NOT_TAKEN,
            name=BLOCK_SCALES,
            data_type=product.data_type.name,
            consumer=product.consumer,
            known=("e4m3", "e5m2"),
        )
    if scales is None:
        return
    takes_scales = product.in_tensor_memory or (product.consumer == "ldmatrix" and product.arch.has(SCALED_MMA))
    if not takes_scales:
        homes = (*architectures_with("tcgen05"), *architectures_with(SCALED_MMA))
        yield broken(
            SCALES_NOT_TAKEN,
            format=scales.name,
            consumer=product.consumer,
            arch=product.arch.name,
            homes=homes,
            home=homes[0],
        )
    bits = 4 if scales.kind_row.is_dense_4_bit else 8  # narrower elements of kind mxf8f6f4 are not planned
    type_names = tuple(name for name in scales.kind_row.codes if DataType.named(name).bits == bits)
    if product.data_type.name not in type_names:
        yield broken(
            SCALED_TYPE,
            format=scales.name,
            data_type=product.data_type.name,
            kind=scales.mma_kind,
            known=type_names,
            first=type_names[0],
            other=None if product.data_type.name == _PACKED else "leave scales out",
        )


def _unmoved_types(product: Product) -> Iterator[Broken]:
    """Types below a byte that TMA cannot copy, reported once: single bits, and packed types if the architecture lacks them."""
    if not product.by_tma:
        return
    operands = _refuse_unmovable(product, "data_type", product.data_type, BITS_NOT_MOVED)
    yield from operands
    if operands and product.output_type is product.data_type:
        return
    result = _refuse_unmovable(product, "output_type", product.output_type, RESULT_BITS_NOT_MOVED)
    if not result and product.output_type.name == _NEVER_STORED:
        result = [_not_moved(product, "output_type", product.output_type, RESULT_NOT_STORED)]
    yield from result


def _refuse_unmovable(product: Product, argument: str, element: DataType, bits_not_moved: Wording) -> list[Broken]:
    """Why TMA does not move a type on this architecture, if so."""
    if element.tma.bits != element.bits:
        return [_not_moved(product, argument, element, bits_not_moved)]
    if element.is_packed and not product.arch.has("packed_types"):
        return [_not_moved(product, argument, element, PACKED_NOT_MOVED)]
    return []


def _not_moved(product: Product, argument: str, element: DataType, told: Wording) -> Broken:
    return broken(
        told,
        argument=argument,
        data_type=element.name,
        arch=product.arch.name,
        known=architectures_with("packed_types"),
        moved=element.tma.name,
        together=element.tma.bits // element.bits,
        a_byte=argument_said(argument, "int8"),
    )


def _unread_majors(product: Product) -> Iterator[Broken]:
    element = product.data_type
    widths = product.tensor_core.mn_major_bits()
    for operand, argument, major in (("A", "a_major", product.a_major), ("B", "b_major", product.b_major)):
        if major == "MN" and (element.is_packed or element.smem_bits not in widths):
            yield broken(
                GEMM_MAJOR,
                change={argument: "K"},
                argument=argument,
                k_major=argument_said(argument, "K"),
                operand=operand,
                element_bits=element.bits,
                data_type=element.name,
                instruction=product.tensor_core.instruction["MN"],
                widths=widths,
            )


GEMM_ROWS = rule(
    "gemm-rows",
    "Rows of A and B in global memory are multiples of 16 bytes, and so are rows of C if TMA stores them.",
    argument="{extent}",
    found="{extent} = {elements}: rows of {rows_of} are {row_bytes:.15g} bytes of {data_type}",
    limit="{mover} rows that are multiples of {multiple_elements} elements, {multiple_bytes} bytes",
    fix="Use {extent} = {up}, with rows of {rows_of} padded to {up_bytes} bytes.",
    source="cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    basis="measured",
    passing='ts.plan_gemm(256, 256, 264, "bf16")',
    failing='ts.plan_gemm(256, 256, 260, "bf16")',
)
