"""Names for barriers and pieces of shared memory: those with the same use at equal distances are stages of one name.

0x34000 0x34008 0x34010    expected by warp 8, waited for by warps 0-7      ──▶   full[0] full[1] full[2]
0x34020 0x34028 0x34030    waited for by warp 8                              ──▶   empty[0] empty[1] empty[2]
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from tilescope.machine.report.places import name_in_program
from tilescope.pipeline.description import SELF_NAMES
from tilescope.pipeline.parts import MAX_STAGES


class SharedVariable(NamedTuple):
    """A variable in shared memory; `size_bytes` is None for memory whose size the launch decides."""

    name: str
    offset: int
    size_bytes: int | None


class Placed(NamedTuple):
    """An object in shared memory that needs a name, and how it is used; None: it has a name already."""

    offset: int
    use: Hashable


class Named(NamedTuple):
    """The name of something, its stage, and how many stages the name has."""

    name: str
    stage: int
    stages: int

    @property
    def reference(self) -> str:
        """As steps name it."""
        return self.name if self.stages == 1 else f"{self.name}[{self.stage}]"


def runs(placed: Sequence[Placed]) -> list[list[int]]:
    """The numbers of entries with the same use at equal distances, each run by offset.

    >>> runs([Placed(0, "full"), Placed(8, "full"), Placed(16, "empty"), Placed(24, "empty"), Placed(32, None)])
    [[0, 1], [2, 3], [4]]
    """
    numbers_of_use: dict[Hashable, list[int]] = defaultdict(list)
    groups: list[list[int]] = []
    for number, row in enumerate(placed):
        if row.use is None:
            groups.append([number])
        else:
            numbers_of_use[row.use].append(number)
    for numbers in numbers_of_use.values():
        left = sorted(numbers, key=lambda number: placed[number].offset)
        while left:
            length = _even_steps([placed[number].offset for number in left])
            groups.append(left[:length])
            left = left[length:]
    return sorted(groups, key=lambda run: placed[run[0]].offset)


def _even_steps(offsets: Sequence[int]) -> int:
    """How many of the first offsets have equal distances."""
    count = min(2, len(offsets))
    while count < min(len(offsets), MAX_STAGES) and offsets[count] - offsets[count - 1] == offsets[1] - offsets[0]:
        count += 1
    return count


def name_objects(placed: Sequence[Placed], kinds: Sequence[str], variables: Sequence[SharedVariable]) -> list[Named]:
    """A name for each object: its variable's, or its kind if that is unique, or its kind and its address."""
    names: dict[int, Named] = {}
    together = runs(placed)
    run_counts = Counter(kinds[run[0]] for run in together)
    for run in together:
        first = placed[run[0]].offset
        kind = kinds[run[0]]
        name = variable_name(first, variables)
        if name is None:
            name = kind if run_counts[kind] == 1 else f"{kind}_{first:#x}"
        for stage, number in enumerate(run):
            names[number] = Named(name, stage, len(run))
    return [names[number] for number in range(len(placed))]


def variable_name(offset: int, variables: Sequence[SharedVariable]) -> str | None:
    """The static variable that an offset is in, and where in it; None for memory whose size the launch decides."""
    for variable in variables:
        if variable.size_bytes is None or not 0 <= offset - variable.offset < variable.size_bytes:
            continue
        name = plain_name(variable.name)
        if not name.isidentifier():
            return None
        return name if offset == variable.offset else f"{name}_{offset - variable.offset:#x}"
    return None


def plain_name(name: str) -> str:
    """A variable as its program calls it, and not as a pipeline names itself.

    >>> plain_name("_ZZ4ringE4full"), plain_name("global_smem"), plain_name("rank")
    ('full', 'global_smem', 'rank_')
    """
    variable = name_in_program(name)
    return f"{variable}_" if variable in SELF_NAMES else variable
