"""How many stages each ring gets: as many as fit, the ring with the fewest first.

    K [1, 8], V [1, 8]    1 1 ─▶ 2 1 ─▶ 2 2 ─▶ 3 2: 258048 of 232448 bytes, so 2 2

More stages never need less. So levels that all rings reach together are found by doubling and halving, and stages beyond a
choice that did not fit are not tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilescope.arch import Arch
from tilescope.kernel_plan.cluster_arrivals import arrival_factor
from tilescope.kernel_plan.handovers import (
    KernelBarrier,
    OverlayBarrier,
    Turn,
    arrivals,
    derive_rings,
    first_roles,
    last_roles,
    last_use,
    overlay_barriers,
    ring_barriers,
)
from tilescope.kernel_plan.interval_packing import QUICK_TRIALS, THOROUGH_TRIALS
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.lifetimes import Lifetime, derive_lifetimes
from tilescope.kernel_plan.placement import (
    Block,
    Placement,
    Placer,
    alloc_columns,
    plan_tiles,
    shared_blocks,
    tensor_blocks,
)
from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.planner.planned_tile import RESERVED_BYTES

MAX_DEEP = 6  # rings that get as many stages as fit, each in a separate alternative
MAX_REASONS = 4  # rings for which an alternative reports the limit
_PAIRS_PLACED = 25_000  # pairs of tiles in all choices of stages that are tried: a bound on the time
_LEAST_CHOICES = 16


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
        """Pairs of overlaid blocks."""
        return len(self.shared.overlays) + len(self.tensor.overlays)


class StageSearch:
    """Tries stages for the rings of a kernel; candidates are cached."""

    def __init__(self, kernel: KernelDescription, arch: Arch, limits: Limits, *, is_thorough: bool = True) -> None:
        self.kernel = kernel
        self.arch = arch
        self.limits = limits
        self.is_thorough = is_thorough  # whether a kernel that does not fit is searched for longer
        self.rings = derive_rings(kernel)
        self.least = tuple(kernel.tile(ring.tiles[0]).least_stages for ring in self.rings)
        self.most = tuple(kernel.tile(ring.tiles[0]).most_stages for ring in self.rings)
        self.plans = plan_tiles(kernel, arch)
        self._placer = Placer(kernel)
        self._may_overlay = any("*" in tile.overlay for tile in kernel.tiles)
        self._lowest: dict[tuple[int, ...], Candidate] = {}
        self._fitting: dict[tuple[int, ...], Candidate] = {}
        self._refused: list[tuple[int, ...]] = []
        self._choices_left = max(_LEAST_CHOICES, _PAIRS_PLACED // max(1, len(kernel.tiles)) ** 2)
        self._lifetimes: dict[tuple[bool, ...], dict[str, Lifetime]] = {}
        self._ordering: dict[tuple[str, str], tuple[OverlayBarrier, ...]] = {}

    def best_of(self, counts: tuple[int, ...]) -> Candidate:
        """The lowest placement: with the overlays that tiles name if it fits, else with all that they allow."""
        if counts not in self._lowest:
            candidate = self._try_overlays(counts, enough=False)
            if not candidate.fits(self.limits):  # a lower layout may have more overlays, and so more barriers
                candidate = self._fitting.get(counts, candidate)
            self._lowest[counts] = candidate
        return self._lowest[counts]

    def fits(self, counts: tuple[int, ...]) -> bool:
        """Whether these stages fit; after a limit of choices, no other one is tried."""
        if counts in self._fitting:
            return True
        if self._choices_left == 0 or any(
            all(has >= most for has, most in zip(counts, refused, strict=True)) for refused in self._refused
        ):
            return False
        self._choices_left -= 1
        if not self._is_beyond(counts, overlays=self._may_overlay):
            candidate = self._try_overlays(counts, enough=True)
            if candidate.fits(self.limits):
                self._fitting[counts] = candidate
                return True
        self._refused.append(counts)
        return False

    def _try_overlays(self, counts: tuple[int, ...], *, enough: bool) -> Candidate:
        """A placement without the overlays that are allowed if needed; with them if it does not fit."""
        if not self._may_overlay:
            return self._search_thoroughly(counts, overlays=False, enough=enough)
        if not self._is_beyond(counts, overlays=False):
            plain = self._search_thoroughly(counts, overlays=False, enough=enough)
            if plain.fits(self.limits):
                return plain
        return self._search_thoroughly(counts, overlays=True, enough=enough)

    def _is_beyond(self, counts: tuple[int, ...], *, overlays: bool) -> bool:
        """Whether tiles that are alive together already exceed a memory."""
        stages = self._stages_of(counts)
        lifetimes = self._lifetimes_with(counts, stages)
        shared = shared_blocks(self.kernel, self.rings, stages, lifetimes, self.plans)
        if self._placer.least_height(shared, overlays=overlays) > self.limits.smem_bytes:
            return True
        tensor = tensor_blocks(self.kernel, stages, lifetimes)
        return self._placer.least_height(tensor, overlays=overlays) > self.limits.columns

    def _search_thoroughly(self, counts: tuple[int, ...], *, overlays: bool, enough: bool) -> Candidate:
        """A placement; one of the fewest stages, without which the kernel is refused, is searched for longer."""
        candidate = self._place(counts, overlays=overlays, enough=enough)
        if self.is_thorough and counts == self.least and candidate.may_fit(self.limits):
            return self._place(counts, overlays=overlays, enough=enough, trials=THOROUGH_TRIALS)
        return candidate

    def fill_up(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """As many stages as fit from here on, the ring with the fewest first."""
        most = self.most
        growing = [number for number, count in enumerate(counts) if count < most[number]]
        counts = self._raise_together(counts, growing)
        growing = [number for number in growing if counts[number] < most[number]]
        while growing:
            ring = min(growing, key=lambda number: (counts[number], number))
            raised = self._raise_to(counts, [ring], counts[ring] + 1)
            if self.fits(raised):
                counts = raised
            else:
                growing.remove(ring)
                counts = self._raise_together(counts, growing)
            growing = [number for number in growing if counts[number] < most[number]]
        return counts

    def _raise_together(self, counts: tuple[int, ...], growing: Sequence[int]) -> tuple[int, ...]:
        """The highest common level of some rings that fits: steps are doubled, then halved."""
        if not growing:
            return counts
        level = min(counts[ring] for ring in growing)
        highest = max(self.most[ring] for ring in growing)
        step = 1
        while level < highest and self.fits(self._raise_to(counts, growing, min(level + step, highest))):
            level = min(level + step, highest)
            step *= 2
        while step > 1:
            step //= 2
            if level + step <= highest and self.fits(self._raise_to(counts, growing, level + step)):
                level += step
        return self._raise_to(counts, growing, level)

    def _raise_to(self, counts: tuple[int, ...], growing: Sequence[int], level: int) -> tuple[int, ...]:
        """The stages with some rings at this level, if they may have as many."""
        most = self.most
        return tuple(
            max(count, min(level, most[ring])) if ring in growing else count for ring, count in enumerate(counts)
        )

    def ranked(self) -> Iterator[tuple[int, ...]]:
        """Choices of stages that fit, best first: filled up evenly, each ring deep in turn, the fewest."""
        least = self.least
        if not self.fits(least):
            return
        choices = {self.fill_up(least): None}
        growing = [ring for ring, most in enumerate(self.most) if most > least[ring]]
        for ring in growing[:MAX_DEEP]:
            choices[self.fill_up(self._raise_together(least, [ring]))] = None
        choices[least] = None
        yield from choices

    def what_limits(self, counts: tuple[int, ...]) -> str:
        """Why no ring gets one stage more."""
        reasons = []
        ranged = [ring for ring, most in enumerate(self.most) if most > self.least[ring]]
        for ring in ranged[:MAX_REASONS]:
            name = self.rings[ring].name
            if counts[ring] >= self.most[ring]:
                reasons.append(f"{name} has the {counts[ring]} stages that it may have")
                continue
            more = self.best_of(self._raise_to(counts, [ring], counts[ring] + 1))
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
        if len(ranged) > MAX_REASONS:
            reasons.append(f"{len(ranged) - MAX_REASONS} more rings")
        return "; ".join(reasons) or "all stages are as asked"

    def _place(self, counts: tuple[int, ...], *, overlays: bool, enough: bool, trials: int = QUICK_TRIALS) -> Candidate:
        """Both memories with these stages; `enough`: any layout that fits is."""
        stages = self._stages_of(counts)
        lifetimes = self._lifetimes_with(counts, stages)
        blocks = shared_blocks(self.kernel, self.rings, stages, lifetimes, self.plans)
        tensor = self._placer.place_tensor(
            tensor_blocks(self.kernel, stages, lifetimes),
            overlays=overlays,
            trials=trials,
            enough=self.limits.columns if enough else 0,
        )
        number = sum(ring.barriers_per_stage * count for ring, count in zip(self.rings, counts, strict=True))
        added: tuple[OverlayBarrier, ...] = ()
        while True:
            shared = self._placer.place_shared(
                blocks,
                number + len(added),
                overlays=overlays,
                trials=trials,
                enough=self.limits.smem_bytes if enough else 0,
            )
            needed = self._order_overlays((*shared.overlays, *tensor.overlays))
            if len(needed) <= len(added):
                break
            added = needed
        return Candidate(stages, lifetimes, shared, tensor, needed)

    def barriers_of(self, candidate: Candidate) -> tuple[KernelBarrier, ...]:
        """The mbarriers of a placement: those of rings, and those of overlays."""
        rows = [row for ring in self.rings for row in ring_barriers(self.kernel, ring, candidate.stages[ring.tiles[0]])]
        return (*rows, *(_overlay_row(self.kernel, row) for row in candidate.overlay_barriers))

    def _stages_of(self, counts: tuple[int, ...]) -> dict[str, int]:
        """The stages of each tile."""
        stages = {tile.name: tile.most_stages for tile in self.kernel.tiles}
        for ring, count in zip(self.rings, counts, strict=True):
            stages |= dict.fromkeys(ring.tiles, count)
        return stages

    def _lifetimes_with(self, counts: tuple[int, ...], stages: Mapping[str, int]) -> dict[str, Lifetime]:
        """When tiles are alive, which depends on the rings that have more than one stage."""
        key = tuple(count > 1 for count in counts)
        if key not in self._lifetimes:
            self._lifetimes[key] = derive_lifetimes(self.kernel, stages)
        return self._lifetimes[key]

    def _order_overlays(self, overlays: Iterable[tuple[Block, Block]]) -> tuple[OverlayBarrier, ...]:
        """The barriers of all pairs of overlaid tiles."""
        pairs = dict.fromkeys(pair for first, second in overlays for pair in product(first.tiles, second.tiles))
        for pair in pairs:
            if pair not in self._ordering:
                self._ordering[pair] = overlay_barriers(self.kernel, *pair)
        return tuple(row for pair in pairs for row in self._ordering[pair])


def _overlay_row(kernel: KernelDescription, overlay: OverlayBarrier) -> KernelBarrier:
    """The mbarrier of an overlay: all that use the earlier tile last arrive, the writer of the later one waits."""
    roles = sorted(last_roles(kernel, overlay.before))
    count = 0
    waiting = sorted(first_roles(kernel, overlay.after))
    for role in roles:
        each = arrivals(kernel, Turn((last_use(kernel, overlay.before, role),), (role,)), role)
        count += each * arrival_factor(kernel, role, waiting, [overlay.after])
    return KernelBarrier(
        name=overlay.name,
        stages=1,
        count=count,
        bytes=0,
        waiting=tuple(waiting),
        arriving=tuple(roles),
        purpose=f"{overlay.after} lies over {overlay.before}",
    )
