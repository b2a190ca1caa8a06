"""Which operands and types the instructions have whose registers a fragment describes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, broken, printed, unknown_name

Operand = Literal["A", "B", "C", "D", "matrix", "tmem"]
TMEM_TYPES = {32: ("uint32", "float32", "int32"), 16: ("uint16", "float16", "bfloat16", "int16")}
MATRIX_TYPES = {
    16: ("uint16", "float16", "bfloat16", "int16"),
    8: ("uint8", "int8", "e4m3", "e5m2", "ue8m0"),
    6: ("16u6_align16b", "e2m3", "e3m2"),
    4: ("16u4_align16b", "e2m1", "int4", "uint4"),
}
_HELD: dict[str, tuple[Operand, ...]] = {
    "mma": ("A", "B", "C", "D"),
    "wgmma": ("A", "C", "D"),
    "matrix": ("matrix",),
    "tmem": ("tmem",),
}


def chosen_operand(instruction: str, operand: Any, family: str) -> Operand:
    """The operand, refused where instructions of the family hold none of that name in registers."""
    if not isinstance(operand, str):
        operand = None if operand is None else printed(operand)
    for known in _HELD[family]:
        if operand == known:
            return known
    if operand == "B" and family == "wgmma":
        raise broken(
            "fragment-operand", "operand", f"B of {instruction}", "wgmma reads B from shared memory, not from registers",
            "See wgmma_descriptors for what it reads there.",
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
                Violation(
                    "fragment-type",
                    "error",
                    "data_type",
                    "no type" if row is None else row.name,
                    f"operand {operand} of {instruction} is {', '.join(names)}",
                    _type_advice(operand, row),
                )
            ]
        )
    return row


def _type_advice(operand: Operand, row: DataType | None) -> str:
    if operand in ("C", "D") and row is not None:
        return "Give the type of the accumulator itself."
    return "Name one of these types."
