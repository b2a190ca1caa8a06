"""LLVM's text for instructions on integers, bits and predicates, with the bits of `arithmetic`.

    mad.lo.s32 a, b, c      mul, add            shl.b32 a, b      0 where b is 32 or more, which LLVM's shl leaves undefined

A function returns None for a form that it does not write; numpy computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilescope.machine.compiled.lane_code import LANES, LaneCode
from tilescope.ptx.syntax import BITS_OF_TYPE

INTEGER_TYPES = frozenset(f"{kind}{bits}" for kind in "us" for bits in (16, 32, 64))
RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
_OF_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


class Operand(NamedTuple):
    """A source operand: the name of its value, and the number where it is a constant."""

    value: str
    constant: int | None = None


Results = tuple[str, ...] | None
Writer = Callable[[LaneCode, tuple[str, ...], Sequence[Operand]], Results]
"""Of the code, the modifiers and the sources, each as wide as its operation takes it."""


def _type(modifiers: tuple[str, ...], *others: str) -> str | None:
    """The integer type of an instruction, if its modifiers are that and some others."""
    if not modifiers or modifiers[-1] not in INTEGER_TYPES or not set(modifiers[:-1]) <= set(others):
        return None
    return modifiers[-1]


def _sum(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Add, sub, addc, subc."""
    type_name = _type(modifiers, "cc")
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    first, second = sources[0].value, sources[1].value
    if "cc" not in modifiers and name in ("add", "sub"):
        return (code.binary(name, first, second, bits),)
    return _sum_with_carry(code, first, second, sources[2:], bits, subtracts=name.startswith("sub"))


def _sum_with_carry(
    code: LaneCode, first: str, second: str, carries: Sequence[Operand], bits: int, *, subtracts: bool
) -> tuple[str, str]:
    """The sum and its carry out; a subtraction is a + ~b + 1, or + the carry in."""
    carry = carries[0].value if carries else code.constant(1, 1) if subtracts else None
    if subtracts:
        second = code.invert(second, bits)
    total = code.binary("add", first, second, bits)
    overflow = code.compare("ult", total, first, bits)
    if carry is None:
        return total, overflow
    with_carry = code.binary("add", total, code.resize(carry, 1, bits), bits)
    return with_carry, code.binary("or", overflow, code.compare("ult", with_carry, total, bits), 1)


def _product(code: LaneCode, half: str, type_name: str, first: str, second: str) -> str:
    """mul.lo, .hi or .wide."""
    bits = BITS_OF_TYPE[type_name]
    if half == "lo":
        return code.binary("mul", first, second, bits)
    is_signed = type_name[0] == "s"
    wide, other = (code.resize(one, bits, 2 * bits, is_signed=is_signed) for one in (first, second))
    product = code.binary("mul", wide, other, 2 * bits)
    if half == "wide":
        return product
    return code.resize(code.with_constant("lshr", product, bits, 2 * bits), 2 * bits, bits)


def _half(modifiers: tuple[str, ...]) -> str:
    return next((word for word in modifiers if word in ("lo", "hi", "wide")), "lo")


