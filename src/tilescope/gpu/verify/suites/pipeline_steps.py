"""A pipeline as rows of integers, which kernels/pipelines.cu carries out.

    description ── loops run, names worked out ──▶ actions ── one order on the host ──▶ serials that reads must see
                                                      └──▶ rows of eight integers ──▶ card

A copy is a bulk copy, whatever the description says: both fill shared memory and count bytes on an mbarrier. What wgmma reads,
the first warp reads when it is issued, and again when it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilescope.arithmetic import ceil_div
from tilescope.gpu.verify.suites import Array
from tilescope.gpu.verify.suites.pipeline_actions import (
    Action,
    Agent,
    NotRunnableError,
    copied_bytes,
    meeting_threads,
    stages,
    unroll_pipeline,
)
from tilescope.gpu.verify.suites.pipeline_order import NEVER, Key, Order, Seen
from tilescope.pipeline.description import Pipeline
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.thread_limits import WARP_THREADS

# As kernels/pipelines.cu numbers them
OPS = (
    "end",
    "wait",
    "expect",
    "arrive",
    "copy",
    "cp_async",
    "cp_arrive",
    "read",
    "write",
    "store",
    "commit",
    "wait_group",
    "fence",
    "sync",
    "bar_arrive",
    "cluster",
    "init",
)
_GROUPS = ("bulk", "cp.async")
_FENCES = ("proxy.async", "mbarrier_init")
_MEETINGS = ("sync", "arrive", "wait")
MAX_WARPS = 16  # of a block
MARK = 0x7115C0DE  # the last word of a chunk
ROW_BYTES = 4096  # of the source: what the copy with one serial reads
_MAX_SERIALS = 1000
_MAX_ROWS = 6000
_MAX_SLOTS_BYTES = 32 << 10
_OVERFLOW_BYTES = 8 << 10  # after the slots: a copy that is too long stays in the block's memory
_MAX_PENDING = 7  # groups that wait_group names
# After these the warps of a role meet: a role initialises, waits, and waits for its bulk stores as one
_WARPS_MEET_AFTER = (("init",), ("wait",), ("wait_group", _GROUPS.index("bulk")))


class Place(NamedTuple):
    """The meaning of a row of integers."""

    agent: str
    action: Action


class Encoded:
    """A pipeline as the interpreter reads it; NotRunnableError where it cannot run it, or a barrier of it faults."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.pipeline = Pipeline.from_dict(data)
        self.blocks = self.pipeline.blocks
        self.agents = unroll_pipeline(self.pipeline)
        self.counts = [part.size for part in stages(self.pipeline.barriers)]
        self.slots = stages(self.pipeline.slots)
        self._check()
        self.is_ready = not any(action.op == "init" for agent in self.agents for action in agent.actions)
        self.slots_at = ceil_div(8 * len(self.counts), 128) * 128
        ends = np.cumsum([self.slots_at, *(part.size for part in self.slots)]).tolist()
        self.slot_at, self.slots_end = ends[:-1], ends[-1]
        self.smem_bytes = self.slots_end + _OVERFLOW_BYTES
        self.serials = _serial_numbers(self.agents)
        self.seen = self._one_order()
        self.target_bytes = 0
        self.expected: list[Array] = []
        self.expected_chunks = 0
        self.rows: list[list[int]] = []
        self.places: list[Place] = []  # of the rows
        self.warps: list[list[list[int]]] = [[] for _ in range(self.blocks)]  # of every block
        for number, agent in enumerate(self.agents):
            self._add(number, agent)
        if len(self.rows) > _MAX_ROWS or any(len(warps) > MAX_WARPS for warps in self.warps):
            raise NotRunnableError("more steps or warps than the interpreter takes")

    @property
    def warps_of_cluster(self) -> int:
        """The warps of all blocks."""
        return sum(agent.warps for agent in self.agents)

    def warp_table(self) -> list[list[int]]:
        """A row for each warp that a block may have: (first step or -1, number in the role, warps of the role, role, number)."""
        idle = [-1, 0, 1, 0, 0]
        rows = []
        for warps in self.warps:
            rows += [*warps, *[idle] * (MAX_WARPS - len(warps))]
        return rows

    def _check(self) -> None:
        """Refuse what the interpreter has no instruction for."""
        if self.blocks not in (1, 2, 4):
            raise NotRunnableError(f"clusters of {self.blocks}")
        for slot in self.pipeline.slots:
            if slot.space != "smem" or slot.bytes % CHUNK_BYTES or not 0 < slot.bytes <= ROW_BYTES:
                raise NotRunnableError(f"slot {slot.name}: {slot.bytes} bytes of {slot.space}")
        if sum(part.size for part in self.slots) > _MAX_SLOTS_BYTES:
            raise NotRunnableError("more shared memory than the interpreter takes")
        if sum(len(agent.actions) for agent in self.agents) > _MAX_ROWS:
            raise NotRunnableError("more steps than the interpreter takes")
        for agent in self.agents:
            for action in agent.actions:
                words = self._refusal_of(agent, action)
                if words:
                    raise NotRunnableError(f"{action.op}: {words}")

    def _refusal_of(self, agent: Agent, action: Action) -> str:
        """Why the interpreter cannot do an action; empty where it can."""
        if any(rank >= self.blocks for rank in action.ranks(agent.block)):
            return "a mask beyond the cluster"
        if action.op not in (*OPS, "tail", "release", "multiply"):
            return "no such step"
        refused = _REFUSED.get(action.op)
        return "" if refused is None else refused(agent, action)

    def _one_order(self) -> Seen:
        """What an order of the roles shows; three are tried, since one may fault where another does not."""
        turns = range(len(self.agents))
        seen = Order(self.pipeline, self.agents, self.serials).run(turns, eager=False)
        for others, eager in ((turns, True), (turns[::-1], True), (turns[::-1], False)):
            Order(self.pipeline, self.agents, self.serials).run(others, eager=eager)
        return seen

    def _add(self, number: int, agent: Agent) -> None:
        """The rows of an agent, and its warps."""
        first = len(self.rows)
        warps = self.warps[agent.block]
        role = len({row[0] for row in warps})
        cp_threads = min(
            WARP_THREADS * agent.warps if agent.threads > 1 else 1,
            *(action.arguments["count"] for action in agent.actions if action.op == "cp_arrive"),
            WARP_THREADS * agent.warps,
        )
        multiplied: list[list[int]] = []  # reads by wgmma since its last commit
        groups: list[list[list[int]]] = []
        for place, action in enumerate(agent.actions):
            if action.op == "commit" and action.targets[0] == "wgmma":
                groups.append(multiplied)
                multiplied = []
                continue
            rows = self._rows((number, place), agent, action, cp_threads)
            if action.op == "multiply" and action.arguments["unit"] == "wgmma":
                multiplied += rows
            if action.op == "wait_group" and action.targets[0] == "wgmma":
                # what is read until here must still be there
                completed = max(0, len(groups) - action.arguments["pending"])
                rows = [row for group in groups[:completed] for row in group]
                groups = groups[completed:]
            self.rows += rows
            self.places += [Place(agent.title, action)] * len(rows)
        self.rows.append([0] * 8)
        self.places.append(Place(agent.title, Action("end", (), {"mask": None})))
        before = sum(len(each) for each in self.warps)
        warps += [[first, warp, agent.warps, role, before + warp] for warp in range(agent.warps)]

    def _rows(self, key: Key, agent: Agent, action: Action, cp_threads: int) -> list[list[int]]:
        """An action as rows: one for every block or slot that it acts on."""
        match action.op:
            case "init":
                return [_row("init", barrier, self.counts[barrier]) for barrier in action.targets]
            case "expect" | "arrive" | "release":
                return self._arrival_rows(agent, action)
            case "copy":
                return [self._copy_row(key, action, action.ranks(agent.block), cp_threads)]
            case "read" | "multiply" | "write" | "store":
                return self._slot_rows(key, action)
            case "sync" | "bar_arrive":
                return [_row(action.op, action.targets[0], meeting_threads(self.agents, agent, action))]
            case _:
                return [_plain_row(action)]

    def _arrival_rows(self, agent: Agent, action: Action) -> list[list[int]]:
        arguments = action.arguments
        barrier = action.targets[0]
        ranks = action.ranks(agent.block)
        if action.op == "expect":
            return [_row("expect", barrier, arguments["bytes"], int(arguments["arrive"]), rank) for rank in ranks]
        return [_row("arrive", barrier, arguments["count"], rank) for rank in ranks]

    def _slot_rows(self, key: Key, action: Action) -> list[list[int]]:
        """A row for every slot that is read, written or stored."""
        by_first_warp = int(action.arguments.get("unit") == "wgmma")
        rows = []
        for place, slot in enumerate(action.targets):
            at = self.slot_at[slot]
            size = self.slots[slot].size
            if action.op == "write":
                rows.append(_row("write", at, size // CHUNK_BYTES, self.serials[key]))
                continue
            chunks, first = self._expected_serials(key, place, slot)
            if action.op == "store":
                rows.append(_row("store", at, chunks, first, self.target_bytes))
                self.target_bytes += size
            else:
                rows.append(_row("read", at, chunks, first, by_first_warp))
        return rows

    def _copy_row(self, key: Key, action: Action, ranks: Sequence[int], cp_threads: int) -> list[int]:
        arguments = action.arguments
        offset = self.seen.offsets.get(key, arguments.get("offset") or 0)
        at = self.slot_at[action.targets[0]] + offset
        size = arguments["bytes"]
        source = self.serials[key] * ROW_BYTES + offset
        if arguments["by"] == "cp.async":
            return _row("cp_async", at, size, source, cp_threads)
        mask = sum(1 << rank for rank in ranks)
        return _row("copy", arguments["barrier"], at, size, mask, source, arguments.get("lanes") or 1)

    def _expected_serials(self, key: Key, place: int, slot: int) -> tuple[int, int]:
        """The chunks of a read and where the serials that it must see begin."""
        chunks = self.slots[slot].size // CHUNK_BYTES
        first = self.expected_chunks
        seen = self.seen.serials.get(key)
        self.expected.append(np.full(chunks, NEVER, np.uint32) if seen is None else seen[place])
        self.expected_chunks += chunks
        return chunks, first


def _plain_row(action: Action) -> list[int]:
    """An action that acts on no slot, and only on its own block."""
    target = action.targets[0]
    arguments = action.arguments
    match action.op:
        case "wait" | "tail":
            return _row("wait", target, arguments["parity"])
        case "cp_arrive":
            return _row("cp_arrive", target, arguments["count"], int(arguments["noinc"]))
        case "commit":
            return _row("commit", _GROUPS.index(target))
        case "wait_group":
            group = _GROUPS.index(target) if target in _GROUPS else 0
            return _row("wait_group", group, arguments["pending"], int(arguments["read"]))
        case "fence":
            return _row("fence", _FENCES.index(target))
        case _:
            return _row("cluster", _MEETINGS.index(target))


def _refused_copy(_agent: Agent, action: Action) -> str:
    """Why the interpreter cannot do a copy; empty where it can."""
    arguments = action.arguments
    is_whole = arguments["bytes"] % CHUNK_BYTES == 0 or arguments["by"] == "bulk"
    offset = arguments.get("offset") or 0
    if not is_whole or offset % CHUNK_BYTES or offset + copied_bytes(action) > _OVERFLOW_BYTES:
        return "bytes or a place that no bulk copy has"
    if arguments["barrier_rank"] is not None or (arguments.get("lanes") or 1) > WARP_THREADS:
        return "no such bulk copy"
    if arguments["by"] == "cp.async" and arguments["mask"] is not None:
        return "cp.async to another block"
    if arguments["by"] != "cp.async" and arguments["barrier"] is None:
        return "without a barrier"
    return ""


def _refused_cp_arrive(agent: Agent, action: Action) -> str:
    fits = 0 < action.arguments["count"] <= WARP_THREADS * agent.warps
    return "" if fits else "more arrivals than the role has threads"


def _refused_arrive(_agent: Agent, action: Action) -> str:
    return "arrive_drop" if action.arguments["drop"] else ""


def _refused_multiply(_agent: Agent, action: Action) -> str:
    is_tcgen05 = action.arguments["unit"] == "tcgen05" or action.arguments["mask"] is not None
    return "tcgen05" if is_tcgen05 else ""


def _refused_commit(_agent: Agent, action: Action) -> str:
    return "" if action.targets[0] in ("wgmma", *_GROUPS) else "tcgen05"


def _refused_wait_group(_agent: Agent, action: Action) -> str:
    return "more groups than an instruction names" if action.arguments["pending"] > _MAX_PENDING else ""


def _refused_fence(_agent: Agent, action: Action) -> str:
    return "" if action.targets[0] in _FENCES else "no such fence"


def _refused_meeting(_agent: Agent, action: Action) -> str:
    return "" if 0 <= action.targets[0] < MAX_WARPS else "no such barrier of threads"


def _refused_store(_agent: Agent, action: Action) -> str:
    return "a part of a slot" if action.arguments["bytes"] else ""


def _refused_wait(_agent: Agent, action: Action) -> str:
    return "" if action.arguments["parity"] in (0, 1) else "a parity other than 0 and 1"


# why the interpreter cannot do an action of an operation; empty where it can
_REFUSED: dict[str, Callable[[Agent, Action], str]] = {
    "copy": _refused_copy,
    "cp_arrive": _refused_cp_arrive,
    "arrive": _refused_arrive,
    "multiply": _refused_multiply,
    "commit": _refused_commit,
    "wait_group": _refused_wait_group,
    "fence": _refused_fence,
    "sync": _refused_meeting,
    "bar_arrive": _refused_meeting,
    "store": _refused_store,
    "wait": _refused_wait,
    "tail": _refused_wait,
}


def _row(op: str, *numbers: int) -> list[int]:
    """A step as kernels/pipelines.cu reads it: what it is, six numbers, and whether the role's warps meet after it."""
    warps_meet = (op,) in _WARPS_MEET_AFTER or (op, *numbers[:1]) in _WARPS_MEET_AFTER
    return [OPS.index(op), *numbers, *[0] * (6 - len(numbers)), int(warps_meet)]


def _serial_numbers(agents: Sequence[Agent]) -> dict[Key, int]:
    """A number for every copy and every write, by agent and action."""
    filling = [
        (number, place)
        for number, agent in enumerate(agents)
        for place, action in enumerate(agent.actions)
        if action.op in ("copy", "write")
    ]
    if len(filling) > _MAX_SERIALS:
        raise NotRunnableError("more copies and writes than the interpreter numbers")
    return {key: serial for serial, key in enumerate(filling)}


def source_rows(count: int) -> Array:
    """The memory that copies read: row `serial` holds the chunks of the copy with that serial."""
    serial, chunk = np.divmod(np.arange(count * ROW_BYTES // CHUNK_BYTES, dtype=np.uint32), ROW_BYTES // CHUNK_BYTES)
    return np.stack([serial, chunk, ~serial, np.full_like(serial, MARK)], axis=1).astype("<u4")
