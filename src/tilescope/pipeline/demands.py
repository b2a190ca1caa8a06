"""The rules that every pipeline has to keep, each with the smallest pipeline that breaks it.

pipeline-bytes     A phase expects exactly the bytes that its copies bring, …     expect 128 bytes, copy 64, wait
"""

from __future__ import annotations

from typing import Any

from tilescope.rule import Basis, Rule, rule

GRAMMAR = "the grammar of descriptions"
_RIGHT = 'ts.simulate(ts.plan_pipeline(ts.plan((64, 64), "bf16").best, steps=3)).violations'
_MBARRIER = {"measured": "PTX ISA, mbarrier; an H200", "documented": "PTX ISA, mbarrier"}


def example(
    *steps: dict[str, Any], others: tuple[tuple[dict[str, Any], ...], ...] = (), threads: int = 1, **fields: Any
) -> str:
    """An expression that simulates roles with these steps on a barrier `full` and a slot `a`."""
    roles: list[dict[str, Any]] = [
        {"name": f"role {number}", "steps": list(listed)} for number, listed in enumerate((steps, *others))
    ]
    if threads > 1:
        roles[0]["threads"] = threads
    data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 4096}}, "roles": roles} | fields
    return f"ts.simulate({data}).violations"


def pipeline_rule(name: str, demand: str, failing: str, *, basis: Basis = "documented", source: str = "") -> Rule:
    """A rule that `ts.simulate` finds broken; what ts.plan_pipeline plans keeps all of them."""
    return rule(name, demand, source=source or _MBARRIER[basis], basis=basis, passing=_RIGHT, failing=failing)


_FULL_AND_EMPTY = {"full": {"count": 1}, "empty": {"count": 1}}
_ARRIVE = {"arrive": "full"}
_WAIT = {"wait": "full", "parity": 0}
_WAIT_EMPTY = {"wait": "empty", "parity": 0}
_EXPECT = {"expect": "full", "bytes": 64}
_COPY = {"copy": "a", "bytes": 64, "barrier": "full"}
_READ = {"read": ["a"]}
_WRITE = {"write": ["a"]}
_FENCE = {"fence": "proxy.async"}
_STORE = {"store": ["a"]}
_COMMIT = {"commit": "bulk"}