def _mul(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    type_name = _type(modifiers, "lo", "hi", "wide")
    if type_name is None:
        return None
    return (_product(code, _half(modifiers), type_name, sources[0].value, sources[1].value),)


def _mad(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Mad and madc."""
    type_name = _type(modifiers, "lo", "hi", "wide", "cc")
    if type_name is None:
        return None
    half = _half(modifiers)
    bits = BITS_OF_TYPE[type_name] * (2 if half == "wide" else 1)
    product = _product(code, half, type_name, sources[0].value, sources[1].value)
    if "cc" in modifiers or len(sources) > 3:
        return _sum_with_carry(code, product, sources[2].value, sources[3:], bits, subtracts=False)
    return (code.binary("add", product, sources[2].value, bits),)


def _quotient(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Div and rem: all ones for a divisor of 0; the smallest number divided by -1 is itself."""
    type_name = _type(modifiers)
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    first, second = sources[0].value, sources[1].value
    is_zero = code.compare("eq", second, code.constant(0, bits), bits)
    by_one = is_zero
    if type_name[0] == "s":
        is_least = code.compare("eq", first, code.constant(1 << bits - 1, bits), bits)
        is_minus_one = code.compare("eq", second, code.constant(-1, bits), bits)
        by_one = code.binary("or", is_zero, code.binary("and", is_least, is_minus_one, 1), 1)
    divisor = code.select(by_one, code.constant(1, bits), second, bits)
    result = code.binary("sdiv" if type_name[0] == "s" else "udiv", first, divisor, bits)
    if name == "rem":
        result = code.binary("sub", first, code.binary("mul", result, second, bits), bits)
    return (code.select(is_zero, code.constant(-1, bits), result, bits),)


def _extreme(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Min and max."""
    type_name = _type(modifiers)
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    relation = _relation("lt" if name == "min" else "gt", type_name)
    first, second = sources[0].value, sources[1].value
    return (code.select(code.compare(relation, first, second, bits), first, second, bits),)


def _change_sign(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Neg and abs."""
    type_name = _type(modifiers)
    if type_name is None or type_name[0] != "s":
        return None
    bits = BITS_OF_TYPE[type_name]
    zero = code.constant(0, bits)
    negative = code.binary("sub", zero, sources[0].value, bits)
    if name == "neg":
        return (negative,)
    is_negative = code.compare("slt", sources[0].value, zero, bits)
    return (code.select(is_negative, negative, sources[0].value, bits),)


def _difference(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """sad: c + |a - b|."""
    type_name = _type(modifiers)
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    a, b, c = (source.value for source in sources)
    is_greater = code.compare(_relation("gt", type_name), a, b, bits)
    gap = code.select(is_greater, code.binary("sub", a, b, bits), code.binary("sub", b, a, bits), bits)
    return (code.binary("add", gap, c, bits),)


def _bits_of(modifiers: tuple[str, ...]) -> int | None:
    """The width of an instruction without other modifiers."""
    return BITS_OF_TYPE[modifiers[0]] if len(modifiers) == 1 else None


def _logic(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    bits = _bits_of(modifiers)
    return None if bits is None else (code.binary(name, sources[0].value, sources[1].value, bits),)


def _not(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    bits = _bits_of(modifiers)
    return None if bits is None else (code.invert(sources[0].value, bits),)


def _cnot(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    return (code.resize(code.compare("eq", sources[0].value, code.constant(0, bits), bits), 1, bits),)


def _lop3(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """The or of those of its eight terms that its table has."""
    table = sources[3].constant
    if modifiers != ("b32",) or table is None:
        return None
    words = [source.value for source in sources[:3]]
    inverted = [code.invert(word, 32) for word in words]
    result = code.constant(0, 32)
    for number in range(8):
        if table >> number & 1:
            term = [words[k] if number >> 2 - k & 1 else inverted[k] for k in range(3)]
            both = code.binary("and", code.binary("and", term[0], term[1], 32), term[2], 32)
            result = code.binary("or", result, both, 32)
    return (result,)


def shift(code: LaneCode, name: str, word: str, amount: str, bits: int) -> str:
    """Shl or lshr by an amount as wide as the word: 0 where it is the width or more."""
    fits = code.compare("ult", amount, code.constant(bits, bits), bits)
    cut = code.with_constant("and", amount, bits - 1, bits)
    return code.select(fits, code.binary(name, word, cut, bits), code.constant(0, bits), bits)


def _shift(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Shl and shr: the amount has 32 bits for every type."""
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    word, amount = sources
    is_arithmetic = name == "shr" and modifiers[0][0] == "s"
    operation = "shl" if name == "shl" else "ashr" if is_arithmetic else "lshr"
    if amount.constant is not None:
        if amount.constant < bits:
            return (code.with_constant(operation, word.value, amount.constant, bits),)
        return (code.with_constant("ashr", word.value, bits - 1, bits) if is_arithmetic else code.constant(0, bits),)
    most = bits - 1 if is_arithmetic else bits
    is_less = code.compare("ult", amount.value, code.constant(most, 32), 32)
    clamped = code.resize(code.select(is_less, amount.value, code.constant(most, 32), 32), 32, bits)
    if is_arithmetic:
        return (code.binary(operation, word.value, clamped, bits),)
    return (shift(code, operation, word.value, clamped, bits),)


def _funnel(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """shf: 32 bits of {b, a}, shifted."""
    low, high, amount = (code.resize(source.value, 32, 64) for source in sources)
    if "wrap" in modifiers:
        amount = code.with_constant("and", amount, 31, 64)
    else:
        is_less = code.compare("ult", amount, code.constant(32, 64), 64)
        amount = code.select(is_less, amount, code.constant(32, 64), 64)
    both = code.binary("or", code.with_constant("shl", high, 32, 64), low, 64)
    if "l" in modifiers:
        moved = code.with_constant("lshr", code.binary("shl", both, amount, 64), 32, 64)
    else:
        moved = code.binary("lshr", both, amount, 64)
    return (code.resize(moved, 64, 32),)


def _mask(code: LaneCode, count: str) -> str:
    """Words of 64 bits whose low bits are set."""
    return code.invert(shift(code, "shl", code.constant(-1, 64), count, 64), 64)


def _field_number(code: LaneCode, source: Operand, bits: int) -> str:
    """The start or the length of a field: 8 bits for a word of 32, all for one of 64."""
    word = code.with_constant("and", source.value, 0xFF, 32) if bits == 32 else source.value
    return code.resize(word, 32, 64)


def _extract_field(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """bfe; of a signed type only where start and length are constants and the field lies in the word."""
    type_name = _type(modifiers)
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    word, start, length = sources
    if type_name[0] == "s":
        if start.constant is None or length.constant is None or not 0 < length.constant <= bits - start.constant:
            return None
        moved = code.with_constant("shl", word.value, bits - start.constant - length.constant, bits)
        return (code.with_constant("ashr", moved, bits - length.constant, bits),)
    first, count = (_field_number(code, source, bits) for source in (start, length))
    moved = shift(code, "lshr", code.resize(word.value, bits, 64), first, 64)
    return (code.resize(code.binary("and", moved, _mask(code, count), 64), 64, bits),)


def _insert_field(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Bfi."""
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    first, count = (_field_number(code, source, bits) for source in sources[2:])
    place = shift(code, "shl", _mask(code, count), first, 64)
    field = shift(code, "shl", code.resize(sources[0].value, bits, 64), first, 64)
    rest = code.binary("and", code.resize(sources[1].value, bits, 64), code.invert(place, 64), 64)
    return (code.resize(code.binary("or", rest, code.binary("and", field, place, 64), 64), 64, bits),)


def _permute(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Prmt by the digits of a constant, none of which replicates a sign."""
    selector = sources[2].constant
    if modifiers != ("b32",) or selector is None or selector & 0x8888:
        return None
    digits = [selector >> 4 * place & 7 for place in range(4)]
    places = [4 * lane + digit % 4 + (4 * LANES if digit > 3 else 0) for lane in range(LANES) for digit in digits]
    split = code.split([source.value for source in sources[:2]], 32, 4)
    kind = code.words(8)
    order = ", ".join(f"i32 {place}" for place in places)
    chosen = code.value(f"shufflevector {kind} {split[0]}, {kind} {split[1]}, <{len(places)} x i32> <{order}>")
    return (code.join(chosen, 32, 4),)


def _count(code: LaneCode, name: str, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Popc and clz: a count of 32 bits."""
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    count = _ones(code, sources[0].value, bits) if name == "popc" else _leading_zeros(code, sources[0].value, bits)
    return (code.resize(count, bits, 32),)


def _ones(code: LaneCode, word: str, bits: int) -> str:
    kind = code.words(bits)
    return code.call(f"llvm.ctpop.{code.mangle(kind)}", kind, (kind, word))


def _leading_zeros(code: LaneCode, word: str, bits: int) -> str:
    kind = code.words(bits)
    return code.call(f"llvm.ctlz.{code.mangle(kind)}", kind, (kind, word), ("i1", "false"))


def _find_highest(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """bfind: the highest bit that is set, or that differs from the sign; all ones if there is none."""
    type_name = _type(modifiers, "shiftamt")
    if type_name is None:
        return None
    bits = BITS_OF_TYPE[type_name]
    word = sources[0].value
    if type_name[0] == "s":
        word = code.binary("xor", word, code.with_constant("ashr", word, bits - 1, bits), bits)
    zeros = _leading_zeros(code, word, bits)
    position = code.binary("sub", code.constant(bits - 1, bits), zeros, bits)
    if "shiftamt" in modifiers:
        is_zero = code.compare("eq", word, code.constant(0, bits), bits)
        position = code.select(is_zero, position, zeros, bits)
    return (code.resize(position, bits, 32),)


def _reverse(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Brev."""
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    kind = code.words(bits)
    return (code.call(f"llvm.bitreverse.{code.mangle(kind)}", kind, (kind, sources[0].value)),)


def _relation(compare: str, type_name: str) -> str:
    """A comparison of integers as LLVM calls it."""
    if compare in ("eq", "ne"):
        return compare
    return f"{'s' if type_name[0] == 's' else 'u'}{compare}"


def compare_integers(code: LaneCode, compare: str, type_name: str, sources: Sequence[Operand]) -> str | None:
    """The predicate of a comparison, as setp and set make it."""
    relation = _OF_UNSIGNED.get(compare, compare)
    if relation not in RELATIONS or type_name not in BITS_OF_TYPE:
        return None
    return code.compare(_relation(relation, type_name), sources[0].value, sources[1].value, BITS_OF_TYPE[type_name])


def _select(code: LaneCode, modifiers: tuple[str, ...], sources: Sequence[Operand]) -> Results:
    """Selp."""
    bits = _bits_of(modifiers)
    if bits is None:
        return None
    first, second, predicate = (source.value for source in sources)
    return (code.select(predicate, first, second, bits),)


def convert_integers(code: LaneCode, result_type: str, source_type: str, source: Operand) -> str:
    """Cvt between integers: cut or extended. Those of 8 bits are in registers of 16 as a source, of 32 as a result."""
    source_bits, bits = BITS_OF_TYPE[source_type], BITS_OF_TYPE[result_type]
    word = code.resize(source.value, 16, 8) if source_bits == 8 else source.value
    cut = code.resize(word, source_bits, bits, is_signed=source_type[0] == "s")
    return extend_byte(code, cut, result_type)


def extend_byte(code: LaneCode, word: str, type_name: str) -> str:
    """An integer as its register holds it: one of 8 bits is extended to 32."""
    bits = BITS_OF_TYPE[type_name]
    return code.resize(word, bits, 32, is_signed=type_name[0] == "s") if bits == 8 else word


def bind_name(writer: Callable[[LaneCode, str, tuple[str, ...], Sequence[Operand]], Results], name: str) -> Writer:
    """The writer of one instruction of a family, from the writer of the family."""
    return lambda code, modifiers, sources: writer(code, name, modifiers, sources)


WRITERS: dict[str, Writer] = {
    **{name: bind_name(_sum, name) for name in ("add", "sub", "addc", "subc")},
    **{name: bind_name(_quotient, name) for name in ("div", "rem")},
    **{name: bind_name(_extreme, name) for name in ("min", "max")},
    **{name: bind_name(_change_sign, name) for name in ("neg", "abs")},
    **{name: bind_name(_logic, name) for name in ("and", "or", "xor")},
    **{name: bind_name(_shift, name) for name in ("shl", "shr")},
    **{name: bind_name(_count, name) for name in ("popc", "clz")},
    "mul": _mul,
    "mad": _mad,
    "madc": _mad,
    "sad": _difference,
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shf": _funnel,
    "bfe": _extract_field,
    "bfi": _insert_field,
    "prmt": _permute,
    "bfind": _find_highest,
    "brev": _reverse,
    "selp": _select,
}
