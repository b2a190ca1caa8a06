"""A PTX text as data: a module, its functions, their variables, registers and instructions.

    .visible .entry scale(.param .u64 out)       Function("scale", is_entry=True, parameters=(Variable("out", …),))
    {
        .reg .b32 %r<3>;                         registers are made as they are used: a range costs nothing
        .loc 1 7 0                               → SourceLine("kernel.py", 7, 0) of what follows
        mov.u32 %r1, %tid.x;                     Instruction("mov", ("u32",), (Register("%r1", …), SpecialRegister("%tid.x")))
    $done:
        @!%p1 bra $done;                         Instruction("bra", (), (Label("$done", target=1),), guard=Guard(%p1, True))
    }

Names are resolved by their scope during parsing, so that a register, a label or a variable that is declared again
inside braces is a different one. Nothing here depends on what an instruction does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias

from tilescope.ptx.opcode import Fields, fields_of
from tilescope.sentence import shorten

_SHOWN_CHARACTERS = 80  # of an instruction

VariableSpace = Literal["param", "shared", "local", "const", "global"]

BITS_OF_TYPE = {
    "pred": 1,
    "b8": 8,
    "b16": 16,
    "b32": 32,
    "b64": 64,
    "b128": 128,
    "u8": 8,
    "u16": 16,
    "u32": 32,
    "u64": 64,
    "s8": 8,
    "s16": 16,
    "s32": 32,
    "s64": 64,
    "f16": 16,
    "f16x2": 32,
    "bf16": 16,
    "bf16x2": 32,
    "f32": 32,
    "f32x2": 64,
    "f64": 64,
}
"""Bits of the types that registers and variables are declared with."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the program that the PTX was made from; `inlined_at`: the line that called what was inlined.

    >>> call = SourceLine("kernels.py", 30, 9, inlined_at=SourceLine("kernels.py", 9, 36))
    >>> print(call)
    kernels.py:9 (kernels.py:30)
    >>> print(SourceLine("standard.py", 43, 17, inlined_at=call))
    kernels.py:9 (kernels.py:30, standard.py:43)
    """

    file: str
    line: int
    column: int
    function: str | None = None
    inlined_at: SourceLine | None = None

    @property
    def outermost(self) -> SourceLine:
        """The line of the kernel itself."""
        line = self
        while line.inlined_at is not None:
            line = line.inlined_at
        return line

    @property
    def innermost_of_kernel(self) -> SourceLine:
        """The innermost line in the file of the kernel: where its own functions call those of a library."""
        outer = self.outermost
        line = self
        while line.file != outer.file and line.inlined_at is not None:
            line = line.inlined_at
        return line

    def __str__(self) -> str:
        outer, *inner = (f"{line.file}:{line.line}" for line in (self.outermost, self.innermost_of_kernel, self))
        inlined = [place for place in dict.fromkeys(inner) if place != outer]
        return f"{outer} ({', '.join(inlined)})" if inlined else outer


class Register(NamedTuple):
    """A register of a function. `number` counts those that the function uses, in the order of their first use."""

    name: str
    type: str  # a key of BITS_OF_TYPE
    number: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A named variable: a parameter, or a declaration of .shared, .local, .const, .global or .param.

    `size_bytes` is None for `extern .shared x[]`, whose size the launch decides. `number` tells variables apart, since a
    name may be declared again in an inner scope. `initial` ends with the last byte that the text states: the rest is 0.
    Where an address of `addresses` will stand, `initial` holds the 8 bytes that are added to it.
    """

    name: str
    number: int  # counts the variables of the module
    space: VariableSpace
    type: str
    alignment_bytes: int
    size_bytes: int | None
    initial: bytes | None = None
    addresses: tuple[
        tuple[int, str], ...
    ] = ()  # (offset in `initial`, variable or function whose address stands there)
    is_extern: bool = False  # defined in another text; .shared ones get their size at the launch


class SpecialRegister(NamedTuple):
    """%tid.x, %laneid, %clock64 … and WARP_SZ."""

    name: str


