"""The warp-wide operations on shared memory: how wide, and which lanes are served together.

Shared memory delivers one line of 128 bytes (32 banks of 4 bytes) at a time, so the wider a lane's
access, the fewer lanes share a turn:

    8, 16, 32 bit   ├────────────── lanes 0-31 ──────────────┤
    64 bit          ├───── lanes 0-15 ───┼──── lanes 16-31 ──┤
    128 bit         ├─ 0-7 ──┼─ 8-15 ────┼─ 16-23 ─┼─ 24-31 ─┤
    ldmatrix.x4     ├ matrix 0 ┼ matrix 1 ┼ matrix 2 ┼ matrix 3 ┤   8 rows of 16 bytes each

Loads of 64 and 128 bits may serve two groups at once if lanes access equal addresses in pairs (see banks.py).

cp.async writes 4, 8 or 16 bytes a lane, in the groups of a store of that width; but lanes that write one word take a turn
each. That was measured for cp.async.ca with each group's bytes in one 128-byte line of global memory; other sources take
longer. cp.async.cg goes past L1: Nsight Compute counts no conflict of it, and its time follows the lines that it writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tilescope.reading import known_row
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.value import Row

BANKS = 32
BANK_BYTES = 4

SmemOpName = Literal[
    "ld.b8",
    "ld.b16",
    "ld.b32",
    "ld.b64",
    "ld.b128",
    "st.b8",
    "st.b16",
    "st.b32",
    "st.b64",
    "st.b128",
    "ldmatrix.x1",
    "ldmatrix.x2",
    "ldmatrix.x4",
    "ldmatrix.x1.trans",
    "ldmatrix.x2.trans",
    "ldmatrix.x4.trans",
    "stmatrix.x1",
    "stmatrix.x2",
    "stmatrix.x4",
    "stmatrix.x1.trans",
    "stmatrix.x2.trans",
    "stmatrix.x4.trans",
    "cp.async.4",
    "cp.async.8",
    "cp.async.16",
]

COPY_PAST_L1 = rule(
    "copy-past-l1",
    "The wavefronts of cp.async are those of its .ca form. The .cg form bypasses L1, and its time does not depend on "
    "banks.",
    argument="op",
    found="{operation}, which goes past L1",
    limit="wavefronts are counted of cp.async.ca; .cg is quick where every 8 lanes write one line of 128 bytes",
    fix="Use cp.async.16 to count the banks of its writes as .ca makes them.",
    source="measured on an H200: Nsight Compute counts no conflict of cp.async.cg; 8 lanes that write one line of 128 bytes in any "
    "order are quick, and lanes that write one line each are slow, whatever their banks",
    passing='ts.wavefronts("cp.async.ca", np.arange(32) * 16)',
    failing='ts.wavefronts("cp.async.cg", np.arange(32) * 16)',
)


@dataclass(frozen=True, slots=True)
class SmemOp(Row):
    """One warp-wide shared-memory operation.

    >>> SmemOp.named("ld.b128").groups, SmemOp.named("ldmatrix.x2").lanes
    (4, 16)
    """

    name: str
    access_bytes: int  # per lane that supplies an address
    lanes: int  # that supply addresses, from lane 0 on; the rest are ignored
    lanes_per_group: int  # served together
    pairs_merge: bool  # whether equal addresses in pairs of lanes halve the number of groups
    words_merge: bool = True  # whether lanes of a group that access the same word share it

    @classmethod
    def named(cls, name: object) -> SmemOp:
        """The row called `name`; PTX and SASS spellings are understood too.

        >>> SmemOp.named("ld.shared.v4.f32").name, SmemOp.named("STS.64").name
        ('ld.b128', 'st.b64')
        >>> SmemOp.named("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16").name
        'ldmatrix.x4.trans'
        >>> SmemOp.named("cp.async").name, SmemOp.named("cp.async.ca.shared.global.4").name, SmemOp.named("LDGSTS.E.64").name
        ('cp.async.16', 'cp.async.4', 'cp.async.8')
        """
        if isinstance(name, str) and _PAST_L1.match(name.strip().casefold()):
            raise COPY_PAST_L1.error(operation=shorten(name), change={"op": "cp.async.16"})
        return known_row(SmemOp, "operation", "op", name, SMEM_OP, plain=_canonical)

    @property
    def is_load(self) -> bool:
        """Whether it reads shared memory."""
        return self.name.startswith("ld")

    @property
    def is_matrix(self) -> bool:
        """Whether each address is a row of an 8 x 8 matrix of 16-bit elements."""
        return "matrix" in self.name

    @property
    def is_copy(self) -> bool:
        """Whether it copies from global memory."""
        return self.name.startswith("cp.async")

    @property
    def groups(self) -> int:
        """Wavefronts of a full warp without conflicts or merged lanes."""
        return self.lanes // self.lanes_per_group

    @property
    def cell_bytes(self) -> int:
        """Bytes of a line that a lane uses: whole banks, so at least 4."""
        return max(self.access_bytes, BANK_BYTES)

    @property
    def counter(self) -> str:
        """The suffix under which Nsight Compute counts it: "op_ld", "op_st" or "op_ldgsts"."""
        if self.is_copy:
            return "op_ldgsts"
        return "op_ld" if self.is_load else "op_st"

    @property
    def wavefront_counter(self) -> str:
        """Nsight Compute's counter of its wavefronts."""
        unit = "smsp__sass_l1tex_data" if self.is_copy else "l1tex__data"
        return f"{unit}_pipe_lsu_wavefronts_mem_shared_{self.counter}.sum"

    @property
    def conflict_counter(self) -> str:
        """Nsight Compute's counter of the wavefronts that conflicts add."""
        return f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_{self.counter}.sum"

    def __str__(self) -> str:
        return self.name


