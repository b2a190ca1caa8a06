"""The C of a kernel's roles: the synchronization of its pipeline, and calls of the arithmetic in the same places.

The pipeline's steps name the kernel's step to which they belong. A wait becomes `mbarrier_wait`, an expectation the
copies of its bytes, and the first action of a kernel's step is preceded by the call of its gap function.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilescope.kernel_plan.cluster_arrivals import acting_blocks, every_block, leads
from tilescope.kernel_plan.handovers import Ring, derive_rings
from tilescope.kernel_plan.kernel_description import KernelStep
from tilescope.kernel_plan.kernel_pipeline import STEP_MARK
from tilescope.kernel_plan.planned_kernel import KernelPlan, PlacedTile
from tilescope.kernel_plan.ring_counters import round_number
from tilescope.pipeline.expression import reference
from tilescope.pipeline.parts import Loop, Role, Step
from tilescope.tensor_map import TensorMap

INDENT = "    "
_ARITHMETIC = ("read", "write", "multiply")
_ARRIVING = ("arrive", "commit")
_COMMIT = {
    "wgmma": 'asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");',
    "bulk": 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");',
}
_WAIT_GROUP = {
    "wgmma": 'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
    "bulk": 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");',
}
_FENCE = {
    "proxy.async": 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");',
    "tcgen05.after": 'asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");',
    "tcgen05.before": 'asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");',
}
_FIXED = {"commit": _COMMIT, "wait_group": _WAIT_GROUP, "fence": _FENCE}


def role_lines(plan: KernelPlan, role: Role) -> list[str]:
    """The steps of a role: the synchronization of the pipeline, and its arithmetic in the same places.

    If a role only copies and issues products, one thread does all of it. Other threads would wait without arriving, and
    could miss a phase.
    """
    writer = _RoleWriter(plan, role.name)
    if not writer.is_of_one_thread(role.steps):
        return writer.lines(role.steps, ())
    collective = [step for step in role.steps if isinstance(step, Step) and step.op == "registers"]
    alone = [step for step in role.steps if step not in collective]
    body = [f"{INDENT}{line}" for line in writer.lines(alone, ())]
    return [*writer.lines(collective, ()), f"{INDENT * 2}if (leads) {{", *body, f"{INDENT * 2}}}"]


class _RoleWriter:
    """Writes the steps of one role; the kernel's own steps are called where their actions are."""

    def __init__(self, plan: KernelPlan, name: str) -> None:
        self.plan = plan
        self.kernel = plan.kernel
        self.rings = derive_rings(plan.kernel)
        self.loops = [loop.name for loop in plan.kernel.loops]
        self.role = self.kernel.role(name)
        self.called: set[int] = set()

    def is_of_one_thread(self, steps: Sequence[Step | Loop]) -> bool:
        """Whether one thread does all steps: copies and products of tcgen05, without a synchronization of warps."""
        operations = [step.operation for step in self.kernel.steps if step.role == self.role.name]
        is_alone = bool(operations) and all(operation in ("load", "store", "tcgen05.mma") for operation in operations)
        return is_alone and not any(_has_meeting(step) for step in steps)

    def lines(self, steps: Sequence[Step | Loop], path: tuple[str, ...]) -> list[str]:
        """The text of steps at one level of loops."""
        margin = INDENT * (2 + len(path))
        own_places = [
            place
            for place, step in enumerate(self.kernel.steps)
            if step.role == self.role.name and self.kernel.path(step.loop) == path
        ]
        text: list[str] = []
        for step in steps:
            place = _first_place(step)
            if place is not None:
                text += [
                    f"{margin}{self._call(earlier)}"
                    for earlier in own_places
                    if earlier < place and self._is_due(earlier)
                ]
            if isinstance(step, Loop):
                counter = step.counter
                start, count = _in_c(step.start), _in_c(step.count)
                end = count if start == "0" else f"{start} + {count}"
                text.append(f"{margin}for (int {counter} = {start}; {counter} < {end}; ++{counter}) {{")
                text += self.lines(step.steps, (*path, counter))
                text.append(f"{margin}}}")
                continue
            if place in own_places and (step.op in _ARITHMETIC or step.op in _ARRIVING) and self._is_due(place):
                text.append(f"{margin}{self._call(place)}")
            is_own = place in own_places and self.kernel.steps[place].operation in ("load", "tcgen05.mma")
            only = "if (leads) " if is_own and step.op == "wait" else ""  # others would wait without arriving
            text += [f"{margin}{only}{line}" for line in self._action(step, place)]
        return text + [f"{margin}{self._call(place)}" for place in own_places if self._is_due(place)]

    def _is_due(self, place: int) -> bool:
        """Whether the arithmetic of a step is not called yet."""
        return place not in self.called and self.kernel.steps[place].operation not in ("load", "store")

    def _call(self, place: int) -> str:
        self.called.add(place)
        step = self.kernel.steps[place]
        inside = self.kernel.path(step.loop)
        counters = "".join(f", {name}" if name in inside else ", 0" for name in self.loops)
        return f"{gap_name(step, place)}(shared, instance{counters});"

    def _action(self, step: Step, place: int | None) -> list[str]:
        """The C of one step of the pipeline."""
        match step.op:
            case "wait" | "tail":
                return [f"mbarrier_wait({_bar(step.target)}, {_in_c(step.arguments['parity'])});"]
            case "expect":
                assert place is not None
                return self._load(step, place)
            case "arrive":
                is_of_warps = int(step.arguments.get("count", 1)) > 1
                who = "threadIdx.x % 32 == 0" if is_of_warps else "leads"
                meeting = ["__syncwarp();"] if is_of_warps else []
                return [*meeting, f"if ({_if_also(who, step)}) {_call_at('mbarrier_arrive', step)}"]
            case "commit" if step.target not in _COMMIT:
                return [f"if (leads) {_call_at('tensor_commit', step)}"]
            case "commit" | "wait_group" | "fence":
                return [_FIXED[step.op][str(step.target)]]
            case "sync":
                return [f"bar_sync({_in_c(step.target)}, {step.arguments['threads']});"]
            case "registers":
                change = "dec" if int(str(step.target)) < self.plan.entry_registers else "inc"
                return [f'asm volatile("setmaxnreg.{change}.sync.aligned.u32 {step.target};");']
            case "store":
                assert place is not None
                return self._store(place)
        return []

    def _load(self, step: Step, place: int) -> list[str]:
        """The expected bytes, and the copies that load them."""
        barrier, stage = reference("expect", step.target)
        ring = self._ring_of(barrier)
        arrives = step.arguments.get("arrive", True)
        expects = "mbarrier_arrive_expect" if arrives else "mbarrier_expect"
        bar = _bar(step.target)
        expected = f"{expects}({bar}, {step.arguments['bytes']});"
        condition = step.when
        text = ["if (leads) {", f"{INDENT}if ({_in_c(condition)}) {expected}" if condition else f"{INDENT}{expected}"]
        fill = next(names for names in ring.fills if set(names) & set(self.kernel.steps[place].writes))
        for name in fill:
            if name in self.kernel.steps[place].writes:
                text += [f"{INDENT}{line}" for line in self._copies(self.plan.tile(name), place, _in_c(stage), bar)]
        return [*text, "}"]

    def _store(self, place: int) -> list[str]:
        """The copies of all tiles that a step stores; they are written once, at its first action."""
        if place in self.called:
            return []
        self.called.add(place)
        text = ["if (leads) {"]
        for name in self.kernel.steps[place].inputs:
            tile = self.plan.tile(name)
            ring = next(ring for ring in self.rings if name in ring.tiles)
            stage = "0" if tile.stages == 1 else f"{round_number(self.kernel, ring.home)} % {tile.stages}"
            text += [f"{INDENT}{line}" for line in self._copies(tile, place, stage, "")]
        return [*text, "}"]

    def _copies(self, tile: PlacedTile, place: int, stage: str, bar: str) -> list[str]:
        """The copies of a tile's boxes, in or out."""
        inside = self.kernel.path(self.kernel.steps[place].loop)
        counters = "".join(f", {name}" if name in inside else ", 0" for name in self.loops)
        if tile.tensor_map is None or tile.plan is None:
            smem = self._stage_address(tile, stage)
            size = self.kernel.tile(tile.name).stage_bytes
            from_start = f"global_{tile.name} + gap_offset_{tile.name}(instance{counters})"
            if bar:
                return [f"copy_bytes_in({smem}, {from_start}, {bar}, {size});"]
            return [f"copy_bytes_out({from_start}, {smem}, {size});"]
        rank = tile.tensor_map.rank
        text = [
            f"int at_{tile.name}[{rank}] = {{}};",
            f"gap_coordinates_{tile.name}(at_{tile.name}, instance{counters});",
        ]
        if tile.convolution is not None:
            text.append(f"unsigned short tap_{tile.name}[{rank - 2}] = {{}};")
            text.append(f"gap_tap_{tile.name}(tap_{tile.name}, instance{counters});")
        for copy in tile.plan.copies:
            coords = [*copy.coords, *(0 for _ in range(rank - len(copy.coords)))]
            at = [
                f"at_{tile.name}[{axis}] + {start}" if start else f"at_{tile.name}[{axis}]"
                for axis, start in enumerate(coords)
            ]
            smem = f"{self._stage_address(tile, stage)} + {copy.smem_offset_bytes}"
            if bar:
                text.append(self._copy_in(tile, smem, bar, at))
            else:
                text.append(f"copy_out(&map_{tile.name}, {smem}, {{{', '.join(at)}}});")
        return text

    def _copy_in(self, tile: PlacedTile, smem: str, bar: str, at: list[str]) -> str:
        """A load: into one block, into all of them, or for the barrier of the first block."""
        multicast = self.kernel.tile(tile.name).multicast if acting_blocks(self.kernel) > 1 else None
        if multicast == "slices":
            assert isinstance(tile.tensor_map, TensorMap)
            at = [at[0], f"{at[1]} + rank * {tile.tensor_map.box[1]}", *at[2:]]
            smem = f"{smem} + rank * {tile.tensor_map.smem_bytes}"
        arguments = f"{smem}, &map_{tile.name}, {bar}, {{{', '.join(at)}}}"
        if tile.convolution is not None:
            arguments += f", tap_{tile.name}"
        if multicast is not None:
            only_first = "if (rank == 0) " if multicast == "first" else ""
            return f"{only_first}copy_in_all({arguments}, {every_block(self.kernel)});"
        readers = [step.role for _, step in self.kernel.reads_of(tile.name)]
        return f"copy_in_for_first({arguments});" if leads(self.kernel, readers) else f"copy_in({arguments});"

    def _ring_of(self, barrier: str) -> Ring:
        """The ring whose tiles a barrier tells to be filled."""
        return next(ring for ring in self.rings if ring.is_passed_on and ring.barrier_name(1) == barrier)

    def _stage_address(self, tile: PlacedTile, stage: str) -> str:
        """Where a stage of a tile starts, in C.

        Of two tiles of different sizes that take turns, a slot starts behind the slots before it, which hold the other tile
        and its own in turn.
        """
        ring = next(ring for ring in self.rings if tile.name in ring.tiles)
        if len(ring.fills) == 2:
            own_bytes, other_bytes = (self._slot_bytes(name) for name in (tile.name, *(set(ring.tiles) - {tile.name})))
            if own_bytes != other_bytes:
                return f"shared.{tile.name}.data + (({stage}) + 1) / 2 * {other_bytes} + ({stage}) / 2 * {own_bytes}"
        row = self.plan.kernel.tile(tile.name)
        copies = self.plan.kernel.copies_of(row)
        index = stage if copies == 1 else f"({stage}) * {copies} + instance"
        return (
            f"shared.{tile.name}.data" if index == "0" else f"shared.{tile.name}.data + ({index}) * {tile.stage_bytes}"
        )

    def _slot_bytes(self, name: str) -> int:
        tile = self.plan.tile(name)
        return self.plan.kernel.tile(name).stage_bytes if tile.plan is None else tile.plan.smem_bytes


