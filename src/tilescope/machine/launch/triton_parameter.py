"""A parameter of a Triton kernel: its type, as Triton writes it, and what Triton assumes of its argument.

*fp16            a pointer to float16; Triton assumes that the address is a multiple of 16
i32              an integer;  i32:16  an integer that Triton assumes to be a multiple of 16
i32:1            an integer that is 1 and is compiled in, as Triton does for strides of 1
fp32             a float
tensordesc<fp16[64,64]>                                a descriptor made by the host, and the block that it moves
tensordesc<fp16[64,64],NVMMASharedLayout(…)>           the same for Gluon, which names the layout
tensordesc_im2col<fp16[64,64],input_rank=4,…>          a descriptor that gathers the patches of a convolution (Gluon)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.names import nearest_name
from tilescope.rule import rule
from tilescope.sentence import format_value, shorten

ASSUMED_MULTIPLE = 16  # the divisibility that Triton looks for in addresses and integers
_EXAMPLE = "ts.machine.launch.triton_signature.read_signature"

TRITON_SIGNATURE = rule(
    "triton-signature",
    "A signature has one type, in Triton's notation, for each parameter of the kernel that is not a constexpr.",
    argument="signature",
    found="{shown}",
    limit="a signature has a type for each of {names:, }",
    fix='Use "*fp16, *fp16, i32", for example, or {{"a": "*fp16", "n": "i32"}}.',
    source="Triton, triton.compiler.ASTSource",
    passing=f'{_EXAMPLE}(["a", "n"], "*fp16, i32")',
    failing=f'{_EXAMPLE}(["a", "n"], "*fp16")',
)
NO_TYPE = TRITON_SIGNATURE.worded(
    found="{name} has the type {shown}",
    limit="a type of Triton's: {known:, }, a pointer to one, or tensordesc<fp16[64,64]>",
    fix='[[Did you mean "{nearest}"? ]]Use "*fp16" for an array, "i32" for an integer.',
)
NO_HINT = TRITON_SIGNATURE.worded(
    found="{name} has the type {shown}",
    limit="a type may end with :16 for a multiple of 16, or with :1 for an integer that is always 1",
    fix="Use {plain}:16, or {plain}.",
)


class TritonType(NamedTuple):
    """An element type of Triton: its size, and the numpy types of arrays that can hold it."""

    size_bytes: int
    kind: str  # "int", "uint" or "float"
    numpy_names: tuple[str, ...]


TRITON_TYPE = {
    "i1": TritonType(1, "int", ("bool", "int8", "uint8")),
    "i8": TritonType(1, "int", ("int8", "uint8")),
    "i16": TritonType(2, "int", ("int16", "uint16")),
    "i32": TritonType(4, "int", ("int32", "uint32")),
    "i64": TritonType(8, "int", ("int64", "uint64")),
    "u1": TritonType(1, "uint", ("bool", "int8", "uint8")),
    "u8": TritonType(1, "uint", ("uint8", "int8")),
    "u16": TritonType(2, "uint", ("uint16", "int16")),
    "u32": TritonType(4, "uint", ("uint32", "int32")),
    "u64": TritonType(8, "uint", ("uint64", "int64")),
    "fp8e4nv": TritonType(1, "float", ("float8_e4m3fn", "uint8")),
    "fp8e4b15": TritonType(1, "float", ("uint8",)),
    "fp8e5": TritonType(1, "float", ("float8_e5m2", "uint8")),
    "fp16": TritonType(2, "float", ("float16",)),
    "bf16": TritonType(2, "float", ("bfloat16", "uint16")),
    "fp32": TritonType(4, "float", ("float32",)),
    "fp64": TritonType(8, "float", ("float64",)),
}
# Names that other tools use for these types.
_OTHER_NAMES = {
    "f16": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "f32": "fp32",
    "float32": "fp32",
    "f64": "fp64",
    "float64": "fp64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
}


def find_triton_type(name: str) -> str | None:
    """Triton's name for a type that other tools name differently; None if Triton has no such type.

    >>> find_triton_type("float16"), find_triton_type("bf16"), find_triton_type("tfloat32")
    ('fp16', 'bf16', None)
    """
    triton_name = _OTHER_NAMES.get(name, name)
    return triton_name if triton_name in TRITON_TYPE else None


_DESCRIPTOR = re.compile(r"tensordesc(?P<mode>_im2col)?<(?P<element>\w+)\[(?P<block>[\d, ]+)\](?P<rest>.*)>", re.DOTALL)
_INPUT_RANK = re.compile(r",input_rank=(\d+)")


@dataclass(frozen=True, slots=True)
class TritonParameter:
    """A parameter of a kernel that is not a constexpr, and what Triton assumes of its argument.

    >>> parse_parameter("n", "i32:16")
    TritonParameter(name='n', type='i32', multiple_of=16, is_one=False)
    """

    name: str
    type: str
    multiple_of: int = 1  # of the address, or of the value
    is_one: bool = False

    @property
    def is_pointer(self) -> bool:
        """Whether its argument is an array or an address."""
        return self.type.startswith("*")

    @property
    def is_descriptor(self) -> bool:
        """Whether its argument is a tensor descriptor that the host makes."""
        return self.type.startswith("tensordesc")

    @property
    def short_type(self) -> str:
        """The type without the layout of a descriptor.

        >>> parse_parameter("x", "tensordesc<fp16[64,64],NVMMASharedLayout(rank=2)>").short_type
        'tensordesc<fp16[64,64]>'
        """
        return f"{self.type.partition(']')[0]}]>" if self.is_descriptor else self.type

    @property
    def element(self) -> TritonType:
        """The type of the number, or of the elements of the array."""
        if self.is_descriptor:
            return TRITON_TYPE[self._descriptor["element"]]
        return TRITON_TYPE[self.type.removeprefix("*").removeprefix("k")]

    @property
    def rank(self) -> int:
        """The dimensions of a descriptor's tensor.

        >>> parse_parameter("x", "tensordesc<fp16[64,64]>").rank
        2
        """
        input_rank = _INPUT_RANK.search(self.type)
        return int(input_rank[1]) if input_rank is not None else self._descriptor["block"].count(",") + 1

    @property
    def _descriptor(self) -> re.Match[str]:
        match = _DESCRIPTOR.fullmatch(self.type)
        assert match is not None  # parse_parameter accepted it
        return match


def parse_parameter(name: str, written: object) -> TritonParameter:
    """The parameter `name` of a written type; a RuleError if Triton has no such type."""
    text = written.strip() if isinstance(written, str) else ""
    if text.startswith("tensordesc"):
        return TritonParameter(name, _parse_descriptor_type(name, text))
    plain, colon, hint = text.partition(":")
    stars = "*k" if plain.startswith("*k") else "*" if plain.startswith("*") else ""
    element = _parse_element_type(name, plain[len(stars) :], written)
    plain = stars + element
    if not colon:
        return TritonParameter(name, plain, ASSUMED_MULTIPLE if stars else 1)
    is_integer = not stars and TRITON_TYPE[element].kind != "float"
    if hint == "1" and is_integer:
        return TritonParameter(name, plain, is_one=True)
    if hint == "1" and stars:
        return TritonParameter(name, plain)  # any address
    if hint != str(ASSUMED_MULTIPLE) or not (is_integer or stars):
        raise NO_HINT.error(name=name, shown=format_value(written), plain=plain)
    return TritonParameter(name, plain, ASSUMED_MULTIPLE)


def _parse_descriptor_type(name: str, text: str) -> str:
    match = _DESCRIPTOR.fullmatch(text)
    if match is None:
        raise NO_TYPE.error(name=name, shown=shorten(text), known=tuple(TRITON_TYPE), nearest="tensordesc<fp16[64,64]>")
    block = ",".join(extent.strip() for extent in match["block"].split(","))
    element = _parse_element_type(name, match["element"], text)
    return f"tensordesc{match['mode'] or ''}<{element}[{block}]{match['rest']}>"


def _parse_element_type(name: str, text: str, written: object) -> str:
    element = _OTHER_NAMES.get(text, text)
    if element not in TRITON_TYPE:
        nearest = nearest_name(text, TRITON_TYPE)
        raise NO_TYPE.error(name=name, shown=format_value(written), known=tuple(TRITON_TYPE), nearest=nearest)
    return element
