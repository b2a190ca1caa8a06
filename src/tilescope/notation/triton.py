"""Triton's shared encodings, as its intermediate code prints them and as Gluon constructs them.

    #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
        rows of the tile's own width; in row r the pieces of `vec` elements change places by XOR with
        phase = (r / perPhase) mod maxPhase. It is software's: the width decides which address bits take part.

    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
        what TMA and the tensor core know: spans of 128 bytes, one box of at most 256 rows after another.

    #ttg.padded_shared<[256:+8] {order = [1, 0], shape = [16, 256]}>         8 elements of padding after every 256
    #ttg.shared_linear<{offset = [[0, 1], [1, 0]]}, alignment = 16>          the index of each bit of an offset

All of them are linear layouts (linear.py). The first two do not say the tile's shape; a buffer's type does, and names its
encoding, whose line stands at the top of the file. One more extent than the encoding has counts buffers:

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
from typing import Any

from tilescope.errors import RuleError, by, shortened
from tilescope.layout import Layout, Major, oriented
from tilescope.notation.equivalent import no_equivalent, pair_of
from tilescope.notation.hints import Hints
from tilescope.notation.linear import Basis, Padding, extents_of, layout_of, unit_bases
from tilescope.notation.text import refusal
from tilescope.notation.triton_text import FIELDS, Encoding, read_encoding

BOX_ROWS = 256  # TMA's largest box extent: Triton stores a tile box by box
MAX_EXTENT = 1 << 20
_WIDTHS = {0: "none", 32: "32B", 64: "64B", 128: "128B"}
_CORE_ROWS = 8  # rows after which nvmma_shared repeats its pattern


def read(text: str, hints: Hints) -> Layout:
    """The layout of a tile, of one block of a cluster, in a Triton encoding.

    >>> read("#ttg.swizzled_shared<{vec = 8, perPhase = 2, maxPhase = 4, order = [1, 0]}>",
    ...      Hints(element_bits=16, shape=(8, 32))).swizzle.name
    '64B'
    >>> str(read("!ttg.memdesc<16x64xi8, #ttg.nvmma_shared<{swizzlingByteWidth = 128, elementBitWidth = 8, "
    ...          "fp4Padded = true}>, #smem>", Hints()).modes)
    '(16,(8,8)):(128,(1,16))'
    """
    found = read_encoding(text)
    layout = _stored(found, hints)
    if layout.major is not None and 1 not in layout.shape:
        hints.major_or(layout.major, found.kind)
    return layout


def spell(layout: Layout) -> str:
    """The encoding as Triton's intermediate code prints it: nvmma_shared where it is one, else swizzled_shared.

    >>> print(spell(Layout((8, 64), 16, swizzle="128B")))
    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
    """
    kind, fields, _, _ = _encoding_of(layout)
    if kind == "nvmma_shared":
        fields |= {"transposed": str(fields["transposed"]).lower(), "elementBitWidth": layout.element_bits}
    return f"#ttg.{kind}<{{{', '.join(f'{key} = {value}' for key, value in fields.items())}}}>"


def spell_gluon(layout: Layout) -> str:
    """The same encoding as Gluon's Python constructs it.

    >>> print(spell_gluon(Layout((8, 64), 16, swizzle="128B")))
    gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False)
    """
    kind, fields, _, _ = _encoding_of(layout)
    if kind == "nvmma_shared":
        return (
            f"gl.NVMMASharedLayout(swizzle_byte_width={fields['swizzlingByteWidth']}, "
            f"element_bitwidth={layout.element_bits}, rank=2, transposed={fields['transposed']})"
        )
    return "gl.SwizzledSharedLayout(vec={vec}, per_phase={perPhase}, max_phase={maxPhase}, order={order})".format(
        **fields
    )


def _encoding_of(layout: Layout) -> Encoding:
    """The encoding whose addresses are the layout's, found by trying the few that could be."""
    shape, major = pair_of(layout), layout.major
    if major is None:
        limit = "a shared encoding of Triton stores a tile in which one of its two indices is contiguous"
        raise no_equivalent(f"{layout!r}", limit, "Spell it as cute.")
    if layout.start % layout.swizzle.repeat_bytes:
        raise no_equivalent(
            f"start {layout.start:#x}, in the middle of the pattern of {layout.swizzle.repeat_bytes} bytes",
            "Triton swizzles offsets from an aligned buffer",
            f"Start at {layout.start // layout.swizzle.repeat_bytes * layout.swizzle.repeat_bytes:#x}.",
        )
    hints = Hints(element_bits=layout.element_bits, shape=shape, start=layout.start)
    for candidate in _candidates(layout, major):
        try:
            stored = _stored(candidate, hints)
        except RuleError:
            continue
        if stored.first_difference(layout) is None:
            return candidate
    raise no_equivalent(
        f"{layout!r}",
        "nvmma_shared stores spans of 32, 64 or 128 bytes column by column; swizzled_shared stores whole unpadded "
        "rows of a power of two with an XOR of row bits",
        "Change the atom order or drop the padding, or keep it in CuTe.",
    )


