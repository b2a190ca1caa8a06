"""Several products of one shape in one kernel: a strided batch, or the experts of a mixture with their own rows.

    strided      A (count x m x k), B (count x n x k), C (count x m x n)
    contiguous   the rows of all experts one below the other, A (rows x k), C (rows x n), B (count x n x k). A group starts at a
                 multiple of the tile's m; an array says for every row whose it is, -1 where it is nobody's, and a tile asks for its
                 first row
    masked       A (count x m x k), C (count x m x n), B (count x n x k); an array says how many of its m rows each expert has,
                 and tiles without rows are left out

Maps that hold one matrix for every item have one dimension more, so that nothing beyond the end of an item is read or written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.value import Value

Rows = Literal["strided", "contiguous", "masked"]
EXPERT_ROWS: tuple[Rows, ...] = ("contiguous", "masked")
LARGEST_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class Batch(Value):
    """How many products there are, and how their rows are stored.

    >>> Batch(8, "contiguous").stacks("a"), Batch(8, "contiguous").stacks("b"), Batch().stacks("c")
    (False, True, False)
    """

    count: int = 1  # products, or experts
    rows: Rows = "strided"  # how the rows of A are stored: strided, contiguous or masked

    @property
    def is_of_experts(self) -> bool:
        """Whether an array of the kernel assigns rows to items."""
        return self.rows != "strided"

    def stacks(self, matrix: str) -> bool:
        """Whether there is one matrix for every item, and not one for all."""
        if self.rows == "contiguous":
            return matrix == "b"
        return self.count > 1 or self.rows == "masked"

    def rows_of_a(self, m: int) -> int:
        """Rows of A in one matrix: those of all experts where they are contiguous, m on average each."""
        return m * self.count if self.rows == "contiguous" else m

    def __str__(self) -> str:
        return f"batch of {self.count}" if self.rows == "strided" else f"{self.count} experts, {self.rows} rows"


ONE = Batch()
