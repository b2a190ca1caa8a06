"""Plans of whole kernels: shared memory, tensor memory, registers and barriers under one budget."""

from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.planned_kernel import KernelPlan
from tilescope.kernel_plan.planning import plan_kernel

__all__ = ["KernelDescription", "KernelPlan", "plan_kernel"]
