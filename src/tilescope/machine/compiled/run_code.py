"""The text of a function that executes a run of arithmetic instructions for vectors of lanes.

@run(table, active, first, last)      table: the address of each register's array; active: a byte for each lane

for every vector of lanes from `first` to `last`, unless none of them is active:
    load the registers that the run reads, compute, and store those that it writes; a lane that is not active keeps them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilescope.machine.compiled import float_code, integer_code
from tilescope.machine.compiled.integer_code import Operand, Results
from tilescope.machine.compiled.lane_code import LANES, LaneCode
from tilescope.machine.step import Arithmetic, WordOperation, WordSource


class RunCode:
    """The code of a run, instruction after instruction; `numbers` are the registers that its table names."""

    def __init__(self, dtypes: Sequence[np.dtype[np.generic]], constants: Mapping[int, int]) -> None:
        self.numbers: list[int] = []
        self._dtypes = dtypes
        self._constants = constants
        self._code = LaneCode()
        self._values: dict[int, str] = {}  # by register: its current value
        self._loaded: dict[int, str] = {}  # by register: its value before the run

    def write(self, arithmetic: Arithmetic) -> bool:
        """Write an instruction; False: it has no code, and nothing is written."""
        if any(self._dtypes[number].shape for number in _registers_of(arithmetic)):
            return False
        lines, numbers = len(self._code.lines), len(self.numbers)
        values, loaded = dict(self._values), dict(self._loaded)
        guard = None if arithmetic.guard is None else self._operand(arithmetic.guard).value
        for operation in arithmetic.operations:
            results = self._results(operation)
            if results is None:
                del self._code.lines[lines:], self.numbers[numbers:]
                self._values, self._loaded = values, loaded
                return False
            for target, bits, result in zip(operation.targets, operation.result_bits, results, strict=False):
                if target is not None:
                    resized = self._code.resize(result, bits, self._bits(target), is_signed=operation.is_signed)
                    self._put(target, resized, guard)
        return True

    def _results(self, operation: WordOperation) -> Results:
        sources = [self._operand(source) for source in operation.sources]
        code = self._code
        match operation.name:
            case "mov":
                return (sources[0].value,)
            case "pack":
                return (self._pack(operation, sources),)
            case "unpack":
                return tuple(self._unpack(operation, sources[0]))
        writer = float_code.OF_ALL_TYPES.get(operation.name)
        if writer is None and float_code.is_float(operation.modifiers):
            writer = float_code.WRITERS.get(operation.name)
        if writer is None:
            writer = integer_code.WRITERS.get(operation.name)
        return None if writer is None else writer(code, operation.modifiers, sources)

    def _pack(self, operation: WordOperation, sources: Sequence[Operand]) -> str:
        """Parts as one word; the first is the lowest."""
        code = self._code
        bits = operation.result_bits[0]
        whole = ""
        for place, (source, operand) in enumerate(zip(operation.sources, sources, strict=True)):
            part = code.resize(operand.value, source.bits, bits)
            moved = code.with_constant("shl", part, place * source.bits, bits) if place else part
            whole = code.binary("or", whole, moved, bits) if place else moved
        return whole

    def _unpack(self, operation: WordOperation, source: Operand) -> list[str]:
        """The parts of a word, the lowest first."""
        code = self._code
        bits = operation.sources[0].bits
        part_bits = operation.result_bits[0]
        moved = [
            code.with_constant("lshr", source.value, place * part_bits, bits) for place in range(len(operation.targets))
        ]
        return [code.resize(part, bits, part_bits) for part in moved]

    def _bits(self, number: int) -> int:
        """The width of a register; 1 of a predicate."""
        dtype = self._dtypes[number]
        return 1 if dtype == np.bool_ else 8 * dtype.itemsize

    def _operand(self, source: WordSource) -> Operand:
        """A source as wide as its operation takes it."""
        code = self._code
        constant = self._constants.get(source.number)
        if constant is not None:
            word = (constant ^ source.flipped) & (1 << source.bits) - 1
            return Operand(code.constant(word, source.bits), word)
        value = code.resize(self._value(source.number), self._bits(source.number), source.bits)
        if source.flipped:
            value = code.with_constant("xor", value, source.flipped, source.bits)
        return Operand(value)

    def _value(self, number: int) -> str:
        """The current value of a register, which is loaded when it is first read."""
        if number not in self._values:
            code = self._code
            kind = code.words(8 * self._dtypes[number].itemsize)
            value = code.value(f"load {kind}, ptr {self._address(number)}, align {self._dtypes[number].itemsize}")
            if self._bits(number) == 1:
                value = code.resize(value, 8, 1)
            self._values[number] = self._loaded[number] = value
        return self._values[number]

    def _address(self, number: int) -> str:
        """Where the register of the first of the lanes is."""
        place = len(self.numbers) if number not in self.numbers else self.numbers.index(number)
        if place == len(self.numbers):
            self.numbers.append(number)
        return self._code.value(f"getelementptr i{8 * self._dtypes[number].itemsize}, ptr %p{place}, i64 %lane")

    def _put(self, number: int, value: str, guard: str | None) -> None:
        """Write a register, in lanes where a predicate holds; None: in all."""
        if guard is not None:
            value = self._code.select(guard, value, self._value(number), self._bits(number))
        self._value(number)
        self._values[number] = value

    def text(self, name: str) -> str:
        """The function."""
        self._store()
        code = self._code
        active = code.words(8)
        lines = [f"define void @{name}(ptr %table, ptr %active, i64 %first, i64 %last) {{", "entry:"]
        for place in range(len(self.numbers)):
            lines.append(f"  %q{place} = getelementptr ptr, ptr %table, i64 {place}")
            lines.append(f"  %p{place} = load ptr, ptr %q{place}")
        lines += ["  br label %vector", "vector:", "  %lane = phi i64 [%first, %entry], [%next, %done]"]
        lines += ["  %a = getelementptr i8, ptr %active, i64 %lane", f"  %bytes = load {active}, ptr %a, align 1"]
        lines += [f"  %all = bitcast {active} %bytes to i{8 * LANES}", f"  %none = icmp eq i{8 * LANES} %all, 0"]
        lines += ["  br i1 %none, label %done, label %body", "body:"]
        lines += [f"  %is_active = trunc {active} %bytes to {code.words(1)}", *code.lines, "  br label %done"]
        lines += ["done:", f"  %next = add i64 %lane, {LANES}", "  %more = icmp ult i64 %next, %last"]
        lines += ["  br i1 %more, label %vector, label %end", "end:", "  ret void", "}"]
        return "\n".join([*lines, *sorted(code.declarations), ""])

    def _store(self) -> None:
        """Store the registers that the run has written."""
        code = self._code
        for number, value in self._values.items():
            if value is self._loaded[number]:
                continue
            bits = self._bits(number)
            word = code.select("%is_active", value, self._loaded[number], bits)
            if bits == 1:
                word = code.resize(word, 1, 8)
            kind = code.words(8 * self._dtypes[number].itemsize)
            address = self._address(number)
            code.lines.append(f"  store {kind} {word}, ptr {address}, align {self._dtypes[number].itemsize}")


def _registers_of(arithmetic: Arithmetic) -> list[int]:
    """All registers that an instruction names."""
    numbers = [] if arithmetic.guard is None else [arithmetic.guard.number]
    for operation in arithmetic.operations:
        numbers += [source.number for source in operation.sources]
        numbers += [target for target in operation.targets if target is not None]
    return numbers
