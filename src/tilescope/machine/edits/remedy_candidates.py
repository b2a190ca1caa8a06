"""Edits that could order two accesses: what `remedy` tries, the likeliest first.

race                 bar.warp.sync, bar.sync or barrier.cluster between the two; a wider scope where blocks synchronize by a flag
proxy fence          fence.proxy.async after the writer, or before the issuer
copy wait            mbarrier.try_wait in a loop before the reader
refill, store source, cp.async       a wait for more groups; the wait of the thread that reads or copies, and a barrier
accumulators         wgmma.wait_group before the access, wgmma.fence before the product
block end            the wait, or barrier.cluster, before ret

Synchronization that is there but too weak (stronger_operands.py) is corrected before anything is inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from tilescope.machine.edits.conflict_site import ConflictSite, NamedBarrier, Spot
from tilescope.machine.edits.converged_places import Convergence
from tilescope.machine.edits.kernel_text import KernelText
from tilescope.machine.edits.stronger_operands import (
    Corrections,
    larger_barriers,
    larger_counts,
    names_counts,
    smaller_waits,
    wider_scopes,
)
from tilescope.machine.launch.launch import Launch
from tilescope.machine.report.races.conflict_groups import is_lost_update
from tilescope.sync.detector.race import Conflict, How, Insertion, Mistake

WARP_BARRIER_OPCODE = "bar.warp.sync"
BLOCK_BARRIER = "bar.sync 0;"
CLUSTER_BARRIER = "barrier.cluster.arrive; barrier.cluster.wait;"
PROXY_FENCE = "fence.proxy.async;"
CARD_FENCE = "fence.acq_rel.gpu;"
BLOCK_FENCE = "fence.acq_rel.cta;"
INIT_FENCE = "fence.mbarrier_init.release.cluster;"
MAP_RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
MAP_ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [{map}], 128;"
PRODUCT_FENCE = "wgmma.fence.sync.aligned;"
_ADJACENT_PLACES = 2  # before the later access, and after the earlier one


class Candidate(NamedTuple):
    """Edits that are tried together."""

    insertions: tuple[Insertion, ...] = ()
    corrections: Corrections = ()


class _Finish(NamedTuple):
    """How a thread waits for its own asynchronous work: a commit that closes the group, and a wait for all groups."""

    commit: str
    wait: str
    group_wait: str  # opcode of the waits that leave some groups pending

    @property
    def both(self) -> str:
        return f"{self.commit} {self.wait}".strip()


_FINISH: dict[How, _Finish] = {
    "wgmma": _Finish(
        "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned"
    ),
    "bulk store": _Finish(
        "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group"
    ),
    "cp.async": _Finish("", "cp.async.wait_all;", "cp.async.wait_group"),
}
_FINISH_STORE = _Finish(
    "cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group"
)  # also waits for its writes, not only for its reads
_BY_THREADS: frozenset[How] = frozenset({"read", "write", "atomic"})
_ASYNC_PROXY: frozenset[How] = frozenset({"copy", "wgmma", "bulk store"})


def find_candidates(
    launch: Launch, text: KernelText, conflict: Conflict, converge: Callable[[], Convergence]
) -> Iterator[Candidate]:
    """Edits that could fix a conflict; empty if none can. `converge` runs the kernel once more on its first call."""
    find = _CANDIDATES.get(conflict.mistake)
    if find is None or conflict.before is conflict.now:  # no edit fixes a store of two values to one address
        return
    if is_lost_update(launch.program, conflict):  # a barrier would order the accesses, and still lose an update
        return
    seen: set[Candidate] = set()
    for order in _orders(conflict):
        for candidate in find(ConflictSite(launch, text, order, converge)):
            if candidate not in seen:
                seen.add(candidate)
                yield candidate


def _orders(conflict: Conflict) -> Iterator[Conflict]:
    """A conflict, and the same with its accesses in the other order: nothing orders them, so either may be meant to come first."""
    yield conflict
    before = conflict.before
    if conflict.mistake == "race" and before is not None and {before.how, conflict.now.how} <= _BY_THREADS:
        yield replace(conflict, before=conflict.now, now=before)


def _insert(text: str, *spots: Spot) -> Candidate:
    return Candidate(tuple(Insertion(text, *spot) for spot in spots))


def _insert_behind(site: ConflictSite, text: str, pc: int) -> Iterator[Candidate]:
    """An instruction after another one, then after its unrolled copies too; of copies that follow one another after the last."""
    yield _insert(text, ("behind", site.last_unrolled(pc)))
    copies = sorted({site.last_unrolled(copy) for copy in site.copies(pc)})
    yield _insert(text, *(("behind", copy) for copy in copies))


def _insert_before(site: ConflictSite, text: str, pc: int) -> Iterator[Candidate]:
    """An instruction before another one, then before its unrolled copies too."""
    yield _insert(text, ("before", pc))
    yield _insert(text, *(("before", copy) for copy in site.copies(pc)))


def _correct(corrections: Iterable[Corrections]) -> Iterator[Candidate]:
    for correction in corrections:
        yield Candidate(corrections=correction)


def _insert_barriers(site: ConflictSite, barrier: NamedBarrier, text: str | None = None) -> Iterator[Candidate]:
    """A barrier at each of the places that all its threads reach."""
    for insertions in site.insertions(barrier.text if text is None else text, site.is_reached(barrier)):
        yield Candidate(insertions)


def _find_barriers(site: ConflictSite) -> Iterator[Candidate]:
    """Barriers; the thread that issued asynchronous work waits for it first."""
    finish = _FINISH.get(site.before.how)
    if site.conflict.mistake == "race" and site.before.how == "bulk store":
        finish = _FINISH_STORE
    if finish is not None:
        yield from _correct(smaller_waits(site, finish.group_wait))
        if not site.conflict.is_between_clusters or site.before.how == "bulk store":
            yield from _find_waits(site, finish)
    if site.is_between_blocks:
        yield from _correct(wider_scopes(site))
    if site.conflict.is_between_clusters:
        yield from _find_flag_fences(site, CARD_FENCE)
        yield from islice(_insert_barriers(site, NamedBarrier(BLOCK_BARRIER, None)), _ADJACENT_PLACES)
        return
    if site.program.fact(names_counts):
        yield from _correct(larger_barriers(site))
        yield from _correct(larger_counts(site))
    yield from _find_thread_barriers(site)
    if finish is not None:
        yield from _find_waits_and_barriers(site, finish)
    yield from _find_flag_fences(site, BLOCK_FENCE)


def _find_thread_barriers(site: ConflictSite) -> Iterator[Candidate]:
    """The narrowest barrier that both threads can reach, then wider ones."""
    if site.is_between_blocks:
        yield from _insert_barriers(site, NamedBarrier(CLUSTER_BARRIER, None))
        yield from map(Candidate, site.warp_barriers())  # one lane of the warp may signal for all of them
        return
    if site.is_in_one_warp:
        yield from map(Candidate, site.warp_barriers())
    fences = [""]
    if site.now.how in _ASYNC_PROXY and site.before.how in ("write", "atomic"):
        fences = ["", f"{PROXY_FENCE} "] if site.has_instruction(PROXY_FENCE.rstrip(";")) else [f"{PROXY_FENCE} ", ""]
    for fence in fences:
        for barrier in site.block_barriers():
            yield from _insert_barriers(site, barrier, f"{fence}{barrier.text}")
    if not site.is_in_one_warp:
        yield from map(Candidate, site.warp_barriers())


def _find_warp_barriers(site: ConflictSite) -> Iterator[Candidate]:
    """bar.warp.sync, if lanes of one warp make both accesses."""
    if site.is_in_one_warp:
        yield from map(Candidate, site.warp_barriers())


def _find_waits(site: ConflictSite, finish: _Finish) -> Iterator[Candidate]:
    """Only the wait: the barrier may exist already."""
    pc = site.before.pc
    if not finish.commit:
        barrier = site.last_barrier()
        if barrier is not None:
            yield from _insert_before(site, finish.wait, barrier)
        yield from _insert_before(site, finish.wait, site.now.pc)
        yield from _insert_behind(site, finish.wait, pc)
        return
    commit = site.next_commit(pc, finish.commit)
    last = site.last_unrolled(pc)
    if commit is not None:
        yield from _insert_behind(site, finish.wait, commit)
    else:  # the wait may exist already
        yield from _insert_behind(site, finish.commit, last)
    yield from _insert_behind(site, finish.both, last)
    if last != pc:
        yield _insert(finish.both, ("behind", pc))


def _find_waits_and_barriers(site: ConflictSite, finish: _Finish) -> Iterator[Candidate]:
    """The wait of the thread that issued the work, then a barrier."""
    for barrier in site.block_barriers():
        if not finish.commit:
            yield from _insert_barriers(site, barrier, f"{finish.wait} {barrier.text}")
            continue
        *_, wait = _insert_behind(site, finish.both, site.before.pc)
        for candidate in _insert_barriers(site, barrier):
            yield Candidate((*wait.insertions, *candidate.insertions))


def _find_flag_fences(site: ConflictSite, fence: str) -> Iterator[Candidate]:
    """Fences next to the flags by which threads synchronize."""
    stores, loads = site.flag_accesses()
    for pc in stores:
        yield _insert(fence, ("before", pc))
    for pc in loads:
        yield _insert(fence, ("behind", pc))
    for pc in stores:
        if pc in loads:
            yield _insert(fence, ("before", pc), ("behind", pc))


def _find_proxy_fences(site: ConflictSite) -> Iterator[Candidate]:
    barrier = site.last_barrier()
    if barrier is not None:
        yield from _insert_before(site, PROXY_FENCE, barrier)
    yield from _insert_behind(site, PROXY_FENCE, site.before.pc)
    yield from _insert_before(site, PROXY_FENCE, site.now.pc)


def _find_copy_waits(site: ConflictSite) -> Iterator[Candidate]:
    if "relaxed" in site.conflict.facts:  # the thread has waited, and needs a fence
        yield _insert(BLOCK_FENCE, ("before", site.now.pc))
    for wait in site.wait_texts(site.before.pc, site.now.pc):
        yield _insert(wait, ("before", site.now.pc))
    yield from _insert_barriers(site, NamedBarrier(BLOCK_BARRIER, None))  # one thread waits, and the others do not


def _find_product_waits(site: ConflictSite) -> Iterator[Candidate]:
    finish = _FINISH["wgmma"]
    yield from _correct(smaller_waits(site, finish.group_wait))
    yield from _insert_before(site, finish.wait, site.now.pc)
    yield from _insert_before(site, finish.both, site.now.pc)


def _find_product_fences(site: ConflictSite) -> Iterator[Candidate]:
    yield from _insert_before(site, PRODUCT_FENCE, site.now.pc)


def _find_init_fences(site: ConflictSite) -> Iterator[Candidate]:
    if site.launch.cluster_blocks > 1:
        fence = Insertion(INIT_FENCE, "behind", site.before.pc)
        yield Candidate((fence,))
        for barrier in _joins_first(site, CLUSTER_BARRIER):
            yield Candidate((fence, *barrier.insertions))
            yield barrier
        return
    yield from _joins_first(site, BLOCK_BARRIER)


def _joins_first(site: ConflictSite, text: str) -> list[Candidate]:
    """A barrier where control flow joins after an init: one thread initialises, and all threads get there."""
    candidates = list(_insert_barriers(site, NamedBarrier(text, None)))
    adjacent = [
        candidate
        for candidate in candidates
        if any(insertion.pc in (site.before.pc, site.now.pc) for insertion in candidate.insertions)
    ]
    joins = [candidate for candidate in candidates if candidate not in adjacent]
    return [*reversed(joins), *adjacent]


def _find_map_fences(site: ConflictSite) -> Iterator[Candidate]:
    copy = site.text.statement(site.instruction(site.now.pc))
    source = next((operand for operand in copy.operands if operand.startswith("[") and "{" in operand), None)
    release = Insertion(MAP_RELEASE, "behind", site.before.pc)
    yield Candidate((release,))
    if source is not None:
        tensor_map = source.strip("[]").partition(",")[0].strip()
        acquire = Insertion(MAP_ACQUIRE.format(map=tensor_map), "before", site.now.pc)
        yield Candidate((acquire,))
        yield Candidate((release, acquire))


def _find_end_waits(site: ConflictSite) -> Iterator[Candidate]:
    now = site.now
    finish = _FINISH.get(now.how)
    issuer_texts: list[str] = []
    if now.how == "copy":
        texts = site.wait_texts(now.pc, site.end)
        issuer_texts = site.wait_texts(now.pc, now.pc)
    elif finish is not None:
        yield from _correct(smaller_waits(site, finish.group_wait))
        texts = [finish.wait, finish.both]
        issuer_texts = [finish.both]
    else:
        texts = [CLUSTER_BARRIER]
    for text in texts:
        for spots in site.ends():
            yield _insert(text, *spots)
    for text in issuer_texts:
        yield _insert(text, ("behind", now.pc))


_CANDIDATES: dict[Mistake, Callable[[ConflictSite], Iterator[Candidate]]] = {
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
    "stale read": _find_warp_barriers,
    "map fence": _find_map_fences,
    "block end": _find_end_waits,
}
