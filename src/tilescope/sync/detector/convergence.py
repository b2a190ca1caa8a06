"""Convergence: whether the threads of a warp execute a barrier, or another instruction of the whole warp, together.

    @odd bra join;        the threads of a warp take different paths …
    bar.sync 0;           … so this barrier is executed by some of them
join:
    st.global [out], x;   the others have gone on behind it

The detector remembers the last outcome of every branch for each lane. If lanes are missing, the branch at which they left is the last one
with different outcomes whose paths join only behind the instruction. A thread that returned early is not missed at a barrier; one
that reached code behind the barrier has skipped it.

A barrier in a loop has one more trap: lanes that went around it at a branch may come to it in the next round, while the others still
wait there. Then all lanes of the warp are at the barrier, in different rounds. The detector remembers the last splits of every branch.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.sync.cluster_shape import LaneNumbers
from tilescope.sync.detector.context import DetectorContext
from tilescope.sync.detector.race import Mistake, Side
from tilescope.sync.events import BarrierArrive, BarrierComplete, BranchTaken, Converge, PartialGroups, UndefinedUse


class _Outcomes(NamedTuple):
    """The last outcome of a branch, by lane, and when it was; 0: never."""

    times: npt.NDArray[np.int64]
    outcomes: npt.NDArray[np.int32]


class _Split(NamedTuple):
    """A branch at which lanes took different paths, and when."""

    time: int
    lanes: LaneNumbers


_SPLITS_KEPT = 16  # of a branch


class _Skip(NamedTuple):
    """A lane at a barrier, and another one that left at a branch and met it at a later barrier."""

    pc: int
    lane: int
    branch: int
    other: int


class Convergence:
    """The paths of the threads of one cluster, and the instructions that need whole warps."""

    def __init__(self, context: DetectorContext) -> None:
        self._context = context
        self._time = 0
        self._branches: dict[int, _Outcomes] = {}  # by pc
        self._splits: dict[int, deque[_Split]] = {}  # by pc
        self._judged: dict[tuple[Mistake, int], npt.NDArray[np.bool_]] = {}  # by pc: exited lanes that were judged
        self._arrivals: dict[tuple[int, int], list[tuple[int, LaneNumbers]]] = {}  # (rank, number): of this phase
        self._pairs: set[tuple[int, int]] = set()  # barriers of one phase that were compared
        self._skips: list[_Skip] = []

    def take_branch(self, event: BranchTaken) -> None:
        """Keep the outcomes of a branch."""
        outcomes = self._branches.get(event.pc)
        if outcomes is None:
            count = self._context.cluster.lane_count
            outcomes = self._branches[event.pc] = _Outcomes(np.zeros(count, np.int64), np.zeros(count, np.int32))
        self._time += 1
        outcomes.times[event.lanes] = self._time
        outcomes.outcomes[event.lanes] = event.outcomes
        if len(event.lanes) > 1 and (event.outcomes != event.outcomes[0]).any():
            self._splits.setdefault(event.pc, deque(maxlen=_SPLITS_KEPT)).append(_Split(self._time, event.lanes))

    def judge_partial_groups(self, event: PartialGroups) -> None:
        """Judge an instruction that some of the lanes execute which it needs."""
        kind = self._context.launch.program.collectives[event.pc]
        mistake: Mistake = "mask" if kind == "mask" else "convergence"
        is_unjudged = event.is_live.copy()
        if not event.is_live.all():
            is_unjudged |= ~self._are_judged(mistake, event.pc, event.missing)
        missing = event.missing[is_unjudged]
        exited = event.missing[is_unjudged & ~event.is_live]
        for lane in missing[np.unique(missing // WARP_LANES, return_index=True)[1]].tolist():
            warp_missing = missing[missing // WARP_LANES == lane // WARP_LANES]
            self._judge_warp(
                mistake, event, warp_missing, np.isin(warp_missing, exited), needs_exited=kind == "aligned"
            )

    def judge_masks(self, event: Converge) -> None:
        """Judge whether each lane is in the mask that it names."""
        assert event.masks is not None
        lanes = event.lanes
        masks = event.masks[lanes].astype(np.uint32)
        is_named = masks >> (lanes % WARP_LANES).astype(np.uint32) & 1 == 1
        if not is_named.all():
            first = int(np.argmin(is_named))
            now = Side(event.pc, "barrier", int(lanes[first]))
            self._context.report("own mask", None, now, "registers", None, mask=int(masks[first]))

    def use_undefined(self, event: UndefinedUse) -> None:
        """Report a value of a lane that does not take part in a shuffle, where something depends on it."""
        now = Side(event.shuffle_pc, "barrier", event.lane)
        before = Side(event.pc, event.used_by, event.lane)
        self._context.report("undefined lane", before, now, "registers", None)

    def _are_judged(self, mistake: Mistake, pc: int, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """Which exited lanes have been judged before; from now on all of them have."""
        judged = self._judged.get((mistake, pc))
        if judged is None:
            judged = self._judged[mistake, pc] = np.zeros(self._context.cluster.lane_count, np.bool_)
        before = judged[lanes]
        judged[lanes] = True
        return before

    def _judge_warp(
        self,
        mistake: Mistake,
        event: PartialGroups,
        missing: LaneNumbers,
        has_exited: npt.NDArray[np.bool_],
        *,
        needs_exited: bool,
    ) -> None:
        """Report the lanes of one warp that are missing, unless they returned early."""
        warp = int(missing[0]) // WARP_LANES
        present = event.lanes[event.lanes // WARP_LANES == warp]
        witness = int(present[0]) if len(present) else int(event.lanes[0])
        for lane, is_gone in zip(missing.tolist(), has_exited.tolist(), strict=True):
            branch = self._find_branch(event.pc, witness, lane)
            if is_gone and not needs_exited and not self._has_skipped(event.pc, branch, lane):
                continue
            before = None if branch is None else Side(branch, "branch", lane)
            facts = {"warp": warp, "present": _mask_of(present), "missing": _mask_of(missing)}
            now = Side(event.pc, "barrier", witness)
            self._context.report(mistake, before, now, "registers", None, **facts)
            return

    def _find_branch(self, pc: int, present: int, missing: int) -> int | None:
        """The last branch at which one lane went towards an instruction, and the other around it; None: not known."""
        control = self._context.launch.program.control()
        newest_branch = None
        newest = 0
        for branch, (times, outcomes) in self._branches.items():
            is_split = times[missing] > 0 and outcomes[present] != outcomes[missing]
            if is_split and times[present] > newest and control.is_between(branch, pc):
                newest_branch = branch
                newest = int(times[present])
        return newest_branch

    def _has_skipped(self, pc: int, branch: int | None, lane: int) -> bool:
        """Whether a thread that has exited went around an instruction and reached code behind it; others returned early."""
        if branch is None:
            return False
        control = self._context.launch.program.control()
        left_at = int(self._branches[branch].times[lane])
        passed = [other for other, outcomes in self._branches.items() if outcomes.times[lane] > left_at]
        if not control.find_reachable([pc], branch).isdisjoint(passed):
            return True
        last = max(self._branches, key=lambda other: int(self._branches[other].times[lane]))
        tail = control.find_tail(control.next_of(last, int(self._branches[last].outcomes[lane])))
        return not control.find_reachable([pc], None).isdisjoint(tail)

    def arrive(self, event: BarrierArrive) -> None:
        """Keep the lanes that arrive in a phase of a barrier."""
        self._arrivals.setdefault((event.rank, event.number), []).append((event.pc, event.lanes))
        if self._splits and event.pc in self._context.launch.program.collectives:
            self._judge_rounds(event)

    def _judge_rounds(self, event: BarrierArrive) -> None:
        """Report lanes of a warp that come to a barrier in different rounds of a loop.

        Some went on to the barrier at a branch. The others, which were with them there, have passed that branch again since.
        """
        control = self._context.launch.program.control()
        for branch, splits in self._splits.items():
            if branch == event.pc or not control.is_between(branch, event.pc):
                continue
            times = self._branches[branch].times
            for split in splits:
                together = split.lanes[np.isin(split.lanes, event.lanes)]
                waited = together[times[together] == split.time]
                came_later = together[times[together] > split.time]
                later = came_later[np.isin(came_later // WARP_LANES, waited // WARP_LANES)]
                if len(later):
                    warp = int(later[0]) // WARP_LANES
                    waited = waited[waited // WARP_LANES == warp]
                    later = later[later // WARP_LANES == warp]
                    now = Side(event.pc, "barrier", int(waited[0]))
                    facts = {"warp": warp, "present": _mask_of(waited), "missing": _mask_of(later)}
                    before = Side(branch, "branch", int(later[0]))
                    self._context.report("convergence", before, now, "registers", None, **facts)
                    return

    def complete(self, event: BarrierComplete) -> None:
        """Judge whether all warps reached the same barrier without a thread count."""
        arrivals = self._arrivals.pop((event.rank, event.number), [])
        if event.is_counted or not arrivals:
            return
        self._judge_exited_warps(event.rank, arrivals)
        if any(pc != arrivals[0][0] for pc, _ in arrivals):
            for pc, lanes in arrivals:
                for other_pc, other_lanes in arrivals:
                    if pc != other_pc and (pc, other_pc) not in self._pairs:
                        self._compare_barriers(pc, lanes, other_pc, other_lanes)

    def _judge_exited_warps(self, rank: int, arrivals: list[tuple[int, LaneNumbers]]) -> None:
        """Report whole warps that skipped a barrier and exited."""
        cluster = self._context.cluster
        if len(arrivals) == 1 and len(arrivals[0][1]) == cluster.block_threads:
            return  # all threads of the block arrived together
        is_missing = cluster.exists & (cluster.block_of_lane == rank)
        for _, lanes in arrivals:
            is_missing.reshape(-1, WARP_LANES)[lanes // WARP_LANES] = False
        missing = np.flatnonzero(is_missing.reshape(-1, WARP_LANES).any(axis=1)) * WARP_LANES
        if not len(missing):
            return
        pc, lanes = arrivals[-1]
        unjudged = missing[~self._are_judged("skipped barrier", pc, missing)]
        for lane in unjudged.tolist():
            branch = self._find_branch(pc, int(lanes[0]), lane)
            if branch is not None and self._has_skipped(pc, branch, lane):
                self._report_skipped(_Skip(pc, int(lanes[0]), branch, lane))
            for skip in self._skips:
                if skip.other // WARP_LANES == lane // WARP_LANES:
                    self._report_skipped(skip)

    def _compare_barriers(self, pc: int, lanes: LaneNumbers, other_pc: int, other_lanes: LaneNumbers) -> None:
        """Record warps that took another path at a branch and join the others at a later barrier.

            if (warp == 0) { bar.sync 0; } bar.sync 0;

        Warps may take different paths with equally many barriers in each of them. If the numbers differ, some warps will exit
        while others still arrive at a barrier.
        """
        lane = int(lanes[0])
        other = int(other_lanes[0])
        if lane // WARP_LANES == other // WARP_LANES:
            return  # a warp at two places: judged already
        self._pairs.add((pc, other_pc))
        branch = self._find_branch(pc, lane, other)
        if branch is not None and not self._context.launch.program.control().is_between(branch, other_pc):
            self._skips.append(_Skip(pc, lane, branch, other))

    def _report_skipped(self, skip: _Skip) -> None:
        now = Side(skip.pc, "barrier", skip.lane)
        before = Side(skip.branch, "branch", skip.other)
        self._context.report("skipped barrier", before, now, "registers", None, warp=skip.other // WARP_LANES)


def _mask_of(lanes: LaneNumbers) -> int:
    """The lanes of one warp as bits."""
    return sum(1 << lane for lane in (lanes % WARP_LANES).tolist())
