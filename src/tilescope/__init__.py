"""tilescope: the path a tile takes on an NVIDIA GPU, planned, checked, emulated and drawn.

global memory → tensor map → TMA → swizzled shared memory → tensor core

    >>> import tilescope as ts
    >>> ts.Swizzle.named("128B").apply(0x80)  # the second line of a tile starts in chunk 1
    144
"""

import sys
from typing import TYPE_CHECKING

from tilescope.late_names import LateNames

if TYPE_CHECKING:
    from tilescope.arch import ARCH, Arch
    from tilescope.card import CARD, Card
    from tilescope.data_type import DATA_TYPE, DataType
    from tilescope.emitter import emit, snippet
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
    from tilescope.kernel_plan import plan_kernel
    from tilescope.layout import Layout
    from tilescope.machine.approx_function import approx
    from tilescope.machine.kernel import Kernel
    from tilescope.machine.launch.packing import pack
    from tilescope.machine.memory import Memory
    from tilescope.mma.agreement import compatible
    from tilescope.mma.canonical import canonical_layout
    from tilescope.mma.compression import compress, decompress
    from tilescope.mma.consumer import tcgen05_descriptors, wgmma_descriptors
    from tilescope.mma.emulation import emulate_mma
    from tilescope.mma.fragment import fragment
    from tilescope.mma.instruction_descriptor import InstructionDescriptor
    from tilescope.mma.ldmatrix import ldmatrix, stmatrix
    from tilescope.mma.operand_descriptor import Tcgen05Descriptor, WgmmaDescriptor
    from tilescope.mma.readings import descriptor_readings, inspect_descriptor
    from tilescope.mma.scale_layout import scale_layout
    from tilescope.mma.scale_packing import pack_scales, unpack_scales
    from tilescope.mma.tensor_memory import TensorMemory
    from tilescope.mma.tmem_layout import tmem_layout
    from tilescope.notation import NOTATION, convert_layout, parse_layout, spell_layout
    from tilescope.pipeline.simulation import simulate
    from tilescope.planner import Problem, plan, plan_gemm, sweep
    from tilescope.planner.barrier_roles import plan_pipeline
    from tilescope.rule import RULES, Rule
    from tilescope.smem.access import Access
    from tilescope.smem.banks import wavefronts
    from tilescope.smem.layout_search import find_layouts
    from tilescope.smem.op import SMEM_OP, SmemOp
    from tilescope.smem.report import bank_report, tile_report
    from tilescope.swizzle import SWIZZLE, Swizzle
    from tilescope.sync.mbarrier import Mbarrier
    from tilescope.tensor_map import (
        Im2colMap,
        Im2colWideMap,
        TensorMap,
        decode_tensor_map,
        inspect_tensor_map,
    )
    from tilescope.tma import (
        bulk_load,
        bulk_store,
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

# Where the public names live: a module is loaded when one of its names is first used.
_NAMES_IN = {
    "errors": (
        "DeviceError",
        "FaultError",
        "IllegalInstructionError",
        "LaunchFailureError",
        "MisalignedAddressError",
        "PlanError",
        "RuleError",
        "TensorMapError",
        "TilescopeError",
        "Violation",
    ),
    "value": ("Value",),
    "rule": ("Rule", "RULES"),
    "arch": ("ARCH", "Arch"),
    "card": ("CARD", "Card"),
    "data_type": ("DATA_TYPE", "DataType"),
    "swizzle": ("SWIZZLE", "Swizzle"),
    "layout": ("Layout",),
    "tensor_map": ("decode_tensor_map", "Im2colMap", "Im2colWideMap", "inspect_tensor_map", "TensorMap"),
    "tma": (
        "bulk_load",
        "bulk_store",
        "gather4",
        "identify",
        "load",
        "load_multicast",
        "load_tiles",
        "scatter4",
        "store",
        "trace",
    ),
    "emitter": ("emit", "snippet"),
    "machine.approx_function": ("approx",),
    "machine.kernel": ("Kernel",),
    "machine.memory": ("Memory",),
    "machine.launch.packing": ("pack",),
    "mma.agreement": ("compatible",),
    "mma.canonical": ("canonical_layout",),
    "mma.compression": ("compress", "decompress"),
    "mma.consumer": ("tcgen05_descriptors", "wgmma_descriptors"),
    "mma.operand_descriptor": ("Tcgen05Descriptor", "WgmmaDescriptor"),
    "mma.emulation": ("emulate_mma",),
    "mma.fragment": ("fragment",),
    "mma.instruction_descriptor": ("InstructionDescriptor",),
    "mma.ldmatrix": ("ldmatrix", "stmatrix"),
    "mma.readings": ("descriptor_readings", "inspect_descriptor"),
    "mma.scale_layout": ("scale_layout",),
    "mma.scale_packing": ("pack_scales", "unpack_scales"),
    "mma.tensor_memory": ("TensorMemory",),
    "mma.tmem_layout": ("tmem_layout",),
    "notation": ("convert_layout", "NOTATION", "parse_layout", "spell_layout"),
    "sync.mbarrier": ("Mbarrier",),
    "pipeline.simulation": ("simulate",),
    "planner": ("plan", "plan_gemm", "Problem", "sweep"),
    "planner.barrier_roles": ("plan_pipeline",),
    "kernel_plan": ("plan_kernel",),
    "smem.access": ("Access",),
    "smem.banks": ("wavefronts",),
    "smem.op": ("SMEM_OP", "SmemOp"),
    "smem.report": ("bank_report", "tile_report"),
    "smem.layout_search": ("find_layouts",),
}
__getattr__ = LateNames(__name__, _NAMES_IN).loaded

__all__ = [
    "ARCH",
    "CARD",
    "DATA_TYPE",
    "NOTATION",
    "RULES",
    "SMEM_OP",
    "SWIZZLE",
    "Access",
    "Arch",
    "Card",
    "DataType",
    "DeviceError",
    "FaultError",
    "IllegalInstructionError",
    "Im2colMap",
    "Im2colWideMap",
    "InstructionDescriptor",
    "Kernel",
    "LaunchFailureError",
    "Layout",
    "Mbarrier",
    "Memory",
    "MisalignedAddressError",
    "PlanError",
    "Problem",
    "Rule",
    "RuleError",
    "SmemOp",
    "Swizzle",
    "Tcgen05Descriptor",
    "TensorMap",
    "TensorMapError",
    "TensorMemory",
    "TilescopeError",
    "Value",
    "Violation",
    "WgmmaDescriptor",
    "approx",
    "bank_report",
    "bulk_load",
    "bulk_store",
    "canonical_layout",
    "compatible",
    "compress",
    "convert_layout",
    "decode_tensor_map",
    "decompress",
    "descriptor_readings",
    "emit",
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
    "pack",
    "pack_scales",
    "parse_layout",
    "plan",
    "plan_gemm",
    "plan_kernel",
    "plan_pipeline",
    "scale_layout",
    "scatter4",
    "simulate",
    "snippet",
    "spell_layout",
    "stmatrix",
    "store",
    "sweep",
    "tcgen05_descriptors",
    "tile_report",
    "tmem_layout",
    "trace",
    "unpack_scales",
    "wavefronts",
    "wgmma_descriptors",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def _rows_table(rows: object) -> str | None:
    from tilescope.value import rows_table

    return rows_table(rows)


def _show_rows_as_tables() -> None:
    """Where IPython runs, a list or tuple of results or violations is shown as a table."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type(tuple, _rows_table)
        formatter.for_type(list, _rows_table)


_show_rows_as_tables()
