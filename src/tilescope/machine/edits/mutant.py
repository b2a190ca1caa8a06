"""Copies of a kernel with one thing changed, each with a name, for tests that ought to notice them.

for mutant in kernel.mutants():
    run = mutant.kernel.run(…)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from tilescope.machine.edits.change import Change, KernelText, MutantKind
from tilescope.machine.edits.map_changes import OtherSwizzleKernel, is_map
from tilescope.machine.edits.operand_changes import operand_changes
from tilescope.machine.edits.removals import removals, shorter_waits, wait_loops
from tilescope.machine.kernel import Kernel
from tilescope.ptx.editing import edited


@dataclass(frozen=True)
class Mutant:
    """A kernel with one thing changed. `line` and `source_line` say where; None where all of a kind are changed.

    `kernel` is made when it is first asked for: looking through names and kinds costs nothing.
    """

    name: str
    kind: MutantKind
    line: int | None  # of the PTX text
    source_line: str | None
    _make: Callable[[], Kernel] = field(repr=False, compare=False)
    _write: Callable[[], str] = field(repr=False, compare=False)

    @cached_property
    def kernel(self) -> Kernel:
        """The changed kernel."""
        return self._make()

    @property
    def ptx(self) -> str:
        """The changed text; every line has the number that it had."""
        return self._write()

    def __str__(self) -> str:
        return self.name


def mutants_of(kernel: Kernel) -> Iterator[Mutant]:
    """Every mutant of a kernel, one after another."""
    functions = tuple(kernel.module.functions[name] for name in kernel.program.functions)
    text = KernelText(kernel.ptx, kernel.module, functions)
    names: Counter[str] = Counter()
    for changes in (removals, shorter_waits, wait_loops, operand_changes):
        for change in changes(text):
            name = _named(change)
            names[name] += 1
            yield _mutant(kernel, text, change, name if names[name] == 1 else f"{name} ({names[name]})")
    for number, parameter in enumerate(kernel.parameters):
        if is_map(parameter):
            yield _other_map(kernel, number)


def _named(change: Change) -> str:
    instruction = change.instruction
    if instruction is None:
        return change.what
    place = f"line {instruction.line}"
    if instruction.source is not None:
        place = f"{place} ({instruction.source})"
    return f"{change.what}, {place}"


def _mutant(kernel: Kernel, text: KernelText, change: Change, name: str) -> Mutant:
    instruction = change.instruction

    def make() -> Kernel:
        mutated = Kernel(edited(text.short, change.edits), entry=kernel.entry)
        mutated.host = kernel.host
        return mutated

    return Mutant(
        name=name,
        kind=change.kind,
        line=None if instruction is None else instruction.line,
        source_line=None if instruction is None else instruction.source_line,
        _make=make,
        _write=lambda: edited(kernel.ptx, change.edits),
    )


def _other_map(kernel: Kernel, number: int) -> Mutant:
    return Mutant(
        name=f"args[{number}]: a map with another swizzle",
        kind="swizzle",
        line=None,
        source_line=None,
        _make=lambda: OtherSwizzleKernel(kernel, number),
        _write=lambda: kernel.ptx,
    )
