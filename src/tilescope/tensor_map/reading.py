"""Reading the arguments of a tensor map: names become rows, sequences become tuples of ints.

Whatever cannot be read is a violation, never another exception, and the rules that would need it
are passed over; all the other rules still speak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, TypeVar

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, broken, shortened, unknown_name
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.tensor_map.rule import rule

Named = TypeVar("Named")
Reader = Callable[[str, Any], Any]
WIDE_MODES = ("W", "W128")  # CUtensorMapIm2ColWideMode 0 and 1
LONGEST_LIST = 64  # entries worth naming; a rank is at most 5
WIDEST_INTEGER_BITS = 4096  # an integer beyond this is a mistake, and slow to print


@rule(
    "argument-type",
    "Every argument is of its own kind: integers, sequences of integers, or names of a table.",
    source="the C types of cuTensorMapEncodeTiled",
    reads=(),
    passing={"dims": (64, 64)},
    failing={"dims": "64x64"},
)
def _argument_type(_: Any) -> Iterable[Violation]:
    return ()  # found while reading


@rule(
    "argument-length",
    "Every sequence has one entry for each dimension; strides_bytes one less, corners two less.",
    source='cuda.h, "cuTensorMapEncodeTiled"',
    reads=(),
    passing={"dims": (64, 64), "strides_bytes": (128,)},
    failing={"dims": (64, 64), "strides_bytes": (2, 128)},
)
def _argument_length(_: Any) -> Iterable[Violation]:
    return ()  # found while reading


@rule(
    "unknown-name",
    "Data types, swizzles, interleaves, promotions, fills and architectures are names of their tables.",
    source="the enumerations of cuda.h",
    reads=(),
    passing={"swizzle": "128B"},
    failing={"swizzle": "128b-atom"},
)
def _unknown_name(_: Any) -> Iterable[Violation]:
    return ()  # found while reading


def integer(argument: str, given: Any) -> int:
    """One integer, numpy's included."""
    if type(given) is int:
        number = given
    else:
        try:
            number = index(given)
        except TypeError:
            raise _mistyped(argument, given, "an integer") from None
        if isinstance(given, bool):
            raise _mistyped(argument, given, "an integer")
    if number.bit_length() > WIDEST_INTEGER_BITS:
        raise broken(
            "argument-type", argument, f"an integer of {number.bit_length()} bits", "at most 64 bits", "Check it."
        )
    return number


def integers(argument: str, given: Any) -> tuple[int, ...]:
    """A sequence of integers as a tuple."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _mistyped(argument, given, "a sequence of integers")
    read = []
    try:
        for entry in given:
            if len(read) == LONGEST_LIST:
                raise broken(
                    "argument-length",
                    argument,
                    f"more than {LONGEST_LIST} entries",
                    "one for each dimension",
                    "Shorten it.",
                )
            read.append(entry if type(entry) is int else integer(f"{argument}[{len(read)}]", entry))
    except RuleError:
        raise
    except Exception:  # noqa: BLE001  an iterator of the caller's may raise whatever it likes
        raise _mistyped(argument, given, "a sequence of integers") from None
    if max(map(abs, read), default=0).bit_length() > WIDEST_INTEGER_BITS:
        raise broken("argument-type", argument, "an integer of thousands of bits", "at most 64 bits", "Check it.")
    return tuple(read)


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
    if isinstance(given, str) and given in WIDE_MODES:
        return given
    raise RuleError([unknown_name("im2col-wide mode", argument, given, WIDE_MODES)])


def arch(argument: str, given: Any) -> Arch:
    """A row of ARCH."""
    return _named(Arch.named, argument, given)


def _named(find: Callable[[Any], Named], argument: str, given: Any) -> Named:
    try:
        return find(given)
    except RuleError:
        raise
    except Exception:  # noqa: BLE001  __hash__ or __eq__ of a foreign object may raise whatever it likes
        raise _mistyped(argument, given, "a name or a row of its table") from None


def _mistyped(argument: str, given: Any, wanted: str) -> RuleError:
    try:
        shown = shortened(repr(given))
    except Exception:  # noqa: BLE001  as above
        shown = "an object that cannot be printed"
    found = f"{argument} = {shown} ({type(given).__name__})"
    return broken("argument-type", argument, found, f"{argument} is {wanted}", f"Give {wanted}.")
