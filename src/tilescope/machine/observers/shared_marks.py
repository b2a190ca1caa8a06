"""Which copy or store wrote each piece of a cluster's shared memory last, as numbers that observers give out.

tile_marks     by 16 bytes: the tensor copy
store_marks    by 4 bytes: the store of threads
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.machine.program import Program
from tilescope.swizzle import CHUNK_BYTES
from tilescope.sync.cluster_shape import ClusterShape

Marks = npt.NDArray[np.int32]
WORD_BYTES = 4


@dataclass(slots=True, eq=False)
class SharedMarks:
    """The marks of one cluster. Each array is made when the first mark is put."""

    shape: ClusterShape
    program: Program
    pc: int = 0  # of the instruction that is looked at
    tile_marks: Marks | None = None
    store_marks: Marks | None = None

    def at(self, pc: int) -> SharedMarks:
        """The same, for another instruction."""
        self.pc = pc
        return self

    def make_tile_marks(self) -> Marks:
        """The marks of tensor copies."""
        if self.tile_marks is None:
            self.tile_marks = np.zeros(self._shared_bytes // CHUNK_BYTES, np.int32)
        return self.tile_marks

    def make_store_marks(self) -> Marks:
        """The marks of stores."""
        if self.store_marks is None:
            self.store_marks = np.zeros(self._shared_bytes // WORD_BYTES, np.int32)
        return self.store_marks

    @property
    def _shared_bytes(self) -> int:
        return self.shape.blocks * self.shape.shared_stride
