"""A random program: steps of PTX that depend on each other only through registers, so that any of them can be left out.

    step 0   add.rn.f32 %r7, %r1, %r2;         reads r1 r2, writes r7
    step 1   st.shared … bar.sync … ld.shared  reads r3, writes r8
    step 2   shfl.sync.bfly.b32 %r9|%p1, %r7 … reads r7, writes r9 p1

A step that uses shared memory, scratch memory or a tensor has its own part of it. What is compared are registers that are
stored at the end (`kept`), scratch memory, and the tensors that were stored to. `needed_for` is the program without all
steps that one result does not depend on: the smallest one that gives this result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.tensor_map import TensorMap

VERSION = "8.7"  # of PTX: drivers of CUDA 12.7 and later read it
PREFIX_OF_BITS = {1: "%p", 16: "%h", 32: "%r", 64: "%d"}
_STORED_BYTES = {1: 4, 16: 2, 32: 4, 64: 8}  # a predicate is stored as a word


class Register(NamedTuple):
    """A register of a thread: it is written once. `type` describes most of its bits: "f32", "u32", "pred"."""

    number: int
    bits: int
    type: str

    @property
    def name(self) -> str:
        """As in the text.

        >>> Register(7, 32, "f32").name
        '%r7'
        """
        return f"{PREFIX_OF_BITS[self.bits]}{self.number}"

    @property
    def stored_bytes(self) -> int:
        """What it takes in the array of results, for one thread."""
        return _STORED_BYTES[self.bits]


class Input(NamedTuple):
    """A register that threads load before the first step; `kind` selects its numbers (see inputs.py)."""

    register: Register
    kind: str


class Tensor(NamedTuple):
    """A tensor of global memory with its map: bytes of the pool from `source` on."""

    tensor_map: TensorMap
    source: int
    size_bytes: int
    is_stored_to: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Some lines of PTX that belong together."""

    lines: tuple[str, ...]
    reads: tuple[Register, ...]
    writes: tuple[Register, ...]
    scratch: range = range(0)  # bytes of scratch memory that it changes
    tensor: int | None = None


