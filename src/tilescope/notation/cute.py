"""CuTe's layouts, as its C++ and its Python print them.

The swizzle's three numbers count different units, which the text specifies:

    Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)   a pointer is swizzled: bytes
    Sw<3,3,3> o _0 o (_8,_64):(_64,_1)                     an index is swizzled: elements, here of 16 bits
    S<3,4,3> o 0 o (8,64):(64,1)                           the Python DSL prints both alike; its shared-memory
                                                           layouts hand the swizzle to the pointer: bytes

    byte address     … 9 8 7 6 5 4 3 2 1 0        Sw<3,4,3>    z = bits 6-4, y = bits 9-7
                       y y y z z z
    16-bit element   … 8 7 6 5 4 3 2 1 0          Sw<3,3,3>    the same bits, one place lower
                       y y y z z z

So the three lines are one layout, and a swizzle read in the wrong unit is another. `unit` overrides the
reading of the Python form. A kernel prints tensors: a pointer, generic or into shared memory, and what it points to.

    Sw<3,4,3>_smem_ptr[16b](0x7f8800000400) o (_8,_64):(_64,_1)              the pointer is swizzled
    smem_ptr[16b](0xc00) o Sw<3,3,3> o _0 o (_8,_64):(_64,_1)                the index is: a pointer on the pattern, no difference
    tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (8,64):(64,1)>            the Python DSL's
    raw_ptr(0x0000000000000400: f16, smem, align<1024>) o (8,64):(64,1) = ( 0.0, … )

Compilers print types: cute::ComposedLayout<cute::Swizzle<(int)3, (int)4, (int)3>, cute::smem_ptr_flag_bits<(int)16>, …>.
All are pieces in brackets, separated by "o" or commas; what a log writes before and behind them is passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import gcd

from tilescope.layout import Layout, Modes
from tilescope.notation import cute_atom
from tilescope.notation.hints import NO_EQUIVALENT, Hints, Unit, byte_base, on_pattern, strides_of, xor_swizzle
from tilescope.notation.text import NOTATION_TEXT, POINTER, Scanner

# Names that enclose pieces: those of pointers, and others.
_POINTERS = frozenset({"ptr", "raw_ptr", "memref", "smem_ptr", "swizzle_ptr"})
_WRAPPERS = _POINTERS | {
    "composition",
    "ComposedLayout",
    "make_composed_layout",
    "tensor",
    "Tensor",
    "ViewEngine",
    "ConstViewEngine",
    "layout",
    "composed_layout",
}
_SWIZZLES = ("Sw", "Swizzle", "S", "make_swizzle")
_COUNT_BYTES = ("S", "make_swizzle", "make_composed_layout", "swizzle_ptr")  # with any continuation
_DEPTH = {"(": 1, ")": -1}  # what a parenthesis adds to those that are open
_SPACES = ("gmem", "rmem", "tmem", "generic", "dsmem")
_NAMED = re.compile(
    r"""!cute\.\w+<|(?<![\w.:!])(?:!?\w+(?:::|\.))*
    (?:SW_\d|(?:Sw|S|Swizzle|Layout|ComposedLayout|Tensor|tensor|ptr|raw_ptr|memref|composition|make_\w*layout|smem_sparse|tmem_
       |smem_(?:sub)?ptr\w*|\w{1,8}_ptr|tile_to_shape|Layout_\w+Atom\w*|SmemLayoutAtomKind\.\w+)(?=\s*[<\[({]|$))""",
    re.VERBOSE,
)
_PREFIX_CHARACTERS = 400  # of a log before a layout

POINTER_IN_ELEMENTS = NOTATION_TEXT.worded(
    found="a swizzled pointer read in elements",
    limit="a pointer is swizzled in bytes",
    fix="Leave unit out.",
)
OFFSET_IN_BYTE = NOTATION_TEXT.worded(
    found="offset {offset} of {element_bits}-bit elements",
    limit="offsets are whole bytes",
    fix="Use offset 0.",
)
SWIZZLE_IN_ELEMENT = NO_EQUIVALENT.worded(
    found="swizzle {swizzle} moves pieces of {atom_bytes} bytes within elements of {element_bits} bits",
    limit="an index swizzle moves whole elements",
    fix="Spell it as cute, which swizzles the pointer.",
)
FLIPPED_SWIZZLE = NO_EQUIVALENT.worded(
    found="swizzle {swizzle}",
    limit="CuTe's Swizzle<B,M,S> moves whole pieces; it has no exchange of 8-byte halves",
    fix="Use 128B_ATOM_32B, the same without the flip.",
)
START_IN_ELEMENT = NO_EQUIVALENT.worded(
    found="start {start:#x} of {element_bits}-bit elements",
    limit="offsets count elements",
    fix="Use start {below:#x}.",
)


def read(text: str, hints: Hints) -> Layout:
    """The layout that a CuTe text describes.

    >>> layout = read("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", Hints(element_bits=16))
    >>> layout == read("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", Hints())
    True
    """
    scan, is_cut = _scanner(text)
    if cute_atom.starts(scan):
        layout = cute_atom.read(scan, hints, is_cut)
    else:
        layout = _layout(_pieces(scan, is_cut), hints)
    hints.check_shape(layout)
    return layout


def read_modes(text: str) -> Modes | None:
    """The shape and stride of a text without anything else: a thread-value layout, an index map; None: there is more.

    >>> print(read_modes("Layout<Shape<Shape<_4,_8>,_2>, Stride<Stride<_2,_16>,_1>>"))
    ((4,8),2):((2,16),1)
    """
    scan, is_cut = _scanner(text)
    if cute_atom.starts(scan):
        return None
    pieces = _pieces(scan, is_cut)
    return None if pieces.triple or pieces.has_pointer or pieces.offset else pieces.modes


def _scanner(text: str) -> tuple[Scanner, bool]:
    """The text from its layout on, and whether a prefix was removed, such as "sA: " or "auto layout = "."""
    text = re.sub(r"\bSW_(\d+)_(\d+)_(-?\d+)", r"Sw<\1,\2,\3>", text)  # pycute's
    place = _layout_place(text)
    return Scanner(text[place:]), place > 0


def _layout_place(text: str) -> int:
    """The start of the layout in a line of code or of a log; 0 without a prefix."""
    named = _NAMED.search(text[:_PREFIX_CHARACTERS])
    if named is not None:
        has_prefix = bool(text[: named.start()].strip(" ("))
        return named.start() if has_prefix else 0
    colon = re.search(r"\)\s*:\s*\(", text)
    if colon is None:
        return 0
    place = colon.start()
    depth = 1
    while depth and place:  # back to where the shape opens
        place -= 1
        depth -= _DEPTH.get(text[place], 0)
    prefix = text[:place]
    if len(prefix) > _PREFIX_CHARACTERS or prefix.endswith(" o ") or not prefix.strip(" (["):
        return 0
    return place


@dataclass(slots=True)
class _Pieces:
    """What was read of a layout so far."""

    start: int | None = None
    triple: tuple[int, ...] | None = None
    unit: Unit | None = None  # what the swizzle counts
    bits: int | None = None
    offset: int = 0
    modes: Modes | None = None
    has_pointer: bool = False


def _pieces(scan: Scanner, is_cut: bool) -> _Pieces:
    """Swizzle, pointer, offset and layout in any of the ways they are written; every piece but the layout may be missing."""
    pieces = _Pieces()
    closings: list[str] = []
    while pieces.modes is None:
        name, after = scan.peek().value, scan.peek(1).value
        if name in _COUNT_BYTES:
            pieces.unit = "bytes"
        if (name in _WRAPPERS and after in ("<", "(")) or (name == "(" and after in _SWIZZLES):
            pieces.has_pointer |= name in _POINTERS
            if name != "(":
                scan.take()
            closings.append(scan.opened())
        elif closings and scan.accept('"'):  # the layout of a memref
            closings.append('"')
        else:
            _read_piece(scan, pieces, bool(closings))
            if pieces.modes is None:
                _read_separator(scan, closings)
    is_printed = pieces.has_pointer or is_cut
    while closings and not (is_printed and scan.at_noise()):
        scan.expect(closings.pop())
    closing_noise = (")",) if is_cut else ()
    if not (is_printed and scan.at_noise(*closing_noise)):
        scan.finished()
    return pieces


def _read_separator(scan: Scanner, closings: list[str]) -> None:
    """Read the text between two pieces: closing brackets, then "o", a comma or a colon, or nothing before "_smem_ptr"."""
    while closings and scan.accept(closings[-1]):
        closings.pop()
    is_glued = scan.peek().kind == "name" and scan.peek().spelling.startswith("_")
    if is_glued or scan.accept("o") or scan.accept(",") or scan.accept(":"):
        return
    fix = 'A layout is read as "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)".'
    scan.refuse('"o" and what the swizzle acts on', fix)


def _read_piece(scan: Scanner, found: _Pieces, is_inside: bool) -> None:
    """Read one piece into `found`; types, spaces and alignments are inside the brackets of a pointer."""
    token = scan.peek()
    name = str(token.value)
    if name in _SWIZZLES:
        _read_swizzle(scan, found)
    elif name in _SPACES:
        scan.refuse("a pointer to shared memory", "Only shared memory is swizzled.")
    elif is_inside and _read_of_pointer(scan, found):
        return
    elif "ptr" in name or name in ("smem_sparse", "tmem_", "counting_iter"):
        _read_pointer(scan, found)
    elif token.kind == "number" and scan.peek(1).value in ("o", ","):
        found.offset = scan.integer()
    elif is_inside and token.kind == "name" and name not in ("Layout", "make_layout"):
        found.bits = scan.type_bits()
    else:
        found.modes = _read_modes(scan)


def _read_of_pointer(scan: Scanner, found: _Pieces) -> bool:
    """Whether an alignment, a space or an address of a pointer came next, and was read."""
    if scan.accept("align"):
        scan.enclosed()
    elif found.has_pointer and scan.peek().spelling.startswith("0x"):
        found.start = scan.integer(POINTER)
    else:
        return scan.accept("smem")
    return True


def _read_swizzle(scan: Scanner, found: _Pieces) -> None:
    if found.triple is not None:
        scan.refuse("one swizzle", "Two swizzles on one address have no name here: give the layout of one of them.")
    found.triple = _read_triple(scan)
    found.unit = found.unit or "elements"
    if scan.peek().kind == "end" or scan.at(";"):
        scan.refuse(
            "a layout",
            'A swizzle alone moves nothing: add what it acts on, "… o smem_ptr[16b](unset) o (8,64):(64,1)".',
        )


def _read_triple(scan: Scanner) -> tuple[int, ...]:
    """The three numbers of a swizzle."""
    scan.take()
    closing = scan.opened()
    numbers = []
    for _ in scan.until(closing):
        sign = -1 if scan.accept("-") else 1
        numbers.append(sign * scan.integer())
    if len(numbers) != 3:
        scan.refuse("three integers in a swizzle", "Write its bits, base and shift, such as Sw<3,4,3>.")
    return tuple(numbers)


def _read_pointer(scan: Scanner, found: _Pieces) -> None:
    """smem_ptr[16b](unset), smem_ptr[16b](0x400), smem_subptr[4b](0x400.0) or smem_ptr_flag_bits<16>."""
    name = str(scan.peek().value).lstrip("_")
    if name not in ("smem_ptr", "smem_subptr", "smem_ptr_flag_bits"):
        fix = "Sparse operands have no dense address map." if "sparse" in name else "Only shared memory is swizzled."
        scan.refuse("a pointer to shared memory", fix)
    scan.take()
    if name == "smem_ptr_flag_bits":
        found.bits = scan.enclosed()
    else:
        scan.expect("[")
        found.bits = scan.integer()
        scan.expect("b", "]", "(")
        if not scan.accept("unset"):
            found.start = scan.integer(POINTER)
            if scan.accept(".") and scan.integer():
                scan.refuse("a pointer to a whole byte", "Start at the first element of a byte.")
        scan.expect(")")
    found.has_pointer = True
    if found.triple is not None:
        found.unit = "bytes"


def _read_modes(scan: Scanner) -> Modes:
    """(8,64):(64,1), ((8,64) : (64,1)), Layout<Shape<_8,_64>,Stride<_64,_1>> or make_layout((8,64), stride=(64,1))."""
    is_named = scan.peek().value in ("Layout", "make_layout")
    if is_named:
        scan.take()
    closing = scan.opened() if is_named or _colon_depth(scan) == 1 else None
    shape = scan.integers()
    if not scan.accept("," if is_named else ":"):
        scan.refuse("the strides", "Write shape and stride, (8,64):(64,1): a layout is both.")
    scan.accept("stride", "=")
    stride = scan.integers()
    if closing is not None:
        scan.expect(closing)
    return Modes(shape, stride)


def _colon_depth(scan: Scanner) -> int:
    """How many parentheses enclose the colon that comes next."""
    depth = 0
    ahead = 0
    while scan.peek(ahead).kind != "end" and scan.peek(ahead).value != ":":
        depth += _DEPTH.get(scan.peek(ahead).spelling, 0)
        ahead += 1
    return depth if scan.peek(ahead).value == ":" else 0


def _layout(found: _Pieces, hints: Hints) -> Layout:
    """The layout that the pieces make."""
    assert found.modes is not None
    element_bits = hints.bits(found.bits, "the layout")
    if hints.unit == "elements" and found.unit == "bytes" and found.has_pointer:
        raise POINTER_IN_ELEMENTS.error()
    bits, base, shift = found.triple or (0, 4, 3)
    if bits and (hints.unit or found.unit) == "elements":
        base = byte_base(base, element_bits)
    swizzle = xor_swizzle(bits, base, shift)
    start = hints.start if found.start is None else found.start
    if found.has_pointer and found.unit == "elements":
        on_pattern(start, swizzle, "a swizzle of the index behind a pointer to")
    if found.offset * element_bits % 8:
        raise OFFSET_IN_BYTE.error(offset=found.offset, element_bits=element_bits)
    start += found.offset * element_bits // 8
    return Layout.from_modes(found.modes, element_bits, swizzle=swizzle, start=start)


def spell(layout: Layout) -> tuple[str]:
    """As CuTe C++ prints a layout, or the tensor at its address when it has one.

    >>> print(*spell(Layout((8, 32), 16, swizzle="64B")))
    Sw<2,4,3> o smem_ptr[16b](unset) o (_8,_32):(_32,_1)
    """
    bits = layout.element_bits
    swizzle = f"Sw<{_triple(layout)}>"
    modes = _static(layout)
    if layout.start == 0:
        return (f"{swizzle} o smem_ptr[{bits}b](unset) o {modes}",)
    if bits < 8:
        pointer = f"smem_subptr[{bits}b]({layout.start:#x}.0)"
    else:
        pointer = f"smem_ptr[{bits}b]({layout.start:#x})"
    if layout.swizzle.bits:
        pointer = f"{swizzle}_{pointer}"
    return (f"{pointer} o {modes}",)


def spell_elements(layout: Layout) -> tuple[str]:
    """As CuTe C++ prints a composed layout of indices: the swizzle counts elements.

    >>> print(*spell_elements(Layout((8, 64), 16, swizzle="128B")))
    Sw<3,3,3> o _0 o (_8,_64):(_64,_1)
    """
    swizzle = layout.swizzle
    bits = layout.element_bits
    lower = bits.bit_length() - 4  # bits of a byte address below those of an element
    if swizzle.bits and swizzle.base < lower:
        raise SWIZZLE_IN_ELEMENT.error(swizzle=swizzle.name, atom_bytes=swizzle.atom_bytes, element_bits=bits)
    return (f"Sw<{_triple(layout, lower)}> o _{_start_elements(layout)} o {_static(layout)}",)


def spell_python(layout: Layout) -> tuple[str]:
    """As CuTe's Python DSL prints a shared-memory layout: the swizzle counts bytes.

    >>> print(*spell_python(Layout((8, 64), 16, swizzle="128B")))
    S<3,4,3> o 0 o (8,64):(64,1)
    """
    return (f"S<{_triple(layout)}> o {_start_elements(layout)} o {strides_of(layout)}",)


def _static(layout: Layout) -> str:
    """The modes with every number a constant: _8."""
    return re.sub(r"(\d+)", r"_\1", str(strides_of(layout)))


def _triple(layout: Layout, lower: int = 0) -> str:
    swizzle = layout.swizzle
    if swizzle.flip_bytes:
        raise FLIPPED_SWIZZLE.error(swizzle=swizzle.name)
    return f"{swizzle.bits},{swizzle.base - lower},{swizzle.shift}"


def _start_elements(layout: Layout) -> int:
    start = layout.start
    bits = layout.element_bits
    step = bits // gcd(bits, 8)  # bytes between starts that are a whole number of elements
    if start % step:
        raise START_IN_ELEMENT.error(start=start, element_bits=bits, below=start // step * step)
    return start * 8 // bits
