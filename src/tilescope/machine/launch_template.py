"""A launch to start from: the parameters of a kernel, each with an argument that fits it.

    .param .u64 p (an address of a load)     an array, of the type that is loaded or stored there
    .param .align 64 .b8 p[128]              a tensor map over an array of its own
    .param .u32 p, .param .f32 p             0, 1.0
    .param .b8 p[24]                         24 bytes of zero

A parameter is an address if what is loaded from it reaches the brackets of a memory instruction through moves, additions and
conversions of addresses.
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.machine.kernel import Kernel
from tilescope.machine.launch_description import (
    ArgumentDescription,
    ArrayArgument,
    BytesArgument,
    LaunchDescription,
    MapArgument,
    NumberArgument,
)
from tilescope.machine.launch_file import launch_text
from tilescope.ptx.syntax import BITS_OF_TYPE, Address, Function, Instruction, Register, Variable
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES

_SAMPLE_ELEMENTS = 1024
_SAMPLE_TILE = (64, 64)
_SAMPLE_THREADS = (128,)
_CARRIERS = frozenset({"mov", "add", "sub", "mad", "cvta", "selp", "shfl"})  # what hands an address on
_TYPE_ACCESSED = {"b8": "u8", "b16": "f16", "b32": "f32", "b64": "u64", "b128": "f32"}  # where bits alone are moved
_ARRAY_TYPES = frozenset({"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"})


class Template(NamedTuple):
    """A launch, and its file with comments."""

    launch: LaunchDescription
    text: str


def launch_template(kernel: Kernel, ptx: str) -> Template:
    """A launch of a kernel, of which shapes and numbers are to be changed; `ptx` is the name of its file.

    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k(.param .u32 n) .reqntid 64 { ret; }")
    >>> print(launch_template(kernel, "k.ptx").text)
    [launch]
    ptx = "k.ptx"
    entry = "k"
    grid = [1]  # blocks: x, y, z
    block = [64]  # as .reqntid says
    smem_bytes = 0  # dynamic shared memory; 0 bytes of static memory come before it
    <BLANKLINE>
    [[argument]]  # 0: .u32
    name = "n"
    kind = "int"
    value = 0
    """
    entry = kernel.module.functions[kernel.entry]
    types = pointer_types(entry)
    launch = LaunchDescription(
        ptx=ptx,
        entry=kernel.entry,
        grid=(1,),
        block=entry.required_threads or entry.max_threads or _SAMPLE_THREADS,
        cluster=entry.required_cluster,
        smem_bytes=0,
        arguments=tuple(_argument(parameter, types) for parameter in kernel.parameters),
    )
    comments = {
        "grid": "blocks: x, y, z",
        "block": _block_comment(entry),
        "cluster": "as .reqnctapercluster says",
        "smem_bytes": f"dynamic shared memory; {kernel.smem_bytes} bytes of static memory come before it",
    }
    for index, parameter in enumerate(kernel.parameters):
        comments[parameter.name] = f"{index}: {_declared(parameter)}"
    return Template(launch, launch_text(launch, comments))


def _block_comment(entry: Function) -> str:
    if entry.required_threads is not None:
        return "as .reqntid says"
    return "threads: x, y, z" if entry.max_threads is None else "at most .maxntid"


def _declared(parameter: Variable) -> str:
    if _is_scalar(parameter):
        return f".{parameter.type}"
    return f"{parameter.size_bytes} bytes"


def _is_scalar(parameter: Variable) -> bool:
    return parameter.size_bytes == BITS_OF_TYPE[parameter.type] // 8


def _argument(parameter: Variable, types: dict[int, str]) -> ArgumentDescription:
    name = parameter.name
    size_bytes = parameter.size_bytes or 0
    if size_bytes == DESCRIPTOR_BYTES:
        array = ArrayArgument(data_type="f16", shape=_SAMPLE_TILE)
        return MapArgument(name=name, array=array, options={"box": _SAMPLE_TILE, "swizzle": "128B"})
    if not _is_scalar(parameter):
        return BytesArgument(name=name, content="00" * size_bytes)
    if parameter.number in types:
        return ArrayArgument(name=name, data_type=types[parameter.number], shape=(_SAMPLE_ELEMENTS,))
    return NumberArgument(name=name, value=1.0 if parameter.type in ("f32", "f64") else 0)


def pointer_types(function: Function) -> dict[int, str]:
    """The parameters that are addresses, by the number of their variable, and the type of what lies there."""
    held: dict[int, set[int]] = {}  # parameters whose value, or an address made of it, a register holds
    found: dict[int, str] = {}
    instructions = function.instructions or ()
    for _ in range(2):  # a loop may hand an address on to an instruction before it
        for instruction in instructions:
            _follow(instruction, held, found)
    return found


def _follow(instruction: Instruction, held: dict[int, set[int]], found: dict[int, str]) -> None:
    for operand in instruction.operands:
        if isinstance(operand, Address) and isinstance(operand.base, Register):
            for number in held.get(operand.base.number, ()):
                found.setdefault(number, _type_accessed(instruction))
    target, *sources = instruction.operands or (None,)
    if not isinstance(target, Register) or BITS_OF_TYPE[target.type] < 64:
        return
    reached = held.setdefault(target.number, set())
    for source in sources:
        match source:
            case Address(base=Variable() as parameter) if instruction.name == "ld":
                reached.add(parameter.number)
            case Register() if instruction.name in _CARRIERS:
                reached |= held.get(source.number, set())


def _type_accessed(instruction: Instruction) -> str:
    """The element type of a memory instruction, as far as it says one."""
    for modifier in reversed(instruction.modifiers):
        named = _TYPE_ACCESSED.get(modifier, modifier)
        if named in _ARRAY_TYPES:
            return named
    return "f32"
