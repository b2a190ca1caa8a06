"""A layout as CuTe prints it: its swizzle on the pointer, on the index, or in the Python DSL's way (cute.py explains them)."""

from __future__ import annotations

import re

from tilescope.layout import Layout
from tilescope.notation.hints import no_equivalent, strides_of
from tilescope.swizzle import Swizzle


def spell(layout: Layout) -> tuple[str]:
    """As CuTe C++ prints a layout, or the tensor at its address when it has one.

    >>> print(*spell(Layout((8, 32), 16, swizzle="64B")))
    Sw<2,4,3> o smem_ptr[16b](unset) o (_8,_32):(_32,_1)
    """
    swizzle = _triple(layout.swizzle, 0)
    kind = "smem_ptr" if layout.element_bits >= 8 else "smem_subptr"
    modes = _static(layout)
    if layout.start == 0:
        return (f"Sw<{swizzle}> o smem_ptr[{layout.element_bits}b](unset) o {modes}",)
    place = f"{layout.start:#x}" + (".0" if layout.element_bits < 8 else "")
    glued = f"Sw<{swizzle}>_" if layout.swizzle.bits else ""
    return (f"{glued}{kind}[{layout.element_bits}b]({place}) o {modes}",)


def spell_elements(layout: Layout) -> tuple[str]:
    """As CuTe C++ prints a composed layout of indices: the swizzle counts elements.

    >>> print(*spell_elements(Layout((8, 64), 16, swizzle="128B")))
    Sw<3,3,3> o _0 o (_8,_64):(_64,_1)
    """
    triple = _triple(layout.swizzle, _unit_shift(layout.element_bits, layout.swizzle))
    return (f"Sw<{triple}> o _{_start_elements(layout)} o {_static(layout)}",)


def spell_python(layout: Layout) -> tuple[str]:
    """As CuTe's Python DSL prints a shared-memory layout: the swizzle counts bytes.

    >>> print(*spell_python(Layout((8, 64), 16, swizzle="128B")))
    S<3,4,3> o 0 o (8,64):(64,1)
    """
    return (f"S<{_triple(layout.swizzle, 0)}> o {_start_elements(layout)} o {strides_of(layout)}",)


def _static(layout: Layout) -> str:
    """The modes with every number a constant: _8."""
    return re.sub(r"(\d+)", r"_\1", str(strides_of(layout)))


def _triple(swizzle: Swizzle, lower: int) -> str:
    if swizzle.flip_bytes:
        limit = "CuTe's Swizzle<B,M,S> moves whole pieces; it has no exchange of 8-byte halves"
        raise no_equivalent(f"swizzle {swizzle}", limit, "Use 128B_ATOM_32B, the same without the flip.")
    return f"{swizzle.bits},{swizzle.base - lower},{swizzle.shift}"


def _unit_shift(element_bits: int, swizzle: Swizzle) -> int:
    """How many places lower the same bits lie in an index of elements than in a byte address."""
    if element_bits & (element_bits - 1):
        limit = "an index counts powers of two of bits"
        raise no_equivalent(f"{element_bits}-bit elements", limit, "Spell it as cute.", element_bits=element_bits)
    lower = element_bits.bit_length() - 4
    if swizzle.bits and swizzle.base < lower:
        raise no_equivalent(
            f"swizzle {swizzle} moves pieces of {swizzle.atom_bytes} bytes within elements of {element_bits} bits",
            "an index swizzle moves whole elements",
            "Spell it as cute, which swizzles the pointer.",
            atom_bytes=swizzle.atom_bytes,
            element_bits=element_bits,
        )
    return lower


def _start_elements(layout: Layout) -> int:
    if layout.start * 8 % layout.element_bits:
        bits, step = layout.element_bits, layout.element_bits // 8
        found, fix = f"start {layout.start:#x} of {bits}-bit elements", f"Use start {layout.start // step * step:#x}."
        raise no_equivalent(found, "offsets count elements", fix, start=layout.start, element_bits=bits)
    return layout.start * 8 // layout.element_bits
