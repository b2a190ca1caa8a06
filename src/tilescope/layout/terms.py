"""The address of an element as a sum of terms: data, and its text in C, Python and PTX.

    16 x 128 bf16 in atoms of 8 x 64, by row             (mn, k)

    index   divisor   modulus   stride
    mn            8        -      2048 bytes             mn / 8 * 2048
    mn            1        8       128 bytes           + mn % 8 * 128
    k            64        -      1024 bytes           + k / 64 * 1024
    k             1       64         2 bytes           + k % 64 * 2

and then one XOR: the swizzle.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.layout.modes import Pairs
from tilescope.swizzle import Swizzle
from tilescope.value import Value, row_field


@dataclass(frozen=True, slots=True)
class Term(Value):
    """index / divisor % modulus * stride_bits; a modulus of None takes the whole quotient."""

    index: str
    divisor: int
    modulus: int | None
    stride_bits: int

    def digit(self, division: str) -> str:
        """The part of the index that the stride multiplies.

        >>> Term("k", 8, 4, 1024).digit("//")
        'k // 8 % 4'
        """
        quotient = self.index if self.divisor == 1 else f"{self.index} {division} {self.divisor}"
        return quotient if self.modulus is None else f"{quotient} % {self.modulus}"


@dataclass(frozen=True, slots=True)
class AddressTerms(Value):
    """The physical address of an element: swizzle(base + sum of terms).

    >>> from tilescope.layout import Layout
    >>> terms = Layout((64, 64), 16, swizzle="128B").terms()
    >>> terms.c
    '(a = base + mn * 128 + k * 2, a ^ ((a >> 3) & 0x70))'
    >>> terms.python
    '(a := base + mn * 128 + k * 2) ^ ((a >> 3) & 0x70)'
    >>> print(terms.ptx)
    mad.lo.u32 %a, %mn, 128, %base;
    mad.lo.u32 %a, %k, 2, %a;
    shr.u32 %t, %a, 3;
    and.b32 %t, %t, 0x70;
    xor.b32 %a, %a, %t;
    """

    terms: tuple[Term, ...]
    swizzle: Swizzle = row_field(Swizzle.named)

    @classmethod
    def of(cls, pairs: tuple[Pairs, ...], names: tuple[str, ...], swizzle: Swizzle) -> AddressTerms:
        """From the strides of the indices in bits."""
        terms: list[Term] = []
        for name, index in zip(names, pairs, strict=True):
            divisor = 1
            of_index = []
            for place, (extent, stride) in enumerate(index):
                is_last = place == len(index) - 1
                if stride:
                    of_index.append(Term(name, divisor, None if is_last else extent, stride))
                divisor *= extent
            terms += reversed(of_index)
        return cls(tuple(terms), swizzle)

    @property
    def c(self) -> str:
        """A C expression of `base` and the indices, with `unsigned a` declared where there is a swizzle."""
        return self.logical_c if self.swizzle.bits == 0 else f"(a = {self.logical_c}, {self.swizzle.c_expression})"

    @property
    def logical_c(self) -> str:
        """The C expression before the swizzle."""
        return self._sum("/")

    @property
    def python(self) -> str:
        """A Python expression of `base` and the indices, integers or arrays."""
        logical = self._sum("//")
        return logical if self.swizzle.bits == 0 else f"(a := {logical}){self.swizzle.c_expression.removeprefix('a')}"

    @property
    def ptx(self) -> str:
        """PTX that leaves the address in %a; %base and the indices are read, %t and %n are overwritten."""
        lines: list[str] = []
        sums = {"%a": "%base", "%n": "0"}  # where whole bytes and bits are summed, and what they start from
        for term in self.terms:
            target = "%n" if term.stride_bits % 8 else "%a"
            steps, digit = _ptx_digit(term)
            stride = term.stride_bits // (1 if term.stride_bits % 8 else 8)
            lines += [*steps, f"mad.lo.u32 {target}, {digit}, {stride}, {sums[target]};"]
            sums[target] = target
        if sums["%n"] == "%n":
            lines += ["shr.u32 %n, %n, 3;", f"add.u32 %a, {sums['%a']}, %n;"]
        elif not lines:
            lines = ["mov.u32 %a, %base;"]
        return "\n".join([*lines, *_ptx_swizzle(self.swizzle)])

    def _sum(self, division: str) -> str:
        in_bytes = ["base"]
        in_bits = []
        for term in self.terms:
            digit = term.digit(division)
            step = term.stride_bits // 8
            if term.stride_bits % 8:
                in_bits.append(f"{digit} * {term.stride_bits}")
            else:
                in_bytes.append(digit if step == 1 else f"{digit} * {step}")
        if len(in_bits) == 1:
            in_bytes.append(f"{in_bits[0]} {division} 8")
        elif in_bits:
            in_bytes.append(f"({' + '.join(in_bits)}) {division} 8")
        return " + ".join(in_bytes)


def _ptx_digit(term: Term) -> tuple[list[str], str]:
    """The instructions that make a term's digit in %t, and the register that holds it then."""
    lines = []
    register = f"%{term.index}"
    divisor = term.divisor
    if divisor > 1:
        if _is_power_of_two(divisor):
            lines.append(f"shr.u32 %t, {register}, {divisor.bit_length() - 1};")
        else:
            lines.append(f"div.u32 %t, {register}, {divisor};")
        register = "%t"
    modulus = term.modulus or 1
    if modulus > 1:
        if _is_power_of_two(modulus):
            lines.append(f"and.b32 %t, {register}, {modulus - 1};")
        else:
            lines.append(f"rem.u32 %t, {register}, {modulus};")
        register = "%t"
    return lines, register


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0


def _ptx_swizzle(swizzle: Swizzle) -> list[str]:
    if swizzle.bits == 0:
        return []
    mask = ((1 << swizzle.bits) - 1) << (swizzle.base + max(-swizzle.shift, 0))
    moved = f"shr.u32 %t, %a, {swizzle.shift};" if swizzle.shift > 0 else f"shl.b32 %t, %a, {-swizzle.shift};"
    lines = [moved, f"and.b32 %t, %t, {mask:#x};"]
    if swizzle.flip_bytes:  # of odd lines: the bit moves from the unswizzled address too
        lines += ["shr.u32 %n, %a, 4;", f"and.b32 %n, %n, {swizzle.flip_bytes:#x};", "xor.b32 %a, %a, %n;"]
    return [*lines, "xor.b32 %a, %a, %t;"]