def _candidates(layout: Layout, major: Major) -> list[Encoding]:
    encodings = []
    width = {name: width for width, name in _WIDTHS.items()}.get(layout.swizzle.name)
    if width is not None and layout.element_bits >= 8:
        transposed = major == "MN" and width != 0
        encodings.append(Encoding("nvmma_shared", {"swizzlingByteWidth": width, "transposed": transposed}))
    row_bit = (
        layout.as_rows().shape[1] * layout.element_bits // 8
    ).bit_length() - 1  # lowest address bit that counts rows
    swizzle, phases = layout.swizzle, (1, 1, 1)
    if swizzle.bits and swizzle.shift > 0 and swizzle.base + swizzle.shift >= row_bit:
        vec = (1 << swizzle.base) * 8 // layout.element_bits
        phases = vec, 1 << (swizzle.base + swizzle.shift - row_bit), 1 << swizzle.bits
    order = [1, 0] if major == "K" else [0, 1]
    encodings.append(Encoding("swizzled_shared", dict(zip(FIELDS["swizzled_shared"], (*phases, order), strict=True))))
    return encodings


def _stored(found: Encoding, hints: Hints) -> Layout:
    """Where the encoding puts the elements of a tile."""
    kind, fields, extents, said_bits = found
    element = fields.get("elementBitWidth")
    if said_bits is not None and element is not None and said_bits != element and not fields.get("fp4Padded"):
        limit, fix = "both agree", f"Use elementBitWidth = {said_bits}."
        raise refusal(f"elementBitWidth = {element} of {said_bits}-bit elements", limit, fix)
    bits = hints.bits(said_bits if element is None else element, kind)
    rank, buffers = _rank(kind, fields), 1
    if extents is not None and len(extents) == rank + 1:
        buffers, extents = extents[0], extents[1:]
    is_smallest = extents is None and hints.shape is None
    if is_smallest:
        extents = _smallest(kind, fields, bits)
    shape = hints.tile_shape(extents, kind, rank)
    if any(not _is_power(extent) or extent > MAX_EXTENT for extent in shape):
        powers = by(min(1 << (extent - 1).bit_length(), MAX_EXTENT) for extent in shape)
        raise refusal(f"a tile of {by(shape)}", "Triton's tiles are powers of two, at most 2^20", f"Use {powers}.")
    block = shape if is_smallest and kind != "padded_shared" else _block_shape(fields, shape)
    bases, padding = _BASES[kind](fields, block, bits)
    return layout_of(bases, bits, padding=padding, buffers=buffers, start=hints.start)


def _rank(kind: str, fields: dict[str, Any]) -> int:
    """How many indices the encoding has."""
    lists = [fields.get(key) for key in ("order", "shape", "CTASplitNum")]
    lists += [each[0] for each in (fields.get("offset"), fields.get("CGALayout")) if isinstance(each, list) and each]
    rank = next((len(each) for each in lists if isinstance(each, list) and each), fields.get("rank", 2))
    if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= 5:
        raise refusal(f"rank = {rank}", f"{kind} has 1 to 5 indices", "Use rank = 2.")
    return rank


def _smallest(kind: str, fields: dict[str, Any], bits: int) -> tuple[int, ...] | None:
    """The tile that the encoding itself tells: its shape, what its bases reach, or one pattern."""
    if fields.get("offset"):
        return extents_of(_listed_bases(fields, kind))
    if fields.get("shape"):
        return tuple(_numbers(fields, "shape"))
    if kind == "swizzled_shared" and len(_numbers(fields, "order")) == 2 and _power(fields, "maxPhase") > 1:
        vec, per_phase, max_phase = (_power(fields, key) for key in ("vec", "perPhase", "maxPhase"))
        return oriented("K" if fields["order"] == [1, 0] else "MN", per_phase * max_phase, vec * max_phase)
    if kind == "nvmma_shared" and fields.get("rank", 2) == 2 and fields.get("swizzlingByteWidth"):
        transposed, span = _nvmma(fields, bits)
        return oriented("MN" if transposed else "K", _CORE_ROWS, span)
    return None


