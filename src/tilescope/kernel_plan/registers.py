"""Registers of each role: the tiles that its threads hold, and the registers that setmaxnreg distributes.

64 x 176 float32 of 128 threads      88 registers a thread
24 + 240 + 240 of 128 threads each   64512 of the 64512 that 384 threads have at entry (168 each)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilescope.arithmetic import ceil_div
from tilescope.errors import Violation
from tilescope.kernel_plan.kernel_description import KernelRole, KernelTile
from tilescope.kernel_plan.kernel_file import KernelDescription
from tilescope.kernel_plan.kernel_rules import KERNEL_REGISTER_SPLIT, KERNEL_REGISTERS
from tilescope.kernel_plan.lifetimes import Lifetime
from tilescope.sync.thread_limits import MOST_REGISTERS, REGISTER_STEP, WARP_THREADS, WARPGROUP_THREADS
from tilescope.value import Value

REGISTERS_PER_SM = 1 << 16
_REGISTER_BITS = 32
_WARPGROUP_WARPS = WARPGROUP_THREADS // WARP_THREADS
UNEVEN_WARPGROUP = KERNEL_REGISTER_SPLIT.worded(
    found="{warps} warps ask for {registers} registers",
    limit="setmaxnreg acts on whole warpgroups of {whole} warps",
    fix="Use {filled} warps with {registers} registers, those of roles without work among them.",
)


@dataclass(frozen=True, slots=True)
class RegisterUse(Value):
    """Registers of a thread of one role: used by tiles at the peak, used otherwise, and available."""

    role: str
    held: int  # by tiles, at the peak
    tiles: tuple[str, ...]  # alive at the peak
    other: int
    registers: int  # that a thread has

    @property
    def left(self) -> int:
        """Registers beyond tiles and others."""
        return self.registers - self.held - self.other


def entry_registers(kernel: KernelDescription, blocks_per_sm: int) -> int:
    """Registers of a thread at entry, as a launch bound of this many blocks gives them."""
    share = REGISTERS_PER_SM // (blocks_per_sm * kernel.threads)
    return min(MOST_REGISTERS, share // REGISTER_STEP * REGISTER_STEP)


def tile_registers(tile: KernelTile, role: KernelRole) -> int:
    """Registers of a thread that hold its part of a tile."""
    return ceil_div(tile.elements * tile.data_type.bits, _REGISTER_BITS * role.threads) * tile.most_stages


def count_registers(
    kernel: KernelDescription, lifetimes: Mapping[str, Lifetime], blocks_per_sm: int
) -> tuple[RegisterUse, ...]:
    """The use of each role, at the place where its tiles hold most."""
    at_entry = entry_registers(kernel, blocks_per_sm)
    return tuple(_count_role(kernel, role, lifetimes, at_entry) for role in kernel.roles)


def _count_role(
    kernel: KernelDescription, role: KernelRole, lifetimes: Mapping[str, Lifetime], at_entry: int
) -> RegisterUse:
    registers = {
        tile.name: tile_registers(tile, role)
        for tile in kernel.in_memory("registers")
        if any(step.role == role.name and tile.name in step.tiles for step in kernel.steps)
    }
    peak: tuple[str, ...] = ()
    peak_registers = 0
    for place in range(len(kernel.steps)):
        alive = tuple(name for name in registers if place in lifetimes[name])
        total = sum(registers[name] for name in alive)
        if total > peak_registers:
            peak_registers = total
            peak = alive
    return RegisterUse(role.name, peak_registers, peak, role.other_registers, role.registers or at_entry)


def check_registers(kernel: KernelDescription, uses: tuple[RegisterUse, ...], blocks_per_sm: int) -> list[Violation]:
    """What is wrong with the registers of the roles."""
    problems = [_refuse_registers(use) for use in uses if use.left < 0]
    problems += _check_split(kernel, uses, blocks_per_sm)
    return problems


def _refuse_registers(use: RegisterUse) -> Violation:
    """That a thread of a role has too few registers."""
    return KERNEL_REGISTERS.violation(
        role=use.role,
        tiles=use.tiles or ("no tile",),
        held=use.held,
        other=use.other or None,
        registers=use.registers,
        fix=f"Hold {-use.left} registers fewer: a smaller tile, more warps, or a tile in another memory.",
    )


def _check_split(kernel: KernelDescription, uses: tuple[RegisterUse, ...], blocks_per_sm: int) -> list[Violation]:
    if all(role.registers is None for role in kernel.roles):
        return []
    problems = []
    at_entry = entry_registers(kernel, blocks_per_sm)
    registers = {use.role: use.registers for use in uses}
    requested = sum(registers[role.name] * role.all_warps * WARP_THREADS for role in kernel.roles)
    available = at_entry * kernel.threads
    if requested > available:
        parts = [f"{role.all_warps * WARP_THREADS} x {registers[role.name]}" for role in kernel.roles]
        problems.append(
            KERNEL_REGISTER_SPLIT.violation(
                split=" + ".join(parts),
                asked=requested,
                threads=kernel.threads,
                at_entry=at_entry,
                available=available,
                excess=ceil_div(requested - available, WARPGROUP_THREADS * REGISTER_STEP) * REGISTER_STEP,
            )
        )
    warps_of: dict[int, int] = {}
    for role in kernel.roles:
        if role.registers is not None:
            warps_of[role.registers] = warps_of.get(role.registers, 0) + role.all_warps
    for role_registers, warps in warps_of.items():
        if warps % _WARPGROUP_WARPS:
            problems.append(
                UNEVEN_WARPGROUP.violation(
                    warps=warps,
                    registers=role_registers,
                    whole=_WARPGROUP_WARPS,
                    filled=ceil_div(warps, _WARPGROUP_WARPS) * _WARPGROUP_WARPS,
                )
            )
    return problems
