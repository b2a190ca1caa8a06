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
    from tilescope.bits import Inspection
    from tilescope.card import CARD, Card
    from tilescope.data_type import DATA_TYPE, DataType
    from tilescope.errors import (
        DeviceError,
        FaultError,
        IllegalInstructionError,
        LaunchFailureError,
        MisalignedAddressError,
        PlanError,
        RuleError,
        TensorMapError,
        TilescopeError,
        Violation,
    )
    from tilescope.layout import Layout
    from tilescope.mma.agreement import Agreement, compatible
    from tilescope.mma.canonical import CanonicalLayout, canonical_layout
    from tilescope.mma.descriptor_word import inspect_descriptor
    from tilescope.mma.emulation import emulate_mma
    from tilescope.mma.fragment import Fragment, fragment
    from tilescope.mma.instruction_descriptor import InstructionDescriptor
    from tilescope.mma.ldmatrix import ldmatrix, stmatrix
    from tilescope.mma.readings import descriptor_readings
    from tilescope.mma.tcgen05 import Tcgen05Descriptor
    from tilescope.mma.tcgen05_loop import Tcgen05Loop, tcgen05_descriptors
    from tilescope.mma.wgmma import WgmmaDescriptor
    from tilescope.mma.wgmma_loop import WgmmaLoop, wgmma_descriptors
    from tilescope.notation import NOTATION, Conversion, convert_layout, parse_layout, spell_layout
    from tilescope.planner import Problem, plan, plan_gemm
    from tilescope.rule import RULES, Rule
    from tilescope.smem.access import Access
    from tilescope.smem.banks import wavefronts
    from tilescope.smem.op import SMEM_OP, SmemOp
    from tilescope.smem.report import bank_report
    from tilescope.smem.search import find_layouts
    from tilescope.smem.tile import tile_report
    from tilescope.swizzle import SWIZZLE, Swizzle
    from tilescope.tensor_map import (
        Im2colMap,
        Im2colWideMap,
        TensorMap,
        decode_tensor_map,
        inspect_tensor_map,
    )
    from tilescope.tma import (
        Identification,
        Trace,
        gather4,
        identify,
        load,
        load_multicast,
        load_tiles,
        scatter4,
        store,
        trace,
    )
    from tilescope.value import Value

__version__ = "0.1.0"

_MODULE = {
    "Access": "smem.access",
    "Agreement": "mma.agreement",
    "ARCH": "arch",
    "Arch": "arch",
    "bank_report": "smem.report",
    "canonical_layout": "mma.canonical",
    "CanonicalLayout": "mma.canonical",
    "CARD": "card",
    "Card": "card",
    "compatible": "mma.agreement",
    "Conversion": "notation",
    "convert_layout": "notation",
    "DATA_TYPE": "data_type",
    "DataType": "data_type",
    "decode_tensor_map": "tensor_map",
    "descriptor_readings": "mma.readings",
    "DeviceError": "errors",
    "emulate_mma": "mma.emulation",
    "FaultError": "errors",
    "find_layouts": "smem.search",
    "Fragment": "mma.fragment",
    "fragment": "mma.fragment",
    "gather4": "tma",
    "Identification": "tma",
    "identify": "tma",
    "IllegalInstructionError": "errors",
    "Im2colMap": "tensor_map",
    "Im2colWideMap": "tensor_map",
    "inspect_descriptor": "mma.descriptor_word",
    "inspect_tensor_map": "tensor_map",
    "Inspection": "bits",
    "InstructionDescriptor": "mma.instruction_descriptor",
    "LaunchFailureError": "errors",
    "Layout": "layout",
    "ldmatrix": "mma.ldmatrix",
    "load": "tma",
    "load_multicast": "tma",
    "load_tiles": "tma",
    "MisalignedAddressError": "errors",
    "NOTATION": "notation",
    "parse_layout": "notation",
    "plan": "planner",
    "plan_gemm": "planner",
    "PlanError": "errors",
    "Problem": "planner",
    "Rule": "rule",
    "RuleError": "errors",
    "RULES": "rule",
    "scatter4": "tma",
    "SMEM_OP": "smem.op",
    "SmemOp": "smem.op",
    "spell_layout": "notation",
    "stmatrix": "mma.ldmatrix",
    "store": "tma",
    "SWIZZLE": "swizzle",
    "Swizzle": "swizzle",
    "tcgen05_descriptors": "mma.tcgen05_loop",
    "Tcgen05Descriptor": "mma.tcgen05",
    "Tcgen05Loop": "mma.tcgen05_loop",
    "TensorMap": "tensor_map",
    "TensorMapError": "errors",
    "tile_report": "smem.tile",
    "TilescopeError": "errors",
    "Trace": "tma",
    "trace": "tma",
    "Value": "value",
    "Violation": "errors",
    "wavefronts": "smem.banks",
    "wgmma_descriptors": "mma.wgmma_loop",
    "WgmmaDescriptor": "mma.wgmma",
    "WgmmaLoop": "mma.wgmma_loop",
}

__all__ = [
    "ARCH",
    "CARD",
    "DATA_TYPE",
    "NOTATION",
    "RULES",
    "SMEM_OP",
    "SWIZZLE",
    "Access",
    "Agreement",
    "Arch",
    "CanonicalLayout",
    "Card",
    "Conversion",
    "DataType",
    "DeviceError",
    "FaultError",
    "Fragment",
    "Identification",
    "IllegalInstructionError",
    "Im2colMap",
    "Im2colWideMap",
    "Inspection",
    "InstructionDescriptor",
    "LaunchFailureError",
    "Layout",
    "MisalignedAddressError",
    "PlanError",
    "Problem",
    "Rule",
    "RuleError",
    "SmemOp",
    "Swizzle",
    "Tcgen05Descriptor",
    "Tcgen05Loop",
    "TensorMap",
    "TensorMapError",
    "TilescopeError",
    "Trace",
    "Value",
    "Violation",
    "WgmmaDescriptor",
    "WgmmaLoop",
    "bank_report",
    "canonical_layout",
    "compatible",
    "convert_layout",
    "decode_tensor_map",
    "descriptor_readings",
    "emulate_mma",
    "find_layouts",
    "fragment",
    "gather4",
    "identify",
    "inspect_descriptor",
    "inspect_tensor_map",
    "ldmatrix",
    "load",
    "load_multicast",
    "load_tiles",
    "parse_layout",
    "plan",
    "plan_gemm",
    "scatter4",
    "spell_layout",
    "stmatrix",
    "store",
    "tcgen05_descriptors",
    "tile_report",
    "trace",
    "wavefronts",
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
