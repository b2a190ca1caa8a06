"""Reading the arguments of a copy, and asking whether the chip would execute it.

Two kinds of refusal: what cannot even be written down as an instruction (a wrong number of coordinates, a number
that is none) is a RuleError; what the chip answers with an illegal instruction is an IllegalInstructionError.
"""

from __future__ import annotations

from typing import Any

from tilescope.errors import RuleError, Violation, broken, shortened, unknown_name
from tilescope.tensor_map import REDUCTIONS, AnyMap, Copy, Im2colMap, Im2colWideMap, require_legal
from tilescope.tensor_map.rules.instruction import Direction
from tilescope.tensor_map.reading import integer, integers
from tilescope.tma.walk import GATHERED_ROWS

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

    def read(reader: Any, argument: str, given: Any, otherwise: Any) -> Any:
        try:
            return reader(argument, given)
        except RuleError as error:
            problems.extend(error.violations)
            return otherwise

    place = read(integers, "coords", coords, None)
    address = read(integer, "smem_address", smem_address, 0)
    taps = read(integers, "offsets", offsets, None)
    if place is not None:
        problems += _coords_problems(tensor_map, place, rows4)
    if taps is not None:
        problems += _offsets_problems(tensor_map, taps)
    if not 0 <= address < _ADDRESS_END:
        found = f"smem_address = {shortened(str(address), 40)}"
        problems.append(_problem("address", "smem_address", found, "0 to 2^32 - 1", "Give a shared-memory address."))
    if reduce is not None and not (isinstance(reduce, str) and reduce in REDUCTIONS):
        problems.append(unknown_name("reduction", "reduce", reduce, REDUCTIONS))
    if direction != "load" and isinstance(tensor_map, Im2colWideMap):
        problems.append(_problem(
            "wide-store", "tensor_map", "a store through an Im2colWideMap", "the im2col::w modes only load",
            "Store through a tiled map.",
        ))  # fmt: skip
    if problems:
        raise RuleError(problems)
    taps = taps or (0,) * _offset_count(tensor_map)
    copy = Copy(tensor_map, "reduce" if reduce else direction, place, address, taps, reduce, rows4)
    require_legal(copy)
    return copy


def _offset_count(tensor_map: AnyMap) -> int:
    if isinstance(tensor_map, Im2colMap):
        return tensor_map.rank - 2
    return 2 if isinstance(tensor_map, Im2colWideMap) else 0


def _coords_problems(tensor_map: AnyMap, coords: tuple[int, ...], rows4: bool) -> list[Violation]:
    wanted = 1 + GATHERED_ROWS if rows4 else tensor_map.rank
    if len(coords) != wanted:
        order = "a column and four rows" if rows4 else "one for each dimension, innermost first"
        found = f"{len(coords)} coordinates"
        limit = f"{wanted}: {order}" if rows4 else f"{wanted} for rank {tensor_map.rank}: {order}"
        return [_problem("coords-count", "coords", found, limit, f"Give {wanted} coordinates.")]
    return [
        _problem("coords-range", f"coords[{axis}]", f"coords[{axis}] = {shortened(str(place), 40)}",
                 "a coordinate is a signed 32-bit number", "Start the tensor map nearer to the box.")
        for axis, place in enumerate(coords) if not -_COORD_END <= place < _COORD_END
    ]  # fmt: skip


def _offsets_problems(tensor_map: AnyMap, offsets: tuple[int, ...]) -> list[Violation]:
    wanted = _offset_count(tensor_map)
    if not offsets or len(offsets) == wanted:
        return []
    if not wanted:
        limit, fix = "only im2col copies have offsets", "Leave offsets out."
    elif isinstance(tensor_map, Im2colWideMap):
        limit, fix = "two: the halo and the offset along W", "Give (halo, offset)."
    else:
        limit, fix = f"{wanted} for rank {tensor_map.rank}: one for each of W, H, D", f"Give {wanted} offsets, W first."
    return [_problem("offsets-count", "offsets", f"{len(offsets)} offsets", limit, fix)]


def _problem(rule: str, argument: str, found: str, limit: str, fix: str) -> Violation:
    return Violation(rule, "error", argument, found, limit, fix)
