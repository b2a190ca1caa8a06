"""The nearest map that the driver accepts: the output of `tilescope check --fix`.

A broken rule names the change that fixes it. The change of one argument may make another one wrong:

    f16, dims (1023, 1024, 4), strides (2046, 2095104)     stride-alignment: 2046 is no multiple of 16
                               strides (2048, 2095104)     stride-overlap: 1024 rows of 2048 bytes are 2097152
                               strides (2048, 2097152)     nothing

So errors are cured first, then every warning that the user's own legal values do not cause: one that the map did not have
before, or that is due to a value which replaced one of the user's. What the user gave and the driver takes stays as it is:
a stride of 0 is a broadcast, a small one a sliding window, and their warnings stay with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, Violation
from tilescope.tensor_map.limits import ALIGNMENT_BYTES, WIDE_ALIGNMENT_BYTES
from tilescope.tensor_map.option import Interleave
from tilescope.tensor_map.rules.accepted import SIZE_FLAG, SMEM_CAPACITY
from tilescope.tensor_map.rules.box_rules import INTERLEAVE_SWIZZLE
from tilescope.tensor_map.rules.tensor_rules import INTERLEAVE_RANK, RANK, STRIDE_OVERLAP

_MAX_ROUNDS = 40  # every round fixes an argument; a map has fewer
_RANK_RULES = (RANK.name, INTERLEAVE_RANK.name)
# The arguments that determine the shared memory of a copy.
_COPY_ARGUMENTS = (
    "box",
    "element_strides",
    "interleave",
    "swizzle",
    "channels_per_pixel",
    "pixels_per_column",
    "mode",
)
Arguments = dict[str, Any]  # of a map, by name, as the user gave them or as they are to be
Check = Callable[..., tuple[Violation, ...]]


def repaired_arguments(check: Check, given: Mapping[str, object], *, are_strides_given: bool) -> Arguments:
    """The arguments with the changes that broken rules name, and those that the changes need; TensorMapError where none helps.

    `check` is that of the kind of map. Strides that were not given follow the dims: dense, rows padded to what the driver takes.
    """
    original = _with_legal_rank(check, dict(given))
    before = check(**original)
    if not _errors(before):
        return original
    wrong_rank = [violation for violation in before if violation.rule in _RANK_RULES]
    if wrong_rank:
        raise TensorMapError(wrong_rank)
    repair = _Repair(
        check=check,
        own=original,
        before={(violation.rule, violation.argument) for violation in before},
        asked=dict(original),
        are_strides_given=are_strides_given,
    )
    for _ in range(_MAX_ROUNDS):
        violations = check(**repair.asked)
        broken = _errors(violations)
        change = _first_change(broken) if broken else repair.first_cure(violations)
        if change is not None:
            repair.apply(change)
        elif broken:
            raise TensorMapError(broken)
        else:
            return repair.asked
    raise TensorMapError(_errors(before))  # the fix of one rule breaks another, such as strides that end below 2^40


def _errors(found: tuple[Violation, ...]) -> list[Violation]:
    return [violation for violation in found if violation.severity == "error"]


def _first_change(broken: list[Violation]) -> Arguments | None:
    """The first change that fixes one of these."""
    for violation in broken:
        if violation.change:
            return dict(violation.change)
    return None


def _with_legal_rank(check: Check, given: Arguments) -> Arguments:
    """The arguments with dimensions merged or added where the rank is wrong: the same tensor, its dimensions counted anew."""
    for _ in range(_MAX_ROUNDS):
        changes = [
            violation.change for violation in check(**given) if violation.rule in _RANK_RULES and violation.change
        ]
        if not changes:
            break
        given = given | dict(changes[0])
    return given


@dataclass
class _Repair:
    """Arguments on their way to a map that the driver takes."""

    check: Check
    own: Arguments  # what the user gave
    before: set[tuple[str, str]]  # rule and argument of every violation
    asked: Arguments  # what has become of it
    are_strides_given: bool

    def apply(self, change: Arguments) -> None:
        self.asked |= change
        if not self.are_strides_given:
            self.asked["strides_bytes"] = _dense_strides(self.asked)

    def keeps(self, *names: str) -> bool:
        """Whether these arguments are still the user's."""
        return all(self.asked.get(name) == self.own.get(name) for name in names)

    def keeps_window(self, axis: int) -> bool:
        """Whether a stride is the user's, who meant it to overlap: it is 0, or overlapped as it was given."""
        stride = self.asked["strides_bytes"][axis]
        is_own = self.are_strides_given and stride == self.own["strides_bytes"][axis]
        return is_own and (stride == 0 or (STRIDE_OVERLAP.name, f"strides_bytes[{axis}]") in self.before)

    def first_cure(self, warnings: Iterable[Violation]) -> Arguments | None:
        """The change that takes one of them away; None where the user's own values cause them, or where nothing helps."""
        for warning in warnings:
            cure = _CURES.get(warning.rule)
            change = None if cure is None else cure(self, warning)
            if change:
                return change
        return None

    def is_sound(self, change: Arguments) -> bool:
        """Whether the driver takes the map with this change."""
        return not _errors(self.check(**self.asked | change))


