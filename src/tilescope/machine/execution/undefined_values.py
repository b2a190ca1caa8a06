"""Undefined values: a shuffle from a lane that does not participate returns one, and this module tracks its uses.

    shfl.sync.down.b32 %r2, %r1, 16, 31, -1;    in a warp of 16 threads: %r2 is undefined in all of them …
    add.s32 %r3, %r1, %r2;                      … and so is %r3
    @%leader st.global.u32 [out], %r3;          an undefined value is stored: an error

A reduction of a part of a warp computes such values in lanes whose result is not used. So a value is followed, lane by lane, until a store,
an address or a branch uses it. It begins with the first undefined value of a run, and ends when none is left: other kernels pay nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.program import Frame, Program
from tilescope.machine.step import Step, Stretches
from tilescope.ptx.syntax import (
    BITS_OF_TYPE,
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Variable,
    nested_operands,
)
from tilescope.sync.address import WINDOWS, Addresses, is_in_window
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import UndefinedUse, UsedBy

Origins = npt.NDArray[np.int32]
"""By lane: 1 + the instruction that left a value undefined; 0: the value is defined."""
_STORES = frozenset({"st", "stmatrix", "red", "atom", "cp", "mbarrier", "tensormap"})
_ABSORBING = frozenset({"and", "mul", "mul24"})  # zero for any other operand
_NOT_GENERIC = frozenset({"global", "shared", "shared::cta", "shared::cluster", "const"})


class ClusterState(Protocol):
    """What must be known of a cluster."""

    program: Program
    lane_count: int
    local_stride: int
    pc: int

    @property
    def registers(self) -> Sequence[npt.NDArray[np.generic]]:
        """The words of all lanes, by register."""

    @property
    def emit(self) -> Callable[[object], None]:
        """Tells observers of an event."""

    def lanes(self, at: Lanes) -> LaneNumbers:
        """Lane numbers, also where all are meant."""

    def follow_undefined(self, values: UndefinedValues | None) -> None:
        """Take the steps of these values from now on; None: the program's own."""


class _Use(NamedTuple):
    """The registers of an instruction: those it reads as data and in addresses, those it writes, and its guard."""

    data: tuple[int, ...]
    addresses: tuple[int, ...]
    targets: tuple[int, ...]
    guard: tuple[int, bool] | None


