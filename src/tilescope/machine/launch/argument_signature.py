"""The signature of a Triton kernel out of the arguments of a launch, as Triton itself takes it from a call.

f32:1000   *fp32      an array
ptr:0      *fp32      an address in it
1000       i32        an integer; 1024 is i32:16, 1 is i32:1: Triton compiles in what it finds in a call
2.0        fp32       a float
"""

from __future__ import annotations

from collections.abc import Sequence

from tilescope.data_type import DataType
from tilescope.machine.launch.launch_description import (
    ArgumentDescription,
    ArrayArgument,
    NumberArgument,
    PointerArgument,
)
from tilescope.machine.launch.triton_signature import ASSUMED_MULTIPLE, TRITON_SIGNATURE, triton_type

NOT_SAID = TRITON_SIGNATURE.worded(
    found="no signature, and argument {index} has no type that Triton knows",
    limit="types come from arrays such as f16:64x64, addresses in them, and numbers",
    fix='Add a type for each parameter: --signature "*fp16, tensordesc<fp16[64,64]>, i32", for example.',
)
_INT32_RANGE = range(-(1 << 31), 1 << 31)


def signature_of(arguments: Sequence[ArgumentDescription]) -> str:
    """The types of a launch's arguments as Triton writes them; a RuleError if an argument has none.

    >>> array = ArrayArgument(data_type="f16", shape=(64,))
    >>> signature_of([array, NumberArgument(value=1000), NumberArgument(value=0.5)])
    '*fp16, i32, fp32'
    """
    return ", ".join(_type_of(index, argument, arguments) for index, argument in enumerate(arguments))


def _type_of(index: int, argument: ArgumentDescription, arguments: Sequence[ArgumentDescription]) -> str:
    match argument:
        case NumberArgument(value=int() as value):
            return _integer_type(value)
        case NumberArgument():
            return "fp32"
        case ArrayArgument(data_type=str() as name) if name:
            element = triton_type(DataType.named(name).name)
            if element is not None:
                return f"*{element}"
        case PointerArgument(array=int() as place) if place in range(len(arguments)):
            pointed_at = arguments[place]
            if isinstance(pointed_at, ArrayArgument):
                return _type_of(place, pointed_at, arguments)
    raise NOT_SAID.error(index=index)


def _integer_type(value: int) -> str:
    name = "i32" if value in _INT32_RANGE else "i64"
    if value == 1:
        return f"{name}:1"
    return f"{name}:{ASSUMED_MULTIPLE}" if value % ASSUMED_MULTIPLE == 0 else name
