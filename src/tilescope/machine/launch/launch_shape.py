"""The shape of a launch: grid, block, cluster and dynamic shared memory, within the limits of the architecture.

    kernel.run(grid=(4, 2), block=128, cluster=2)     grid (4, 2, 1), block (128, 1, 1), cluster (2, 1, 1)

A kernel may fix its block (.reqntid), bound it (.maxntid) or fix its cluster (.reqnctapercluster).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tilescope.arch import Arch
from tilescope.errors import Violation, raise_all
from tilescope.machine.program import Program
from tilescope.reading import integer, integers, plain_int
from tilescope.rule import ARGUMENT_RANGE, ptx_example, rule
from tilescope.sentence import argument_said
from tilescope.sync.address import SHARED_RESERVED_BYTES
from tilescope.sync.thread_limits import BLOCK_THREADS, BLOCK_THREADS_Z, MAX_BLOCKS

Extents = tuple[int, int, int]

_LOCAL_MOST_BYTES = 512 << 10
_GRID_MOST = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)

BLOCK_SIZE = rule(
    "launch-block",
    "A block has 1 to 1024 threads:,, at most 64 along z, exactly .reqntid or at most .maxntid of the kernel.",
    argument="block",
    found="a block of {block: x } threads",
    limit="{limit_text}",
    fix="Use {block:={allowed}}.",
    source="PTX ISA, .reqntid and .maxntid; CUDA, compute capabilities",
    passing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 1024)",
    failing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 1025)",
)
NO_BLOCK = BLOCK_SIZE.worded(
    found="no block",
    limit="{entry} does not say how many threads it wants",
    fix="Add {block:=128}, for example: the number of threads that its launcher uses.",
)
CLUSTER_SIZE = rule(
    "launch-cluster",
    "A cluster has at most 16 blocks, divides the grid, and equals the kernel's .reqnctapercluster.",
    argument="cluster",
    found="a cluster of {cluster: x } blocks in a grid of {grid: x }",
    limit="{limit_text}",
    fix="Use {cluster:={allowed}}.",
    source="PTX ISA, .reqnctapercluster; CUDA, cluster dimensions",
    passing=f"ts.Kernel({ptx_example('empty.ptx')}).run(4, 32, cluster=2)",
    failing=f"ts.Kernel({ptx_example('empty.ptx')}).run(4, 32, cluster=3)",
)
SHARED_SIZE = rule(
    "launch-shared-memory",
    "Static and dynamic shared memory of a block together do not exceed the architecture's limit.",
    argument="smem_bytes",
    found="{static} bytes of static and {dynamic} bytes of dynamic shared memory",
    limit="a block of {arch} has {most} bytes",
    fix="Use {smem_bytes:={left}} or less.",
    source="CUDA, compute capabilities: shared memory of a block",
    passing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 32, smem_bytes=1024)",
    failing=f"ts.Kernel({ptx_example('empty.ptx')}).run(1, 32, smem_bytes=1 << 20)",
)
LOCAL_SIZE = rule(
    "launch-local-memory",
    "Local memory of a thread is at most 512 KiB.",
    argument="ptx",
    found="{found_bytes} bytes of local memory for each thread",
    limit="a thread has at most {most} bytes",
    fix="Put the array in global memory.",
    source="CUDA, compute capabilities: local memory of a thread",
    passing=f"ts.Kernel({ptx_example('launch-local-memory.pass.ptx')}).run(1, 32)",
    failing=f"ts.Kernel({ptx_example('launch-local-memory.fail.ptx')}).run(1, 32)",
)


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Grid, block and cluster with all three extents, and dynamic shared memory."""

    grid: Extents
    block: Extents
    cluster: Extents
    is_clustered: bool
    smem_bytes: int


def read_extents(name: str, value: int | Sequence[int]) -> Extents:
    """Read extents along x, y and z: one number, or a sequence of one to three.

    >>> read_extents("grid", (4, 2))
    (4, 2, 1)
    """
    is_one_number = isinstance(value, bool) or plain_int(value) is not None
    extents = (integer(name, value),) if is_one_number else integers(name, value)
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise ARGUMENT_RANGE.error(
            argument=name,
            found=f"{name} = {extents}",
            limit="one to three extents: x, y, z, each at least 1",
            fix=f"Use {argument_said(name, tuple(max(extent, 1) for extent in extents[:3]) or (1,))}.",
        )
    if name == "grid" and (inside := tuple(map(min, extents, _GRID_MOST))) != extents:
        raise ARGUMENT_RANGE.error(
            argument=name,
            found=f"{name} = {extents}",
            limit=f"a grid has at most {_GRID_MOST[0]} blocks along x, and {_GRID_MOST[1]} along y and z",
            fix=f"Use {argument_said(name, inside)}.",
        )
    return _pad_extents(extents)


