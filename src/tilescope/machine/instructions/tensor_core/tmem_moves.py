"""tcgen05.ld, st and wait: registers of warps to and from tensor memory.

    tcgen05.ld.sync.aligned.32x32b.x4.b32 {r0, r1, r2, r3}, [taddr];    issued: completes at wait::ld, or when a register is accessed
    tcgen05.st.sync.aligned.32x32b.x4.b32 [taddr], {r0, r1, r2, r3};    values are taken now, and written until wait::st
    tcgen05.wait::ld.sync.aligned;

A warp accesses the 32 lanes of the quarter given by its number modulo 4, even if the address names another quarter (a
finding). The registers of a load can be read at once: the PTX ISA says that such a read returns the loaded value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.collective import Collective
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError, fault_of
from tilescope.machine.execution.pending import Work, WorkKind
from tilescope.machine.execution.tmem_state import Places, split_address
from tilescope.machine.instructions.load_store import AddressOf, decode_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.register_tile import lane_groups
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Turn
from tilescope.mma.fragment import fragment
from tilescope.mma.tensor_memory import reduced_registers
from tilescope.mma.tmem_address import QUARTER_LANES, QUARTERS, TMEM_COLUMNS
from tilescope.mma.tmem_form import TmemMove, named_move
from tilescope.ptx.syntax import Immediate, Instruction, Operand
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import TmemMove as TmemMoveEvent
from tilescope.sync.events import TmemWait

Registers = npt.NDArray[np.uint32]
_CACHED_PLACES = 256


class TmemAccess(NamedTuple):
    """A tcgen05.ld or st as it was decoded; registers by number."""

    move: TmemMove
    address: AddressOf
    registers: tuple[int, ...]
    reduced: int | None  # the register of ld.red that takes the reduction
    split: int  # what is added to the address word for the second place of .16x32bx2

    @property
    def kind(self) -> WorkKind:
        """What its warps wait for."""
        return "tcgen05.ld" if self.move.direction == "ld" else "tcgen05.st"

    def issue(self, cluster: Cluster, at: Lanes) -> None:
        """Begin to move, warp by warp."""
        groups = lane_groups(cluster, at)
        lanes = groups.lane_numbers(cluster)
        first_lanes = lanes[::WARP_LANES]
        words = self.address(cluster, first_lanes).tolist()
        cluster.launch.charge(len(words))
        for first_lane, word in zip(first_lanes.tolist(), words, strict=True):
            self._issue_warp(cluster, first_lane, int(word) & 0xFFFF_FFFF)

    def _issue_warp(self, cluster: Cluster, first_lane: int, word: int) -> None:
        warp = first_lane % cluster.block_lanes // WARP_LANES
        rank = int(cluster.block_of_lane[first_lane])
        try:
            places = _places(self.move, word, warp % QUARTERS, self.split)
        except RuleError as error:
            raise fault_of(error, first_lane, word) from None
        lanes = np.arange(first_lane, first_lane + WARP_LANES)
        registers: frozenset[int] = frozenset()
        if self.move.direction == "ld":
            registers = frozenset(self.registers if self.reduced is None else (*self.registers, self.reduced))
        is_load = self.move.direction == "ld"
        cluster.emit(TmemMoveEvent(cluster.pc, lanes, rank, is_load, places.used, word, registers))
        cells = cluster.tensor_memory.cells[rank]
        stored = None if self.move.direction == "ld" else self._stored_cells(cluster, lanes)
        pc = cluster.pc

        def perform(some: LaneNumbers) -> None:
            cluster.pc = pc
            if stored is None:
                self._load(cluster, lanes, cells[places.cells])
            else:
                cells[places.cells] = stored

        cluster.pending.add(Work(self.kind, pc, lanes, perform, registers=registers))

    def _stored_cells(self, cluster: Cluster, lanes: LaneNumbers) -> Registers:
        """The cells that a store writes: (threads, values), the low half of a cell where it unpacks."""
        words = cluster.stacked(self.registers, lanes).astype(np.uint32)
        return words.view(np.uint16).astype(np.uint32) if self.move.packed else words

    def _load(self, cluster: Cluster, lanes: LaneNumbers, loaded: Registers) -> None:
        if self.move.packed:
            loaded = np.ascontiguousarray((loaded & 0xFFFF).astype(np.uint16)).view(np.uint32)
        for index, number in enumerate(self.registers):
            cluster.registers[number][lanes] = loaded[:, index]
        if self.reduced is not None:
            assert self.move.reduction is not None
            cluster.registers[self.reduced][lanes] = reduced_registers(loaded, self.move.reduction)[:, 0]


class MovePlaces(NamedTuple):
    """The cells that a warp moves: (threads, values), and each once."""

    cells: Places
    used: Places


@lru_cache(maxsize=_CACHED_PLACES)
def _places(move: TmemMove, word: int, quarter: int, split: int) -> MovePlaces:
    """The places of the values of a warp's threads in the tensor memory of its block."""
    matrix, lanes, columns = fragment(move.opcode).indices()
    cells = np.zeros(lanes.shape, np.int64)
    for number in range(move.form.places):
        first_lane, first_column = split_address(word + number * split)
        if first_lane % move.form.lanes:
            reason = f".{move.form.name} at lane {first_lane}: it starts at a multiple of {move.form.lanes} lanes"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, None, word)
        own_lane = quarter * QUARTER_LANES + first_lane % QUARTER_LANES
        is_there = matrix == number
        cells[is_there] = ((own_lane + lanes) * TMEM_COLUMNS + first_column + columns)[is_there]
        if first_column + move.columns > TMEM_COLUMNS:
            last = first_column + move.columns - 1
            reason = f"columns {first_column} to {last} of tensor memory, which has columns 0 to {TMEM_COLUMNS - 1}"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, None, word)
    return MovePlaces(cells, np.unique(cells))