class UndefinedValues:
    """The undefined values of one cluster, in registers and in local memory."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._program: Program = cluster.program
        self._registers: dict[int, Origins] = {}  # those with an undefined value in some lane
        self._local: Origins | None = None  # by byte of local memory
        self._uses: dict[int, _Use] = {}
        self._starts = sorted((start, name) for name, start in self._program.functions.items())
        steps = [self._follow(pc, step) for pc, step in enumerate(self._program.steps)]
        self.stretches = Stretches(steps, self._program.straight_end, {})

    def _follow(self, pc: int, step: Step | None) -> Step | None:
        """The step of an instruction that first marks the values that it leaves undefined."""
        if step is None:
            return None
        original = step

        def take(cluster: ClusterState, at: Lanes) -> None:
            use = self._use_of(pc)
            if self._is_concerned(use):
                self._pass_on(pc, use, cluster.lanes(at))
            elif self._local is not None:
                self._load_local(pc, use, cluster.lanes(at))
            original(cluster, at)

        return take

    def _is_concerned(self, use: _Use) -> bool:
        """Whether an instruction names a register with an undefined value."""
        undefined = self._registers
        named: Iterable[int] = (*use.data, *use.addresses, *use.targets)
        return any(number in undefined for number in named) or (use.guard is not None and use.guard[0] in undefined)

    def _use_of(self, pc: int) -> _Use:
        use = self._uses.get(pc)
        if use is None:
            use = self._uses[pc] = self._find_use(pc)
        return use

    def _find_use(self, pc: int) -> _Use:
        instruction = self._program.instructions[pc]
        targets = self._program.targets[pc]
        if instruction is None:
            return _Use((), (), targets, None)
        data: list[int] = []
        addresses: list[int] = []
        for place, operand in enumerate(instruction.operands):
            numbers = self._numbers_in(pc, operand)
            if isinstance(operand, Address):
                addresses += numbers
            elif place or not set(numbers) <= set(targets):
                data += numbers
        guard = None
        if instruction.guard is not None:
            guard = (self._numbers_in(pc, instruction.guard.register)[0], instruction.guard.is_negated)
        return _Use(tuple(data), tuple(addresses), targets, guard)

    def _numbers_in(self, pc: int, operand: Operand) -> list[int]:
        function = self._starts[bisect_right(self._starts, pc, key=lambda start: start[0]) - 1][1]
        registers = [inner for inner in nested_operands(operand) if isinstance(inner, Register)]
        return [self._program.register_numbers[function, register.number] for register in registers]

    def _origins(self, number: int, lanes: LaneNumbers) -> Origins:
        register_origins = self._registers.get(number)
        return np.zeros(len(lanes), np.int32) if register_origins is None else register_origins[lanes]

    def _join_origins(self, numbers: Iterable[int], lanes: LaneNumbers) -> Origins:
        """What is undefined in one of some registers."""
        origins = np.zeros(len(lanes), np.int32)
        for number in numbers:
            np.maximum(origins, self._origins(number, lanes), out=origins)
        return origins

    def put(self, numbers: Iterable[int], lanes: LaneNumbers, origins: Origins) -> None:
        """Registers get values that are undefined in some lanes."""
        for number in numbers:
            register_origins = self._registers.get(number)
            if register_origins is None:
                if not origins.any():
                    continue
                register_origins = self._registers[number] = np.zeros(self._cluster.lane_count, np.int32)
            register_origins[lanes] = origins
            if not register_origins.any():
                del self._registers[number]
        if not self._registers and self._local is None:
            self._cluster.follow_undefined(None)

    def shuffle(
        self,
        targets: Iterable[int],
        value: int,
        lanes: LaneNumbers,
        sources: LaneNumbers,
        is_undefined: npt.NDArray[np.bool_],
    ) -> None:
        """Lanes copy a register from other lanes, some of which do not take part."""
        origins = self._origins(value, sources)
        origins[is_undefined] = self._cluster.pc + 1
        self.put(targets, lanes, origins)

    def combine(self, lanes: LaneNumbers) -> None:
        """An instruction of the warp computes its results from the values of all lanes."""
        use = self._use_of(self._cluster.pc)
        if not self._is_concerned(use):
            return
        self._check(self._join_origins(use.addresses, lanes), lanes, "address")
        instruction = self._program.instructions[self._cluster.pc]
        if instruction is not None and instruction.name in _STORES:
            self._check(self._join_origins(use.data, lanes), lanes, "store")
        by_warp = np.zeros(self._cluster.lane_count // WARP_LANES, np.int32)
        np.maximum.at(by_warp, lanes // WARP_LANES, self._join_origins(use.data, lanes))
        self.put(use.targets, lanes, by_warp[lanes // WARP_LANES])

    def branch(self, pc: int, register: int, lanes: LaneNumbers) -> None:
        """A branch, or the guard of an instruction of the warp, looks at a register."""
        if register in self._registers:
            self._cluster.pc = pc
            self._check(self._registers[register][lanes], lanes, "branch")

    def local_origins(self, place: slice, lanes: LaneNumbers) -> Origins | None:
        """(lanes, bytes): what is undefined in a variable of local memory; None: nothing is in any."""
        return None if self._local is None else self._local.reshape(self._cluster.lane_count, -1)[lanes, place]

    def put_local(self, place: slice, lanes: LaneNumbers, origins: Origins) -> None:
        """A variable of local memory is written."""
        if self._local is None:
            self._local = np.zeros(self._cluster.lane_count * self._cluster.local_stride, np.int32)
        self._local.reshape(self._cluster.lane_count, -1)[lanes, place] = origins

    def frame_origins(self, frame: Frame, lanes: LaneNumbers) -> Origins:
        """(registers and bytes, lanes): what is undefined in a frame of some lanes."""
        registers = [self._origins(number, lanes) for number in frame.registers]
        local = np.zeros((len(frame.local_bytes), len(lanes)), np.int32)
        if self._local is not None:
            local[:] = self._local.reshape(self._cluster.lane_count, -1)[np.ix_(lanes, frame.local_bytes)].T
        return np.concatenate([np.array(registers, np.int32).reshape(-1, len(lanes)), local])

    def put_frame(self, frame: Frame, lanes: LaneNumbers, origins: Origins) -> None:
        """The registers and variables of a frame get these origins."""
        registers, local = np.split(origins, [len(frame.registers)])
        if self._local is None and local.any():
            self._local = np.zeros(self._cluster.lane_count * self._cluster.local_stride, np.int32)
        if self._local is not None:
            self._local.reshape(self._cluster.lane_count, -1)[np.ix_(lanes, frame.local_bytes)] = local.T
        for number, register_origins in zip(frame.registers, registers, strict=True):
            self.put([number], lanes, register_origins)

    def _pass_on(self, pc: int, use: _Use, lanes: LaneNumbers) -> None:
        """What becomes undefined by an instruction, and whether it uses an undefined value for good."""
        instruction = self._program.instructions[pc]
        assert instruction is not None
        guard_origins = None
        if use.guard is not None:
            number, is_negated = use.guard
            guard_origins = self._origins(number, lanes)
            holds = self._cluster.registers[number][lanes].astype(np.bool_) ^ is_negated
            chosen = holds | (guard_origins > 0)
            lanes = lanes[chosen]
            guard_origins = guard_origins[chosen]
            if not len(lanes):
                return
        self._check(self._join_origins(use.addresses, lanes), lanes, "address")
        origins = self._join_origins(use.data, lanes) if instruction.name != "ld" else np.zeros(len(lanes), np.int32)
        if instruction.name == "selp":
            origins = self._choose_origins(pc, instruction, lanes)
        elif origins.any():
            origins[self._is_absorbed(instruction, use, lanes)] = 0
        if guard_origins is not None:
            np.maximum(origins, guard_origins, out=origins)
        if instruction.name in _STORES:
            self._store(pc, instruction, lanes, origins)
        if instruction.name == "ld":
            np.maximum(origins, self._loaded_origins(pc, instruction, lanes), out=origins)
        self.put(use.targets, lanes, origins)

    def _choose_origins(self, pc: int, instruction: Instruction, lanes: LaneNumbers) -> Origins:
        """What selp chooses: only that value counts, and the predicate."""
        _, first, second, predicate = instruction.operands
        number = self._numbers_in(pc, predicate)[0]
        holds = self._cluster.registers[number][lanes].astype(np.bool_)
        origins = np.where(
            holds,
            self._join_origins(self._numbers_in(pc, first), lanes),
            self._join_origins(self._numbers_in(pc, second), lanes),
        )
        return np.maximum(origins, self._origins(number, lanes))

    def _is_absorbed(self, instruction: Instruction, use: _Use, lanes: LaneNumbers) -> npt.NDArray[np.bool_]:
        """Lanes whose result does not depend on an undefined value: 0 and x, 0 times x, true or x."""
        name = instruction.name
        is_predicate = "pred" in instruction.modifiers
        is_absorbed = np.zeros(len(lanes), np.bool_)
        if name == "setp" and ("and" in instruction.modifiers or "or" in instruction.modifiers):
            operands: tuple[int, ...] = use.data[-1:]
            absorbs_with = "or" in instruction.modifiers
        elif name in _ABSORBING and "wide" not in instruction.modifiers and not _is_float(instruction):
            operands = use.data
            absorbs_with = False
        elif name == "or" and is_predicate:
            operands = use.data
            absorbs_with = True
        else:
            return is_absorbed
        constants = [operand.value for operand in instruction.operands if isinstance(operand, Immediate)]
        if name != "setp" and any(bool(constant) == absorbs_with for constant in constants):
            return ~is_absorbed
        for number in operands:
            is_set = self._cluster.registers[number][lanes].astype(np.bool_)
            is_absorbed |= (is_set == absorbs_with) & (self._origins(number, lanes) == 0)
        return is_absorbed

    def _store(self, pc: int, instruction: Instruction, lanes: LaneNumbers, origins: Origins) -> None:
        """A store of undefined values: local memory keeps them as undefined, any other store counts as a use."""
        bytes_each, addresses = self._local_bytes(pc, instruction, lanes)
        is_local = addresses >= 0
        self._check(np.where(is_local, 0, origins), lanes, "store")
        if is_local.any():
            self._put_local(addresses[is_local], bytes_each, origins[is_local])

    def _put_local(self, addresses: Addresses, bytes_each: int, origins: Origins) -> None:
        if self._local is None:
            if not origins.any():
                return
            self._local = np.zeros(self._cluster.lane_count * self._cluster.local_stride, np.int32)
        self._local[addresses[:, None] + np.arange(bytes_each)] = origins[:, None]

    def _load_local(self, pc: int, use: _Use, lanes: LaneNumbers) -> None:
        """A load or store of local memory that names no register with an undefined value."""
        instruction = self._program.instructions[pc]
        if instruction is None or instruction.name not in ("ld", "st"):
            return
        if use.guard is not None:
            number, is_negated = use.guard
            lanes = lanes[self._cluster.registers[number][lanes].astype(np.bool_) ^ is_negated]
        if instruction.name == "st":
            self._store(pc, instruction, lanes, np.zeros(len(lanes), np.int32))
        else:
            self.put(use.targets, lanes, self._loaded_origins(pc, instruction, lanes))

    def _loaded_origins(self, pc: int, instruction: Instruction, lanes: LaneNumbers) -> Origins:
        """What a load finds undefined in local memory."""
        origins = np.zeros(len(lanes), np.int32)
        if self._local is None:
            return origins
        bytes_each, addresses = self._local_bytes(pc, instruction, lanes)
        is_local = addresses >= 0
        if is_local.any():
            origins[is_local] = self._local[addresses[is_local][:, None] + np.arange(bytes_each)].max(axis=1)
        return origins

    def _local_bytes(self, pc: int, instruction: Instruction, lanes: LaneNumbers) -> tuple[int, Addresses]:
        """(bytes each, where they are in local memory); -1 where a lane accesses another space."""
        words = instruction.modifiers
        elsewhere = np.full(len(lanes), -1, np.int64)
        address = next((operand for operand in instruction.operands if isinstance(operand, Address)), None)
        bits = next((BITS_OF_TYPE[word] for word in words if word in BITS_OF_TYPE), 0)
        if address is None or not bits or not _NOT_GENERIC.isdisjoint(words):
            return 0, elsewhere
        count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
        offsets = self._evaluate_address(pc, address, lanes)
        if offsets is None:
            return 0, elsewhere
        is_local = np.ones(len(lanes), np.bool_)
        if not {"local", "param", "param::func"} & set(words):
            is_local = is_in_window("local", offsets)
            offsets = offsets - WINDOWS["local"]
        return bits * count // 8, np.where(is_local, lanes * self._cluster.local_stride + offsets, -1)

    def _evaluate_address(self, pc: int, address: Address, lanes: LaneNumbers) -> Addresses | None:
        """The addresses of an operand; None where it is no place in local memory."""
        base = address.base
        if isinstance(base, Register):
            number = self._numbers_in(pc, base)[0]
            return self._cluster.registers[number][lanes].astype(np.int64) + address.offset
        if isinstance(base, Variable) and base.number in self._program.local_offsets:
            return np.full(len(lanes), self._program.local_offsets[base.number] + address.offset, np.int64)
        return None

    def _check(self, origins: Origins, lanes: LaneNumbers, used_by: UsedBy) -> None:
        """Emit the undefined values that the present instruction uses for good, one for each shuffle."""
        if not origins.any():
            return
        cluster = self._cluster
        for origin in np.unique(origins[origins > 0]).tolist():
            cluster.emit(UndefinedUse(cluster.pc, int(lanes[np.argmax(origins == origin)]), origin - 1, used_by))


def _is_float(instruction: Instruction) -> bool:
    return any(word[0] == "f" or word.startswith("bf") for word in instruction.modifiers if word in BITS_OF_TYPE)
