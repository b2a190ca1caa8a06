"""Reading the arguments of a copy, and asking whether the chip would execute it.

Two kinds of refusal: what is no instruction at all (a coordinate that is no 32-bit number, a store in a mode that
only loads) is a RuleError; what the chip answers with an illegal instruction is an IllegalInstructionError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tilescope.errors import RuleError, Violation, broken, unknown_name
from tilescope.tensor_map import REDUCTIONS, AnyMap, Copy, Im2colMap, Im2colWideMap, require_legal
from tilescope.tensor_map.reading import integer, integers
from tilescope.tensor_map.rules.instruction import Direction

Read = TypeVar("Read")
_COORD_END = 1 << 31  # coordinates are signed 32-bit numbers
_ADDRESS_END = 1 << 32  # and shared addresses unsigned ones


def requested(
    tensor_map: Any,
    direction: Direction,
    coords: Any,
    *,
    smem_address: Any = 0,
    offsets: Any = (),
    reduce: Any = None,
    rows4: bool = False,
    cluster: bool = False,
) -> Copy:
    """The copy as one value, once the chip would execute it; every broken rule is named at once.

    >>> from tilescope.tensor_map import TensorMap
    >>> requested(TensorMap("f16", (64, 64), (128,), (64, 8)), "load", [0, 8]).coords
    (0, 8)
    """
    if not isinstance(tensor_map, AnyMap):
        raise broken(
            "argument-type", "tensor_map", f"a {type(tensor_map).__name__}", "a TensorMap, Im2colMap or Im2colWideMap",
            "Make one with ts.TensorMap(…) or ts.decode_tensor_map(…).",
        )  # fmt: skip
    problems: list[Violation] = []
    none: tuple[int, ...] = ()
    place = _read(integers, "coords", coords, none, problems)
    address = _read(integer, "smem_address", smem_address, 0, problems)
    taps = _read(integers, "offsets", offsets, none, problems)
    problems += _inexpressible(tensor_map, direction, place, address, reduce)
    if problems:
        raise RuleError(problems)
    if direction == "load":
        taps = taps or (0,) * _offset_count(tensor_map)
    copy = Copy(tensor_map, "reduce" if reduce else direction, place, address, taps, reduce, rows4, cluster)
    require_legal(copy)
    return copy


def _read(
    reader: Callable[[str, Any], Read], argument: str, given: Any, otherwise: Read, problems: list[Violation]
) -> Read:
    try:
        return reader(argument, given)
    except RuleError as error:
        problems += error.violations
        return otherwise


def _offset_count(tensor_map: AnyMap) -> int:
    if isinstance(tensor_map, Im2colMap):
        return tensor_map.rank - 2
    return 2 if isinstance(tensor_map, Im2colWideMap) else 0


def _inexpressible(
    tensor_map: AnyMap, direction: Direction, coords: tuple[int, ...], smem_address: int, reduce: Any
) -> list[Violation]:
    problems = []

    def refuse(rule: str, argument: str, found: str, limit: str, fix: str) -> None:
        problems.append(Violation(rule, "error", argument, found, limit, fix))

    for axis, place in enumerate(coords):
        if not -_COORD_END <= place < _COORD_END:
            refuse(
                "coords-range", f"coords[{axis}]", f"coords[{axis}] = {place}", "a coordinate is a signed 32-bit number",
                "Start the tensor nearer to the box.",
            )  # fmt: skip
    if not 0 <= smem_address < _ADDRESS_END:
        found = f"smem_address = {smem_address}"
        refuse("address", "smem_address", found, "0 to 2^32 - 1", "Give a shared-memory address.")
    if reduce is not None and not (isinstance(reduce, str) and reduce in REDUCTIONS):
        problems.append(unknown_name("reduction", "reduce", reduce, REDUCTIONS))
    if direction != "load" and isinstance(tensor_map, Im2colWideMap):
        refuse(
            "wide-store", "tensor_map", "a store through an Im2colWideMap", "the im2col::w modes only load",
            "Store through a tiled map.",
        )  # fmt: skip
    return problems
