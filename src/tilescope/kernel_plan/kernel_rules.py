"""The rules that a kernel has to keep, each with the smallest kernel that breaks it.

kernel-smem   All tiles and barriers fit into the shared memory of a block.    15 stages of 16 KiB on sm_90
"""

from __future__ import annotations

from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.rule import rule

GRAMMAR = "the grammar of kernels"


def example(*, roles: dict[str, object] | None = None, tile: dict[str, object] | None = None, **fields: object) -> str:
    """An expression that plans a producer and a consumer of one tile, with changes."""
    data: dict[str, object] = {
        "roles": {"producer": {"warps": 4}, "consumer": {"warps": 4}} | (roles or {}),
        "tiles": {"a": {"shape": [128, 64], "data_type": "bf16", "stages": 2} | (tile or {})},
        "loops": {"k": {}},
        "steps": [
            {"role": "producer", "operation": "load", "writes": ["a"], "loop": "k"},
            {"role": "consumer", "operation": "threads", "reads": ["a"], "loop": "k"},
        ],
    }
    return f"ts.plan_kernel({data | fields})"


def tensor_memory_example(stages: int) -> str:
    """An expression that plans accumulators of 128 x 256 in tensor memory."""
    operand = {"shape": [128, 64], "data_type": "bf16"}
    accumulator = {"shape": [128, 256], "data_type": "float32", "memory": "tensor", "stages": stages}
    data = {
        "arch": "sm_100",
        "roles": {"producer": {"warps": 1}, "mma": {"warps": 1}, "epilogue": {"warps": 4}},
        "tiles": {"a": operand, "b": operand | {"shape": [256, 64]}, "d": accumulator},
        "loops": {"k": {}},
        "steps": [
            {"role": "producer", "operation": "load", "writes": ["a", "b"], "loop": "k"},
            {"role": "mma", "operation": "tcgen05.mma", "a": "a", "b": "b", "writes": ["d"], "loop": "k"},
            {"role": "epilogue", "operation": "threads", "reads": ["d"], "loop": "k"},
        ],
    }
    return f"ts.plan_kernel({data})"


PLANNED = example()
KERNEL_FILE = rule(
    "kernel-file",
    "A kernel's file is JSON or TOML: a table with roles, tiles and steps.",
    argument="file",
    found="{name}: {error}",
    limit="a kernel's file is JSON or TOML",
    fix="Start from what `tilescope plan --template gemm` prints.",
    source=GRAMMAR,
    passing=PLANNED,
    failing='ts.plan_kernel("roles = [")',
)
KERNEL_STEP = rule(
    "kernel-step",
    "A step moves tiles only as its operation can: loads and stores use shared memory, products write registers or "
    "tensor memory.",
    argument="{at}",
    found="{found}",
    limit="{limit}",
    fix="{fix}",
    source=GRAMMAR,
    passing=PLANNED,
    failing=example(tile={"memory": "registers"}),
)
KERNEL_SMEM = rule(
    "kernel-smem",
    "All tiles and barriers fit into the shared memory of a block.",
    argument="tiles",
    found="{needed_bytes} bytes[[ with {stages}]]",
    limit="a block of {arch} has {limit_bytes} bytes of shared memory[[ with {blocks} blocks on an SM]]",
    fix="{fix}",
    source="CUDA programming guide, compute capabilities",
    passing=example(tile={"stages": 14}),
    failing=example(tile={"stages": 15}),
)
KERNEL_TMEM = rule(
    "kernel-tmem",
    "All tiles in tensor memory fit into the columns of a block.",
    argument="tiles",
    found="{needed_columns} columns[[ with {stages}]]",
    limit="a block has {limit_columns} columns of tensor memory[[ with {blocks} blocks on an SM]]",
    fix="{fix}",
    source="PTX ISA, Tensor Memory",
    architectures=BLACKWELL,
    passing=tensor_memory_example(2),
    failing=tensor_memory_example(3),
)
KERNEL_REGISTERS = rule(
    "kernel-registers",
    "The tiles that a thread holds fit into its registers, together with its other values.",
    argument="{role}",
    found="{role} holds {tiles:, } in {held} registers[[ and needs {other} others]]",
    limit="its threads have {registers}",
    fix="{fix}",
    source="PTX ISA, setmaxnreg; CUDA programming guide, compute capabilities",
    passing=PLANNED,
    failing=example(roles={"consumer": {"warps": 4, "other_registers": 300}}),
)
KERNEL_REGISTER_SPLIT = rule(
    "kernel-register-split",
    "setmaxnreg distributes at most the registers with which the block was launched.",
    argument="roles",
    found="{split} = {asked} registers",
    limit="{threads} threads of {at_entry} registers have {available}",
    fix="Take {excess} registers per thread off a role of four warps, for example.",
    source="PTX ISA, setmaxnreg",
    passing=example(roles={"producer": {"warps": 4, "registers": 24}, "consumer": {"warps": 4, "registers": 240}}),
    failing=example(roles={"producer": {"warps": 8, "registers": 240}, "consumer": {"warps": 4, "registers": 240}}),
)
KERNEL_BARS = rule(
    "kernel-bars",
    "Warps of a role synchronize at named barriers, of which a block has 16.",
    argument="roles",
    found="{needed} named barriers",
    limit="a block has {most}, one of which is __syncthreads",
    fix="Use fewer instances of roles with several warps.",
    source="PTX ISA, bar",
    passing=PLANNED,
    failing=example(
        roles={"producer": {"warps": 2}, "consumer": {"warps": 2}, "other": {"warps": 2, "instances": 14}},
        tile={"stages": 1},
    ),
)
