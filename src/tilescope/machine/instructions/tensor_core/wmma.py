"""wmma, which nvcuda::wmma of CUDA C++ becomes: a warp loads matrices, multiplies them, and stores the result.

    wmma.load.a.sync.aligned.row.m16n16k16.shared.f16     {a0, …, a7}, [p], stride;
    wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32       {d0, …, d7}, {a0, …, a7}, {b0, …, b7}, {c0, …, c7};
    wmma.store.d.sync.aligned.row.m16n16k16.global.f32    [p], {d0, …, d7}, stride;

Here is the product; loads and stores are in wmma_moves.py.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from tilescope.data_type import DATA_TYPE, DataType
from tilescope.machine.cluster import Cluster
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.mma import Tiles
from tilescope.machine.instructions.tensor_core.register_tile import Elements, RegisterTile
from tilescope.machine.instructions.tensor_core.wmma_moves import (
    WMMA_TYPES,
    decode_load,
    decode_order,
    decode_shape,
    decode_store,
    require_order,
)
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.accumulation import BitOperation, tensor_core_sum
from tilescope.mma.tensor_core_arithmetic import arithmetic_of
from tilescope.one_rounding import Rounding
from tilescope.ptx.syntax import Instruction

_ROUNDINGS: tuple[Rounding, ...] = ("rn", "rz", "rm", "rp")
_NAN16 = 0x7FFF


class _Product(NamedTuple):
    """What one wmma.mma multiplies and adds: D = A B + C."""

    name: str  # wmma.m16n16k16
    d_type: DataType
    a_type: DataType  # and of B
    c_type: DataType
    saturates: bool
    bit_operation: BitOperation
    rounding: Rounding

    def summed(self, cluster: Cluster, a: Elements, b: Elements, c: Elements) -> Elements:
        """D of codes of A (…, m, k), B (…, n, k) and C (…, m, n), as the card adds.

        Where C and D have different types the sum is one of float32: C is widened before it, D is rounded after it.
        """
        before: Elements = c.view(self.c_type.numpy)
        is_mixed = self.c_type is not self.d_type
        if is_mixed:
            before = before.astype(np.float32)
        total = tensor_core_sum(
            a,
            b,
            before,
            arithmetic=arithmetic_of(cluster.launch.arch.name, self.name, self.a_type.name),
            a_type=self.a_type,
            saturate=self.saturates,
            bit_operation=self.bit_operation,
            rounding=self.rounding,
        )
        return _as_float16(total) if is_mixed and self.d_type.name == "float16" else total


def _as_float16(total: Elements) -> Elements:
    """Sums of float32 rounded to the nearest float16; a NaN becomes the one that the card makes."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = total.astype(np.float16)
    rounded.view(np.uint16)[np.isnan(total)] = _NAN16
    return rounded


def _decode_product(words: Words) -> _Product:
    words.required(("mma",), "verb")
    bit_operation = words.one_of(("and", "xor"))
    counts_bits = words.flag("popc")
    words.flag("sync")
    words.flag("aligned")
    orders = (decode_order(words, "layout of A"), decode_order(words, "layout of B"))
    shape, rows = decode_shape(words)
    rounding = words.one_of(_ROUNDINGS)
    types = []
    while (written := words.one_of(WMMA_TYPES)) is not None:
        types.append(WMMA_TYPES[written])
    saturates = words.flag("satfinite")
    words.done()
    if len(types) == 2:  # of D and C: then A and B are f16
        types[1:1] = [DATA_TYPE["float16"], DATA_TYPE["float16"]]
    if len(types) != 4:
        raise RefusedError("wmma.mma names the types of D and C (of f16), or of D, A, B and C")
    d_type, a_type, b_type, c_type = types
    own_rows = [row for row in rows if a_type.name in row.types and {c_type.name, d_type.name} <= set(row.accumulators)]
    is_of_bits = a_type.name == "b1"
    is_known = own_rows and a_type is b_type
    if not is_known or (saturates and (a_type.is_float or is_of_bits)) or (rounding and a_type.name != "float64"):
        named = f"{a_type.ptx} by {b_type.ptx}, added to {c_type.ptx}"
        raise RefusedError(f"wmma.{shape} does not multiply {named} with a result of {d_type.ptx} and these modifiers")
    if is_of_bits != (counts_bits and bit_operation is not None):
        raise RefusedError("wmma.mma of b1, and no other, is .xor.popc or .and.popc")
    for operand, order in zip("AB", orders, strict=True):
        require_order(a_type, operand, order)
    return _Product(
        name=f"wmma.{shape}",
        d_type=d_type,
        a_type=a_type,
        c_type=c_type,
        saturates=saturates,
        bit_operation="xor" if bit_operation == "xor" else "and",
        rounding=cast("Rounding", rounding or "rn"),
    )


def _mma(assembler: Assembler, instruction: Instruction) -> Turn:
    product = _decode_product(Words(instruction))
    tiles = Tiles(
        d=RegisterTile(product.name, "D", product.d_type.name),
        a=RegisterTile(product.name, "A", product.a_type.name),
        b=RegisterTile(product.name, "B", product.a_type.name),
        c=RegisterTile(product.name, "C", product.c_type.name),
    )
    return tiles.multiplied(assembler, instruction, product.summed)


_VERBS: dict[str, Decoder] = {"load": decode_load, "store": decode_store, "mma": _mma}


def _wmma(assembler: Assembler, instruction: Instruction) -> Turn:
    verb = instruction.modifiers[0] if instruction.modifiers else ""
    if verb not in _VERBS:
        raise RefusedError("wmma is wmma.load, wmma.mma or wmma.store")
    return cast("Turn", _VERBS[verb](assembler, instruction))


FAMILIES: dict[str, Decoder] = {"wmma": _wmma}
