"""mma.sync and mma.sp: a warp multiplies matrices in its registers, every row of the tables in mma/mma_instruction.py.

    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32     {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3};
    mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32  {d0, d1, d2, d3}, {a0, a1}, {b0, b1}, {c0, c1, c2, c3}, e, 0;

All warps at the instruction are computed by one call of tensor_core_sum, which adds as the architecture does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.collective import Collective
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.metadata_operand import metadata_operand
from tilescope.machine.instructions.tensor_core.narrow_mma import decode_narrow_mma
from tilescope.machine.instructions.tensor_core.register_tile import Elements, RegisterTile, lane_groups
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.accumulation import BitOperation, tensor_core_sum
from tilescope.mma.mma_instruction import INSTRUCTIONS, SPARSE_INSTRUCTIONS
from tilescope.mma.mma_instruction import Instruction as Row
from tilescope.mma.sparse_sum import sparse_sum
from tilescope.mma.sparsity import Nibbles
from tilescope.mma.tensor_core_arithmetic import arithmetic_of
from tilescope.ptx.syntax import Instruction
from tilescope.sentence import counted
from tilescope.sync.cluster_shape import Lanes

Summed: TypeAlias = Callable[[Cluster, Elements, Elements, Elements], Elements]  # D of A, B and C

_ROWS = (*INSTRUCTIONS, *SPARSE_INSTRUCTIONS)
_PTX_TYPES = {DATA_TYPE[name].ptx: DATA_TYPE[name] for row in _ROWS for name in (*row.types, *row.accumulators)}
_SHAPES = {
    family: {f"m{row.m}n{n}k{row.k}" for row in _ROWS if row.family == family for n in row.n}
    for family in ("mma", "wgmma", "mma.sp", "wgmma.sp")
}
_BIT_OPERATIONS: dict[str, BitOperation] = {"and": "and", "xor": "xor"}
_SPARSE_OPERANDS = 6
_NEWER_FEATURE = "mma_f8f6f4"  # rows that need sm_120


class Product(NamedTuple):
    """What one mma or wgmma multiplies and adds: D = A B + C."""

    name: str  # mma.m16n8k16, mma.sp.m16n8k32
    row: Row
    n: int
    d_type: DataType
    a_type: DataType
    b_type: DataType
    c_type: DataType
    saturates: bool
    bit_operation: BitOperation

    def summed(self, cluster: Cluster, a: Elements, b: Elements, c: Elements) -> Elements:
        """D of codes of A (…, m, k), B (…, n, k) and C (…, m, n), as the card adds."""
        return tensor_core_sum(
            a,
            b,
            c.view(self.c_type.numpy),
            arithmetic=arithmetic_of(cluster.launch.arch.name, self.name, self.a_type.name),
            a_type=self.a_type,
            b_type=self.b_type,
            output_type=self.d_type,
            saturate=self.saturates,
            bit_operation=self.bit_operation,
        )

    def sparse_summed(self, cluster: Cluster, a: Elements, b: Elements, c: Elements, nibbles: Nibbles) -> Elements:
        """D of a sparse A with stored values (…, m, k / 2); nibbles (…, m, groups of k) select their positions."""
        return sparse_sum(
            a,
            b,
            c.view(self.c_type.numpy),
            nibbles,
            arithmetic=arithmetic_of(cluster.launch.arch.name, self.name, self.a_type.name),
            a_type=self.a_type,
            b_type=self.b_type,
            output_type=self.d_type,
            saturate=self.saturates,
        )


def decode_product(family: str, words: Words) -> Product:
    """The product that the modifiers of an mma or wgmma name; an error if the table has no such entry."""
    # Ordered metadata is a promise of the program; an H200 computes the same result for both.
    if words.flag("sp") or (family == "mma" and words.flag("sp::ordered_metadata")):
        family += ".sp"
    words.flag("sync")
    words.flag("aligned")
    shape = words.required(_SHAPES[family], f"shape that {family} has")
    saturates = words.flag("satfinite")
    d_type = _PTX_TYPES[words.required(_PTX_TYPES, "type of D")]
    a_type = _PTX_TYPES[words.required(_PTX_TYPES, "type of A")]
    b_type = _PTX_TYPES[words.required(_PTX_TYPES, "type of B")]
    c_type = d_type
    if family in ("mma", "mma.sp"):
        c_type = _PTX_TYPES[words.required(_PTX_TYPES, "type of C")]
    m, n, k = (int(extent) for extent in shape[1:].replace("n", " ").replace("k", " ").split())
    types = [row for row in _ROWS if row.family == family and (row.m, row.k) == (m, k) and n in row.n]
    rows = [row for row in types if a_type.name in row.types and b_type.name in row.types]
    row = next((row for row in rows if {d_type.name, c_type.name} <= set(row.accumulators)), None)
    if row is None or not _may_differ(row, d_type, c_type) or (saturates and d_type.is_float):
        named = f"{a_type.ptx} by {b_type.ptx}, added to {c_type.ptx}"
        raise RefusedError(f"{family}.{shape} does not multiply {named} with a result of {d_type.ptx}")
    bit_operation: BitOperation = "and"
    if a_type.name == "b1":
        bit_operation = _BIT_OPERATIONS[words.required(_BIT_OPERATIONS, ".and or .xor")]
        words.required(("popc",), ".popc")
    return Product(f"{family}.{shape}", row, n, d_type, a_type, b_type, c_type, saturates, bit_operation)


def _may_differ(row: Row, d_type: DataType, c_type: DataType) -> bool:
    """Whether an instruction has these types for D and C: one, but for the m8n8k4 of f16, which widens."""
    return d_type is c_type or (row.quad_pairs and c_type.bits < d_type.bits)


def _mma(assembler: Assembler, instruction: Instruction) -> Turn:
    words = Words(instruction)
    if any(word.startswith("kind::") for word in instruction.modifiers):
        return decode_narrow_mma(assembler, instruction, words)
    product = decode_product("mma", words)
    orders = (words.required(("row", "col"), "order of A"), words.required(("row", "col"), "order of B"))
    words.done()
    if product.row.feature == _NEWER_FEATURE:
        raise RefusedError(f"{product.a_type.ptx} needs .kind::f8f6f4 (sm_120)")
    if orders != ("row", "col") and not product.row.quad_pairs:
        raise RefusedError(f"{product.name} takes .row.col, not .{orders[0]}.{orders[1]}")
    name = f"{product.name}.{orders[0]}.{orders[1]}"
    tiles = Tiles(
        d=RegisterTile(name, "D", product.d_type.name),
        a=RegisterTile(name, "A", product.a_type.name),
        b=RegisterTile(name, "B", product.b_type.name),
        c=RegisterTile(name, "C", product.c_type.name),
    )
    if product.row.is_sparse:
        return _sparse_mma(assembler, instruction, product, tiles)
    return tiles.multiplied(assembler, instruction, product.summed)


class Tiles(NamedTuple):
    """The matrices of an instruction, as registers hold them."""

    d: RegisterTile
    a: RegisterTile
    b: RegisterTile
    c: RegisterTile

    def multiplied(self, assembler: Assembler, instruction: Instruction, summed: Summed) -> Turn:
        """The turn of a dense product, whose operands are D, A, B and C."""
        d_operand, a_operand, b_operand, c_operand = instruction.operands
        d = self.d.targets(assembler, d_operand)
        a = self.a.sources(assembler, a_operand)
        b = self.b.sources(assembler, b_operand)
        c = self.c.sources(assembler, c_operand)

        def multiply(cluster: Cluster, at: Lanes) -> None:
            warps = lane_groups(cluster, at)
            left = self.a.gathered(cluster, a, warps)
            right = self.b.gathered(cluster, b, warps)
            before = self.c.gathered(cluster, c, warps)
            self.d.fill(cluster, d, warps, summed(cluster, left, right, before))

        return Collective(multiply)


def _sparse_mma(assembler: Assembler, instruction: Instruction, product: Product, tiles: Tiles) -> Turn:
    """mma.sp: the metadata and the selector come after C."""
    if len(instruction.operands) != _SPARSE_OPERANDS:
        operand_count = counted(len(instruction.operands), "operand")
        raise RefusedError(
            f"{product.name} takes D, A, B, C, the metadata and the sparsity selector, not {operand_count}"
        )
    d_operand, a_operand, b_operand, c_operand, metadata, selector = instruction.operands
    d = tiles.d.targets(assembler, d_operand)
    a = tiles.a.sources(assembler, a_operand)
    b = tiles.b.sources(assembler, b_operand)
    c = tiles.c.sources(assembler, c_operand)
    e = metadata_operand(assembler, product.name, product.a_type.name, metadata, selector)

    def multiply(cluster: Cluster, at: Lanes) -> None:
        warps = lane_groups(cluster, at)
        left = tiles.a.gathered(cluster, a, warps)[:, 0]
        right = tiles.b.gathered(cluster, b, warps)[:, 0]
        before = tiles.c.gathered(cluster, c, warps)[:, 0]
        tiles.d.fill(cluster, d, warps, product.sparse_summed(cluster, left, right, before, e.nibbles(cluster, warps)))

    return Collective(multiply)


FAMILIES: dict[str, Decoder] = {"mma": _mma}