class Written(NamedTuple):
    """The text of a program, and the first line of every step (counted from 1, inside this text)."""

    text: str
    first_lines: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A text, its launch and what it starts from, as one value."""

    seed: int
    threads: int  # of its one block
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    kept: tuple[Register, ...]  # stored at the end, in the order in which they were written
    tensors: tuple[Tensor, ...]
    scratch_bytes: int
    smem_bytes: int

    @property
    def result_bytes(self) -> int:
        """Of the array of results."""
        return sum(self._slots(self.kept))

    @property
    def input_bytes(self) -> int:
        """Of the array of inputs."""
        return sum(self._slots([entry.register for entry in self.inputs]))

    def places(self, registers: Sequence[Register]) -> list[int]:
        """Where the numbers of registers begin in an array that holds them one after the other."""
        sizes = self._slots(registers)
        return [sum(sizes[:index]) for index in range(len(sizes))]

    def _slots(self, registers: Sequence[Register]) -> list[int]:
        return [rounded_up(register.stored_bytes * self.threads, 16) for register in registers]

    def writer(self, register: Register) -> int:
        """The number of the step that writes a register."""
        return next(number for number, step in enumerate(self.steps) if register in step.writes)

    def needed_for(self, number: int) -> Program:
        """The program up to a step, without the steps that it does not depend on; the results of that step are compared."""
        last = self.steps[number]
        needed = set(last.reads)
        steps = [last]
        for step in reversed(self.steps[:number]):
            if needed.intersection(step.writes):
                needed.update(step.reads)
                steps.append(step)
        inputs = tuple(entry for entry in self.inputs if entry.register in needed)
        return replace(self, steps=tuple(reversed(steps)), inputs=inputs, kept=last.writes)

    def used_tensors(self) -> dict[int, Tensor]:
        """The tensors that steps copy, by their numbers."""
        used = {step.tensor for step in self.steps}
        return {number: tensor for number, tensor in enumerate(self.tensors) if number in used}

    def text(self, entry: str = "program") -> str:
        """The whole text, with one entry."""
        return module_text([self.entry_text(entry).text])

    def entry_text(self, entry: str) -> Written:
        """Only the entry."""
        parameters = [".param .u64 inputs", ".param .u64 results", ".param .u64 scratch"]
        parameters += [f".param .align 64 .b8 map{number}[128]" for number in self.used_tensors()]
        lines = [f".visible .entry {entry}({', '.join(parameters)})", f".reqntid {self.threads}, 1, 1", "{"]
        lines += self._declarations()
        lines += self._prologue()
        first_lines = []
        for step in self.steps:
            first_lines.append(len(lines) + 1)
            lines += [line if line.endswith(":") else f"  {line}" for line in step.lines]
        lines += self._epilogue()
        return Written("\n".join([*lines, "}", ""]), tuple(first_lines))

    def _declarations(self) -> list[str]:
        registers = [entry.register for entry in self.inputs]
        registers += [register for step in self.steps for register in step.writes]
        lines = [
            "  .reg .b32 %thread, %lane, %offset, %smem, %word;",
            "  .reg .b64 %inputs, %results, %scratch, %wide;",
        ]
        for bits, prefix in PREFIX_OF_BITS.items():
            numbers = [register.number for register in registers if register.bits == bits]
            if numbers:
                type_name = "pred" if bits == 1 else f"b{bits}"
                lines.append(f"  .reg .{type_name} {prefix}<{max(numbers) + 1}>;")
        if self.smem_bytes:
            lines.append(f"  .shared .align 1024 .b8 smem[{self.smem_bytes}];")
        return lines

    def _prologue(self) -> list[str]:
        lines = ["mov.u32 %thread, %tid.x;", "and.b32 %lane, %thread, 31;"]
        for name in ("inputs", "results", "scratch"):
            lines += [f"ld.param.u64 %{name}, [{name}];", f"cvta.to.global.u64 %{name}, %{name};"]
        if self.smem_bytes:
            lines.append("mov.u32 %smem, smem;")
        registers = [entry.register for entry in self.inputs]
        for register, place in zip(registers, self.places(registers), strict=True):
            lines += self._thread_address("%inputs", register)
            is_predicate = register.bits == 1
            target = "%word" if is_predicate else register.name
            lines.append(f"ld.global.b{8 * register.stored_bytes} {target}, [%wide+{place}];")
            if is_predicate:
                lines.append(f"setp.ne.u32 {register.name}, %word, 0;")
        return [f"  {line}" for line in lines]

    def _epilogue(self) -> list[str]:
        lines = []
        for register, place in zip(self.kept, self.places(self.kept), strict=True):
            source = register.name
            if register.bits == 1:
                lines.append(f"selp.b32 %word, 1, 0, {register.name};")
                source = "%word"
            lines += self._thread_address("%results", register)
            lines.append(f"st.global.b{8 * register.stored_bytes} [%wide+{place}], {source};")
        return [f"  {line}" for line in (*lines, "ret;")]

    def _thread_address(self, base: str, register: Register) -> list[str]:
        """Lines that put the address of the thread's own number into %wide."""
        return [f"mul.wide.u32 %wide, %thread, {register.stored_bytes};", f"add.s64 %wide, %wide, {base};"]


def module_text(entries: Iterable[str]) -> str:
    """A module of entries."""
    return "\n".join([f".version {VERSION}", ".target sm_90a", ".address_size 64", "", *entries])


def in_braces(lines: list[str], *, words: int = 0, wides: int = 0, predicates: int = 0) -> list[str]:
    """Lines with their own registers: %t0, %u0, %q0 and so on."""
    declared = []
    if words:
        declared.append(f".reg .b32 %t<{words}>;")
    if wides:
        declared.append(f".reg .b64 %u<{wides}>;")
    if predicates:
        declared.append(f".reg .pred %q<{predicates}>;")
    inner = [line if line.endswith(":") else f"  {line}" for line in (*declared, *lines)]
    return ["{", *inner, "}"]
