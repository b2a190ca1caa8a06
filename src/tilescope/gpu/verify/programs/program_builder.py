"""Builds a random program step by step: allocates registers, shared memory and scratch memory."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tilescope.arithmetic import rounded_up
from tilescope.gpu.verify.programs.random_program import Input, Program, Register, Step, Tensor
from tilescope.ptx.syntax import BITS_OF_TYPE

SMEM_BYTES = 40_000  # static shared memory ends at 48 KiB
SCRATCH_BYTES = 1 << 17
_RECENT = 8  # registers from which every other operand is taken: chains get long
_PLAIN_NAMES = {f"{kind}{bits}": f"u{bits}" for kind in "bs" for bits in (16, 32, 64)}


class NoRoomError(Exception):
    """A step that was drawn does not fit into this program: another is drawn."""


def plain_type(name: str) -> str:
    """The contents of a register of a PTX type: signed and unsigned integers are the same.

    >>> plain_type("s32"), plain_type("f16x2"), plain_type("tf32")
    ('u32', 'f16x2', 'f32')
    """
    if name in ("u16x2", "s16x2"):
        return "u32"
    if name == "tf32":
        return "f32"
    return _PLAIN_NAMES.get(name, name)


class ProgramBuilder:
    """Collects the steps of a program."""

    def __init__(self, seed: int, threads: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  programs, not secrets
        self.threads = threads
        self._seed = seed
        self._inputs: list[Input] = []
        self._steps: list[Step] = []
        self._registers: list[Register] = []
        self._counts: dict[int, int] = {}
        self._tensors: list[Tensor] = []
        self._smem_bytes = 0
        self._scratch_bytes = 0

    def input(self, kind: str, type_name: str) -> None:
        """One more register that is loaded at the start."""
        register = self.new(type_name)
        self._inputs.append(Input(register, kind))
        self._registers.append(register)

    def new(self, type_name: str) -> Register:
        """A register that was not written yet; it can be read once a step that writes it is added."""
        bits = BITS_OF_TYPE[type_name]
        number = self._counts.get(bits, 0)
        self._counts[bits] = number + 1
        return Register(number, bits, plain_type(type_name))

    def pick(self, type_name: str) -> Register:
        """A register to read: mostly one that holds such numbers, else any one as wide."""
        bits = BITS_OF_TYPE[type_name]
        fitting = [register for register in self._registers if register.bits == bits]
        alike = [register for register in fitting if register.type == plain_type(type_name)]
        if alike and self.random.random() < 0.8:
            fitting = alike
        if self.random.random() < 0.5:
            fitting = fitting[-_RECENT:]
        return self.random.choice(fitting)

    def pick_amount(self) -> Register:
        """A register whose numbers are mostly small: a shift amount, a lane, the length of a field."""
        amounts = [entry.register for entry in self._inputs if entry.kind == "small"]
        return self.random.choice(amounts) if self.random.random() < 0.8 else self.pick("u32")

    def pick_inputs(self, type_name: str, count: int) -> list[Register]:
        """Registers as loaded: compilers have no information about them."""
        bits = BITS_OF_TYPE[type_name]
        fitting = [entry.register for entry in self._inputs if entry.register.bits == bits]
        alike = [register for register in fitting if register.type == plain_type(type_name)]
        return self.random.choices(alike or fitting, k=count)

    def picks(self, type_name: str, count: int) -> list[Register]:
        """Several of them."""
        return [self.pick(type_name) for _ in range(count)]

    def add(
        self,
        lines: Sequence[str],
        *,
        reads: Iterable[Register] = (),
        writes: Iterable[Register] = (),
        scratch: range = range(0),
        tensor: int | None = None,
    ) -> None:
        """One more step."""
        step = Step(lines=tuple(lines), reads=tuple(reads), writes=tuple(writes), scratch=scratch, tensor=tensor)
        self._steps.append(step)
        self._registers += step.writes

    def shared(self, size_bytes: int, align_bytes: int = 16) -> int:
        """The offset of a part of shared memory that no other step uses."""
        start = rounded_up(self._smem_bytes, align_bytes)
        if start + size_bytes > SMEM_BYTES:
            raise NoRoomError
        self._smem_bytes = start + size_bytes
        return start

    def scratch(self, size_bytes: int) -> range:
        """A part of scratch memory with random numbers that no other step uses."""
        start = rounded_up(self._scratch_bytes, 128)
        if start + size_bytes > SCRATCH_BYTES:
            raise NoRoomError
        self._scratch_bytes = start + size_bytes
        return range(start, start + size_bytes)

    def tensor(self, tensor: Tensor) -> int:
        """The number of one more tensor."""
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    @property
    def step_count(self) -> int:
        """Steps so far: labels have this number."""
        return len(self._steps)

    def program(self) -> Program:
        """The finished program. Results that no step reads are compared, and most of the others."""
        read = {register for step in self._steps for register in step.reads}
        written = [register for step in self._steps for register in step.writes]
        results = tuple(register for register in written if register not in read or self.random.random() < 0.75)
        return Program(
            seed=self._seed,
            threads=self.threads,
            inputs=tuple(self._inputs),
            steps=tuple(self._steps),
            kept=results,
            tensors=tuple(self._tensors),
            scratch_bytes=rounded_up(max(self._scratch_bytes, 128), 128),
            smem_bytes=self._smem_bytes,
        )


def names(registers: Iterable[Register]) -> str:
    """Registers as an operand of several: {%r1, %r2}.

    >>> names([Register(1, 32, "u32"), Register(2, 32, "u32")])
    '{%r1, %r2}'
    """
    return f"{{{', '.join(register.name for register in registers)}}}"
