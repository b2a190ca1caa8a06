"""When a tile is alive: from its first write to its last read, over the loops around them.

Time is the place of a step in the kernel's list. A loop runs its places again and again, so a tile that enters or leaves a
loop, or is carried from one round to the next, is alive at all of them:

    place     0        1       2          3          4
    step      load Q │ load K  S = Q K    O += P V │ store O
    Q         ███████████████████████████████████
    K, ring            ███████████████████████████      filled ahead: the whole loop
    O                  ████████████████████████████████████
"""

from __future__ import annotations

from collections.abc import Mapping

from tilescope.kernel_plan.kernel_description import KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription

Lifetime = frozenset[int]  # places of steps


def derive_lifetimes(kernel: KernelDescription, stages: Mapping[str, int]) -> dict[str, Lifetime]:
    """The places at which each tile is alive, with these stages.

    A tile that no step uses is alive always.
    """
    return {tile.name: _lifetime(kernel, tile, stages[tile.name]) for tile in kernel.tiles}


def _lifetime(kernel: KernelDescription, tile: KernelTile, stages: int) -> Lifetime:
    writes = [place for place, _ in kernel.writes_of(tile.name)]
    reads = [place for place, _ in kernel.reads_of(tile.name)]
    places = sorted({*writes, *reads})
    if not places:
        return frozenset(range(len(kernel.steps)))
    home = home_path(kernel, tile.name)
    alive = set(range(places[0], places[-1] + 1))
    for place in places:  # a loop inside the home is passed as a whole
        path = kernel.path(kernel.steps[place].loop)
        if len(path) > len(home):
            alive |= set(loop_places(kernel, path[len(home)]))
    is_carried = bool(reads) and bool(writes) and reads[0] < writes[0]
    if home and (stages > 1 or is_carried):
        alive |= set(loop_places(kernel, home[-1]))
    return frozenset(alive)


def home_path(kernel: KernelDescription, tile: str) -> tuple[str, ...]:
    """The loops in each round of which a tile is filled and used up once: those around all steps that access it."""
    paths = [kernel.path(step.loop) for _, step in (*kernel.writes_of(tile), *kernel.reads_of(tile))]
    if not paths:
        return ()
    common: list[str] = []
    for level in zip(*paths, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return tuple(common)


def loop_places(kernel: KernelDescription, loop: str) -> range:
    """The places of a loop's steps, those of loops inside it included."""
    places = [place for place, step in enumerate(kernel.steps) if loop in kernel.path(step.loop)]
    return range(places[0], places[-1] + 1) if places else range(0)
