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
    "DATA_TYPE": "data_type",
    "DataType": "data_type",
    "DeviceError": "errors",
    "IllegalInstructionError": "errors",
    "Layout": "layout",
    "PlanError": "errors",
    "RuleError": "errors",
    "RULES": "tensor_map",
    "Im2colMap": "tensor_map",
    "Im2colWideMap": "tensor_map",
    "Inspection": "tensor_map",
    "Rule": "tensor_map",
    "TensorMap": "tensor_map",
    "decode_tensor_map": "tensor_map",
    "inspect_tensor_map": "tensor_map",
    "SWIZZLE": "swizzle",
    "Swizzle": "swizzle",
    "TensorMapError": "errors",
    "TilescopeError": "errors",
    "Value": "value",
    "Violation": "errors",
}

__all__ = [
    "ARCH",
    "DATA_TYPE",
    "RULES",
    "SWIZZLE",
    "Arch",
    "DataType",
    "DeviceError",
    "IllegalInstructionError",
    "Im2colMap",
    "Im2colWideMap",
    "Inspection",
    "Layout",
    "PlanError",
    "Rule",
    "RuleError",
    "Swizzle",
    "TensorMap",
    "TensorMapError",
    "TilescopeError",
    "Value",
    "Violation",
    "decode_tensor_map",
    "inspect_tensor_map",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'tilescope' has no attribute {name!r}")
    value = getattr(import_module(f"tilescope.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
