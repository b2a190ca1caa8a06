"""A kernel's instructions as steps, decoded once: registers have numbers, and constants are registers that are never written.

    ld.param.u64 %rd1, [out];      registers[0] = parameters[0:8]
    mov.u32 %r1, %tid.x;           registers[1] = registers[7]        special registers and constants are registers too
    @%p1 bra $done;                Branch(target=12), guarded by registers[2]

The functions that the entry calls follow it; each body ends with a return, written or not.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import rounded_up
from tilescope.machine.arithmetic.compute import Exactness
from tilescope.machine.execution.special import require_held
from tilescope.machine.step import Arithmetic, RefusedError, RegisterUse, Step, StepRun, Stretches, Turn, WordOperation
from tilescope.ptx.syntax import (
    BITS_OF_TYPE,
    Address,
    AddressOf,
    Function,
    FunctionName,
    Immediate,
    Instruction,
    Module,
    Negated,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Variable,
    Vector,
    nested_operands,
    operand_text,
)
from tilescope.sync.address import CODE_WINDOW, SHARED_RESERVED_BYTES, Space
from tilescope.sync.cluster_shape import Lanes

DTYPE_OF_BITS = {
    1: np.dtype(np.bool_),
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
STACK_BYTES = 8192  # of a thread, for alloca; a card has 1024 unless the program sets another size
STACK_ALIGNMENT_BYTES = 16
_CODE_BYTES = 256  # between the addresses of two functions
_ADDRESS_BITS = 64
_STEP_NANOSECONDS = 4000  # of a step by numpy, besides about one for each lane


Fact = TypeVar("Fact")


class VariableAddress(NamedTuple):
    """A read-only register that holds an address in a variable: `offset` bytes from its start."""

    variable: Variable
    offset: int = 0


class Constant(NamedTuple):
    """A read-only register that has the same number in all threads."""

    bits: int
    dtype: np.dtype[np.generic]


class Stack(NamedTuple):
    """The stack of a thread: where it ends in local memory, and the register that counts its bytes in use."""

    end: int
    used: int


ReadOnly = Constant | SpecialRegister | VariableAddress


@dataclass(frozen=True, slots=True)
class Moves:
    """Bytes of local memory that a call or a return carries from one variable to another."""

    source: int
    target: int
    size_bytes: int


class Frame(NamedTuple):
    """What a function that calls itself has of a thread: its registers, and the bytes of its variables in local memory."""

    registers: tuple[int, ...]
    local_bytes: npt.NDArray[np.intp]


class PendingProducts(Protocol):
    """The wgmma that have not finished."""

    def is_using(self, registers: frozenset[int]) -> bool:
        """Whether one of them uses some of these registers."""


class SteppedCluster(Protocol):
    """The part of a cluster that a run of steps needs."""

    pc: int
    lane_count: int

    @property
    def works(self) -> Sequence[object]:
        """Pending asynchronous work."""

    @property
    def pending(self) -> PendingProducts:
        """The same work, by the registers that it uses."""


@dataclass(slots=True, eq=False)
class ArithmeticRun:
    """Steps from `start` on that only compute. They are taken one after another; after many executions they are compiled."""

    start: int
    steps: tuple[Step, ...]
    settled: frozenset[int]  # registers of wgmma that they use
    limit_nanoseconds: int  # that numpy may take …
    compile: Callable[[ArithmeticRun], list[tuple[int, Step]] | None]  # … until other steps are needed; None: not yet
    nanoseconds: int = 0  # that numpy has taken since, by estimate
    _parts: list[tuple[int, Step]] | None = None

    def take(self, cluster: SteppedCluster, at: Lanes) -> None:
        """Execute them for some lanes; one at a time while a wgmma is pending that one of them has to finish."""
        parts = self._parts
        if parts is None:
            lanes = cluster.lane_count if isinstance(at, slice) else len(at)
            self.nanoseconds += len(self.steps) * (_STEP_NANOSECONDS + lanes)
            if self.nanoseconds >= self.limit_nanoseconds:
                parts = self._parts = self.compile(self)
                self.nanoseconds = 0
        if parts is None or (self.settled and cluster.works and cluster.pending.is_using(self.settled)):
            for pc, step in enumerate(self.steps, self.start):
                cluster.pc = pc
                step(cluster, at)
        else:
            for pc, step in parts:
                cluster.pc = pc
                step(cluster, at)


@dataclass(slots=True)
class Program:
    """The program of a cluster. Lists are indexed by instruction, `registers` and `read_only` by register number."""

    entry: Function
    module: Module
    instructions: list[Instruction | None] = field(default_factory=list)  # None: the return at the end of a body
    steps: list[Step | None] = field(default_factory=list)
    turns: list[Turn | None] = field(default_factory=list)
    guards: list[tuple[int, bool] | None] = field(default_factory=list)  # of turns: (register, is negated)
    straight_end: list[int] = field(default_factory=list)  # the next turn or label, from each instruction on
    targets: list[tuple[int, ...]] = field(default_factory=list)  # the registers that each instruction writes
    registers_named: list[frozenset[int]] = field(default_factory=list)  # all that each instruction names
    clock_reads: set[int] = field(default_factory=set)
    wgmma_registers: set[int] = field(default_factory=set)  # accumulators of wgmma, and A if it is in registers
    loaded_registers: set[int] = field(default_factory=set)  # destination registers of tcgen05.ld
    cta_groups: set[int] = field(default_factory=set)  # of its tcgen05 instructions
    register_dtypes: list[np.dtype[np.generic]] = field(default_factory=list)
    register_numbers: dict[tuple[str, int], int] = field(default_factory=dict)  # (function, its own number of it)
    read_only: dict[int, ReadOnly] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)  # where each starts
    frames: dict[str, Frame] = field(default_factory=dict)  # of functions that call themselves
    param_offsets: dict[int, int] = field(default_factory=dict)  # of the entry's parameters, by variable number
    param_bytes: int = 0
    local_offsets: dict[int, int] = field(default_factory=dict)  # of .local variables and parameters of functions
    local_bytes: int = 0
    stack_end: int | None = None  # in local memory; None: no instruction uses the stack
    shared_offsets: dict[int, int] = field(default_factory=dict)  # in a block's window
    static_shared_end: int = SHARED_RESERVED_BYTES
    dynamic_shared_offset: int = SHARED_RESERVED_BYTES
    approximate: dict[int, Exactness] = field(default_factory=dict)  # instructions whose bits no document fixes
    arithmetic: dict[int, Arithmetic] = field(default_factory=dict)  # of steps that compute and do nothing else
    runs: dict[int, StepRun] = field(default_factory=dict)  # by their first instruction
    register_uses: dict[int, RegisterUse] = field(default_factory=dict)  # of registers of wgmma, by instruction
    may_be_led: bool = True  # False: its steps look at the block that takes them, so that none may act for others
    _stretches: Stretches | None = field(default=None, init=False)
    _loops: dict[tuple[int, int], tuple[int, ...] | None] = field(default_factory=dict)
    _facts: dict[Callable[[Program], Any], Any] = field(default_factory=dict)

    def fact(self, find: Callable[[Program], Fact]) -> Fact:
        """What a function finds in the text, looked for once for all launches."""
        if find not in self._facts:
            self._facts[find] = find(self)
        fact: Fact = self._facts[find]
        return fact

    @property
    def stretches(self) -> Stretches:
        """What a front takes between turns and labels, from each instruction on."""
        if self._stretches is None:
            self._stretches = Stretches(self.steps, self.straight_end, self.runs)
        return self._stretches

    def registers_written(self, start: int, end: int) -> tuple[int, ...] | None:
        """The registers that a loop writes; None where it reads a clock. A call in it may write any register."""
        loop = (start, end)
        if loop not in self._loops:
            self._loops[loop] = self._registers_of_loop(start, end)
        return self._loops[loop]

    def _registers_of_loop(self, start: int, end: int) -> tuple[int, ...] | None:
        if any(start <= pc <= end for pc in self.clock_reads):
            return None
        numbers: set[int] = set()
        for pc in range(start, end + 1):
            instruction = self.instructions[pc]
            if instruction is not None and instruction.name == "call":
                return tuple(number for number in range(len(self.register_dtypes)) if number not in self.read_only)
            numbers.update(self.targets[pc])
        return tuple(sorted(numbers))

    def shared_variables(self) -> list[Variable]:
        """The variables in shared memory whose addresses the kernel uses."""
        named = (content.variable for content in self.read_only.values() if isinstance(content, VariableAddress))
        variables = {variable.number: variable for variable in named if variable.number in self.shared_offsets}
        return list(variables.values())

    def reads_special(self, names: Container[str]) -> bool:
        """Whether the kernel reads one of some special registers."""
        return any(
            isinstance(content, SpecialRegister) and content.name in names for content in self.read_only.values()
        )

    @property
    def smem_bytes(self) -> int:
        """Static shared memory of a block."""
        return self.static_shared_end - SHARED_RESERVED_BYTES


def find_code_addresses(program: Program) -> dict[str, int]:
    """The addresses of the functions of a text."""
    return {name: CODE_WINDOW + number * _CODE_BYTES for number, name in enumerate(program.module.functions, 1)}


Decoder = Callable[["Assembler", Instruction], "Step | Turn"]
_WIDEST_TYPE = "b128"  # which only moves, loads, stores and atomics of that type take


class Assembler:
    """Gives out register numbers and places of variables while the instructions of a program are decoded."""

    def __init__(self, module: Module, entry: Function) -> None:
        self.module = module
        self.program = Program(entry, module)
        self.function = entry  # whose instructions are being decoded
        self.start = 0  # of the function, in the program
        self.targets_now: list[int] = []  # registers that the instruction being decoded writes
        self._numbers = self.program.register_numbers
        self._constants: dict[ReadOnly, int] = {}
        self._kept: dict[tuple[str, int, int], int] = {}

    def register(self, operand: Operand) -> int:
        """The number of a register that an instruction names."""
        if not isinstance(operand, Register):
            raise RefusedError(f"a register is expected, not {operand_text(operand)}")
        key = (self.function.name, operand.number)
        number = self._numbers.get(key)
        if number is None:
            bits = BITS_OF_TYPE[operand.type]
            dtype = DTYPE_OF_BITS.get(bits)
            if dtype is None:
                dtype = np.dtype((np.uint64, 2))
            number = self._new(dtype)
            self._numbers[key] = number
        return number

    def target(self, operand: Operand) -> int | None:
        """The number of the register that takes a result, or None for `_`."""
        if isinstance(operand, Sink):
            return None
        return self.written(operand)

    def written(self, operand: Operand) -> int:
        """The number of a register that the instruction writes."""
        number = self.register(operand)
        self.targets_now.append(number)
        return number

    def source(self, operand: Operand, type_name: str) -> int:
        """The number of a register that holds an operand: a register, a constant, a special register, an address."""
        if isinstance(operand, Register):
            require_kind(operand, type_name)
            return self.register(operand)
        if type_name == _WIDEST_TYPE:
            raise RefusedError(f"a register of 128 bits is expected, not {operand_text(operand)}")
        if isinstance(operand, Immediate):
            return self.constant(_bits_of(operand, type_name), BITS_OF_TYPE[type_name])
        if isinstance(operand, Variable):
            operand = AddressOf(operand, 0)
        if isinstance(operand, AddressOf):
            self.place(operand.variable)
            return self._read_only(VariableAddress(operand.variable, operand.offset), np.dtype(np.uint64))
        if isinstance(operand, FunctionName):
            if BITS_OF_TYPE[type_name] != _ADDRESS_BITS:
                raise RefusedError(f"the address of {operand.name} has {_ADDRESS_BITS} bits")
            return self.constant(self.program.fact(find_code_addresses)[operand.name], _ADDRESS_BITS)
        if isinstance(operand, SpecialRegister):
            require_held(operand.name)
            return self._read_only(operand, special_dtype(operand.name))
        raise RefusedError(f"a value is expected, not {operand_text(operand)}")

    def carry(self) -> int:
        """The number of the carry flag of add.cc and addc: one for each thread and function."""
        key = (self.function.name, -1)
        if key not in self._numbers:
            self._numbers[key] = self._new(np.dtype(np.bool_))
        number = self._numbers[key]
        self.targets_now.append(number)
        return number

    def stack(self) -> Stack:
        """The stack of a thread, which the first instruction that needs it puts behind its local variables."""
        program = self.program
        key = ("", -1)
        if program.stack_end is None:
            program.local_bytes = rounded_up(program.local_bytes, STACK_ALIGNMENT_BYTES) + STACK_BYTES
            program.stack_end = program.local_bytes
            self._numbers[key] = self._new(np.dtype(np.int64))
        self.targets_now.append(self._numbers[key])
        return Stack(program.stack_end, self._numbers[key])

    def kept(self, instruction: Instruction, index: int, dtype: np.dtype[np.generic]) -> int:
        """The number of a register without a name, in which an instruction keeps a value for a later one."""
        key = (self.function.name, id(instruction), index)  # an instruction lives as long as its module
        if key not in self._kept:
            self._kept[key] = self._new(dtype)
        return self._kept[key]

    def named(self, operands: Iterable[Operand]) -> frozenset[int]:
        """The numbers of all registers in some operands."""
        numbers = set()
        for operand in operands:
            for inner in nested_operands(operand):
                if isinstance(inner, Register):
                    numbers.add(self.register(inner))
        return frozenset(numbers)

    def predicate(self, operand: Operand) -> tuple[int, bool]:
        """The number of a predicate, and whether it is negated; constants are allowed."""
        if isinstance(operand, Negated):
            return self.register(operand.register), True
        return self.source(operand, "pred"), False

    def constant(self, bits: int, width_bits: int) -> int:
        """The number of a register that holds these bits for every thread."""
        dtype = DTYPE_OF_BITS[width_bits]
        wrapped = bool(bits) if width_bits == 1 else bits & ((1 << width_bits) - 1)
        return self._read_only(Constant(int(wrapped), dtype), dtype)

    def note_arithmetic(self, *operations: WordOperation) -> None:
        """Say what the step that is decoded now computes, if it does nothing else."""
        self.program.arithmetic[len(self.program.steps)] = Arithmetic(operations)

    def dtype(self, number: int) -> np.dtype[np.generic]:
        """How a register is held."""
        return self.program.register_dtypes[number]

    def vector(self, operand: Operand) -> tuple[Operand, ...]:
        """The elements of {a, b}, or a single operand."""
        return operand.elements if isinstance(operand, Vector) else (operand,)

    def address(self, operand: Operand) -> tuple[int, int]:
        """(register number, constant offset) of [base+offset]."""
        if not isinstance(operand, Address):
            raise RefusedError(f"an address in brackets is expected, not {operand_text(operand)}")
        base = operand.base
        if isinstance(base, Immediate):
            return self.constant(base.value, 64), operand.offset
        return self.source(base, "u64"), operand.offset

    def _read_only(self, content: ReadOnly, dtype: np.dtype[np.generic]) -> int:
        number = self._constants.get(content)
        if number is None:
            number = self._new(dtype)
            self._constants[content] = number
            self.program.read_only[number] = content
        return number

    def _new(self, dtype: np.dtype[np.generic]) -> int:
        self.program.register_dtypes.append(dtype)
        return len(self.program.register_dtypes) - 1

    def space_of(self, variable: Variable) -> Space:
        """Where a variable is stored: parameters of functions are local memory, constants global."""
        if variable.space == "param":
            return "param" if variable.number in self.program.param_offsets else "local"
        if variable.space == "const":
            return "global"
        return variable.space

    def place(self, variable: Variable) -> None:
        """Give a variable its place in shared or local memory, if it has none."""
        program = self.program
        size_bytes = variable.size_bytes or 0
        if self.space_of(variable) == "local":
            if variable.number not in program.local_offsets:
                alignment_bytes = max(variable.alignment_bytes, 1)
                offset = rounded_up(program.local_bytes, alignment_bytes)
                program.local_offsets[variable.number] = offset
                program.local_bytes = offset + size_bytes
            return
        has_place = variable.number in program.shared_offsets
        if variable.space == "shared" and variable.size_bytes is not None and not has_place:
            offset = rounded_up(program.static_shared_end, max(variable.alignment_bytes, 1))
            program.shared_offsets[variable.number] = offset
            program.static_shared_end = offset + size_bytes

    def place_parameters(self) -> None:
        """Lay out the parameters of the entry as the driver does."""
        offset = 0
        for parameter in self.program.entry.parameters:
            offset = rounded_up(offset, parameter.alignment_bytes)
            self.program.param_offsets[parameter.number] = offset
            offset += parameter.size_bytes or 0
        self.program.param_bytes = offset

    def place_dynamic_memory(self) -> None:
        """Put `extern .shared` after the static variables, at the largest alignment that one of them has."""
        dynamic = [
            variable
            for variable in self.module.variables.values()
            if variable.space == "shared" and variable.size_bytes is None
        ]
        alignment_bytes = max([variable.alignment_bytes for variable in dynamic] + [1])
        program = self.program
        program.dynamic_shared_offset = rounded_up(program.static_shared_end, alignment_bytes)
        for variable in dynamic:
            program.shared_offsets[variable.number] = program.dynamic_shared_offset


def require_kind(register: Register, type_name: str) -> None:
    """Refuse a predicate in place of data, data in place of a predicate, and 128 bits in place of fewer or more."""
    if (register.type == "pred") != (type_name == "pred"):
        raise RefusedError(f"{register.name} is a .{register.type}, where a .{type_name} is expected")
    if (register.type == _WIDEST_TYPE) != (type_name == _WIDEST_TYPE):
        bits = BITS_OF_TYPE[type_name]
        raise RefusedError(f"{register.name} has {BITS_OF_TYPE[register.type]} bits, where {bits} are expected")


SPECIAL_64 = frozenset({"%clock64", "%globaltimer", "%gridid", "%pm0_64"})


def special_dtype(name: str) -> np.dtype[np.generic]:
    """How a special register is held: 32 bits, a few 64, and predicates."""
    if name in SPECIAL_64:
        return np.dtype(np.uint64)
    if name == "%is_explicit_cluster":
        return np.dtype(np.bool_)
    return np.dtype(np.uint32)


def _bits_of(immediate: Immediate, type_name: str) -> int:
    """The bits of a constant as an operand of a type: 0f3F800000 for an f64 operand is widened."""
    if immediate.float_bits is None:
        return immediate.value
    bits = BITS_OF_TYPE[type_name]
    if immediate.float_bits == bits or type_name not in ("f32", "f64"):
        return immediate.value
    number = np.array([immediate.value], f"u{immediate.float_bits // 8}").view(f"f{immediate.float_bits // 8}")
    widened: npt.NDArray[np.unsignedinteger] = number.astype(f"f{bits // 8}").view(f"u{bits // 8}")
    return int(widened[0])
