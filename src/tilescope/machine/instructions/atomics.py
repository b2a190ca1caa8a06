"""Read, change and write in one piece: atom and red, on global and shared memory.

Lanes that access the same address are applied one after another, in lane order:

    atom.shared.add.u32 d, [counter], 5      lane      0   1   2         counter: 100 → 115
                                             d       100 105 110

They are sorted by address; a round takes the next lane of every address. Sums of integers need no rounds. What a lane
leaves as it was is not written, so that a thread that polls by atomics, or a compare-and-swap that fails, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.machine.arithmetic import operation
from tilescope.machine.cluster import Cluster
from tilescope.machine.cluster import Words as Values
from tilescope.machine.decoding.access_kind import AccessKind, access_kind
from tilescope.machine.instructions.load_store import decode_address, space_of
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.program import DTYPE_OF_BITS, Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.ptx.syntax import BITS_OF_TYPE, Instruction, Operand
from tilescope.sentence import counted
from tilescope.sync.address import SHARED_WINDOW, Addresses, Space, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import Atomic as AtomicEvent

Combine = Callable[..., Values]  # (old value, operand, …) → new value

_INTEGER_TYPES = ("u32", "s32", "u64", "s64")
_FLOAT_TYPES = ("f32", "f64")
_HALF_TYPES = ("f16", "bf16", "f16x2", "bf16x2")
_BIT_TYPES = ("b32", "b64")
_WORD_TYPES = (*_BIT_TYPES, *_INTEGER_TYPES, *_FLOAT_TYPES, "b128")
TYPES_OF_OPERATION: dict[str, tuple[str, ...]] = {
    "add": (*_INTEGER_TYPES, *_FLOAT_TYPES, *_HALF_TYPES),
    "min": (*_INTEGER_TYPES, *_HALF_TYPES),
    "max": (*_INTEGER_TYPES, *_HALF_TYPES),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": _BIT_TYPES,
    "or": _BIT_TYPES,
    "xor": _BIT_TYPES,
    "exch": _WORD_TYPES,
    "cas": (*_WORD_TYPES, "b16", "u16", "s16"),
}
_UFUNC = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_VECTOR_TYPES = ("f32", *_HALF_TYPES)


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of one atomic on a word, for any number of lanes.

    `ufunc`, on words seen as `view`, does the same to a whole row of them, where numpy can: integers, and sums of f32 and
    f64 without NaNs and denormals. `in_shared` is another `combine` for shared memory: additions of f32 to global memory
    flush denormals, those to shared memory keep them.
    """

    combine: Combine
    in_shared: Combine
    ufunc: np.ufunc | None = None
    view: str = ""
    adds_floats: bool = False


def _increment(old: Values, limit: Values) -> Values:
    one = old.dtype.type(1)
    return np.where(old >= limit, old.dtype.type(0), old + one)  # type: ignore[operator]  # unsigned integers


def _decrement(old: Values, limit: Values) -> Values:
    one = old.dtype.type(1)
    return np.where((old == 0) | (old > limit), limit, old - one)  # type: ignore[operator]


def _exchange(old: Values, new: Values) -> Values:
    return new


def _swapped_if_equal(old: Values, compared: Values, new: Values) -> Values:
    is_equal = old == compared
    if old.ndim > 1:  # 128 bits are two words
        is_equal = is_equal.all(axis=1, keepdims=True)
    return np.where(is_equal, new, old)


_OWN_CHANGES: dict[str, Combine] = {
    "inc": _increment,
    "dec": _decrement,
    "exch": _exchange,
    "cas": _swapped_if_equal,
}


def change_of(name: str, type_name: str) -> Change:
    """How an atomic changes words of a type.

    >>> change = change_of("inc", "u32")
    >>> change.combine(np.array([3, 4, 5], np.uint32), np.array([4, 4, 4], np.uint32))
    array([4, 0, 0], dtype=uint32)
    """
    own_combine = _OWN_CHANGES.get(name)
    if own_combine is not None:
        return Change(own_combine, own_combine)
    if type_name not in _FLOAT_TYPES + _HALF_TYPES:
        view = f"{'i' if type_name.startswith('s') else 'u'}{BITS_OF_TYPE[type_name] // 8}"
        combine = _of_integers(_UFUNC[name], view)
        return Change(combine, combine, _UFUNC[name], view)
    in_shared = operation(name, (type_name,)).compute
    in_global = in_shared
    if type_name == "f32":
        in_global = operation(name, ("ftz", type_name)).compute
    if type_name == "f64":
        in_shared = _operand_first(in_global)
        in_global = _with_nans_as_they_are(in_global)
    if name == "add" and type_name in _FLOAT_TYPES:
        return Change(in_global, in_shared, np.add, f"f{BITS_OF_TYPE[type_name] // 8}", adds_floats=True)
    return Change(in_global, in_shared, adds_floats=name == "add")


