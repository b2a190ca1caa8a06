"""Acts without an instruction, which the proof assumes.

wgmma.wait_group by four warps, an arrival by one     ──▶   the four synchronize behind the wait
cp.async, then wgmma, and no proxy fence              ──▶   a fence before the product, as public kernels need none
tcgen05 without any tcgen05.fence, as Triton has it   ──▶   fences around every access to tensor memory
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tilescope.machine.instructions.tensor_core.wgmma import WARPGROUP_WARPS
from tilescope.machine.proof.act import BY_THREADS, Act, CannotSayError
from tilescope.machine.proof.acts import Acts
from tilescope.machine.proof.pieces import tensor_address
from tilescope.sync.cluster_shape import WARPGROUP_LANES
from tilescope.sync.thread_limits import BARS

_COUNTED = ("arrive", "expect", "copy", "store", "commit", "sync", "bar_arrive", "cluster", "cp_arrive")


def add_implied_acts(acts: Acts) -> None:
    """Add the acts that the proof takes for granted."""
    _meet_behind_products(acts)
    _fence_cp_async(acts)
    _fence_tensor_memory(acts)


def _cells_of(acts: Acts, operations: Collection[str]) -> frozenset[int]:
    """The access sets of some operations."""
    return frozenset(act.cells for act in acts.all_acts() if act.op in operations and act.cells is not None)


def _groups(acts: Acts) -> Iterator[tuple[int, ...]]:
    """The warps of every warpgroup that multiplies."""
    of_warp = acts.of_warp
    multiplying = {warp for warp, warp_acts in of_warp.items() if any(_is_wgmma(act) for act in warp_acts)}
    for first in range(0, len(of_warp), WARPGROUP_WARPS):
        warps = tuple(range(first, first + WARPGROUP_WARPS))
        if multiplying.issuperset(warps):
            yield warps


def _meet_behind_products(acts: Acts) -> None:
    """A wgmma belongs to four warps: if one of them then acts for all, they synchronize after its wait."""
    of_warp = acts.of_warp
    bars = {act.target for act in acts.all_acts() if act.op in ("sync", "bar_arrive")}
    free = [bar for bar in reversed(range(BARS)) if bar not in bars]
    for warps in _groups(acts):
        unequal = {number for number, is_equal in enumerate(_equal_rounds(of_warp, warps)) if not is_equal}
        if not unequal:
            continue
        group = warps[0] % acts.block_warps // WARPGROUP_WARPS
        if group >= len(free):
            raise CannotSayError("more warpgroups than barriers of threads are left for", of_warp[warps[0]][0].pc)
        for warp in warps:
            of_warp[warp] = list(_with_meetings(of_warp[warp], free[group], unequal))


def _fence_cp_async(acts: Acts) -> None:
    """cp.async before wgmma: public kernels have no fence there, so none is required if no other fence could be missing."""
    of_warp = acts.of_warp
    sets = acts.sets
    by_cp_async = any(("by", "cp.async") in act.arguments for act in acts.all_acts())
    multiplies = any(act.op == "multiply" for act in acts.all_acts())
    if not by_cp_async or not multiplies:
        return
    written = _cells_of(acts, BY_THREADS)
    read = _cells_of(acts, ("multiply", "store"))
    if written and read:
        both = sets.union(read)
        if sets.without(both, sets.union(written)) != both:
            return
    for warp, warp_acts in of_warp.items():
        fenced: list[Act] = []
        for act in warp_acts:
            if act.op == "multiply":
                fenced.append(_fence_before(act))
            fenced.append(act)
        of_warp[warp] = fenced


def _fence_tensor_memory(acts: Acts) -> None:
    """Triton's kernels have no tcgen05 fences, and barriers order their accesses: a kernel without any needs none."""
    if any(act.op == "fence" and act.target == "tcgen05.before" for act in acts.all_acts()):
        return
    for warp, warp_acts in acts.of_warp.items():
        fenced: list[Act] = []
        for act in warp_acts:
            touches = act.into is not None or (act.cells is not None and _touches_tensor_memory(acts, act.cells))
            if touches:
                fenced.append(Act("fence", act.pc, act.order, target="tcgen05.after"))
            fenced.append(act)
            if touches:
                fenced.append(Act("fence", act.pc, act.order, target="tcgen05.before"))
        acts.of_warp[warp] = fenced


def _touches_tensor_memory(acts: Acts, cells: int) -> bool:
    last_cell = int(acts.sets.sets[cells][-1])
    return tensor_address(last_cell * acts.sets.cell_bytes) is not None


def _is_wgmma(act: Act) -> bool:
    return act.op == "multiply" and act.into is None


def _fence_before(act: Act) -> Act:
    return Act("fence", act.pc, act.order, target="proxy.async")


def _rounds(acts: Iterable[Act]) -> list[list[Act]]:
    """The acts between the waits of a warp for its products; acts before the first wait are left out."""
    rounds: list[list[Act]] = []
    for act in acts:
        if act.op == "wait_group" and act.target == "wgmma":
            rounds.append([])
        elif rounds and act.op in _COUNTED:
            rounds[-1].append(act)
    return rounds


def _equal_rounds(of_warp: dict[int, list[Act]], warps: Sequence[int]) -> list[bool]:
    """For every wait for products, whether all warps do the same for others behind it."""
    kinds_of_warps = []
    for warp in warps:
        rounds = _rounds(of_warp[warp])
        kinds_of_warps.append([[act.kind for act in round_acts] for round_acts in rounds])
    same_round = zip(*kinds_of_warps, strict=False)
    return [all(kinds == of_all[0] for kinds in of_all) for of_all in same_round]


def _with_meetings(acts: Iterable[Act], bar: int, rounds: set[int]) -> Iterator[Act]:
    number = -1
    for act in acts:
        yield act
        if act.op == "wait_group" and act.target == "wgmma":
            number += 1
            if number in rounds:
                yield Act("sync", act.pc, act.order, target=bar, arguments=(("threads", WARPGROUP_LANES),))
