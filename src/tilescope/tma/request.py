"""Reading the arguments of a copy, and asking whether the chip would execute it.

Two kinds of refusal: what is no instruction at all (a coordinate that is no 32-bit number, a store in a mode that
only loads) is a RuleError; what faults on the chip is a FaultError, with the code of the fault.
"""

from __future__ import annotations

from tilescope.errors import RuleError, Violation, argument_range, argument_type, unknown_name
from tilescope.reading import integer, integers, is_one_of, try_read
from tilescope.rule import rule
from tilescope.tensor_map import REDUCTIONS, AnyMap, Copy, Im2colWideMap, require_legal
from tilescope.tensor_map.copy_instruction import Direction
from tilescope.tensor_map.limits import COORD_END, MAX_RANK, OFFSET_END
from tilescope.tensor_map.rules.coordinates import inner_step, nearest_coords

_ADDRESS_END = 1 << 32  # shared addresses are unsigned 32-bit numbers

COORDS_RANGE = rule(
    "coords-range",
    "A coordinate is a signed 32-bit number.",
    argument="coords[{axis}]",
    found="coords[{axis}] = {coord}",
    limit="a coordinate is a signed 32-bit number",
    fix="Use {nearest} at most, and start the tensor nearer to the box.",
    source='PTX ISA, "cp.async.bulk.tensor": tensorCoords are of type .s32',
    passing='ts.trace(ts.TensorMap("u8", (64,), (), (16,)), ((1 << 31) - 16,))',
    failing='ts.trace(ts.TensorMap("u8", (64,), (), (16,)), (1 << 31,))',
)
_COORDS_BELOW = COORDS_RANGE.worded(fix="Use {nearest} at least, and start the tensor nearer to the box.")
_WIDE = (
    'ts.trace(ts.Im2colWideMap("f16", (64, 32, 32, 8), (128, 4096, 131072), lower_width=0, upper_width=0, '
    'channels_per_pixel=64, pixels_per_column=32), (0, 0, 0, 0), operation="{operation}")'
)
WIDE_STORE = rule(
    "wide-store",
    "The im2col::w modes support only loads.",
    argument="tensor_map",
    found="a store through an Im2colWideMap",
    limit="the im2col::w modes only load",
    fix="Store through a tiled map.",
    source='PTX ISA, "cp.async.bulk.tensor"',
    passing=_WIDE.format(operation="load"),
    failing=_WIDE.format(operation="store"),
)


def request_copy(
    tensor_map: object,
    direction: Direction,
    coords: object,
    *,
    smem_address: object = 0,
    offsets: object = (),
    reduce: str | None = None,
    rows4: bool = False,
    cluster: bool = False,
) -> Copy:
    """The copy as one value, if the chip would execute it; otherwise an error that names every broken rule.

    >>> from tilescope.tensor_map import TensorMap
    >>> request_copy(TensorMap("f16", (64, 64), (128,), (64, 8)), "load", [0, 8]).coords
    (0, 8)
    """
    if not isinstance(tensor_map, AnyMap):
        fix = "Make one with ts.TensorMap(…) or ts.decode_tensor_map(…)."
        raise RuleError([argument_type("tensor_map", tensor_map, "a TensorMap, Im2colMap or Im2colWideMap", fix)])
    problems: list[Violation] = []
    unread: tuple[int, ...] = ()
    start = try_read(problems, unread, integers, "coords", coords)
    address = try_read(problems, 0, integer, "smem_address", smem_address)
    taps = try_read(problems, unread, integers, "offsets", offsets)
    problems += _far_coords(tensor_map, direction, start)
    problems += _inexpressible(tensor_map, direction, address, reduce)
    if problems:
        raise RuleError(problems)
    if direction == "load" and not taps:
        taps = _no_offsets(tensor_map)
    copy = Copy(tensor_map, "reduce" if reduce else direction, start, address, taps, reduce, rows4, cluster)
    require_legal(copy)
    return copy


def taken_offsets(rank: int, offsets: tuple[int, ...]) -> tuple[int, ...]:
    """The im2col offsets that the chip takes where some are too large, as measured on an H200.

    For rank 3 and 4, each is truncated to its bits. For rank 5 they are adjacent, and one that is too large overflows
    into the next.

    >>> taken_offsets(4, (258, 1)), taken_offsets(5, (33, 1, 2))
    ((2, 1), (1, 2, 2))
    """
    end = OFFSET_END[rank]
    if rank < MAX_RANK:
        return tuple(offset % end for offset in offsets)
    taken = []
    carried = 0
    for offset in offsets:
        carried, remainder = divmod(offset + carried, end)
        taken.append(remainder)
    return tuple(taken)


def _no_offsets(tensor_map: AnyMap) -> tuple[int, ...]:
    """The offsets of a load that has none: an im2col one has one for each of W, H, D, an im2col-wide one two."""
    if tensor_map.subject == "tiled":
        return ()
    return (0,) * (tensor_map.rank - 2 if tensor_map.subject == "im2col" else 2)


def _far_coords(tensor_map: AnyMap, direction: Direction, coords: tuple[int, ...]) -> list[Violation]:
    """Coordinates that do not fit 32 bits."""
    problems = []
    for axis, coord in enumerate(coords):
        if -COORD_END <= coord < COORD_END:
            continue
        step = inner_step(tensor_map, direction) if axis == 0 else 1
        nearest = nearest_coords(coord, step, direction)[0]
        wording = _COORDS_BELOW if coord < 0 else COORDS_RANGE
        problems.append(wording.violation(axis=axis, coord=coord, nearest=nearest))
    return problems


def _inexpressible(tensor_map: AnyMap, direction: Direction, smem_address: int, reduce: str | None) -> list[Violation]:
    """Other values that no instruction can express."""
    problems = []
    if not 0 <= smem_address < _ADDRESS_END:
        problems.append(argument_range("smem_address", smem_address, "0 to 2^32 - 1", "Use 0.", {"smem_address": 0}))
    if reduce is not None and not is_one_of(reduce, REDUCTIONS):
        problems.append(unknown_name("reduction", "reduce", reduce, REDUCTIONS))
    if direction != "load" and isinstance(tensor_map, Im2colWideMap):
        problems.append(WIDE_STORE.violation())
    return problems
