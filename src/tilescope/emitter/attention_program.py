"""Attention forward as a whole program for Hopper: the arithmetic that fills the gaps of a kernel's plan.

A producer warp loads Q, K and V; two or three warpgroups have 64 queries each. The plan determines the addresses of
tiles and barriers, the stages of K and V, and the registers of each role. The template has the computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilescope.emitter.source_template import (
    EMIT,
    TYPE_NOT_MULTIPLIED,
    Facts,
    WgmmaText,
    multiplied_row,
    template_values,
)
from tilescope.emitter.tile_program import TileFacts, map_facts
from tilescope.emitter.tile_reader import DescriptorFacts
from tilescope.errors import Violation, raise_all
from tilescope.kernel_plan.planned_kernel import KernelPlan
from tilescope.layout import AddressTerms
from tilescope.planner.plans import Plan
from tilescope.sentence import by
from tilescope.sync.mbarrier import MBARRIER_BYTES

GROUP_QUERIES = 64  # rows of one wgmma
HEAD_DIMS = (64, 128)
_TILES = ("Q", "K", "V", "O")
TEST_SHAPE = (2, 4, 2, 1000, 1000)  # batches, heads, heads of K and V, queries and keys: groups of heads and odd edges

OTHER_KERNEL = EMIT.worded(
    argument="program",
    found='{found} in a kernel with program = "attention"',
    limit="the program of attention has {limit}",
    fix="Start from the file again (tilescope plan --template attention-forward-128), or leave out the line of the program.",
)


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """A tile in shared memory, and the plan of its path."""

    offset: int  # of its first stage, in bytes
    plan: Plan


@dataclass(frozen=True, slots=True)
class AttentionBarrier:
    """An mbarrier, or a ring of them."""

    name: str  # q_full, k_empty, …
    offset: int
    stages: int
    count: int


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """What a kernel's plan decides of the program."""

    causal: bool
    groups: int  # warpgroups that multiply
    stages: int  # of K, and of V
    tiles: Mapping[str, AttentionTile]  # q, k, v and o; o is that of one warpgroup
    barriers: Sequence[AttentionBarrier]
    producer_registers: int
    consumer_registers: int
    smem_bytes: int


@dataclass(frozen=True, slots=True)
class _Copy:
    """A TMA copy of a tile: what is added to its shared address, and its first column."""

    offset: str
    column: int


@dataclass(frozen=True, slots=True)
class _TileText:
    """A tile as the template reads it."""

    name: str
    offset: int
    bytes: int
    shape: str
    swizzle: str
    comment: str
    copies: tuple[_Copy, ...]
    terms: AddressTerms
    descriptors: list[list[str]]  # by block of mn and K step; none of a tile that is stored
    descriptor_fields: str
    group_step: int  # between the descriptors of two warpgroups


_COMMENTS = {
    "q": "",
    "k": "; of a stage",
    "v": "; of a stage, the head dimension is contiguous",
    "o": "; of a warpgroup",
}
_ARRIVALS = {  # who arrives, by the end of a barrier's name
    "full": "the producer's arrive.expect_tx",
    "empty": "one arrival of each warpgroup",
}


@dataclass(frozen=True, slots=True)
class AttentionFacts:
    """The names that the template uses."""

    head_dim: int
    data_type: str
    causal: bool
    groups: int
    queries: int
    keys: int
    stages: int
    tiles: tuple[_TileText, ...]
    q: _TileText
    k: _TileText
    v: _TileText
    o: _TileText
    barriers: tuple[Facts, ...]
    smem_bytes: int
    producer_registers: int
    consumer_registers: int
    scores: WgmmaText  # Q K^T
    values: WgmmaText  # P V
    box_columns: int
    map_swizzle: str
    shape: tuple[int, ...]
    rank: int = 4  # batches x heads x rows x head dimension
    destination: str = "shared::cluster"
    stmatrix_count: int = 4
    transposed: bool = False
    encoded_maps: tuple[()] = ()
    is_timed: bool = True


def describe_attention(plan: KernelPlan) -> AttentionKernel:
    """What a kernel's plan decides of the program; a RuleError if the program computes something else.

    >>> from tilescope.kernel_plan import plan_kernel
    >>> kernel = describe_attention(plan_kernel("attention-forward-64-causal"))
    >>> kernel.groups, kernel.causal, kernel.consumer_registers
    (3, True, 160)
    """
    raise_all(list(_obstacles(plan)))
    tiles = {}
    for name in _TILES:
        placed = plan.tile(name)
        assert placed.plan is not None
        tiles[name.lower()] = AttentionTile(placed.offset_bytes, placed.plan)
    barriers = []
    offset = plan.barriers_offset_bytes
    for barrier in plan.barriers:
        barriers.append(AttentionBarrier(barrier.name.lower(), offset, barrier.stages, barrier.count))
        offset += barrier.stages * MBARRIER_BYTES
    registers = {use.role: use.registers for use in plan.registers}
    return AttentionKernel(
        causal=bool(plan.kernel.sizes.get("CAUSAL", 0)),
        groups=plan.kernel.role("consumer").instances,
        stages=plan.tile("K").stages,
        tiles=tiles,
        barriers=barriers,
        producer_registers=registers["producer"],
        consumer_registers=registers["consumer"],
        smem_bytes=plan.smem_bytes,
    )


