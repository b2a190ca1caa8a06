"""The signature of a Triton kernel: a type for every parameter, and the values of its constexprs.

    read_signature(["a", "n", "BLOCK"], "*fp16, i32", {"BLOCK": 64})     as the caller writes it
    infer_signature([f16:64x64, 1000])                                   "*fp16, i32": as Triton infers it from a call

`triton_parameter` has the types.

    f32:1000   *fp32      an array
    ptr:0      *fp32      an address in it
    1000       i32        an integer; 1024 is i32:16 and 1 is i32:1, since Triton specializes a kernel for such values
    2.0        fp32       a float
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tilescope.data_type import DataType
from tilescope.errors import RuleError, Violation, raise_all, unknown_name
from tilescope.machine.launch.launch_description import (
    ArgumentDescription,
    ArrayArgument,
    NumberArgument,
    PointerArgument,
)
from tilescope.machine.launch.triton_parameter import (
    ASSUMED_MULTIPLE,
    TRITON_SIGNATURE,
    TritonParameter,
    find_triton_type,
    parse_parameter,
)
from tilescope.sentence import counted, format_value

_INT32_RANGE = range(-(1 << 31), 1 << 31)

NO_VALUE = TRITON_SIGNATURE.worded(
    argument="constexprs",
    found="no value for the constexpr {name}",
    limit="a kernel is compiled for the values of its constexprs",
    fix="Add {name} to constexprs (--constexpr {name}=128, for example).",
)
NO_ARGUMENT_TYPE = TRITON_SIGNATURE.worded(
    found="no signature, and argument {index} has no type that Triton knows",
    limit="types come from arrays such as f16:64x64, addresses in them, and numbers",
    fix='Add a type for each parameter: --signature "*fp16, tensordesc<fp16[64,64]>, i32", for example.',
)


class TritonSignature(NamedTuple):
    """The signature for which a kernel is compiled: its parameters in order, and the values of its constexprs."""

    parameters: tuple[TritonParameter, ...]
    constexprs: dict[str, object]

    def types(self) -> dict[str, str]:
        """The type of every parameter, as Triton's compiler takes it."""
        types = {row.name: "constexpr" if row.is_one else row.type for row in self.parameters}
        return types | dict.fromkeys(self.constexprs, "constexpr")

    def values(self) -> dict[str, object]:
        """The values compiled into the kernel."""
        return self.constexprs | {row.name: 1 for row in self.parameters if row.is_one}


def read_signature(
    names: Sequence[str],
    signature: object,
    constexprs: Mapping[str, object] | None = None,
    *,
    defaults: Mapping[str, object] | None = None,
    always_constant: Collection[str] = (),
) -> TritonSignature:
    """Read the signature of a kernel with the parameters `names`: a text, a sequence of types, or types by name.

    `defaults` are values of constexprs that the caller leaves out. `always_constant` are the parameters declared constexpr.

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
    typed_names = [name for name in names if name not in values and name not in always_constant]
    parameters = []
    for name, written in _match_types(typed_names, signature, names, problems).items():
        try:
            parameters.append(parse_parameter(name, written))
        except RuleError as error:
            problems += error.violations
    raise_all(problems)
    in_order = {name: values[name] for name in names if name in values}
    return TritonSignature(tuple(parameters), in_order)


def _match_types(
    wanted: Sequence[str], signature: object, names: Sequence[str], problems: list[Violation]
) -> Mapping[str, object]:
    """The types of a signature by parameter name, in the order of the parameters."""
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
        shown = f"signature = {format_value(signature)}"
        if types is not None:
            shown = f"{counted(len(types), 'type')}: {format_value(signature)}"
        problems.append(TRITON_SIGNATURE.violation(shown=shown, names=wanted or ["no parameter"]))
        return {}
    return dict(zip(wanted, types, strict=True))


def split_types(text: str) -> list[str]:
    """Split a signature at the commas outside brackets.

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
    return [written.strip() for written in types] if text.strip() else []


def infer_signature(arguments: Sequence[ArgumentDescription]) -> str:
    """The signature that Triton infers from the arguments of a launch; a RuleError if an argument has no Triton type.

    >>> array = ArrayArgument(data_type="f16", shape=(64,))
    >>> infer_signature([array, NumberArgument(value=1000), NumberArgument(value=0.5)])
    '*fp16, i32, fp32'
    """
    return ", ".join(_infer_type(index, argument, arguments) for index, argument in enumerate(arguments))


def _infer_type(index: int, argument: ArgumentDescription, arguments: Sequence[ArgumentDescription]) -> str:
    match argument:
        case NumberArgument(value=int() as value):
            return _infer_integer_type(value)
        case NumberArgument():
            return "fp32"
        case ArrayArgument(data_type=str() as name) if name:
            element = find_triton_type(DataType.named(name).name)
            if element is not None:
                return f"*{element}"
        case PointerArgument(array=int() as number) if number in range(len(arguments)):
            target = arguments[number]
            if isinstance(target, ArrayArgument):
                return _infer_type(number, target, arguments)
    raise NO_ARGUMENT_TYPE.error(index=index)


def _infer_integer_type(value: int) -> str:
    name = "i32" if value in _INT32_RANGE else "i64"
    if value == 1:
        return f"{name}:1"
    return f"{name}:{ASSUMED_MULTIPLE}" if value % ASSUMED_MULTIPLE == 0 else name
