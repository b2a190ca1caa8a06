"""How many stages each ring gets: as many as fit, the ring with the fewest first.

K [1, 8], V [1, 8]    1 1 ─▶ 2 1 ─▶ 2 2 ─▶ 3 2: 258048 of 232448 bytes, so 2 2
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tilescope.arch import Arch
from tilescope.kernel_plan.handovers import (
    KernelBarrier,
    OverlayBarrier,
    Ring,
    Turn,
    arrivals,
    derive_rings,
    first_roles,
    last_roles,
    overlay_barriers,
    ring_barriers,
)
from tilescope.kernel_plan.interval_packing import QUICK_TRIALS, THOROUGH_TRIALS
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.lifetimes import Lifetime, derive_lifetimes
from tilescope.kernel_plan.placement import (
    Placement,
    alloc_columns,
    place_shared,
    place_tensor,
    plan_tiles,
    shared_blocks,
    tensor_blocks,
)
from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.planner.planned_tile import RESERVED_BYTES
from tilescope.planner.plans import Plan


@dataclass(frozen=True, slots=True)
class Limits:
    """What a block has."""

    smem_bytes: int
    columns: int

    @classmethod
    def of(cls, arch: Arch, blocks_per_sm: int) -> Limits:
        """The limits of each of `blocks_per_sm` blocks that share an SM."""
        share = arch.smem_per_sm_bytes // blocks_per_sm - RESERVED_BYTES
        columns = TMEM_COLUMNS // blocks_per_sm if arch.has("tcgen05") else 0
        return cls(min(arch.smem_per_block_bytes, share), columns)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of stages with both memories placed."""

    stages: Mapping[str, int]
    lifetimes: Mapping[str, Lifetime]
    shared: Placement
    tensor: Placement
    barriers: tuple[KernelBarrier, ...]
    overlay_barriers: tuple[OverlayBarrier, ...]

    def fits(self, limits: Limits) -> bool:
        """Whether both memories have room."""
        return (
            self.shared.needed <= limits.smem_bytes
            and alloc_columns(self.tensor.needed) <= limits.columns
            and (self.tensor.needed <= limits.columns)
        )

    def may_fit(self, limits: Limits) -> bool:
        """Whether it does not fit, and another layout of it might."""
        is_lowest = self.shared.packing.is_lowest and self.tensor.packing.is_lowest
        is_hopeless = self.shared.least > limits.smem_bytes or self.tensor.least > limits.columns
        return not self.fits(limits) and not is_lowest and not is_hopeless

    @property
    def overlay_count(self) -> int:
        """Pairs of blocks that lie over each other."""
        return len(self.shared.overlays()) + len(self.tensor.overlays())


