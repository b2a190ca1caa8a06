"""Instructions that could order two accesses, and where to put them: what `remedy` tries, the narrowest first.

race                 bar.warp.sync, bar.sync or barrier.cluster between the two; fence.acq_rel where blocks meet at a flag
proxy fence          fence.proxy.async behind the writer, or before the issuer
copy wait            mbarrier.try_wait in a loop before the reader
refill, store source, cp.async       the wait of whoever reads or copies, and a barrier
accumulators         wgmma.wait_group before the access, wgmma.fence before the product
block end            the wait, or barrier.cluster, before ret
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Literal, NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.access_semantics import decode_access
from tilescope.machine.dataflow import is_lost_update
from tilescope.machine.edits.change import KernelText
from tilescope.machine.edits.removals import waiting
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.ptx.syntax import Immediate, Instruction, Label
from tilescope.sync.detector.race import Conflict, How, Insertion, Mistake, Side

Candidate = tuple[Insertion, ...]
Spot = tuple[Literal["before", "behind"], int]  # a place beside an instruction, by its pc

WARP_BARRIER = "bar.warp.sync 0xffffffff;"
BLOCK_BARRIER = "bar.sync 0;"
CLUSTER_BARRIER = "barrier.cluster.arrive; barrier.cluster.wait;"
PROXY_FENCE = "fence.proxy.async;"
CARD_FENCE = "fence.acq_rel.gpu;"
BLOCK_FENCE = "fence.acq_rel.cta;"
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
MAP_RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
MAP_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [{map}], 128;"
PRODUCT_FENCE = "wgmma.fence.sync.aligned;"
WAIT_LOOP = (
    "{{ .reg .pred tilescope_seen; tilescope_wait:"
    " mbarrier.try_wait.parity.shared::cta.b64 tilescope_seen, {barrier}, {parity}; @!tilescope_seen bra tilescope_wait; }}"
)


class _Finish(NamedTuple):
    """How a thread waits for its own asynchronous work: the end of a group, and the wait for all of them."""

    commit: str
    wait: str

    @property
    def both(self) -> str:
        return f"{self.commit} {self.wait}".strip()


_FINISH: dict[How, _Finish] = {
    "wgmma": _Finish("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"),
    "bulk store": _Finish("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;"),
    "cp.async": _Finish("", "cp.async.wait_all;"),
}
_STORED = _Finish("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;")  # what it wrote, not only what it read
_BY_UNITS: frozenset[How] = frozenset({"copy", "wgmma", "bulk store"})  # accesses by the async proxy
_BLOCK_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
_LEAVING = ("bra", "brx", "call", "ret", "exit")
_MOST_JOINTS = 4
_MOST_FLAGS = 3  # accesses of flags beside which a fence is tried
_MOST_WAITS = 8


def candidates(launch: Launch, text: KernelText, conflict: Conflict) -> Iterator[Candidate]:
    """Insertions that could make a conflict go away; none where nothing of ours could."""
    make = _CANDIDATES.get(conflict.mistake)
    if make is None or conflict.before is conflict.now:  # one store of two values needs another program
        return
    if not is_lost_update(launch.program, conflict):
        yield from dict.fromkeys(make(_Meeting(launch, text, conflict)))


class _Meeting:
    """Two accesses that nothing orders, in their program."""

    def __init__(self, launch: Launch, text: KernelText, conflict: Conflict) -> None:
        self.launch = launch
        self.text = text
        self.program: Program = launch.program
        self.conflict = conflict
        self.now: Side = conflict.now

    @property
    def before(self) -> Side:
        """The access that came first; a block's end has none."""
        assert self.conflict.before is not None
        return self.conflict.before

    def instruction(self, pc: int) -> Instruction:
        """The instruction of an access."""
        found = self.program.instructions[pc]
        assert found is not None  # the end of a body touches nothing
        return found

    def barriers(self) -> tuple[str, ...]:
        """Barriers that both threads can come to, the narrowest first."""
        before, now = self.before.lane, self.now.lane
        of_block = tuple(dict.fromkeys((self._nearest_barrier(), BLOCK_BARRIER)))
        if before is None or now is None:
            return of_block
        block_lanes = self.launch.block_lanes
        if before // block_lanes != now // block_lanes:
            return (CLUSTER_BARRIER,)
        if before // WARP_LANES == now // WARP_LANES:
            return (WARP_BARRIER, *of_block)
        return of_block

    def _nearest_barrier(self) -> str:
        """The barrier that stands nearest: warps with a part of their own have one of their own, as bar.sync 1, 128."""
        near = sorted(self._body_of(self.now.pc), key=lambda pc: abs(pc - self.now.pc))
        for pc in near:
            instruction = self.program.instructions[pc]
            if instruction is None or instruction.guard is not None:
                continue
            is_fixed = all(isinstance(operand, Immediate) for operand in instruction.operands)
            if is_fixed and instruction.opcode.startswith(_BLOCK_BARRIERS):
                return self.text.statement(instruction).written
        return BLOCK_BARRIER

    @property
    def has_proxy_fence(self) -> bool:
        """Whether the program has a fence.proxy.async somewhere."""
        wanted = PROXY_FENCE.rstrip(";")
        return any(one is not None and one.opcode.startswith(wanted) for one in self.program.instructions)

    def last_of_line(self, pc: int) -> int:
        """The last of the instructions that a line of the source was unrolled to, before the next branch."""
        first = self.instruction(pc)
        last = pc
        for one in range(pc + 1, self._body_of(pc).stop):
            instruction = self.program.instructions[one]
            if instruction is None or instruction.name in _LEAVING or first.source is None:
                break
            if instruction.name == first.name and instruction.source == first.source:
                last = one
        return last

    def spots(self) -> list[Spot]:
        """Places between the two: beside them, then where paths meet or part."""
        first, second = self.before.pc, self.now.pc
        beside: list[Spot] = [("before", second), ("behind", self.last_of_line(first))]
        body = self._body_of(second)
        if first not in body:
            return beside
        joints = self._joints(body, first, second) if first < second else self._turns(body, first, second)
        return [*beside, *list(dict.fromkeys(joints))[:_MOST_JOINTS]]

    def _body_of(self, pc: int) -> range:
        """The instructions of the function that an instruction belongs to."""
        starts = [*sorted(self.program.functions.values()), len(self.program.instructions)]
        start = max(one for one in starts if one <= pc)
        return range(start, next(one for one in starts if one > pc))

    def _joints(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """Labels and guarded branches between two instructions, from the second on backwards; none inside a wait."""
        waits = self._wait_loops(body)
        targets = {target for _, target in self._branches(body)}
        for pc in range(second, first, -1):
            loop = next((one for one in waits if pc in one), None)
            if loop is not None:
                yield "behind", loop[-1]
            elif pc in targets or self._is_guarded_branch(pc):
                yield "before", pc

    def _turns(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """Where the loops begin again that lead from one instruction back to the other, and where they begin."""
        for branch, target in self._branches(body):
            if target <= second and first <= branch:
                yield "before", branch
                yield "before", target

    def _branches(self, body: range) -> Iterator[tuple[int, int]]:
        """(from, to) of the branches of a function."""
        for pc in body:
            instruction = self.program.instructions[pc]
            if instruction is not None and instruction.name == "bra":
                target = instruction.operands[0]
                assert isinstance(target, Label)
                yield pc, body.start + target.target

    def _is_guarded_branch(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is not None and instruction.name == "bra" and instruction.guard is not None

    def _wait_loops(self, body: range) -> list[range]:
        """The loops of a function that do nothing but wait."""
        name = next(name for name, start in self.program.functions.items() if start == body.start)
        loops = waiting(self.program.module.functions[name])
        ends = {branch.start for loop in loops for branch in loop.branches}
        return [
            range(target, pc + 1)
            for pc, target in self._branches(body)
            if target <= pc and self.instruction(pc).start in ends
        ]

    def repeats(self, pc: int) -> bool:
        """Whether an instruction stands in a loop."""
        return any(target <= pc <= branch for branch, target in self._branches(self._body_of(pc)))

    def last_barrier(self) -> int | None:
        """The last barrier of the block that stands between the two."""
        for pc in range(self.now.pc - 1, self.before.pc, -1):
            instruction = self.program.instructions[pc]
            if instruction is not None and instruction.opcode.startswith(_BLOCK_BARRIERS):
                return pc
        return None

    def next_commit(self, pc: int, commit: str) -> int | None:
        """The first instruction behind another one that ends a group."""
        opcode = commit.rstrip(";")
        for one in range(pc, self._body_of(pc).stop):
            instruction = self.program.instructions[one]
            if opcode and instruction is not None and instruction.opcode == opcode:
                return one
        return None

    @property
    def end(self) -> int:
        """The last instruction of the kernel that somebody wrote."""
        return self._body_of(self.program.functions[self.program.entry.name]).stop - 2

    def ends(self) -> list[list[Spot]]:
        """Where the kernel ends: at its last instruction; or at every return, where there are several."""
        if not self._is_return(self.end):
            return [[("behind", self.end)]]
        returns: list[Spot] = [("before", pc) for pc in range(self.end + 1) if self._is_return(pc)]
        return [returns[-1:]] if len(returns) == 1 else [returns[-1:], returns]

    def _is_return(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is not None and instruction.name in ("ret", "exit")

    def waits(self, copy: int, waiter: int) -> list[str]:
        """Loops that may wait for a copy: as others of the kernel wait, then for its own mbarrier, then for others."""
        own = self._mbarriers_named((self.instruction(copy),))
        polls = [one for one in self.text.instructions if one.name == "mbarrier" and "parity" in one.modifiers]
        asked = [self.text.statement(poll).operands[1:3] for poll in polls]
        asked.sort(key=lambda operands: operands[0] not in own)
        pairs = [(barrier, parity) for barrier, parity in asked]
        pairs += [(barrier, parity) for barrier in own for _, parity in asked]
        prepared = [one for one in self.text.instructions if one.name == "mbarrier" and "parity" not in one.modifiers]
        pairs += product((*own, *self._mbarriers_named(prepared)), ("0", "1"))
        if self.repeats(waiter):  # the next turn waits for another phase
            pairs = [pair for pair in pairs if not pair[1].isdigit()]
        loops = [WAIT_LOOP.format(barrier=barrier, parity=parity) for barrier, parity in dict.fromkeys(pairs)]
        return loops[:_MOST_WAITS]

    def _mbarriers_named(self, instructions: Iterable[Instruction]) -> list[str]:
        """The operands of copies, inits and arrivals that are mbarriers, as they are written."""
        found = []
        for instruction in instructions:
            addresses = [one for one in self.text.statement(instruction).operands if one.startswith("[")]
            found += addresses[:1] if instruction.name == "mbarrier" else addresses[2:3]
        return list(dict.fromkeys(found))

    def flags(self) -> tuple[list[int], list[int]]:
        """Stores that may be flags, and loads that may look at them."""
        stores, loads = [], []
        for pc, instruction in enumerate(self.program.instructions):
            access = decode_access(instruction)
            if access is not None and access.is_strong:
                if access.kind != "read":
                    stores.append(pc)
                if access.kind != "write":
                    loads.append(pc)
        return stores[:_MOST_FLAGS], loads[:_MOST_FLAGS]


def _one(text: str, spot: Spot) -> Insertion:
    return Insertion(text, *spot)


def _between(meeting: _Meeting, texts: Iterable[str]) -> Iterator[Candidate]:
    """One insertion at each of the places between the two accesses."""
    for text in texts:
        for spot in meeting.spots():
            yield (_one(text, spot),)


def _meetings(meeting: _Meeting) -> Iterator[Candidate]:
    """Barriers; what is asynchronous is finished first by whoever started it."""
    if "cluster" in meeting.conflict.facts:
        if meeting.before.how == "bulk store":
            yield from _finished(meeting, _STORED)
        yield from _fences(meeting, CARD_FENCE)
        for spot in meeting.spots()[:2]:
            yield (_one(BLOCK_BARRIER, spot),)
        return
    barriers = meeting.barriers()
    if meeting.now.how in _BY_UNITS and meeting.before.how in ("write", "atomic"):
        fenced = tuple(f"{PROXY_FENCE} {barrier}" for barrier in barriers)
        barriers = (*barriers, *fenced) if meeting.has_proxy_fence else (*fenced, *barriers)
    finish = _FINISH.get(meeting.before.how)
    if meeting.conflict.mistake == "race" and meeting.before.how == "bulk store":
        finish = _STORED
    if finish is not None:
        yield from _finished(meeting, finish)
    if WARP_BARRIER not in barriers:  # one lane of the warp may be the one that tells others
        barriers = (*barriers, WARP_BARRIER)
    yield from _between(meeting, barriers)
    if finish is not None:
        yield from _finished_and_met(meeting, finish)
    yield from _fences(meeting, BLOCK_FENCE)


def _finished(meeting: _Meeting, finish: _Finish) -> Iterator[Candidate]:
    """The wait alone, where barriers stand already."""
    pc = meeting.before.pc
    if not finish.commit:
        barrier = meeting.last_barrier()
        if barrier is not None:
            yield (_one(finish.wait, ("before", barrier)),)
        yield (_one(finish.wait, ("before", meeting.now.pc)),)
        yield (_one(finish.wait, ("behind", pc)),)
        return
    commit = meeting.next_commit(pc, finish.commit)
    last = meeting.last_of_line(pc)
    if commit is not None:
        yield (_one(finish.wait, ("behind", commit)),)
    else:  # a wait may stand there already
        yield (_one(finish.commit, ("behind", last)),)
    yield (_one(finish.both, ("behind", last)),)
    if last != pc:
        yield (_one(finish.both, ("behind", pc)),)


def _finished_and_met(meeting: _Meeting, finish: _Finish) -> Iterator[Candidate]:
    """The wait by whoever started the work, then a barrier."""
    for barrier in meeting.barriers():
        for spot in meeting.spots():
            if finish.commit:
                yield _one(finish.both, ("behind", meeting.before.pc)), _one(barrier, spot)
            else:
                yield (_one(f"{finish.wait} {barrier}", spot),)


def _fences(meeting: _Meeting, fence: str) -> Iterator[Candidate]:
    """Fences beside the flags by which threads tell each other."""
    stores, loads = meeting.flags()
    for pc in stores:
        yield (_one(fence, ("before", pc)),)
    for pc in loads:
        yield (_one(fence, ("behind", pc)),)
    for pc in stores:
        if pc in loads:
            yield _one(fence, ("before", pc)), _one(fence, ("behind", pc))


def _proxy_fences(meeting: _Meeting) -> Iterator[Candidate]:
    barrier = meeting.last_barrier()
    if barrier is not None:
        yield (_one(PROXY_FENCE, ("before", barrier)),)
    yield (_one(PROXY_FENCE, ("behind", meeting.before.pc)),)
    yield (_one(PROXY_FENCE, ("before", meeting.now.pc)),)


def _copy_waits(meeting: _Meeting) -> Iterator[Candidate]:
    if "relaxed" in meeting.conflict.facts:  # somebody has waited, and needs a fence
        yield (_one(BLOCK_FENCE, ("before", meeting.now.pc)),)
    for wait in meeting.waits(meeting.before.pc, meeting.now.pc):
        yield (_one(wait, ("before", meeting.now.pc)),)
    yield from _between(meeting, (BLOCK_BARRIER,))  # somebody waits, but not everybody


def _products(meeting: _Meeting) -> Iterator[Candidate]:
    finish = _FINISH["wgmma"]
    yield (_one(finish.wait, ("before", meeting.now.pc)),)
    yield (_one(finish.both, ("before", meeting.now.pc)),)


def _product_fences(meeting: _Meeting) -> Iterator[Candidate]:
    yield (_one(PRODUCT_FENCE, ("before", meeting.now.pc)),)


def _inits(meeting: _Meeting) -> Iterator[Candidate]:
    if meeting.launch.cluster_blocks > 1:
        fence = _one(INIT_FENCE, ("behind", meeting.before.pc))
        yield (fence,)
        for spot in _joints_first(meeting):
            yield fence, _one(CLUSTER_BARRIER, spot)
            yield (_one(CLUSTER_BARRIER, spot),)
        return
    for spot in _joints_first(meeting):
        yield (_one(BLOCK_BARRIER, spot),)


def _joints_first(meeting: _Meeting) -> list[Spot]:
    """Where paths meet behind an init: one thread inits, and all of them come there."""
    beside, joints = meeting.spots()[:2], meeting.spots()[2:]
    return [*reversed(joints), *beside]


def _map_fences(meeting: _Meeting) -> Iterator[Candidate]:
    copy = meeting.text.statement(meeting.instruction(meeting.now.pc))
    through = next((one for one in copy.operands if one.startswith("[") and "{" in one), None)
    release = _one(MAP_RELEASE, ("behind", meeting.before.pc))
    yield (release,)
    if through is not None:
        tensor_map = through.strip("[]").partition(",")[0].strip()
        acquire = _one(MAP_ACQUIRE.format(map=tensor_map), ("before", meeting.now.pc))
        yield (acquire,)
        yield release, acquire


def _ends(meeting: _Meeting) -> Iterator[Candidate]:
    now = meeting.now
    finish = _FINISH.get(now.how)
    by_issuer: list[str] = []
    if now.how == "copy":
        texts = meeting.waits(now.pc, meeting.end)
        by_issuer = meeting.waits(now.pc, now.pc)
    elif finish is not None:
        texts = [finish.wait, finish.both]
        by_issuer = [finish.both]
    else:
        texts = [CLUSTER_BARRIER]
    for text in texts:
        for spots in meeting.ends():
            yield tuple(_one(text, spot) for spot in spots)
    for text in by_issuer:
        yield (_one(text, ("behind", now.pc)),)


_CANDIDATES: dict[Mistake, Callable[[_Meeting], Iterator[Candidate]]] = {
    "race": _meetings,
    "proxy fence": _proxy_fences,
    "copy wait": _copy_waits,
    "refill": _meetings,
    "accumulators": _products,
    "accumulator fence": _product_fences,
    "store source": _meetings,
    "cp.async": _meetings,
    "barrier init": _inits,
    "barrier reuse": _meetings,
    "map fence": _map_fences,
    "block end": _ends,
}
