"""Triton's two shared encodings, as its intermediate code prints them and as Gluon constructs them.

    #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
        rows of the tile's own width; in row r the pieces of `vec` elements change places by XOR with
        phase = (r / perPhase) mod maxPhase. It is software's: the width decides which address bits take part.

    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
        what TMA and the tensor core know: spans of 128 bytes, one box of at most 256 rows after another.

Neither says the tile's shape; `!ttg.memdesc<64x64xf16, #ttg.…, #smem>` does.

    8 x 32 of 16 bits, vec = 8, perPhase = 2, maxPhase = 4: the cell is the piece stored there

    row 0  0 1 2 3          row 4  2 3 0 1
    row 1  0 1 2 3          row 5  2 3 0 1        two rows share a 128-byte line,
    row 2  1 0 3 2          row 6  3 2 1 0        so two rows share a phase:
    row 3  1 0 3 2          row 7  3 2 1 0        the 64B swizzle
"""

from __future__ import annotations

import re
from typing import Any

from tilescope.errors import RuleError, nearest_name
from tilescope.layout import Layout, Major, oriented
from tilescope.notation.equivalent import no_equivalent, pair_of, xor_swizzle
from tilescope.notation.hints import Hints
from tilescope.notation.text import Scanner, last_name, refusal
from tilescope.swizzle import SWIZZLE, Swizzle

BOX_ROWS = 256  # TMA's largest box extent: Triton stores a tile box by box
_WIDTHS = {0: "none", 32: "32B", 64: "64B", 128: "128B"}
_MEMDESC = re.compile(r"!(?:ttg|triton_gpu|tt)\.memdesc<((?:\d{1,7}x)+)([A-Za-z]+\w*), (#.*?>)(?:, .*)?>", re.DOTALL)
_FLOAT_BITS = {"bf16": 16, "tf32": 32} | {f"f8E{e}": 8 for e in ("4M3", "5M2", "4M3FN", "8M0FNU", "4M3FNUZ", "5M2FNUZ")}
_CLUSTER_KEYS = frozenset({"CTAsPerCGA", "CTASplitNum", "CTAOrder", "CGALayout"})
_CLUSTER_ARGUMENTS = frozenset({"ctas_per_cga", "cta_split_num", "cta_order", "cga_layout"})
_CLUSTER_SPLITS = ("CTASplitNum", "cta_split_num")
_CLUSTER_BASES = ("CGALayout", "cga_layout")  # where each bit of a block's number moves the tile; all 0: nowhere
_SWIZZLED = ("vec", "perPhase", "maxPhase", "order")
_NVMMA = ("swizzlingByteWidth", "elementBitWidth", "rank", "transposed", "fp4Padded")
_GLUON_NAMES = {
    "per_phase": "perPhase",
    "max_phase": "maxPhase",
    "swizzle_byte_width": "swizzlingByteWidth",
    "element_bitwidth": "elementBitWidth",
    "fp4_padded": "fp4Padded",
}


def read(text: str, hints: Hints) -> Layout:
    """The layout of a tile in a Triton encoding.

    >>> read("#ttg.swizzled_shared<{vec = 8, perPhase = 2, maxPhase = 4, order = [1, 0]}>",
    ...      Hints(element_bits=16, shape=(8, 32))).swizzle.name
    '64B'
    """
    shape, bits = None, None
    if found := _MEMDESC.fullmatch(text.strip()):
        extents = tuple(map(int, found[1].split("x")[:-1]))
        if len(extents) != 2:
            raise refusal(f"a tile of rank {len(extents)}", "two indices", "Take the two innermost dimensions.")
        shape, bits, text = (extents[0], extents[1]), _type_bits(found[2]), found[3]
    kind, fields = _read_fields(Scanner(text))
    if kind == "swizzled":
        return _swizzled(fields, shape, bits, hints)
    return _nvmma(fields, shape, bits, hints)


