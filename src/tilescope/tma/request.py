"""Reading the arguments of a copy, and asking whether the chip would execute it.

Two kinds of refusal: what is no instruction at all (a coordinate that is no 32-bit number, a store in a mode that
only loads) is a RuleError; what faults on the chip is a FaultError, with the code of the fault.
"""

from __future__ import annotations

from typing import Any

from tilescope.errors import RuleError, Violation, argument_range, argument_type, unknown_name
from tilescope.reading import attempted, integer, integers, is_one_of
from tilescope.rule import rule
from tilescope.tensor_map import REDUCTIONS, AnyMap, Copy, Im2colWideMap, require_legal
from tilescope.tensor_map.instruction import Direction
from tilescope.tensor_map.limits import COORD_END
from tilescope.tensor_map.rules.coordinates import inner_step, nearest_coords

_ADDRESS_END = 1 << 32  # shared addresses are unsigned 32-bit numbers

COORDS_RANGE = rule(
    "coords-range",
    "A coordinate is a signed 32-bit number.",
    source='PTX ISA, "cp.async.bulk.tensor": tensorCoords are of type .s32',
    passing='ts.trace(ts.TensorMap("u8", (64,), (), (16,)), ((1 << 31) - 16,))',
    failing='ts.trace(ts.TensorMap("u8", (64,), (), (16,)), (1 << 31,))',
)
_WIDE = (
    'ts.trace(ts.Im2colWideMap("f16", (64, 32, 32, 8), (128, 4096, 131072), lower_width=0, upper_width=0, '
    'channels_per_pixel=64, pixels_per_column=32), (0, 0, 0, 0), operation="{operation}")'
)
WIDE_STORE = rule(
    "wide-store",
    "The im2col::w modes only load.",
    source='PTX ISA, "cp.async.bulk.tensor"',
    passing=_WIDE.format(operation="load"),
    failing=_WIDE.format(operation="store"),
)


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
    """The copy as one value, if the chip would execute it; otherwise an error that names every broken rule.

    >>> from tilescope.tensor_map import TensorMap
    >>> requested(TensorMap("f16", (64, 64), (128,), (64, 8)), "load", [0, 8]).coords
    (0, 8)
    """
    if not isinstance(tensor_map, AnyMap):
        fix = "Make one with ts.TensorMap(…) or ts.decode_tensor_map(…)."
        raise RuleError([argument_type("tensor_map", tensor_map, "a TensorMap, Im2colMap or Im2colWideMap", fix)])
    problems: list[Violation] = []
    unread: tuple[int, ...] = ()
    start = attempted(problems, unread, integers, "coords", coords)
    address = attempted(problems, 0, integer, "smem_address", smem_address)
    taps = attempted(problems, unread, integers, "offsets", offsets)
    problems += _inexpressible(tensor_map, direction, start, address, reduce)
    if problems:
        raise RuleError(problems)
    if direction == "load" and not taps and tensor_map.subject != "tiled":
        taps = (0,) * (tensor_map.rank - 2 if tensor_map.subject == "im2col" else 2)
    copy = Copy(tensor_map, "reduce" if reduce else direction, start, address, taps, reduce, rows4, cluster)
    require_legal(copy)
    return copy


def _inexpressible(
    tensor_map: AnyMap, direction: Direction, coords: tuple[int, ...], smem_address: int, reduce: Any
) -> list[Violation]:
    limit = "a coordinate is a signed 32-bit number"
    problems = []
    for axis, coord in enumerate(coords):
        if not -COORD_END <= coord < COORD_END:
            step, bound = inner_step(tensor_map, direction) if axis == 0 else 1, "least" if coord < 0 else "most"
            taken = nearest_coords(coord, step, direction)[0]
            name, fix = f"coords[{axis}]", f"Use {taken} at {bound}, and start the tensor nearer to the box."
            problems.append(COORDS_RANGE.violation(name, f"{name} = {coord}", limit, fix, coord=coord))
    if not 0 <= smem_address < _ADDRESS_END:
        problems.append(argument_range("smem_address", smem_address, "0 to 2^32 - 1", "Use 0.", {"smem_address": 0}))
    if reduce is not None and not is_one_of(reduce, REDUCTIONS):
        problems.append(unknown_name("reduction", "reduce", reduce, REDUCTIONS))
    if direction != "load" and isinstance(tensor_map, Im2colWideMap):
        found, limit = "a store through an Im2colWideMap", "the im2col::w modes only load"
        problems.append(WIDE_STORE.violation("tensor_map", found, limit, "Store through a tiled map."))
    return problems
