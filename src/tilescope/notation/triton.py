"""Triton's shared encodings, as its intermediate code prints them and as Gluon constructs them.

    #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
        rows of the tile's own width; in row r the pieces of `vec` elements change places by XOR with
        phase = (r / perPhase) mod maxPhase. It is software's: the width decides which address bits take part.

    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
        what TMA and the tensor core know: spans of 128 bytes, one box of at most 256 rows after another.

    #ttg.padded_shared<[256:+8] {order = [1, 0], shape = [16, 256]}>         8 elements of padding after every 256
    #ttg.shared_linear<{offset = [[0, 1], [1, 0]]}, alignment = 16>          the index of every bit of an offset

All of them are linear layouts (linear.py). The first two do not contain the tile's shape; a buffer's type does, and
names its encoding, whose line is at the top of the file. One more extent than the encoding has counts buffers:

    #shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
    !ttg.memdesc<3x128x64xf16, #shared, #smem, mutable>

    8 x 32 of 16 bits, vec = 8, perPhase = 2, maxPhase = 4: the cell is the piece stored there

    row 0  0 1 2 3          row 4  2 3 0 1
    row 1  0 1 2 3          row 5  2 3 0 1        two rows share a 128-byte line,
    row 2  1 0 3 2          row 6  3 2 1 0        so two rows share a phase:
    row 3  1 0 3 2          row 7  3 2 1 0        the 64B swizzle
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from tilescope.layout import Layout, oriented
from tilescope.notation.hints import MAX_EXTENT, Hints, tile_of
from tilescope.notation.linear import Basis, extents_of, layout_of, padded_bases, unit_bases
from tilescope.notation.text import NOTATION_TEXT, Fields
from tilescope.notation.triton_text import WIDTHS, Encoding, is_power, read_encoding
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.tensor_map.limits import LARGEST_BOX_EXTENT

USUAL_BITS = 16  # of an element, where nothing tells
_VEC_BITS = {2: 64, 4: 32, 8: 16, 16: 8}  # the width at which `vec` elements are 16 bytes
_CORE_ROWS = 8  # rows after which nvmma_shared repeats its pattern

OTHER_BITS = NOTATION_TEXT.worded(
    found="elementBitWidth = {elementBitWidth} of {element_bits}-bit elements",
    limit="both agree",
    fix="Use elementBitWidth = {element_bits}.",
)
NO_POWERS_OF_TWO = NOTATION_TEXT.worded(
    found="a tile of {shape: x }",
    limit="Triton's tiles are powers of two, at most 2^20",
    fix="Use {powers: x }.",
)
UNEVEN_CLUSTER = NOTATION_TEXT.worded(
    found="a tile of {shape: x } split by {splits: x }",
    limit="every block of a cluster has an equal part",
    fix="Use CTASplitNum = {whole}.",
)
PADDED_FP4 = NOTATION_TEXT.worded(
    found="fp4Padded = true, swizzlingByteWidth = {swizzlingByteWidth}, elementBitWidth = {elementBitWidth}",
    limit="8 bytes of 4-bit values, then 8 of padding: 128 bytes, and elements of 8 bits, two values in one",
    fix="Use swizzlingByteWidth = 128, elementBitWidth = 8.",
)
TRANSPOSED_WITHOUT_WIDTH = NOTATION_TEXT.worded(
    found="swizzlingByteWidth = 0 with transposed = true",
    limit="its meaning depends on the version: Triton up to 3.8 stores rows as if transposed were false, 3.9 "
    "(triton-lang/triton#10453) stores the transposed tile",
    fix="For 3.8 and before say transposed = false; for 3.9 give swizzled_shared with vec = 1, perPhase = 1, "
    "maxPhase = 1, order = [0, 1].",
)
TRANSPOSED_RANK = NOTATION_TEXT.worded(
    found="transposed = true of {rank} indices",
    limit="Triton 3.9 scatters the rows of such a tile; of two indices it stores them in order",
    fix="Use the shared_linear that to_linear_layout prints.",
)
SMALLER_THAN_PATTERN = NOTATION_TEXT.worded(
    found="a tile of {rows} rows of {columns} elements",
    limit="at least {least_rows} rows of {span}",
    fix="Use {enough_rows} rows of {enough_columns}.",
)
OTHER_THAN_BASES = NOTATION_TEXT.worded(
    found="a tile of {shape: x } in shared_linear",
    limit="its bases reach {reached: x }",
    fix="Use shape = {reached}, or leave it out.",
)


def read(text: str, hints: Hints) -> Layout:
    """The layout of a tile, of one block of a cluster, in a Triton encoding.

    >>> read("#ttg.swizzled_shared<{vec = 8, perPhase = 2, maxPhase = 4, order = [1, 0]}>",
    ...      Hints(element_bits=16, shape=(8, 32))).swizzle.name
    '64B'
    >>> str(read("!ttg.memdesc<16x64xi8, #ttg.nvmma_shared<{swizzlingByteWidth = 128, elementBitWidth = 8, "
    ...          "fp4Padded = true}>, #smem>", Hints()).modes)
    '(16,(8,8)):(128,(1,16))'
    """
    encoding = read_encoding(text)
    kind, fields, extents = encoding.kind, encoding.fields, encoding.extents
    bits = hints.bits(_said_bits(encoding), kind)
    rank = _rank(fields)
    buffers = 1
    if extents is not None and len(extents) == rank + 1:
        buffers, *inner = extents
        extents = tuple(inner)
    is_smallest = extents is None and hints.shape is None
    shape = hints.tile_shape(_smallest(kind, fields, bits) if is_smallest else extents, kind, rank)
    if any(not is_power(extent) or extent > MAX_EXTENT for extent in shape):
        powers = tuple(min(1 << (extent - 1).bit_length(), MAX_EXTENT) for extent in shape)
        raise NO_POWERS_OF_TWO.error(shape=shape, powers=powers)
    block = shape if is_smallest and kind != "padded_shared" else _block_shape(fields, shape)
    bases = _BASES[kind](fields, block, bits)
    return layout_of(bases, bits, padding=fields.get("intervals", ()), buffers=buffers, start=hints.start)


def _said_bits(encoding: Encoding) -> int | None:
    """An element's bits, from the encoding or its buffer; both must agree."""
    element: int | None = encoding.fields.get("elementBitWidth")
    if element is None:
        return encoding.element_bits
    is_padded = encoding.fields.get("fp4Padded")
    if encoding.element_bits not in (None, element) and not is_padded:
        raise OTHER_BITS.error(elementBitWidth=element, element_bits=encoding.element_bits)
    return element


