"""The slots of a pipeline: who touched them last, whether that is finished, and whether the next access may begin.

    TMA writes ── its barrier's phase ends ──▶ wgmma reads ── wait_group ──▶ released, filled again

An access that begins while an earlier one is not known to be finished is a race in some order of the roles, even if
not in this one. Threads reach shared memory through the generic proxy; TMA and tensor cores through the async proxy,
and a fence has to stand between what threads wrote and what these read.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from tilescope.pipeline.mistake import Mistake, MistakeFoundError, example, pipeline_rule
from tilescope.pipeline.program import Program

State = TypeVar("State")
Clock = Any  # an int64 array: for every agent and barrier, how far its past reaches
ASYNC = ("tma", "bulk", "wgmma", "tcgen05", "store")
_MOST_ENDS = 64  # ways to know that one access is finished: barriers of a multicast commit, and later commits
_DOES = {
    "tma": "a TMA copy writes",
    "bulk": "a bulk copy writes",
    "cp.async": "cp.async writes",
    "wgmma": "wgmma reads",
    "store": "a TMA store reads",
}
_FINISH = {
    "tma": "Expect its bytes on its barrier and wait for that phase first.",
    "bulk": "Expect its bytes on its barrier and wait for that phase first.",
    "cp.async": "Wait for its group or barrier first.",
    "wgmma": "Let wgmma.wait_group come before the release.",
    "tcgen05": "Let tcgen05.commit release the slot, not an arrival.",
    "store": "Let the issuing thread wait with cp.async.bulk.wait_group.read first.",
}


_STORED = ({"write": ["a"]}, {"fence": "proxy.async"}, {"store": ["a"]}, {"commit": "bulk"})
FENCE = pipeline_rule(
    "pipeline-fence", "A fence stands between accesses of threads and those of TMA or tensor cores, and around tensor memory.",
    example(_STORED[0], _STORED[2]), source="PTX ISA, async proxy; tcgen05.fence",
)  # fmt: skip
RACE = pipeline_rule(
    "pipeline-race", "A slot is written only when all reads of it are finished, and read only when it is filled.",
    example({"expect": "full", "bytes": 64}, {"copy": "a", "bytes": 64, "barrier": "full"}, {"read": ["a"]}),
    source="PTX ISA, memory consistency model",
)  # fmt: skip
STALE = pipeline_rule(
    "pipeline-stale", "A slot holds the tile that its reader means.",
    example({"write": ["a"], "tile": 0}, {"read": ["a"], "tile": 1}), source="the tiles that the steps name",
)  # fmt: skip
UNFILLED = pipeline_rule(
    "pipeline-unfilled", "A slot is filled before it is read.", example({"read": ["a"]}), source="the steps themselves",
)  # fmt: skip


def copied(state: State) -> State:
    """A copy of a part of the state: its lists and tables are copied, what they hold is shared."""
    other = object.__new__(type(state))
    for name, value in vars(state).items():
        setattr(other, name, value.copy() if isinstance(value, list | dict) else value)
    return other


class Access(NamedTuple):
    """One access to a slot; with a `key` it ends later than it begins, and `Memory.finished` says when."""

    agent: int
    time: int
    write: bool
    how: str  # generic, tma, bulk, cp.async, wgmma, tcgen05, store
    key: int | None = None
    fill: tuple[int, int] | None = (
        None  # the barrier and phase that count a copy's bytes: copies of one fill may overlap
    )


class Memory:
    """What happened to every slot instance."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.accesses: list[tuple[Access, ...]] = [()] * program.slot_count
        self.content: list[int | None] = [None] * program.slot_count
        self.finished: dict[
            int, tuple[tuple[int, int], ...]
        ] = {}  # key: places of a clock, and the value that means finished
        self.uses: dict[int, int] = {}  # key: accesses that still name it
        agents = len(program.agents)
        self.proxy_fences: list[tuple[int, ...]] = [()] * agents
        self.before_fences: list[tuple[int, ...]] = [()] * agents
        self.proxy_clock: list[Clock | None] = [None] * agents
        self.after_clock: list[Clock | None] = [None] * agents
        self.phases: list[int] = []  # the running phase of every barrier, as the machine keeps it
        self.warnings: dict[tuple[str, str, str], Mistake] = {}

    def clone(self) -> Memory:
        """An independent copy."""
        return copied(self)

    def key(self) -> tuple[Any, ...]:
        """What distinguishes two states for what may come: contents, and accesses under way."""
        under_way = tuple(
            tuple((each.agent, each.write, each.how) for each in group if each.key is not None and not self.finished.get(each.key))
            for group in self.accesses
        )  # fmt: skip
        return tuple(self.content), under_way

    def alive(self, key: int) -> bool:
        """Whether an access with this key may still matter."""
        return key in self.uses

    def finish(self, key: int, place: int, value: int) -> None:
        """From now on whoever has `value` at `place` of its clock knows that the access is finished."""
        if key in self.uses:
            self.finished[key] = (*self.finished.get(key, ())[-_MOST_ENDS:], (place, value))

    def ordered(self, access: Access, clock: Clock) -> bool:
        """Whether the access is finished for whoever has this clock."""
        if access.key is None:
            return bool(clock[access.agent] >= access.time)
        return any(clock[place] >= value for place, value in self.finished.get(access.key, ()))

    def touch(self, slot: int, access: Access, clock: Clock, tile: int | None = None) -> None:
        """Begin an access, or stop at the race that it makes."""
        kept: list[Access] = []
        for earlier in self.accesses[slot]:
            same_fill = earlier.write and access.write and earlier.fill is not None and earlier.fill == access.fill
            in_order = earlier.how == access.how == "tcgen05" and earlier.agent == access.agent
            if not (earlier.write or access.write):
                if earlier.agent != access.agent or not self.ordered(earlier, clock):
                    kept.append(earlier)
                else:
                    self._forget(earlier)
                continue
            if not same_fill and not in_order:
                if not self.ordered(earlier, clock):
                    self._race(slot, earlier, access)
                self._check_fences(slot, earlier, access, clock)
            if same_fill or not access.write:
                kept.append(earlier)
            else:
                self._forget(earlier)
        if not access.write:
            self._check_content(slot, access, tile)
        if access.key is not None:
            self.uses[access.key] = self.uses.get(access.key, 0) + 1
        self.accesses[slot] = (*kept, access)

    def fill(self, slot: int, tile: int | None) -> None:
        """The slot holds a tile now."""
        self.content[slot] = tile

    def _forget(self, access: Access) -> None:
        if access.key is not None:
            self.uses[access.key] -= 1
            if not self.uses[access.key]:
                del self.uses[access.key]
                self.finished.pop(access.key, None)

    def _check_content(self, slot: int, access: Access, tile: int | None) -> None:
        name, agent = self.program.slot_name(slot), self.program.agents[access.agent].name
        if not any(each.write for each in self.accesses[slot]):
            raise MistakeFoundError(Mistake(
                "pipeline-unfilled", "wrong data", name, f"{agent} reads {name} before anything has filled it",
                "it reads garbage", "Wait for the barrier that its copy completes, with the parity of its first phase: 0.",
            ))  # fmt: skip
        held = self.content[slot]
        if tile is not None and held is not None and held != tile:
            raise MistakeFoundError(Mistake(
                "pipeline-stale", "wrong data", name, f"{agent} reads tile {tile} from {name}, which holds tile {held}",
                "it multiplies wrong data", "Let both sides count stages and phases over the whole kernel.",
            ))  # fmt: skip

    def _race(self, slot: int, earlier: Access, access: Access) -> None:
        name = self.program.slot_name(slot)
        agents = self.program.agents
        if (
            not access.write
            and earlier.fill is not None
            and earlier.fill[0] >= 0
            and self.phases[earlier.fill[0]] > earlier.fill[1]
        ):
            barrier, phase = self.program.barrier_name(earlier.fill[0]), earlier.fill[1]
            raise MistakeFoundError(Mistake(
                "pipeline-bytes", "race", barrier,
                f"phase {phase} of {barrier} ends before all copies that signal it have landed in {name}",
                f"{agents[access.agent].name} reads old bytes, and those that come late spoil the next phase",
                "Expect the bytes of every copy in the phase that it signals, before the last arrival.",
            ))  # fmt: skip
        doing = "is written" if access.write else "is read"
        still = "" if earlier.key is None else " still"
        order = f"Let a barrier order {agents[earlier.agent].name} before {agents[access.agent].name}."
        raise MistakeFoundError(Mistake(
            "pipeline-race", "race", name,
            f"{name} {doing} by {agents[access.agent].name} ({_words(access)}) while {_doing(earlier, agents[earlier.agent].name, still)}",
            "the data is torn in some order of the roles",
            _FINISH.get(earlier.how, order),
        ))  # fmt: skip

    def _check_fences(self, slot: int, earlier: Access, access: Access, clock: Clock) -> None:
        """Refuse an access that is in order but lacks the fence that its kind needs."""
        tmem = self.program.slot(slot).space == "tmem"
        if tmem:
            self._check_tmem(slot, earlier, access, clock)
        elif access.how in ASYNC and earlier.how == "generic":
            fenced = any(earlier.time < fence <= clock[earlier.agent] for fence in self.proxy_fences[earlier.agent])
            if fenced:
                return
            said = self._missing_fence(
                slot, earlier, access, "fence.proxy.async", "behind the access and before the barrier"
            )
            if earlier.write:
                raise MistakeFoundError(said)
            key = said.rule, self.program.slot(slot).name, self.program.agents[earlier.agent].name
            self.warnings.setdefault(key, said)
        elif access.how in ASYNC and earlier.how == "cp.async":
            reader = self.proxy_clock[access.agent]
            by_writer = any(earlier.time < fence <= clock[earlier.agent] for fence in self.proxy_fences[earlier.agent])
            if not by_writer and (reader is None or not self.ordered(earlier, reader)):
                raise MistakeFoundError(
                    self._missing_fence(
                        slot, earlier, access, "fence.proxy.async", "between the copy's end and the read"
                    )
                )

    def _check_tmem(self, slot: int, earlier: Access, access: Access, clock: Clock) -> None:
        if earlier.agent == access.agent:
            return
        if earlier.how == "tcgen05" and access.how == "generic":
            after = self.after_clock[access.agent]
            if after is None or not self.ordered(earlier, after):
                raise MistakeFoundError(
                    self._missing_fence(slot, earlier, access, "tcgen05.fence::after_thread_sync", "behind the wait")
                )
        if earlier.how == "generic" and access.how == "tcgen05":
            fences = self.before_fences[earlier.agent]
            if not any(earlier.time < fence <= clock[earlier.agent] for fence in fences):
                raise MistakeFoundError(
                    self._missing_fence(
                        slot, earlier, access, "tcgen05.fence::before_thread_sync", "before the arrival"
                    )
                )

    def _missing_fence(self, slot: int, earlier: Access, access: Access, fence: str, where: str) -> Mistake:
        name, agents = self.program.slot_name(slot), self.program.agents
        first, second = agents[earlier.agent].name, agents[access.agent].name
        did = "wrote" if earlier.write else "read"
        verb = "writes" if access.write else "reads"
        return Mistake(
            "pipeline-fence", "race", name,
            f"{first} {did} {name} ({_words(earlier)}) and {second} {verb} it ({_words(access)}) without {fence}",
            "the second may come before the first", f"Put {fence} {where}.",
        )  # fmt: skip


def _words(access: Access) -> str:
    return {"generic": "threads", "store": "TMA store", "tma": "TMA", "bulk": "bulk copy"}.get(access.how, access.how)


def _doing(access: Access, name: str, still: str) -> str:
    if access.how in ("generic", "tcgen05"):
        verb = "writes" if access.write else "reads"
        return f"{name} ({_words(access)}){still} {verb} it"
    subject, _, verb = _DOES[access.how].rpartition(" ")
    return f"{subject} of {name}{still} {verb} it"
