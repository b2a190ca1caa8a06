"""The tensor core's shared-memory atoms by their CuTe names, and tiles made of them.

GMMA::Layout_K_SW128_Atom<half_t>                8 x 64 elements, k contiguous, swizzle 128B
UMMA::Layout_MN_SW128_32B_Atom<tfloat32_t>       32 x 4 elements, mn contiguous, 32-byte pieces (Blackwell)
tile_to_shape(GMMA::Layout_K_SW64_Atom<half_t>{}, Shape<_64,_128>{})          atoms down a column first
tile_to_shape(GMMA::Layout_K_SW64_Atom<half_t>{}, Shape<_64,_128>{}, Step<_2,_1>{})     along a row first
"""

from __future__ import annotations

import re

from tilescope.errors import by
from tilescope.layout import IntTree, Layout, Major, Modes, oriented
from tilescope.mma.canonical import CanonicalLayout
from tilescope.notation.hints import Hints, no_equivalent, strides_of
from tilescope.notation.text import Scanner, last_name, refusal
from tilescope.swizzle import CHUNK_BYTES, SWIZZLE

_ATOM = re.compile(r"Layout_(?:(K|MN)_)?(INTER|SW32|SW64|SW128_32B|SW128)_(Atom_Bits|Atom|SpAtom)")
_ATOM_KIND = re.compile(r"(K|MN)_(INTER|SW32|SW64|SW128_32B|SW128)")  # SmemLayoutAtomKind of the Python DSL
_ATOM_SWIZZLE = {"INTER": "none", "SW32": "32B", "SW64": "64B", "SW128": "128B", "SW128_32B": "128B_ATOM_32B"}


def atom(major: Major, kind: str, element_bits: int) -> Layout:
    """The tensor core's atom, mn first.

    CuTe defines it with elements of one bit, and casts it up:

        Layout_K_SW128_Atom_Bits   (8,1024):(1024,1)    ── 16 bits ──▶    (8,64):(64,1)

    >>> str(atom("MN", "SW128_32B", 32).modes)
    '(32,4):(1,32)'
    """
    in_bits = CanonicalLayout(major, SWIZZLE[_ATOM_SWIZZLE[kind]], 1)
    strided = in_bits.atom_layout.pairs[0 if major == "K" else 1][0]
    span = in_bits.span_bytes * 8 // element_bits
    return Layout(oriented(major, strided, span), element_bits, major=major, swizzle=in_bits.swizzle)


def _missing(major: str, kind: str, element_bits: int) -> tuple[str, str] | None:
    """Why there is no such atom, in two clauses; None: there is one."""
    if kind == "SW128_32B" and major == "K":
        return "a K-major atom of 32-byte pieces", "only MN-major has that atom"
    span_bits = (SWIZZLE[_ATOM_SWIZZLE[kind]].span_bytes or CHUNK_BYTES) * 8
    if span_bits % element_bits:
        return f"a span of {span_bits} bits with elements of {element_bits}", "spans hold whole elements"
    return None


def starts(scan: Scanner) -> bool:
    """Whether an atom's name, or a tile of atoms, comes next."""
    spelling = scan.peek().spelling
    name = last_name(spelling)
    return name == "tile_to_shape" or _ATOM.fullmatch(name) is not None or "SmemLayoutAtomKind" in spelling


def read(scan: Scanner, hints: Hints, is_cut: bool = False) -> Layout:
    """An atom's name, or tile_to_shape(atom, shape[, order]); out of a line of code (`is_cut`), whatever follows."""
    tiled = last_name(scan.peek().spelling) == "tile_to_shape"
    if tiled:
        scan.take()
        scan.expect("(")
    piece = _read_atom(scan, hints).with_start(hints.start)
    shape: tuple[int, ...] | None = hints.shape
    order: tuple[int, ...] | None = None
    if tiled:
        scan.expect(",")
        shape = _extents(scan.integers())
        if scan.accept(","):
            order = _extents(scan.integers())
        scan.expect(")")
    if not (is_cut and scan.at_noise(")")):
        scan.finished()
    if shape is None:
        return piece
    if order is not None and sorted(order) != list(range(1, len(shape) + 1)):
        steps = ",".join(f"_{place}" for place in range(1, len(shape) + 1))
        limit = f"every number from 1 to {len(shape)} once"
        raise refusal(f"the order {order}", limit, f"Use Step<{steps}>.", order=order)
    modes = strides_of(piece).repeated(shape, order or tuple(range(1, len(shape) + 1)))
    return Layout.from_modes(modes, piece.element_bits, swizzle=piece.swizzle, start=hints.start)


