"""The pipeline of a whole kernel: every wait, arrival, fence and copy of its roles, as data for `simulate`.

A role does its steps in their order, in their loops. Before the first step of a turn it waits, after the last one it arrives;
both at the level of the loop in each round of which the tile is filled once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilescope.errors import Violation
from tilescope.kernel_plan.cluster_arrivals import acting_blocks, arrival_mask, every_block, leads
from tilescope.kernel_plan.handovers import (
    KernelBarrier,
    OverlayBarrier,
    Ring,
    Turn,
    arrivals,
    first_roles,
    last_roles,
    last_use,
)
from tilescope.kernel_plan.kernel_description import ASYNC_PROXY, KernelRole, KernelStep, KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.kernel_rules import KERNEL_BARS
from tilescope.kernel_plan.placement import Placement
from tilescope.kernel_plan.ring_counters import RingCounters, round_number
from tilescope.kernel_plan.tile_slots import Piece, TileSlots
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.pipeline_rules import Plain
from tilescope.sync.thread_limits import BARS

STEP_MARK = "step "  # before the place of the kernel's step that a step of the pipeline belongs to
_IN_FIRST_BLOCK = "rank == 0"
_FIRST_BAR = 1  # 0 is __syncthreads
_AtStep = dict[tuple[str, tuple[str, ...], int], list[OverlayBarrier]]  # by role, loops around, place of the step


def check_bars(kernel: KernelDescription) -> list[Violation]:
    """Refuse roles that need more named barriers than a block has."""
    needed = _FIRST_BAR + sum(role.instances for role in kernel.roles if role.warps > 1)
    needed += sum(_exchanges(kernel, role) for role in kernel.roles)
    return [KERNEL_BARS.violation(needed=needed, most=BARS)] if needed > BARS else []


def _exchanges(kernel: KernelDescription, role: KernelRole) -> bool:
    """Whether the instances of a role read each other's tiles."""
    return any(kernel.tile(name).exchanged for step in kernel.steps if step.role == role.name for name in step.writes)


