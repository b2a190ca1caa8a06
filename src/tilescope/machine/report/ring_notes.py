"""Notes about rings of slots that never wrapped: a slot that is filled once cannot show a refill that comes too early.

    full[0] full[1] full[2] full[3]      mbarriers in even steps that count the bytes of copies
      tile 0  tile 1  tile 2             three fills of four slots: no slot was filled again

The waits of a ring are in a loop and compute their parity, since each mbarrier is waited for again. A wait before the loop, or
for the constant parity 0, belongs to a tile that is loaded once, such as Q in attention.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tilescope.errors import Violation
from tilescope.machine.execution.records import RECORDS_KEPT, CopyRecord
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.element import map_owner
from tilescope.machine.report.places import find_function, line_facts, name_instruction, shared_variable
from tilescope.ptx.syntax import Immediate, Label, Register
from tilescope.rule import ptx_example, rule
from tilescope.sync.address import SHARED_OFFSET_MASK
from tilescope.sync.cluster_shape import BlockIndex
from tilescope.sync.detector.context import MbarrierUse

_STEPS_BYTES = (8, 16)  # from slot to slot, if one is filled: adjacent mbarriers, or pairs of a full and an empty one
_POLLING = frozenset({"mbarrier", "bra", "mov", "nanosleep", "selp", "setp"})
_FILLS_OF_A_SLOT = 2  # needed to see whether the second fill waits for the readers of the first

NEVER_WRAPPED = rule(
    "run-ring-not-wrapped",
    "A launch fills the slots of a ring more than once, so that an early refill can be detected.",
    argument="{where}",
    found="a ring of {slots:slot}, whose copies report to {barriers}, never wrapped: a block filled it {fills:time}",
    limit="this run cannot show whether a refill waits for the readers of its slot",
    fix="Give a block at least {wanted:tile}[[: raise {axis_named} from {extent_now} to {extent}]].",
    source="the copies of this run",
    severity="note",
    passing=f"ts.Kernel({ptx_example('run-ring-not-wrapped.pass.ptx')}).run(1, 1, [np.zeros(32, np.uint32)]).findings",
    failing=f"ts.Kernel({ptx_example('run-ring-not-wrapped.fail.ptx')}).run(1, 1, [np.zeros(32, np.uint32)]).findings",
)


_CopyKind = tuple[int | None, int]  # the number of the tensor map, and the bytes


class _Ring(NamedTuple):
    """Mbarriers in even steps, by their offsets in a block, and the copies that they counted in the busiest block."""

    offsets: list[int]
    copies: list[CopyRecord]


def report_unwrapped_rings(launch: Launch) -> Iterator[Violation]:
    """A note for each ring of a launch that finished of which no block filled a slot twice."""
    if launch.detector is None or len(launch.copies) >= RECORDS_KEPT:
        return
    uses = launch.detector.mbarrier_uses
    loads = [copy for copy in launch.copies if copy.kind == "load" and copy.barrier is not None]
    counting = {copy.barrier & SHARED_OFFSET_MASK for copy in loads if copy.barrier is not None}
    reused = {offset for offset in counting if _is_reused(launch.program, uses.get(offset))}
    kinds: dict[int, set[_CopyKind]] = defaultdict(set)  # by mbarrier
    for copy in loads:
        if copy.barrier is not None:
            kinds[copy.barrier & SHARED_OFFSET_MASK].add((copy.map_number, copy.bytes))
    for offsets in _group_rings(reused, uses, kinds):
        ring = _Ring(offsets, _copies_of_busiest_block(loads, offsets))
        fills = Counter((copy.block, copy.shared_address) for copy in loads if _reports_to(copy, offsets))
        if max(fills.values()) < _FILLS_OF_A_SLOT:
            yield _report_ring(launch, ring)


def _reports_to(copy: CopyRecord, offsets: Sequence[int]) -> bool:
    return copy.barrier is not None and copy.barrier & SHARED_OFFSET_MASK in offsets


def _is_reused(program: Program, use: MbarrierUse | None) -> bool:
    """Whether a wait for an mbarrier is in a loop and computes its parity."""
    return use is not None and any(_has_computed_parity(program, pc) and _is_in_loop(program, pc) for pc in use.pcs)


def _is_in_loop(program: Program, pc: int) -> bool:
    """Whether an instruction is in a loop that does more than poll."""
    start = program.functions[find_function(program, pc)]
    for end in range(pc, len(program.instructions)):
        branch = program.instructions[end]
        target = None if branch is None or branch.name != "bra" else branch.operands[0]
        if not isinstance(target, Label) or start + target.target > pc:
            continue
        body = program.instructions[start + target.target : end + 1]
        if any(instruction is not None and instruction.name not in _POLLING for instruction in body):
            return True
    return False


def _has_computed_parity(program: Program, pc: int) -> bool:
    """Whether an instruction is a wait whose parity is not a single constant."""
    instruction = program.instructions[pc]
    if instruction is None or instruction.name != "mbarrier" or "parity" not in instruction.modifiers:
        return False
    parity = instruction.operands[2]
    if not isinstance(parity, Register):
        return False
    number = program.register_numbers.get((find_function(program, pc), parity.number))
    constants = set()
    for writer, targets in enumerate(program.targets):
        if number not in targets:
            continue
        instruction = program.instructions[writer]
        if instruction is None or instruction.name != "mov" or not isinstance(instruction.operands[1], Immediate):
            return True
        constants.add(instruction.operands[1].value)
    return len(constants) > 1


def _group_rings(
    reused: Iterable[int], uses: dict[int, MbarrierUse], kinds: dict[int, set[_CopyKind]]
) -> list[list[int]]:
    """Group mbarriers in even steps to rings: they expect the same arrivals, and count copies of the same kind.

    The waits of some slots may be behind the loop, in a peeled epilogue. Slots that no copy has filled belong to the ring too.

    >>> used, unused, empty = MbarrierUse(1, frozenset({7})), MbarrierUse(1, frozenset()), MbarrierUse(128, frozenset({9}))
    >>> kinds = {1024: {(0, 64)}, 1032: {(0, 64)}, 2048: {(0, 64)}, 2064: {(0, 64)}}
    >>> _group_rings([1024, 1032], {1024: used, 1032: used, 1040: unused, 2048: used}, kinds)
    [[1024, 1032, 1040]]
    >>> _group_rings([2048, 2064], {2048: used, 2056: empty, 2064: used, 2072: empty, 2080: unused}, kinds)
    [[2048, 2064, 2080]]
    """
    rings: list[list[int]] = []
    grouped: set[int] = set()
    for start in sorted(reused):
        if start in grouped:
            continue
        steps = sorted({*_STEPS_BYTES, *(offset - start for offset in kinds if offset > start)})
        rings.append(max((_find_ring(start, step, uses, kinds) for step in steps), key=len))
        grouped.update(rings[-1])
    return rings


def _find_ring(start: int, step: int, uses: dict[int, MbarrierUse], kinds: dict[int, set[_CopyKind]]) -> list[int]:
    """The ring of an mbarrier, if its slots are `step` bytes apart: filled slots on both sides, then unused ones."""

    def is_filled(offset: int) -> bool:
        use = uses.get(offset)
        is_alike = use is not None and use.arrivals == uses[start].arrivals
        return is_alike and not kinds.get(offset, set()).isdisjoint(kinds[start])

    def is_unused(offset: int) -> bool:
        use = uses.get(offset)
        return use is not None and use.arrivals == uses[start].arrivals and not use.pcs

    first = start
    while is_filled(first - step):
        first -= step
    ring = [first]
    while is_filled(ring[-1] + step):
        ring.append(ring[-1] + step)
    while is_unused(ring[-1] + step):
        ring.append(ring[-1] + step)
    return ring


def _copies_of_busiest_block(loads: Iterable[CopyRecord], offsets: Sequence[int]) -> list[CopyRecord]:
    """The copies to a ring in the block that issued most of them."""
    by_block: dict[BlockIndex, list[CopyRecord]] = {}
    for copy in loads:
        if _reports_to(copy, offsets):
            by_block.setdefault(copy.block, []).append(copy)
    return max(by_block.values(), key=len)


def _report_ring(launch: Launch, ring: _Ring) -> Violation:
    first, *others = (f"{offset:#x}" for offset in ring.offsets)
    variable = shared_variable(launch.program, ring.offsets[0])
    barriers = f"the mbarriers at {first} to {others[-1]}" if others else f"the mbarrier at {first}"
    pc = ring.copies[-1].pc
    fills = len({copy.barrier for copy in ring.copies})
    tiles = _FILLS_OF_A_SLOT * len(ring.offsets)
    stride = _find_stride(ring.copies)
    extent = None if stride is None else stride.extent(launch, tiles)
    return NEVER_WRAPPED.violation(
        where=name_instruction(launch.program, pc),
        barriers=barriers if variable is None else f"{barriers} ({variable})",
        slots=len(ring.offsets),
        fills=fills,
        wanted=tiles,
        addresses=tuple(ring.offsets),
        axis_named=None if extent is None else extent.axis_named,
        extent=None if extent is None else extent.wanted,
        extent_now=None if extent is None else extent.now,
        **line_facts(launch.program, *dict.fromkeys(copy.pc for copy in ring.copies)),
    )


class _Extent(NamedTuple):
    """A dimension of a tensor that must grow."""

    axis_named: str
    wanted: int
    now: int


class _Stride(NamedTuple):
    """How the fills of a ring step through the tensor of a map."""

    map_number: int
    axis: int
    step: int

    def extent(self, launch: Launch, tiles: int) -> _Extent | None:
        """The dimension that must grow to give this many tiles; None if another dimension limits them."""
        tensor_map = launch.maps[self.map_number]
        now = tensor_map.dims[self.axis]
        dim = tiles * self.step
        if now > dim - self.step:
            return None
        return _Extent(f"dims[{self.axis}] of {map_owner(launch, tensor_map)}", dim, now)


def _find_stride(copies: Sequence[CopyRecord]) -> _Stride | None:
    """The axis along which the fills of a ring step through a tensor; None if there are several axes, or a single fill."""
    for number in dict.fromkeys(copy.map_number for copy in copies):
        corners: dict[int | None, tuple[int, ...]] = {}  # by mbarrier: of the first box of each fill
        for copy in copies:
            if copy.map_number == number and copy.coords is not None:
                corners.setdefault(copy.barrier, copy.coords)
        steps = {_difference(*pair) for pair in pairwise(corners.values())}
        if number is None or len(steps) != 1:
            continue
        (step,) = steps
        axes = [axis for axis, distance in enumerate(step) if distance]
        if len(axes) == 1 and step[axes[0]] > 0:
            return _Stride(number, axes[0], step[axes[0]])
    return None


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(later - earlier for earlier, later in zip(before, after, strict=True))
