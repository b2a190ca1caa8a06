"""The types of a Triton kernel's parameters, as Triton writes them.

*fp16            a pointer to float16; Triton counts on addresses that are multiples of 16
i32              an integer;  i32:16  one that is a multiple of 16, and Triton counts on it
i32:1            one that is 1, compiled in, as Triton does for strides of 1
fp32             a float
tensordesc<fp16[64,64]>                                a descriptor made by the host, and the block that it moves
tensordesc<fp16[64,64],NVMMASharedLayout(…)>           the same for Gluon, which says the layout
tensordesc_im2col<fp16[64,64],input_rank=4,…>          one that gathers the patches of a convolution (Gluon)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilescope.errors import RuleError, Violation, raise_all, unknown_name
from tilescope.names import nearest_name
from tilescope.rule import rule
from tilescope.sentence import counted, printed, shortened

ASSUMED_MULTIPLE = 16  # what Triton looks for in addresses and integers
_EXAMPLE = "ts.machine.launch.triton_signature.read_signature"

TRITON_SIGNATURE = rule(
    "triton-signature",
    "A signature has one type, as Triton writes it, for each parameter of the kernel that is not a constexpr.",
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
NO_VALUE = TRITON_SIGNATURE.worded(
    argument="constexprs",
    found="no value for the constexpr {name}",
    limit="a kernel is compiled for the values of its constexprs",
    fix="Add {name} to constexprs (--constexpr {name}=128, for example).",
)


class TritonType(NamedTuple):
    """An element type of Triton's: how many bytes it has, and the numpy types of arrays that hold it."""

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
# What other tools call these types, for people who write them so.
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


def triton_type(name: str) -> str | None:
    """What Triton calls a type that others know by another name; None if Triton has no such type.

    >>> triton_type("float16"), triton_type("bf16"), triton_type("tfloat32")
    ('fp16', 'bf16', None)
    """
    found = _OTHER_NAMES.get(name, name)
    return found if found in TRITON_TYPE else None


_DESCRIPTOR = re.compile(r"tensordesc(?P<mode>_im2col)?<(?P<element>\w+)\[(?P<block>[\d, ]+)\](?P<rest>.*)>", re.DOTALL)
_INPUT_RANK = re.compile(r",input_rank=(\d+)")


@dataclass(frozen=True, slots=True)
class TritonParameter:
    """One parameter of a kernel that is no constexpr, and what Triton may count on.

    >>> parameter_of("n", "i32:16")
    TritonParameter(name='n', type='i32', multiple_of=16, is_one=False)
    """

    name: str
    type: str
    multiple_of: int = 1  # its address, or its value
    is_one: bool = False

    @property
    def is_pointer(self) -> bool:
        """Whether it gets an array."""
        return self.type.startswith("*")

    @property
    def is_descriptor(self) -> bool:
        """Whether it gets a tensor descriptor of the host's."""
        return self.type.startswith("tensordesc")

    @property
    def short_type(self) -> str:
        """The type without a layout.

        >>> parameter_of("x", "tensordesc<fp16[64,64],NVMMASharedLayout(rank=2)>").short_type
        'tensordesc<fp16[64,64]>'
        """
        return f"{self.type.partition(']')[0]}]>" if self.is_descriptor else self.type

    @property
    def element(self) -> TritonType:
        """The type of the number, or of the elements of the array."""
        if self.is_descriptor:
            found = _DESCRIPTOR.fullmatch(self.type)
            assert found is not None  # parameter_of read it
            return TRITON_TYPE[found["element"]]
        return TRITON_TYPE[self.type.removeprefix("*").removeprefix("k")]

    @property
    def rank(self) -> int:
        """The dimensions of a descriptor's tensor.

        >>> parameter_of("x", "tensordesc<fp16[64,64]>").rank
        2
        """
        said = _INPUT_RANK.search(self.type)
        found = _DESCRIPTOR.fullmatch(self.type)
        assert found is not None
        return int(said[1]) if said is not None else found["block"].count(",") + 1


class TritonSignature(NamedTuple):
    """What a kernel is compiled for: its parameters in their order, and the values of its constexprs."""

    parameters: tuple[TritonParameter, ...]
    constexprs: dict[str, object]

    def types(self) -> dict[str, str]:
        """A type for every name, as Triton's compiler takes it."""
        types = {one.name: "constexpr" if one.is_one else one.type for one in self.parameters}
        return types | dict.fromkeys(self.constexprs, "constexpr")

    def values(self) -> dict[str, object]:
        """The values that are compiled in."""
        return self.constexprs | {one.name: 1 for one in self.parameters if one.is_one}