@dataclass(frozen=True, slots=True)
class KernelPipeline:
    """What the pipeline of a planned kernel is made from."""

    kernel: KernelDescription
    rings: tuple[Ring, ...]
    stages: Mapping[str, int]
    barriers: tuple[KernelBarrier, ...]
    overlay_barriers: tuple[OverlayBarrier, ...]
    shared: Placement
    tensor: Placement
    entry_registers: int
    _pieces: TileSlots = field(init=False)
    _counters: RingCounters = field(init=False)
    _overlay_waits: _AtStep = field(init=False)
    _overlay_arrivals: _AtStep = field(init=False)

    def __post_init__(self) -> None:
        pieces = TileSlots(self.kernel, self.rings, self.stages, self.shared, self.tensor)
        object.__setattr__(self, "_pieces", pieces)
        object.__setattr__(self, "_counters", RingCounters(self.kernel, self.stages))
        waits: _AtStep = {}
        arriving: _AtStep = {}
        for row in self.overlay_barriers:
            path = self.kernel.path(row.loop)
            for role in first_roles(self.kernel, row.after):
                place = min(place for place, _ in self.kernel.writes_of(row.after))
                waits.setdefault((role, path, place), []).append(row)
            for role in last_roles(self.kernel, row.before):
                place = last_use(self.kernel, row.before, role)
                arriving.setdefault((role, path, place), []).append(row)
        object.__setattr__(self, "_overlay_waits", waits)
        object.__setattr__(self, "_overlay_arrivals", arriving)

    def build(self) -> Pipeline:
        """The pipeline, as data."""
        data: Plain = {
            "name": self.kernel.name,
            "constants": {f"{loop.name}_rounds": loop.count for loop in self.kernel.loops},
            "barriers": {row.name: {"count": row.count, "stages": row.stages} for row in self.barriers},
            "slots": self._pieces.slots(),
            "roles": [self._role(role) for role in self.kernel.roles],
        }
        if any(role.registers is not None for role in self.kernel.roles):
            data["registers"] = self.entry_registers
        if acting_blocks(self.kernel) > 1:
            data["cluster"] = [self.kernel.cluster, 1]
        elif self.kernel.cluster > 1:
            data["not_covered"] = ["what blocks of a cluster do with each other"]
        return Pipeline.from_dict(data)

    def role_steps(self, role: KernelRole) -> list[Plain]:
        """The steps of one role, loops inside."""
        places = [place for place, step in enumerate(self.kernel.steps) if step.role == role.name]
        steps: list[Plain] = []
        if role.registers is not None:
            steps.append({"registers": role.registers})
        steps += self._level(role, places, ())
        if acting_blocks(self.kernel) > 1:  # no block leaves while another one may still reach its memory
            steps += [*self._tails(role), {"cluster": "sync"}]
        return steps

    def _tails(self, role: KernelRole) -> list[Plain]:
        """Waits for the last commits of a leading role, which come on their own: a block that has left cannot take them."""
        steps: list[Plain] = []
        for ring in self.rings:
            last = ring.turns[0][-1]
            if not ring.is_passed_on or role.name not in ring.turns[0][0].roles or not leads(self.kernel, last.roles):
                continue
            stages = self.stages[ring.tiles[0]]
            fills = " * ".join([*(f"{name}_rounds" for name in ring.home), str(len(ring.fills))])
            counter = f"{ring.name}_tail"
            stage = "" if stages == 1 else f"[{counter} % {stages}]"
            tail = {"tail": f"{ring.barrier_name(0)}{stage}", "parity": f"{counter} / {stages} % 2 ^ 1"}
            steps.append({"loop": counter, "start": fills, "count": stages, "steps": [tail]})
        return steps

    def _role(self, role: KernelRole) -> Plain:
        row: Plain = {
            "name": role.name,
            "threads": role.threads,
            "instances": role.instances,
            "steps": self.role_steps(role),
        }
        return row | ({"mask": 1} if leads(self.kernel, [role.name]) else {})

    def _level(self, role: KernelRole, places: Sequence[int], path: tuple[str, ...]) -> list[Plain]:
        """The steps of a role at one level of loops, with the waits before and the arrivals after each part."""
        steps: list[Plain] = []
        for part in self._parts(places, path):
            inner = self.kernel.path(self.kernel.steps[part[0]].loop)
            steps += _mark_steps(self._waits(role, part, path), part[0])
            if len(inner) > len(path):
                counter = inner[len(path)]
                body = self._level(role, part, inner[: len(path) + 1])
                steps.append({"loop": counter, "count": f"{counter}_rounds", "steps": body})
            else:
                steps += _mark_steps(self._actions(role, part[0]), part[0])
            steps += _mark_steps(self._arrivals(role, part, path), part[-1])
        return steps

    def _parts(self, places: Sequence[int], path: tuple[str, ...]) -> list[list[int]]:
        """The places at one level, those of an inner loop together."""
        parts: list[list[int]] = []
        running = ""
        for place in places:
            inner = self.kernel.path(self.kernel.steps[place].loop)
            loop = inner[len(path)] if len(inner) > len(path) else ""
            if loop and loop == running:
                parts[-1].append(place)
            else:
                parts.append([place])
            running = loop
        return parts

    def _own_turns(self, role: KernelRole, path: tuple[str, ...]) -> Iterable[tuple[Ring, int, int, Turn]]:
        """The turns that a role has of rings whose rounds are those of this level: ring, fill, number, turn."""
        for ring in self.rings:
            if ring.home != path or not ring.is_passed_on:
                continue
            for fill, turns in enumerate(ring.turns):
                for number, turn in enumerate(turns):
                    if role.name in turn.roles:
                        yield ring, fill, number, turn

    def _waits(self, role: KernelRole, part: Sequence[int], path: tuple[str, ...]) -> list[Plain]:
        steps: list[Plain] = []
        for ring, fill, number, turn in self._own_turns(role, path):
            own_places = [place for place in turn.places if self.kernel.steps[place].role == role.name]
            if own_places[0] in part:
                parity = self._counters.parity(ring, fill)
                barrier = self._counters.barrier(ring.barrier_name(number), ring, fill)
                steps.append({"wait": barrier, "parity": f"{parity} ^ 1" if number == 0 else parity})
        steps += self._last_turns(part, path)
        parity = f"{round_number(self.kernel, path)} % 2"
        for place in part:
            steps += [
                {"wait": row.name, "parity": f"{parity} ^ 1" if row.is_next_round else parity}
                for row in self._overlay_waits.get((role.name, path, place), ())
            ]
        if steps and self._uses_tensor_memory(part):
            steps.append({"fence": "tcgen05.after"})
        return steps

    def _last_turns(self, part: Sequence[int], path: tuple[str, ...]) -> list[Plain]:
        """Behind the loop of a ring, waits for the last turn of its last round."""
        steps: list[Plain] = []
        for ring in self.rings:
            if (
                ring.behind
                and ring.behind[0] in part
                and self.kernel.path(self.kernel.steps[ring.behind[0]].loop) == path
            ):
                last = round_number(self.kernel, ring.home, last_from=len(path))
                stages = self.stages[ring.name]
                stage = "" if stages == 1 else f"[{last} % {stages}]"
                steps.append({"wait": f"{ring.barrier_name(0)}{stage}", "parity": f"{last} / {stages} % 2"})
        return steps

    def _arrivals(self, role: KernelRole, part: Sequence[int], path: tuple[str, ...]) -> list[Plain]:
        steps: list[Plain] = []
        for ring, fill, number, turn in self._own_turns(role, path):
            own_places = [place for place in turn.places if self.kernel.steps[place].role == role.name]
            if own_places[-1] not in part or self._arrives_by_itself(own_places, path):
                continue
            following = (number + 1) % len(ring.turns[fill])
            barrier = self._counters.barrier(ring.barrier_name(following), ring, fill)
            waiting = ring.turns[fill][following].roles
            steps.append(self._arrival(role, turn, barrier, waiting, ring.tiles if following == 0 else ()))
        for place in part:
            turn = Turn((place,), (role.name,))
            rows = self._overlay_arrivals.get((role.name, path, place), ())
            steps += [
                self._arrival(role, turn, row.name, first_roles(self.kernel, row.after), [row.after]) for row in rows
            ]
        threads_arrive = any("arrive" in step for step in steps)
        if threads_arrive and self._uses_tensor_memory(part):
            steps.insert(0, {"fence": "tcgen05.before"})
        return steps

    def _arrives_by_itself(self, own: Sequence[int], path: tuple[str, ...]) -> bool:
        """Whether the expectation of a load is the arrival: a single load at this level."""
        step = self.kernel.steps[own[0]]
        return len(own) == 1 and step.operation == "load" and self.kernel.path(step.loop) == path

    def _arrival(
        self, role: KernelRole, turn: Turn, barrier: str, waiting: Collection[str], freed: Sequence[str] = ()
    ) -> Plain:
        own_steps = [self.kernel.steps[place] for place in turn.places if self.kernel.steps[place].role == role.name]
        operations = {step.operation for step in own_steps}
        at: Plain = {}
        if "load" in operations:
            at = {"when": _IN_FIRST_BLOCK} if leads(self.kernel, waiting) else {}
        elif (mask := arrival_mask(self.kernel, role.name, waiting, freed)) is not None:
            at = {"mask": mask}
        if operations == {"tcgen05.mma"}:
            return {"commit": barrier} | at
        count = arrivals(self.kernel, turn, role.name) // role.instances
        arrival: Plain = {"arrive": barrier, "count": count} if count > 1 else {"arrive": barrier}
        return arrival | at

    def _uses_tensor_memory(self, places: Sequence[int]) -> bool:
        return any(
            self.kernel.tile(name).memory == "tensor" for place in places for name in self.kernel.steps[place].tiles
        )

    def _actions(self, role: KernelRole, place: int) -> list[Plain]:
        """What a step does, between its waits and arrivals."""
        step = self.kernel.steps[place]
        match step.operation:
            case "load":
                return self._load(place, step)
            case "store":
                stored = self._list_steps("store", self._pieces.of_tiles(step.inputs, place))
                done: list[Plain] = [{"commit": "bulk"}, {"wait_group": "bulk", "read": True}]
                return [*stored, *done, *self._meeting(role, place, "threads")]
            case "wgmma":
                pieces = self._pieces.of_tiles(step.inputs, place)
                multiplied = self._list_steps("multiply", pieces)
                if not multiplied:
                    return []
                return [*multiplied, {"commit": "wgmma"}, {"wait_group": "wgmma"}]
            case "tcgen05.mma":
                return self._tensor_product(place, step)
        return self._thread_code(role, place, step)

    def _load(self, place: int, step: KernelStep) -> list[Plain]:
        steps: list[Plain] = []
        for ring in self.rings:
            for fill, names in enumerate(ring.fills):
                loaded = [name for name in names if name in step.writes]
                if not loaded:
                    continue
                full = self._counters.barrier(ring.barrier_name(1), ring, fill)
                total = sum(self.kernel.tile(name).stage_bytes for name in loaded)
                expects: Plain = {"expect": full, "bytes": total}
                signals: Plain = {"barrier": full}
                if leads(self.kernel, ring.turns[fill][1].roles):  # at the barrier of the block that waits
                    expects |= {"bytes": total * acting_blocks(self.kernel), "when": _IN_FIRST_BLOCK}
                    signals["barrier_rank"] = 0
                own_places = [each for each in ring.turns[fill][0].places if self.kernel.steps[each].role == step.role]
                if not self._arrives_by_itself(own_places, ring.home):
                    expects["arrive"] = False
                steps.append(expects)
                for name in loaded:
                    for piece in self._pieces.of_tile(ring, name, place):
                        steps += self._copies(self.kernel.tile(name), piece, signals)
        return steps

    def _copies(self, tile: KernelTile, piece: Piece, signals: Plain) -> list[Plain]:
        """The copies of a piece: one, or one for the slice of each block; those for all blocks have a mask."""
        blocks = acting_blocks(self.kernel)
        if blocks == 1 or tile.multicast is None:
            copy: Plain = {"copy": piece.slot, "bytes": piece.bytes} | signals
            return [copy | ({"when": piece.when} if piece.when else {})]
        parts = blocks if tile.multicast == "slices" else 1
        return [
            {"copy": piece.slot, "bytes": piece.bytes // parts, "offset": part * (piece.bytes // parts)}
            | signals
            | {"mask": every_block(self.kernel), "when": piece.if_also(f"rank == {part}").when}
            for part in range(parts)
        ]

    def _tensor_product(self, place: int, step: KernelStep) -> list[Plain]:
        operands = self._pieces.of_tiles(step.inputs, place)
        into = self._pieces.of_tiles(step.writes, place)
        always = [piece.slot for piece in operands if not piece.when]
        steps: list[Plain] = []
        for number, target in enumerate(into):
            read = always if number == 0 else always[:1]
            product: Plain = {"multiply": read, "unit": "tcgen05", "into": target.slot}
            steps.append(product | ({"when": target.when} if target.when else {}))
        steps += [{"multiply": [piece.slot], "unit": "tcgen05", "when": piece.when} for piece in operands if piece.when]
        for_all: Plain = {"mask": every_block(self.kernel)} if leads(self.kernel, [step.role]) else {}
        return [product | for_all for product in steps]

    def _thread_code(self, role: KernelRole, place: int, step: KernelStep) -> list[Plain]:
        read = self._pieces.of_tiles(step.inputs, place)
        written = self._pieces.of_tiles(step.writes, place)
        steps = self._list_steps("read", read)
        if not written:
            loaded = any(self._is_loaded(name) for name in step.inputs)
            return [*steps, {"fence": "proxy.async"}] if loaded else steps
        exchanged = [name for name in step.writes if self.kernel.tile(name).exchanged]
        all_meet = self._all_instances_meet(role) if exchanged else []
        if any(self.stages[name] == 1 for name in exchanged):
            steps += all_meet
        steps += self._meeting(role, place, "before")
        steps += self._list_steps("write", written)
        if any(self._meets_async_proxy(name) for name in step.tiles):
            steps.append({"fence": "proxy.async"})
        return steps + (all_meet or self._meeting(role, place, "after"))

    def _all_instances_meet(self, role: KernelRole) -> list[Plain]:
        """All instances of a role wait for each other, at a named barrier behind those of the roles' instances."""
        number = _FIRST_BAR + sum(other.instances for other in self.kernel.roles if other.warps > 1)
        for other in self.kernel.roles:
            if other.name == role.name:
                break
            number += _exchanges(self.kernel, other)
        return [{"sync": number, "threads": role.threads * role.instances}]

    def _meeting(self, role: KernelRole, place: int, when: str) -> list[Plain]:
        """The warps of a role wait for each other, if others of them use the same tile in shared memory."""
        if role.warps == 1:
            return []
        step = self.kernel.steps[place]
        names = step.inputs if when == "threads" else step.writes
        used_again = any(
            self.kernel.tile(name).memory == "shared" and (self._used_by_role(name, role, place) or name in step.inputs)
            for name in names
        )
        if not used_again:
            return []
        first = _FIRST_BAR
        for other in self.kernel.roles:
            if other.name == role.name:
                break
            first += other.instances if other.warps > 1 else 0
        number: int | str = first if role.instances == 1 else f"{first} + instance"
        return [{"sync": number, "threads": role.threads}]

    def _used_by_role(self, tile: str, role: KernelRole, place: int) -> bool:
        """Whether another step of the role uses the tile, or an overlaid one."""
        over = {tile, *(name for pair in self._overlaid() if tile in pair for name in pair)}
        return any(
            other != place and step.role == role.name and over & set(step.tiles)
            for other, step in enumerate(self.kernel.steps)
        )

    def _overlaid(self) -> list[set[str]]:
        return [set(first.tiles) | set(second.tiles) for first, second in self.shared.overlays]

    def _meets_async_proxy(self, name: str) -> bool:
        """Whether copies or products use the bytes of a tile, directly or through an overlaid tile."""
        if self.kernel.tile(name).memory != "shared":
            return False
        over = {name, *(each for pair in self._overlaid() if name in pair for each in pair)}
        return any(step.operation in ASYNC_PROXY and over & set(step.tiles) for step in self.kernel.steps)

    def _is_loaded(self, name: str) -> bool:
        """Whether TMA writes the tile, so that a fence is between what threads read and the next load."""
        return any(step.operation == "load" for _, step in self.kernel.writes_of(name))

    def _list_steps(self, operation: str, pieces: Sequence[Piece]) -> list[Plain]:
        """One step for all pieces that are always used, and one for each that depends on the stage."""
        always = [piece.slot for piece in pieces if not piece.when]
        steps: list[Plain] = [{operation: always}] if always else []
        return steps + [{operation: [piece.slot], "when": piece.when} for piece in pieces if piece.when]


def _mark_steps(steps: list[Plain], place: int) -> list[Plain]:
    """The steps with the place of the kernel's step that they belong to."""
    return [step | {"at": f"{STEP_MARK}{place}"} for step in steps]
