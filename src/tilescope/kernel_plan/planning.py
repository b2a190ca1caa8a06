"""`plan_kernel`: a whole kernel under one budget of shared memory, tensor memory, registers and barriers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path

from tilescope.arch import Arch, ArchName, architectures_with
from tilescope.card import Card, CardName
from tilescope.errors import PlanError, RuleError, Violation, argument_type
from tilescope.kernel_plan.kernel_file import KernelDescription, kernel_data, read_kernel
from tilescope.kernel_plan.kernel_pipeline import KernelPipeline, check_bars
from tilescope.kernel_plan.kernel_rules import KERNEL_SMEM, KERNEL_STEP, KERNEL_TMEM
from tilescope.kernel_plan.known_kernels import known_kernel_names, known_kernel_text
from tilescope.kernel_plan.nearest_change import nearest_changes
from tilescope.kernel_plan.placement import BARRIERS, alloc_columns, lane_of
from tilescope.kernel_plan.planned_kernel import (
    KernelAlternative,
    KernelOverlay,
    KernelPlan,
    PlacedColumns,
    PlacedTile,
)
from tilescope.kernel_plan.registers import check_registers, count_registers, entry_registers
from tilescope.kernel_plan.stage_search import Candidate, Limits, StageSearch
from tilescope.kernel_plan.tile_plans import convolution_of, tensor_map_of, tile_alignment
from tilescope.planner.problem import resolve_card
from tilescope.reading import integer
from tilescope.sync.thread_limits import MAX_BLOCKS

_MOST_BLOCKS = 32
_FEATURES = {"load": "tma", "store": "tma", "wgmma": "wgmma", "tcgen05.mma": "tcgen05"}


def plan_kernel(
    kernel: KernelDescription | Mapping[str, object] | str | Path,
    *,
    arch: ArchName | Arch | None = None,
    card: CardName | Card | None = None,
    blocks_per_sm: int | None = None,
    cluster: int | None = None,
    sizes: Mapping[str, int] | None = None,
) -> KernelPlan:
    """The plan of a whole kernel: offsets, stages, overlays, columns, registers and barriers; PlanError if it does not fit.

    `kernel` is plain data, the text of a TOML file, its path, or the name of a known kernel. `sizes` replaces some of its
    sizes.
    Defaults (None) are those of the kernel, otherwise sm_90, one block per SM and no cluster.

    >>> import tilescope as ts
    >>> plan = ts.plan_kernel("flash-attention-3-forward-128")
    >>> plan.smem_bytes, plan.left_bytes, ts.simulate(plan.pipeline).verdict
    (214016, 18432, 'proven')
    """
    described = _read(kernel, sizes)
    if arch is None and card is None and described.arch is not None:
        arch = Arch.named(described.arch)
    target, _ = resolve_card(arch, card)
    blocks = (
        described.blocks_per_sm if blocks_per_sm is None else integer("blocks_per_sm", blocks_per_sm, 1, _MOST_BLOCKS)
    )
    blocks_in_cluster = described.cluster if cluster is None else integer("cluster", cluster, 1, MAX_BLOCKS)
    if (blocks, blocks_in_cluster) != (described.blocks_per_sm, described.cluster):
        described = read_kernel({**described.written, "blocks_per_sm": blocks, "cluster": blocks_in_cluster})
    _require_operations(described, target)
    limits = Limits.of(target, blocks)
    search = StageSearch(described, target, limits)
    ranked = list(search.ranked())
    chosen = search.best_of(ranked[0] if ranked else search.least)
    uses = count_registers(described, chosen.lifetimes, blocks)
    problems: list[Violation] = [*check_registers(described, uses, blocks), *check_bars(described)]
    if not ranked:
        problems += _beyond_memory(described, target, limits, search, chosen)
    if problems:
        raise PlanError(problems)
    return _make_plan(search, ranked, chosen, blocks)


def _read(kernel: object, sizes: Mapping[str, int] | None) -> KernelDescription:
    """The kernel that an argument is, describes or names."""
    match kernel:
        case KernelDescription():
            return kernel if sizes is None else read_kernel(kernel.written, sizes)
        case Path():
            return read_kernel(kernel_data(kernel.read_bytes(), kernel.name), sizes)
        case str() if kernel in known_kernel_names():
            return read_kernel(kernel_data(known_kernel_text(kernel), f"{kernel}.toml"), sizes)
        case str():
            return read_kernel(kernel_data(kernel, "kernel"), sizes)
        case Mapping():
            return read_kernel(kernel, sizes)
    expected = "a kernel: plain data, the text of its file, a path, or a known kernel's name"
    fix = 'Use "flash-attention-3-forward-128", for example.'
    raise RuleError([argument_type("kernel", kernel, expected, fix)])


def _require_operations(kernel: KernelDescription, arch: Arch) -> None:
    """Refuse steps whose instructions the architecture does not have."""
    problems = [
        KERNEL_STEP.violation(
            at=f"steps[{place}]",
            found=f"{step.operation} on {arch.name}",
            limit=f"it exists on {', '.join(architectures_with(_FEATURES[step.operation]))}",
            fix="Use one of these architectures, or another operation.",
        )
        for place, step in enumerate(kernel.steps)
        if step.operation in _FEATURES and not arch.has(_FEATURES[step.operation])
    ]
    if problems:
        raise PlanError(problems)


def _beyond_memory(
    kernel: KernelDescription, arch: Arch, limits: Limits, search: StageSearch, chosen: Candidate
) -> list[Violation]:
    """Which memory has no room, and the nearest changes after which all have."""
    changes = nearest_changes(kernel, arch, limits)
    stages = [
        f"{count} stages of {ring.name}" for ring, count in zip(search.rings, search.least, strict=True) if count > 1
    ]
    problems = []
    blocks = kernel.blocks_per_sm if kernel.blocks_per_sm > 1 else None
    if chosen.shared.needed > limits.smem_bytes:
        fixes = [f"{change.text}: {change.smem_bytes} bytes" for change in changes]
        problems.append(
            KERNEL_SMEM.violation(
                needed_bytes=chosen.shared.needed,
                stages=", ".join(stages) or None,
                arch=arch.name,
                limit_bytes=limits.smem_bytes,
                blocks=blocks,
                fix=_advice(fixes),
            )
        )
    if alloc_columns(chosen.tensor.needed) > limits.columns or chosen.tensor.needed > limits.columns:
        fixes = [f"{change.text}: {change.tmem_columns} columns" for change in changes]
        problems.append(
            KERNEL_TMEM.violation(
                needed_columns=chosen.tensor.needed,
                stages=", ".join(stages) or None,
                limit_columns=limits.columns,
                blocks=blocks,
                fix=_advice(fixes),
            )
        )
    return problems


def _advice(told: list[str]) -> str:
    """Changes as sentences."""
    if not told:
        return "No single change of stages, overlays, sizes or types is enough, and no two of them: use smaller tiles."
    sentences = [f"{told[0][0].upper()}{told[0][1:]}."]
    sentences += [f"Or {text}." for text in told[1:]]
    return " ".join(sentences)


def _make_plan(search: StageSearch, ranked: list[tuple[int, ...]], chosen: Candidate, blocks: int) -> KernelPlan:
    kernel = search.kernel
    at_entry = entry_registers(kernel, blocks)
    spots = chosen.shared.packing.spots
    barriers = search.barriers_of(chosen)
    pipeline = KernelPipeline(
        kernel,
        search.rings,
        chosen.stages,
        barriers,
        chosen.overlay_barriers,
        chosen.shared,
        chosen.tensor,
        at_entry,
    ).build()
    return KernelPlan(
        kernel=kernel,
        arch=search.arch,
        blocks_per_sm=blocks,
        tiles=tuple(_placed_tile(search, chosen, tile.name) for tile in kernel.in_memory("shared")),
        columns=tuple(_placed_columns(chosen)),
        registers=count_registers(kernel, chosen.lifetimes, blocks),
        entry_registers=at_entry,
        barriers=barriers,
        barriers_offset_bytes=spots[BARRIERS].offset if BARRIERS in spots else chosen.shared.needed,
        overlays=tuple(_overlays(chosen)),
        smem_bytes=chosen.shared.needed,
        smem_limit_bytes=search.limits.smem_bytes,
        tmem_columns=chosen.tensor.needed,
        alloc_columns=alloc_columns(chosen.tensor.needed),
        tmem_limit_columns=search.limits.columns,
        alternatives=tuple(_alternative(search, counts) for counts in ranked),
        pipeline=pipeline,
    )


def _placed_tile(search: StageSearch, chosen: Candidate, name: str) -> PlacedTile:
    block = chosen.shared.blocks_of(name)[0]
    planned = search.plans[name]
    tile = search.kernel.tile(name)
    image = tile.tensor if tile.tensor is not None and tile.tensor.filter else None
    return PlacedTile(
        name=name,
        offset_bytes=chosen.shared.packing.spots[block.name].offset,
        size_bytes=block.size,
        stage_bytes=block.stride,
        stages=block.stages,
        alignment_bytes=tile_alignment(search.kernel, tile, planned),
        alive=tuple(sorted(chosen.lifetimes[name])),
        plan=planned,
        tensor_map=None if planned is None else tensor_map_of(search.kernel, tile, planned),
        convolution=None if planned is None or image is None else convolution_of(tile, image, planned.tensor_map(0)),
    )


def _placed_columns(chosen: Candidate) -> list[PlacedColumns]:
    placed = []
    for block in chosen.tensor.blocks:
        spot = chosen.tensor.packing.spots[block.name]
        placed.append(
            PlacedColumns(
                name=block.name,
                tile=block.tiles[0],
                first_column=spot.offset,
                columns=block.size,
                lane=lane_of(spot),
                half_lanes=len(block.halves) > 1,
                alive=tuple(sorted(block.lifetime)),
            )
        )
    return placed


def _overlays(chosen: Candidate) -> list[KernelOverlay]:
    barriers: dict[frozenset[str], list[str]] = {}
    for row in chosen.overlay_barriers:
        barriers.setdefault(frozenset((row.before, row.after)), []).append(row.name)
    overlays = []
    for memory, placement in (("shared", chosen.shared), ("tensor", chosen.tensor)):
        for first, second in placement.overlays:
            pairs = [frozenset(pair) for pair in product(first.tiles, second.tiles)]
            names = tuple(name for pair in pairs for name in barriers.get(pair, ()))
            overlays.append(KernelOverlay(first.name, second.name, memory, names))
    return overlays


def _alternative(search: StageSearch, counts: tuple[int, ...]) -> KernelAlternative:
    candidate = search.best_of(counts)
    return KernelAlternative(
        stages=tuple((ring.name, count) for ring, count in zip(search.rings, counts, strict=True)),
        smem_bytes=candidate.shared.needed,
        tmem_columns=candidate.tensor.needed,
        overlays=candidate.overlay_count,
        limit=search.what_limits(counts),
    )
