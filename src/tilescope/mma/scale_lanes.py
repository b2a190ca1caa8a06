"""Which lanes hold the scale factors of a block-scaled mma.sync (sm_120), and which bytes of their registers.

Every lane passes one 32-bit register for A and one for B. thread-id and byte-id, immediates of the instruction, choose:

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

from tilescope.errors import raise_all
from tilescope.mma.scale_format import ScaleFormat
from tilescope.mma.tcgen05_kind import Documented
from tilescope.reading import integer, known_name, plain_int
from tilescope.rule import rule
from tilescope.sentence import format_value
from tilescope.value import Value, row_field

SCALE_ID = rule(
    "scale-id",
    "The immediates of a block-scaled mma.sync are those that its scale_vec allows.",
    argument="{field}",
    found="{field} = {asked}",
    limit="{immediate} of {operand} with scale_vec {scale_vec} is {allowed:, }",
    fix="Use {first}.",
    source="PTX ISA, mma: Block scaling, thread-id and byte-id",
    architectures=("sm_120",),
    passing='ts.scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id=1)',
    failing='ts.scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id=2)',
)
ScaleOperand = Literal["A", "B"]
SCALED_OPERAND = "operand with scale factors"
SCALED_EXTENTS: dict[ScaleOperand, int] = {"A": 16, "B": 8}  # rows of A, columns of B of an mma.sync
_THREAD_IDS = {"A": (0, 1), "B": (0, 1, 2, 3)}


@dataclass(frozen=True, slots=True)
class ScaleLanes(Documented, Value):
    """The lanes and bytes that a block-scaled mma.sync takes its scale factors from, for the instruction's immediates.

    >>> ScaleLanes("nvfp4", "A", thread_id=1).lane(11), ScaleLanes("mxfp4", "B", thread_id=2).lane(5)
    (15, 22)
    >>> ScaleLanes("mxfp4", "A", byte_id=2).bytes_used
    (2, 3)
    """

    format: ScaleFormat = row_field(ScaleFormat.named)
    operand: ScaleOperand = "A"
    thread_id: int = 0
    byte_id: int = 0

    def __post_init__(self) -> None:
        row = ScaleFormat.named(self.format)
        operand = known_name("operand", self.operand, SCALED_EXTENTS, SCALED_OPERAND)
        object.__setattr__(self, "format", row)
        problems = []
        immediates = (
            ("thread_id", self.thread_id, _THREAD_IDS[operand]),
            ("byte_id", self.byte_id, row.ids(row.k_steps[0])),
        )
        for name, value, allowed in immediates:
            number = plain_int(value)
            object.__setattr__(self, name, number)
            if number not in allowed:
                field_value: dict[str, Any] = {name: number}
                wrong_id = SCALE_ID.violation(
                    field=name,
                    asked=format_value(value),
                    immediate=name.replace("_", "-"),
                    operand=operand,
                    scale_vec=row.qualifier,
                    allowed=allowed,
                    first=allowed[0],
                    **field_value,
                )
                problems.append(wrong_id)
        raise_all(problems)

    @property
    def instruction(self) -> str:
        """The instruction that takes them."""
        return f"mma.m16n8k{self.format.k_steps[0]}"

    @property
    def extent(self) -> int:
        """Rows of A, or columns of B."""
        return SCALED_EXTENTS[self.operand]

    @property
    def bytes_used(self) -> tuple[int, ...]:
        """The bytes of a lane's register, in the order of k."""
        return tuple(range(self.byte_id, self.byte_id + self.format.k_steps[0] // self.format.block))

    def lane(self, index: int) -> int:
        """The lane whose register holds the scales of row (A) or column (B) `index`."""
        return self.lanes()[integer("index", index, 0, self.extent - 1)]

    def lanes(self) -> tuple[int, ...]:
        """The lane of every row or column."""
        first = self.thread_id * (2 if self.operand == "A" else 1)
        return tuple(first + 4 * (index % 8) + index // 8 for index in range(self.extent))
