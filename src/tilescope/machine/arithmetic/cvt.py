"""cvt: choose the conversion by the modifiers of the instruction.

cvt.rzi.s32.f32     integer_conversion.py
cvt.rn.f16.f32      float_conversion.py; tf32 too
cvt.rn.f16x2.f32    pair_conversion.py; scale factors and cvt.pack too
cvt.rs.e4m3x4.f32   stochastic_conversion.py
"""

from __future__ import annotations

from tilescope.machine.arithmetic.compute import Modifiers, Operation, UnknownForm
from tilescope.machine.arithmetic.float_conversion import TO_INTEGER, ConversionStyle, float_to_float, to_tf32
from tilescope.machine.arithmetic.float_format import FORMATS, ROUNDINGS
from tilescope.machine.arithmetic.integer_conversion import (
    INTEGERS,
    float_to_integer,
    integer_to_float,
    integer_to_integer,
)
from tilescope.machine.arithmetic.pair_conversion import (
    PAIRS_OF_16,
    PAIRS_OF_SMALL,
    from_pair,
    from_scale_pair,
    pack,
    to_pair,
    to_scale_pair,
)
from tilescope.machine.arithmetic.stochastic_conversion import QUADS_OF_SMALL, to_quad

_FLOATS = ("f16", "bf16", "f32", "f64")
_WORDS = (*INTEGERS, *_FLOATS, *PAIRS_OF_SMALL, *PAIRS_OF_16, *QUADS_OF_SMALL, "tf32", "ue8m0x2")


def convert(modifiers: Modifiers, source_count: int) -> Operation:
    """The operation of any form of cvt; `source_count` 0: unknown."""
    if modifiers.has("pack"):
        return pack(modifiers)
    source_type = modifiers.type(_WORDS)
    result_type = modifiers.type(_WORDS)
    style = ConversionStyle(
        modifiers.one_of((*ROUNDINGS, *TO_INTEGER, "rna", "rs"), ""),
        ftz=modifiers.has("ftz"),
        sat=modifiers.has("sat"),
        relu=modifiers.has("relu"),
        satfinite=modifiers.has("satfinite"),
    )
    modifiers.end()
    if result_type in INTEGERS or source_type in INTEGERS:
        return _convert_integers(result_type, source_type, style)
    if result_type in QUADS_OF_SMALL:
        return to_quad(result_type, source_type, style)
    if result_type == "ue8m0x2":
        return to_scale_pair(source_type, style)
    if (result_type, source_type) == ("bf16x2", "ue8m0x2"):
        return Operation(from_scale_pair, ("b16",), "bf16x2")
    if result_type in PAIRS_OF_16 and source_type in PAIRS_OF_SMALL:
        return from_pair(result_type, source_type, style)
    if result_type in PAIRS_OF_16 or result_type in PAIRS_OF_SMALL:
        return to_pair(result_type, source_type, style, source_count)
    return _convert_floats(result_type, source_type, style)


def _source_register(type_name: str) -> str:
    return f"{type_name[0]}16" if type_name in ("u8", "s8") else type_name


def _result_register(type_name: str) -> str:
    return f"{type_name[0]}32" if type_name in ("u8", "s8") else type_name


def _convert_integers(result_type: str, source_type: str, style: ConversionStyle) -> Operation:
    """Conversions from or to integers."""
    if result_type in INTEGERS and source_type in INTEGERS:
        compute = integer_to_integer(INTEGERS[source_type], INTEGERS[result_type], sat=style.sat)
    elif result_type in INTEGERS and source_type in _FLOATS:
        if style.mode not in TO_INTEGER:
            raise UnknownForm(f"cvt.{result_type}.{source_type} needs .rni, .rzi, .rmi or .rpi")
        compute = float_to_integer(FORMATS[source_type], INTEGERS[result_type], style)
    elif result_type in _FLOATS and source_type in INTEGERS:
        if style.mode not in ROUNDINGS:
            raise UnknownForm(f"cvt.{result_type}.{source_type} needs .rn, .rz, .rm or .rp")
        compute = integer_to_float(INTEGERS[source_type], FORMATS[result_type], style)
    else:
        raise UnknownForm(f"cvt has no form .{result_type}.{source_type}")
    return Operation(compute, (_source_register(source_type),), _result_register(result_type))


def _convert_floats(result_type: str, source_type: str, style: ConversionStyle) -> Operation:
    """Conversions between single floats."""
    if result_type == "tf32" and source_type == "f32":
        return Operation(to_tf32(style), ("f32",), "b32")
    if result_type not in _FLOATS or source_type not in _FLOATS:
        raise UnknownForm(f"cvt has no form .{result_type}.{source_type}")
    compute = float_to_float(FORMATS[source_type], FORMATS[result_type], style)
    return Operation(compute, (source_type,), result_type)