def _operand_first(combine: Combine) -> Combine:
    """f64 in shared memory is a loop around cas that adds what it found last: where both are NaN, that one stays."""

    def swapped(old: Values, operand: Values) -> Values:
        return combine(operand, old)

    return swapped


def _with_nans_as_they_are(combine: Combine) -> Combine:
    """f64 in global memory: a NaN keeps its payload, that of the operand first; threads would make it quiet.

    Measured on an H200 for atom, red and cp.reduce.async.bulk.
    """

    def combine_with_nans(old: Values, operand: Values) -> Values:
        total = combine(old, operand)
        total = np.where(_is_nan(old), old, total)
        return np.where(_is_nan(operand), operand, total)

    return combine_with_nans


def _is_nan(words: Values) -> npt.NDArray[np.bool_]:
    return np.isnan(np.ascontiguousarray(words).view(np.float64))


def _of_integers(ufunc: np.ufunc, view: str) -> Combine:
    def combine(old: Values, operand: Values) -> Values:
        result: Values = ufunc(np.ascontiguousarray(old).view(view), np.ascontiguousarray(operand).view(view))
        return result.view(old.dtype)

    return combine


class Outcome(NamedTuple):
    """The old value for each lane, and the words that changed: the first lane at each, and the new value."""

    before: Values
    first: LaneNumbers
    after: Values


class Groups(NamedTuple):
    """Lanes sorted by address: where the lanes of each address start, and the number of each lane's address."""

    starts: LaneNumbers
    group: LaneNumbers


def changed_words(
    change: Change, combine: Combine, addresses: Addresses, old: Values, operands: list[Values]
) -> Outcome:
    """All lanes of an atomic, those at one address one after another.

    >>> add = change_of("add", "u32")
    >>> old = np.array([100, 7, 100], np.uint32)  # what lies at the three addresses: two are the same
    >>> words = changed_words(add, add.combine, np.array([64, 68, 64]), old, [np.array([5, 1, 5], np.uint32)])
    >>> words.before, words.first, words.after
    (array([100,   7, 105], dtype=uint32), array([0, 1]), array([110,   8], dtype=uint32))
    """
    order = np.argsort(addresses, kind="stable")
    in_order = addresses[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    if is_first.all():
        return Outcome(old, np.arange(len(addresses)), combine(old, *operands))
    groups = Groups(np.flatnonzero(is_first), np.cumsum(is_first) - 1)
    sorted_operands = [operand[order] for operand in operands]
    before_in_order, after = _one_after_another(change, combine, old[order], sorted_operands, groups)
    before = np.empty_like(old)
    before[order] = before_in_order
    return Outcome(before, order[groups.starts], after)


def _one_after_another(
    change: Change, combine: Combine, old: Values, operands: list[Values], groups: Groups
) -> tuple[Values, Values]:
    """(the old value for each lane, the final values), lanes sorted by address."""
    starts, group = groups
    if change.ufunc is np.add and not change.adds_floats:
        return _running_sums(old, operands[0], starts, group)
    rank = np.arange(len(group)) - starts[group]
    if change.ufunc is not None and len(starts) <= int(rank.max()):
        result = _group_by_group(change, old, operands[0], starts)
        if result is not None:
            return result
    by_rank = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    before = np.empty_like(old)
    current = old[starts]
    first = 0
    for end in ends.tolist():
        chosen = by_rank[first:end]
        places = group[chosen]
        before[chosen] = current[places]
        current[places] = combine(current[places], *[operand[chosen] for operand in operands])
        first = end
    return before, current


def _running_sums(old: Values, parts: Values, starts: LaneNumbers, group: LaneNumbers) -> tuple[Values, Values]:
    """Sums of integers, all groups at once: what a lane finds is what the lanes before it added."""
    words: npt.NDArray[np.unsignedinteger] = parts.astype(parts.dtype)
    earlier = np.cumsum(words, dtype=words.dtype) - words
    before = old + (earlier - earlier[starts][group])
    after = old[starts] + np.add.reduceat(words, starts, dtype=words.dtype)
    return before, after


def _group_by_group(change: Change, old: Values, parts: Values, starts: LaneNumbers) -> tuple[Values, Values] | None:
    """Few addresses with many lanes, a row of words for each; None for floats that the card treats otherwise."""
    assert change.ufunc is not None
    before = np.empty_like(old)
    after = np.empty_like(old[starts])
    ends = [*starts[1:].tolist(), len(old)]
    for number, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True)):
        row = np.concatenate([old[start : start + 1], parts[start:end]]).view(change.view)
        accumulated = change.ufunc.accumulate(row)
        if change.adds_floats and not (_is_plain(row) and _is_plain(accumulated)):
            return None
        words = accumulated.view(old.dtype)
        before[start:end] = words[:-1]
        after[number] = words[-1]
    return before, after


