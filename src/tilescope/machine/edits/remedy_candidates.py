"""Instructions that could order two accesses, and where to insert them: what `remedy` tries, the narrowest first.

race                 bar.warp.sync, bar.sync or barrier.cluster between the two; fence.acq_rel where blocks synchronize by a flag
proxy fence          fence.proxy.async after the writer, or before the issuer
copy wait            mbarrier.try_wait in a loop before the reader
refill, store source, cp.async       the wait of the thread that reads or copies, and a barrier
accumulators         wgmma.wait_group before the access, wgmma.fence before the product
block end            the wait, or barrier.cluster, before ret
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Literal, NamedTuple

from tilescope.arch import WARP_LANES
from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.launch.launch import Launch
from tilescope.machine.program import Program
from tilescope.machine.report.race_report import is_lost_update
from tilescope.ptx.syntax import Immediate, Instruction, Label
from tilescope.sync.detector.race import Conflict, How, Insertion, Mistake, Side

Candidate = tuple[Insertion, ...]
Spot = tuple[Literal["before", "behind"], int]  # next to an instruction, by its pc

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
    """How a thread waits for its own asynchronous work: a commit that closes the group, and a wait for all groups."""

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
_FINISH_STORE = _Finish(
    "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;"
)  # also waits for its writes, not only for its reads
_ASYNC_PROXY: frozenset[How] = frozenset({"copy", "wgmma", "bulk store"})
_BLOCK_BARRIERS = ("bar.sync", "bar.cta.sync", "barrier.sync", "barrier.cta.sync")
_JUMPS = ("bra", "brx", "call", "ret", "exit")
_MAX_JOINS = 4
_MAX_FLAGS = 3  # accesses of flags next to which a fence is tried
_MAX_WAITS = 8


def find_candidates(launch: Launch, text: KernelText, conflict: Conflict) -> Iterator[Candidate]:
    """Insertions that could fix a conflict; empty if no insertion can."""
    find = _CANDIDATES.get(conflict.mistake)
    if find is None or conflict.before is conflict.now:  # no insertion fixes a store of two values to one address
        return
    if is_lost_update(launch.program, conflict):  # a barrier would order the accesses, and still lose an update
        return
    seen: set[Candidate] = set()
    for candidate in find(_Site(launch, text, conflict)):
        if candidate not in seen:
            seen.add(candidate)
            yield candidate


class _Site:
    """A conflict in its program: its two accesses, and the control flow between them."""

    def __init__(self, launch: Launch, text: KernelText, conflict: Conflict) -> None:
        self.launch = launch
        self.text = text
        self.program: Program = launch.program
        self.conflict = conflict
        self.now: Side = conflict.now

    @property
    def before(self) -> Side:
        """The earlier access; a conflict at the end of a block has none."""
        assert self.conflict.before is not None
        return self.conflict.before

    def instruction(self, pc: int) -> Instruction:
        """The instruction of an access."""
        instruction = self.program.instructions[pc]
        assert instruction is not None  # the implicit return at the end of a body accesses nothing
        return instruction

    def barriers(self) -> tuple[str, ...]:
        """Barriers that both threads can reach, the narrowest first."""
        before, now = self.before.lane, self.now.lane
        block_barriers = tuple(dict.fromkeys((self._nearest_barrier(), BLOCK_BARRIER)))
        if before is None or now is None:
            return block_barriers
        block_lanes = self.launch.block_lanes
        if before // block_lanes != now // block_lanes:
            return (CLUSTER_BARRIER,)
        if before // WARP_LANES == now // WARP_LANES:
            return (WARP_BARRIER, *block_barriers)
        return block_barriers

    def _nearest_barrier(self) -> str:
        """The nearest barrier of the text: specialized warps use their own one, such as bar.sync 1, 128."""
        near = sorted(self._function_body(self.now.pc), key=lambda pc: abs(pc - self.now.pc))
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
        """Whether the program contains a fence.proxy.async."""
        opcode = PROXY_FENCE.rstrip(";")
        return any(
            instruction is not None and instruction.opcode.startswith(opcode)
            for instruction in self.program.instructions
        )

    def last_unrolled(self, pc: int) -> int:
        """The last instruction that the same source line was unrolled to, before the next branch."""
        first = self.instruction(pc)
        last = pc
        for later in range(pc + 1, self._function_body(pc).stop):
            instruction = self.program.instructions[later]
            if instruction is None or instruction.name in _JUMPS or first.source is None:
                break
            if instruction.name == first.name and instruction.source == first.source:
                last = later
        return last

    def spots(self) -> list[Spot]:
        """Places between the two accesses: next to them, then where control flow joins or branches."""
        first, second = self.before.pc, self.now.pc
        adjacent: list[Spot] = [("before", second), ("behind", self.last_unrolled(first))]
        body = self._function_body(second)
        if first not in body:
            return adjacent
        joins = self._joins(body, first, second) if first < second else self._loop_ends(body, first, second)
        return [*adjacent, *list(dict.fromkeys(joins))[:_MAX_JOINS]]

    def _function_body(self, pc: int) -> range:
        """The instructions of the function that an instruction belongs to."""
        starts = [*sorted(self.program.functions.values()), len(self.program.instructions)]
        start = max(start for start in starts if start <= pc)
        return range(start, next(end for end in starts if end > pc))

    def _joins(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """Labels and guarded branches between two instructions, the last one first; those in a wait loop count as its end."""
        waits = self._wait_loops(body)
        targets = {target for _, target in self._branches(body)}
        for pc in range(second, first, -1):
            loop = next((wait for wait in waits if pc in wait), None)
            if loop is not None:
                yield "behind", loop[-1]
            elif pc in targets or self._is_guarded_branch(pc):
                yield "before", pc

    def _loop_ends(self, body: range, first: int, second: int) -> Iterator[Spot]:
        """The back edges, and the starts, of the loops that lead from one instruction back to the other."""
        for branch, target in self._branches(body):
            if target <= second and first <= branch:
                yield "before", branch
                yield "before", target

    def _branches(self, body: range) -> Iterator[tuple[int, int]]:
        """(source, target) of each branch of a function."""
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
        """The loops of a function that only wait, as ranges of pcs."""
        name = next(name for name, start in self.program.functions.items() if start == body.start)
        ends = {branch.start for loop in self.text.wait_loops[name] for branch in loop.branches}
        return [
            range(target, pc + 1)
            for pc, target in self._branches(body)
            if target <= pc and self.instruction(pc).start in ends
        ]

    def is_in_loop(self, pc: int) -> bool:
        """Whether an instruction is in a loop."""
        return any(target <= pc <= branch for branch, target in self._branches(self._function_body(pc)))

    def last_barrier(self) -> int | None:
        """The last barrier of the block between the two accesses."""
        for pc in range(self.now.pc - 1, self.before.pc, -1):
            instruction = self.program.instructions[pc]
            if instruction is not None and instruction.opcode.startswith(_BLOCK_BARRIERS):
                return pc
        return None

    def next_commit(self, pc: int, commit: str) -> int | None:
        """The first instruction from `pc` on that commits a group."""
        opcode = commit.rstrip(";")
        for later in range(pc, self._function_body(pc).stop):
            instruction = self.program.instructions[later]
            if opcode and instruction is not None and instruction.opcode == opcode:
                return later
        return None

    @property
    def end(self) -> int:
        """The last written instruction of the kernel, before the implicit return."""
        return self._function_body(self.program.functions[self.program.entry.name]).stop - 2

    def ends(self) -> list[list[Spot]]:
        """Where the kernel ends: at its last instruction, or at all of its returns."""
        if not self._is_return(self.end):
            return [[("behind", self.end)]]
        returns: list[Spot] = [("before", pc) for pc in range(self.end + 1) if self._is_return(pc)]
        return [returns[-1:]] if len(returns) == 1 else [returns[-1:], returns]

    def _is_return(self, pc: int) -> bool:
        instruction = self.program.instructions[pc]
        return instruction is not None and instruction.name in ("ret", "exit")

    def wait_texts(self, copy: int, waiter: int) -> list[str]:
        """Loops that may wait for a copy: copies of the kernel's own waits, then for its mbarrier, then for other mbarriers."""
        own = self._mbarrier_operands((self.instruction(copy),))
        mbarriers = [instruction for instruction in self.text.instructions if instruction.name == "mbarrier"]
        polls = [instruction for instruction in mbarriers if "parity" in instruction.modifiers]
        polled = [self.text.statement(poll).operands[1:3] for poll in polls]
        polled.sort(key=lambda operands: operands[0] not in own)
        pairs = [(barrier, parity) for barrier, parity in polled]
        pairs += [(barrier, parity) for barrier in own for _, parity in polled]
        others = [instruction for instruction in mbarriers if "parity" not in instruction.modifiers]
        pairs += product((*own, *self._mbarrier_operands(others)), ("0", "1"))
        if self.is_in_loop(waiter):  # the next iteration waits for another phase, so a constant parity is wrong
            pairs = [pair for pair in pairs if not pair[1].isdigit()]
        loops = [WAIT_LOOP.format(barrier=barrier, parity=parity) for barrier, parity in dict.fromkeys(pairs)]
        return loops[:_MAX_WAITS]

    def _mbarrier_operands(self, instructions: Iterable[Instruction]) -> list[str]:
        """The mbarrier operands of copies, inits and arrivals, as they are written."""
        operands: list[str] = []
        for instruction in instructions:
            addresses = [operand for operand in self.text.statement(instruction).operands if operand.startswith("[")]
            operands += addresses[:1] if instruction.name == "mbarrier" else addresses[2:3]
        return list(dict.fromkeys(operands))

    def flag_accesses(self) -> tuple[list[int], list[int]]:
        """Stores that may set a flag, and loads that may read it."""
        stores, loads = [], []
        for pc, access in enumerate(self.program.fact(decode_accesses)):
            if access is not None and access.is_strong:
                if access.kind != "read":
                    stores.append(pc)
                if access.kind != "write":
                    loads.append(pc)
        return stores[:_MAX_FLAGS], loads[:_MAX_FLAGS]


