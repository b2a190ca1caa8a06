"""A launch file to start from: every parameter of a kernel with an argument that fits it.

    .param .u64 p (an address of a load)     an array, of the type that is loaded or stored there
    .param .align 64 .b8 p[128]              a tensor map over its own array
    .param .u32 p, .param .f32 p             0, 1.0
    .param .b8 p[24]                         24 bytes of zero

A parameter is a pointer if its value reaches the address operand of a memory instruction, through moves, additions and
conversions of addresses, or is stored to memory (Triton passes addresses between threads through shared memory).
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.launch_description import (
    ArgumentDescription,
    ArrayArgument,
    BytesArgument,
    LaunchDescription,
    MapArgument,
    NumberArgument,
)
from tilescope.machine.launch.launch_file import format_launch
from tilescope.ptx.syntax import BITS_OF_TYPE, Address, Function, Instruction, Operand, Register, Variable
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES

_SAMPLE_ELEMENTS = 1024
_SAMPLE_TILE = (64, 64)
_SAMPLE_THREADS = (128,)
_UNKNOWN_TYPE = "f32"
_ADDRESS_BITS = 64
_PROPAGATING = frozenset({"mov", "add", "sub", "mad", "cvta", "selp", "shfl"})  # their result may be an address
_TYPE_ACCESSED = {"b8": "u8", "b16": "f16", "b32": "f32", "b64": "u64", "b128": "f32"}  # for untyped accesses
_ARRAY_TYPES = frozenset({"u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"})


class Template(NamedTuple):
    """A launch, and the text of its file, with comments."""

    launch: LaunchDescription
    text: str


def build_launch_template(kernel: Kernel, ptx: str) -> Template:
    """A launch of a kernel with sample shapes and numbers, to be edited; `ptx` is the name of the kernel's file.

    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k(.param .u32 n) .reqntid 64 { ret; }")
    >>> print(build_launch_template(kernel, "k.ptx").text)
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
    launch = LaunchDescription(
        ptx=ptx,
        entry=kernel.entry,
        grid=(1,),
        block=entry.required_threads or entry.max_threads or _SAMPLE_THREADS,
        cluster=entry.required_cluster,
        smem_bytes=0,
        arguments=choose_sample_arguments(kernel),
    )
    comments = {
        "grid": "blocks: x, y, z",
        "block": _block_comment(entry),
        "cluster": "as .reqnctapercluster says",
        "smem_bytes": _smem_comment(kernel),
    }
    for index, parameter in enumerate(kernel.parameters):
        comments[parameter.name] = f"{index}: {_format_type(parameter)}"
    return Template(launch, format_launch(launch, comments))


def choose_sample_arguments(kernel: Kernel) -> tuple[ArgumentDescription, ...]:
    """A sample argument for every parameter of a kernel."""
    types = infer_pointer_types(kernel.module.functions[kernel.entry])
    return tuple(_choose_argument(parameter, types) for parameter in kernel.parameters)


def _block_comment(entry: Function) -> str:
    if entry.required_threads is not None:
        return "as .reqntid says"
    return "threads: x, y, z" if entry.max_threads is None else "at most .maxntid"


def _smem_comment(kernel: Kernel) -> str:
    """Whether the kernel uses dynamic shared memory, and the static memory before it."""
    variables = kernel.module.variables.values()
    has_dynamic = any(variable.space == "shared" and variable.size_bytes is None for variable in variables)
    static = f"{kernel.smem_bytes} bytes of static memory come before it"
    if has_dynamic:
        return f"dynamic shared memory, which this kernel uses: say how many bytes its launcher gives; {static}"
    return f"dynamic shared memory; {static}"


def _format_type(parameter: Variable) -> str:
    if _is_scalar(parameter):
        return f".{parameter.type}"
    return f"{parameter.size_bytes} bytes"


def _is_scalar(parameter: Variable) -> bool:
    return parameter.size_bytes == BITS_OF_TYPE[parameter.type] // 8


def _choose_argument(parameter: Variable, types: dict[int, str]) -> ArgumentDescription:
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


def infer_pointer_types(function: Function) -> dict[int, str]:
    """The element type behind every parameter that is a pointer, by the number of its variable."""
    search = _PointerSearch()
    for _ in range(2):  # a loop may carry an address to an earlier instruction
        for instruction in function.instructions or ():
            search.follow(instruction)
    stored = dict.fromkeys(search.stored, _UNKNOWN_TYPE)
    return stored | search.accessed


class _PointerSearch:
    """Data flow from parameters to registers, and the memory accesses through these registers."""

    def __init__(self) -> None:
        self.accessed: dict[int, str] = {}  # parameters, and the type of the first access
        self.stored: set[int] = set()  # parameters whose value is stored to memory
        self._sources: dict[int, set[int]] = {}  # parameters that a register derives from

    def follow(self, instruction: Instruction) -> None:
        """Follow the parameters through one instruction."""
        for operand in instruction.operands:
            if isinstance(operand, Address) and isinstance(operand.base, Register):
                for number in self._parameters_in(operand.base):
                    self.accessed.setdefault(number, _infer_accessed_type(instruction))
        target, *sources = instruction.operands or (None,)
        if instruction.name == "st":
            self.stored.update(*(self._parameters_in(source) for source in sources))
        if isinstance(target, Register) and BITS_OF_TYPE[target.type] == _ADDRESS_BITS:
            self._propagate(instruction, target, sources)

    def _propagate(self, instruction: Instruction, target: Register, sources: list[Operand]) -> None:
        parameters = self._sources.setdefault(target.number, set())
        for source in sources:
            match source:
                case Address(base=Variable() as parameter) if instruction.name == "ld":
                    parameters.add(parameter.number)
                case Register() if instruction.name in _PROPAGATING:
                    parameters |= self._parameters_in(source)

    def _parameters_in(self, operand: Operand) -> set[int]:
        return self._sources.get(operand.number, set()) if isinstance(operand, Register) else set()


def _infer_accessed_type(instruction: Instruction) -> str:
    """The element type of a memory instruction; f32 if it has none."""
    for modifier in reversed(instruction.modifiers):
        named = _TYPE_ACCESSED.get(modifier, modifier)
        if named in _ARRAY_TYPES:
            return named
    return _UNKNOWN_TYPE