def decode_move(assembler: Assembler, instruction: Instruction) -> Turn:
    """tcgen05.ld{.red}: registers{, redval}, [taddr]{, split}; tcgen05.st: [taddr]{, split}, registers."""
    try:
        move = named_move(instruction.opcode.replace(".NaN", ".nan"))
    except RuleError as error:
        first = error.violations[0]
        raise RefusedError(f"{first.found}; {first.limit}") from None
    if move.reduction is not None and move.form.places > 1:
        raise RefusedError("no document says whether ld.red of .16x32bx2 combines threads that are 16 apart")
    operands = list(instruction.operands)
    reduced: int | None = None
    if move.direction == "ld":
        registers = tuple(assembler.written(element) for element in assembler.vector(operands.pop(0)))
        if move.reduction is not None:
            reduced = assembler.written(operands.pop(0))
        address = decode_address(assembler, operands.pop(0))
        split = _split(move, operands)
        assembler.program.loaded_registers.update(registers if reduced is None else (*registers, reduced))
    else:
        address = decode_address(assembler, operands.pop(0))
        registers = tuple(assembler.source(element, "b32") for element in assembler.vector(operands.pop()))
        split = _split(move, operands)
    if len(registers) != move.registers:
        raise RefusedError(f"{move.opcode} takes {move.registers} registers, not {len(registers)}")
    return Collective(TmemAccess(move, address, registers, reduced, split).issue)


def _split(move: TmemMove, operands: list[Operand]) -> int:
    """The immediate of .16x32bx2, which is added to the address for the second place."""
    if move.form.places == 1:
        if operands:
            raise RefusedError(f".{move.form.name} takes an address, and nothing after it")
        return 0
    (operand,) = operands
    if not isinstance(operand, Immediate):
        raise RefusedError(".16x32bx2 takes a constant after its address")
    return operand.value


def decode_wait(kind: WorkKind, words: Words) -> Turn:
    """tcgen05.wait::ld and wait::st: all that the warp has begun is done."""
    words.flag("sync")
    words.flag("aligned")
    words.done()

    def wait(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        pc = cluster.pc
        cluster.pending.wait_all(kind, lanes)
        cluster.emit(TmemWait(pc, lanes, is_load=kind == "tcgen05.ld"))

    return Collective(wait)
