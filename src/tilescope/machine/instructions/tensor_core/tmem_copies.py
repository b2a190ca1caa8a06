"""tcgen05.cp and tcgen05.shift: rows of shared memory into tensor memory, and lanes moved by one.

    tcgen05.cp.cta_group::1.32x128b.warpx4 [taddr], descriptor;     32 rows of 16 bytes, to all four quarters
    tcgen05.shift.cta_group::1.down [taddr];                        32 bytes of lanes 1 to 31 to the lane before

One thread issues; with cta_group::2 each block of the pair copies from its own shared memory into its own tensor memory.
"""

from __future__ import annotations

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.execution.pending import Work
from tilescope.machine.execution.tmem_state import Places, pair_ranks, split_address
from tilescope.machine.instructions.load_store import decode_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.smem_operand import SmemRead, smem_places, stored_codes
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Step
from tilescope.mma.tensor_memory import SHIFT_COLUMNS, SHIFT_ROWS
from tilescope.mma.tmem_address import QUARTER_LANES, TMEM_COLUMNS, TMEM_LANES
from tilescope.mma.tmem_copy import CP_SHAPES, DECOMPRESSIONS, CpShape, Decompression, cp_shape, spread_bytes
from tilescope.ptx.syntax import Instruction
from tilescope.sync.cluster_shape import LaneNumbers, Lanes
from tilescope.sync.events import TmemWork

_MULTICASTS = ("warpx2::02_13", "warpx2::01_23", "warpx4")
_SHAPES = tuple(dict.fromkeys(name.partition(".")[0] for name in CP_SHAPES))


def decode_copy(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Step:
    """tcgen05.cp.cta_group.shape{.multicast}{.dst_fmt.src_fmt} [taddr], s-desc."""
    name = words.required(_SHAPES, "shape of tcgen05.cp")
    multicast = words.one_of(_MULTICASTS)
    try:
        shape = cp_shape(name if multicast is None else f"{name}.{multicast}")
    except RuleError as error:
        first = error.violations[0]
        raise RefusedError(f"{first.found}; {first.limit}") from None
    spread: Decompression | None = None
    if words.flag("b8x16"):
        source = words.required(("b4x16_p64", "b6x16_p32"), "format of the source")
        spread = DECOMPRESSIONS[f"b8x16.{source}"]
    words.done()
    address = decode_address(assembler, instruction.operands[0])
    descriptor = assembler.source(instruction.operands[1], "b64")
    read = SmemRead("the source of tcgen05.cp", shape.rows, shape.row_bytes, 8)

    def issue(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at).tolist()
        addresses = address(cluster, at).tolist()
        descriptors = cluster.registers[descriptor][at].tolist()
        cluster.launch.charge(len(lanes))
        for lane, word, source in zip(lanes, addresses, descriptors, strict=True):
            ranks = pair_ranks(int(cluster.block_of_lane[lane]), cta_group, cluster.blocks, lane)
            _issue_copy(cluster, lane, ranks, _target_cells(shape, int(word), lane), (read, int(source), spread))

    return issue


Source = tuple[SmemRead, int, Decompression | None]


def _target_cells(shape: CpShape, word: int, lane: int) -> Places:
    """The cells that a copy writes: (rows, copies, columns)."""
    first_lane, first_column = split_address(word)
    lanes = first_lane + shape.lanes
    last_lane = int(lanes.max())
    last_column = first_column + shape.columns - 1
    if last_lane >= TMEM_LANES or last_column >= TMEM_COLUMNS:
        reason = f"tcgen05.cp.{shape.name} reaches lane {last_lane}, column {last_column} of tensor memory"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane, word)
    columns = first_column + np.arange(shape.columns)
    return np.asarray(lanes[:, :, None] * TMEM_COLUMNS + columns, np.int64)


def _issue_copy(cluster: Cluster, lane: int, ranks: tuple[int, ...], target: Places, source: Source) -> None:
    read, word, spread = source
    pc = cluster.pc
    places = smem_places(read, word, lane)
    no_places = np.zeros(0, np.int64)
    cluster.emit(TmemWork(pc, lane, "tcgen05.cp", ranks, (places.addresses,), (1,), no_places, np.unique(target)))

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        for rank in ranks:
            rows = stored_codes(cluster, read, word, rank, lane).astype(np.uint8)
            if spread is not None:
                rows = spread_bytes(rows, spread)
            words = np.ascontiguousarray(rows).view(np.uint32)
            cluster.tensor_memory.cells[rank][target] = words[:, None, :]

    cluster.pending.add(Work("tcgen05", pc, np.array([lane]), perform))


def decode_shift(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Step:
    """tcgen05.shift.cta_group.down [taddr]."""
    words.required(("down",), ".down")
    words.done()
    address = decode_address(assembler, instruction.operands[0])

    def issue(cluster: Cluster, at: Lanes) -> None:
        addresses = address(cluster, at).tolist()
        cluster.launch.charge(len(addresses))
        for lane, word in zip(cluster.lanes(at).tolist(), addresses, strict=True):
            ranks = pair_ranks(int(cluster.block_of_lane[lane]), cta_group, cluster.blocks, lane)
            _issue_shift(cluster, lane, ranks, int(word))

    return issue


def _issue_shift(cluster: Cluster, lane: int, ranks: tuple[int, ...], word: int) -> None:
    """Lane l + 1 goes to lane l, as in `TensorMemory.shift`; the last lane of the quarter keeps what it has."""
    pc = cluster.pc
    first_lane, first_column = split_address(word)
    if first_lane % QUARTER_LANES or first_lane >= TMEM_LANES or first_column + SHIFT_COLUMNS > TMEM_COLUMNS:
        reason = f"tcgen05.shift at lane {first_lane}, column {first_column}: it starts at a multiple of 32 lanes, and moves 8 columns"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane, word)
    rows = first_lane + np.arange(SHIFT_ROWS)
    columns = first_column + np.arange(SHIFT_COLUMNS)
    target = np.asarray(rows[:, None] * TMEM_COLUMNS + columns, np.int64)
    source = target + TMEM_COLUMNS
    used = np.unique(np.concatenate([source, target]))
    cluster.emit(TmemWork(pc, lane, "tcgen05.shift", ranks, (), (), np.zeros(0, np.int64), used))

    def perform(lanes: LaneNumbers) -> None:
        cluster.pc = pc
        for rank in ranks:
            cells = cluster.tensor_memory.cells[rank]
            cells[target] = cells[source]

    cluster.pending.add(Work("tcgen05", pc, np.array([lane]), perform))