def _block_shape(fields: dict[str, Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The part of the tile that one block of a cluster has."""
    splits = [1] * len(shape)
    if fields.get("CTASplitNum"):
        splits = _numbers(fields, "CTASplitNum")
    for basis in fields.get("CGALayout") or []:  # steps of whole parts; zeros: both blocks have the same
        if not isinstance(basis, list) or len(basis) != len(splits) or not all(type(step) is int for step in basis):
            raise refusal(
                f"the basis {shortened(str(basis))} of CGALayout", f"{len(shape)} numbers", "Use CGALayout = []."
            )
        splits = [max(part, 2 * step) for part, step in zip(splits, basis, strict=True)]
    if len(splits) != len(shape) or any(
        not _is_power(part) or extent % part for extent, part in zip(shape, splits, strict=False)
    ):
        found = f"a tile of {by(shape)} split by {by(splits)}"
        raise refusal(found, "every block of a cluster has an equal part", "Use CTASplitNum = [1, 1].")
    return tuple(extent // part for extent, part in zip(shape, splits, strict=True))


def _swizzled_bases(fields: dict[str, Any], shape: tuple[int, ...], _: int) -> tuple[list[Basis], list[Padding]]:
    vec, per_phase, max_phase = (_power(fields, key) for key in ("vec", "perPhase", "maxPhase"))
    order, rank = _order(fields, len(shape)), len(shape)
    bases = unit_bases(rank, order[0], shape[order[0]])
    for index in order[1:]:
        for basis in unit_bases(rank, index, shape[index]):
            pieces = vec * (basis[index] // per_phase % max_phase) % shape[order[0]] if index == order[1] else 0
            bases.append(tuple(pieces if place == order[0] else part for place, part in enumerate(basis)))
    return bases, []


def _nvmma(fields: dict[str, Any], bits: int) -> tuple[bool, int]:
    """Whether the tile is transposed, and how many elements a span holds."""
    width, transposed, padded = (
        fields.get("swizzlingByteWidth"),
        fields.get("transposed", False),
        fields.get("fp4Padded"),
    )
    if width not in _WIDTHS or isinstance(width, bool):
        raise refusal(f"swizzlingByteWidth = {width}", "0, 32, 64 or 128", "Use 128.")
    if not isinstance(transposed, bool):
        raise refusal(f"transposed = {transposed}", "true or false", "Use false for a K-major tile.")
    if bits not in (8, 16, 32, 64):
        raise refusal(f"elementBitWidth = {bits}", "8, 16, 32 or 64", "Use 16.")
    if padded and (width != 128 or bits != 8):
        limit = "8 bytes of 4-bit values, then 8 of padding: 128 bytes, and elements of 8 bits, each two values"
        raise refusal(
            f"fp4Padded = true, swizzlingByteWidth = {width}, elementBitWidth = {bits}", limit, "Use 128 and 8."
        )
    if width == 0 and transposed:
        raise refusal(
            "swizzlingByteWidth = 0 with transposed = true",
            "its meaning depends on the version: Triton up to 3.8 stores rows as if transposed were false, 3.9 "
            "(triton-lang/triton#10453) stores the transposed tile",
            "For 3.8 and before say transposed = false; for 3.9 give swizzled_shared with vec = 1, perPhase = 1, "
            "maxPhase = 1, order = [0, 1].",
        )
    return transposed, width * 8 // bits // (2 if padded else 1)


def _nvmma_bases(fields: dict[str, Any], shape: tuple[int, ...], bits: int) -> tuple[list[Basis], list[Padding]]:
    transposed, span = _nvmma(fields, bits)
    rank, width = len(shape), fields["swizzlingByteWidth"]
    if transposed and rank != 2:
        limit = "Triton 3.9 scatters the rows of such a tile; of two indices it stores them in order"
        raise refusal(
            f"transposed = true of {rank} indices", limit, "Give the shared_linear that to_linear_layout prints."
        )
    inner = 0 if transposed else rank - 1
    outer = [index for index in reversed(range(rank)) if index != inner]  # the fastest first
    rows = prod(min(shape[index], BOX_ROWS) for index in outer)
    if width and (rows < _CORE_ROWS or shape[inner] < span):
        found = f"a tile of {rows} rows of {shape[inner]} elements"
        raise refusal(found, f"at least 8 rows of {span}", f"Use {max(8, rows)} rows of {max(span, shape[inner])}.")
    box = [min(extent, BOX_ROWS) for extent in shape]
    box[inner] = span or box[inner]
    bases = unit_bases(rank, inner, box[inner])
    if fields.get("fp4Padded"):
        bases.insert(3, (0,) * rank)
    for row, basis in enumerate(basis for index in outer for basis in unit_bases(rank, index, box[index])):
        chunk = (1 << row) * width // 128 % (width // 16) * 16 * 8 // bits if width and row < 3 else 0
        chunk = chunk // (2 if fields.get("fp4Padded") else 1)
        bases.append(tuple(chunk if place == inner else part for place, part in enumerate(basis)))
    for index in range(rank) if width else (inner, *outer):
        bases += unit_bases(rank, index, shape[index], box[index])
    return bases, []


def _listed_bases(fields: dict[str, Any], kind: str) -> list[Basis]:
    """The bases that the text lists."""
    bases = fields.get("offset")
    if not isinstance(bases, list) or not bases or not all(isinstance(basis, list) for basis in bases):
        raise refusal(
            f"offset = {shortened(str(bases))}", f"{kind} lists a basis for each bit of an offset",
            "Use [[0, 1], [1, 0]].",
        )  # fmt: skip
    wrong = [
        base
        for base in bases
        if len(base) != len(bases[0]) or not all(type(part) is int and part < MAX_EXTENT for part in base)
    ]
    if wrong or not bases[0]:
        raise refusal(
            f"the basis {shortened(str((wrong or bases)[0]))}", "bases of equally many numbers",
            "Use [0, 1], for example.",
        )  # fmt: skip
    return [tuple(basis) for basis in bases]


def _linear_bases(fields: dict[str, Any], shape: tuple[int, ...], _: int) -> tuple[list[Basis], list[Padding]]:
    bases = _listed_bases(fields, "shared_linear")
    blocks = fields.get("block") or []
    if shape not in (extents_of(bases), extents_of([*bases, *blocks]) if blocks else ()):
        limit = f"its bases reach {by(extents_of(bases))}"
        raise refusal(f"a tile of {by(shape)} in shared_linear", limit, "Leave the shape out.")
    return bases, []


def _padded_bases(fields: dict[str, Any], shape: tuple[int, ...], _: int) -> tuple[list[Basis], list[Padding]]:
    pairs = fields.get("intervals")
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(type(part) is int and _is_power(part) for part in pair)
        for pair in pairs
    ):
        raise refusal(
            f"the intervals {shortened(str(pairs))}", "pairs of powers of two, such as [256:+8]", "Use [256:+8]."
        )
    padding = [Padding(*pair) for pair in pairs]
    if fields.get("offset"):
        return _linear_bases(fields, shape, 0)[0], padding
    order = _order(fields, len(shape)) if "order" in fields else list(reversed(range(len(shape))))
    return [basis for index in order for basis in unit_bases(len(shape), index, shape[index])], padding


_BASES: dict[str, Callable[[dict[str, Any], tuple[int, ...], int], tuple[list[Basis], list[Padding]]]] = {
    "swizzled_shared": _swizzled_bases,
    "nvmma_shared": _nvmma_bases,
    "padded_shared": _padded_bases,
    "shared_linear": _linear_bases,
}


def _order(fields: dict[str, Any], rank: int) -> list[int]:
    """The indices, the fastest first."""
    order = fields.get("order")
    if not isinstance(order, list) or sorted(map(str, order)) != [str(index) for index in range(rank)]:
        example = list(reversed(range(rank)))
        raise refusal(
            f"order = {shortened(str(order))}", f"every index from 0 to {rank - 1} once, the fastest first",
            f"Use {example}.",
        )  # fmt: skip
    return order


def _numbers(fields: dict[str, Any], key: str) -> list[int]:
    numbers = fields.get(key)
    if not isinstance(numbers, list) or not all(type(number) is int and number < MAX_EXTENT for number in numbers):
        raise refusal(f"{key} = {shortened(str(numbers))}", "a list of integers", f"Use {key} = [1, 1].")
    return numbers


def _power(fields: dict[str, Any], key: str) -> int:
    number = fields.get(key)
    if type(number) is not int or not _is_power(number):
        raise refusal(f"{key} = {number}", "a power of two", f"Use {key} = 8.")
    return number


def _is_power(number: int) -> bool:
    return number > 0 and not number & (number - 1)
