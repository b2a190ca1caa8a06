"""Reading the arguments of a tensor map: names become rows, sequences become tuples of ints.

Whatever cannot be read is a violation, never another exception, and the rules that would need it
are passed over; all the other rules still speak.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, argument_type, unknown_name
from tilescope.rule import ARGUMENT_RANGE
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.checking import map_rule
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.tensor_map.rules.samples import MATRIX
from tilescope.value import entries

Named = TypeVar("Named")
Reader = Callable[[str, Any], Any]
WIDE_MODES = ("W", "W128")  # CUtensorMapIm2ColWideMode 0 and 1
LONGEST_LIST = 64  # entries worth naming; a rank is at most 5
INTEGER_END = 1 << 4096  # an integer beyond this is a mistake, and slow to print

argument_length = map_rule(
    "argument-length",
    "Every sequence has one entry for each dimension; strides_bytes one less, corners two less.",
    source="cuda.h, cuTensorMapEncodeTiled",
    passing=MATRIX | {"strides_bytes": (8192,)},
    failing=MATRIX | {"strides_bytes": (2, 8192)},
)


def integer(argument: str, given: Any) -> int:
    """One integer, numpy's included."""
    number = given
    if type(given) is not int:
        try:
            number = index(given)
        except Exception:  # noqa: BLE001  __index__ of a foreign object may raise whatever it likes
            raise _mistyped(argument, given, "an integer") from None
        if isinstance(given, bool):
            raise _mistyped(argument, given, "an integer")
    if not -INTEGER_END < number < INTEGER_END:
        found = f"an integer of {number.bit_length()} bits"
        raise RuleError([ARGUMENT_RANGE.violation(argument, found, "at most 64 bits", "Check where it comes from.")])
    return int(number)


def integers(argument: str, given: Any) -> tuple[int, ...]:
    """A sequence of integers as a tuple."""
    if type(given) is tuple and len(given) <= LONGEST_LIST:
        for entry in given:
            if type(entry) is not int or not -INTEGER_END < entry < INTEGER_END:
                break
        else:
            return given
    return tuple(integer(f"{argument}[{axis}]", entry) for axis, entry in enumerate(_entries(argument, given)))


def _entries(argument: str, given: Any) -> list[Any]:
    """What a sequence holds, or why it is none."""
    found = entries(given, LONGEST_LIST + 1)
    if found is None:
        raise _mistyped(argument, given, "a sequence of integers")
    if len(found) > LONGEST_LIST:
        which = f"more than {LONGEST_LIST} entries"
        raise RuleError([argument_length.violation(argument, which, "one for each dimension", "Shorten it.")])
    return found


def optional_integers(argument: str, given: Any) -> tuple[int, ...] | None:
    """A sequence of integers, or None for the default."""
    return None if given is None else integers(argument, given)


def tma_type(argument: str, given: Any) -> DataType:
    """The driver's type as which TMA moves the given one."""
    return _named(DataType.named, argument, given).tma


def hardware_swizzle(argument: str, given: Any) -> Swizzle:
    """A swizzle that TMA knows: one of the table, no software swizzle."""
    row = _named(Swizzle.named, argument, given)
    if row.feature is None:
        raise RuleError([unknown_name("swizzle of TMA", argument, row.name, SWIZZLE)])
    return row


def interleave(argument: str, given: Any) -> Interleave:
    """A row of INTERLEAVE."""
    return _named(Interleave.named, argument, given)


def l2_promotion(argument: str, given: Any) -> L2Promotion:
    """A row of L2_PROMOTION."""
    return _named(L2Promotion.named, argument, given)


def oob_fill(argument: str, given: Any) -> OobFill:
    """A row of OOB_FILL."""
    return _named(OobFill.named, argument, given)


def wide_mode(argument: str, given: Any) -> str:
    """The mode of an im2col-wide map: W or W128."""
    return _named(_wide_mode_named, argument, given)


def _wide_mode_named(name: object) -> str:
    if isinstance(name, str) and name in WIDE_MODES:
        return name
    raise RuleError([unknown_name("im2col-wide mode", "mode", name, WIDE_MODES)])


def arch(argument: str, given: Any) -> Arch:
    """A row of ARCH."""
    return _named(Arch.named, argument, given)


def wrong_length(argument: str, found: int, rank: int, fewer: int) -> Violation:
    """The violation for a sequence that should have `fewer` entries less than the tensor has dimensions."""
    wanted = max(0, rank - fewer)
    per = ("one for each dimension", "one for each dimension but the innermost", "one for each of W, H, D")[fewer]
    return argument_length.violation(
        argument,
        f"{found} entries for rank {rank}",
        f"{wanted} entries: {per}",
        f"Give {wanted} entries, innermost first.",
    )


def _named(find: Callable[[Any], Named], argument: str, given: Any) -> Named:
    try:
        return find(given)
    except RuleError:
        raise
    except Exception:  # noqa: BLE001  __hash__ or __eq__ of a foreign object may raise whatever it likes
        raise _mistyped(argument, given, "a name or a row of its table") from None


def _mistyped(argument: str, given: Any, wanted: str) -> RuleError:
    return RuleError([argument_type(argument, given, wanted)])
