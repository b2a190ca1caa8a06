"""The scheduler of a GEMM whose blocks request their next tile: cluster launch control.

    scheduler   wait next_empty ─▶ expect next_full ─▶ ask ──┐       one request a tile; the answer is "none" at the end
                     ▲                                       ▼
    all roles   release next_empty ◀─ read the answer ◀─ wait next_full

In a cluster, the first block sends the request, and all blocks receive the response.
"""

from __future__ import annotations

from tilescope.planner.gemm_smem import ANSWER_BYTES
from tilescope.planner.loading import Loading, Step, Steps, step_of
from tilescope.sync.thread_limits import WARPGROUP_THREADS


def answer_readers(blocks: int, cta_group: int) -> int:
    """Threads of a cluster that read an answer: producer, scheduler and epilogue of every block, and a multiplier for each tile.

    >>> answer_readers(1, 1), answer_readers(2, 2), answer_readers(4, 2)
    (131, 261, 522)
    """
    return blocks * (WARPGROUP_THREADS + 2) + blocks // cta_group


def scheduler_role(loading: Loading) -> Step:
    """One thread of every block: it expects a response for every tile; the first block of a cluster sends the requests."""
    staging = loading.staging
    when = "rank == 0" if staging.blocks > 1 else None
    slot = f"t % {staging.answers}"
    free: Step = {"wait": f"next_empty[{slot}]", "parity": f"(t / {staging.answers}) % 2 ^ 1"}
    ask = step_of(
        copy=f"answer[{slot}]",
        bytes=ANSWER_BYTES,
        barrier=f"next_full[{slot}]",
        by="bulk",
        mask=(1 << staging.blocks) - 1 if staging.blocks > 1 else None,
        when=when,
    )
    if when is not None:
        free["when"] = when
    steps: Steps = [free, {"expect": f"next_full[{slot}]", "bytes": ANSWER_BYTES}, ask, *loading.next_tile()]
    last = f"u % {staging.answers}"
    drained = step_of(
        tail=f"next_empty[{last}]",
        parity=f"(u / {staging.answers}) % 2 ^ 1",
        when=when,
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
