"""Which role has a tile when, and the barriers by which it passes on.

In one round of a tile's loop its accesses follow one another in turns. All roles of a turn wait for a barrier at which all
roles of the turn before have arrived; the first turn waits for the last one of the round before:

    turn 0    producer loads K          waits for K_empty      its bytes arrive at K_full
    turn 1    consumers multiply K      wait for K_full        arrive at K_empty

An accumulator that one role rescales and another adds to, in every round of an inner loop, passes between them there. Behind
that loop, the role of the first turn waits once more for the last one.

Tiles that one step loads share their barriers. Tiles of one ring alternate in its slots and share barriers too. A tile
that only one role uses needs none: the warps of the role synchronize at a named barrier.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilescope.kernel_plan.cluster_arrivals import acting_blocks, arrival_factor, is_multicast, leads
from tilescope.kernel_plan.kernel_description import KernelStep
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.lifetimes import home_path
from tilescope.value import Value

MBARRIER_BYTES = 8


@dataclass(frozen=True, slots=True)
class Turn:
    """Roles that have a tile at the same time, and the places of their steps."""

    places: tuple[int, ...]
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """Tiles that are filled and passed on together, or one after another through the same slots.

    `fills` lists the tiles of each fill of a round: [["A", "B"]] for two tiles of one load, [["K"], ["V"]] for two that
    take turns.
    """

    name: str
    fills: tuple[tuple[str, ...], ...]
    home: tuple[str, ...]  # the loops of its rounds
    turns: tuple[tuple[Turn, ...], ...]  # of each fill
    behind: tuple[int, ...] = ()  # positions after its loop, where the role of the first iteration uses it once more

    @property
    def tiles(self) -> tuple[str, ...]:
        """All its tiles."""
        return tuple(name for fill in self.fills for name in fill)

    @property
    def is_passed_on(self) -> bool:
        """Whether more than one role uses it, so that it has barriers."""
        return len(self.turns[0]) > 1

    @property
    def barriers_per_stage(self) -> int:
        """One for each turn, if it is passed on."""
        return len(self.turns[0]) if self.is_passed_on else 0

    def barrier_name(self, turn: int) -> str:
        """The barrier that a turn waits for."""
        if turn == 0:
            return f"{self.name}_empty"
        return f"{self.name}_full" if turn == 1 else f"{self.name}_turn{turn}"


@dataclass(frozen=True, slots=True)
class KernelBarrier(Value):
    """An mbarrier of the kernel: stages, the arrivals of a phase, the bytes that a phase expects, and what it is for."""

    name: str
    stages: int
    count: int
    bytes: int
    waiting: tuple[str, ...]  # roles
    arriving: tuple[str, ...]  # roles
    purpose: str  # what its phase tells


@dataclass(frozen=True, slots=True)
class OverlayBarrier:
    """A barrier that makes an overlay safe: who may write `after` once `before` has been read for the last time."""

    name: str
    before: str  # the tile whose last access is waited for
    after: str  # the tile that is written over it
    is_next_round: bool  # the write is that of the next round of the loop around both
    loop: str  # that loop; "": the kernel


def derive_rings(kernel: KernelDescription) -> tuple[Ring, ...]:
    """The rings of all tiles in shared and tensor memory, in the order of their first steps."""
    rings: list[Ring] = []
    done: set[str] = set()
    for step in kernel.steps:
        for name in step.writes:
            tile = kernel.tile(name)
            if name in done or tile.memory == "registers":
                continue
            fills: tuple[tuple[str, ...], ...]
            if tile.ring:
                fills = tuple((other,) for other in _written_in_order(kernel) if kernel.tile(other).ring == tile.ring)
                title = tile.ring
            else:
                together = _loaded_together(kernel, step, name)
                fills = (together,)
                title = "_".join(together)
            done |= {each for fill in fills for each in fill}
            rings.append(_alternating_ring(kernel, name) or _make_ring(kernel, title, fills))
    return tuple(rings)


def _make_ring(kernel: KernelDescription, title: str, fills: tuple[tuple[str, ...], ...]) -> Ring:
    places = range(len(kernel.steps))
    return Ring(title, fills, home_path(kernel, fills[0][0]), tuple(_turns(kernel, fill, places) for fill in fills))


def _alternating_ring(kernel: KernelDescription, name: str) -> Ring | None:
    """The ring of a tile that roles pass to and fro in an inner loop, and that one of them has behind it; else None."""
    places = sorted({place for place, _ in (*kernel.writes_of(name), *kernel.reads_of(name))})
    deepest = max((kernel.path(kernel.steps[place].loop) for place in places), key=len)
    inner = [place for place in places if kernel.path(kernel.steps[place].loop) == deepest]
    behind = tuple(place for place in places if place not in inner)
    turns = _turns(kernel, (name,), inner)
    if not behind or len(turns) < 2 or behind[0] < inner[-1] or kernel.tile(name).ring:
        return None
    is_own = all((kernel.steps[place].role,) == turns[0].roles for place in behind)
    return Ring(name, ((name,),), deepest, (turns,), behind) if is_own else None


def _written_in_order(kernel: KernelDescription) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for step in kernel.steps for name in step.writes))


def _loaded_together(kernel: KernelDescription, step: KernelStep, name: str) -> tuple[str, ...]:
    """The tiles of a load that the same roles read in the same loops; they share a barrier."""
    if step.operation != "load":
        return (name,)
    tile = kernel.tile(name)
    readers = _readers(kernel, name)
    same = []
    for other in step.writes:
        stages = (kernel.tile(other).least_stages, kernel.tile(other).most_stages)
        is_alike = stages == (tile.least_stages, tile.most_stages) and _readers(kernel, other) == readers
        if other == name or (is_alike and home_path(kernel, other) == home_path(kernel, name)):
            same.append(other)
    return tuple(same)


def _readers(kernel: KernelDescription, name: str) -> frozenset[str]:
    return frozenset(step.role for _, step in kernel.reads_of(name))


def _turns(kernel: KernelDescription, fill: tuple[str, ...], places: Iterable[int]) -> tuple[Turn, ...]:
    """The turns of a fill: readers share one; a role keeps its turn for as long as it works in the same way."""
    turns: list[Turn] = []
    writes = False
    for place in places:
        step = kernel.steps[place]
        if not set(fill) & set(step.tiles):
            continue
        is_write = bool(set(fill) & set(step.writes))
        last = turns[-1] if turns else None
        if last is not None and (_goes_on(kernel, last, step) or (not is_write and not writes)):
            turns[-1] = Turn((*last.places, place), tuple(dict.fromkeys((*last.roles, step.role))))
            writes = writes or is_write
        else:
            turns.append(Turn((place,), (step.role,)))
            writes = is_write
    return tuple(turns)


def _goes_on(kernel: KernelDescription, turn: Turn, step: KernelStep) -> bool:
    """Whether a step is part of its role's turn: a load and a tcgen05.mma end at a barrier, threads do not."""
    if turn.roles != (step.role,):
        return False
    return _completion(kernel.steps[turn.places[-1]]) == _completion(step)