def _has_meeting(step: Step | Loop) -> bool:
    """Whether warps synchronize in a step, or inside a loop."""
    return any(_has_meeting(inner) for inner in step.steps) if isinstance(step, Loop) else step.op == "sync"


def _first_place(step: Step | Loop) -> int | None:
    """The place of the kernel's step that an action belongs to; of a loop, that of its first one."""
    if isinstance(step, Loop):
        return next((place for inner in step.steps if (place := _first_place(inner)) is not None), None)
    return int(step.at.removeprefix(STEP_MARK)) if step.at else None


def _if_also(who: str, step: Step) -> str:
    """The threads that do a step, in C: with its condition, if it has one."""
    return f"{who} && {_in_c(step.when)}" if step.when else who


def _call_at(function: str, step: Step) -> str:
    """A call for a barrier of the own block, or of those that the step's mask has."""
    mask = step.arguments.get("mask")
    return f"{function}({_bar(step.target)});" if mask is None else f"{function}_at({_bar(step.target)}, {mask});"


def _bar(target: object) -> str:
    """The address of a barrier, in C."""
    name, stage = reference("barrier", target)
    return f"&shared.bars.{name}[{_in_c(stage)}]"


def _in_c(expression: object) -> str:
    """An expression of the pipeline in C."""
    return str(expression).replace(" and ", " && ").replace(" or ", " || ")


def gap_name(step: KernelStep, place: int) -> str:
    """The function for the arithmetic of a step."""
    return f"gap_{identifier(step.role)}_{place}"


def identifier(text: str) -> str:
    """A name that C takes: S[1] is S_1."""
    return re.sub(r"\W+", "_", text).strip("_")
