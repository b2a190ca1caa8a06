"""Runs a program in the emulator and on the card, from the same text and input bytes, and compares the results.

results    the kept registers, one after the other, a number for every thread
scratch    scratch memory
tensors    those that were stored to
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.gpu.verify.programs.program_inputs import numbers
from tilescope.gpu.verify.programs.random_program import Program, Register, module_text
from tilescope.gpu.verify.suites import Bytes, Piece, pool, splitmix_bytes
from tilescope.machine.kernel import Kernel
from tilescope.machine.memory import Memory
from tilescope.machine.report.run import KernelRun

if TYPE_CHECKING:
    from tilescope.gpu.driver.device import Device

_MOST_STEPS = 200_000
_DTYPE_OF_BYTES: dict[int, np.dtype[np.generic]] = {size: np.dtype(f"<u{size}") for size in (2, 4, 8)}
_SEED_BITS = 30  # of splitmix_bytes


class Start(NamedTuple):
    """The arrays of a launch; the results are filled with 0xEE, so that missing writes are visible."""

    inputs: Bytes
    results: Bytes
    scratch: Bytes
    tensors: dict[int, Bytes]  # by the tensor's number


def start(program: Program) -> Start:
    """What memory holds before a program runs. What a register gets does not depend on which others there are."""
    inputs = np.zeros(max(program.input_bytes, 16), np.uint8)
    registers = [entry.register for entry in program.inputs]
    for entry, place in zip(program.inputs, program.places(registers), strict=True):
        seed = _mix_seed(program.seed, entry.register)
        values = numbers(entry.kind, program.threads, seed).view(np.uint8)
        inputs[place : place + values.size] = values
    scratch = splitmix_bytes(program.seed % (1 << _SEED_BITS) + 1, program.scratch_bytes).copy()
    tensors = {
        number: pool()[tensor.source : tensor.source + tensor.size_bytes].copy()
        for number, tensor in program.used_tensors().items()
    }
    return Start(inputs, np.full(max(program.result_bytes, 16), 0xEE, np.uint8), scratch, tensors)


def _mix_seed(seed: int, register: Register) -> int:
    return (seed * 1_000_003 + 131 * register.number + register.bits) % (1 << _SEED_BITS)


class Ran(NamedTuple):
    """A run on the machine, and the arrays that it left."""

    run: KernelRun
    after: Start


def run_here(program: Program, *, findings: bool = False) -> Ran:
    """Run a program without a card."""
    before = start(program)
    memory = Memory()
    maps = []
    for number, contents in before.tensors.items():
        address = memory.place(contents)
        maps.append(program.tensors[number].tensor_map.with_fields(address=address))
    kernel = Kernel(program.text())
    run = kernel.run(
        grid=1,
        block=program.threads,
        args=[before.inputs, before.results, before.scratch, *maps],
        memory=memory,
        max_steps=_MOST_STEPS,
        findings=findings,
        record=False,
        advice="none",
    )
    return Ran(run, before)


def pieces(program: Program, after: Start) -> list[Piece]:
    """The compared data, in the order of the program; the words of a piece locate a difference."""
    written = program.entry_text("program")
    compared = []
    for register, place in zip(program.kept, program.places(program.kept), strict=True):
        dtype = _DTYPE_OF_BYTES[register.stored_bytes]
        step = program.writer(register)
        values = after.results[place : place + dtype.itemsize * program.threads].view(dtype)
        compared.append(Piece(f"{_place(program, written.first_lines, step, register)}, thread {{}}", values))
    compared.append(Piece("scratch memory, byte {}", after.scratch))
    for number, contents in after.tensors.items():
        if program.tensors[number].is_stored_to:
            compared.append(Piece(f"tensor {number}, byte {{}}", contents))
    return compared


def _place(program: Program, first_lines: Sequence[int], step: int, register: Register) -> str:
    """The line of the text that writes a register, with braces doubled: a place is put into these words later."""
    for offset, text in enumerate(program.steps[step].lines):
        target = text.partition(" ")[2] if not text.lstrip().startswith("@") else text
        if register.name in target.replace(",", " ").replace("|", " ").replace("{", " ").replace("}", " ").split():
            line = first_lines[step] + offset
            shown = text.strip().replace("{", "{{").replace("}", "}}")
    return f"line {line + _HEADER_LINES}, {shown} {register.name}"


_HEADER_LINES = 4  # of a module, before its first entry


def differing_step(program: Program, piece: int, place: int) -> int | None:
    """The number of the step that made number `place` of a piece; None for scratch memory that no step should change."""
    if piece < len(program.kept):
        return program.writer(program.kept[piece])
    if piece == len(program.kept):
        return next((number for number, step in enumerate(program.steps) if place in step.scratch), None)
    stored = [number for number, tensor in program.used_tensors().items() if tensor.is_stored_to]
    tensor = stored[piece - len(program.kept) - 1]
    return next(number for number, step in enumerate(program.steps) if step.tensor == tensor)


def run_on(device: Device, programs: Sequence[Program]) -> Iterator[list[npt.NDArray[np.generic]]]:
    """What the card leaves of programs, which are compiled together as one module."""
    names = [f"program{number}" for number in range(len(programs))]
    entries = [program.entry_text(name).text for program, name in zip(programs, names, strict=True)]
    module = device.load(module_text(entries))
    for program, name in zip(programs, names, strict=True):
        before = start(program)
        tensors = {number: device.upload(contents) for number, contents in before.tensors.items()}
        maps = [device.encode_map(program.tensors[number].tensor_map, address) for number, address in tensors.items()]
        scratch = device.upload(before.scratch)
        results = device.upload(before.results)
        device.launch(f"{module}:{name}", before.inputs, results, scratch, *maps, blocks=1, threads=program.threads)
        after = Start(
            before.inputs,
            device.download(results, before.results),
            device.download(scratch, before.scratch),
            {number: device.download(address, before.tensors[number]) for number, address in tensors.items()},
        )
        yield [piece.numbers for piece in pieces(program, after)]
        device.free()