class Immediate(NamedTuple):
    """A constant: a Python int (negative ones too), or the bits of a float with its width in `float_bits` (32 or 64)."""

    value: int
    float_bits: int | None = None


class Label(NamedTuple):
    """A place in the function: the number of the instruction that follows it. A .branchtargets table is a BranchTable."""

    name: str
    target: int


class BranchTable(NamedTuple):
    """The labels of a .branchtargets table."""

    name: str
    targets: tuple[int, ...]


class FunctionName(NamedTuple):
    """A function that is called, or whose address is taken."""

    name: str


class Prototype(NamedTuple):
    """The .callprototype or .calltargets that a call through a register names."""

    name: str


class AddressOf(NamedTuple):
    """`mov.u64 %rd1, table+8`: an address in a variable. Without an offset the operand is the Variable itself."""

    variable: Variable
    offset: int


class Sink(NamedTuple):
    """`_`: a result that is dropped."""


class Negated(NamedTuple):
    """`!%p1` as an operand."""

    register: Register


class Part(NamedTuple):
    """`%r1.b0`, `%r1.h10`: bytes or half-words of a register, in a video instruction; `-%r1` and `-%r1.h0` in vmad."""

    register: Register
    selector: str  # without its dot; empty: the whole register
    is_negated: bool = False

    @property
    def name(self) -> str:
        """The register with its selector."""
        selector = f".{self.selector}" if self.selector else ""
        return f"{'-' if self.is_negated else ''}{self.register.name}{selector}"


class Vector(NamedTuple):
    """`{%r1, %r2}`: a vector of an ld or st, the parts of a mov, the registers of an mma, the coordinates of a copy."""

    elements: tuple[Operand, ...]


class Pair(NamedTuple):
    """`%p1|%p2`: two results."""

    first: Operand
    second: Operand


class Address(NamedTuple):
    """`[%rd1+8]`, `[param+4]`, `[0x10]`. `coordinates` are x and y of `[map, {x, y}]`."""

    base: Register | Variable | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


class Arguments(NamedTuple):
    """`(param0, param1)` of a call."""

    variables: tuple[Operand, ...]


Operand: TypeAlias = (
    Register
    | Variable
    | SpecialRegister
    | Immediate
    | Label
    | BranchTable
    | FunctionName
    | Prototype
    | AddressOf
    | Sink
    | Negated
    | Part
    | Vector
    | Pair
    | Address
    | Arguments
)


def nested_operands(operand: Operand) -> Iterator[Operand]:
    """An operand and all that it is made of: the elements of a vector, the base of an address.

    >>> [type(one).__name__ for one in nested_operands(Vector((Sink(), Pair(Sink(), Sink()))))]
    ['Vector', 'Sink', 'Pair', 'Sink', 'Sink']
    """
    yield operand
    inner: tuple[Operand, ...] = ()
    if isinstance(operand, Vector):
        inner = operand.elements
    elif isinstance(operand, Pair):
        inner = (operand.first, operand.second)
    elif isinstance(operand, Negated | Part):
        inner = (operand.register,)
    elif isinstance(operand, Address):
        inner = (operand.base, *operand.coordinates)
    elif isinstance(operand, AddressOf):
        inner = (operand.variable,)
    elif isinstance(operand, Arguments):
        inner = operand.variables
    for nested in inner:
        yield from nested_operands(nested)