class RequestedShape(NamedTuple):
    """The shape of a launch as requested; None: neither the call nor the kernel specifies it."""

    grid: int | Sequence[int]
    block: int | Sequence[int] | None
    cluster: int | Sequence[int] | None
    smem_bytes: int


def resolve_launch_shape(program: Program, arch: Arch, requested: RequestedShape) -> LaunchShape:
    """The complete shape of a launch; a RuleError reports every limit that it exceeds."""
    required = program.entry.required_cluster
    cluster = required if requested.cluster is None else requested.cluster
    if requested.block is None:
        raise NO_BLOCK.error(entry=program.entry.name)
    shape = LaunchShape(
        grid=read_extents("grid", requested.grid),
        block=read_extents("block", requested.block),
        cluster=read_extents("cluster", (1,) if cluster is None else cluster),
        is_clustered=cluster is not None,
        smem_bytes=integer("smem_bytes", requested.smem_bytes, 0),
    )
    raise_all(_find_problems(program, arch, shape))
    return shape


def _find_problems(program: Program, arch: Arch, shape: LaunchShape) -> Iterator[Violation]:
    entry = program.entry
    if prod(shape.block) > BLOCK_THREADS:
        yield BLOCK_SIZE.violation(block=shape.block, limit_text="a block has at most 1024 threads", allowed=1024)
    elif shape.block[2] > BLOCK_THREADS_Z:
        limit_text = f"a block has at most {BLOCK_THREADS_Z} threads along z"
        yield BLOCK_SIZE.violation(block=shape.block, limit_text=limit_text, allowed=shape.block[::-1])
    elif entry.required_threads is not None and shape.block != _pad_extents(entry.required_threads):
        required = _pad_extents(entry.required_threads)
        limit_text = f"{entry.name} has .reqntid {', '.join(map(str, entry.required_threads))}"
        yield BLOCK_SIZE.violation(block=shape.block, limit_text=limit_text, allowed=required)
    elif entry.max_threads is not None and prod(shape.block) > prod(entry.max_threads):
        limit_text = f"{entry.name} has .maxntid {', '.join(map(str, entry.max_threads))}"
        yield BLOCK_SIZE.violation(block=shape.block, limit_text=limit_text, allowed=prod(entry.max_threads))
    yield from _find_cluster_problems(program, shape)
    if program.local_bytes > _LOCAL_MOST_BYTES:
        yield LOCAL_SIZE.violation(found_bytes=program.local_bytes, most=_LOCAL_MOST_BYTES)
    static_bytes = program.dynamic_shared_offset - SHARED_RESERVED_BYTES if shape.smem_bytes else program.smem_bytes
    if static_bytes + shape.smem_bytes > arch.smem_per_block_bytes:
        yield SHARED_SIZE.violation(
            static=static_bytes,
            dynamic=shape.smem_bytes,
            arch=arch.name,
            most=arch.smem_per_block_bytes,
            left=max(arch.smem_per_block_bytes - static_bytes, 0),
        )


def _find_cluster_problems(program: Program, shape: LaunchShape) -> Iterator[Violation]:
    required = program.entry.required_cluster
    if required is not None and shape.cluster != _pad_extents(required):
        limit_text = f"{program.entry.name} has .reqnctapercluster {', '.join(map(str, required))}"
        yield CLUSTER_SIZE.violation(
            cluster=shape.cluster, grid=shape.grid, limit_text=limit_text, allowed=_pad_extents(required)
        )
    elif prod(shape.cluster) > MAX_BLOCKS:
        yield CLUSTER_SIZE.violation(
            cluster=shape.cluster,
            grid=shape.grid,
            limit_text=f"a cluster has at most {MAX_BLOCKS} blocks",
            allowed=MAX_BLOCKS,
        )
    elif any(blocks % step for blocks, step in zip(shape.grid, shape.cluster, strict=True)):
        yield CLUSTER_SIZE.violation(
            cluster=shape.cluster,
            grid=shape.grid,
            limit_text="the cluster divides the grid along every axis",
            allowed=1,
        )


def _pad_extents(extents: Sequence[int]) -> Extents:
    """One to three extents as x, y and z; missing ones are 1."""
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