def _insert(text: str, spot: Spot) -> Insertion:
    return Insertion(text, *spot)


def _between(site: _Site, texts: Iterable[str]) -> Iterator[Candidate]:
    """One insertion, at each of the places between the two accesses."""
    for text in texts:
        for spot in site.spots():
            yield (_insert(text, spot),)


def _find_barriers(site: _Site) -> Iterator[Candidate]:
    """Barriers; the thread that issued asynchronous work waits for it first."""
    if "cluster" in site.conflict.facts:
        if site.before.how == "bulk store":
            yield from _find_waits(site, _FINISH_STORE)
        yield from _find_flag_fences(site, CARD_FENCE)
        for spot in site.spots()[:2]:
            yield (_insert(BLOCK_BARRIER, spot),)
        return
    barriers = site.barriers()
    if site.now.how in _ASYNC_PROXY and site.before.how in ("write", "atomic"):
        fenced = tuple(f"{PROXY_FENCE} {barrier}" for barrier in barriers)
        barriers = (*barriers, *fenced) if site.has_proxy_fence else (*fenced, *barriers)
    finish = _FINISH.get(site.before.how)
    if site.conflict.mistake == "race" and site.before.how == "bulk store":
        finish = _FINISH_STORE
    if finish is not None:
        yield from _find_waits(site, finish)
    if WARP_BARRIER not in barriers:  # one lane of the warp may signal for all of them
        barriers = (*barriers, WARP_BARRIER)
    yield from _between(site, barriers)
    if finish is not None:
        yield from _find_waits_and_barriers(site, finish)
    yield from _find_flag_fences(site, BLOCK_FENCE)


