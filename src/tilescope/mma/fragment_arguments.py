"""Which operands and types the instructions have whose registers a fragment describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tilescope.data_type import DataType
from tilescope.errors import RuleError, printed, unknown_name
from tilescope.rule import rule

FRAGMENT_OPERAND = rule(
    "fragment-operand", "wgmma reads B from shared memory, so that B has no fragment.", source="PTX ISA, wgmma.mma_async",
    architectures=("sm_90",), passing='ts.fragment("wgmma.m64n128k16", "A", "bf16")',
    failing='ts.fragment("wgmma.m64n128k16", "B", "bf16")',
)  # fmt: skip
FRAGMENT_TYPE = rule(
    "fragment-type", "An operand of an instruction takes the types that PTX lists for it.",
    source="PTX ISA, mma, wgmma.mma_async and ldmatrix: types of the operands",
    passing='ts.fragment("mma.m16n8k16", "D", "f32")', failing='ts.fragment("mma.m16n8k16", "D", "bf16")',
)  # fmt: skip

Operand = Literal["A", "B", "C", "D", "matrix", "tmem"]
TMEM_TYPES = {32: ("uint32", "float32", "int32"), 16: ("uint16", "float16", "bfloat16", "int16")}
MATRIX_TYPES = {
    16: ("uint16", "float16", "bfloat16", "int16"), 8: ("uint8", "int8", "e4m3", "e5m2", "ue8m0"),
    6: ("16u6_align16b", "e2m3", "e3m2"), 4: ("16u4_align16b", "e2m1", "int4", "uint4"),
}  # fmt: skip
_HELD: dict[str, tuple[Operand, ...]] = {
    "mma": ("A", "B", "C", "D"), "wgmma": ("A", "C", "D"), "matrix": ("matrix",), "tmem": ("tmem",),
}  # fmt: skip


def chosen_operand(instruction: str, operand: Any, family: str) -> Operand:
    """The operand, refused where instructions of the family hold none of that name in registers."""
    if not isinstance(operand, str):
        operand = None if operand is None else printed(operand)
    for known in _HELD[family]:
        if operand == known:
            return known
    if operand == "B" and family == "wgmma":
        raise FRAGMENT_OPERAND.error("operand", f"B of {instruction}", "wgmma reads B from shared memory, not from registers",
            "Use ts.wgmma_descriptors(…) for B.",
        )  # fmt: skip
    raise RuleError([unknown_name("operand", "operand", operand, _HELD[family])])


def chosen_type(instruction: str, operand: Operand, data_type: Any, known: Iterable[str]) -> DataType:
    """The type, refused where the operand does not take it; None stands for the only one."""
    names = tuple(known)
    if data_type is None and len(names) == 1:
        return DataType.named(names[0])
    row = None if data_type is None else DataType.named(data_type)
    if row is None or row.name not in names:
        raise RuleError(
            [
                FRAGMENT_TYPE.violation(
                    "data_type",
                    "no type" if row is None else row.name,
                    f"operand {operand} of {instruction} is {', '.join(names)}",
                    _type_advice(operand, row, names),
                )
            ]
        )
    return row


def _type_advice(operand: Operand, row: DataType | None, names: tuple[str, ...]) -> str:
    if operand in ("C", "D") and row is not None:
        return f"Use {names[0]}, the type of the accumulator itself."
    return f"Use {names[0]}."
