"""Types of the results that tilescope returns, for annotations.

    import tilescope as ts
    from tilescope.types import KernelRun


    def errors_of(run: KernelRun) -> list[ts.Violation]: ...

Functions make these values; programs read them. Their names and fields are as stable as the functions that return them, but
their constructors are not part of the promise. A type's module is loaded when its name is first used.

    >>> from tilescope.types import BankReport
    >>> import tilescope as ts
    >>> isinstance(ts.bank_report("ld.b32", range(0, 128, 4)), BankReport)
    True
"""

from typing import TYPE_CHECKING

from tilescope.late_names import LateNames

if TYPE_CHECKING:
    from tilescope.bits import DescriptorField, Inspection
    from tilescope.card.timed_gemms import TimedGemms
    from tilescope.card.tma_rates import TmaRates
    from tilescope.errors import Wording
    from tilescope.kernel_plan.handovers import KernelBarrier
    from tilescope.kernel_plan.kernel_file import KernelDescription
    from tilescope.kernel_plan.planned_kernel import (
        KernelAlternative,
        KernelOverlay,
        KernelPlan,
        PlacedColumns,
        PlacedTile,
    )
    from tilescope.kernel_plan.registers import RegisterUse
    from tilescope.layout.modes import Modes
    from tilescope.layout.terms import AddressTerms, Term
    from tilescope.layout.tiling import Rows, Tiling
    from tilescope.machine.kernel import Mutant
    from tilescope.machine.launch.packing import PackedStruct
    from tilescope.machine.observers.last_writer import LastWriter
    from tilescope.machine.observers.smem_picture import SmemPicture
    from tilescope.machine.report.run import ArgumentArray, BarrierPhase, InstructionCount, KernelCopy, KernelRun
    from tilescope.machine.report.run_costs import CopyTraffic, OperandRead
    from tilescope.machine.stepping.run_state import RunState
    from tilescope.mma.canonical import CanonicalLayout, DescriptorOffsets, Reader
    from tilescope.mma.consumer import Consumer, Tcgen05Loop, WgmmaLoop
    from tilescope.mma.fragment import Fragment
    from tilescope.mma.operand_descriptor import OperandDescriptor
    from tilescope.mma.readable_tile import Extents
    from tilescope.mma.readings import WordReadings
    from tilescope.mma.scale_format import ScaleFormat
    from tilescope.mma.scale_lanes import ScaleLanes
    from tilescope.mma.scale_layout import ScaleCopy, ScaleLayout, ScaleStep
    from tilescope.mma.smem_agreement import Agreement, Difference
    from tilescope.mma.sparsity import Compressed
    from tilescope.mma.tmem_address import TmemAddress
    from tilescope.mma.tmem_agreement import TmemAgreement
    from tilescope.mma.tmem_budget import TmemBudget, TmemPart
    from tilescope.mma.tmem_layout import TmemLayout, TmemPlace
    from tilescope.notation.layout_conversion import Conversion
    from tilescope.pipeline.description import Pipeline
    from tilescope.pipeline.messages import Mistake
    from tilescope.pipeline.parts import Barrier, Flag, Role, Slot
    from tilescope.pipeline.simulation import BarrierFacts, Event, Simulation
    from tilescope.planner.gemm_plan import GemmPlan
    from tilescope.planner.plan_search import PlanReport, Refusal
    from tilescope.planner.plans import Plan
    from tilescope.planner.reason import Reason
    from tilescope.planner.sweeping import Sweep, SweepRow
    from tilescope.ptx.syntax import Variable
    from tilescope.smem.layout_search import FoundLayout, LayoutSearch
    from tilescope.smem.report import AccessCost, BankGroup, BankReport, TileReport
    from tilescope.sync.mbarrier import MbarrierToken
    from tilescope.tensor_map.any_map import AnyMap
    from tilescope.tensor_map.copy_instruction import Copy
    from tilescope.tensor_map.map_kinds import Convolution
    from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
    from tilescope.tma.identification import Identification, WrongByte
    from tilescope.tma.tracing import Origin, Run, Trace
    from tilescope.tma.walk import Walk