@dataclass(slots=True)
class StageSearch:
    """Tries stages for the rings of a kernel; candidates are kept."""

    kernel: KernelDescription
    arch: Arch
    limits: Limits
    is_thorough: bool = True  # whether a kernel that does not fit is searched for longer
    rings: tuple[Ring, ...] = ()
    plans: dict[str, Plan | None] = field(default_factory=dict)
    _tried: dict[tuple[tuple[int, ...], bool], Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rings = derive_rings(self.kernel)
        self.plans = plan_tiles(self.kernel, self.arch)

    def least(self) -> tuple[int, ...]:
        """The fewest stages of each ring."""
        return tuple(self.kernel.tile(ring.tiles[0]).least_stages for ring in self.rings)

    def most(self) -> tuple[int, ...]:
        """The most stages of each ring."""
        return tuple(self.kernel.tile(ring.tiles[0]).most_stages for ring in self.rings)

    def place(self, counts: tuple[int, ...], *, overlays: bool) -> Candidate:
        """Both memories with these stages."""
        key = (counts, overlays)
        if key not in self._tried:
            self._tried[key] = self._place(counts, overlays=overlays)
            if self.is_thorough and counts == self.least() and self._tried[key].may_fit(self.limits):
                self._tried[key] = self._place(counts, overlays=overlays, trials=THOROUGH_TRIALS)
        return self._tried[key]

    def best_of(self, counts: tuple[int, ...]) -> Candidate:
        """The placement with the overlays that tiles name if it fits, else with all that they allow."""
        plain = self.place(counts, overlays=False)
        if plain.fits(self.limits) or not any("*" in tile.overlay for tile in self.kernel.tiles):
            return plain
        return self.place(counts, overlays=True)

    def fits(self, counts: tuple[int, ...]) -> bool:
        """Whether these stages fit."""
        return self.best_of(counts).fits(self.limits)

    def fill_up(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """As many stages as fit from here on, the ring with the fewest first."""
        most = self.most()
        growing = [number for number, count in enumerate(counts) if count < most[number]]
        while growing:
            ring = min(growing, key=lambda number: (counts[number], number))
            raised = tuple(count + (number == ring) for number, count in enumerate(counts))
            if self.fits(raised):
                counts = raised
            else:
                growing.remove(ring)
            growing = [number for number in growing if counts[number] < most[number]]
        return counts

    def ranked(self) -> Iterator[tuple[int, ...]]:
        """Choices of stages that fit, best first: filled up evenly, each ring deep in turn, the fewest."""
        least = self.least()
        most = self.most()
        if not self.fits(least):
            return
        found = {self.fill_up(least): None}
        for ring in range(len(self.rings)):
            if most[ring] > least[ring]:
                deep = least
                while deep[ring] < most[ring]:
                    raised = tuple(count + (number == ring) for number, count in enumerate(deep))
                    if not self.fits(raised):
                        break
                    deep = raised
                found[self.fill_up(deep)] = None
        found[least] = None
        yield from found

    def what_limits(self, counts: tuple[int, ...]) -> str:
        """Why no ring gets one stage more."""
        reasons = []
        for ring, most in zip(range(len(self.rings)), self.most(), strict=True):
            name = self.rings[ring].name
            if counts[ring] >= most:
                if most > self.least()[ring]:
                    reasons.append(f"{name} has the {most} stages that it may have")
                continue
            raised = tuple(count + (number == ring) for number, count in enumerate(counts))
            more = self.best_of(raised)
            if more.shared.needed > self.limits.smem_bytes:
                reasons.append(
                    f"{counts[ring] + 1} stages of {name} need {more.shared.needed} of {self.limits.smem_bytes} bytes"
                )
            elif not more.fits(self.limits):
                reasons.append(
                    f"{counts[ring] + 1} stages of {name} need {more.tensor.needed} of {self.limits.columns} columns"
                )
            else:
                reasons.append(f"{name} could have {counts[ring] + 1} stages")
        return "; ".join(reasons) or "all stages are as asked"

    def _place(self, counts: tuple[int, ...], *, overlays: bool, trials: int = QUICK_TRIALS) -> Candidate:
        kernel = self.kernel
        stages = {tile.name: tile.most_stages for tile in kernel.tiles}
        for ring, count in zip(self.rings, counts, strict=True):
            stages |= dict.fromkeys(ring.tiles, count)
        lifetimes = derive_lifetimes(kernel, stages)
        rows = tuple(
            row for ring, count in zip(self.rings, counts, strict=True) for row in ring_barriers(kernel, ring, count)
        )
        blocks = shared_blocks(kernel, self.rings, stages, lifetimes, self.plans)
        tensor = place_tensor(kernel, tensor_blocks(kernel, stages, lifetimes), overlays=overlays, trials=trials)
        number = sum(row.stages for row in rows)
        added: tuple[OverlayBarrier, ...] = ()
        while True:
            shared = place_shared(kernel, blocks, number + len(added), overlays=overlays, trials=trials)
            needed = overlay_barriers(kernel, _overlaid_tiles(shared, tensor), lifetimes)
            if len(needed) <= len(added):
                break
            added = needed
        rows += tuple(_overlay_row(kernel, row) for row in needed)
        return Candidate(stages, lifetimes, shared, tensor, rows, needed)


def _overlaid_tiles(*placements: Placement) -> dict[str, tuple[str, ...]]:
    """For each tile those that lie over it and are alive later."""
    pairs: dict[str, tuple[str, ...]] = {}
    for placement in placements:
        for first, second in placement.overlays():
            for one in first.tiles:
                others = tuple(name for name in second.tiles if name not in pairs.get(one, ()))
                pairs[one] = pairs.get(one, ()) + others
    return pairs


def _overlay_row(kernel: KernelDescription, overlay: OverlayBarrier) -> KernelBarrier:
    """The mbarrier of an overlay: all that use the earlier tile last arrive, the writer of the later one waits."""
    roles = sorted(last_roles(kernel, overlay.before))
    count = 0
    for role in roles:
        uses = [
            place
            for place, step in (*kernel.reads_of(overlay.before), *kernel.writes_of(overlay.before))
            if step.role == role
        ]
        count += arrivals(kernel, Turn((max(uses),), (role,)), role)
    return KernelBarrier(
        name=overlay.name,
        stages=1,
        count=count,
        bytes=0,
        waiting=tuple(sorted(first_roles(kernel, overlay.after))),
        arriving=tuple(roles),
        purpose=f"{overlay.after} lies over {overlay.before}",
    )
