"""tilescope: the path a tile takes on an NVIDIA GPU, planned, checked, emulated and drawn.

global memory → tensor map → TMA → swizzled shared memory → tensor core

    >>> import tilescope as ts
    >>> ts.Swizzle.named("128B").apply(0x80)  # the second line of a tile starts in chunk 1
    144
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilescope.arch import ARCH, Arch
    from tilescope.data_type import DATA_TYPE, DataType
    from tilescope.errors import (
        DeviceError,
        IllegalInstructionError,
        PlanError,
        RuleError,
        TensorMapError,
        TilescopeError,
        Violation,
    )
    from tilescope.layout import Layout
    from tilescope.mma.canonical import CanonicalLayout, OperandTile, canonical_layout
    from tilescope.mma.fragment import Fragment, fragment
    from tilescope.mma.ldmatrix import ldmatrix, stmatrix
    from tilescope.mma.wgmma import WgmmaDescriptor, inspect_descriptor
    from tilescope.mma.wgmma_loop import WgmmaLoop, wgmma_descriptors
    from tilescope.notation import NOTATION, Conversion, SharedLayout, convert_layout, parse_layout, spell_layout
    from tilescope.swizzle import SWIZZLE, Swizzle
    from tilescope.tensor_map import (
        RULES,
        Im2colMap,
        Im2colWideMap,
        Inspection,
        Rule,
        TensorMap,
        decode_tensor_map,
        inspect_tensor_map,
    )
    from tilescope.value import Value

__version__ = "0.1.0"

_MODULE = {
    "ARCH": "arch",
    "Arch": "arch",
    "CanonicalLayout": "mma.canonical",
    "Conversion": "notation",
    "DATA_TYPE": "data_type",
    "DataType": "data_type",
    "DeviceError": "errors",
    "Fragment": "mma.fragment",
    "IllegalInstructionError": "errors",
    "Im2colMap": "tensor_map",
    "Im2colWideMap": "tensor_map",
    "Inspection": "tensor_map",
    "Layout": "layout",
    "NOTATION": "notation",
    "OperandTile": "mma.canonical",
    "PlanError": "errors",
    "RULES": "tensor_map",
    "Rule": "tensor_map",
    "RuleError": "errors",
    "SWIZZLE": "swizzle",
    "SharedLayout": "notation",
    "Swizzle": "swizzle",
    "TensorMap": "tensor_map",
    "TensorMapError": "errors",
    "TilescopeError": "errors",
    "Value": "value",
    "Violation": "errors",
    "WgmmaDescriptor": "mma.wgmma",
    "WgmmaLoop": "mma.wgmma_loop",
    "canonical_layout": "mma.canonical",
    "convert_layout": "notation",
    "decode_tensor_map": "tensor_map",
    "fragment": "mma.fragment",
    "inspect_descriptor": "mma.wgmma",
    "inspect_tensor_map": "tensor_map",
    "ldmatrix": "mma.ldmatrix",
    "parse_layout": "notation",
    "spell_layout": "notation",
    "stmatrix": "mma.ldmatrix",
    "wgmma_descriptors": "mma.wgmma_loop",
}

__all__ = [
    "ARCH",
    "DATA_TYPE",
    "NOTATION",
    "RULES",
    "SWIZZLE",
    "Arch",
    "CanonicalLayout",
    "Conversion",
    "DataType",
    "DeviceError",
    "Fragment",
    "IllegalInstructionError",
    "Im2colMap",
    "Im2colWideMap",
    "Inspection",
    "Layout",
    "OperandTile",
    "PlanError",
    "Rule",
    "RuleError",
    "SharedLayout",
    "Swizzle",
    "TensorMap",
    "TensorMapError",
    "TilescopeError",
    "Value",
    "Violation",
    "WgmmaDescriptor",
    "WgmmaLoop",
    "canonical_layout",
    "convert_layout",
    "decode_tensor_map",
    "fragment",
    "inspect_descriptor",
    "inspect_tensor_map",
    "ldmatrix",
    "parse_layout",
    "spell_layout",
    "stmatrix",
    "wgmma_descriptors",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'tilescope' has no attribute {name!r}")
    value = getattr(import_module(f"tilescope.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
