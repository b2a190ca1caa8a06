"""What the program of a GEMM by tcgen05 multiplies with, and how its epilogue takes the sums from tensor memory.

    warps 0 to 3    epilogue: tensor memory ─▶ registers ─▶ a slice of C in shared memory ─▶ TMA
    warp 4          producer: copies A and B
    warp 5          multiplies: one thread, in a pair that of the even block alone
    warp 6          allocates tensor memory, and gives it back

A warp reads the 32 lanes of tensor memory that its number modulo 4 names, so the epilogue's warps come first.
"""

from __future__ import annotations

from math import prod

from tilescope.emitter.gemm_facts import GemmOperand, Tcgen05Work, TmemLoad
from tilescope.emitter.scale_facts import scale_facts
from tilescope.emitter.source_template import EMIT
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.sync.thread_limits import WARP_THREADS, WARPGROUP_THREADS

_OTHER_WARPS = 3  # producer, multiplier, allocator
_FRAGMENT_ROWS = 16  # of tcgen05.ld.16x256b
_FRAGMENT_COLUMNS = 8  # and its columns, in four registers of a thread
_MAX_REGISTERS = 64  # of one tcgen05.ld here: it has up to 128
ROWS_OF_TMEM = EMIT.worded(
    argument="tile",
    found="a tile of {tile: x }, {rows} rows of sums for each block",
    limit="programs for tcgen05 have {known: or } rows of sums in each block, and at most 256 columns",
    fix="Plan with {tile:={nearest}}.",
)


def tcgen05_work(gemm: GemmPlan, operands: dict[str, GemmOperand]) -> Tcgen05Work:
    """The instruction that multiplies a tile of C, and the load that reads its sums."""
    rows_plan, columns_plan = gemm.operands
    rows = rows_plan.descriptors()
    columns = columns_plan.descriptors()
    group = gemm.schedule.cta_group
    sums_rows, sums_columns = gemm.sums
    known_rows: tuple[int, ...] = (TMEM_LANES, 2 * TMEM_LANES)
    if gemm.output_type.bits == 16:
        known_rows = (4 * _FRAGMENT_ROWS, *known_rows)
    if len(columns) != 1 or sums_rows not in known_rows:
        nearest = (TMEM_LANES * group, 256, gemm.tile[2])
        raise ROWS_OF_TMEM.error(tile=gemm.tile, rows=sums_rows, known=known_rows, nearest=nearest)
    kind = gemm.product.kind

    def describe(scale_id: int) -> InstructionDescriptor:
        return InstructionDescriptor(
            kind.name,
            rows.block_mn * group,
            sums_columns,
            a_type=gemm.data_type,
            a_major=rows_plan.problem.major,
            b_major=columns_plan.problem.major,
            scale_type=None if gemm.scales is None else gemm.scales.scale_type,
            a_scale_id=scale_id,
            b_scale_id=scale_id,
        )

    descriptor = describe(0)
    scale_steps = gemm.scale_plans[0].steps if gemm.scale_plans else ()
    names = ("b", "a") if gemm.schedule.swapped else ("a", "b")
    stored = _slice_columns(gemm)
    return Tcgen05Work(
        kind=kind.name,
        cta_group=group,
        cluster=gemm.schedule.cluster,
        cluster_blocks=prod(gemm.schedule.cluster),
        instruction=f"{descriptor.encode():#x}",
        instruction_text=str(descriptor),
        k_steps=len(rows[0]),
        blocks=len(rows),
        consumer_threads=WARPGROUP_THREADS,
        threads=WARPGROUP_THREADS + _OTHER_WARPS * WARP_THREADS,
        columns=stored,
        target=str(gemm.arch.target("tcgen05")),
        rows_operand=operands[names[0]],
        columns_operand=operands[names[1]],
        tmem_load=_tmem_load(sums_rows, stored, gemm.output_type.bits),
        scales=scale_facts(gemm, [describe(step.scale_id).encode() for step in scale_steps]),
    )


def _slice_columns(gemm: GemmPlan) -> int:
    """Columns of the sums that are stored at a time."""
    assert gemm.epilogue is not None  # tcgen05 implies TMA
    return gemm.epilogue.problem.tile[1]


def _tmem_load(rows: int, columns: int, output_bits: int) -> TmemLoad:
    """Fragments of mma where stmatrix writes them; else one row a thread.

    >>> _tmem_load(128, 64, 16)
    TmemLoad(shape='16x256b', pieces=2, repeats=8, columns=64, registers=32)
    >>> _tmem_load(128, 48, 32)
    TmemLoad(shape='32x32b', pieces=1, repeats=16, columns=16, registers=16)
    """
    by_fragments = output_bits == 16
    unit_columns = _FRAGMENT_COLUMNS if by_fragments else 1
    unit_registers = 4 if by_fragments else 1
    units = columns // unit_columns
    repeats = min(units & -units, _MAX_REGISTERS // unit_registers)  # a power of two that divides the columns
    piece_rows = 4 * _FRAGMENT_ROWS if by_fragments else TMEM_LANES
    return TmemLoad(
        shape="16x256b" if by_fragments else "32x32b",
        pieces=rows // piece_rows,
        repeats=repeats,
        columns=repeats * unit_columns,
        registers=repeats * unit_registers,
    )