def spell(layout: Layout) -> str:
    """The encoding as Triton's intermediate code prints it: nvmma_shared where it is one, else swizzled_shared.

    >>> print(spell(Layout((8, 64), 16, swizzle="128B")))
    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
    """
    kind, fields = _encoding(layout)
    if kind == "nvmma":
        transposed = str(fields["transposed"]).lower()
        return (
            f"#ttg.nvmma_shared<{{swizzlingByteWidth = {fields['swizzlingByteWidth']}, transposed = {transposed}, "
            f"elementBitWidth = {layout.element_bits}}}>"
        )
    shown = ", ".join(f"{key} = {fields[key]}" for key in _SWIZZLED)
    return f"#ttg.swizzled_shared<{{{shown}}}>"


def spell_gluon(layout: Layout) -> str:
    """The same encoding as Gluon's Python constructs it.

    >>> print(spell_gluon(Layout((8, 64), 16, swizzle="128B")))
    gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False)
    """
    kind, fields = _encoding(layout)
    if kind == "nvmma":
        return (
            f"gl.NVMMASharedLayout(swizzle_byte_width={fields['swizzlingByteWidth']}, "
            f"element_bitwidth={layout.element_bits}, rank=2, transposed={fields['transposed']})"
        )
    return "gl.SwizzledSharedLayout(vec={vec}, per_phase={perPhase}, max_phase={maxPhase}, order={order})".format(
        **fields
    )


def _encoding(layout: Layout) -> tuple[str, dict[str, Any]]:
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
    for kind, fields in _candidates(layout, major):
        try:
            stored = (_nvmma if kind == "nvmma" else _swizzled)(fields, None, None, hints)
        except RuleError:
            continue
        if stored.first_difference(layout) is None:
            return kind, fields
    raise no_equivalent(
        f"{layout!r}",
        "nvmma_shared stores spans of 32, 64 or 128 bytes column by column; swizzled_shared stores whole unpadded "
        "rows of a power of two with an XOR of row bits",
        "Change the atom order or drop the padding, or keep it in CuTe.",
    )