def _is_plain(floats: npt.NDArray[np.floating[Any]]) -> bool:
    """Whether none of the floats is a NaN or a denormal."""
    magnitudes = np.abs(floats)
    return bool(((magnitudes >= np.finfo(floats.dtype).tiny) | (magnitudes == 0)).all())


@dataclass(frozen=True, slots=True)
class Atomic:
    """A decoded atom or red: types, registers and what it does."""

    opcode: str
    change: Change
    space: Space
    addresses: Callable[[Cluster, Lanes], Addresses]
    dtype: np.dtype[np.generic]
    words: int  # that one lane changes: 2 or more for vectors
    is_wide: bool  # 128 bits: two words that change as one
    kind: AccessKind
    operands: tuple[tuple[int, ...], ...]  # registers of each operand, several for vectors
    targets: tuple[int | None, ...]

    def __call__(self, cluster: Cluster, at: Lanes) -> None:
        """Do it for some lanes."""
        addresses = self.addresses(cluster, at)
        operands = [self._operand(cluster, at, numbers) for numbers in self.operands]
        if self.space != "generic":
            before = self._change(cluster, self.space, cluster.lanes(at), addresses, operands)
        else:
            before = self._change_generic(cluster, cluster.lanes(at), addresses, operands)
        for index, target in enumerate(self.targets):
            if target is not None:
                register = cluster.registers[target]
                values = before if self.is_wide or self.words == 1 else before[:, index]
                register[at] = values.astype(register.dtype, copy=False)

    def _operand(self, cluster: Cluster, at: Lanes, numbers: tuple[int, ...]) -> Values:
        """(lanes,) words, or (lanes, words) of a vector or of 128 bits."""
        values = [cluster.registers[number][at].astype(self.dtype, copy=False) for number in numbers]
        return values[0] if len(values) == 1 else np.stack(values, axis=1)

    def _change_generic(
        self, cluster: Cluster, lanes: LaneNumbers, addresses: Addresses, operands: list[Values]
    ) -> Values:
        is_shared = is_in_window("shared", addresses)
        if not is_shared.any():
            return self._change(cluster, "global", lanes, addresses, operands)
        if is_shared.all():
            return self._change(cluster, "shared", lanes, addresses - SHARED_WINDOW, operands)
        before = np.empty_like(operands[0])
        parts: list[tuple[Space, npt.NDArray[np.bool_], int]] = [
            ("shared", is_shared, SHARED_WINDOW),
            ("global", ~is_shared, 0),
        ]
        for space, chosen, window in parts:
            chosen_operands = [operand[chosen] for operand in operands]
            before[chosen] = self._change(cluster, space, lanes[chosen], addresses[chosen] - window, chosen_operands)
        return before

    def _change(
        self, cluster: Cluster, space: Space, lanes: LaneNumbers, addresses: Addresses, operands: list[Values]
    ) -> Values:
        """Change words of one space and return their old values."""
        old = cluster.read(space, lanes, addresses, self.dtype, self.words)
        shape = old.shape
        word_lanes = lanes
        word_addresses = addresses
        if self.words > 1 and not self.is_wide:  # every element of a vector is a separate atomic
            word_lanes = np.repeat(lanes, self.words)
            word_addresses = (addresses[:, None] + np.arange(self.words) * self.dtype.itemsize).reshape(-1)
            old = old.reshape(-1)
            operands = [operand.reshape(-1) for operand in operands]
        combine = self.change.in_shared if space == "shared" else self.change.combine
        outcome = changed_words(self.change, combine, word_addresses, old, operands)
        is_changed = outcome.after != old[outcome.first]
        if self.is_wide:
            is_changed = is_changed.any(axis=1)
        first = outcome.first[is_changed]
        written = word_addresses[first]
        is_shared = space == "shared"
        cluster.emit(
            AtomicEvent(
                cluster.pc,
                lanes,
                "shared" if is_shared else "global",
                addresses,
                cluster.shared_places(lanes, addresses) if is_shared else addresses,
                self.dtype.itemsize * self.words,
                cluster.accesses[cluster.pc] if cluster.bus.is_heard else None,
                self.kind,
                word_lanes,
                word_addresses,
                cluster.shared_places(word_lanes, word_addresses) if is_shared else word_addresses,
                self.dtype.itemsize,
                word_lanes[first],
                cluster.shared_places(word_lanes[first], written) if is_shared else written,
                self.dtype.itemsize * (2 if self.is_wide else 1),
                old[first],
            )
        )
        if len(first):
            cluster.write(space, word_lanes[first], written, outcome.after[is_changed])
        return outcome.before.reshape(shape)