def _completion(step: KernelStep) -> str:
    """What signals the end of a step: the bytes of a load, the commit of a tcgen05.mma, or the threads."""
    return step.operation if step.operation in ("load", "tcgen05.mma") else "threads"


def arrivals(kernel: KernelDescription, turn: Turn, role: str) -> int:
    """Arrivals of all instances of a role at the end of its turn: one each, of threads one a warp."""
    operations = {kernel.steps[place].operation for place in turn.places if kernel.steps[place].role == role}
    row = kernel.role(role)
    each = row.warps if "threads" in operations else 1
    return each * row.instances


def ring_barriers(kernel: KernelDescription, ring: Ring, stages: int) -> tuple[KernelBarrier, ...]:
    """The barriers of a ring; none if only one role uses it."""
    if not ring.is_passed_on:
        return ()
    rows = []
    turns = ring.turns[0]
    for number, turn in enumerate(turns):
        before = turns[number - 1]
        loaded = any(kernel.steps[place].operation == "load" for place in before.places)
        expected = 0
        if loaded and number == 1:
            expected = max(sum(kernel.tile(name).stage_bytes for name in fill) for fill in ring.fills)
            expected *= acting_blocks(kernel) if leads(kernel, turn.roles) else 1
        freed = ring.tiles if number == 0 else ()
        rows.append(
            KernelBarrier(
                name=ring.barrier_name(number),
                stages=stages,
                count=sum(
                    arrivals(kernel, before, role) * (1 if loaded else arrival_factor(kernel, role, turn.roles, freed))
                    for role in before.roles
                ),
                bytes=expected,
                waiting=turn.roles,
                arriving=before.roles,
                purpose="filled" if number == 1 else "free again" if number == 0 else "passed on",
            )
        )
    return tuple(rows)


def overlay_barriers(kernel: KernelDescription, first: str, second: str) -> tuple[OverlayBarrier, ...]:
    """The barriers that order two overlaid tiles, the first of which dies first.

    It is followed by the other in the same round, and follows it in the next one. Where one role does both the last access
    and the first write, its own order serves; not if it writes into other blocks.
    """
    around = _common_loop(kernel, first, second)
    orders = [(first, second, False)]
    if around:
        orders.append((second, first, True))
    return tuple(
        OverlayBarrier(f"{after}_over_{before}", before, after, is_next_round, around)
        for before, after, is_next_round in orders
        if is_multicast(kernel, [after])
        or not _is_one_group(kernel, last_roles(kernel, before) | first_roles(kernel, after))
    )


def _common_loop(kernel: KernelDescription, one: str, other: str) -> str:
    """The innermost loop around all steps of both tiles; "" if there is none."""
    common = ""
    for left, right in zip(home_path(kernel, one), home_path(kernel, other), strict=False):
        if left != right:
            break
        common = left
    return common


def _is_one_group(kernel: KernelDescription, roles: frozenset[str]) -> bool:
    """Whether the roles are one role of one instance, whose own order serves."""
    return len(roles) == 1 and all(kernel.role(name).instances == 1 for name in roles)


def last_roles(kernel: KernelDescription, tile: str) -> frozenset[str]:
    """The roles that have a tile last: all that read it after its last write, else its writer."""
    last_write = max(place for place, _ in kernel.writes_of(tile))
    readers = frozenset(step.role for place, step in kernel.reads_of(tile) if place >= last_write)
    return readers or frozenset([kernel.steps[last_write].role])


def first_roles(kernel: KernelDescription, tile: str) -> frozenset[str]:
    """The role that writes a tile first."""
    return frozenset([kernel.steps[min(place for place, _ in kernel.writes_of(tile))].role])


def last_use(kernel: KernelDescription, tile: str, role: str) -> int:
    """The place of the last step of a role that accesses a tile."""
    return max(place for place, step in (*kernel.reads_of(tile), *kernel.writes_of(tile)) if step.role == role)
