"""Access patterns as values: the shared-memory accesses of a warp, instruction by instruction.

A pattern is made for a plain tile (row after row from address 0) and then placed on a layout:

    Access.columns((64, 64), 16)         lane r starts at byte r * 128: bank 0 for all
           │
           │ .on(Layout((64, 64), 16, swizzle="128B"))
           ▼
    lane r starts at r * 128 + (r % 8) * 16: eight lanes, eight different groups of banks

One `Access` holds one instruction (32 addresses) or all instructions of a walk, (n, 32).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.errors import RuleError, Violation, argument_type, raise_all, unknown_name
from tilescope.layout import Layout, Modes, as_modes
from tilescope.mma.fragment import Fragment
from tilescope.mma.fragment import fragment as find_fragment
from tilescope.reading import flag
from tilescope.rule import rule
from tilescope.smem import pattern
from tilescope.smem.banks import Addresses, Mask, checked_lanes, lane_arrays
from tilescope.smem.lane_expression import lane_values
from tilescope.smem.op import SMEM_OP, SmemOp, SmemOpName
from tilescope.value import Value, array_field, read_only, row_field

TILE_BOUNDS = rule(
    "tile-bounds",
    "A pattern stays inside its tile.",
    argument="accesses",
    found="{op} reaches byte {last_byte}",
    limit="the tile has {rows} rows of {row_bytes} bytes, {tile_bytes} in all",
    fix="Use a tile of at least {rows_needed:row}, as the pattern was made for.",
    source="the offsets of the pattern",
    passing="ts.Access.rows((64, 64), 16).on(ts.Layout((64, 64), 16))",
    failing="ts.Access.rows((64, 64), 16).on(ts.Layout((32, 64), 16))",
)
PATTERN_TILE = rule(
    "pattern-tile",
    "Rows, columns and walks are patterns on a tile; only an expression of lane needs no tile.",
    argument="tile",
    found="pattern {pattern} without a tile",
    limit="rows, columns and walks need a tile",
    fix="Add the tile, such as 64x64 bf16, or use a pattern such as 'ld.b32: lane * 4'.",
    source="`Access.named`",
    passing='ts.Access.named("ld.b128 rows", (64, 64), 16)',
    failing='ts.Access.named("ld.b128 rows")',
)
PATTERN_OP = rule(
    "pattern-op",
    "Loads and stores access rows and columns of a tile; ldmatrix and stmatrix access matrices.",
    argument="op",
    found="{op}",
    limit="lanes of a load or store take rows and columns of a tile",
    fix="Use the walk: the pattern '{op}' alone.",
    source="PTX ISA, ldmatrix and stmatrix",
    passing='ts.Access.rows((64, 64), 16, "st.b128")',
    failing='ts.Access.rows((64, 64), 16, "ldmatrix.x4")',
)
PLACED_TWICE = rule(
    "placed-twice",
    "A pattern is placed on a layout only once, starting from the plain tile.",
    argument="access",
    found="{pattern} is already placed",
    limit="a pattern is placed once, from the plain tile",
    fix="Place the pattern it was made from.",
    source="`Access.on`",
    passing="ts.Access.rows((8, 64), 16).on(ts.Layout((8, 64), 16))",
    failing="ts.Access.rows((8, 64), 16).on(ts.Layout((8, 64), 16)).on(ts.Layout((8, 64), 16))",
)
_FRAGMENT_EXAMPLE = 'Use fragment("mma.m16n8k16", "A", "bf16").'
_PATTERNS = (
    "ld.b128 rows",
    "ld.b32 columns",
    "st.b128 rows",
    "ld.b32 lanes 8x4",
    "transpose",
    "ldmatrix.x4",
    "ldmatrix.x4.trans",
    "stmatrix.x4",
    "cp.async",
    "mma.m16n8k16 A bf16",
    "ld.b32: lane * 4",
)


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Access(Value):
    """One or several warp-wide instructions of one kind: `lane_address` is (32,) or (..., 32) bytes.

    Addresses are offsets in a plain tile until `on(layout)` places them; without a tile they are simply
    shared addresses. `active` masks lanes as in `wavefronts`.

    >>> walk = Access.ldmatrix((64, 64), 16)
    >>> walk.name, walk.instructions
    ('ldmatrix.x4', 16)
    >>> from tilescope.smem.banks import wavefronts
    >>> placed = walk.on(Layout((64, 64), 16, swizzle="128B", start=0x400))
    >>> wavefronts(walk.op, walk.lane_address)[:3], wavefronts(placed.op, placed.lane_address)[:3]
    (array([32, 32, 32]), array([4, 4, 4]))
    """

    op: SmemOp = row_field(SmemOp.named)
    lane_address: npt.NDArray[np.int64] = array_field("int64")
    active: npt.NDArray[np.bool_] | None = array_field("bool")
    name: str = ""
    layout: Layout | None = None  # where it was placed; None: offsets in a plain tile

    def __init__(
        self,
        op: SmemOpName | str | SmemOp,
        lane_address: Any,
        active: Any = None,
        name: str = "",
        *,
        layout: Layout | None = None,
    ) -> None:
        row = SmemOp.named(op)
        address, mask = lane_arrays(lane_address, active)
        checked_lanes(row, address, mask)
        if not isinstance(name, str):
            raise RuleError([argument_type("name", name, "a text", "Leave it out: the operation names it.")])
        object.__setattr__(self, "op", row)
        object.__setattr__(self, "lane_address", read_only(address.copy()))
        object.__setattr__(self, "active", None if mask is None else read_only(mask.copy()))
        object.__setattr__(self, "name", name or row.name)
        object.__setattr__(self, "layout", layout)

    @property
    def instructions(self) -> int:
        """The number of warp-wide instructions."""
        return int(np.prod(self.lane_address.shape[:-1], dtype=np.int64))

    @classmethod
    def rows(cls, tile: tuple[int, int], element_bits: int, op: SmemOpName | SmemOp = "ld.b128") -> Access:
        """The tile (rows, columns) read or written row by row: neighbouring lanes access neighbouring columns.

        >>> Access.rows((8, 64), 16, "st.b128").lane_address[0, 6:10]  # a row is 8 lanes of 16 bytes
        array([ 96, 112, 128, 144])
        """
        return cls._vectors(tile, element_bits, op, "rows")

    @classmethod
    def columns(cls, tile: tuple[int, int], element_bits: int, op: SmemOpName | SmemOp = "ld.b128") -> Access:
        """The tile read or written column by column: neighbouring lanes access neighbouring rows.

        >>> Access.columns((64, 64), 16).lane_address[0, :3]
        array([  0, 128, 256])
        """
        return cls._vectors(tile, element_bits, op, "columns")

    @classmethod
    def transpose(cls, tile: tuple[int, int], element_bits: int) -> Access:
        """The read of a transposition: single elements, column by column.

        >>> Access.transpose((32, 32), 32).name
        'ld.b32 columns'
        """
        op = SMEM_OP.get(f"ld.b{element_bits}")
        if op is None:
            raise pattern.no_element_load(element_bits)
        return cls.columns(tile, element_bits, op)

    @classmethod
    def ldmatrix(cls, tile: tuple[int, int], element_bits: int, *, count: int = 4, transpose: bool = False) -> Access:
        """A walk over the tile by ldmatrix: K-major tiles as they are, MN-major ones with `transpose`.

        x4 takes 16 rows of 32 bytes (the A operand of mma.m16n8k16), x2 8 rows of 32 bytes (B; transposed
        16 rows of 16), x1 8 rows of 16 bytes.

        >>> Access.ldmatrix((16, 16), 16).lane_address[0, [0, 8, 16, 24]]
        array([  0, 256,  16, 272])
        """
        return cls._matrices(f"ldmatrix.x{count}{_trans(transpose)}", tile, element_bits)

    @classmethod
    def stmatrix(
        cls, tile: tuple[int, int], element_bits: int = 16, *, count: int = 4, transpose: bool = False
    ) -> Access:
        """An epilogue: results of mma or wgmma written to an M x N tile by stmatrix (N x M: `transpose`).

        >>> Access.stmatrix((64, 64)).name
        'stmatrix.x4'
        """
        return cls._matrices(f"stmatrix.x{count}{_trans(transpose)}", tile, element_bits)

    @classmethod
    def fragment(
        cls, fragment: Fragment, tile: tuple[int, int], *, transpose: bool = False, element_bits: int | None = None
    ) -> Access:
        """The registers of an mma operand loaded (D: stored) directly from a tile of its elements.

        A and B are K-major, C and D are M x N; `transpose` selects the other order. Results (D) that are converted
        before they are stored have `element_bits` in the tile.

        >>> from tilescope.mma.fragment import fragment
        >>> a = Access.fragment(fragment("mma.m16n8k16", "A", "bf16"), (64, 64))
        >>> a.name, a.instructions
        ('ld.b32 mma.m16n8k16 A', 64)
        >>> Access.fragment(fragment("mma.m16n8k16", "D", "f32"), (64, 64), element_bits=8).name  # two of fp8 a lane
        'st.b16 mma.m16n8k16 D'
        """
        if not isinstance(fragment, Fragment):
            raise RuleError([argument_type("fragment", fragment, "the fragment of an operand", _FRAGMENT_EXAMPLE)])
        trans = _trans(transpose)
        bits = fragment.element_bits if element_bits is None else element_bits
        if fragment.operand not in pattern.RESULTS and bits != fragment.element_bits:
            raise _other_width(fragment, bits)
        row, offsets = pattern.fragments(fragment, tile, transpose, bits)
        operand = "" if fragment.operand == "tmem" else f" {fragment.operand}"
        return cls(row, *offsets, f"{row.name} {fragment.instruction}{operand}{trans}")

    @classmethod
    def thread_values(
        cls, tv: Modes | tuple[Any, Any], layout: Layout, op: SmemOpName | str | SmemOp | None = None
    ) -> Access:
        """A thread-value layout on a tile, as CuTe composes them: (thread, value) → index of the tile → address.

        The index runs through the tile's first index fastest. Without `op`, the widest load that every thread's
        neighbouring values allow.

        >>> tile = Layout((32, 32), 32, swizzle="xor:5,2,5")
        >>> rows = Access.thread_values(((32, 32), (1, 32)), tile)  # thread t reads row t, value by value
        >>> rows.name, rows.instructions
        ('ld.b32 (32,32):(1,32)', 32)
        """
        modes = as_modes(tv)
        row, lanes = pattern.thread_values(modes, _layout(layout), None if op is None else SmemOp.named(op))
        return cls(row, *lanes, f"{row.name} {modes}", layout=layout)

    @classmethod
    def expression(cls, text: str, op: SmemOpName | SmemOp = "ld.b32", active: Any = None) -> Access:
        """Lane addresses from an expression of `lane`, in C or Python style (see lane_expression.py).

        >>> Access.expression("lane * 33 * 4").lane_address[:3]
        array([  0, 132, 264])
        """
        row = SmemOp.named(op)
        return cls(row, lane_values(text), active, f"{row.name}: {text}")

    @classmethod
    def named(cls, text: str, tile: tuple[int, int] | None = None, element_bits: int = 8) -> Access:
        """The pattern that a text describes, in the notation of the command line and the explorer.

        "st.b128 rows", "ld.b32 columns", "ld.b32 lanes 8x4" (rows x pieces), "transpose", "ldmatrix.x4", "ldmatrix.x4.trans",
        "stmatrix.x2", "cp.async" (rows, 16 bytes a lane), "cp.async.4 columns", the operand of an instruction
        ("mma.m16n8k16 A bf16", or "A.trans" for an MN-major tile), or an operation, a colon and an expression:
        "ld.b32: lane * 132".

        >>> Access.named("st.b128 rows", (64, 64), 16) == Access.rows((64, 64), 16, "st.b128")
        True
        """
        if not isinstance(text, str):
            raise RuleError([unknown_name("pattern", "pattern", text, _PATTERNS)])
        op, colon, expression = text.partition(":")
        if colon:
            return cls.expression(expression.strip(), SmemOp.named(op))
        if tile is None:
            raise PATTERN_TILE.error(pattern=repr(text))
        words = text.split() or [""]
        if words == ["transpose"]:
            return cls.transpose(tile, element_bits)
        order = _named_order(words)
        if order is not None:
            return cls._vectors(tile, element_bits, words[0], order)
        if len(words) == 1 and "matrix" in words[0]:
            return cls._matrices(words[0], tile, element_bits)
        if len(words) in (2, 3) and words[0].startswith(("mma.", "wgmma.")):
            return cls._named_fragment(words, tile, element_bits)
        raise RuleError([unknown_name("pattern", "pattern", text, _PATTERNS)])

    def on(self, layout: Layout) -> Access:
        """The same pattern on a layout: offsets in the plain tile become physical shared addresses.

        >>> Access.columns((64, 64), 16).on(Layout((64, 64), 16, swizzle="128B")).lane_address[0, :4]
        array([  0, 144, 288, 432])
        """
        _layout(layout)
        if self.layout is not None:
            raise PLACED_TWICE.error(pattern=self.name)
        offset, _ = self.flat()
        address = np.zeros(self.lane_address.shape, np.int64)
        address[..., : self.op.lanes] = placed(self.op, offset, layout).reshape(*address.shape[:-1], self.op.lanes)
        return Access(self.op, address, self.active, self.name, layout=layout)

    def flat(self) -> tuple[Addresses, Mask | None]:
        """Addresses and mask of the active lanes, one row for each instruction; addresses of inactive lanes are 0."""
        address, mask = checked_lanes(self.op, self.lane_address, self.active)
        address = address.reshape(-1, self.op.lanes)
        if mask is not None:
            mask = mask.reshape(address.shape)
            address = np.where(mask, address, 0)
        return address, mask

    @classmethod
    def _named_fragment(cls, words: list[str], tile: tuple[int, int], element_bits: int) -> Access:
        letter, _, trans = words[1].partition(".")
        if trans not in ("", "trans"):
            raise RuleError([unknown_name("operand", "pattern", words[1], ("A", "A.trans", "B", "B.trans", "D"))])
        operand: Any = letter.upper()  # the fragment refuses what is none
        data_type = words[2] if len(words) == 3 else None
        fragment = find_fragment(words[0], operand, data_type)
        if fragment.element_bits != element_bits:
            raise _other_width(fragment, element_bits)
        return cls.fragment(fragment, tile, transpose=bool(trans))

    @classmethod
    def _vectors(
        cls,
        tile: tuple[int, int],
        element_bits: int,
        op: SmemOpName | str | SmemOp,
        order: pattern.Order | pattern.Lanes,
    ) -> Access:
        row = SmemOp.named(op)
        if row.is_matrix:
            raise PATTERN_OP.error(op=row.name)
        label = order if isinstance(order, str) else f"lanes {order[0]}x{order[1]}"
        return cls(row, *pattern.vectors(row, tile, element_bits, order), f"{row.name} {label}")

    @classmethod
    def _matrices(cls, op: str, tile: tuple[int, int], element_bits: int) -> Access:
        row = SmemOp.named(op)
        return cls(row, *pattern.matrices(row, tile, element_bits))


def _named_order(words: list[str]) -> pattern.Order | pattern.Lanes | None:
    """How the lanes of "st.b128 rows", "ld.b32 lanes 8x4" or "cp.async" (rows) walk over the tile; None: no such pattern."""
    match words:
        case [_, "rows"]:
            return "rows"
        case [_, "columns"]:
            return "columns"
        case [copy] if copy.casefold().startswith(("cp.async", "ldgsts")):
            return "rows"
        case [_, "lanes", lanes]:
            block = re.fullmatch(r"(\d{1,2})x(\d{1,2})", lanes)
            return None if block is None else (int(block[1]), int(block[2]))
    return None


def placed(op: SmemOp, offset: npt.NDArray[np.int64], layout: Layout) -> npt.NDArray[np.int64]:
    """Physical addresses of offsets in the plain tile; a RuleError if the layout has no such place.

    A lane's bytes must stay together: contiguous in a row, and inside an atom of the swizzle.
    """
    tile = layout.as_rows()
    rows, columns = tile.shape
    row_bytes = max(1, columns * layout.element_bits // 8)
    row = offset // row_bytes  # np.divmod takes far longer
    byte = offset - row * row_bytes
    raise_all(_placement_problems(op, offset, byte, layout, rows * row_bytes))
    addresses: npt.NDArray[np.int64] = tile.byte_address(row, byte)
    return addresses


def _placement_problems(
    op: SmemOp, offset: npt.NDArray[np.int64], byte: npt.NDArray[np.int64], layout: Layout, tile_bytes: int
) -> Iterator[Violation]:
    """Why lanes cannot take their bytes in a layout; `byte` is the place of each offset in its row."""
    tile = layout.as_rows()
    width = op.access_bytes
    run_bits = tile.run_elements * layout.element_bits
    run_bytes = max(1, run_bits // 8)
    last = int(offset.max()) + width if offset.size else 0
    if last > tile_bytes:
        rows = tile.shape[0]
        row_bytes = tile_bytes // rows
        yield TILE_BOUNDS.violation(
            op=op.name,
            last_byte=last - 1,
            rows=rows,
            row_bytes=row_bytes,
            tile_bytes=tile_bytes,
            rows_needed=ceil_div(last, row_bytes),
        )
    elif offset.size and (run_bits % 8 or _furthest_in_run(byte, run_bytes) + width > run_bytes):
        yield pattern.ACCESS_TORN.violation(access_bytes=width, run_bytes=run_bytes)
    piece_bytes = layout.swizzle.flip_bytes or layout.swizzle.atom_bytes
    if layout.swizzle.bits and piece_bytes < width:
        yield pattern.TORN_BY_SWIZZLE.violation(
            access_bytes=width, swizzle=layout.swizzle.name, piece_bytes=piece_bytes
        )


def _furthest_in_run(byte: npt.NDArray[np.int64], run_bytes: int) -> int:
    """The largest distance of a byte from the start of its run."""
    return int((byte - byte // run_bytes * run_bytes).max())  # % takes numpy far longer


def _layout(layout: object) -> Layout:
    if not isinstance(layout, Layout):
        example = 'Use Layout((64, 64), 16, swizzle="128B"), for example.'
        raise RuleError([argument_type("layout", layout, "a Layout", example)])
    return layout


def _trans(transpose: bool) -> str:
    return ".trans" if flag("transpose", transpose) else ""


def _other_width(fragment: Fragment, element_bits: int) -> RuleError:
    return pattern.FRAGMENT_WIDTH.error(
        element_bits=element_bits,
        letter=fragment.operand,
        instruction=fragment.instruction,
        operand_bits=fragment.element_bits,
        change={"element_bits": fragment.element_bits},
    )