def _apart(repair: _Repair, overlap: Violation) -> Arguments | None:
    """The strides, with one that was too small stepping over what the smaller ones cover.

    Strides that overlap because the user passed them, for windows and broadcasts, stay unchanged. Other strides are
    enlarged only if the user's arguments had no overlap there.
    """
    dims = repair.asked["dims"]
    strides = repair.asked["strides_bytes"]
    windows = [axis for axis in range(len(strides)) if repair.keeps_window(axis)]
    row = _row(repair.asked)
    covered_bytes = row.row_bytes
    for stride, axis in sorted((stride, axis) for axis, stride in enumerate(strides)):
        if axis in windows or dims[axis + 1] == 1:
            continue
        if stride < covered_bytes:
            return {"strides_bytes": _with_entry(strides, axis, rounded_up(covered_bytes, row.multiple_bytes))}
        covered_bytes += stride * (dims[axis + 1] - 1)
    axis = overlap.values["axis"]
    if axis in windows or (overlap.rule, overlap.argument) in repair.before:
        return None
    return {"strides_bytes": _with_entry(strides, axis, overlap.values["next"])}


def _with_entry(entries: tuple[int, ...], place: int, entry: int) -> tuple[int, ...]:
    return (*entries[:place], entry, *entries[place + 1 :])


def _without_gaps(repair: _Repair, flag: Violation) -> Arguments | None:
    """Dense strides in place of the user's, where the replaced ones left gaps."""
    if (flag.rule, flag.argument) in repair.before:
        return None
    strides = list(repair.asked["strides_bytes"])
    original = repair.own["strides_bytes"]
    dense = _dense_strides(repair.asked)
    for axis in range(len(strides)):
        if strides[axis] != original[axis]:
            strides[axis] = dense[axis]
    change = {"strides_bytes": tuple(strides)}
    is_cured = flag.rule not in {violation.rule for violation in repair.check(**repair.asked | change)}
    return change if is_cured and repair.is_sound(change) else None


def _smaller(repair: _Repair, excess: Violation) -> Arguments | None:
    """A copy that fits a block's shared memory: fewer pixels, or the outermost extents of the box halved."""
    if (excess.rule, excess.argument) in repair.before and repair.keeps(*_COPY_ARGUMENTS):
        return None
    if excess.argument != "box":
        return {"pixels_per_column": excess.values["most_rows"]}
    box = list(repair.asked["box"])
    while excess.rule in {violation.rule for violation in repair.check(**repair.asked | {"box": tuple(box)})}:
        outermost = max(axis for axis, extent in enumerate(box) if extent > 1)
        box[outermost] //= 2
    return {"box": tuple(box)}


def _with_allowed_swizzle(repair: _Repair, warning: Violation) -> Arguments | None:
    """The documented swizzle; None if the user chose the present one."""
    change = dict(warning.change or {})
    if repair.keeps("swizzle", "interleave") or not repair.is_sound(change):
        return None
    return change


_CURES: dict[str, Callable[[_Repair, Violation], Arguments | None]] = {
    STRIDE_OVERLAP.name: _apart,
    SMEM_CAPACITY.name: _smaller,
    SIZE_FLAG.name: _without_gaps,
    INTERLEAVE_SWIZZLE.name: _with_allowed_swizzle,
}


class _Row(NamedTuple):
    """A row of the tensor in global memory."""

    row_bytes: int
    multiple_bytes: int  # what strides are a multiple of, for loads too

    @property
    def pitch_bytes(self) -> int:
        """From one row to the next, without a gap that the driver does not require."""
        return rounded_up(self.row_bytes, self.multiple_bytes)


def _row(arguments: Arguments) -> _Row:
    data_type = DataType.named(arguments["data_type"]).tma
    slice_bytes = Interleave.named(arguments.get("interleave", "none")).slice_bytes
    is_padded = data_type.smem_bits > data_type.bits
    elements = max(1, arguments["dims"][0])
    row_bytes = elements * slice_bytes if slice_bytes else rounded_up(elements * data_type.bits, 8) // 8
    needs_wide = is_padded or slice_bytes == WIDE_ALIGNMENT_BYTES
    return _Row(row_bytes, WIDE_ALIGNMENT_BYTES if needs_wide else ALIGNMENT_BYTES)


def _dense_strides(arguments: Arguments) -> tuple[int, ...]:
    """Strides without gaps but for the padding of each row to what the driver takes: 16 or 32 bytes.

    >>> _dense_strides({"data_type": "f16", "dims": (1023, 1024, 4)})
    (2048, 2097152)
    """
    step = _row(arguments).pitch_bytes
    strides = []
    for extent in arguments["dims"][1:]:
        strides.append(step)
        step *= max(1, extent)
    return tuple(strides)