def _read_atom(scan: Scanner, hints: Hints) -> Layout:
    if "SmemLayoutAtomKind" in scan.peek().spelling:
        found = _ATOM_KIND.fullmatch(last_name(scan.peek().spelling))
        if found is None:
            scan.refuse("an atom such as K_SW128 or MN_SW64")
        scan.take()
        return _existing(found[1], found[2], hints.bits(None, "the atom"))
    found = _ATOM.fullmatch(last_name(scan.peek().spelling))
    if found is None:
        scan.refuse("an atom such as GMMA::Layout_K_SW128_Atom<half_t>")
    space = scan.peek().spelling
    major, kind, form = found.groups()
    if form == "SpAtom":
        scan.refuse("a dense atom", "Sparse operands have no dense address map.")
    if kind == "SW128_32B" and "GMMA" in space:
        scan.refuse("an atom that GMMA has", "Hopper has no 32-byte atoms: use UMMA::Layout_MN_SW128_32B_Atom.")
    scan.take()
    bits = 1
    if form == "Atom":
        scan.expect("<")
        bits = scan.type_bits()
        if major is None:
            scan.expect(",")
            major = last_name(scan.name())
        scan.expect(">")
    if major not in ("K", "MN"):
        raise refusal(f"the major {major}", "K or MN", f"Write Layout_K_{kind}_Atom.")
    scan.accept("{", "}")
    return _existing(major, kind, hints.bits(bits, "the atom"))


def _existing(major: str, kind: str, element_bits: int) -> Layout:
    if missing := _missing(major, kind, element_bits):
        raise refusal(*missing, f"Use Layout_{major}_SW128_Atom<uint16_t>.", element_bits=element_bits)
    return atom("K" if major == "K" else "MN", kind, element_bits)


def spell(layout: Layout) -> tuple[str, ...]:
    """By the name of its GMMA or UMMA atom; where it is larger, tiled by column or by row.

    >>> print(*spell(atom("K", "SW128", 16)))
    GMMA::Layout_K_SW128_Atom<uint16_t>
    """
    kind = next((kind for kind, name in _ATOM_SWIZZLE.items() if name == layout.swizzle.name), None)
    major = layout.major
    if kind is None or major is None or layout.start:
        raise no_equivalent(
            f"swizzle {layout.swizzle}, {layout.modes} at {layout.start:#x}",
            "the atoms have swizzle none, 32B, 64B, 128B or 128B_ATOM_32B, two indices, one of them contiguous, "
            "and no address", "Spell it as cute.", start=layout.start,
        )  # fmt: skip
    if missing := _missing(major, kind, layout.element_bits):
        raise no_equivalent(*missing, "Spell it as cute.", element_bits=layout.element_bits)
    space = "UMMA" if kind == "SW128_32B" else "GMMA"
    piece = atom(major, kind, layout.element_bits)
    spelled = f"{space}::Layout_{major}_{kind}_Atom<uint{layout.element_bits}_t>"
    if piece == layout:
        return (spelled,)
    if any(extent % step for extent, step in zip(layout.shape, piece.shape, strict=True)):
        found, limit = f"a tile of {by(layout.shape)}", f"a tile of {space} atoms of {by(piece.shape)} elements"
        raise no_equivalent(found, limit, "Spell it as cute.", shape=layout.shape, atom=piece.shape)
    tile = f"tile_to_shape({spelled}{{}}, Shape<{','.join(f'_{extent}' for extent in layout.shape)}>{{}}"
    return f"{tile})", f"{tile}, Step<_2,_1>{{}})"


def _extents(tree: IntTree) -> tuple[int, ...]:
    """The extents of the outermost level of a nested shape."""
    return tuple(part.size for part in Modes(tree, tree).parts)
