"""Whether a small kernel of `random_kernels` fits, by trying every place of every tile: nothing here is the planner's.

All tiles there are multiples of 8 KiB, so a layout that fits can be pushed down to multiples of 8 KiB.
"""

import itertools

GRANULE = 8192
ELEMENT_BYTES = 2
BARRIERS = 1024  # bytes, with their padding


def shared_tiles(kernel):
    """The tiles in shared memory, by name."""
    return {name: row for name, row in kernel["tiles"].items() if row.get("memory", "shared") == "shared"}


def fits_somehow(kernel, limit_bytes):
    """Whether some layout with the fewest stages leaves room for barriers below the limit."""
    tiles = list(shared_tiles(kernel))
    apart = {
        (first, second)
        for first, second in itertools.combinations(range(len(tiles)), 2)
        if not _may_share(kernel, tiles[first], tiles[second])
    }
    return _place([_granules(kernel, name) for name in tiles], apart, (limit_bytes - BARRIERS) // GRANULE, [])


def fits_side_by_side(kernel, limit_bytes):
    """Whether all tiles and the barriers fit below each other."""
    return sum(_granules(kernel, name) for name in shared_tiles(kernel)) * GRANULE + BARRIERS <= limit_bytes


def has_pair_to_share(kernel):
    """Whether any two tiles may lie over each other."""
    return any(_may_share(kernel, *pair) for pair in itertools.combinations(shared_tiles(kernel), 2))


def _place(granules, apart, capacity, starts):
    """Whether the tiles after those at `starts` have places, all of which are tried."""
    number = len(starts)
    if number == len(granules):
        return True
    for start in range(capacity - granules[number] + 1):
        hits = any(
            (other, number) in apart and start < first + granules[other] and first < start + granules[number]
            for other, first in enumerate(starts)
        )
        if not hits and _place(granules, apart, capacity, [*starts, start]):
            return True
    return False


def _granules(kernel, name):
    row = kernel["tiles"][name]
    rows, columns = row["shape"]
    copies = kernel["roles"]["consumer"]["instances"] if row.get("per_instance") else 1
    size = rows * columns * ELEMENT_BYTES * _least_stages(row) * copies
    assert size % GRANULE == 0
    return size // GRANULE


def _least_stages(row):
    return row["stages"][0] if isinstance(row["stages"], list) else row["stages"]


def _may_share(kernel, one, other):
    """Whether one of two tiles allows overlays, and no step finds both in use."""
    tiles = kernel["tiles"]
    allowed = tiles[one]["overlay"] or tiles[other]["overlay"]
    return allowed and not _places_in_use(kernel, one) & _places_in_use(kernel, other)


def _places_in_use(kernel, name):
    """The steps in which a tile may hold data: from its first to its last access, and loops that it is carried through."""
    steps = kernel["steps"]
    accesses = [
        place
        for place, step in enumerate(steps)
        if name in (*step.get("reads", ()), *step.get("writes", ()), step.get("a"), step.get("b"))
    ]
    inner = {place for place, step in enumerate(steps) if step["loop"] == "inner"}
    loops = {steps[place]["loop"] for place in accesses}
    used = set(range(min(accesses), max(accesses) + 1))
    passes_inner = "inner" in loops and (len(loops) > 1 or _least_stages(kernel["tiles"][name]) > 1)
    return used | inner if passes_inner else used