_ROWS = (
    pipeline_rule(
        "pipeline-arrivals",
        "A phase gets exactly the arrivals that its barrier counts: with fewer it never ends, "
        "and an instruction that brings more faults.",
        example(_ARRIVE, _WAIT, barriers={"full": {"count": 2}}),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-bytes",
        "A phase expects exactly the bytes that its copies bring, and expects them before its last arrival.",
        example(_EXPECT | {"bytes": 128}, _COPY, _WAIT, _READ),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-beyond",
        "A copy ends within its slot.",
        example(_EXPECT | {"bytes": 8192}, _COPY | {"bytes": 8192}, _WAIT, _READ),
        basis="measured",
        source="an H200",
    ),
    pipeline_rule(
        "pipeline-circle",
        "Some role can always go on.",
        example(_WAIT, {"arrive": "empty"}, others=((_WAIT_EMPTY, _ARRIVE),), barriers=_FULL_AND_EMPTY),
        source="what waiting means",
    ),
    pipeline_rule(
        "pipeline-exit",
        "A block stays until everything that is sent to it has arrived, and until TMA has read what the block stores.",
        example(_WRITE, _FENCE, _STORE, _COMMIT),
        source="PTX ISA, cp.async.bulk.wait_group; mapa",
    ),
    pipeline_rule(
        "pipeline-fence",
        "A fence stands between an access of threads and one of TMA or tensor cores, in tensor memory too.",
        example(_WRITE, _STORE),
        source="PTX ISA, async proxy; tcgen05.fence",
    ),
    pipeline_rule(
        "pipeline-flag",
        "A flag in global memory reaches every value that a role polls for.",
        example({"signal": "done"}, {"poll": "done", "value": 2}, flags={"done": {}}),
        source="what waiting means",
    ),
    pipeline_rule(
        "pipeline-init",
        "A barrier is initialised before it is used, with a sync between; for other blocks with fence.mbarrier_init too.",
        example({"init": ["full"]}, others=((_ARRIVE,),)),
    ),
    pipeline_rule(
        "pipeline-late",
        "A phase ends only when every role that waits for the phase before has seen that one end.",
        example(
            _ARRIVE,
            _ARRIVE,
            {"arrive": "empty"},
            others=((_WAIT_EMPTY, _WAIT),),
            barriers=_FULL_AND_EMPTY,
        ),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-mask",
        "A mask names at least one block, and only blocks of the cluster.",
        example(_ARRIVE | {"mask": 2}),
        source="PTX ISA, cp.async.bulk, ctaMask",
    ),
    pipeline_rule(
        "pipeline-overlap",
        "The copies of one phase fill different bytes of their slot.",
        example(_EXPECT | {"bytes": 8192}, _COPY | {"bytes": 4096}, _COPY | {"bytes": 4096}, _WAIT, _READ),
        basis="measured",
        source="an H200",
    ),
    pipeline_rule(
        "pipeline-partial",
        "A slot that is read has been filled whole since it was last read.",
        example(_EXPECT, _COPY, _WAIT, _READ),
        basis="measured",
        source="an H200",
    ),
    pipeline_rule(
        "pipeline-parity",
        "A role waits with the parity of the phase that it needs, counted over the whole kernel.",
        example(_ARRIVE, _WAIT | {"parity": 1}, _ARRIVE),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-race",
        "A slot is written only when all reads of it are finished, and read only when it is filled.",
        example(_EXPECT, _COPY, _READ),
        source="PTX ISA, memory consistency model",
    ),
    pipeline_rule(
        "pipeline-receiver",
        "Every block that receives bytes expects them on its own barrier.",
        example(_COPY, _WAIT),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-registers",
        "The block's pool has the registers that setmaxnreg asks for.",
        example({"registers": 240}, registers=168),
        source="PTX ISA, setmaxnreg",
    ),
    pipeline_rule(
        "pipeline-scope",
        "An arrival that lets another block see data has the scope of the cluster.",
        example(
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
        source="PTX ISA, mbarrier.arrive",
    ),
    pipeline_rule(
        "pipeline-stage",
        "An index names a stage that the barrier or slot has.",
        example({"arrive": "full[3]"}),
        source="the steps themselves",
    ),
    pipeline_rule(
        "pipeline-stale",
        "A slot holds the tile that its reader expects.",
        example(_WRITE | {"tile": 0}, _READ | {"tile": 1}),
        source="the tiles that the steps name",
    ),
    pipeline_rule(
        "pipeline-start",
        "A producer starts with parity 1, which passes on a fresh barrier, or its slots are freed first.",
        example(
            _WAIT_EMPTY,
            _EXPECT,
            _COPY,
            others=((_WAIT, _READ, {"release": "empty"}),),
            barriers=_FULL_AND_EMPTY,
        ),
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-sync",
        "A bar.sync gets exactly the threads that all who come there name, and every role comes to the cluster barrier.",
        example({"sync": 1, "threads": 64}),
        source="PTX ISA, bar; barrier.cluster",
        basis="measured",
    ),
    pipeline_rule(
        "pipeline-warps",
        "Warps of a role meet, or all arrive, before one of them stores or releases what the others read or wrote.",
        example(_WRITE, _FENCE, _STORE, _COMMIT, {"wait_group": "bulk"}, threads=128),
        source="PTX ISA, bar; memory consistency model",
    ),
    pipeline_rule(
        "pipeline-unfilled",
        "A slot is filled before it is read.",
        example(_READ),
        source="the steps themselves",
    ),
)
DEMANDS = {row.name: row for row in _ROWS}
