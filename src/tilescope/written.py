"""Numbers as people write them, for the command line and for pages.

An invalid text raises ValueError with two arguments: the mistake, and what to write instead.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from tilescope.sentence import shorten

LARGEST_WRITTEN_EXTENT = 1 << 32  # inputs of a question have smaller limits
SMEM_ADDRESS_END = 1 << 32
C_SUFFIX = re.compile(r"(?<![\w.])(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)(?:[uU][lL]{0,2}|[lL]{1,2}[uU]?)(?![\w.])")
# What the operators of C and Python do to integers; / is C's, and nothing negative is divided.
INTEGER_OPERATIONS: dict[type[ast.AST], Callable[..., int]] = {
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def number(text: str) -> int:
    """An integer as people write it: 1024, 0x400, 0b1000, 1_024.

    >>> number("0x400"), number("1_024"), number("-16")
    (1024, 1024, -16)
    """
    try:
        return int(text, 10 if text.strip().lstrip("+-").isdecimal() else 0)
    except ValueError:
        raise ValueError(f"{shorten(text, 40)!r} is not a number", "1024, 0x400 or 1_024") from None


def word(text: str) -> int:
    """A word as people paste it: a number, or only hexadecimal digits, as %016llx and %08x print them.

    >>> hex(word("4000004000010040")), hex(word("08200490")), word("64")
    ('0x4000004000010040', '0x8200490', 64)
    """
    digits = text.strip().casefold()
    is_hexadecimal = re.fullmatch(r"(?!0b)(?:[0-9a-f]{16}|0[0-9a-f]{7}|(?!\d{8})[0-9a-f]{8})", digits)
    return int(digits, 16) if is_hexadecimal else number(text)


def numbers(text: str) -> tuple[int, ...]:
    """Numbers as people list them: 4096,4096 or 4096x4096 or (64, 8) or "64 32 32 8".

    >>> numbers("4096,0x40"), numbers("64 x 32"), numbers("(64,)"), numbers("")
    ((4096, 64), (64, 32), (64,), ())
    """
    plain = text.strip().strip("()[]{}").strip()
    if re.fullmatch(r"[1-9]\d*(\s*[xX*]\s*\d+)+", plain):
        pieces = re.split(r"\s*[xX*]\s*", plain)
    else:
        pieces = re.split(r"\s*,\s*|\s+", re.sub(r"\s*,$", "", plain)) if plain else []
    if "" in pieces:
        raise ValueError(f"{shorten(text, 40)!r} has a comma without a number", "64,8")
    return tuple(number(piece) for piece in pieces)


def pair(text: str) -> tuple[int, int]:
    """Two numbers: 5,8 or 128x64.

    >>> pair("128x64")
    (128, 64)
    """
    values = numbers(text)
    if len(values) != 2:
        count = "is one number" if len(values) == 1 else f"has {len(values)} numbers"
        raise ValueError(f"{shorten(text, 40)!r} {count}", "two, such as 5,8")
    return values[0], values[1]


def extents(text: str, count: int | None = None) -> tuple[int, ...]:
    """Extents as people write a shape: 128x64, 4096x4096x4096.

    >>> extents("128x64"), extents("4096 x 4096 x 64")
    ((128, 64), (4096, 4096, 64))
    """
    no_shape = ValueError(f"{shorten(text, 40)!r} is not a shape", "4096x4096x4096" if count == 3 else "128x64")
    try:
        sizes = numbers(re.sub("[xX*]", ",", text))  # never hexadecimal: 0x64 has no rows
    except ValueError:
        raise no_shape from None
    if len(sizes) < 2 or min(sizes) < 0:
        raise no_shape
    if max(sizes) > LARGEST_WRITTEN_EXTENT:
        raise ValueError(f"{shorten(text, 40)!r} is too large", "extents of at most 2^32")
    if count not in (None, len(sizes)):
        shape = "x".join(map(str, (*sizes, 64)[:count]))  # two or more were written, two or three are wanted
        raise ValueError(f"{shorten(text, 40)!r} has {len(sizes)} extents", f"{count}, such as {shape}")
    return sizes


def tile(text: str) -> tuple[int, ...]:
    """The two extents of a tile: 128x64."""
    return extents(text, 2)


def tile_or_name(text: str) -> tuple[int, ...] | str:
    """The two extents of a tile, or a name, which does not begin with a digit.

    >>> tile_or_name("128x64"), tile_or_name("kernel.toml")
    ((128, 64), 'kernel.toml')
    """
    return tile(text) if text.lstrip("([{ ")[:1].isdigit() else text.strip()


def rows_and_columns(text: str) -> tuple[int, ...]:
    """The extents of a tile in shared memory; a single one is a row.

    >>> rows_and_columns("64x128"), rows_and_columns("2048")
    ((64, 128), (1, 2048))
    """
    row = re.fullmatch(r"\s*([0-9][0-9_]*)\s*", text)
    return tile(f"1x{row[1]}" if row else text)


def product(text: str) -> tuple[int, ...]:
    """The three extents of a matrix product: 4096x4096x4096."""
    return extents(text, 3)


def smem_address(text: str) -> int:
    """A byte address of shared memory, which has 32 bits."""
    address = number(text)
    if not 0 <= address < SMEM_ADDRESS_END:
        raise ValueError(f"{shorten(text, 40)!r} is no shared address", "one from 0 to 0xffffffff")
    return address
