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
reading of the Python form.
"""

from __future__ import annotations

import re

from tilescope.layout import Layout, Modes
from tilescope.notation import cute_atom
from tilescope.notation.equivalent import no_equivalent, strides_of, xor_swizzle
from tilescope.notation.hints import Hints, Unit
from tilescope.notation.text import Scanner, last_name, refusal
from tilescope.swizzle import SWIZZLE, Swizzle

_DSL_BITS = re.compile(r"(?:bf|tf|f|ui|si|i|u)?(\d{1,3})(?:[eE]\d\w*)?")
_DSL_TYPE = re.compile(r'!cute\.(?:composed_)?layout<"([^"<>]*(?:<[^"<>]*>)?[^"<>]*)">')
_DSL_MEMREF = re.compile(r'!cute\.memref<(\w+), smem(?:, align<\d+>)?(?:, (S<[\d,\- ]+>))?, "([^"]*)">')


def read(text: str, hints: Hints) -> Layout:
    """The layout that a CuTe text describes.

    >>> layout = read("Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", Hints(element_bits=16))
    >>> layout == read("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", Hints())
    True
    """
    text, bits = _unwrapped(text)
    scan = Scanner(text)
    return cute_atom.read(scan, hints) if cute_atom.starts(scan) else _read_composed(scan, hints, bits)


def spell(layout: Layout) -> str:
    """As CuTe C++ prints a layout, or the tensor at its address when it has one.

    >>> print(spell(read("Swizzle<2,3,3> o (8,32):(32,1)", Hints(element_bits=16))))
    Sw<2,4,3> o smem_ptr[16b](unset) o (_8,_32):(_32,_1)
    """
    swizzle = _triple(layout.swizzle, 0)
    kind = "smem_ptr" if layout.element_bits >= 8 else "smem_subptr"
    modes = _static(layout)
    if layout.start == 0:
        return f"Sw<{swizzle}> o smem_ptr[{layout.element_bits}b](unset) o {modes}"
    place = f"{layout.start:#x}" + (".0" if layout.element_bits < 8 else "")
    glued = f"Sw<{swizzle}>_" if layout.swizzle.bits else ""
    return f"{glued}{kind}[{layout.element_bits}b]({place}) o {modes}"


def spell_elements(layout: Layout) -> str:
    """As CuTe C++ prints a composed layout of indices: the swizzle counts elements.

    >>> print(spell_elements(read("Swizzle<3,3,3> o (8,64):(64,1)", Hints(element_bits=16))))
    Sw<3,3,3> o _0 o (_8,_64):(_64,_1)
    """
    triple = _triple(layout.swizzle, _unit_shift(layout.element_bits, layout.swizzle))
    modes = _static(layout)
    return f"Sw<{triple}> o _{_start_elements(layout)} o {modes}"


def spell_python(layout: Layout) -> str:
    """As CuTe's Python DSL prints a shared-memory layout: the swizzle counts bytes.

    >>> print(spell_python(read("Swizzle<3,3,3> o (8,64):(64,1)", Hints(element_bits=16))))
    S<3,4,3> o 0 o (8,64):(64,1)
    """
    return f"S<{_triple(layout.swizzle, 0)}> o {_start_elements(layout)} o {strides_of(layout)}"


def read_modes(text: str) -> Modes:
    """The shape and stride of a text that says nothing else: a thread-value layout, an index map.

    >>> print(read_modes("Layout<Shape<Shape<_4,_8>,_2>, Stride<Stride<_2,_16>,_1>>"))
    ((4,8),2):((2,16),1)
    """
    scan = Scanner(_unwrapped(text)[0])
    modes = _read_modes(scan)
    scan.finished()
    return modes


def is_modes(text: str) -> bool:
    """Whether the text is shape and stride alone: no swizzle, no pointer, no atom."""
    return re.match(r"[\s(\d]|(?:\w+(?:::|\.))*(?:Layout\s*<|make_layout)", text) is not None and " o " not in text


def _static(layout: Layout) -> str:
    """The modes with every number a constant: _8."""
    return re.sub(r"(\d+)", r"_\1", str(strides_of(layout)))


def _unwrapped(text: str) -> tuple[str, int | None]:
    """The layout inside a type of the Python DSL's intermediate code, and its element's bits."""
    if found := _DSL_TYPE.fullmatch(text):
        return found[1], None
    if found := _DSL_MEMREF.fullmatch(text):
        bits = _DSL_BITS.match(found[1])
        return (f"{found[2]} o 0 o {found[3]}" if found[2] else found[3]), int(bits[1]) if bits else None
    return text, None


def _read_composed(scan: Scanner, hints: Hints, bits: int | None) -> Layout:
    """What is written "swizzle o offset o layout", in any of the ways it is written; every part but the layout may be missing."""
    triple, unit, offset, start = (0, 4, 3), None, 0, hints.start
    wrapper = last_name(scan.peek().spelling)
    separator = "o"
    if wrapper in ("composition", "ComposedLayout", "make_composed_layout"):
        separator, closing = ",", _closing(scan)
    if _at_swizzle(scan):
        triple, unit = _read_swizzle(scan)
        glued = scan.peek().spelling.startswith("_smem")
        if scan.peek().kind == "end" or scan.at("{"):
            scan.refuse(
                "a layout",
                'A swizzle alone moves nothing: add what it acts on, "… o smem_ptr[16b](unset) o (8,64):(64,1)".',
            )
        if not glued:
            scan.expect(separator)
    if wrapper == "make_composed_layout":
        unit = "bytes"
    name = last_name(scan.peek().spelling)
    if "ptr" in name or scan.peek().spelling in ("smem_sparse", "tmem_"):
        bits, start, unit = _read_pointer(scan, hints)
        scan.expect(separator)
    elif name in ("Int", "C") or (scan.peek().kind == "number" and scan.peek(1).spelling in (separator, "{")):
        offset = scan.integer()
        scan.expect(separator)
    modes = _read_modes(scan)
    if separator == ",":
        scan.expect(closing)
    scan.finished()
    element_bits = hints.bits(bits, "the layout")
    if hints.unit is not None and unit == "bytes" and bits is not None and hints.unit != "bytes":
        raise refusal("a swizzled pointer read in elements", "a pointer is swizzled in bytes", "Leave unit out.")
    swizzle = _swizzle_of_bytes(triple, hints.unit or unit or "elements", element_bits)
    if offset * element_bits % 8:
        raise refusal(f"offset {offset} of {element_bits}-bit elements", "offsets are whole bytes", "Use offset 0.")
    start += offset * element_bits // 8
    layout = Layout.from_modes(modes, element_bits, swizzle=swizzle, start=start)
    hints.agrees_with(layout, "the layout")
    return layout


def _closing(scan: Scanner) -> str:
    scan.take()
    if not (scan.at("(") or scan.at("<")):
        scan.refuse('"(" or "<"')
    return ")" if scan.take().spelling == "(" else ">"


def _at_swizzle(scan: Scanner) -> bool:
    ahead = 1 if scan.at("(") else 0
    name = last_name(scan.peek(ahead).spelling)
    return name in ("Sw", "Swizzle", "S", "make_swizzle") or re.fullmatch(r"SW(_\d+){2}_\d+", name) is not None


def _read_swizzle(scan: Scanner) -> tuple[tuple[int, int, int], Unit]:
    """The three numbers, and what they count when no pointer says otherwise."""
    bracketed = scan.accept("(")
    name = last_name(scan.name())
    if name.startswith("SW_"):
        bits, base, shift = (int(number[:6]) for number in name.split("_")[1:])
    else:
        closing = ")" if scan.accept("(") else ">"
        if closing == ">":
            scan.expect("<")
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


def _read_pointer(scan: Scanner, hints: Hints) -> tuple[int, int, Unit]:
    """smem_ptr[16b](unset), smem_ptr[16b](0x400), smem_subptr[4b](0x400.0) or smem_ptr_flag_bits<16>."""
    name = scan.peek().spelling.lstrip("_")
    if last_name(name) == "smem_ptr_flag_bits":
        scan.take()
        scan.expect("<")
        said = scan.integer()
        scan.expect(">")
        scan.accept("{", "}")
        return hints.bits(said, "the pointer"), hints.start, "bytes"
    if name not in ("smem_ptr", "smem_subptr"):
        fix = "Sparse operands have no dense address map." if "sparse" in name else "Only shared memory is swizzled."
        scan.refuse("a pointer to shared memory", fix)
    scan.take()
    scan.expect("[")
    said = scan.integer()
    scan.expect("b", "]", "(")
    start = hints.start
    if not scan.accept("unset"):
        start = scan.integer()
        if scan.accept(".") and scan.integer():
            scan.refuse("a pointer to a whole byte", "Start at the first element of a byte.")
    scan.expect(")")
    return hints.bits(said, "the pointer"), start, "bytes"


def _read_modes(scan: Scanner) -> Modes:
    """(8,64):(64,1), ((8,64) : (64,1)), Layout<Shape<_8,_64>,Stride<_64,_1>> or make_layout((8,64), stride=(64,1))."""
    if last_name(scan.peek().spelling) in ("Layout", "make_layout"):
        closing = _closing(scan)
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
    if max(bits, base, abs(shift)) > 64:
        raise refusal(f"Swizzle<{bits},{base},{shift}>", "an address has 64 bits", "Use Swizzle<3,4,3>, for example.")
    if bits == 0:
        return SWIZZLE["none"]
    if unit == "bytes":
        return xor_swizzle(bits, base, shift)
    if element_bits & (element_bits - 1):
        raise refusal(
            f"a swizzle counting elements of {element_bits} bits", "a power of two of bits", 'Use unit="bytes".'
        )
    base_bytes = base + element_bits.bit_length() - 4
    if base_bytes < 0:
        raise refusal(
            f"Swizzle<{bits},{base},{shift}> of {element_bits}-bit elements",
            "pieces that move are whole bytes",
            f"Use a base of at least {4 - element_bits.bit_length()}.",
        )
    return xor_swizzle(bits, base_bytes, shift)


def _triple(swizzle: Swizzle, lower: int) -> str:
    if swizzle.flip_bytes:
        raise no_equivalent(
            f"swizzle {swizzle}",
            "CuTe's Swizzle<B,M,S> moves whole pieces; it has no exchange of 8-byte halves",
            "Use 128B_ATOM_32B, the same without the flip.",
        )
    return f"{swizzle.bits},{swizzle.base - lower},{swizzle.shift}"


def _unit_shift(element_bits: int, swizzle: Swizzle) -> int:
    """How many places lower the same bits lie in an index of elements than in a byte address."""
    if element_bits & (element_bits - 1):
        raise no_equivalent(
            f"{element_bits}-bit elements", "an index counts powers of two of bits", "Spell it as cute."
        )
    lower = element_bits.bit_length() - 4
    if swizzle.bits and swizzle.base < lower:
        raise no_equivalent(
            f"swizzle {swizzle} moves pieces of {swizzle.atom_bytes} bytes within elements of {element_bits} bits",
            "an index swizzle moves whole elements",
            "Spell it as cute, which swizzles the pointer.",
        )
    return lower


def _start_elements(layout: Layout) -> int:
    if layout.start * 8 % layout.element_bits:
        raise no_equivalent(
            f"start {layout.start:#x} of {layout.element_bits}-bit elements",
            "offsets count elements",
            f"Use a start that is a multiple of {layout.element_bits // 8}.",
        )
    return layout.start * 8 // layout.element_bits
