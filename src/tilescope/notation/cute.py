"""CuTe's layouts, as its C++ and its Python print them.

The swizzle's three numbers count something, and the text says what:

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

from tilescope.layout import Layout, Modes
from tilescope.notation import cute_atom
from tilescope.notation.hints import Hints, Unit, xor_swizzle
from tilescope.notation.text import INTEGER_NAMES, POINTER, Scanner, last_name, refusal
from tilescope.swizzle import SWIZZLE, Swizzle

# Names that enclose pieces, and those of them whose pieces describe a pointer.
_POINTERS = frozenset({"ptr", "raw_ptr", "memref", "smem_ptr", "swizzle_ptr"})
_WRAPPERS = _POINTERS | {
    "composition", "ComposedLayout", "make_composed_layout", "tensor", "Tensor", "ViewEngine", "ConstViewEngine",
    "layout", "composed_layout",
}  # fmt: skip
_SWIZZLES = ("Sw", "Swizzle", "S", "make_swizzle")
_SPACES = ("gmem", "rmem", "tmem", "generic", "dsmem")
_NAMED = re.compile(
    r"""!cute\.\w+<|(?<![\w.:!])(?:!?\w+(?:::|\.))*
    (?:SW_\d|(?:Sw|S|Swizzle|Layout|ComposedLayout|Tensor|tensor|ptr|raw_ptr|memref|composition|make_\w*layout|smem_sparse|tmem_
       |smem_(?:sub)?ptr\w*|\w{1,8}_ptr|tile_to_shape|Layout_\w+Atom\w*|SmemLayoutAtomKind\.\w+)(?=\s*[<\[({]|$))""",
    re.VERBOSE,
)
_PREFIX_CHARACTERS = 400  # of a log before a layout


def read(text: str, hints: Hints) -> Layout:
    """The layout that a CuTe text describes.

    >>> layout = read("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", Hints(element_bits=16))
    >>> layout == read("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", Hints())
    True
    """
    line = _without_prefix(text)
    scan = Scanner(line)
    is_cut = line is not text
    return cute_atom.read(scan, hints, is_cut) if cute_atom.starts(scan) else _read_pieces(scan, hints, is_cut)


def read_modes(text: str) -> Modes:
    """The shape and stride of a text that says nothing else: a thread-value layout, an index map.

    >>> print(read_modes("Layout<Shape<Shape<_4,_8>,_2>, Stride<Stride<_2,_16>,_1>>"))
    ((4,8),2):((2,16),1)
    """
    scan = Scanner(_without_prefix(text))
    closings = _opened(scan)
    modes = _read_modes(scan)
    for closing in reversed(closings):
        scan.expect(closing)
    scan.finished()
    return modes


def is_modes(text: str) -> bool:
    """Whether the text is shape and stride alone: no swizzle, no pointer, no atom."""
    return re.match(r"[\s(\d]|(?:\w+(?:::|\.))*(?:Layout\s*<|make_layout)", text) is not None and " o " not in text


def _without_prefix(text: str) -> str:
    """The text from its layout on, without what a log or a program writes before it: "sA: ", "auto layout = "."""
    first = _NAMED.search(text[:_PREFIX_CHARACTERS])
    if first is not None:
        return text[first.start() :] if text[: first.start()].strip(" (") else text
    colon = re.search(r"\)\s*:\s*\(", text)
    if colon is None:
        return text
    depth, place = 0, colon.start()
    while place >= 0:  # back to where the shape opens
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            break
        place -= 1
    prefix = text[: max(place, 0)]
    is_label = prefix.strip(" ([") and len(prefix) <= _PREFIX_CHARACTERS and not prefix.endswith(" o ")
    return text[place:] if is_label else text


@dataclass(slots=True)
class _Pieces:
    """What was read of a layout so far."""

    start: int
    triple: tuple[int, int, int] | None = None
    unit: Unit | None = None  # what the swizzle counts
    bits: int | None = None
    offset: int = 0
    modes: Modes | None = None
    has_pointer: bool = False


def _opened(scan: Scanner) -> list[str]:
    """The closing brackets of the name that encloses what comes next, consumed with its opening ones; none: no such name."""
    name = last_name(scan.peek().spelling).lstrip("!")
    if name not in _WRAPPERS or scan.peek(1).spelling not in ("<", "("):
        return []
    scan.take()
    closings = [{"<": ">", "(": ")"}[scan.take().spelling]]
    return [*closings, '"'] if scan.accept('"') else closings


def _read_pieces(scan: Scanner, hints: Hints, is_cut: bool) -> Layout:
    """Swizzle, pointer, offset and layout in any of the ways they are written; every piece but the layout may be missing."""
    found = _Pieces(hints.start)
    closings: list[str] = []
    in_pointer: list[int] = []  # how many brackets were open when a pointer's opened
    while found.modes is None:
        name = last_name(scan.peek().spelling).lstrip("!")
        if closings and scan.accept('"'):  # the layout of a memref
            closings.append('"')
            in_pointer.clear()
            continue
        if opened := _opened(scan):
            if name in _POINTERS:
                in_pointer.append(len(closings) + 1)
                found.has_pointer = True
            if name == "make_composed_layout":
                found.unit = "bytes"
            closings += opened
            continue
        is_glued = _read_piece(scan, hints, found, bool(in_pointer))
        while closings and found.modes is None and scan.accept(closings[-1]):
            if in_pointer and in_pointer[-1] == len(closings):
                in_pointer.pop()
            closings.pop()
        if found.modes is None and not is_glued and not (scan.accept("o") or scan.accept(",") or scan.accept(":")):
            scan.refuse(
                '"o" and what the swizzle acts on',
                'A layout is read as "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)".',
            )
    is_printed = found.has_pointer or is_cut
    while closings and not (is_printed and scan.at_noise()):
        scan.expect(closings.pop())
    if not (is_printed and scan.at_noise(*([")"] if is_cut else []))):
        scan.finished()
    return _layout(found, hints)


def _read_piece(scan: Scanner, hints: Hints, found: _Pieces, in_pointer: bool) -> bool:
    """Read one piece into `found`; whether the next one is glued to it."""
    name = last_name(scan.peek().spelling)
    if _at_swizzle(scan):
        if found.triple is not None:
            scan.refuse("one swizzle", "Two swizzles on one address have no name here: give the layout of one of them.")
        found.triple, unit = _read_swizzle(scan)
        if in_pointer:
            unit = "bytes"
        found.unit = found.unit or unit
        if scan.peek().kind == "end" or scan.at("{") or scan.at(";"):
            scan.refuse(
                "a layout",
                'A swizzle alone moves nothing: add what it acts on, "… o smem_ptr[16b](unset) o (8,64):(64,1)".',
            )
        return scan.peek().spelling.startswith("_")
    if name in _SPACES:
        scan.refuse("a pointer to shared memory", "Only shared memory is swizzled.")
    if in_pointer and name == "align":
        scan.take()
        scan.enclosed()
    elif in_pointer and name == "smem":
        scan.take()
    elif in_pointer and scan.peek().kind == "number" and scan.peek().spelling[:2] == "0x":
        found.start = scan.integer(POINTER)
    elif in_pointer and scan.peek().kind == "name":
        found.bits = hints.bits(scan.type_bits(), "the pointer")
    elif "ptr" in name or scan.peek().spelling in ("smem_sparse", "tmem_", "counting_iter"):
        found.bits, found.start = _read_pointer(scan, hints, found.start)
        found.has_pointer = True
        if found.triple is not None:
            found.unit = "bytes"
    elif name in INTEGER_NAMES or (scan.peek().kind == "number" and scan.peek(1).spelling in ("o", ",", "{")):
        found.offset = scan.integer()
    else:
        found.modes = _read_modes(scan)
    return False


def _layout(found: _Pieces, hints: Hints) -> Layout:
    """The layout that the pieces make."""
    assert found.modes is not None
    element_bits = hints.bits(found.bits, "the layout")
    if hints.unit == "elements" and found.unit == "bytes" and found.has_pointer:
        raise refusal("a swizzled pointer read in elements", "a pointer is swizzled in bytes", "Leave unit out.")
    swizzle = _swizzle_of_bytes(found.triple or (0, 4, 3), hints.unit or found.unit or "elements", element_bits)
    if found.has_pointer and found.unit == "elements" and found.start % swizzle.repeat_bytes:
        repeat = swizzle.repeat_bytes
        raise refusal(
            f"a swizzle of the index behind a pointer to {found.start:#x}",
            f"an address map swizzles addresses: the pointer lies on the pattern, every {repeat} bytes",
            f"Use a pointer to {found.start // repeat * repeat:#x}.",
            start=found.start,
            repeat_bytes=repeat,
        )
    if found.offset * element_bits % 8:
        shown = f"offset {found.offset} of {element_bits}-bit elements"
        raise refusal(shown, "offsets are whole bytes", "Use offset 0.", offset=found.offset, element_bits=element_bits)
    start = found.start + found.offset * element_bits // 8
    layout = Layout.from_modes(found.modes, element_bits, swizzle=swizzle, start=start)
    hints.agrees_with(layout, "the layout")
    return layout


def _at_swizzle(scan: Scanner) -> bool:
    ahead = 1 if scan.at("(") else 0
    name = last_name(scan.peek(ahead).spelling)
    return name in _SWIZZLES or re.fullmatch(r"SW(_\d+){2}_\d+", name) is not None


def _read_swizzle(scan: Scanner) -> tuple[tuple[int, int, int], Unit]:
    """The three numbers, and what they count when no pointer says otherwise."""
    bracketed = scan.accept("(")
    name = last_name(scan.name())
    if name.startswith("SW_"):
        bits, base, shift = (int(number[:6]) for number in name.split("_")[1:])
    else:
        closing = scan.opened()
        bits = scan.integer()
        scan.expect(",")
        base = scan.integer()
        scan.expect(",")
        shift = -scan.integer() if scan.accept("-") else scan.integer()
        scan.expect(closing)
        scan.accept("{", "}")
    if bracketed:
        scan.expect(")")
    return (bits, base, shift), "bytes" if name in ("S", "make_swizzle") else "elements"


def _read_pointer(scan: Scanner, hints: Hints, start: int) -> tuple[int, int]:
    """smem_ptr[16b](unset), smem_ptr[16b](0x400), smem_subptr[4b](0x400.0) or smem_ptr_flag_bits<16>: bits, address."""
    name = last_name(scan.peek().spelling.lstrip("_"))
    if name == "smem_ptr_flag_bits":
        scan.take()
        said = scan.enclosed()
        scan.accept("{", "}")
        return hints.bits(said, "the pointer"), start
    if name not in ("smem_ptr", "smem_subptr"):
        fix = "Sparse operands have no dense address map." if "sparse" in name else "Only shared memory is swizzled."
        scan.refuse("a pointer to shared memory", fix)
    scan.take()
    scan.expect("[")
    said = scan.integer()
    scan.expect("b", "]", "(")
    if not scan.accept("unset"):
        start = scan.integer(POINTER)
        if scan.accept(".") and scan.integer():
            scan.refuse("a pointer to a whole byte", "Start at the first element of a byte.")
    scan.expect(")")
    return hints.bits(said, "the pointer"), start


def _read_modes(scan: Scanner) -> Modes:
    """(8,64):(64,1), ((8,64) : (64,1)), Layout<Shape<_8,_64>,Stride<_64,_1>> or make_layout((8,64), stride=(64,1))."""
    if last_name(scan.peek().spelling) in ("Layout", "make_layout"):
        scan.take()
        closing = scan.opened()
        shape = scan.integers()
        if not scan.accept(","):
            scan.refuse("the strides", "Write shape and stride: a layout is both.")
        scan.accept("stride", "=")
        stride = scan.integers()
        scan.expect(closing)
        scan.accept("{", "}")
        return Modes(shape, stride)
    wrapped = _colon_depth(scan) == 1
    if wrapped:
        scan.expect("(")
    shape = scan.integers()
    if not scan.accept(":"):
        scan.refuse('":" and the strides', "Write shape and stride: a layout is both.")
    stride = scan.integers()
    if wrapped:
        scan.expect(")")
    return Modes(shape, stride)


def _colon_depth(scan: Scanner) -> int:
    """How many parentheses enclose the colon that comes next."""
    depth, ahead = 0, 0
    while scan.peek(ahead).kind != "end" and scan.peek(ahead).spelling != ":":
        depth += {"(": 1, ")": -1}.get(scan.peek(ahead).spelling, 0)
        ahead += 1
    return depth if scan.peek(ahead).spelling == ":" else 0


def _swizzle_of_bytes(triple: tuple[int, int, int], unit: Unit, element_bits: int) -> Swizzle:
    """The swizzle on byte addresses that these numbers mean."""
    bits, base, shift = triple
    written = f"Swizzle<{bits},{base},{shift}>"
    if max(bits, base, abs(shift)) > 64:
        fix = "Use Swizzle<3,4,3>, for example."
        raise refusal(written, "an address has 64 bits", fix, bits=bits, base=base, shift=shift)
    if bits == 0:
        return SWIZZLE["none"]
    if unit == "bytes":
        return xor_swizzle(bits, base, shift)
    if element_bits & (element_bits - 1):
        found, limit = f"a swizzle counting elements of {element_bits} bits", "a power of two of bits"
        raise refusal(found, limit, 'Use unit="bytes".', element_bits=element_bits)
    base_bytes = base + element_bits.bit_length() - 4
    if base_bytes < 0:
        found, least = f"{written} of {element_bits}-bit elements", 4 - element_bits.bit_length()
        limit, fix = "pieces that move are whole bytes", f"Use Swizzle<{bits},{least},{shift}>."
        raise refusal(found, limit, fix, bits=bits, base=base, shift=shift, element_bits=element_bits)
    return xor_swizzle(bits, base_bytes, shift)
