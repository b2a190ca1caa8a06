"""LLVM's text for some lanes at once: a value is a vector, a lane for each element.

    code.binary("add", "%a", "%b", 32)      %v1 = add <4 x i32> %a, %b         returns %v1

Values are bits: i32, i64, … and i1 for predicates. Floats exist between two bitcasts. Nothing here is fast-math, so that LLVM neither
contracts nor reorders.
"""

from __future__ import annotations

from collections.abc import Sequence

LANES = 4  # of a vector; every cluster has whole warps of lanes

_FLOATS = {16: "half", 32: "float", 64: "double"}


class LaneCode:
    """Lines of a function body, as they are written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.elements = LANES  # of a vector; more where a lane has several parts
        self._count = 0

    def value(self, expression: str) -> str:
        """The name of a new value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {expression}")
        return name

    def words(self, bits: int) -> str:
        """The type of integers."""
        return f"<{self.elements} x i{bits}>"

    def floats(self, bits: int) -> str:
        """The type of floats."""
        return f"<{self.elements} x {_FLOATS[bits]}>"

    def constant(self, value: int, bits: int) -> str:
        """One integer for all lanes."""
        one = f"i{bits} {value & (1 << bits) - 1}" if bits > 1 else f"i1 {'true' if value & 1 else 'false'}"
        return f"<{', '.join([one] * self.elements)}>"

    def binary(self, name: str, first: str, second: str, bits: int) -> str:
        """Add sub mul and or xor shl lshr ashr … of two integers."""
        return self.value(f"{name} {self.words(bits)} {first}, {second}")

    def with_constant(self, name: str, first: str, value: int, bits: int) -> str:
        """The same with one integer for all lanes."""
        return self.binary(name, first, self.constant(value, bits), bits)

    def invert(self, word: str, bits: int) -> str:
        """All bits inverted."""
        return self.with_constant("xor", word, -1, bits)

    def compare(self, relation: str, first: str, second: str, bits: int) -> str:
        """Eq ne ult slt … of two integers: a predicate."""
        return self.value(f"icmp {relation} {self.words(bits)} {first}, {second}")

    def select(self, condition: str, first: str, second: str, bits: int) -> str:
        """The first where a predicate holds, else the second."""
        words = self.words(bits)
        return self.value(f"select {self.words(1)} {condition}, {words} {first}, {words} {second}")

    def resize(self, word: str, bits: int, wanted_bits: int, *, is_signed: bool = False) -> str:
        """Integers of another width: cut, or extended by zeros or their sign."""
        if bits == wanted_bits:
            return word
        name = "trunc" if bits > wanted_bits else "sext" if is_signed else "zext"
        return self.value(f"{name} {self.words(bits)} {word} to {self.words(wanted_bits)}")

    def as_float(self, word: str, bits: int) -> str:
        """The float of some bits."""
        return self.value(f"bitcast {self.words(bits)} {word} to {self.floats(bits)}")

    def as_word(self, number: str, bits: int) -> str:
        """The bits of a float."""
        return self.value(f"bitcast {self.floats(bits)} {number} to {self.words(bits)}")

    def compute(self, name: str, first: str, second: str, bits: int) -> str:
        """Fadd fsub fmul of two floats, to nearest."""
        return self.value(f"{name} {self.floats(bits)} {first}, {second}")

    def compare_floats(self, relation: str, first: str, second: str, bits: int) -> str:
        """Oeq olt une uno … of two floats: a predicate."""
        return self.value(f"fcmp {relation} {self.floats(bits)} {first}, {second}")

    def convert(self, name: str, value: str, kind: str, wanted: str) -> str:
        """Sitofp fpext fptrunc … between two types."""
        return self.value(f"{name} {kind} {value} to {wanted}")

    def call(self, name: str, result: str, *operands: tuple[str, str]) -> str:
        """One of LLVM's intrinsics, of operands with their types; its name ends with the types that it is overloaded by."""
        self.declarations.add(f"declare {result} @{name}({', '.join(kind for kind, _ in operands)})")
        return self.value(f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in operands)})")

    def mangle(self, kind: str) -> str:
        """How a vector type is spelled in the name of an intrinsic: v4i32."""
        element = {"half": "f16", "float": "f32", "double": "f64"}
        name = kind.strip("<>").split(" x ")[1]
        return f"v{self.elements}{element.get(name, name)}"

    def split(self, words: Sequence[str], bits: int, parts: int) -> list[str]:
        """Words as their parts, low part first; until `join` a vector has as many elements more."""
        whole = self.words(bits)
        self.elements *= parts
        return [self.value(f"bitcast {whole} {word} to {self.words(bits // parts)}") for word in words]

    def join(self, word: str, bits: int, parts: int) -> str:
        """The words of parts."""
        split = self.words(bits // parts)
        self.elements //= parts
        return self.value(f"bitcast {split} {word} to {self.words(bits)}")