def _find_waits(site: _Site, finish: _Finish) -> Iterator[Candidate]:
    """The wait alone: the barrier may exist already."""
    pc = site.before.pc
    if not finish.commit:
        barrier = site.last_barrier()
        if barrier is not None:
            yield (_insert(finish.wait, ("before", barrier)),)
        yield (_insert(finish.wait, ("before", site.now.pc)),)
        yield (_insert(finish.wait, ("behind", pc)),)
        return
    commit = site.next_commit(pc, finish.commit)
    last = site.last_unrolled(pc)
    if commit is not None:
        yield (_insert(finish.wait, ("behind", commit)),)
    else:  # the wait may exist already
        yield (_insert(finish.commit, ("behind", last)),)
    yield (_insert(finish.both, ("behind", last)),)
    if last != pc:
        yield (_insert(finish.both, ("behind", pc)),)


def _find_waits_and_barriers(site: _Site, finish: _Finish) -> Iterator[Candidate]:
    """The wait of the thread that issued the work, then a barrier."""
    for barrier in site.barriers():
        for spot in site.spots():
            if finish.commit:
                yield _insert(finish.both, ("behind", site.before.pc)), _insert(barrier, spot)
            else:
                yield (_insert(f"{finish.wait} {barrier}", spot),)


def _find_flag_fences(site: _Site, fence: str) -> Iterator[Candidate]:
    """Fences next to the flags by which threads synchronize."""
    stores, loads = site.flag_accesses()
    for pc in stores:
        yield (_insert(fence, ("before", pc)),)
    for pc in loads:
        yield (_insert(fence, ("behind", pc)),)
    for pc in stores:
        if pc in loads:
            yield _insert(fence, ("before", pc)), _insert(fence, ("behind", pc))


