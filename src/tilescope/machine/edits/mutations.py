"""Every change that makes a mutant of a kernel, each with its name.

    bar.sync removed, line 7                           the text without the barrier
    cp.async.wait_group 1 waits for one group less     the text with another operand
    args[0]: a map with another swizzle                the text as it is: the launch passes another tensor map

A test of the kernel should fail on every mutant; `Kernel.mutants` makes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.machine.edits.change import Change, MutantKind
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.operand_changes import operand_changes
from tilescope.machine.edits.removals import removals, shorter_waits, skipped_wait_loops
from tilescope.machine.launch.kernel_arguments import Argument
from tilescope.ptx.editing import Edit
from tilescope.ptx.syntax import Variable
from tilescope.tensor_map import AnyMap, decode_tensor_map
from tilescope.tensor_map.map_descriptor import DESCRIPTOR_BYTES

_MAP_ALIGNMENT_BYTES = 64
_SWIZZLES_TRIED = ("none", "128B", "64B", "32B")


class Mutation(NamedTuple):
    """A change with its name: edits of the text, or an argument that is passed as a map with another swizzle."""

    name: str
    kind: MutantKind
    line: int | None = None  # of the PTX text; None if all instructions of a kind are changed
    source_line: str | None = None
    edits: tuple[Edit, ...] = ()
    map_argument: int | None = None


def find_mutations(text: KernelText, parameters: Sequence[Variable]) -> Iterator[Mutation]:
    """Every mutation of a kernel."""
    names: Counter[str] = Counter()
    for find_changes in (removals, shorter_waits, skipped_wait_loops, operand_changes):
        for change in find_changes(text):
            name = _name_change(change)
            names[name] += 1
            yield _make_mutation(change, name if names[name] == 1 else f"{name} ({names[name]})")
    for number, parameter in enumerate(parameters):
        if _may_be_map(parameter):
            yield Mutation(f"args[{number}]: a map with another swizzle", "swizzle", map_argument=number)


def _name_change(change: Change) -> str:
    instruction = change.instruction
    if instruction is None:
        return change.description
    place = f"line {instruction.line}"
    if instruction.source is not None:
        place = f"{place} ({instruction.source})"
    return f"{change.description}, {place}"


def _make_mutation(change: Change, name: str) -> Mutation:
    instruction = change.instruction
    return Mutation(
        name=name,
        kind=change.kind,
        line=None if instruction is None else instruction.line,
        source_line=None if instruction is None else instruction.source_line,
        edits=change.edits,
    )


def _may_be_map(parameter: Variable) -> bool:
    """Whether a parameter has the size and the alignment of a tensor map that is passed by value."""
    return parameter.size_bytes == DESCRIPTOR_BYTES and parameter.alignment_bytes >= _MAP_ALIGNMENT_BYTES


def replace_swizzle(argument: Argument) -> Argument:
    """A map with the first other swizzle that its box allows; an argument that is not a map stays as it is.

    >>> from tilescope.tensor_map import TensorMap
    >>> replace_swizzle(TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")).swizzle.name
    'none'
    """
    if isinstance(argument, bytes) and len(argument) == DESCRIPTOR_BYTES:
        try:
            argument = decode_tensor_map(argument)
        except RuleError:
            return argument
    if isinstance(argument, AnyMap):
        for swizzle in _SWIZZLES_TRIED:
            try:
                if swizzle != argument.swizzle:
                    return argument.with_fields(swizzle=swizzle)
            except RuleError:
                continue  # a row of the box is wider than the span of this swizzle
    return argument
