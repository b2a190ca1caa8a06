"""What barriers and pipelines demand."""

from __future__ import annotations

from tilescope.rule import rule

PIPELINE_ARRIVALS = rule(
    "pipeline-arrivals",
    "As many arrivals come in a phase as the barrier counts: fewer never end it, more are a launch failure.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_BYTES = rule(
    "pipeline-bytes",
    "The bytes that a phase expects are those that the copies bring in it.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_CIRCLE = rule(
    "pipeline-circle",
    "Some role can always go on.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_EXIT = rule(
    "pipeline-exit",
    "A block stays until everything that reaches into it has come, and until its stores have been read.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_EXPRESSION = rule(
    "pipeline-expression",
    "An expression is arithmetic on integers and the names that are known where it stands.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_FENCE = rule(
    "pipeline-fence",
    "A fence stands between accesses of threads and those of TMA or tensor cores, and around tensor memory.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_FILE = rule(
    "pipeline-file",
    "A pipeline's file is JSON or TOML: a table with barriers, slots and roles.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_INIT = rule(
    "pipeline-init",
    "A barrier is initialised, and known to be, before it is used; across blocks with fence.mbarrier_init.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_LATE = rule(
    "pipeline-late",
    "A phase ends only after everyone who waits for the one before has seen that end.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_MASK = rule(
    "pipeline-mask",
    "A mask has bits of the cluster's ranks, at least one.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_PARITY = rule(
    "pipeline-parity",
    "A role waits with the parity of the phase that it needs, counted over the whole kernel.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_RACE = rule(
    "pipeline-race",
    "A slot is written only when all reads of it are finished, and read only when it is filled.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_RECEIVER = rule(
    "pipeline-receiver",
    "Every block that receives bytes expects them on its own barrier.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_REFERENCE = rule(
    "pipeline-reference",
    "A barrier or slot is referred to by its name, or by its name and stage: full[i % 4].",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_REGISTERS = rule(
    "pipeline-registers",
    "Registers of all warpgroups fit into the block's pool, which is known.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_STAGE = rule(
    "pipeline-stage",
    "The stage of a barrier or slot is one that it has.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_STALE = rule(
    "pipeline-stale",
    "A slot holds the tile that its reader means.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_START = rule(
    "pipeline-start",
    "A producer starts with parity 1, which passes on a fresh barrier, or its slots are freed first.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_SYNC = rule(
    "pipeline-sync",
    "As many threads meet at a bar.sync as all of them name, and every role comes to the cluster barrier.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_UNFILLED = rule(
    "pipeline-unfilled",
    "A slot is filled before it is read.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_TABLE = rule(
    "pipeline-table",
    "Barriers, slots, constants, roles and steps are tables of names and values.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_LIST = rule(
    "pipeline-list",
    "Roles and steps are lists.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_NAME = rule(
    "pipeline-name",
    "Barriers, slots and loop counters are named by identifiers, none of which a role knows of itself.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_NUMBER = rule(
    "pipeline-number",
    "Counts, stages, bytes and threads are integers within their limits.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_ROLES = rule(
    "pipeline-roles",
    "A pipeline has at least one role, and their names differ.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_CLUSTER = rule(
    "pipeline-cluster",
    "A cluster is [x, y] with at most 16 blocks.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_ARGUMENT = rule(
    "pipeline-argument",
    "A step has its arguments: numbers, flags and names as the table of steps says.",
    source="PTX ISA, mbarrier; an H200",
)
PIPELINE_LOOP = rule(
    "pipeline-loop",
    "A loop's counter has a name of its own, and loops are not nested too deep.",
    source="PTX ISA, mbarrier; an H200",
)
