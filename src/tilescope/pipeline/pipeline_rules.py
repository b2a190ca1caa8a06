"""The rules that every pipeline has to keep, each with the smallest pipeline that breaks it.

pipeline-bytes     A phase expects exactly the bytes that its copies bring, …     expect 128 bytes, copy 64, wait

The sentences about a broken rule are in `mistake_messages`. Rules about a single wrong step have their sentences here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tilescope.rule import rule

Plain: TypeAlias = dict[str, object]  # a step, or a row of a table, as it is written in a file

GRAMMAR = "the grammar of descriptions"
# a pipeline that keeps every rule
PLANNED = 'ts.simulate(ts.plan_pipeline(ts.plan((64, 64), "bf16").best, steps=3)).violations'
_MBARRIER = "PTX ISA, mbarrier"
_MBARRIER_MEASURED = "PTX ISA, mbarrier; an H200"
_STEPS = "the steps themselves"


def example(*steps: Plain, others: Sequence[Sequence[Plain]] = (), threads: int = 1, **fields: object) -> str:
    """An expression that simulates roles with these steps on a barrier `full` and a slot `a`."""
    roles: list[Plain] = []
    for number, of_role in enumerate((steps, *others)):
        roles.append({"name": f"role {number}", "steps": list(of_role)})
    if threads > 1:
        roles[0]["threads"] = threads
    data: Plain = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 4096}}, "roles": roles}
    return f"ts.simulate({data | fields}).violations"


_FULL_AND_EMPTY = {"full": {"count": 1}, "empty": {"count": 1}}
_ARRIVE: Plain = {"arrive": "full"}
_WAIT: Plain = {"wait": "full", "parity": 0}
_WAIT_EMPTY: Plain = {"wait": "empty", "parity": 0}
_EXPECT: Plain = {"expect": "full", "bytes": 64}
_COPY: Plain = {"copy": "a", "bytes": 64, "barrier": "full"}
_READ: Plain = {"read": ["a"]}
_WRITE: Plain = {"write": ["a"]}
_FENCE: Plain = {"fence": "proxy.async"}
_STORE: Plain = {"store": ["a"]}
_COMMIT: Plain = {"commit": "bulk"}

PIPELINE_ARRIVALS = rule(
    "pipeline-arrivals",
    "A phase gets exactly the arrivals that its barrier counts. With fewer it never completes, and an instruction "
    "with more of them faults.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(_ARRIVE, _WAIT, barriers={"full": {"count": 2}}),
)
PIPELINE_BYTES = rule(
    "pipeline-bytes",
    "A phase expects exactly the bytes that its copies deliver, and expects them before its last arrival.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(_EXPECT | {"bytes": 128}, _COPY, _WAIT, _READ),
)
PIPELINE_BEYOND = rule(
    "pipeline-beyond",
    "A copy does not extend beyond its slot.",
    source="an H200",
    basis="measured",
    passing=PLANNED,
    failing=example(_EXPECT | {"bytes": 8192}, _COPY | {"bytes": 8192}, _WAIT, _READ),
)
PIPELINE_CIRCLE = rule(
    "pipeline-circle",
    "Roles do not wait for each other in a cycle: until all have finished, some role can continue.",
    source="what waiting means",
    passing=PLANNED,
    failing=example(_WAIT, {"arrive": "empty"}, others=((_WAIT_EMPTY, _ARRIVE),), barriers=_FULL_AND_EMPTY),
)
PIPELINE_EXIT = rule(
    "pipeline-exit",
    "A block does not exit before everything sent to it has arrived, and TMA has read the data that the block stores.",
    source="PTX ISA, cp.async.bulk.wait_group; mapa",
    passing=PLANNED,
    failing=example(_WRITE, _FENCE, _STORE, _COMMIT),
)
PIPELINE_FENCE = rule(
    "pipeline-fence",
    "A fence separates accesses of threads from those of TMA or tensor cores, in tensor memory too.",
    source="PTX ISA, async proxy; tcgen05.fence",
    passing=PLANNED,
    failing=example(_WRITE, _STORE),
)
PIPELINE_FLAG = rule(
    "pipeline-flag",
    "A flag in global memory reaches every value for which a role polls.",
    source="what waiting means",
    passing=PLANNED,
    failing=example({"signal": "done"}, {"poll": "done", "value": 2}, flags={"done": {}}),
)
PIPELINE_INIT = rule(
    "pipeline-init",
    "A barrier is initialized before its first use, with a sync between (for other blocks also fence.mbarrier_init), "
    "and invalidated after its last use.",
    source=_MBARRIER,
    passing=PLANNED,
    failing=example({"init": ["full"]}, others=((_ARRIVE,),)),
)
PIPELINE_LATE = rule(
    "pipeline-late",
    "A phase completes only after every role that waits for the previous phase has observed its completion.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(
        _ARRIVE,
        _ARRIVE,
        {"arrive": "empty"},
        others=((_WAIT_EMPTY, _WAIT),),
        barriers=_FULL_AND_EMPTY,
    ),
)
PIPELINE_MASK = rule(
    "pipeline-mask",
    "A mask names at least one block, and only blocks of the cluster.",
    argument="mask",
    found="mask {mask:#x} of {agent}",
    limit="a mask has at least one bit set, and only bits 0 to {last_rank}",
    fix="Use {everyone:#x} for all blocks of the cluster.",
    source="PTX ISA, cp.async.bulk, ctaMask",
    passing=PLANNED,
    failing=example(_ARRIVE | {"mask": 2}),
)
MASK_OF_CP_ASYNC = PIPELINE_MASK.worded(
    found="mask {mask:#x} of cp.async of {agent}",
    limit="cp.async writes only the shared memory of its block",
    fix="Leave the mask out, or use by = bulk.",
)
BARRIER_RANK = PIPELINE_MASK.worded(
    argument="barrier_rank",
    found="barrier_rank {ranks} of {agent}",
    limit="the ranks of the cluster are 0 to {last_rank}",
    fix="Use the rank of a block of the cluster.",
)
PIPELINE_OVERLAP = rule(
    "pipeline-overlap",
    "The copies of one phase fill different bytes of their slot.",
    source="an H200",
    basis="measured",
    passing=PLANNED,
    failing=example(_EXPECT | {"bytes": 8192}, _COPY | {"bytes": 4096}, _COPY | {"bytes": 4096}, _WAIT, _READ),
)
PIPELINE_PARTIAL = rule(
    "pipeline-partial",
    "Before a slot is read again, all of its bytes have been filled again.",
    source="an H200",
    basis="measured",
    passing=PLANNED,
    failing=example(_EXPECT, _COPY, _WAIT, _READ),
)
PIPELINE_PARITY = rule(
    "pipeline-parity",
    "A role waits with the parity of the phase that it needs; phases are counted over the whole kernel.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(_ARRIVE, _WAIT | {"parity": 1}, _ARRIVE),
)
PIPELINE_RACE = rule(
    "pipeline-race",
    "A slot is written only after all reads of it have finished, and read only after it is filled.",
    source="PTX ISA, memory consistency model",
    passing=PLANNED,
    failing=example(_EXPECT, _COPY, _READ),
)
PIPELINE_RECEIVER = rule(
    "pipeline-receiver",
    "Every block that receives bytes expects them on its barrier.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(_COPY, _WAIT),
)
PIPELINE_REGISTERS = rule(
    "pipeline-registers",
    "If setmaxnreg requests registers, the block's pool has them or will receive them.",
    source="PTX ISA, setmaxnreg",
    passing=PLANNED,
    failing=example({"registers": 240}, registers=168),
)
PIPELINE_SCOPE = rule(
    "pipeline-scope",
    "An arrival that makes data visible to another block has cluster scope.",
    source="PTX ISA, mbarrier.arrive",
    passing=PLANNED,
    failing=example(
        _WRITE | {"when": "rank == 0"},
        _FENCE,
        _ARRIVE | {"mask": 2, "scope": "cta", "when": "rank == 0"},
        _WAIT | {"when": "rank == 1"},
        _EXPECT | {"bytes": 4096, "mask": 1, "when": "rank == 1"},
        _COPY | {"bytes": 4096, "mask": 1, "when": "rank == 1"},
        _WAIT | {"when": "rank == 0"},
        {"cluster": "sync"},
        cluster=[2, 1],
    ),
)
PIPELINE_STAGE = rule(
    "pipeline-stage",
    "An index names a stage that the barrier or slot has.",
    argument="{reference}",
    found="{name}[{stage}], from {reference}",
    limit="{name} has stages 0 to {last_stage}",
    fix="Take the index modulo {stages}.",
    source=_STEPS,
    passing=PLANNED,
    failing=example({"arrive": "full[3]"}),
)
PIPELINE_STALE = rule(
    "pipeline-stale",
    "A slot holds the tile that its reader expects.",
    source="the tiles that the steps name",
    passing=PLANNED,
    failing=example(_WRITE | {"tile": 0}, _READ | {"tile": 1}),
)
PIPELINE_START = rule(
    "pipeline-start",
    "A producer starts with parity 1, which passes on a fresh barrier, or its slots are freed first.",
    source=_MBARRIER_MEASURED,
    basis="measured",
    passing=PLANNED,
    failing=example(
        _WAIT_EMPTY,
        _EXPECT,
        _COPY,
        others=((_WAIT, _READ, {"release": "empty"}),),
        barriers=_FULL_AND_EMPTY,
    ),
)
PIPELINE_SYNC = rule(
    "pipeline-sync",
    "All instructions of a bar.sync name the number of threads that reach it, and every role reaches the cluster barrier.",
    source="PTX ISA, bar; barrier.cluster",
    basis="measured",
    passing=PLANNED,
    failing=example({"sync": 1, "threads": 64}),
)
PIPELINE_WARPS = rule(
    "pipeline-warps",
    "The warps of a role synchronize, or all arrive, before one of them stores or releases data that the others read "
    "or wrote, or accesses data that they copied by cp.async.",
    source="PTX ISA, bar; memory consistency model",
    passing=PLANNED,
    failing=example(_WRITE, _FENCE, _STORE, _COMMIT, {"wait_group": "bulk"}, threads=128),
)
PIPELINE_UNFILLED = rule(
    "pipeline-unfilled",
    "A slot is filled before it is read.",
    source=_STEPS,
    passing=PLANNED,
    failing=example(_READ),
)