_PAST_L1 = re.compile(r"cp\.async\.cg\b|ldgsts\.(?:\w+\.)*bypass\b")


def _canonical(name: str) -> str:
    """The table's name for "ld.shared.v4.f32" or "LDS.128"; the name itself where nothing is recognised."""
    folded = name.strip().casefold()
    copy = re.fullmatch(r"cp\.async(?:\.ca)?(?:\.shared(?:::cta)?)?(?:\.global)?(?:\.(4|8|16))?", folded)
    if copy:
        return f"cp.async.{copy[1] or 16}"
    copy = re.fullmatch(r"ldgsts(?:\.e)?(?:\.(64|128))?", folded)
    if copy:
        return f"cp.async.{int(copy[1] or 32) // 8}"
    sass = re.fullmatch(r"(ld|st)s(?:\.[us]?(8|16|32|64|128))?", folded)
    if sass:
        return f"{sass[1]}.b{sass[2] or 32}"
    plain = re.fullmatch(r"(ld|st)(?:\.[\w:]+)*?(?:\.v([24]))?\.(?:bf|[bfsu])(8|16|32|64|128)", folded)
    if plain:
        return f"{plain[1]}.b{int(plain[2] or 1) * int(plain[3])}"
    return _canonical_matrix(folded)


def _canonical_matrix(folded: str) -> str:
    """The table's name for "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"; other forms than 8 x 8 keep theirs."""
    matrix = re.fullmatch(r"(ld|st)matrix((?:\.[\w:]+)*)", folded)
    if matrix is None:
        return folded
    qualifiers = matrix[2].split(".")
    if any(other_form in qualifiers for other_form in ("m16n16", "m8n16", "m16n8", "b8")):
        return folded
    parts = [f"{matrix[1]}matrix"]
    parts += [part for part in qualifiers if part in ("x1", "x2", "x4")]
    if ".trans" in matrix[2]:
        parts.append("trans")
    return ".".join(parts)


# Groups and pairs: measured on an H200 (compute capability 9.0).
_ROWS = (
    SmemOp("ld.b8", access_bytes=1, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("ld.b16", access_bytes=2, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("ld.b32", access_bytes=4, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("ld.b64", access_bytes=8, lanes=32, lanes_per_group=16, pairs_merge=True),
    SmemOp("ld.b128", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=True),
    SmemOp("st.b8", access_bytes=1, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("st.b16", access_bytes=2, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("st.b32", access_bytes=4, lanes=32, lanes_per_group=32, pairs_merge=False),
    SmemOp("st.b64", access_bytes=8, lanes=32, lanes_per_group=16, pairs_merge=False),
    SmemOp("st.b128", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x1", access_bytes=16, lanes=8, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x2", access_bytes=16, lanes=16, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x4", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x1.trans", access_bytes=16, lanes=8, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x2.trans", access_bytes=16, lanes=16, lanes_per_group=8, pairs_merge=False),
    SmemOp("ldmatrix.x4.trans", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x1", access_bytes=16, lanes=8, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x2", access_bytes=16, lanes=16, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x4", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x1.trans", access_bytes=16, lanes=8, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x2.trans", access_bytes=16, lanes=16, lanes_per_group=8, pairs_merge=False),
    SmemOp("stmatrix.x4.trans", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False),
    SmemOp("cp.async.4", access_bytes=4, lanes=32, lanes_per_group=32, pairs_merge=False, words_merge=False),
    SmemOp("cp.async.8", access_bytes=8, lanes=32, lanes_per_group=16, pairs_merge=False, words_merge=False),
    SmemOp("cp.async.16", access_bytes=16, lanes=32, lanes_per_group=8, pairs_merge=False, words_merge=False),
)
SMEM_OP: dict[str, SmemOp] = {row.name: row for row in _ROWS}
