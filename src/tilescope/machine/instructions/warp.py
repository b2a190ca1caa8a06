"""Exchange between the lanes of a warp: shfl, vote, match, redux, elect, activemask.

Lanes are in rows of 32, one row per warp, and an instruction works on whole rows. Lanes that do not take part (another
branch, another mask, ended) hold what changes nothing: 0, the identity of a reduction, False.

    shfl.sync.bfly.b32 d, a, 1, 0x1f, -1     a: 10 11 12 13 …     d: 11 10 13 12 …
    vote.sync.ballot.b32 d, p, -1            p:  1  0  1  1 …     d: 0b…1101, the same for all

The .sync forms wait for the lanes of their mask (`Collective`). Lanes of one warp that name different masks form
separate groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.arithmetic import operation
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.execution.collective import Collective, names_all_lanes
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import Assembler, Constant, Decoder
from tilescope.machine.step import RefusedError, Step, Turn
from tilescope.ptx.syntax import Instruction, Operand, Pair
from tilescope.sync.cluster_shape import LaneNumbers, Lanes

Rows = npt.NDArray[Any]  # (warps, 32)

_LANE = np.arange(WARP_LANES)


class Results(NamedTuple):
    """The registers of `d|p`; None for `_` and for an omitted one."""

    value: int | None
    predicate: int | None


def _results(assembler: Assembler, operand: Operand) -> Results:
    if isinstance(operand, Pair):
        return Results(assembler.target(operand.first), assembler.target(operand.second))
    return Results(assembler.target(operand), None)


def _require_sync(instruction: Instruction, words: Words) -> None:
    """Refuse the forms of PTX 3, which took whoever happened to be there."""
    if not words.flag("sync"):
        raise RefusedError(f"{instruction.name} without .sync, which architectures since sm_70 do not have")


def _combine_lanes(step: Step) -> Step:
    """A step whose results depend on the values of all lanes, also on undefined ones."""

    def combine(cluster: Cluster, at: Lanes) -> None:
        if cluster.undefined is not None:
            cluster.undefined.combine(cluster.lanes(at))
        step(cluster, at)

    return combine


def _with_masks(assembler: Assembler, operand: Operand, step: Step) -> Turn:
    """A turn that waits for the lanes of each mask, and then does the step for all lanes of equal masks together.

    A lane that is not in its own mask takes part with those that name the same one: the ISA leaves it undefined.
    """
    number = assembler.source(operand, "u32")
    content = assembler.program.read_only.get(number)
    if isinstance(content, Constant):
        return Collective(step, number)

    def with_register(cluster: Cluster, at: Lanes) -> None:
        masks = cluster.registers[number][at].astype(np.uint32)
        distinct = np.unique(masks).tolist()
        if len(distinct) == 1:
            step(cluster, at)
            return
        lanes = cluster.lanes(at)
        for mask in distinct:
            step(cluster, lanes[masks == mask])

    return Collective(with_register, number)


def _in_rows(cluster: Cluster, at: Lanes, values: Values, absent: int = 0) -> Rows:
    """Values of some lanes as rows of 32; lanes that are not among them hold `absent`."""
    if isinstance(at, slice):
        return values.reshape(-1, WARP_LANES)
    spread = np.full(cluster.lane_count, absent, values.dtype)
    spread[at] = values
    return spread.reshape(-1, WARP_LANES)


def _of_lanes(at: Lanes, by_warp: Values) -> Values:
    """One value a warp, repeated for each of its lanes."""
    if isinstance(at, slice):
        return np.repeat(by_warp, WARP_LANES)
    of_lanes: Values = by_warp[at // WARP_LANES]
    return of_lanes


def _bits(rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint32]:
    """A row of truths as a mask: lane i is bit i."""
    packed: npt.NDArray[np.uint32] = np.packbits(rows, axis=1, bitorder="little").view("<u4")[:, 0]
    return packed


def _present(cluster: Cluster, at: Lanes) -> npt.NDArray[np.bool_]:
    """(warps, 32) whether a lane takes part."""
    present = np.zeros(cluster.lane_count, np.bool_)
    present[at] = True
    return present.reshape(-1, WARP_LANES)


class Sources(NamedTuple):
    """For each lane the lane it copies from, and whether that one was in range; if not, it copies from itself."""

    lane: npt.NDArray[np.intp]
    is_in_range: npt.NDArray[np.bool_]


def shuffle_sources(mode: str, lane: npt.NDArray[np.intp], b: Values, c: Values) -> Sources:
    """Where shfl's lanes copy from: `b` is a lane or a distance, `c` the last lane and, from bit 8 on, the segments.

    The warp is cut into segments of lanes that agree in the bits of the segment mask. `c` of up is the first lane.

    >>> shuffle_sources("down", np.arange(4), np.array([1]), np.array([0x1F])).lane
    array([1, 2, 3, 4])
    >>> shuffle_sources("up", np.arange(4), np.array([1]), np.array([0])).lane  # nobody below lane 0
    array([0, 0, 1, 2])
    >>> shuffle_sources("idx", np.arange(6), np.array([1]), np.array([0x1C03])).lane  # segments of 4
    array([1, 1, 1, 1, 5, 5])
    """
    distance = b.astype(np.intp) & (WARP_LANES - 1)
    clamp = c.astype(np.intp) & (WARP_LANES - 1)
    segments = c.astype(np.intp) >> 8 & (WARP_LANES - 1)
    in_segment = WARP_LANES - 1 & ~segments
    first = lane & segments
    last = first | (clamp & in_segment)
    if mode == "up":
        source = lane - distance
        is_in_range = source >= last
    elif mode == "down":
        source = lane + distance
        is_in_range = source <= last
    elif mode == "bfly":
        source = lane ^ distance
        is_in_range = source <= last
    else:
        source = first | (distance & in_segment)
        is_in_range = source <= last
    return Sources(np.where(is_in_range, source, lane), is_in_range)


def _shfl(assembler: Assembler, instruction: Instruction) -> Turn:
    """shfl.sync.mode.b32 d|p, a, b, c, mask: a lane that is not there gives 0 (the ISA: unpredictable)."""
    words = Words(instruction)
    _require_sync(instruction, words)
    mode = words.required(("up", "down", "bfly", "idx"), "mode")
    words.required(("b32",), "type .b32")
    words.done()
    first, a, b, c, mask = instruction.operands
    results = _results(assembler, first)
    value = assembler.source(a, "b32")
    numbers = (assembler.source(b, "b32"), assembler.source(c, "b32"))
    member_mask = assembler.source(mask, "u32")
    names_all = names_all_lanes(assembler.program, member_mask)
    contents = [assembler.program.read_only.get(number) for number in numbers]
    constants = [content.bits for content in contents if isinstance(content, Constant)]
    if len(constants) == len(numbers):
        distance, clamp = constants
        constant_sources = shuffle_sources(mode, _LANE, np.array([distance]), np.array([clamp]))
        return _with_masks(
            assembler, mask, _shuffle_of_all_warps(value, results, constant_sources, member_mask, names_all=names_all)
        )

    def shuffle(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        registers = cluster.registers
        distance, clamp = (registers[number][at] for number in numbers)
        sources = shuffle_sources(mode, lanes % WARP_LANES, distance, clamp)
        rows = _in_rows(cluster, at, registers[value][at])
        if results.value is not None:
            if not isinstance(at, slice) or not names_all or cluster.undefined is not None:
                _follow_shuffle(cluster, lanes, sources.lane, Shuffle(value, results.value, member_mask))
            registers[results.value][at] = rows[lanes // WARP_LANES, sources.lane]
        if results.predicate is not None:
            registers[results.predicate][at] = sources.is_in_range

    return _with_masks(assembler, mask, shuffle)


class Shuffle(NamedTuple):
    """The registers of a shuffle: the value, where it goes, and the lanes that take part."""

    value: int
    target: int
    mask: int


def _follow_shuffle(cluster: Cluster, lanes: LaneNumbers, source_lane: LaneNumbers, shuffle: Shuffle) -> None:
    """Find the lanes that copy from one that does not take part, or is not in the mask: their value is undefined."""
    if not cluster.bus.is_heard:
        return
    takes_part = np.zeros(cluster.lane_count, np.bool_)
    masks = cluster.registers[shuffle.mask][lanes].astype(np.uint32)
    takes_part[lanes] = masks >> (lanes % WARP_LANES) & 1 == 1
    sources = lanes // WARP_LANES * WARP_LANES + source_lane
    is_undefined = ~takes_part[sources] & (sources != lanes)
    if cluster.undefined is None:
        if not is_undefined.any():
            return
        cluster.follow_undefined(cluster.undefined_values)
    cluster.undefined_values.shuffle((shuffle.target,), shuffle.value, lanes, sources, is_undefined)


def _shuffle_of_all_warps(value: int, results: Results, sources: Sources, mask: int, *, names_all: bool) -> Step:
    """The common case: every warp shuffles in the same way, known when the kernel is made."""

    def shuffle(cluster: Cluster, at: Lanes) -> None:
        registers = cluster.registers
        if results.value is not None:
            if not isinstance(at, slice) or not names_all or cluster.undefined is not None:
                lanes = cluster.lanes(at)
                _follow_shuffle(cluster, lanes, sources.lane[lanes % WARP_LANES], Shuffle(value, results.value, mask))
            rows = _in_rows(cluster, at, registers[value][at])
            registers[results.value][at] = rows[:, sources.lane].reshape(-1)[at]
        if results.predicate is not None:
            registers[results.predicate][at] = np.resize(sources.is_in_range, cluster.lane_count)[at]

    return shuffle


def _vote(assembler: Assembler, instruction: Instruction) -> Turn:
    """vote.sync.{all, any, uni}.pred d, {!}a, mask; vote.sync.ballot.b32 d, {!}a, mask."""
    words = Words(instruction)
    _require_sync(instruction, words)
    mode = words.required(("all", "any", "uni", "ballot"), "mode")
    words.required(("b32",) if mode == "ballot" else ("pred",), "type")
    words.done()
    first, a, mask = instruction.operands
    target = assembler.target(first)
    predicate, is_negated = assembler.predicate(a)

    def vote(cluster: Cluster, at: Lanes) -> None:
        votes = cluster.registers[predicate][at].astype(np.bool_) ^ is_negated
        present = _bits(_present(cluster, at))
        ayes = _bits(_in_rows(cluster, at, votes)) & present
        outcomes = {
            "ballot": ayes,
            "all": ayes == present,
            "any": ayes != 0,
            "uni": (ayes == 0) | (ayes == present),
        }
        if target is not None:
            cluster.registers[target][at] = _of_lanes(at, outcomes[mode])

    return _with_masks(assembler, mask, _combine_lanes(vote))


def _match(assembler: Assembler, instruction: Instruction) -> Turn:
    """match.any.sync d, a, mask: the lanes of the same value; match.all.sync d|p, a, mask: all of them, or 0."""
    words = Words(instruction)
    _require_sync(instruction, words)
    mode = words.required(("any", "all"), "mode")
    type_name = words.required(("b32", "b64"), "type")
    words.done()
    first, a, mask = instruction.operands
    results = _results(assembler, first)
    value = assembler.source(a, type_name)

    def match(cluster: Cluster, at: Lanes) -> None:
        rows = _in_rows(cluster, at, cluster.registers[value][at])
        present = _present(cluster, at)
        is_equal = (rows[:, :, None] == rows[:, None, :]) & present[:, None, :]
        equal = _bits(is_equal.reshape(-1, WARP_LANES)).reshape(-1, WARP_LANES)
        everyone = _bits(present)[:, None]
        if mode == "all":
            is_same = equal == everyone
            equal = np.where(is_same, everyone, np.uint32(0))
            if results.predicate is not None:
                cluster.registers[results.predicate][at] = is_same.reshape(-1)[at]
        if results.value is not None:
            cluster.registers[results.value][at] = equal.reshape(-1)[at]

    return _with_masks(assembler, mask, _combine_lanes(match))


def _elect(assembler: Assembler, instruction: Instruction) -> Turn:
    """elect.sync d|p, mask: p holds for the lowest lane, whose number all get."""
    words = Words(instruction)
    _require_sync(instruction, words)
    words.done()
    first, mask = instruction.operands
    results = _results(assembler, first)

    def elect(cluster: Cluster, at: Lanes) -> None:
        leaders = _present(cluster, at).argmax(axis=1)
        elected = _of_lanes(at, leaders)
        if results.value is not None:
            cluster.registers[results.value][at] = elected.astype(np.uint32)
        if results.predicate is not None:
            cluster.registers[results.predicate][at] = cluster.lanes(at) % WARP_LANES == elected

    return _with_masks(assembler, mask, elect)


def _activemask(assembler: Assembler, instruction: Instruction) -> Step:
    """The lanes of the warp that run this instruction together."""
    words = Words(instruction)
    words.required(("b32",), "type .b32")
    words.done()
    target = assembler.written(instruction.operands[0])

    def active(cluster: Cluster, at: Lanes) -> None:
        masks = _bits(_present(cluster, at))
        cluster.registers[target][at] = _of_lanes(at, masks)

    return active


class Reduction(NamedTuple):
    """An integer reduction: what adds two values, how a word is looked at, and the value that changes nothing."""

    combine: np.ufunc
    view: str
    identity: int


_REDUCTIONS: dict[tuple[str, str], Reduction] = {
    ("add", "u32"): Reduction(np.add, "u4", 0),
    ("add", "s32"): Reduction(np.add, "u4", 0),
    ("min", "u32"): Reduction(np.minimum, "u4", 0xFFFF_FFFF),
    ("min", "s32"): Reduction(np.minimum, "i4", 0x7FFF_FFFF),
    ("max", "u32"): Reduction(np.maximum, "u4", 0),
    ("max", "s32"): Reduction(np.maximum, "i4", 0x8000_0000),
    ("and", "b32"): Reduction(np.bitwise_and, "u4", 0xFFFF_FFFF),
    ("or", "b32"): Reduction(np.bitwise_or, "u4", 0),
    ("xor", "b32"): Reduction(np.bitwise_xor, "u4", 0),
}
_F32_MAGNITUDE = 0x7FFF_FFFF
_F32_NAN = 0x7FFF_FFFF
_F32_INFINITY = 0x7F80_0000
_F32_MINUS_INFINITY = 0xFF80_0000


def _redux(assembler: Assembler, instruction: Instruction) -> Turn:
    """redux.sync.op.type d, a, mask: the reduction over all lanes of the mask, returned to each."""
    words = Words(instruction)
    _require_sync(instruction, words)
    name = words.required(("add", "min", "max", "and", "or", "xor"), "operation")
    is_absolute = words.flag("abs")
    keeps_nan = words.flag("NaN")
    type_name = words.type()
    words.done()
    target = assembler.target(instruction.operands[0])
    value = assembler.source(instruction.operands[1], type_name)
    if type_name == "f32" and name in ("min", "max"):
        reduce_rows = _float_reduction(name, is_absolute=is_absolute, keeps_nan=keeps_nan)
        identity = _float_identity(name, is_absolute=is_absolute, keeps_nan=keeps_nan)
    else:
        reduction = _REDUCTIONS.get((name, type_name))
        if reduction is None or is_absolute or keeps_nan:
            raise RefusedError(f"redux.sync has no form {instruction.opcode}")
        reduce_rows = _integer_reduction(reduction)
        identity = reduction.identity

    def reduce_warps(cluster: Cluster, at: Lanes) -> None:
        rows = _in_rows(cluster, at, cluster.registers[value][at], identity)
        if target is not None:
            cluster.registers[target][at] = _of_lanes(at, reduce_rows(rows))

    return _with_masks(assembler, instruction.operands[2], _combine_lanes(reduce_warps))


def _integer_reduction(reduction: Reduction) -> Callable[[Rows], Values]:
    def reduce_rows(rows: Rows) -> Values:
        typed = np.ascontiguousarray(rows).view(reduction.view)
        reduced: Values = reduction.combine.reduce(typed, axis=1)
        return reduced.astype(reduction.view).view(np.uint32)

    return reduce_rows


def _float_identity(name: str, *, is_absolute: bool, keeps_nan: bool) -> int:
    """The bits that change no minimum or maximum: a NaN where NaNs are dropped."""
    if not keeps_nan:
        return _F32_NAN
    if name == "min":
        return _F32_INFINITY
    return 0 if is_absolute else _F32_MINUS_INFINITY


def _float_reduction(name: str, *, is_absolute: bool, keeps_nan: bool) -> Callable[[Rows], Values]:
    """Minimum and maximum as the instructions of one thread have them, half of the lanes against the other half."""
    modifiers = ("NaN", "f32") if keeps_nan else ("f32",)
    combine = operation(name, modifiers).compute

    def reduce_rows(rows: Rows) -> Values:
        left: Rows = rows.astype(np.uint32)
        if is_absolute:
            left = left & np.uint32(_F32_MAGNITUDE)
        while left.shape[1] > 1:
            half = left.shape[1] // 2
            low = np.ascontiguousarray(left[:, :half]).reshape(-1)
            high = np.ascontiguousarray(left[:, half:]).reshape(-1)
            left = combine(low, high).reshape(-1, half)
        return left[:, 0]

    return reduce_rows


FAMILIES: dict[str, Decoder] = {
    "shfl": _shfl,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "activemask": _activemask,
    "elect": _elect,
}