# Where the types are defined.
_NAMES_IN = {
    "bits": (
        "DescriptorField",
        "Inspection",
    ),
    "card.timed_gemms": ("TimedGemms",),
    "card.tma_rates": ("TmaRates",),
    "errors": ("Wording",),
    "kernel_plan.handovers": ("KernelBarrier",),
    "kernel_plan.kernel_file": ("KernelDescription",),
    "kernel_plan.planned_kernel": (
        "KernelAlternative",
        "KernelOverlay",
        "KernelPlan",
        "PlacedColumns",
        "PlacedTile",
    ),
    "kernel_plan.registers": ("RegisterUse",),
    "layout.modes": ("Modes",),
    "layout.terms": (
        "AddressTerms",
        "Term",
    ),
    "layout.tiling": (
        "Rows",
        "Tiling",
    ),
    "machine.kernel": ("Mutant",),
    "machine.launch.packing": ("PackedStruct",),
    "machine.observers.last_writer": ("LastWriter",),
    "machine.observers.smem_picture": ("SmemPicture",),
    "machine.report.run": (
        "ArgumentArray",
        "BarrierPhase",
        "InstructionCount",
        "KernelCopy",
        "KernelRun",
    ),
    "machine.report.run_costs": (
        "CopyTraffic",
        "OperandRead",
    ),
    "machine.stepping.run_state": ("RunState",),
    "mma.canonical": (
        "CanonicalLayout",
        "DescriptorOffsets",
        "Reader",
    ),
    "mma.consumer": (
        "Consumer",
        "Tcgen05Loop",
        "WgmmaLoop",
    ),
    "mma.fragment": ("Fragment",),
    "mma.operand_descriptor": ("OperandDescriptor",),
    "mma.readable_tile": ("Extents",),
    "mma.readings": ("WordReadings",),
    "mma.scale_lanes": ("ScaleLanes",),
    "mma.scale_layout": (
        "ScaleCopy",
        "ScaleLayout",
        "ScaleStep",
    ),
    "mma.scale_format": ("ScaleFormat",),
    "mma.smem_agreement": (
        "Agreement",
        "Difference",
    ),
    "mma.sparsity": ("Compressed",),
    "mma.tmem_address": ("TmemAddress",),
    "mma.tmem_agreement": ("TmemAgreement",),
    "mma.tmem_budget": (
        "TmemBudget",
        "TmemPart",
    ),
    "mma.tmem_layout": (
        "TmemLayout",
        "TmemPlace",
    ),
    "notation.layout_conversion": ("Conversion",),
    "pipeline.description": ("Pipeline",),
    "pipeline.messages": ("Mistake",),
    "pipeline.parts": (
        "Barrier",
        "Flag",
        "Role",
        "Slot",
    ),
    "pipeline.simulation": (
        "BarrierFacts",
        "Event",
        "Simulation",
    ),
    "planner.gemm_plan": ("GemmPlan",),
    "planner.plan_search": (
        "PlanReport",
        "Refusal",
    ),
    "planner.plans": ("Plan",),
    "planner.reason": ("Reason",),
    "planner.sweeping": (
        "Sweep",
        "SweepRow",
    ),
    "ptx.syntax": ("Variable",),
    "smem.layout_search": (
        "FoundLayout",
        "LayoutSearch",
    ),
    "smem.report": (
        "AccessCost",
        "BankGroup",
        "BankReport",
        "TileReport",
    ),
    "sync.mbarrier": ("MbarrierToken",),
    "tensor_map.any_map": ("AnyMap",),
    "tensor_map.copy_instruction": ("Copy",),
    "tensor_map.map_kinds": ("Convolution",),
    "tensor_map.option": (
        "Interleave",
        "L2Promotion",
        "OobFill",
    ),
    "tma.identification": (
        "Identification",
        "WrongByte",
    ),
    "tma.tracing": (
        "Origin",
        "Run",
        "Trace",
    ),
    "tma.walk": ("Walk",),
}
__getattr__ = LateNames(__name__, _NAMES_IN, below="tilescope").loaded

__all__ = [
    "AccessCost",
    "AddressTerms",
    "Agreement",
    "AnyMap",
    "ArgumentArray",
    "BankGroup",
    "BankReport",
    "Barrier",
    "BarrierFacts",
    "BarrierPhase",
    "CanonicalLayout",
    "Compressed",
    "Consumer",
    "Conversion",
    "Convolution",
    "Copy",
    "CopyTraffic",
    "DescriptorField",
    "DescriptorOffsets",
    "Difference",
    "Event",
    "Extents",
    "Flag",
    "FoundLayout",
    "Fragment",
    "GemmPlan",
    "Identification",
    "Inspection",
    "InstructionCount",
    "Interleave",
    "KernelAlternative",
    "KernelBarrier",
    "KernelCopy",
    "KernelDescription",
    "KernelOverlay",
    "KernelPlan",
    "KernelRun",
    "L2Promotion",
    "LastWriter",
    "LayoutSearch",
    "MbarrierToken",
    "Mistake",
    "Modes",
    "Mutant",
    "OobFill",
    "OperandDescriptor",
    "OperandRead",
    "Origin",
    "PackedStruct",
    "Pipeline",
    "PlacedColumns",
    "PlacedTile",
    "Plan",
    "PlanReport",
    "Reader",
    "Reason",
    "Refusal",
    "RegisterUse",
    "Role",
    "Rows",
    "Run",
    "RunState",
    "ScaleCopy",
    "ScaleFormat",
    "ScaleLanes",
    "ScaleLayout",
    "ScaleStep",
    "Simulation",
    "Slot",
    "SmemPicture",
    "Sweep",
    "SweepRow",
    "Tcgen05Loop",
    "Term",
    "TileReport",
    "Tiling",
    "TimedGemms",
    "TmaRates",
    "TmemAddress",
    "TmemAgreement",
    "TmemBudget",
    "TmemLayout",
    "TmemPart",
    "TmemPlace",
    "Trace",
    "Variable",
    "Walk",
    "WgmmaLoop",
    "WordReadings",
    "Wording",
    "WrongByte",
]


def __dir__() -> list[str]:
    return sorted(__all__)
