"""mma.sync of narrow floats, with and without scale factors: .kind::f8f6f4, mxf8f6f4, mxf4 and mxf4nvf4 of sm_120.

    mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3
        d, a, b, c, scale-a, {byte-id-a, thread-id-a}, scale-b, {byte-id-b, thread-id-b};

A and B may be of different types. With k = 32 every element has a byte: of e2m1 bits 5-2 count, of 6-bit types bits 5-0. With k = 64
two elements of e2m1 share one. Scale factors come from the registers of some lanes (see mma/scale_lanes.py). All by documents.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import fault_of
from tilescope.machine.instructions.modifiers import Words, require_target
from tilescope.machine.instructions.tensor_core.register_tile import Elements, LaneGroups, RegisterTile, lane_groups
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.accumulation import ScaleFactors, tensor_core_sum
from tilescope.mma.scale_format import SCALE_FORMATS, ScaleFormat
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.tensor_core_arithmetic import arithmetic_of
from tilescope.ptx.syntax import Instruction, Operand
from tilescope.sync.cluster_shape import Lanes

_BYTE_TYPES = tuple(KINDS["f8f6f4"].codes)
_TYPES_OF_KIND = {
    "f8f6f4": _BYTE_TYPES,
    "mxf8f6f4": _BYTE_TYPES,
    "mxf4": ("e2m1",),
    "mxf4nvf4": ("e2m1",),
}
_SHAPE_OF_KIND = {"f8f6f4": "m16n8k32", "mxf8f6f4": "m16n8k32", "mxf4": "m16n8k64", "mxf4nvf4": "m16n8k64"}
_SCALE_VECTORS = {"scale_vec::1X": "1X", "scale_vec::2X": "2X", "scale_vec::4X": "4X"}
_DEFAULT_VECTOR = {"mxf8f6f4": "1X", "mxf4": "2X"}
_LOWEST_BIT = {"e2m1": 2}  # of an element in its byte; others begin at bit 0


class ScaleOperand(NamedTuple):
    """The scale factors of an operand: registers of the factors, and of the ids that choose among lanes and bytes."""

    operand: Literal["A", "B"]
    register: int
    byte_id: int
    thread_id: int


class NarrowProduct(NamedTuple):
    """One such instruction, decoded."""

    name: str  # mma.m16n8k32
    a_type: DataType
    b_type: DataType
    d_type: DataType
    format: ScaleFormat | None

    def summed(self, cluster: Cluster, a: Elements, b: Elements, c: Elements, scales: ScaleFactors | None) -> Elements:
        """D of codes of A, B and C, as the card adds."""
        return tensor_core_sum(
            a,
            b,
            c.view(self.d_type.numpy),
            arithmetic=arithmetic_of(cluster.launch.arch.name, self.name, self.a_type.name),
            a_type=self.a_type,
            b_type=self.b_type,
            output_type=self.d_type,
            scales=scales,
        )


def decode_narrow_mma(assembler: Assembler, instruction: Instruction, words: Words) -> Turn:
    """mma.sync with a .kind."""
    kind = words.required([f"kind::{name}" for name in _TYPES_OF_KIND], "kind that mma.sync has").removeprefix("kind::")
    require_target(assembler.module, ("sm_120",), f"kind::{kind}")
    is_scaled = words.flag("block_scale")
    vector = words.one_of(_SCALE_VECTORS)
    words.flag("sync")
    words.flag("aligned")
    shape = words.required((_SHAPE_OF_KIND[kind],), f"shape of kind::{kind}: {_SHAPE_OF_KIND[kind]}")
    words.required(("row",), "order of A: row")
    words.required(("col",), "order of B: col")
    if is_scaled == (kind == "f8f6f4"):
        raise RefusedError(f"kind::{kind} {'has no' if is_scaled else 'needs'} .block_scale")
    types = _TYPES_OF_KIND[kind]
    d_type = DATA_TYPE[_operand_type(words, ("float32",) if is_scaled else ("float16", "float32"), "D")]
    a_type = DATA_TYPE[_operand_type(words, types, "A")]
    b_type = DATA_TYPE[_operand_type(words, types, "B")]
    c_type = DATA_TYPE[_operand_type(words, (d_type.name,), "C")]
    scale_format = None
    if is_scaled:
        scale_type = words.required(("ue8m0", "ue4m3"), "type of its scale factors")
        scale_format = _format(kind, None if vector is None else _SCALE_VECTORS[vector], scale_type)
    words.done()
    product = NarrowProduct(f"mma.{shape}", a_type, b_type, d_type, scale_format)
    d_operand, a_operand, b_operand, c_operand, *rest = instruction.operands
    d_tile = RegisterTile(product.name, "D", d_type.name)
    a_tile = RegisterTile(product.name, "A", a_type.name)
    b_tile = RegisterTile(product.name, "B", b_type.name)
    c_tile = RegisterTile(product.name, "C", c_type.name)
    d = d_tile.targets(assembler, d_operand)
    a = a_tile.sources(assembler, a_operand)
    b = b_tile.sources(assembler, b_operand)
    c = c_tile.sources(assembler, c_operand)
    scale_operands = _scale_operands(assembler, rest) if is_scaled else None

    def multiply(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        left = _codes(a_tile.gathered(cluster, a, warps), a_type, shape)
        right = _codes(b_tile.gathered(cluster, b, warps), b_type, shape)
        before = c_tile.gathered(cluster, c, warps)
        scales = None
        if scale_operands is not None and scale_format is not None:
            of_a, of_b = (_scales(cluster, warps, scale_operand, scale_format) for scale_operand in scale_operands)
            scales = ScaleFactors(of_a, of_b, scale_format.scale_data_type)
        d_tile.fill(cluster, d, warps, product.summed(cluster, left, right, before, scales))

    return Collective(multiply)


def _operand_type(words: Words, names: tuple[str, ...], operand: str) -> str:
    """The type of an operand, by its PTX name."""
    by_ptx = {DATA_TYPE[name].ptx: name for name in names}
    return by_ptx[words.required(by_ptx, f"type of {operand}: {', '.join(by_ptx)}")]


def _format(kind: str, vector: str | None, scale_type: str) -> ScaleFormat:
    scale_vec = vector or _DEFAULT_VECTOR.get(kind)
    for row in SCALE_FORMATS.values():
        if (row.mma_kind, row.qualifier.partition(" ")[0], row.scale_type) == (kind, scale_vec, scale_type):
            return row
    raise RefusedError(f"kind::{kind} has no scale factors of {scale_type} with scale_vec {scale_vec}")


def _scale_operands(assembler: Assembler, operands: list[Operand]) -> tuple[ScaleOperand, ScaleOperand]:
    """scale-a, {byte-id-a, thread-id-a}, scale-b, {byte-id-b, thread-id-b}."""
    a, a_ids, b, b_ids = operands
    return _scale_operand(assembler, "A", a, a_ids), _scale_operand(assembler, "B", b, b_ids)


def _scale_operand(assembler: Assembler, operand: Literal["A", "B"], data: Operand, ids: Operand) -> ScaleOperand:
    byte_id, thread_id = (assembler.source(element, "u16") for element in assembler.vector(ids))
    (register,) = assembler.vector(data)  # CUTLASS writes it in braces
    return ScaleOperand(operand, assembler.source(register, "b32"), byte_id, thread_id)


def _codes(elements: Elements, element: DataType, shape: str) -> Elements:
    """Codes of elements from their bytes; those of k = 64 are taken apart already."""
    if shape == "m16n8k64" or element.bits == 8:
        return elements
    return elements >> np.uint8(_LOWEST_BIT.get(element.name, 0)) & np.uint8((1 << element.bits) - 1)


@lru_cache(maxsize=64)
def _lanes(scale_format: ScaleFormat, operand: Literal["A", "B"], thread_id: int, byte_id: int) -> ScaleLanes:
    return ScaleLanes(scale_format, operand, thread_id, byte_id)


def _scales(
    cluster: Cluster, warps: LaneGroups, scale: ScaleOperand, scale_format: ScaleFormat
) -> npt.NDArray[np.uint8]:
    """The factors of every row of A, or column of B: (warps, 1, rows, factors of a row)."""
    first = int(warps.lane_numbers(cluster)[0])
    byte_id = int(cluster.registers[scale.byte_id][first])
    thread_id = int(cluster.registers[scale.thread_id][first])
    try:
        chosen = _lanes(scale_format, scale.operand, thread_id, byte_id)
    except RuleError as error:
        raise fault_of(error, first) from None
    words = cluster.registers[scale.register][warps.lanes].astype(np.uint32)
    factors = np.ascontiguousarray(words).view(np.uint8).reshape(warps.group_count, WARP_LANES, 4)
    rows = factors[:, list(chosen.lanes())][..., list(chosen.bytes_used)]
    return np.ascontiguousarray(rows[:, None])
