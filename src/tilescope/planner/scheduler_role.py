"""The scheduler of a GEMM whose blocks ask for their next tile: cluster launch control.

    scheduler   wait next_empty ─▶ expect next_full ─▶ ask ──┐       one request a tile; the answer is "none" at the end
                     ▲                                       ▼
    all roles   release next_empty ◀─ read the answer ◀─ wait next_full

In a pair the even block asks, and the answer comes to both blocks.
"""

from __future__ import annotations

from tilescope.planner.loading import Loading, Step, Steps, step_of
from tilescope.planner.planned_gemm import ANSWER_BYTES
from tilescope.sync.thread_limits import WARPGROUP_THREADS


def answer_readers(cta_group: int) -> int:
    """Threads that read an answer: producer, scheduler and epilogue of every block, and the one multiplier.

    >>> answer_readers(1), answer_readers(2)
    (131, 261)
    """
    return cta_group * (WARPGROUP_THREADS + 2) + 1


def scheduler_role(loading: Loading) -> Step:
    """One thread of every block: it expects an answer for every tile; the even block of a pair asks."""
    staging = loading.staging
    in_pairs = staging.cta_group == 2
    slot = f"t % {staging.answers}"
    free: Step = {"wait": f"next_empty[{slot}]", "parity": f"(t / {staging.answers}) % 2 ^ 1"}
    ask = step_of(
        copy=f"answer[{slot}]",
        bytes=ANSWER_BYTES,
        barrier=f"next_full[{slot}]",
        by="bulk",
        mask="3 << (rank - rank % 2)" if in_pairs else None,
        when="rank % 2 == 0" if in_pairs else None,
    )
    if in_pairs:
        free["when"] = "rank % 2 == 0"
    steps: Steps = [free, {"expect": f"next_full[{slot}]", "bytes": ANSWER_BYTES}, ask, *loading.next_tile()]
    last = f"u % {staging.answers}"
    drained = step_of(
        tail=f"next_empty[{last}]",
        parity=f"(u / {staging.answers}) % 2 ^ 1",
        when="rank % 2 == 0" if in_pairs else None,
    )
    return {
        "name": "scheduler",
        "threads": 1,
        "steps": [
            *loading.meet(),
            {"loop": "t", "count": "tiles", "steps": steps},
            {"loop": "u", "start": "tiles", "count": staging.answers, "steps": [drained]},
        ],
    }
