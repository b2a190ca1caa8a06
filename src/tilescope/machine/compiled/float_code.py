"""LLVM's text for instructions on floats, rounded to nearest, with the bits of `arithmetic`.

    add.f32     fadd, and where that is a NaN the NaN of results, 0x7FFFFFFF
    fma.rn.f32  llvm.fma, which the host's processor must have as an instruction
    f16, bf16   by f32; bf16 is rounded by arithmetic on bits

A function returns None for a form that it does not write: other roundings, .ftz of a product, fma of f16 and bf16, …
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilescope.machine.arithmetic.float_format import FORMATS, FloatFormat
from tilescope.machine.arithmetic.float_style import PACKED
from tilescope.machine.compiled.integer_code import (
    INTEGER_TYPES,
    Operand,
    Results,
    Writer,
    bind_name,
    compare_integers,
    convert_integers,
    extend_byte,
)
from tilescope.machine.compiled.lane_code import LaneCode
from tilescope.ptx.syntax import BITS_OF_TYPE

_F32 = FORMATS["f32"]
_QUIET_F64 = 1 << 51
_GENERATED_NAN_F64 = 0xFFF8 << 48
_RELATIONS = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_INTEGERS = INTEGER_TYPES | {"u8", "s8"}


class _Style(NamedTuple):
    """The type of an instruction on floats, and its modifiers."""

    form: FloatFormat
    parts: int  # of a register: 2 for f16x2
    words: frozenset[str]


def _read_style(modifiers: tuple[str, ...], *known: str) -> _Style | None:
    """The style of an instruction; None if it has a modifier that is not known."""
    type_name = modifiers[-1]
    form = FORMATS.get(PACKED.get(type_name, type_name))
    words = frozenset(modifiers[:-1])
    if form is None or not words <= set(known):
        return None
    return _Style(form, 2 if type_name in PACKED else 1, words)


def is_float(modifiers: tuple[str, ...]) -> bool:
    """Whether the type of an instruction is one of floats."""
    return bool(modifiers) and (modifiers[-1] in PACKED or modifiers[-1] in FORMATS)


def _by_parts(
    code: LaneCode, style: _Style, sources: Sequence[Operand], write: Callable[[list[str]], str]
) -> tuple[str, ...]:
    """An operation on the words of a register, or on both halves."""
    words = [source.value for source in sources]
    if style.parts == 1:
        return (write(words),)
    bits = style.form.bits * style.parts
    result = write(code.split(words, bits, style.parts))
    return (code.join(result, bits, style.parts),)


def _flush(code: LaneCode, word: str, form: FloatFormat) -> str:
    """.ftz: subnormal numbers become zeros of their sign."""
    bits = form.bits
    below = code.with_constant("sub", code.with_constant("and", word, form.nan, bits), 1, bits)
    is_subnormal = code.compare("ult", below, code.constant((1 << form.fraction_bits) - 1, bits), bits)
    return code.select(is_subnormal, code.with_constant("and", word, form.sign, bits), word, bits)


def _clamp(code: LaneCode, word: str, form: FloatFormat) -> str:
    """.sat: to [0, 1]; negative numbers and NaN become 0."""
    bits = form.bits
    is_outside = code.compare("ugt", word, code.constant(form.infinity, bits), bits)
    positive = code.select(is_outside, code.constant(0, bits), word, bits)
    is_less = code.compare("ult", positive, code.constant(form.one, bits), bits)
    return code.select(is_less, positive, code.constant(form.one, bits), bits)


def _single(code: LaneCode, word: str, form: FloatFormat) -> str:
    """The bits of an f32 or f64 with the value of a word; a NaN of f16 may have any bits."""
    if form.name == "bf16":
        return code.with_constant("shl", code.resize(word, 16, 32), 16, 32)
    if form.name != "f16":
        return word
    number = code.convert("fpext", code.as_float(word, 16), code.floats(16), code.floats(32))
    return code.as_word(number, 32)


def _wide_bits(form: FloatFormat) -> int:
    """The width of the floats that a format is computed with."""
    return max(form.bits, 32)


def _number(code: LaneCode, word: str, form: FloatFormat) -> str:
    """The float to compute with."""
    return code.as_float(_single(code, word, form), _wide_bits(form))


def _is_nan(code: LaneCode, number: str, bits: int) -> str:
    return code.compare_floats("uno", number, number, bits)


def _round_to_form(code: LaneCode, number: str, form: FloatFormat) -> str:
    """The bits of a result; a NaN is the one of results."""
    bits = _wide_bits(form)
    word = code.as_word(number, bits)
    if form.name == "f16":
        word = code.as_word(code.convert("fptrunc", number, code.floats(32), code.floats(16)), 16)
    elif form.name == "bf16":
        odd = code.with_constant("and", code.with_constant("lshr", word, 16, 32), 1, 32)
        added = code.binary("add", code.with_constant("add", word, 0x7FFF, 32), odd, 32)
        word = code.resize(code.with_constant("lshr", added, 16, 32), 32, 16)
    return code.select(_is_nan(code, number, bits), code.constant(form.nan, form.bits), word, form.bits)


def _propagate_nan(code: LaneCode, result: str, words: Sequence[str]) -> str:
    """The NaN of an f64: that of the last source that is one, made quiet, else the generated one."""
    chosen = code.constant(_GENERATED_NAN_F64, 64)
    for word in words:
        quiet = code.with_constant("or", word, _QUIET_F64, 64)
        chosen = code.select(_is_nan(code, code.as_float(word, 64), 64), quiet, chosen, 64)
    return code.select(_is_nan(code, code.as_float(result, 64), 64), chosen, result, 64)


def _arithmetic(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Add, sub, mul, fma."""
    style = _read_style(modifiers, "rn", "ftz", "sat")
    if style is None:
        return None
    form = style.form
    flushes = "ftz" in style.words
    if flushes and name in ("mul", "fma"):
        return None
    if form.bits == 16 and (name == "fma" or (name == "mul" and form.name == "bf16")):
        return None

    def write(words: list[str]) -> str:
        if flushes:
            words = [_flush(code, word, form) for word in words]
        result = _apply(code, name, words, form)
        if flushes:
            result = _flush(code, result, form)
        return _clamp(code, result, form) if "sat" in style.words else result

    return _by_parts(code, style, sources, write)


