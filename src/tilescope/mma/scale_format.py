"""Block scaling: which block of k shares a scale factor, of which type, and what one instruction takes.

    name             kind of tcgen05   qualifier        block   scale    scales per row and instruction   ids
    mxfp8            mxf8f6f4          1X = .block32      32    ue8m0    1                                0 to 3
    mxfp4            mxf4              2X = .block32      32    ue8m0    2                                0, 2
    nvfp4            mxf4nvf4          4X = .block16      16    ue4m3    4                                0
    mxf4nvf4.2X      mxf4nvf4          2X = .block32      32    ue8m0    2                                0, 2
    mxf4nvf4.4X      mxf4nvf4          4X = .block16      16    ue8m0    4                                0

Four scales of a row share a 32-bit word; the id in the instruction descriptor says with which byte an instruction begins.
Instructions of k = 96 (sm_103a, 4-bit kinds) take 3 or 6 scales, which run on into the next word. A sparse instruction
takes twice the k with as many scales: its block is twice as long.

The block-scaled mma.sync (sm_120) takes them from registers: every lane passes one 32-bit register for A and one for B, and
thread-id and byte-id, immediates of the instruction, choose:

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

from tilescope.errors import RuleError, printed, raise_all, unknown_name
from tilescope.mma.tcgen05_kind import KINDS, WIDE_K, Documented, Tcgen05Kind
from tilescope.reading import integer, is_one_of, known_name, plain_int
from tilescope.rule import rule
from tilescope.value import Row, Value, row_field

_LANES = 'ts.scale_layout(16, 64, "nvfp4").mma_lanes("A", thread_id={})'
SCALE_ID = rule(
    "scale-id", "The immediates of a block-scaled mma.sync are those that its scale_vec allows.",
    source="PTX ISA, mma: Block scaling, thread-id and byte-id", architectures=("sm_120",), passing=_LANES.format(1),
    failing=_LANES.format(2),
)  # fmt: skip
ScaleOperand = Literal["A", "B"]
_EXTENTS: dict[ScaleOperand, int] = {"A": 16, "B": 8}
_THREAD_IDS = {"A": (0, 1), "B": (0, 1, 2, 3)}


@dataclass(frozen=True, slots=True, eq=False)
class ScaleFormat(Row):
    """A row of the table.

    >>> nvfp4 = ScaleFormat.named("nvfp4")
    >>> nvfp4.block, nvfp4.scale_type, nvfp4.per_instruction(64), nvfp4.ids(64)
    (16, 'ue4m3', 4, (0,))
    >>> ScaleFormat.named("mxfp4").ids(96)
    (0, 1, 2, 3)
    """

    name: str
    mma_kind: str
    qualifier: str  # .scale_vec:: of PTX
    block: int  # elements of k under one scale
    scale_type: str

    @classmethod
    def named(cls, name: Any) -> ScaleFormat:
        """The row called `name`; the kind's own name stands for its commonest format."""
        if isinstance(name, ScaleFormat):
            return name
        folded = name.strip().casefold().replace("_", "") if isinstance(name, str) else None
        row = _BY_SPELLING.get(folded) if folded is not None else None
        if row is None:
            raise RuleError([unknown_name("scale format", "kind", name, SCALE_FORMATS, _ALIASES)])
        return row

    @property
    def kind_row(self) -> Tcgen05Kind:
        """The kind of tcgen05.mma that multiplies it."""
        return KINDS[self.mma_kind]

    @property
    def k_steps(self) -> tuple[int, ...]:
        """The k that one dense instruction takes."""
        return (self.kind_row.k, WIDE_K) if self.kind_row.is_dense_4_bit else (self.kind_row.k,)

    def per_instruction(self, k: int) -> int:
        """Scales of a row that an instruction of this k takes."""
        return k // self.block

    def ids(self, k: int) -> tuple[int, ...]:
        """The bytes of a word at which an instruction may begin."""
        taken = self.per_instruction(k)
        return tuple(range(0, 4, {1: 1, 2: 2, 3: 1, 4: 4, 6: 2}[taken]))


# PTX ISA, "Block scaling" of tcgen05.mma, and its table of scale_vec sizes.
# fmt: off
SCALE_FORMATS: dict[str, ScaleFormat] = {row.name: row for row in (
    #           name           kind        qualifier       block  scale
    ScaleFormat("mxfp8",       "mxf8f6f4", "1X (.block32)", 32, "ue8m0"),
    ScaleFormat("mxfp4",       "mxf4",     "2X (.block32)", 32, "ue8m0"),
    ScaleFormat("nvfp4",       "mxf4nvf4", "4X (.block16)", 16, "ue4m3"),
    ScaleFormat("mxf4nvf4.2X", "mxf4nvf4", "2X (.block32)", 32, "ue8m0"),
    ScaleFormat("mxf4nvf4.4X", "mxf4nvf4", "4X (.block16)", 16, "ue8m0"),
)}
# fmt: on
_ALIASES = {"mxfp6": "mxfp8", "mxf8f6f4": "mxfp8", "mxf4": "mxfp4", "mxf4nvf4": "nvfp4"}
_BY_SPELLING = {name.casefold(): row for name, row in SCALE_FORMATS.items()} | {
    alias: SCALE_FORMATS[name] for alias, name in _ALIASES.items()
}


@dataclass(frozen=True, slots=True)
class ScaleLanes(Documented, Value):
    """The lanes and bytes that a block-scaled mma.sync takes its scale factors from.

    >>> scale_lanes("nvfp4", "A", thread_id=1).lane(11), scale_lanes("mxfp4", "B", thread_id=2).lane(5)
    (15, 22)
    >>> scale_lanes("mxfp4", "A", byte_id=2).bytes_used
    (2, 3)
    """

    format: ScaleFormat = row_field(ScaleFormat.named)
    operand: ScaleOperand = "A"
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
    for name, value, known in (
        ("thread_id", thread_id, _THREAD_IDS[operand]),
        ("byte_id", byte_id, row.ids(row.k_steps[0])),
    ):
        if not is_one_of(value, known):
            listed, immediate = ", ".join(map(str, known)), name.replace("_", "-")
            found = f"{name} = {printed(value)}"
            limit = f"{immediate} of {operand} with scale_vec {row.qualifier} is {listed}"
            problems.append(SCALE_ID.violation(name, found, limit, f"Use {known[0]}.", **{name: plain_int(value)}))
    raise_all(problems)
    return ScaleLanes(row, operand, int(thread_id), int(byte_id))