def _candidates(layout: Layout, major: Major) -> list[tuple[str, dict[str, Any]]]:
    encodings: list[tuple[str, dict[str, Any]]] = []
    width = {name: width for width, name in _WIDTHS.items()}.get(layout.swizzle.name)
    if width is not None and layout.element_bits >= 8:
        transposed = major == "MN" and width != 0
        encodings.append(("nvmma", {"swizzlingByteWidth": width, "transposed": transposed}))
    order = [1, 0] if major == "K" else [0, 1]
    columns = layout.as_rows().shape[1]
    row_bit = (columns * layout.element_bits // 8).bit_length() - 1  # the lowest address bit that counts rows
    swizzle = layout.swizzle
    if swizzle.bits == 0:
        encodings.append(("swizzled", {"vec": 1, "perPhase": 1, "maxPhase": 1, "order": order}))
    elif swizzle.shift > 0 and swizzle.base + swizzle.shift >= row_bit:
        vec = (1 << swizzle.base) * 8 // layout.element_bits
        per_phase = 1 << (swizzle.base + swizzle.shift - row_bit)
        encodings.append(
            ("swizzled", {"vec": vec, "perPhase": per_phase, "maxPhase": 1 << swizzle.bits, "order": order})
        )
    return encodings


def _swizzled(
    fields: dict[str, Any], said_shape: tuple[int, int] | None, said_bits: int | None, hints: Hints
) -> Layout:
    vec, per_phase, max_phase = (_power(fields, key) for key in ("vec", "perPhase", "maxPhase"))
    order = fields.get("order")
    if order not in ([1, 0], [0, 1]):
        raise refusal(f"order = {order}", "[1, 0] or [0, 1]", "Name the fastest dimension first.")
    bits = hints.bits(said_bits, "swizzled_shared")
    major: Major = "K" if order == [1, 0] else "MN"
    hints.major_or(major, "order")
    if said_shape is None and hints.shape is None and max_phase > 1:
        said_shape = oriented(major, per_phase * max_phase, vec * max_phase)
    shape = hints.tile_shape(said_shape, "swizzled_shared")
    rows, columns = oriented(major, *shape)
    if not _is_power(rows) or not _is_power(columns):
        raise refusal(
            f"a tile of {rows} x {columns}",
            "Triton's tiles are powers of two",
            f"Use {_power_above(rows)} x {_power_above(columns)}.",
        )
    width, piece = columns.bit_length() - 1, vec.bit_length() - 1
    swizzle_bits = max(0, min(max_phase.bit_length() - 1, width - piece))
    to_bytes = bits.bit_length() - 4
    if swizzle_bits and (bits & (bits - 1) or piece + to_bytes < 0):
        raise refusal(f"vec = {vec} of {bits} bits", "pieces of whole bytes", f"Use vec = {max(vec, 8)}.")
    shift = width + per_phase.bit_length() - 1 - piece
    swizzle = xor_swizzle(swizzle_bits, piece + to_bytes, shift) if swizzle_bits else SWIZZLE["none"]
    return Layout(shape, bits, major=major, swizzle=swizzle, start=_aligned(hints.start, swizzle))


def _nvmma(fields: dict[str, Any], said_shape: tuple[int, int] | None, said_bits: int | None, hints: Hints) -> Layout:
    width, transposed = fields.get("swizzlingByteWidth"), fields.get("transposed", False)
    if width not in _WIDTHS or isinstance(width, bool):
        raise refusal(f"swizzlingByteWidth = {width}", "0, 32, 64 or 128", "Use 128.")
    if not isinstance(transposed, bool):
        raise refusal(f"transposed = {transposed}", "true or false", "Use false for a K-major tile.")
    if fields.get("fp4Padded"):
        raise refusal(
            "fp4Padded = true", "elements at equal steps", "Every 8 bytes of 4-bit values are followed by 8 of padding: "
            "no stride describes that.",
        )  # fmt: skip
    if fields.get("rank", 2) != 2:
        raise refusal(f"rank = {fields['rank']}", "two indices", "Take the two innermost dimensions.")
    element = fields.get("elementBitWidth")
    if said_bits is not None and element is not None and said_bits != element:
        raise refusal(
            f"elementBitWidth = {element} of {said_bits}-bit elements",
            "both agree",
            f"Use elementBitWidth = {said_bits}.",
        )
    bits = hints.bits(said_bits if element is None else element, "nvmma_shared")
    if bits not in (8, 16, 32, 64):
        raise refusal(f"elementBitWidth = {bits}", "8, 16, 32 or 64", "Use 16.")
    if width == 0 and transposed:
        raise refusal(
            "swizzlingByteWidth = 0 with transposed = true",
            "its meaning depends on the version: Triton up to 3.8 stores rows as if transposed were false, 3.9 "
            "(triton-lang/triton#10453) stores the transposed tile",
            "For 3.8 and before say transposed = false; for 3.9 give swizzled_shared with vec = 1, perPhase = 1, "
            "maxPhase = 1, order = [0, 1].",
        )
    major: Major = "MN" if transposed else "K"
    swizzle = SWIZZLE[_WIDTHS[width]]
    span = width * 8 // bits
    if said_shape is None and hints.shape is None and width:
        said_shape = oriented(major, 8, span)
    shape = hints.tile_shape(said_shape, "nvmma_shared")
    hints.major_or(major, "transposed")
    rows, columns = oriented(major, *shape)
    if not _is_power(rows) or not _is_power(columns) or (width and (rows < 8 or columns < span)):
        raise refusal(
            f"a tile of {rows} rows of {columns} elements",
            f"powers of two, at least 8 rows of {span}",
            f"Use {max(8, _power_above(rows))} rows of {max(span, _power_above(columns))}.",
        )
    box = min(rows, BOX_ROWS), span if width else min(columns, BOX_ROWS)
    return Layout(
        shape, bits, atom=oriented(major, *box), atom_order="column" if width and not transposed else "row", major=major,
        swizzle=swizzle, start=_aligned(hints.start, swizzle),
    )  # fmt: skip


def _aligned(start: int, swizzle: Swizzle) -> int:
    if start % swizzle.repeat_bytes:
        raise refusal(
            f"start {start:#x}",
            f"Triton's buffers start on the pattern, every {swizzle.repeat_bytes} bytes",
            f"Use {start // swizzle.repeat_bytes * swizzle.repeat_bytes:#x}.",
        )
    return start


def _read_fields(scan: Scanner) -> tuple[str, dict[str, Any]]:
    """The kind of encoding and its fields by Triton's names, from either spelling."""
    name = last_name(scan.name().lstrip("#!"))
    if name in ("SwizzledSharedLayout", "NVMMASharedLayout"):
        kind, positions = ("swizzled", _SWIZZLED) if name.startswith("S") else ("nvmma", _NVMMA)
        scan.expect("(")
        fields = _read_values(scan, ")", positions)
    elif name in ("swizzled_shared", "shared", "nvmma_shared"):
        kind, positions = ("nvmma", _NVMMA) if name.startswith("n") else ("swizzled", _SWIZZLED)
        scan.expect("<", "{")
        fields = _read_values(scan, "}", ())
        scan.expect(">")
    else:
        raise refusal(
            f"the encoding {name}", "swizzled_shared and nvmma_shared are shared-memory layouts", "Use nvmma_shared."
        )
    scan.finished()
    fields = {_GLUON_NAMES.get(key, key): value for key, value in fields.items()}
    for key in list(fields):
        if key in _CLUSTER_KEYS or key in _CLUSTER_ARGUMENTS:
            if _splits(fields.pop(key), key):
                raise refusal(f"{key} splits the tile", "the layout of one block", "Write the encoding of one block.")
        elif key == "hasLeadingOffset":
            if fields.pop(key) is True:
                raise refusal("hasLeadingOffset = true", "what nvmma_shared says today", "Spell it as nvmma_shared.")
        elif key not in positions:
            raise refusal(
                f"the field {key}",
                f"known: {', '.join(positions)}",
                f"Use {nearest_name(key, positions) or positions[0]}.",
            )
    return kind, fields


def _splits(value: Any, key: str) -> bool:
    """Whether a cluster's fields cut the tile: a split other than 1, or a basis that moves. Blocks that share a tile do not."""
    if key in _CLUSTER_SPLITS:
        return value not in ([], [1] * len(value)) if isinstance(value, list) else value != 1
    return key in _CLUSTER_BASES and any(_moves(basis) for basis in (value if isinstance(value, list) else [value]))


def _moves(basis: Any) -> bool:
    return any(map(_moves, basis)) if isinstance(basis, list) else basis != 0


def _read_values(scan: Scanner, closing: str, positions: tuple[str, ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    while not scan.accept(closing):
        if scan.peek(1).spelling == "=":
            key = scan.name()
            scan.expect("=")
        elif len(fields) < len(positions):
            key = positions[len(fields)]
        else:
            scan.refuse("a field such as vec = 8")
        if key in fields:
            scan.refuse(f"{key} once", "Remove one of the two.")
        fields[key] = _read_value(scan)
        if not scan.at(closing):
            scan.expect(",")
    return fields


def _read_value(scan: Scanner) -> Any:
    for spelling, value in (("true", True), ("True", True), ("false", False), ("False", False), ("None", [])):
        if scan.accept(spelling):
            return value
    if scan.accept("[", "]"):
        return []
    return _listed(scan.integers())


def _listed(tree: Any) -> Any:
    return [_listed(branch) for branch in tree] if isinstance(tree, tuple) else tree


def _type_bits(name: str) -> int:
    if name in _FLOAT_BITS:
        return _FLOAT_BITS[name]
    found = re.fullmatch(r"(?:f|i|u|si|ui)(\d{1,3})", name)
    if found is None:
        raise refusal(f"the element type {name}", "such as f16, bf16, i8, f8E4M3FN", "Use f16: only its bits matter.")
    return int(found[1])


def _power(fields: dict[str, Any], key: str) -> int:
    number = fields.get(key)
    if not isinstance(number, int) or not _is_power(number):
        raise refusal(f"{key} = {number}", "a power of two", f"Use {key} = 8.")
    return number


def _power_above(number: int) -> int:
    return 1 << (max(1, number) - 1).bit_length()


def _is_power(number: int) -> bool:
    return number > 0 and not number & (number - 1) and not isinstance(number, bool)
