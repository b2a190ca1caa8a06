"""Scale factors of the block-scaled mma.sync (sm_120): which lanes' registers count, and which of their bytes.

Every lane passes one 32-bit register for A and one for B; thread-id and byte-id, immediates of the instruction, choose:

    A, thread-id 0   row  0  8     1  9     2 10  …        B, thread-id 0   column  0           1           …
                    lane  0  1     4  5     8  9                             lane   0           4
    A, thread-id 1  lane  2  3     6  7    10 11           B, thread-id 1    lane   1           5   …  up to 3

    scale_vec   k      scales   byte-id      bytes
    1X          32     1        0 to 3       id
    2X          64     2        0 or 2       id and id + 1, for the halves of k
    4X          64     4        0            0 to 3, for the quarters of k
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tilescope.errors import RuleError, printed
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.tcgen05_kind import Documented
from tilescope.reading import integer, is_one_of, known_name
from tilescope.rule import rule
from tilescope.value import Value, row_field

_LANES = 'ts.scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id={})'
SCALE_ID = rule(
    "scale-id", "The immediates of a block-scaled mma.sync are those that its scale_vec allows.",
    source="PTX ISA, mma: Block scaling, thread-id and byte-id", architectures=("sm_120",), passing=_LANES.format(1),
    failing=_LANES.format(2),
)  # fmt: skip
_EXTENTS: dict[Literal["A", "B"], int] = {"A": 16, "B": 8}
_THREAD_IDS = {"A": (0, 1), "B": (0, 1, 2, 3)}


@dataclass(frozen=True, slots=True)
class ScaleLanes(Documented, Value):
    """The lanes and bytes that a block-scaled mma.sync takes its scale factors from.

    >>> scale_lanes("nvfp4", "A", thread_id=1).lane(11), scale_lanes("mxfp4", "B", thread_id=2).lane(5)
    (15, 22)
    >>> scale_lanes("mxfp4", "A", byte_id=2).bytes_used
    (2, 3)
    """

    format: ScaleFormat = row_field(ScaleFormat.named)
    operand: Literal["A", "B"] = "A"
    thread_id: int = 0
    byte_id: int = 0

    @property
    def instruction(self) -> str:
        """The instruction that takes them."""
        return f"mma.m16n8k{self.format.k_steps[0]}"

    @property
    def extent(self) -> int:
        """Rows of A, or columns of B."""
        return _EXTENTS[self.operand]

    @property
    def bytes_used(self) -> tuple[int, ...]:
        """The bytes of a lane's register, in the order of k."""
        return tuple(range(self.byte_id, self.byte_id + self.format.per_instruction(self.format.k_steps[0])))

    def lane(self, index: int) -> int:
        """The lane whose register holds the scales of row (A) or column (B) `index`."""
        index = integer("index", index, 0, self.extent - 1)
        return 4 * (index % 8) + self.thread_id * (2 if self.operand == "A" else 1) + index // 8

    def lanes(self) -> tuple[int, ...]:
        """The lane of every row or column."""
        return tuple(self.lane(index) for index in range(self.extent))


def scale_lanes(kind: Any, operand: Any, *, thread_id: int = 0, byte_id: int = 0) -> ScaleLanes:
    """Which lanes' bytes a block-scaled mma.sync uses, for a format and the instruction's immediates."""
    row = ScaleFormat.named(kind)
    operand = known_name("operand", operand, _EXTENTS, "operand with scale factors")
    problems = []
    for name, given, known in (
        ("thread_id", thread_id, _THREAD_IDS[operand]),
        ("byte_id", byte_id, row.ids(row.k_steps[0])),
    ):
        if not is_one_of(given, known):
            limit = (
                f"{name.replace('_', '-')} of {operand} with scale_vec {row.qualifier} is {', '.join(map(str, known))}"
            )
            problems.append(SCALE_ID.violation(name, f"{name} = {printed(given)}", limit, f"Use {known[0]}."))
    if problems:
        raise RuleError(problems)
    return ScaleLanes(row, operand, int(thread_id), int(byte_id))