def assumed(text: str, hints: Hints) -> Fields:
    """Values that neither the text nor the caller specifies, as arguments of `read`: element_bits and shape.

    Triton makes `vec` elements 16 bytes where it can, so that their number tells the element's width; where it does not, 16
    bits are the usual. The tile is the smallest that has the whole pattern.

    >>> swizzled = "#ttg.swizzled_shared<{vec = 16, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
    >>> assumed(swizzled, Hints()), assumed(swizzled, Hints(element_bits=8, shape=(64, 128)))
    ({'element_bits': 8, 'shape': (8, 128)}, {})
    """
    encoding = read_encoding(text)
    fields = encoding.fields
    assumptions: Fields = {}
    bits = hints.element_bits or encoding.element_bits or fields.get("elementBitWidth")
    if bits is None:
        bits = _VEC_BITS.get(fields.get("vec", 0), USUAL_BITS)
        assumptions["element_bits"] = bits
    tells_shape = fields.get("offset") or fields.get("shape")
    if encoding.extents is None and hints.shape is None and not tells_shape:
        assumptions["shape"] = _whole_shape(fields, _smallest(encoding.kind, fields, bits) or _fitting(fields, bits))
    return assumptions


def spell(layout: Layout) -> tuple[str, ...]:
    """As Triton's intermediate code prints it: nvmma_shared where the swizzle has a width there, and swizzled_shared.

    >>> nvmma, swizzled = spell(Layout((8, 64), 16, swizzle="128B"))
    >>> print(nvmma)
    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
    >>> print(swizzled)
    #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
    >>> print(*spell(Layout((8, 64), 16, padding_bytes=16)))
    #ttg.padded_shared<[64:+8] {order = [1, 0], shape = [8, 64]}>
    """
    padded = _padded_fields(layout)
    if padded is not None:
        pairs = ", ".join(f"{interval}:+{elements}" for interval, elements in padded.intervals)
        if padded.order is None:
            return (f"#ttg.padded_shared<[{pairs}] {{offset = {padded.offset}, block = []}}>",)
        return (f"#ttg.padded_shared<[{pairs}] {{order = {padded.order}, shape = {list(layout.shape)}}}>",)
    unpadded = _unpadded_fields(layout)
    transposed = str(unpadded.transposed).lower()
    texts = [
        f"#ttg.nvmma_shared<{{swizzlingByteWidth = {width}, transposed = {transposed}, "
        f"elementBitWidth = {layout.element_bits}}}>"
        for width in unpadded.widths
    ]
    vec, per_phase, max_phase = unpadded.phases
    texts.append(
        f"#ttg.swizzled_shared<{{vec = {vec}, perPhase = {per_phase}, maxPhase = {max_phase}, order = {unpadded.order}}}>"
    )
    return tuple(texts)