def read_signature(
    names: Sequence[str],
    signature: object,
    constexprs: Mapping[str, object] | None = None,
    *,
    defaults: Mapping[str, object] | None = None,
    always_constant: Collection[str] = (),
) -> TritonSignature:
    """A signature for the parameters `names`: a text, a sequence of types, or types by name.

    `defaults` are the values of constexprs that the caller leaves out, `always_constant` the parameters declared constexpr.

    >>> read_signature(["a", "n", "BLOCK"], "*fp16, i32", {"BLOCK": 64}).types()
    {'a': '*fp16', 'n': 'i32', 'BLOCK': 'constexpr'}
    """
    values = dict(constexprs or {})
    problems: list[Violation] = [
        unknown_name("parameter", "constexprs", name, names) for name in values if name not in names
    ]
    for name in always_constant:
        if name not in values and name in (defaults or {}):
            values[name] = (defaults or {})[name]
        elif name not in values:
            problems.append(NO_VALUE.violation(name=name))
    wanted = [name for name in names if name not in values and name not in always_constant]
    parameters = []
    for name, written in _named(wanted, signature, names, problems).items():
        try:
            parameters.append(parameter_of(name, written))
        except RuleError as error:
            problems += error.violations
    raise_all(problems)
    in_order = {name: values[name] for name in names if name in values}
    return TritonSignature(tuple(parameters), in_order)


def _named(
    wanted: Sequence[str], signature: object, names: Sequence[str], problems: list[Violation]
) -> Mapping[str, object]:
    """The types by the names of parameters, in their order."""
    if isinstance(signature, Mapping):
        problems += [unknown_name("parameter", "signature", name, names) for name in signature if name not in names]
        missing = [name for name in wanted if name not in signature]
        if missing:
            problems.append(TRITON_SIGNATURE.violation(shown=f"no type for {', '.join(missing)}", names=wanted))
        return {name: signature[name] for name in wanted if name in signature}
    listed: Iterable[object] | None = None
    if isinstance(signature, str):
        listed = split_types(signature)
    elif isinstance(signature, Iterable):
        listed = signature
    types = None if listed is None else [*listed]
    if types is None or len(types) != len(wanted):
        shown = f"signature = {printed(signature)}"
        if types is not None:
            shown = f"{counted(len(types), 'type')}: {printed(signature)}"
        problems.append(TRITON_SIGNATURE.violation(shown=shown, names=wanted or ["no parameter"]))
        return {}
    return dict(zip(wanted, types, strict=True))


def split_types(text: str) -> list[str]:
    """The types of a text, at commas outside of brackets.

    >>> split_types("*fp16, tensordesc<fp16[64,64]>, i32")
    ['*fp16', 'tensordesc<fp16[64,64]>', 'i32']
    """
    types = [""]
    depth = 0
    for character in text:
        depth += character in "<[("
        depth -= character in ">])"
        if character == "," and depth == 0:
            types.append("")
        else:
            types[-1] += character
    return [one.strip() for one in types] if text.strip() else []


def parameter_of(name: str, written: object) -> TritonParameter:
    """The parameter of a type, with what Triton may count on."""
    said = str(written).strip() if isinstance(written, str) else ""
    if said.startswith("tensordesc"):
        return TritonParameter(name, _descriptor_type(name, said))
    plain, colon, hint = said.partition(":")
    stars = "*k" if plain.startswith("*k") else "*" if plain.startswith("*") else ""
    element = _element_type(name, plain[len(stars) :], written)
    plain = stars + element
    if not colon:
        return TritonParameter(name, plain, ASSUMED_MULTIPLE if stars else 1)
    is_integer = not stars and TRITON_TYPE[element].kind != "float"
    if hint == "1" and is_integer:
        return TritonParameter(name, plain, is_one=True)
    if hint == "1" and stars:
        return TritonParameter(name, plain)  # any address
    if hint != str(ASSUMED_MULTIPLE) or not (is_integer or stars):
        raise NO_HINT.error(name=name, shown=printed(written), plain=plain)
    return TritonParameter(name, plain, ASSUMED_MULTIPLE)


def _descriptor_type(name: str, said: str) -> str:
    found = _DESCRIPTOR.fullmatch(said)
    if found is None:
        raise NO_TYPE.error(
            name=name, shown=shortened(said), known=tuple(TRITON_TYPE), nearest="tensordesc<fp16[64,64]>"
        )
    block = ",".join(extent.strip() for extent in found["block"].split(","))
    element = _element_type(name, found["element"], said)
    return f"tensordesc{found['mode'] or ''}<{element}[{block}]{found['rest']}>"


def _element_type(name: str, said: str, written: object) -> str:
    element = _OTHER_NAMES.get(said, said)
    if element not in TRITON_TYPE:
        nearest = nearest_name(said, TRITON_TYPE)
        raise NO_TYPE.error(name=name, shown=printed(written), known=tuple(TRITON_TYPE), nearest=nearest)
    return element