def _obstacles(plan: KernelPlan) -> Iterator[Violation]:
    """Why the program does not fit a kernel: its file may have been changed."""
    kernel = plan.kernel
    roles = {role.name: (role.warps, role.registers is not None) for role in kernel.roles}
    if roles != {"producer": (4, True), "consumer": (4, True)}:
        limit = "a producer and consumers of 4 warps each, and setmaxnreg for both"
        yield OTHER_KERNEL.violation(found=f"roles {', '.join(roles)}", limit=limit)
        return
    placed = {tile.name: tile for tile in plan.tiles}
    if sorted(placed) != sorted(_TILES):
        yield OTHER_KERNEL.violation(found=f"tiles {', '.join(placed)}", limit="Q, K, V and O in shared memory")
        return
    yield from _shape_obstacles(plan)
    yield from _placement_obstacles(plan)


def _shape_obstacles(plan: KernelPlan) -> Iterator[Violation]:
    """Shapes and types that the program does not compute."""
    kernel = plan.kernel
    rows, head_dim = kernel.tile("Q").shape
    keys = kernel.tile("K").shape[0]
    groups = kernel.role("consumer").instances
    if plan.arch.name != "sm_90":
        yield OTHER_KERNEL.violation(found=f"arch = {plan.arch.name}", limit="wgmma, which sm_90 has")
    if head_dim not in HEAD_DIMS:
        yield OTHER_KERNEL.violation(found=f"a head dimension of {head_dim}", limit="64 or 128 elements of a head")
    if rows != groups * GROUP_QUERIES:
        yield OTHER_KERNEL.violation(
            found=f"{rows} queries for {groups} warpgroups", limit="64 queries of each warpgroup"
        )
    shapes = {name: kernel.tile(name).shape for name in _TILES}
    expected = {"Q": (rows, head_dim), "K": (keys, head_dim), "V": (keys, head_dim), "O": (GROUP_QUERIES, head_dim)}
    if shapes != expected or keys % 16 or keys > 256:
        limit = "K and V of one shape, with a multiple of 16 keys up to 256, and O of 64 queries"
        yield OTHER_KERNEL.violation(
            found=", ".join(f"{name} {by(shape)}" for name, shape in shapes.items()), limit=limit
        )
    if any(kernel.tile(name).data_type.ptx != "bf16" for name in _TILES):
        yield OTHER_KERNEL.violation(found="other types than bf16", limit="tiles of bf16")


def _placement_obstacles(plan: KernelPlan) -> Iterator[Violation]:
    """Stages and places that the program does not have."""
    placed = {tile.name: tile for tile in plan.tiles}
    if placed["K"].stages != placed["V"].stages or placed["Q"].stages > 1 or placed["O"].stages > 1:
        stages = ", ".join(f"{name} {count}" for name, count in plan.stages.items())
        yield OTHER_KERNEL.violation(found=f"stages {stages}", limit="as many stages of K as of V, and one of Q and O")
    packed = [name for name in _TILES if placed[name].plan is None]
    if packed and not plan.kernel.tile("K").shape[0] % 16:
        yield OTHER_KERNEL.violation(found=f"no copy by TMA of {', '.join(packed)}", limit="a tensor for every tile")
    if plan.overlays:
        yield OTHER_KERNEL.violation(found="tiles that overlap", limit="separate bytes for every tile")


def attention_facts(kernel: AttentionKernel) -> Facts:
    """The facts that the template of a kernel takes."""
    texts = {name: _tile_text(name, tile) for name, tile in kernel.tiles.items()}
    problem = kernel.tiles["q"].plan.problem
    row = multiplied_row(problem.data_type, "attention", TYPE_NOT_MULTIPLIED)
    head_dim = problem.tile[1]
    keys = kernel.tiles["k"].plan.problem.tile[0]
    k_step = head_dim // len(texts["q"].descriptors[0])
    stored = kernel.tiles["o"].plan
    return template_values(
        AttentionFacts(
            head_dim=head_dim,
            data_type=problem.data_type.ptx,
            causal=kernel.causal,
            groups=kernel.groups,
            queries=problem.tile[0],
            keys=keys,
            stages=kernel.stages,
            tiles=tuple(texts.values()),
            q=texts["q"],
            k=texts["k"],
            v=texts["v"],
            o=texts["o"],
            barriers=tuple(
                template_values(barrier) | {"comment": _ARRIVALS[barrier.name[2:]]} for barrier in kernel.barriers
            ),
            smem_bytes=kernel.smem_bytes,
            producer_registers=kernel.producer_registers,
            consumer_registers=kernel.consumer_registers,
            scores=row.wgmma(keys, k_step, "K", "K"),
            values=row.wgmma(head_dim, k_step, None, "MN"),
            box_columns=stored.tensor_map(0, stored.problem.tile).box[0],
            map_swizzle=str(map_facts(stored.tensor_map(0, stored.problem.tile))["swizzle"]),
            shape=TEST_SHAPE,
        )
    )


def _tile_text(name: str, tile: AttentionTile) -> _TileText:
    plan = tile.plan
    is_loaded = plan.problem.direction == "load"
    described = DescriptorFacts.of(plan) if is_loaded else None
    descriptors = [] if described is None else described.descriptors
    group_step = 0
    if len(descriptors) > 1:
        first, second = (int(block[0], 0) for block in descriptors[:2])
        group_step = second - first
    facts = TileFacts.of(plan)
    return _TileText(
        name=name,
        offset=tile.offset,
        bytes=plan.stage_bytes,
        shape=by(plan.problem.tile),
        swizzle=plan.swizzle.name,
        comment=_COMMENTS[name],
        copies=tuple(
            _Copy(f" + {copy.smem_offset_bytes}" if copy.smem_offset_bytes else "", copy.coords[0])
            for copy in plan.copies
        ),
        terms=facts.terms,
        descriptors=descriptors,
        descriptor_fields="" if described is None else described.descriptor_fields,
        group_step=group_step,
    )
