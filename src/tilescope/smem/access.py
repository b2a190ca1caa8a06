"""Access patterns as values: what a warp asks of shared memory, instruction by instruction.

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
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.errors import RuleError, argument_type, raise_all, unknown_name
from tilescope.layout import Layout, Modes, as_modes
from tilescope.mma.fragment import Fragment
from tilescope.mma.fragment import fragment as find_fragment
from tilescope.reading import flag
from tilescope.rule import rule
from tilescope.sentence import counted
from tilescope.smem import pattern
from tilescope.smem.banks import Addresses, Mask, checked_lanes, lane_arrays
from tilescope.smem.expression import lane_values
from tilescope.smem.op import SMEM_OP, SmemOp, SmemOpName
from tilescope.value import Value, array_field, read_only, row_field

_PLACED = "rows((8, 64), 16).on(ts.Layout((8, 64), 16))"
# fmt: off
TILE_BOUNDS, PATTERN_TILE, PATTERN_OP, PLACED_TWICE = (
    rule(name, demand, source=source, passing=f"ts.Access.{passing}", failing=f"ts.Access.{failing}")
    for name, demand, source, passing, failing in (
        ("tile-bounds", "A pattern stays inside the tile that it is placed on.", "the offsets of the pattern",
         "rows((64, 64), 16).on(ts.Layout((64, 64), 16))", "rows((64, 64), 16).on(ts.Layout((32, 64), 16))"),
        ("pattern-tile", "Rows, columns and walks are patterns on a tile; only an expression of lane needs none.",
         "`Access.named`", 'named("ld.b128 rows", (64, 64), 16)', 'named("ld.b128 rows")'),
        ("pattern-op", "Rows and columns of a tile are walked by loads and stores; ldmatrix and stmatrix move matrices.",
         "PTX ISA, ldmatrix and stmatrix", 'rows((64, 64), 16, "st.b128")', 'rows((64, 64), 16, "ldmatrix.x4")'),
        ("placed-twice", "A pattern is placed on a layout once, from the plain tile.", "`Access.on`", _PLACED,
         f"{_PLACED}.on(ts.Layout((8, 64), 16))"),
    )
)
# fmt: on


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
        for field, value in (
            ("op", row), ("lane_address", read_only(address.copy())),
            ("active", None if mask is None else read_only(mask.copy())), ("name", name or row.name), ("layout", layout),
        ):  # fmt: skip
            object.__setattr__(self, field, value)

    @property
    def instructions(self) -> int:
        """Warp-wide instructions that this is about."""
        return int(np.prod(self.lane_address.shape[:-1], dtype=np.int64))

    @classmethod
    def rows(cls, tile: tuple[int, int], element_bits: int, op: SmemOpName | SmemOp = "ld.b128") -> Access:
        """The tile (rows, columns) read or written row by row: neighbouring lanes lie beside each other.

        >>> Access.rows((8, 64), 16, "st.b128").lane_address[0, 6:10]  # a row is 8 lanes of 16 bytes
        array([ 96, 112, 128, 144])
        """
        return cls._vectors(tile, element_bits, op, "rows")

    @classmethod
    def columns(cls, tile: tuple[int, int], element_bits: int, op: SmemOpName | SmemOp = "ld.b128") -> Access:
        """The tile read or written column by column: neighbouring lanes lie below each other.

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
        if (op := SMEM_OP.get(f"ld.b{element_bits}")) is None:
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
        return cls._matrices("ldmatrix", tile, element_bits, count, transpose)

    @classmethod
    def stmatrix(
        cls, tile: tuple[int, int], element_bits: int = 16, *, count: int = 4, transpose: bool = False
    ) -> Access:
        """An epilogue: results of mma or wgmma written to an M x N tile by stmatrix (N x M: `transpose`).

        >>> Access.stmatrix((64, 64)).name
        'stmatrix.x4'
        """
        return cls._matrices("stmatrix", tile, element_bits, count, transpose)

    @classmethod
    def fragment(
        cls, fragment: Fragment, tile: tuple[int, int], *, transpose: bool = False, element_bits: int | None = None
    ) -> Access:
        """The registers of an mma operand loaded (D: stored) straight from a tile of its elements.

        A and B lie K-major, C and D as M x N; `transpose` for the other way round. Results (D) that are converted
        before they are stored have `element_bits` in the tile.

        >>> from tilescope.mma.fragment import fragment
        >>> a = Access.fragment(fragment("mma.m16n8k16", "A", "bf16"), (64, 64))
        >>> a.name, a.instructions
        ('ld.b32 mma.m16n8k16 A', 64)
        >>> Access.fragment(fragment("mma.m16n8k16", "D", "f32"), (64, 64), element_bits=8).name  # two of fp8 a lane
        'st.b16 mma.m16n8k16 D'
        """
        if not isinstance(fragment, Fragment):
            raise RuleError([argument_type(
                "fragment", fragment, "the fragment of an operand", 'Use fragment("mma.m16n8k16", "A", "bf16").'
            )])  # fmt: skip
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
        """Lane addresses from an expression of `lane`, in C or Python style (see expression.py).

        >>> Access.expression("lane * 33 * 4").lane_address[:3]
        array([  0, 132, 264])
        """
        row = SmemOp.named(op)
        return cls(row, lane_values(text), active, f"{row.name}: {text}")

    @classmethod
    def named(cls, text: str, tile: tuple[int, int] | None = None, element_bits: int = 8) -> Access:
        """The pattern that a text describes, as the command line and the explorer take it.

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
        words = text.split() or [""]
        if tile is None:
            raise PATTERN_TILE.error(
                "tile", f"pattern {text!r} without a tile", "rows, columns and walks need a tile",
                "Add the tile, such as 64x64 bf16, or use a pattern such as 'ld.b32: lane * 4'.",
            )  # fmt: skip
        if words == ["transpose"]:
            return cls.transpose(tile, element_bits)
        if len(words) == 1 and words[0].casefold().startswith(("cp.async", "ldgsts")):
            words = [*words, "rows"]
        if words[1:] in (["rows"], ["columns"]):
            return cls._vectors(tile, element_bits, words[0], "rows" if words[1] == "rows" else "columns")
        if len(words) == 3 and words[1] == "lanes" and (block := re.fullmatch(r"(\d{1,2})x(\d{1,2})", words[2])):
            return cls._vectors(tile, element_bits, words[0], (int(block[1]), int(block[2])))
        if len(words) == 1 and "matrix" in words[0]:
            row = SmemOp.named(words[0])
            return cls(row, *pattern.matrices(row, tile, element_bits))
        if words[0].startswith(("mma.", "wgmma.")) and 1 < len(words) < 4:
            return cls._named_fragment(words, tile, element_bits)
        raise RuleError([unknown_name("pattern", "pattern", text, _PATTERNS)])

    def on(self, layout: Layout) -> Access:
        """The same pattern on a layout: offsets in the plain tile become physical shared addresses.

        >>> Access.columns((64, 64), 16).on(Layout((64, 64), 16, swizzle="128B")).lane_address[0, :4]
        array([  0, 144, 288, 432])
        """
        _layout(layout)
        if self.layout is not None:
            raise PLACED_TWICE.error(
                "access", f"{self.name} is already placed", "a pattern is placed once, from the plain tile",
                "Place the pattern it was made from.",
            )  # fmt: skip
        offset, _ = self.flat()
        address = np.zeros(self.lane_address.shape, np.int64)
        address[..., : self.op.lanes] = placed(self.op, offset, layout).reshape(*address.shape[:-1], self.op.lanes)
        return Access(self.op, address, self.active, self.name, layout=layout)

    def flat(self) -> tuple[Addresses, Mask | None]:
        """Addresses and mask of the lanes that count, one row for each instruction; inactive lanes at 0."""
        address, mask = checked_lanes(self.op, self.lane_address, self.active)
        address = address.reshape(-1, self.op.lanes)
        if mask is not None:
            mask = mask.reshape(address.shape)
            address = np.where(mask, address, 0)
        return address, mask

    @classmethod
    def _named_fragment(cls, words: list[str], tile: tuple[int, int], element_bits: int) -> Access:
        operand: Any
        operand, _, trans = words[1].partition(".")
        if trans not in ("", "trans"):
            raise RuleError([unknown_name("operand", "pattern", words[1], ("A", "A.trans", "B", "B.trans", "D"))])
        held = find_fragment(words[0], operand.upper(), *words[2:])
        if held.element_bits != element_bits:
            raise _other_width(held, element_bits)
        return cls.fragment(held, tile, transpose=bool(trans))

    @classmethod
    def _vectors(cls, tile: Any, element_bits: Any, op: Any, order: pattern.Order | pattern.Lanes) -> Access:
        row = SmemOp.named(op)
        if row.is_matrix:
            raise PATTERN_OP.error(
                "op", row.name, "lanes of a load or store take rows and columns of a tile",
                f"Use the walk: the pattern {row.name!r} alone.",
            )  # fmt: skip
        said = order if isinstance(order, str) else f"lanes {order[0]}x{order[1]}"
        return cls(row, *pattern.vectors(row, tile, element_bits, order), f"{row.name} {said}")

    @classmethod
    def _matrices(cls, instruction: str, tile: Any, element_bits: Any, count: Any, transpose: bool) -> Access:
        row = SmemOp.named(f"{instruction}.x{count}{_trans(transpose)}")
        return cls(row, *pattern.matrices(row, tile, element_bits))


_PATTERNS = (
    "ld.b128 rows", "ld.b32 columns", "st.b128 rows", "ld.b32 lanes 8x4", "transpose", "ldmatrix.x4", "ldmatrix.x4.trans", "stmatrix.x4",
    "cp.async", "mma.m16n8k16 A bf16", "ld.b32: lane * 4",
)  # fmt: skip


def placed(op: SmemOp, offset: npt.NDArray[np.int64], layout: Layout) -> npt.NDArray[np.int64]:
    """Physical addresses of offsets in the plain tile; a RuleError where the layout has no such place.

    A lane's bytes must stay together: inside what lies together in a row, and inside what the swizzle moves whole.
    """
    tile = layout.as_rows()
    rows, columns = tile.shape
    row_bytes, run_bytes = (max(1, count * layout.element_bits // 8) for count in (columns, tile.run_elements))
    row = offset // row_bytes  # np.divmod takes far longer
    byte = offset - row * row_bytes
    last = int(offset.max()) + op.access_bytes if offset.size else 0
    whole_bytes = layout.swizzle.flip_bytes or layout.swizzle.atom_bytes
    problems = []
    if last > rows * row_bytes:
        problems.append(TILE_BOUNDS.violation(
            "accesses", f"{op.name} reaches byte {last - 1}",
            f"the tile has {rows} rows of {row_bytes} bytes, {rows * row_bytes} in all",
            f"Use a tile of at least {counted(ceil_div(last, row_bytes), 'row')}, as the pattern was made for.",
            last_byte=last - 1, tile_bytes=rows * row_bytes,
        ))  # fmt: skip
    elif offset.size and (
        tile.run_elements * layout.element_bits % 8
        or int((byte - byte // run_bytes * run_bytes).max()) + op.access_bytes > run_bytes
    ):
        problems.append(pattern.ACCESS_TORN.violation(
            "layout", f"{op.access_bytes} bytes a lane across rows of {run_bytes} bytes",
            "a lane's bytes lie beside each other", "Use wider atoms or a narrower access.",
            access_bytes=op.access_bytes, run_bytes=run_bytes,
        ))  # fmt: skip
    if layout.swizzle.bits and whole_bytes < op.access_bytes:
        problems.append(pattern.ACCESS_TORN.violation(
            "layout", f"{op.access_bytes} bytes a lane with swizzle {layout.swizzle.name}",
            f"the swizzle moves pieces of {whole_bytes} bytes",
            f"Access at most {whole_bytes} bytes a lane, or use a swizzle with larger atoms.",
            access_bytes=op.access_bytes, piece_bytes=whole_bytes,
        ))  # fmt: skip
    raise_all(problems)
    addresses: npt.NDArray[np.int64] = tile.byte_address(row, byte)
    return addresses


def _layout(layout: Any) -> Layout:
    if not isinstance(layout, Layout):
        raise RuleError(
            [argument_type("layout", layout, "a Layout", 'Use Layout((64, 64), 16, swizzle="128B"), for example.')]
        )
    return layout


def _trans(transpose: Any) -> str:
    return ".trans" if flag("transpose", transpose) else ""


def _other_width(fragment: Fragment, element_bits: Any) -> RuleError:
    return pattern.FRAGMENT_TILE.error(
        "element_bits", f"a tile of {element_bits}-bit elements",
        f"operand {fragment.operand} of {fragment.instruction} has {fragment.element_bits} bits; only results are converted",
        f"Use element_bits={fragment.element_bits}.", {"element_bits": fragment.element_bits}, element_bits=element_bits,
    )  # fmt: skip
