"""Arguments into integers, sequences, names, flags and arrays; what cannot be read is refused by name.

    integer("rows", np.int64(64))              64
    integer("rows", 64.0)                      argument-type    rows = 64.0 (float); rows is an integer
    integer("stages", 0, least=1)              argument-range   stages = 0; at least 1
    known_name("operand", "D", ("A", "B"))     unknown-name     operand D; known: A, B
    readable("memory", [1, 2])                 argument-type    memory = [1, 2] (list); memory is an array or a buffer

Every reader takes the argument's name first. `plain_int`, `entries`, `integer_array` and `is_one_of` only test, and
refuse nothing.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Collection, Container, Mapping, Set
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tilescope.errors import RuleError, Violation, argument_range, argument_type, unknown_name
from tilescope.rule import ARGUMENT_RANGE, ARGUMENT_TYPE
from tilescope.sentence import counted

if TYPE_CHECKING:  # commands that read no array do not wait for numpy
    import numpy as np
    import numpy.typing as npt

Array: TypeAlias = "npt.NDArray[Any]"  # of any type: what users pass
Bytes: TypeAlias = "npt.NDArray[np.uint8]"
IntegerArray: TypeAlias = "npt.NDArray[np.integer[Any]]"
Name = TypeVar("Name", bound=str)
Read = TypeVar("Read")
LONGEST_LIST = 64  # entries worth naming; a rank is at most 5
INTEGER_SHOWN = 1 << 20  # beyond this, a limit 2^n - 1 is written so
INTEGER_BITS = 4096  # a longer integer is a mistake, and slow to print
_INTEGER_END = 1 << INTEGER_BITS
_LONGEST_FLOAT = 1e15  # up to here a float holds every integer

NO_BUFFER = ARGUMENT_TYPE.worded(
    found="a {type}",
    limit="an array or a buffer",
    fix="Use np.asarray(…), or bytes.",
)
ARRAY_OF_OBJECTS = ARGUMENT_TYPE.worded(
    found="an array of {type}",
    limit="an array of numbers",
    fix='Use np.asarray(…, dtype="f4"), for example.',
)
STRIDED_ARRAY = ARGUMENT_TYPE.worded(
    found="an array of shape {shape} with strides {strides}",
    limit="C-contiguous bytes",
    fix="Pass the whole array, and let the strides of the tensor map pick from it; or, if nothing is written, "
    "np.ascontiguousarray(…), a copy.",
)
READ_ONLY_ARRAY = ARGUMENT_TYPE.worded(
    found="a read-only {type}",
    limit="an array that can be written in place",
    fix="Use np.array(…), a copy, or np.load(…, mmap_mode='r+').",
)


def plain_int(value: object) -> int | None:
    """`value` as an int, including numpy's integers; None for anything else, and for a bool.

    >>> import numpy as np
    >>> plain_int(np.uint8(7)), plain_int(7.0), plain_int(True)
    (7, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def entries(value: object, most: int) -> list[Any] | None:
    """What a sequence lists, the first `most` entries of it; None for text, for what has no order, and for no sequence.

    >>> entries((64, 8), 5), entries(range(1000), 3), entries({64, 8}, 5), entries("64", 5), entries(64, 5)
    ([64, 8], [0, 1, 2], None, None, None)
    """
    if isinstance(value, str | bytes | bytearray | memoryview | Set | Mapping):
        return None
    try:
        return list(itertools.islice(value, most))  # type: ignore[call-overload]
    except TypeError:
        return None


def read_table(
    problems: list[Violation], at: str, written: object, known: Collection[str], fix: str
) -> Mapping[str, object]:
    """A table of names and values; if `known` lists names, any other is a problem.

    >>> found: list[Violation] = []
    >>> read_table(found, "roles", {"warp": 4}, ["warps"], "")
    {'warp': 4}
    >>> found[0].rule
    'unknown-name'
    """
    if not isinstance(written, Mapping) or not all(isinstance(name, str) for name in written):
        problems.append(argument_type(at, written, "a table of names and values", fix))
        return {}
    unknown = [name for name in written if known and name not in known]
    problems += [unknown_name(f"key of {at}", at, name, known) for name in unknown]
    return written


def integer_array(value: object) -> IntegerArray | None:
    """The array of integers that `value` is or lists; None for anything else, buffers of bytes and booleans too.

    >>> integer_array([[1, 2]]), integer_array([0.5]), integer_array(b"ab"), integer_array([True])
    (array([[1, 2]]), None, None, None)
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return None
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError):  # ragged lists, and integers that no array holds
        return None
    if array.size == 0 and isinstance(value, list | tuple):
        return array.astype(np.int64)  # numpy takes an empty list for one of floats
    return array if array.dtype.kind in "iu" else None


def is_one_of(value: object, known: Container[object]) -> bool:
    """Whether `value` is one of these names or integers; values of other types are not compared with them.

    >>> import numpy as np
    >>> is_one_of("K", ("K", "MN")), is_one_of(np.int64(16), (8, 16)), is_one_of(np.zeros(2), (8, 16))
    (True, True, False)
    """
    plain = value if isinstance(value, str) else plain_int(value)
    return plain is not None and plain in known


def integer(argument: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """One integer, numpy's included, from `least` to `most`.

    >>> import numpy as np
    >>> integer("stages", np.int64(4), least=1)
    4
    """
    number = value if type(value) is int else plain_int(value)
    if number is None:
        nearest = least or 0
        if isinstance(value, float) and abs(value) < _LONGEST_FLOAT:
            nearest = int(value)
        raise RuleError([argument_type(argument, value, "an integer", f"Use {nearest}, for example.")])
    if number.bit_length() > INTEGER_BITS:
        raise RuleError([argument_range(argument, number, "at most 64 bits", "Use a number below 2^64.")])
    bound = number
    if least is not None and number < least:
        bound = least
    elif most is not None and number > most:
        bound = most
    if number != bound:
        fix, change = f"Use {bound}.", {argument: bound}
        raise RuleError([argument_range(argument, number, _range(least, most), fix, change)])
    return number


def _range(least: int | None, most: int | None) -> str:
    """The limits of an integer in words; a large power of two is written as one.

    >>> _range(1, None), _range(1, 1024), _range(0, (1 << 32) - 1)
    ('at least 1', '1 to 1024', '0 to 2^32 - 1')
    """
    if most is None or least is None:
        return f"at least {least}"
    is_all_ones = most & (most + 1) == 0
    if is_all_ones and most >= INTEGER_SHOWN:
        return f"{least} to 2^{most.bit_length()} - 1"
    return f"{least} to {most}"


def one_of(argument: str, value: object, known: Collection[int]) -> int:
    """One of a few integers; of those, the nearest is the fix.

    >>> import numpy as np
    >>> one_of("element_bits", np.int64(16), (8, 16, 32))
    16
    """
    number = value if type(value) is int else integer(argument, value)
    if number not in known:
        nearest = min(known, key=lambda choice: abs(choice - number))
        limit = f"one of {', '.join(map(str, known))}"
        raise RuleError([argument_range(argument, number, limit, f"Use {nearest}.", {argument: nearest})])
    return number


def integers(
    argument: str, value: object, count: int | None = None, least: int | None = None, most: int | None = None
) -> tuple[int, ...]:
    """A sequence of integers as a tuple; `count` of them, every one from `least` to `most`.

    >>> import numpy as np
    >>> integers("dims", [64, np.int64(8)])
    (64, 8)
    """
    if type(value) is tuple and len(value) <= LONGEST_LIST and (count is None or len(value) == count):  # nearly always
        lowest = -_INTEGER_END if least is None else least
        highest = _INTEGER_END if most is None else most
        for number in value:
            if type(number) is not int or number < lowest or number > highest:
                break
        else:
            return value
    listed = entries(value, LONGEST_LIST + 1)
    if listed is None:
        example = _example_of_integers(value, count, least, most)
        raise RuleError([argument_type(argument, value, "a sequence of integers", example)])
    if len(listed) > LONGEST_LIST or (count is not None and len(listed) != count):
        limit = counted(count, "integer") if count is not None else f"at most {LONGEST_LIST} entries"
        raise RuleError([argument_range(argument, value, limit, _example_of_integers(value, count, least, most))])
    return tuple(integer(f"{argument}[{place}]", entry, least, most) for place, entry in enumerate(listed))


def _example_of_integers(value: object, count: int | None, least: int | None, most: int | None) -> str:
    """A sequence that would be taken: of the one number that was given, if that is in range."""
    alone = plain_int(value)  # meant as the only entry, or as all
    if alone is None or not (least or 0) <= alone <= (most or INTEGER_SHOWN):
        return f"Use {(64,) * (count or 2)}, for example."
    return f"Use {(alone,) * (count or 1)}, for example."


def pair(argument: str, value: object, least: int | None = None, most: int | None = None) -> tuple[int, int]:
    """Two integers.

    >>> pair("tile", [64, 32], least=1)
    (64, 32)
    """
    first, second = integers(argument, value, 2, least, most)
    return first, second


def known_name(argument: str, value: object, known: Collection[Name], what: str | None = None) -> Name:
    """One of the known names; the error calls them `what`.

    >>> known_name("operand", "A", ("A", "B"))
    'A'
    """
    if isinstance(value, str):
        for name in known:
            if name == value:
                return name
    raise RuleError([unknown_name(what or argument, argument, value, known)])


def known_row(
    kind: type[Read],
    what: str,
    argument: str,
    value: object,
    table: Mapping[str, Read],
    *,
    plain: Callable[[str], str] = str,
    spellings: Collection[str] = (),
) -> Read:
    """A row of a table: `value` itself, or the row that it names, as it is written or as `plain` spells it.

    >>> known_row(int, "stage", "stage", "First", {"first": 1, "second": 2}, plain=str.casefold)
    1
    """
    if isinstance(value, kind):
        return value
    row = table.get(value) or table.get(plain(value)) if isinstance(value, str) else None
    if row is None:
        raise RuleError([unknown_name(what, argument, value, table, spellings)])
    return row


def flag(argument: str, value: object) -> bool:
    """True or False, numpy's included.

    >>> import numpy as np
    >>> flag("transpose", np.True_)
    True
    """
    if isinstance(value, bool):
        return value
    import numpy as np

    if not isinstance(value, np.bool_):
        raise RuleError([argument_type(argument, value, "True or False", "Use True or False.")])
    return bool(value)


def try_read(problems: list[Violation], otherwise: Read, reader: Callable[..., Read], *arguments: Any) -> Read:
    """The result of a reader; if it refuses, its violations are added to `problems`, and `otherwise` is returned.

    So that one call names every mistake:

    >>> problems: list[Violation] = []
    >>> try_read(problems, 0, integer, "stages", "many"), try_read(problems, 1, integer, "threads", 0, 1)
    (0, 1)
    >>> [problem.argument for problem in problems]
    ['stages', 'threads']
    """
    try:
        return reader(*arguments)
    except RuleError as error:
        problems += error.violations
        return otherwise


def readable(argument: str, value: object) -> Bytes:
    """The bytes of a C-contiguous array or a buffer, in place.

    >>> import numpy as np
    >>> readable("memory", np.array([1, 256], np.uint16)).tolist()
    [1, 0, 0, 1]
    """
    import numpy as np

    if not isinstance(value, np.ndarray):
        try:
            content: Bytes = np.frombuffer(value, np.uint8)  # type: ignore[call-overload]  # what is no buffer raises
        except (TypeError, ValueError, BufferError):
            raise NO_BUFFER.error(argument=argument, type=type(value).__name__) from None
        return content
    if value.dtype.hasobject:
        raise ARRAY_OF_OBJECTS.error(argument=argument, type=str(value.dtype))
    if not value.flags.c_contiguous:
        raise STRIDED_ARRAY.error(argument=argument, shape=value.shape, strides=value.strides)
    return np.asarray(value).reshape(-1).view(np.uint8)


def writeable(argument: str, value: object) -> Bytes:
    """The bytes of an array that is written in place."""
    content = readable(argument, value)
    if not content.flags.writeable:
        raise READ_ONLY_ARRAY.error(argument=argument, type=type(value).__name__)
    return content


def as_array(argument: str, value: npt.ArrayLike) -> Array:
    """The value as an array; rows of different lengths are refused."""
    import numpy as np

    try:
        return np.asarray(value)
    except ValueError:
        raise ARGUMENT_TYPE.error(
            argument=argument, found="rows of different lengths", limit="an array", fix="Use rows of one length."
        ) from None


def array_where(
    argument: str, value: npt.ArrayLike, holds: Callable[[Array], bool], limit: str, fix: str, **values: object
) -> Array:
    """The value as an array for which a condition holds; refused with what was found if it does not."""
    array = as_array(argument, value)
    if not holds(array):
        facts: dict[str, Any] = {"shape": array.shape, **values}
        raise ARGUMENT_RANGE.error(
            argument=argument,
            found=f"an array of shape {array.shape}, {array.dtype}",
            limit=limit,
            fix=fix,
            **facts,
        )
    return array