def spell_gluon(layout: Layout) -> tuple[str, ...]:
    """The same encodings as Gluon's Python constructs them.

    >>> print(spell_gluon(Layout((8, 64), 16, swizzle="128B"))[0])
    gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False)
    >>> print(*spell_gluon(Layout((8, 64), 16, padding_bytes=16)))
    gl.PaddedSharedLayout.with_identity_for([[64, 8]], [8, 64], [1, 0])
    """
    padded = _padded_fields(layout)
    if padded is not None:
        pairs = [list(pair) for pair in padded.intervals]
        shape = list(layout.shape)
        if padded.order is None:
            return (f"gl.PaddedSharedLayout({pairs}, {padded.offset}, [], {shape})",)
        return (f"gl.PaddedSharedLayout.with_identity_for({pairs}, {shape}, {padded.order})",)
    unpadded = _unpadded_fields(layout)
    texts = [
        f"gl.NVMMASharedLayout(swizzle_byte_width={width}, element_bitwidth={layout.element_bits}, rank=2, "
        f"transposed={unpadded.transposed})"
        for width in unpadded.widths
    ]
    vec, per_phase, max_phase = unpadded.phases
    texts.append(
        f"gl.SwizzledSharedLayout(vec={vec}, per_phase={per_phase}, max_phase={max_phase}, order={unpadded.order})"
    )
    return tuple(texts)


class _PaddedFields(NamedTuple):
    """The fields of a padded_shared encoding."""

    intervals: list[tuple[int, int]]  # elements, and elements of padding behind them
    offset: list[list[int]]  # the index of every bit of an offset
    order: list[int] | None  # the indices, the fastest first, where the bits of each follow one another


def _padded_fields(layout: Layout) -> _PaddedFields | None:
    """The padding of a layout in the form of padded_shared; None if the layout has another form."""
    padding = padded_bases(layout)
    if padding is None:
        return None
    bases, intervals = padding
    order = list(dict.fromkeys(index for basis in bases for index, step in enumerate(basis) if step))
    order += [index for index in reversed(range(len(layout.shape))) if index not in order]  # of extent 1
    is_ordered = unit_bases(layout.shape, order) == bases
    return _PaddedFields(intervals, [list(basis) for basis in bases], order if is_ordered else None)


class _UnpaddedFields(NamedTuple):
    """The fields of the few encodings that a layout without padding could be."""

    widths: list[int]  # of nvmma_shared, in bytes: one value, or none if it has no such swizzle
    transposed: bool
    phases: _Phases  # of swizzled_shared
    order: list[int]