def _atom(assembler: Assembler, instruction: Instruction) -> Step:
    """atom.op.type d, [a], b{, c}."""
    first, address, *operands = instruction.operands
    return _decode_atomic(assembler, instruction, assembler.vector(first), address, operands)


def _red(assembler: Assembler, instruction: Instruction) -> Step:
    """red.op.type [a], b."""
    address, *operands = instruction.operands
    return _decode_atomic(assembler, instruction, (), address, operands)


def _decode_atomic(
    assembler: Assembler,
    instruction: Instruction,
    targets: tuple[Operand, ...],
    address: Operand,
    operands: list[Operand],
) -> Step:
    words = Words(instruction)
    space = space_of(assembler, address, words.space())
    words.without_effect()
    name = words.required(TYPES_OF_OPERATION, "operation")
    count = words.vector()
    words.flag("noftz")  # 16-bit floats keep their denormals
    type_name = words.type()
    words.done()
    _require_form(instruction, name, type_name, count)
    value_count = 2 if name == "cas" else 1
    if len(operands) < value_count:
        raise RefusedError(
            f"{instruction.name}.{name} takes an address and {counted(value_count, 'value')}, not {len(operands)}"
        )
    value_operands = operands[:value_count]  # a cache policy may follow
    numbers = tuple(
        tuple(assembler.source(element, type_name) for element in assembler.vector(operand))
        for operand in value_operands
    )
    if any(len(elements) != count for elements in numbers) or (targets and len(targets) != count):
        raise RefusedError(f"each operand takes {counted(count, 'register')}")
    is_wide = type_name == "b128"
    dtype = DTYPE_OF_BITS[min(BITS_OF_TYPE[type_name], 64)]
    words_changed = 2 if is_wide else count
    return Atomic(
        opcode=instruction.opcode,
        change=change_of(name, type_name),
        space=space,
        addresses=decode_address(assembler, address),
        dtype=dtype,
        words=words_changed,
        is_wide=is_wide,
        kind=access_kind("st", dtype.itemsize * words_changed),
        operands=numbers,
        targets=tuple(assembler.target(target) for target in targets),
    )


def _require_form(instruction: Instruction, name: str, type_name: str, count: int) -> None:
    is_known = type_name in TYPES_OF_OPERATION[name]
    if count > 1:
        is_known = is_known and type_name in _VECTOR_TYPES
    elif name in ("min", "max"):
        is_known = is_known and type_name not in _HALF_TYPES
    if instruction.name == "red" and name in ("cas", "exch"):
        is_known = False
    if not is_known:
        raise RefusedError(f"{instruction.name} has no form {instruction.opcode}")


def _multimem(assembler: Assembler, instruction: Instruction) -> Step:
    raise RefusedError("memory of several cards under one address (multimem): the machine is one card")


FAMILIES: dict[str, Decoder] = {"atom": _atom, "red": _red, "multimem": _multimem}
