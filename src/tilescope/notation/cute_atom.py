"""The tensor core's shared-memory atoms by their CuTe names, and tiles made of them.

GMMA::Layout_K_SW128_Atom<half_t>                8 x 64 elements, k contiguous, swizzle 128B
UMMA::Layout_MN_SW128_32B_Atom<tfloat32_t>       32 x 4 elements, mn contiguous, 32-byte pieces (Blackwell)
tile_to_shape(GMMA::Layout_K_SW64_Atom<half_t>{}, Shape<_64,_128>{})          atoms down a column first
tile_to_shape(GMMA::Layout_K_SW64_Atom<half_t>{}, Shape<_64,_128>{}, Step<_2,_1>{})     along a row first
"""

from __future__ import annotations

import re

from tilescope.layout import IntTree, Layout, Major, Modes, major_named, oriented
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation.hints import NO_EQUIVALENT, Hints, strides_of, tile_of
from tilescope.notation.text import NOTATION_TEXT, Scanner
from tilescope.swizzle import SwizzleName

# Without Layout_ and _Atom it is a SmemLayoutAtomKind of the Python DSL.
_ATOM = re.compile(r"(?:Layout_)?(?:(K|MN)_)?(INTER|SW32|SW64|SW128_32B|SW128)(?:_(Atom_Bits|Atom|SpAtom))?")
_SWIZZLE_OF: dict[str, SwizzleName] = {
    "INTER": "none",
    "SW32": "32B",
    "SW64": "64B",
    "SW128": "128B",
    "SW128_32B": "128B_ATOM_32B",
}


_KIND_OF: dict[str, str] = {swizzle: kind for kind, swizzle in _SWIZZLE_OF.items()}

SPAN_CUTS_ELEMENT = NOTATION_TEXT.worded(
    found="a span of {span_bits} bits with elements of {element_bits}",
    limit="spans hold whole elements",
    fix="Use elements of 16 bits.",
)
TILE_ORDER = NOTATION_TEXT.worded(
    found="the order {order}",
    limit="every number from 1 to {rank} once",
    fix="Use Step<{steps}>.",
)
ATOM_WITH_ADDRESS = NO_EQUIVALENT.worded(
    found="start {start:#x}",
    limit="an atom has no address",
    fix="Spell it as cute.",
)
NO_ATOM_OF_SWIZZLE = NO_EQUIVALENT.worded(
    found="swizzle {swizzle}",
    limit="the atoms have swizzle {known:, }",
    fix="Spell it as cute.",
)


def atom(major: Major, kind: str, element_bits: int) -> Layout:
    """The tensor core's atom, mn first.

    CuTe defines it with elements of one bit, and casts it up:

        Layout_K_SW128_Atom_Bits   (8,1024):(1024,1)    ── 16 bits ──▶    (8,64):(64,1)

    >>> str(atom("MN", "SW128_32B", 32).modes)
    '(32,4):(1,32)'
    """
    in_bits = CanonicalLayout(major, _SWIZZLE_OF[kind], 1)
    span_bits = in_bits.span_bytes * 8
    if element_bits < 1 or span_bits % element_bits:
        raise SPAN_CUTS_ELEMENT.error(span_bits=span_bits, element_bits=element_bits)
    shape = oriented(major, in_bits.atom_bytes // in_bits.span_bytes, span_bits // element_bits)
    return Layout(shape, element_bits, major=major, swizzle=in_bits.swizzle)


def starts(scan: Scanner) -> bool:
    """Whether an atom's name, or a tile of atoms, comes next."""
    name = str(scan.peek().value)
    return name == "tile_to_shape" or "SmemLayoutAtomKind" in scan.peek().spelling or bool(_ATOM.fullmatch(name))


def read(scan: Scanner, hints: Hints, is_cut: bool = False) -> Layout:
    """An atom's name, or tile_to_shape(atom, shape[, order]); from a line of code (`is_cut`), with any continuation."""
    tiled = scan.accept("tile_to_shape", "(")
    piece = _read_atom(scan, hints)
    shape: tuple[int, ...] | None = hints.shape
    order: tuple[int, ...] | None = None
    if tiled:
        scan.expect(",")
        shape = _extents(scan.integers())
        order = _extents(scan.integers()) if scan.accept(",") else None
        scan.expect(")")
    if not (is_cut and scan.at_noise(")")):
        scan.finished()
    if shape is None:
        return piece.with_start(hints.start)
    places = tuple(range(1, len(shape) + 1))
    if order is not None and sorted(order) != list(places):
        steps = ",".join(f"_{place}" for place in places)
        raise TILE_ORDER.error(order=order, rank=len(shape), steps=steps)
    modes = strides_of(piece).repeated(shape, order or places)
    return Layout.from_modes(modes, piece.element_bits, swizzle=piece.swizzle, start=hints.start)


def _read_atom(scan: Scanner, hints: Hints) -> Layout:
    token = scan.peek()
    match = _ATOM.fullmatch(str(token.value))
    if match is None:
        scan.refuse("an atom such as GMMA::Layout_K_SW128_Atom<half_t> or K_SW128")
    major, kind, form = match.groups()
    if form == "SpAtom":
        scan.refuse("a dense atom", "Sparse operands have no dense address map.")
    if kind == "SW128_32B" and "GMMA" in token.spelling:
        scan.refuse("an atom that GMMA has", "Hopper has no 32-byte atoms: use UMMA::Layout_MN_SW128_32B_Atom.")
    scan.take()
    bits = 1 if form == "Atom_Bits" else None
    if form == "Atom":
        scan.expect("<")
        bits = scan.type_bits()
        if not major and scan.accept(","):
            major = str(scan.take().value)
        scan.expect(">")
    majorness = major_named(major) if major else None
    return atom(hints.majorness(majorness, "the atom"), kind, hints.bits(bits, "the atom"))


def spell(layout: Layout) -> tuple[str, ...]:
    """By the name of its GMMA or UMMA atom: the atom, or a tile of it by column or by row.

    >>> print(spell(atom("K", "SW128", 16))[0])
    GMMA::Layout_K_SW128_Atom<uint16_t>
    """
    tile_of(layout)
    if layout.start:
        raise ATOM_WITH_ADDRESS.error(start=layout.start)
    kind = _KIND_OF.get(layout.swizzle.name)
    if kind is None:
        raise NO_ATOM_OF_SWIZZLE.error(swizzle=layout.swizzle.name, known=tuple(_SWIZZLE_OF.values()))
    space = "UMMA" if kind == "SW128_32B" else "GMMA"
    name = f"{space}::Layout_{layout.major}_{kind}_Atom<uint{layout.element_bits}_t>"
    tile = f"tile_to_shape({name}{{}}, Shape<{','.join(f'_{extent}' for extent in layout.shape)}>{{}}"
    return name, f"{tile})", f"{tile}, Step<_2,_1>{{}})"


def _extents(tree: IntTree) -> tuple[int, ...]:
    """The extents of the outermost level of a nested shape."""
    return tuple(part.size for part in Modes(tree, tree).parts)