def _find_proxy_fences(site: _Site) -> Iterator[Candidate]:
    barrier = site.last_barrier()
    if barrier is not None:
        yield (_insert(PROXY_FENCE, ("before", barrier)),)
    yield (_insert(PROXY_FENCE, ("behind", site.before.pc)),)
    yield (_insert(PROXY_FENCE, ("before", site.now.pc)),)


def _find_copy_waits(site: _Site) -> Iterator[Candidate]:
    if "relaxed" in site.conflict.facts:  # the thread has waited, and needs a fence
        yield (_insert(BLOCK_FENCE, ("before", site.now.pc)),)
    for wait in site.wait_texts(site.before.pc, site.now.pc):
        yield (_insert(wait, ("before", site.now.pc)),)
    yield from _between(site, (BLOCK_BARRIER,))  # one thread waits, and the others do not


def _find_product_waits(site: _Site) -> Iterator[Candidate]:
    finish = _FINISH["wgmma"]
    yield (_insert(finish.wait, ("before", site.now.pc)),)
    yield (_insert(finish.both, ("before", site.now.pc)),)


def _find_product_fences(site: _Site) -> Iterator[Candidate]:
    yield (_insert(PRODUCT_FENCE, ("before", site.now.pc)),)


def _find_init_fences(site: _Site) -> Iterator[Candidate]:
    if site.launch.cluster_blocks > 1:
        fence = _insert(INIT_FENCE, ("behind", site.before.pc))
        yield (fence,)
        for spot in _joins_first(site):
            yield fence, _insert(CLUSTER_BARRIER, spot)
            yield (_insert(CLUSTER_BARRIER, spot),)
        return
    for spot in _joins_first(site):
        yield (_insert(BLOCK_BARRIER, spot),)


def _joins_first(site: _Site) -> list[Spot]:
    """Where control flow joins after an init: one thread initialises, and all threads get there."""
    adjacent, joins = site.spots()[:2], site.spots()[2:]
    return [*reversed(joins), *adjacent]


def _find_map_fences(site: _Site) -> Iterator[Candidate]:
    copy = site.text.statement(site.instruction(site.now.pc))
    source = next((operand for operand in copy.operands if operand.startswith("[") and "{" in operand), None)
    release = _insert(MAP_RELEASE, ("behind", site.before.pc))
    yield (release,)
    if source is not None:
        tensor_map = source.strip("[]").partition(",")[0].strip()
        acquire = _insert(MAP_ACQUIRE.format(map=tensor_map), ("before", site.now.pc))
        yield (acquire,)
        yield release, acquire


def _find_end_waits(site: _Site) -> Iterator[Candidate]:
    now = site.now
    finish = _FINISH.get(now.how)
    issuer_texts: list[str] = []
    if now.how == "copy":
        texts = site.wait_texts(now.pc, site.end)
        issuer_texts = site.wait_texts(now.pc, now.pc)
    elif finish is not None:
        texts = [finish.wait, finish.both]
        issuer_texts = [finish.both]
    else:
        texts = [CLUSTER_BARRIER]
    for text in texts:
        for spots in site.ends():
            yield tuple(_insert(text, spot) for spot in spots)
    for text in issuer_texts:
        yield (_insert(text, ("behind", now.pc)),)


_CANDIDATES: dict[Mistake, Callable[[_Site], Iterator[Candidate]]] = {
    "race": _find_barriers,
    "lane order": _find_barriers,
    "proxy fence": _find_proxy_fences,
    "copy wait": _find_copy_waits,
    "refill": _find_barriers,
    "accumulators": _find_product_waits,
    "accumulator fence": _find_product_fences,
    "store source": _find_barriers,
    "cp.async": _find_barriers,
    "barrier init": _find_init_fences,
    "barrier reuse": _find_barriers,
    "map fence": _find_map_fences,
    "block end": _find_end_waits,
}
