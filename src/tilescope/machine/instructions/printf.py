"""printf's format strings, as C has them: what each conversion takes from the arguments, and what it prints.

    "%5.2f|%-4d|%s"      8 bytes, 4 bytes, a pointer of 8 bytes
     3.14|7   |text

Text is held with one character a byte (latin-1), since a format is bytes to C.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cache
from typing import Literal

Kind = Literal["signed", "unsigned", "float", "character", "string", "pointer"]

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d+)?(?<=[.*\d]))?"
    r"(?P<length>hh|h|ll|l|j|z|t|L)?(?P<letter>[diouxXeEfFgGaAcsp%])"
)
_KIND_OF_LETTER: dict[str, Kind] = {
    **dict.fromkeys("di", "signed"),
    **dict.fromkeys("ouxX", "unsigned"),
    **dict.fromkeys("eEfFgGaA", "float"),
    "c": "character",
    "s": "string",
    "p": "pointer",
}
_BITS_OF_LENGTH = {"hh": 8, "h": 16, "l": 64, "ll": 64, "j": 64, "z": 64, "t": 64}
_F64_EXPONENT = 0x7FF << 52
MAX_FIELD_CHARACTERS = 1 << 16  # of a width or a precision: more is nothing that anybody reads


@dataclass(frozen=True, slots=True)
class Conversion:
    """One conversion of a format: %-5.2lf."""

    flags: str
    width: int | None
    precision: int | None
    takes_width: bool  # by `*`: an int before the value
    takes_precision: bool
    bits: int  # of the value; 32 are read for fewer
    kind: Kind
    letter: str

    @property
    def argument_bytes(self) -> tuple[int, ...]:
        """Sizes of the arguments that it takes, in their order; each is at a multiple of its size.

        >>> [part.argument_bytes for part in parts_of("%*d %lld %f") if isinstance(part, Conversion)]
        [(4, 4), (8,), (8,)]
        """
        stars = (4,) * (self.takes_width + self.takes_precision)
        return (*stars, 8 if self.bits == 64 else 4)


@cache
def parts_of(text: str) -> tuple[str | Conversion, ...]:
    """A format taken apart: text as it is, and conversions. Text that is not a conversion of C stays text.

    >>> parts_of("a %d%%") == ("a ", Conversion("", None, None, False, False, 32, "signed", "d"), "%")
    True
    """
    parts: list[str | Conversion] = []
    end = 0
    for match in _CONVERSION.finditer(text):
        if match.start() > end:
            parts.append(text[end : match.start()])
        end = match.end()
        parts.append("%" if match["letter"] == "%" else _conversion(match))
    if end < len(text):
        parts.append(text[end:])
    return tuple(parts)


def _conversion(match: re.Match[str]) -> Conversion:
    width, precision = match["width"], match["precision"]
    kind = _KIND_OF_LETTER[match["letter"]]
    bits = _BITS_OF_LENGTH.get(match["length"] or "", 32)
    if kind in ("float", "string", "pointer"):
        bits = 64
    has_precision = "." in match.group()
    return Conversion(
        flags=match["flags"],
        width=None if width in (None, "*") else _parse_bounded(width),
        precision=_parse_bounded(precision or "0") if has_precision and precision != "*" else None,
        takes_width=width == "*",
        takes_precision=precision == "*",
        bits=bits,
        kind=kind,
        letter=match["letter"],
    )


def _parse_bounded(digits: str) -> int:
    if len(digits) > len(str(MAX_FIELD_CHARACTERS)):
        return MAX_FIELD_CHARACTERS
    return min(int(digits), MAX_FIELD_CHARACTERS)


def format_conversion(conversion: Conversion, stars: tuple[int, ...], word: int, text: str | None) -> str:
    """What a conversion prints: `stars` are the ints that its `*` take, `word` the bits of its value.

    `text` is what a string's pointer points to, None for a null pointer.

    >>> format_conversion(parts_of("%+d")[0], (), 7, None), format_conversion(parts_of("%x")[0], (), 0xFFFFFFFF, None)
    ('+7', 'ffffffff')
    """
    flags, width, precision = conversion.flags, conversion.width, conversion.precision
    remaining = list(stars)
    if conversion.takes_width:
        width = remaining.pop(0)
        if width < 0:
            flags += "-"
            width = -width
    if conversion.takes_precision:
        precision = remaining.pop(0)
        if precision < 0:
            precision = None
    precision = None if precision is None else min(precision, MAX_FIELD_CHARACTERS)
    width = min(width or 0, MAX_FIELD_CHARACTERS)
    body = _body(conversion, flags, precision, word, text)
    return _pad(body, flags, width, is_zero_filled=_takes_zeros(conversion, flags, precision, word))


def _takes_zeros(conversion: Conversion, flags: str, precision: int | None, word: int) -> bool:
    """Whether a width is padded with zeros: only for finite numbers."""
    if "0" not in flags or "-" in flags:
        return False
    if conversion.kind == "float":
        return word & _F64_EXPONENT != _F64_EXPONENT
    return conversion.kind in ("signed", "unsigned") and precision is None


def _pad(body: str, flags: str, width: int, *, is_zero_filled: bool) -> str:
    if "-" in flags:
        return body.ljust(width)
    if not is_zero_filled:
        return body.rjust(width)
    lead = re.match(r"[-+ ]?(0[xX])?", body)
    sign = "" if lead is None else lead.group()
    return sign + body[len(sign) :].rjust(width - len(sign), "0")


def _body(conversion: Conversion, flags: str, precision: int | None, word: int, text: str | None) -> str:
    """The value, without what fills the width."""
    kind = conversion.kind
    if kind == "float":
        return _float_text(conversion.letter, flags, precision, word)
    if kind == "character":
        return chr(word & 0xFF)
    if kind == "string":
        shown = "(null)" if text is None else text
        return shown if precision is None else shown[:precision]
    if kind == "pointer":
        return hex(word) if word else "(nil)"
    bits = conversion.bits
    value = word & ((1 << bits) - 1)
    if kind == "signed" and value >> (bits - 1):
        value -= 1 << bits
    return _integer_text(conversion, flags, precision, value)


def _integer_text(conversion: Conversion, flags: str, precision: int | None, value: int) -> str:
    letter = conversion.letter
    digits = format(abs(value), {"o": "o", "x": "x", "X": "X"}.get(letter, "d"))
    if precision is not None:
        digits = "" if precision == 0 and value == 0 else digits.rjust(precision, "0")
    if "#" in flags and letter == "o" and not digits.startswith("0"):
        digits = "0" + digits
    if "#" in flags and letter in "xX" and value:
        digits = "0" + letter + digits
    return _sign(flags, is_negative=value < 0, is_signed=conversion.kind == "signed") + digits


def _sign(flags: str, *, is_negative: bool, is_signed: bool) -> str:
    if is_negative:
        return "-"
    if is_signed and "+" in flags:
        return "+"
    return " " if is_signed and " " in flags else ""


def _float_text(letter: str, flags: str, precision: int | None, word: int) -> str:
    value = float(struct.unpack("<d", struct.pack("<Q", word))[0])
    is_negative = bool(word >> 63)
    magnitude = -value if is_negative else value
    if letter in "aA":
        digits = _hexadecimal(magnitude, precision, has_point="#" in flags)
        digits = digits.upper() if letter == "A" else digits
    else:
        alternate = "#" if "#" in flags else ""
        digits = f"%{alternate}.{6 if precision is None else precision}{letter}" % magnitude
    return _sign(flags, is_negative=is_negative, is_signed=True) + digits.lstrip("-")


def _hexadecimal(magnitude: float, precision: int | None, *, has_point: bool = False) -> str:
    """%a: one digit, a fraction of as many digits as needed or requested, and a power of two.

    >>> _hexadecimal(1.0, None), _hexadecimal(0.15625, None), _hexadecimal(1.999, 1)
    ('0x1p+0', '0x1.4p-3', '0x2.0p+0')
    """
    written = magnitude.hex()
    if not written.startswith("0x"):
        return written  # inf, nan
    mantissa, _, exponent = written[2:].partition("p")
    integer, _, fraction = mantissa.partition(".")
    if precision is None:
        fraction = fraction.rstrip("0")
    elif precision < len(fraction):
        scaled = int(integer + fraction, 16)
        unit = 16 ** (len(fraction) - precision)
        quotient, remainder = divmod(scaled, unit)
        rounds_up = 2 * remainder > unit or (2 * remainder == unit and quotient % 2 == 1)
        digits = format(quotient + rounds_up, "x").rjust(precision + 1, "0")
        integer, fraction = digits[: len(digits) - precision], digits[len(digits) - precision :]
    else:
        fraction = fraction.ljust(precision, "0")
    point = "." if fraction or has_point else ""
    return f"0x{integer}{point}{fraction}p{exponent}"