def _unpadded_fields(layout: Layout) -> _UnpaddedFields:
    columns = tile_of(layout).shape[1]
    bits = layout.element_bits
    swizzle = layout.swizzle
    is_transposed = layout.major == "MN"
    phases = _Phases(1, 1, 1)
    cause_bit = swizzle.base + swizzle.shift  # the lowest bit that causes a change …
    row_bit = (columns * bits // 8).bit_length() - 1  # … and the lowest that counts rows
    if swizzle.bits and swizzle.shift > 0 and cause_bit >= row_bit:
        phases = _Phases(
            vec=(1 << swizzle.base) * 8 // bits,
            per_phase=1 << (cause_bit - row_bit),
            max_phase=1 << swizzle.bits,
        )
    return _UnpaddedFields(
        widths=[width for width, name in WIDTHS.items() if name == swizzle.name],
        transposed=is_transposed,
        phases=phases,
        order=[0, 1] if is_transposed else [1, 0],
    )


def _rank(fields: Fields) -> int:
    """How many indices the encoding has."""
    for key in ("order", "shape", "CTASplitNum"):
        if fields.get(key):
            return len(fields[key])
    for key in ("offset", "CGALayout"):
        if fields.get(key) and fields[key][0]:
            return len(fields[key][0])
    rank: int = fields.get("rank", 2)
    return rank


def _smallest(kind: str, fields: Fields, bits: int) -> tuple[int, ...] | None:
    """The tile that the encoding itself tells: its shape, what its bases reach, or one pattern."""
    if fields.get("offset"):
        return extents_of(fields["offset"])
    if fields.get("shape"):
        return tuple(fields["shape"])
    if kind == "swizzled_shared" and len(fields["order"]) == 2 and fields["maxPhase"] > 1:
        rows = fields["perPhase"] * fields["maxPhase"]
        columns = fields["vec"] * fields["maxPhase"]
        return oriented("K" if fields["order"] == [1, 0] else "MN", rows, columns)
    if kind == "nvmma_shared" and fields.get("rank", 2) == 2 and fields["swizzlingByteWidth"]:
        return oriented("MN" if fields.get("transposed") else "K", _CORE_ROWS, _span(fields, bits))
    return None


def _fitting(fields: Fields, bits: int) -> tuple[int, ...]:
    """A tile for an encoding that tells none: a row of 128 bytes at least, eight rows, one of every other index."""
    rank = _rank(fields)
    order = fields.get("order") or [*reversed(range(rank))]
    if fields.get("transposed"):
        order = order[::-1]
    shape = [1] * rank
    for index, least in zip(order, (8 * SMEM_LINE_BYTES // bits, _CORE_ROWS), strict=False):
        shape[index] = least
    phases = fields.get("maxPhase", 1)
    shape[order[0]] = max(shape[order[0]], fields.get("vec", 1) * phases)
    if rank > 1:
        shape[order[1]] = max(shape[order[1]], fields.get("perPhase", 1) * phases)
    return tuple(shape)


def _splits(fields: Fields, rank: int) -> list[int]:
    """Into how many parts the blocks of a cluster split each index of a tile."""
    splits: list[int] = fields.get("CTASplitNum") or [1] * rank
    for basis in fields.get("CGALayout") or []:  # steps of whole parts; zeros: both blocks have the same
        splits = [max(part, 2 * step) for part, step in zip(splits, basis, strict=False)]
    return splits


def _whole_shape(fields: Fields, block: tuple[int, ...]) -> tuple[int, ...]:
    """The tile of a cluster whose blocks have such a part each."""
    return tuple(extent * part for extent, part in zip(block, _splits(fields, len(block)), strict=False))


def _block_shape(fields: Fields, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of the tile that one block of a cluster has."""
    splits = _splits(fields, len(shape))
    ranks = {len(splits), *(len(basis) for basis in fields.get("CGALayout") or [])}
    is_even = ranks == {len(shape)} and all(
        is_power(part) and extent % part == 0 for extent, part in zip(shape, splits, strict=True)
    )
    if not is_even:
        raise UNEVEN_CLUSTER.error(shape=shape, splits=splits, whole=[1] * len(shape))
    return tuple(extent // part for extent, part in zip(shape, splits, strict=True))


class _Phases(NamedTuple):
    """How rows are swizzled: pieces of `vec` elements change places by XOR with (row / per_phase) mod max_phase."""

    vec: int
    per_phase: int
    max_phase: int


def _apply_phase(rows: list[Basis], inner: int, columns: int, of: _Phases) -> list[Basis]:
    """The bases of rows, with the XOR of their phase on the inner index."""
    phases = [of.vec * ((1 << bit) // of.per_phase % of.max_phase) % columns for bit in range(len(rows))]
    return [(*row[:inner], phase, *row[inner + 1 :]) for row, phase in zip(rows, phases, strict=True)]


def _swizzled_bases(fields: Fields, shape: tuple[int, ...], _: int) -> list[Basis]:
    inner, *outer = fields["order"]
    phases = _Phases(fields["vec"], fields["perPhase"], fields["maxPhase"])
    rows = _apply_phase(unit_bases(shape, outer[:1]), inner, shape[inner], phases)
    return unit_bases(shape, [inner]) + rows + unit_bases(shape, outer[1:])


def _span(fields: Fields, bits: int) -> int:
    """How many elements of an nvmma_shared encoding a span holds."""
    width = fields["swizzlingByteWidth"]
    is_padded = fields.get("fp4Padded", False)
    if is_padded and (width != 128 or bits != 8):
        raise PADDED_FP4.error(swizzlingByteWidth=width, elementBitWidth=bits)
    if width == 0 and fields.get("transposed"):
        raise TRANSPOSED_WITHOUT_WIDTH.error(swizzlingByteWidth=0)
    elements = width * 8 // bits
    return int(elements // 2 if is_padded else elements)


def _nvmma_bases(fields: Fields, shape: tuple[int, ...], bits: int) -> list[Basis]:
    rank = len(shape)
    width = fields["swizzlingByteWidth"]
    span = _span(fields, bits)
    transposed = fields.get("transposed")
    padded = fields.get("fp4Padded")
    if transposed and rank != 2:
        raise TRANSPOSED_RANK.error(rank=rank)
    inner = 0 if transposed else rank - 1
    outer = [index for index in reversed(range(rank)) if index != inner]  # the fastest first
    box = [min(extent, LARGEST_BOX_EXTENT) for extent in shape]  # Triton stores a tile box by box
    rows = prod(box[index] for index in outer)
    if not width:
        return unit_bases(box, (inner, *outer)) + unit_bases(shape, (inner, *outer), box)
    if rows < _CORE_ROWS or shape[inner] < span:
        raise SMALLER_THAN_PATTERN.error(
            rows=rows,
            columns=shape[inner],
            least_rows=_CORE_ROWS,
            span=span,
            enough_rows=max(_CORE_ROWS, rows),
            enough_columns=max(span, shape[inner]),
        )
    box[inner] = span
    chunk = 64 // bits if padded else 128 // bits
    phases = _Phases(chunk, 128 // width, width // 16)
    bases = unit_bases(box, [inner]) + _apply_phase(unit_bases(box, outer), inner, span, phases)
    if padded:
        bases.insert(3, (0,) * rank)
    return bases + unit_bases(shape, range(rank), box)


def _linear_bases(fields: Fields, shape: tuple[int, ...], _: int) -> list[Basis]:
    bases = [tuple(basis) for basis in fields["offset"]]
    blocks = fields.get("block") or []
    reached = extents_of(bases)
    if shape != reached and (not blocks or shape != extents_of([*bases, *blocks])):
        raise OTHER_THAN_BASES.error(shape=shape, reached=reached)
    return bases


def _padded_bases(fields: Fields, shape: tuple[int, ...], bits: int) -> list[Basis]:
    if fields.get("offset"):
        return _linear_bases(fields, shape, bits)
    return unit_bases(shape, fields.get("order", reversed(range(len(shape)))))


_BASES: dict[str, Callable[[Fields, tuple[int, ...], int], list[Basis]]] = {
    "swizzled_shared": _swizzled_bases,
    "nvmma_shared": _nvmma_bases,
    "padded_shared": _padded_bases,
    "shared_linear": _linear_bases,
}
