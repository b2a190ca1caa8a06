"""How the blocks of a GEMM share its work: which matrix gives wgmma its 64 rows, who shares k, and the order of the tiles.

swapped       wgmma takes 64 rows of B and as many columns as the tile has rows of A: a product of few rows of A wastes none
split         the blocks of a cluster, this many, each take a part of k of one tile, and add their sums through distributed shared memory
parts         this many clusters each take a part of k of one tile, and add their sums through global memory
tail          the tiles of the last round, which would leave SMs idle, are each shared by this many blocks, as `parts` are
group         this many tiles along m are taken before the next tile along n: what they share stays in the L2
dependent     the kernel starts while the one before it still runs: it fetches B, and waits for that one before it reads A

                    k ─────────────────────────────▶
split 2, parts 2    │ block 0 │ block 1 │ block 0 │ block 1 │
                    └─ cluster of part 0┴─ cluster of part 1┘
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.arithmetic import ceil_div
from tilescope.value import Value

COLUMN_GROUP = 8  # columns of wgmma's sums that lie in four registers of a thread
LARGEST_SPLIT = 8  # blocks of a portable cluster
LARGEST_PARTS = 128
GROUPED_TILES = 16  # of m that are taken together where the matrices exceed the L2


@dataclass(frozen=True, slots=True)
class Schedule(Value):
    """How blocks share a product.

    >>> Schedule(swapped=True, split=4).blocks_of_a_tile
    4
    """

    swapped: bool = False  # B gives the tensor core its rows
    split: int = 1  # blocks of a cluster that share the k of a tile
    parts: int = 1  # clusters that share it
    group: int = 0  # tiles along m taken together; 0: all
    tail: int = 1  # blocks that share a tile of the last round
    dependent: bool = False  # it starts before the kernel before it has ended, and waits for that before it reads A

    @property
    def blocks_of_a_tile(self) -> int:
        """Blocks that each take a part of k of the same tile."""
        return self.split * self.parts

    @property
    def persistent(self) -> bool:
        """Whether a block takes one tile after another; blocks that share k take one."""
        return self.blocks_of_a_tile == 1

    def k_tiles(self, k: int, tile_k: int) -> int:
        """K steps of one block; those behind the end of k are filled with zeros.

        >>> Schedule(split=2, parts=3).k_tiles(4096, 64)
        11
        """
        return ceil_div(ceil_div(k, tile_k), self.blocks_of_a_tile)

    def owners(self, columns: int) -> int:
        """Blocks of a cluster that add and store: each the same whole groups of 8 columns of the sums.

        >>> Schedule(split=4).owners(64), Schedule(split=4).owners(16), Schedule(split=2).owners(24)
        (4, 2, 1)
        """
        groups = columns // COLUMN_GROUP
        return max(count for count in range(1, self.split + 1) if groups % count == 0)

    def share(self, columns: int) -> int:
        """Columns of the sums that one block adds and stores."""
        return columns // self.owners(columns)


PLAIN = Schedule()  # one tile after another, down m


def schedule_words(schedule: Schedule) -> str:
    """How blocks share the work, in a few words; "": one tile after another, down m.

    >>> schedule_words(Schedule(swapped=True, split=2))
    'swapped, split 2'
    """
    words = ["swapped"] if schedule.swapped else []
    named = (("split", schedule.split), ("parts", schedule.parts), ("tail", schedule.tail))
    words += [f"{name} {count}" for name, count in named if count > 1]
    if schedule.group:
        words.append(f"groups of {schedule.group}")
    if schedule.dependent:
        words.append("dependent launch")
    return ", ".join(words)