def operand_text(operand: Operand) -> str:
    """An operand as PTX writes it.

    >>> base = Register("%rd1", "b64", 0)
    >>> print(operand_text(Address(base, 8)), operand_text(Vector((Immediate(7), Sink()))))
    [%rd1+8] {7, _}
    """
    match operand:
        case Immediate(value=value, float_bits=None):
            return str(value)
        case Immediate(value=value, float_bits=bits):
            return f"0f{value:08X}" if bits == 32 else f"0d{value:016X}"
        case Vector(elements=elements):
            return f"{{{_join_operands(elements)}}}"
        case Arguments(variables=variables):
            return f"({_join_operands(variables)})"
        case Pair(first=first, second=second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case Negated(register=register):
            return f"!{register.name}"
        case AddressOf(variable=variable, offset=offset):
            return f"{variable.name}{offset:+d}"
        case Address():
            return _address_text(operand)
        case Sink():
            return "_"
        case _:
            return operand.name


def _join_operands(operands: tuple[Operand, ...]) -> str:
    return ", ".join(map(operand_text, operands))


def _address_text(address: Address) -> str:
    base = operand_text(address.base)
    place = f"{base}{address.offset:+d}" if address.offset else base
    return f"[{place}, {{{_join_operands(address.coordinates)}}}]" if address.coordinates else f"[{place}]"


def named_variable(operand: Operand) -> Variable | None:
    """The variable whose address an operand is: `table`, or `table+8`; None where it is something else."""
    if isinstance(operand, AddressOf):
        return operand.variable
    return operand if isinstance(operand, Variable) else None


class Guard(NamedTuple):
    """`@%p1` or `@!%p1` before an instruction."""

    register: Register
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ld.global.v4.b32 is `name` "ld" with `modifiers` ("global", "v4", "b32")."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Guard | None
    line: int  # of the PTX text, from 1
    source: SourceLine | None
    text: str  # as it was written, on one line, guard included
    start: int = field(default=0, compare=False)  # of its first character in the PTX text

    @property
    def opcode(self) -> str:
        """Name and modifiers as PTX writes them."""
        return ".".join((self.name, *self.modifiers))

    @property
    def fields(self) -> Fields:
        """The modifiers by their meaning: `instruction.fields.space`."""
        return fields_of(self.name, self.modifiers)

    @property
    def source_line(self) -> str | None:
        """The source line as "mm.cu:61"; None where the PTX names none."""
        return None if self.source is None else str(self.source)

    @property
    def line_name(self) -> str:
        """The source line, or the PTX line where there is none: "mm.cu:61", "PTX line 310"."""
        return self.source_line or f"PTX line {self.line}"


def place_in_words(source_line: str | None, ptx_line: int, text: str) -> str:
    """The place of an instruction, its source line first if it has one.

    >>> place_in_words("mm.cu:61", 310, "ld.shared.b32 %r1, [%r2];")
    'mm.cu:61, PTX line 310 (ld.shared.b32 %r1, [%r2];)'
    """
    ptx = f"PTX line {ptx_line} ({shorten(text, _SHOWN_CHARACTERS)})"
    return ptx if source_line is None else f"{source_line}, {ptx}"


@dataclass(frozen=True, slots=True)
class Function:
    """An entry or a device function. `instructions` is None where it is only declared (vprintf)."""

    name: str
    is_entry: bool
    line: int
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...] = ()
    registers: tuple[Register, ...] = ()  # those used, by number
    variables: tuple[Variable, ...] = ()  # declared inside: .shared, .local, .param of calls
    instructions: tuple[Instruction, ...] | None = None
    required_threads: tuple[int, ...] | None = None  # .reqntid
    max_threads: tuple[int, ...] | None = None  # .maxntid
    required_cluster: tuple[int, ...] | None = None  # .reqnctapercluster
    max_cluster_rank: int | None = None  # .maxclusterrank
    max_registers: int | None = None  # .maxnreg, of a thread
    min_blocks: int | None = None  # .minnctapersm


@dataclass(frozen=True, slots=True)
class Module:
    """A whole PTX text."""

    version: str
    target: str  # sm_90a
    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)  # of the module: extern shared memory, tables, strings

    @property
    def addressed_functions(self) -> frozenset[str]:
        """The functions whose address some instruction or variable has, so that calls through registers may lead to them."""
        bodies = (function.instructions or () for function in self.functions.values())
        operands = (
            operand
            for instruction in chain.from_iterable(bodies)
            if instruction.name != "call"
            for operand in instruction.operands
        )
        names = {operand.name for operand in operands if isinstance(operand, FunctionName)}
        names.update(name for variable in self.variables.values() for _, name in variable.addresses)
        return frozenset(names & self.functions.keys())

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels."""
        return tuple(function for function in self.functions.values() if function.is_entry)