def _apply(code: LaneCode, name: str, words: list[str], form: FloatFormat) -> str:
    bits = _wide_bits(form)
    numbers = [_number(code, word, form) for word in words]
    kind = code.floats(bits)
    if name in ("fma", "sqrt"):
        result = code.call(f"llvm.{name}.{code.mangle(kind)}", kind, *[(kind, number) for number in numbers])
    elif name == "rcp":
        result = code.compute("fdiv", code.as_float(code.constant(form.one, bits), bits), numbers[0], bits)
    else:
        result = code.compute(f"f{name}", numbers[0], numbers[1], bits)
    if form.name == "f64":
        return _propagate_nan(code, code.as_word(result, 64), words)
    return _round_to_form(code, result, form)


def _quotient(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Div, rcp and sqrt to nearest."""
    style = _read_style(modifiers, "rn")
    if style is None or style.parts > 1 or "rn" not in style.words or style.form.bits < 32:
        return None
    words = [source.value for source in sources]
    return (_apply(code, name, words, style.form),)


def _extreme(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Min and max of two or three: -0 is less than +0, and a NaN loses unless .NaN asks for it."""
    style = _read_style(modifiers, "ftz", "NaN")
    if style is None or style.form.name == "f64":
        return None
    form = style.form
    bits = _wide_bits(form)

    def choose(first: str, second: str) -> str:
        numbers = [_number(code, word, form) for word in (first, second)]
        kind = code.floats(bits)
        operation = "minimum" if name == "min" else "maximum"
        chosen = code.call(f"llvm.{operation}.{code.mangle(kind)}", kind, *[(kind, number) for number in numbers])
        if "NaN" not in style.words:  # LLVM's is a NaN where one of them is
            for number, other in (numbers, numbers[::-1]):
                is_nan = _is_nan(code, number, bits)
                chosen = code.value(f"select {code.words(1)} {is_nan}, {kind} {other}, {kind} {chosen}")
        return _round_to_form(code, chosen, form)

    def write(words: list[str]) -> str:
        if "ftz" in style.words:
            words = [_flush(code, word, form) for word in words]
        result = words[0]
        for word in words[1:]:
            result = choose(result, word)
        return result

    return _by_parts(code, style, sources, write)


def _change_sign(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Neg and abs: of a NaN the NaN of results."""
    style = _read_style(modifiers, "ftz")
    if style is None:
        return None
    form = style.form

    def write(words: list[str]) -> str:
        word = _flush(code, words[0], form) if "ftz" in style.words else words[0]
        change = ("xor", form.sign) if name == "neg" else ("and", form.nan)
        result = code.with_constant(change[0], word, change[1], form.bits)
        if form.name == "f64":
            return _propagate_nan(code, result, [word])
        magnitude = code.with_constant("and", word, form.nan, form.bits)
        is_nan = code.compare("ugt", magnitude, code.constant(form.infinity, form.bits), form.bits)
        return code.select(is_nan, code.constant(form.nan, form.bits), result, form.bits)

    return _by_parts(code, style, sources, write)


def _set_predicate(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Setp of integers and floats: p, and q, which takes the opposite."""
    compare, *others, type_name = modifiers
    flushes = "ftz" in others
    booleans = [word for word in others if word != "ftz"]
    if type_name in PACKED or len(booleans) > 1 or (booleans and booleans[0] not in ("and", "or", "xor")):
        return None
    holds = compare_floats(code, compare, type_name, sources, flushes=flushes)
    if holds is None:
        return None
    results = (holds, code.invert(holds, 1))
    if not booleans:
        return results
    return tuple(code.binary(booleans[0], result, sources[2].value, 1) for result in results)


def compare_floats(
    code: LaneCode, compare: str, type_name: str, sources: Sequence[Operand], *, flushes: bool
) -> str | None:
    """The predicate of a comparison of two numbers of a type."""
    form = FORMATS.get(type_name)
    if form is None:
        return compare_integers(code, compare, type_name, sources)
    if compare not in _RELATIONS:
        return None
    words = [_flush(code, source.value, form) if flushes else source.value for source in sources[:2]]
    first, second = (_number(code, word, form) for word in words)
    return code.compare_floats(_RELATIONS[compare], first, second, _wide_bits(form))


def _convert(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Cvt."""
    if len(modifiers) < 2:
        return None
    *words, result_type, source_type = modifiers
    source = sources[0]
    if result_type in _INTEGERS and source_type in _INTEGERS:
        return None if words else (convert_integers(code, result_type, source_type, source),)
    if result_type in _INTEGERS:
        return _float_to_integer(code, words, result_type, source_type, source)
    if source_type in _INTEGERS:
        return _integer_to_float(code, words, result_type, source_type, source)
    if result_type in ("f16x2", "bf16x2"):
        return _to_pair(code, words, result_type, source_type, sources)
    return _between_floats(code, words, result_type, source_type, source)


def _float_to_integer(code: LaneCode, words: list[str], result_type: str, source_type: str, source: Operand) -> Results:
    """Rounded to an integer, and clamped to the range of its type."""
    form = FORMATS.get(source_type)
    roundings = [word for word in words if word in _TO_INTEGER]
    if form is None or len(roundings) != 1 or not set(words) <= {roundings[0], "ftz"}:
        return None
    bits, result_bits = _wide_bits(form), BITS_OF_TYPE[result_type]
    word = _flush(code, source.value, form) if "ftz" in words else source.value
    number = _number(code, word, form)
    rounded = _round_to_integer(code, roundings[0], number, bits)
    name = f"llvm.fpto{'s' if result_type[0] == 's' else 'u'}i.sat"
    kind, result = code.floats(bits), code.words(result_bits)
    integer = code.call(f"{name}.{code.mangle(result)}.{code.mangle(kind)}", result, (kind, rounded))
    if source_type == "f64" or result_bits == 64:
        of_nan = code.constant(1 << result_bits - 1, result_bits)
        integer = code.select(_is_nan(code, number, bits), of_nan, integer, result_bits)
    return (extend_byte(code, integer, result_type),)


def _round_to_integer(code: LaneCode, rounding: str, number: str, bits: int) -> str:
    kind = code.floats(bits)
    return code.call(f"llvm.{_TO_INTEGER[rounding]}.{code.mangle(kind)}", kind, (kind, number))


def _integer_to_float(code: LaneCode, words: list[str], result_type: str, source_type: str, source: Operand) -> Results:
    """Rounded once, to nearest, to f32 or f64."""
    if words != ["rn"] or result_type not in ("f32", "f64"):
        return None
    source_bits, bits = BITS_OF_TYPE[source_type], BITS_OF_TYPE[result_type]
    word = code.resize(source.value, 16, 8) if source_bits == 8 else source.value
    name = "sitofp" if source_type[0] == "s" else "uitofp"
    return (code.as_word(code.convert(name, word, code.words(source_bits), code.floats(bits)), bits),)


def _to_pair(
    code: LaneCode, words: list[str], result_type: str, source_type: str, sources: Sequence[Operand]
) -> Results:
    """Two f32 as the halves of a word; the first is the upper one."""
    if words != ["rn"] or source_type != "f32" or len(sources) != 2:
        return None
    form = FORMATS[PACKED[result_type]]
    high, low = (code.resize(_round_to_form(code, code.as_float(source.value, 32), form), 16, 32) for source in sources)
    return (code.binary("or", code.with_constant("shl", high, 16, 32), low, 32),)


def _between_floats(code: LaneCode, words: list[str], result_type: str, source_type: str, source: Operand) -> Results:
    """The conversions that kernels are full of: between f32 and f16, bf16 or f64, and to an integer as a float."""
    types = (result_type, source_type)
    word = source.value
    if types in (("f16", "f32"), ("bf16", "f32")) and words == ["rn"]:
        return (_round_to_form(code, code.as_float(word, 32), FORMATS[result_type]),)
    if types == ("f32", "bf16") and not words:
        return (_single(code, word, FORMATS["bf16"]),)
    if types == ("f32", "f16") and not words:
        number = _number(code, word, FORMATS["f16"])
        return (code.select(_is_nan(code, number, 32), code.constant(_F32.nan, 32), code.as_word(number, 32), 32),)
    if types in (("f32", "f32"), ("f64", "f64")) and not words:
        return (word,)
    if (*words, *types) in (("f64", "f32"), ("rn", "f32", "f64")):
        return (_between_widths(code, result_type, source_type, word),)
    if types == ("f32", "f32") and len(words) == 1 and words[0] in _TO_INTEGER:
        return (_round_to_form(code, _round_to_integer(code, words[0], code.as_float(word, 32), 32), _F32),)
    return None


def _between_widths(code: LaneCode, result_type: str, source_type: str, word: str) -> str:
    """Between f32 and f64: a NaN keeps its sign and its upper bits, and becomes quiet."""
    source, form = FORMATS[source_type], FORMATS[result_type]
    number = code.as_float(word, source.bits)
    name = "fpext" if form.bits > source.bits else "fptrunc"
    result = code.as_word(code.convert(name, number, code.floats(source.bits), code.floats(form.bits)), form.bits)
    wide = code.resize(word, source.bits, 64)
    fraction = code.with_constant("and", wide, (1 << source.fraction_bits) - 1, 64)
    moved = "shl" if form.bits > source.bits else "lshr"
    fraction = code.with_constant(moved, fraction, abs(form.fraction_bits - source.fraction_bits), 64)
    sign = code.with_constant("lshr", wide, source.bits - 1, 64)
    sign = code.with_constant("shl", sign, form.bits - 1, 64)
    carried = code.with_constant("or", fraction, form.infinity | 1 << form.fraction_bits - 1, 64)
    nan = code.resize(code.binary("or", carried, sign, 64), 64, form.bits)
    return code.select(_is_nan(code, number, source.bits), nan, result, form.bits)


WRITERS: dict[str, Writer] = {
    **{name: bind_name(_arithmetic, name) for name in ("add", "sub", "mul", "fma")},
    **{name: bind_name(_quotient, name) for name in ("div", "rcp", "sqrt")},
    **{name: bind_name(_extreme, name) for name in ("min", "max")},
    **{name: bind_name(_change_sign, name) for name in ("neg", "abs")},
}
OF_ALL_TYPES: dict[str, Writer] = {"setp": _set_predicate, "cvt": _convert}
