"""A GEMM plan as a whole program: persistent, warp-specialised, staged, and checked against a plain product."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod, sqrt

from tilescope.arithmetic import ceil_div
from tilescope.emitter.block_scale_facts import block_scale_facts
from tilescope.emitter.cublas_names import CUDA_TYPE, compute_type
from tilescope.emitter.gemm_facts import (
    EpilogueFacts,
    GemmOperand,
    GemmProgram,
    MmaWork,
    ProductFacts,
    ResidualFacts,
    Tcgen05Work,
    WgmmaWork,
)
from tilescope.emitter.gemm_parameters import ALPHA, BETA, gemm_parameters, residual_type
from tilescope.emitter.gemm_roles import first_of_slice, gemm_roles
from tilescope.emitter.scale_facts import scale_facts
from tilescope.emitter.source_template import (
    CONVERSION,
    DECODING,
    EMIT,
    GEMM_TYPE_NOT_MULTIPLIED,
    MULTIPLIED,
    SCALED_E2M1,
    Multiplied,
    multiplied_row,
)
from tilescope.emitter.tcgen05_roles import tcgen05_roles
from tilescope.emitter.tcgen05_work import tcgen05_work
from tilescope.emitter.tile_order import tile_lines
from tilescope.emitter.tile_program import (
    ELEMENT,
    REGISTER,
    Coordinate,
    TileCopy,
    TileFacts,
    copies_of,
    load_destination,
    map_facts,
)
from tilescope.emitter.tile_reader import DescriptorFacts
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.planner.fused_epilogue import GATE_GROUP
from tilescope.planner.gemm_maps import gemm_map, launch_rows
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.loading import REGISTERS
from tilescope.planner.mma_warps import MAX_ACCUMULATORS
from tilescope.planner.planned_scales import SCALED_MMA
from tilescope.planner.plans import Plan
from tilescope.planner.wgmma_sums import WGMMA_ROWS, most_sums, share_rows
from tilescope.sentence import by
from tilescope.sync.thread_limits import WARP_THREADS, WARPGROUP_THREADS

_SOME_ROWS = 128  # of A, so that every stride is one that a map takes
_LANE_COLUMNS = 2  # neighbours whose bias a lane holds
_STEP_SUMS = {0: (), 1: ("step_sums",), 2: ("even_sums", "odd_sums")}  # their names in the kernel, by their number
_FINISHING = ("m_rows", "alpha", "bias", "residual", "beta")

SUMS_NOT_CONVERTED = EMIT.worded(
    argument="output_type",
    found="C of {data_type}",
    limit="{sums} sums become {known:, }",
    fix="Use {output_type:='{nearest}'}.",
)
TILE_BEYOND_WARPGROUPS = EMIT.worded(
    argument="tile",
    found="a tile of {tile: x }",
    limit="{groups:warpgroup} with at most {accumulators} accumulators a thread hold a tile, and one instruction covers all of n",
    fix="Plan with {tile:={nearest}}.",
)
TILE_BEYOND_MMA = EMIT.worded(
    argument="tile",
    found="a tile of {tile: x }",
    limit="mma takes 16 rows, 8 columns and {k_step} of k, in at most {accumulators} accumulators a thread",
    fix="Plan with {tile:=(64, 64, {k})}.",
)


def gemm_program(gemm: GemmPlan) -> GemmProgram:
    """The facts that the program of a GEMM takes."""
    is_scaled_e2m1 = gemm.scales is not None and gemm.data_type.ptx == SCALED_E2M1.name
    row = SCALED_E2M1 if is_scaled_e2m1 else multiplied_row(gemm.data_type, "a GEMM", GEMM_TYPE_NOT_MULTIPLIED)
    conversion = _conversion(gemm, row)
    operands = _operands(gemm)
    work: WgmmaWork | MmaWork | Tcgen05Work
    if gemm.product.in_tensor_memory:
        work = tcgen05_work(gemm, operands)
    elif gemm.a.problem.reads_by_descriptor:
        work = _wgmma(gemm, row, operands)
    else:
        work = _mma(gemm, row)
    epilogue = _epilogue(gemm, work)
    product = _product(gemm, row, operands, conversion, work.columns)
    roles = None
    if product.c is not None:
        if isinstance(work, Tcgen05Work):
            roles = tcgen05_roles(gemm, product, product.c, work, epilogue)
        else:
            roles = gemm_roles(gemm, product, product.c, work, epilogue)
    return GemmProgram(product=product, work=work, epilogue=epilogue, roles=roles)


def _conversion(gemm: GemmPlan, row: Multiplied) -> str:
    """The body of the function that makes C's bits of a sum."""
    conversions = {name: body for (sums, name), body in CONVERSION.items() if sums == row.accumulator}
    if gemm.output_type.ptx not in conversions:
        output_types = tuple(conversions)
        raise SUMS_NOT_CONVERTED.error(
            data_type=gemm.output_type.name, sums=row.accumulator, known=output_types, nearest=output_types[0]
        )
    return conversions[gemm.output_type.ptx]


def _of_a_pair(gemm: GemmPlan) -> str:
    """The owner of the tile, if two blocks compute it."""
    return " of a pair of blocks" if gemm.schedule.cta_group == 2 else ""


def _product(
    gemm: GemmPlan, row: Multiplied, operands: dict[str, GemmOperand], conversion: str, columns: int
) -> ProductFacts:
    bits = gemm.output_type.bits
    stmatrix_count = 0
    if gemm.epilogue is not None and bits == 16:
        stmatrix_count = 4 if columns % 16 == 0 else 2
    return ProductFacts(
        gemm=gemm,
        title=f"GEMM {by(gemm.shape)} {_format(gemm)}, tile {by(gemm.tile)}{_of_a_pair(gemm)}",
        operands=list(operands.values()),
        a=operands["a"],
        b=operands["b"],
        c=operands.get("c"),
        tma=gemm.epilogue is not None,
        destination=load_destination(gemm.arch),
        offsets=gemm.smem_offsets(),
        element_type=ELEMENT[max(8, gemm.data_type.bits)],
        output_type=ELEMENT[bits],
        register=REGISTER[bits],
        conversion=conversion,
        accumulator=row.sum_type,
        constraint=row.constraint,
        signed=row.name != "u8",
        spread=max(3, ceil(3 * sqrt(gemm.shape[2] / 32))),  # of unsigned test data: sums of about 32
        number_bits=_numbers(row, gemm.data_type.bits),
        k_step=_k_step(gemm),
        stmatrix_count=stmatrix_count,
        transposed=gemm.schedule.swapped,
        schedule=gemm.schedule,
        rows=launch_rows(gemm),
        parameters=gemm_parameters(gemm),
        alpha=f"{ALPHA}f",
        beta=f"{BETA}f",
        tolerance=str(2.0 ** -min(10, _mantissa_bits(gemm))),
        residual=_residual(gemm),
        decoding=DECODING.get(gemm.output_type.ptx, ""),
        product_decoding=DECODING[gemm.data_type.ptx] if gemm.data_type.ptx in ("bf16", "f16") else "",
        load_ranks=sorted({len(operands[name].dims) for name in ("abc" if gemm.stages_residual else "ab")}),
        store_ranks=[len(operands["c"].dims)] if "c" in operands else [],
        tile_lines=tile_lines(gemm),
        moved_bytes=_moved_bytes(gemm),
        cuda_type=CUDA_TYPE[gemm.data_type.ptx],
        cuda_output_type=CUDA_TYPE[gemm.output_type.ptx],
        cuda_compute=compute_type(gemm.data_type),
    )


def _format(gemm: GemmPlan) -> str:
    """The elements, and the format of their scale factors."""
    if gemm.block_scales:
        return f"{gemm.data_type.ptx} with scales of 1 x 128 and 128 x 128"
    return gemm.data_type.ptx if gemm.scales is None else f"{gemm.scales.name} ({gemm.data_type.ptx})"


def _moved_bytes(gemm: GemmPlan) -> int:
    m, n, k = gemm.shape
    c_bits = prod(gemm.product.c_shape) * gemm.output_type.bits
    return int((m + n) * k * gemm.product.operand_bits + c_bits) * gemm.batch.count // 8


def _k_step(gemm: GemmPlan) -> int:
    """Elements of k that one instruction takes."""
    return K_STEP_BYTES * 8 // gemm.data_type.bits


def _numbers(row: Multiplied, bits: int) -> list[str]:
    """The bits of -1, 0 and 1; of 0, 1 and 2 where there is no sign."""
    if row.exponent_bits:
        return [f"{int(row.one, 0) | 1 << (bits - 1):#x}", "0", row.one]
    return ["0xff", "0", "1"] if row.name == "s8" else ["0", "1", "2"]


def _operands(gemm: GemmPlan) -> dict[str, GemmOperand]:
    """A, B and, where TMA stores it, C."""
    offsets = gemm.smem_offsets()
    operands = {
        "a": _operand(gemm, "a", "m", gemm.a, offsets["a"][0]),
        "b": _operand(gemm, "b", "n", gemm.b, offsets["b"][0]),
    }
    if gemm.epilogue is not None:
        operands["c"] = _operand(gemm, "c", "mn", gemm.epilogue, offsets["epilogue"][0])
    return operands


def _operand(gemm: GemmPlan, name: str, mn: str, plan: Plan, offset: int) -> GemmOperand:
    tile = TileFacts.of(plan)
    described = DescriptorFacts.of(plan) if name != "c" and plan.problem.reads_by_descriptor else None
    by_tma = plan.boxes is not None
    return GemmOperand(
        name=name,
        plan=plan,
        problem=tile.problem,
        terms=tile.terms,
        mn=mn,
        offset=offset,
        transposed=plan.problem.major == "MN",
        copies=_copies(gemm, name, copies_of(plan, mn)) if by_tma else (),
        map=map_facts(gemm_map(gemm, name)) if by_tma else None,
        dims=_by_rows(gemm, name, "dims") if by_tma else [],
        strides_bytes=_by_rows(gemm, name, "strides_bytes") if by_tma else [],
        descriptors=None if described is None else described.descriptors,
        descriptor_fields=None if described is None else described.descriptor_fields,
    )


def _copies(gemm: GemmPlan, name: str, copies: tuple[TileCopy, ...]) -> tuple[TileCopy, ...]:
    """The copies of a tile, with the coordinates that gates and the items of a batch add."""
    extended = []
    for copy in copies:
        coords = copy.coords
        if name == "b" and gemm.fused.gate == "side by side":
            column, row = copy.coords
            pair = 2 * GATE_GROUP
            coords = (column, Coordinate("", 0), Coordinate("", 0), Coordinate(row.name, row.offset // pair, pair))
        if gemm.batch.stacks(name):
            coords = (*coords, Coordinate("item" if gemm.batch.count > 1 else "", 0))
        extended.append(copy._replace(coords=coords))
    return tuple(extended)


def _by_rows(gemm: GemmPlan, name: str, field: str) -> list[str]:
    """Dims or strides of a map, those that grow with the rows as expressions of m."""
    few, more = (getattr(gemm_map(gemm, name, m=_SOME_ROWS * times), field) for times in (1, 2))
    return [
        str(value) if value == doubled else f"m * {value // _SOME_ROWS}".removesuffix(" * 1")
        for value, doubled in zip(few, more, strict=True)
    ]


def _mantissa_bits(gemm: GemmPlan) -> int:
    """Bits of the mantissa of C."""
    return MULTIPLIED[gemm.output_type.ptx].mantissa_bits if gemm.output_type.ptx in MULTIPLIED else 23


def _residual(gemm: GemmPlan) -> ResidualFacts | None:
    if not gemm.fused.residual:
        return None
    row = residual_type(gemm)
    one = "0x3F800000" if row.bits == 32 else MULTIPLIED[row.ptx].one
    return ResidualFacts(ELEMENT[row.bits], row.name, DECODING[row.ptx], one)


def _wgmma(gemm: GemmPlan, row: Multiplied, operands: dict[str, GemmOperand]) -> WgmmaWork:
    rows_plan, columns_plan = gemm.operands
    b = columns_plan.descriptors()
    n = b.block_mn
    ping_pong = gemm.schedule.ping_pong  # a warpgroup then has all rows of a tile
    groups, blocks = share_rows(gemm.sums[0], ping_pong=ping_pong)
    most = most_sums(gemm.product, groups)
    if len(b) != 1 or blocks * n // 2 > most:
        of_one = most_sums(gemm.product, 1)
        raise TILE_BEYOND_WARPGROUPS.error(
            tile=gemm.tile, groups=groups, accumulators=most, nearest=(128, 2 * of_one, gemm.tile[2])
        )
    instruction = row.wgmma(n, b.k_per_step, rows_plan.problem.major, columns_plan.problem.major)
    names = ("b", "a") if gemm.schedule.swapped else ("a", "b")
    consumers = 2 if ping_pong else groups
    stored = 0
    if gemm.epilogue is not None:
        stored = gemm.epilogue.problem.tile[1] if gemm.schedule.swapped else gemm.epilogue.problem.columns
    in_a_cluster = prod(gemm.schedule.cluster)
    return WgmmaWork(
        wgmma=instruction.wgmma,
        wgmma_registers=instruction.wgmma_registers,
        wgmma_flags=instruction.wgmma_flags,
        k_steps=len(b[0]),
        groups=groups,
        blocks=blocks,
        consumer_threads=consumers * WARPGROUP_THREADS,
        threads=consumers * WARPGROUP_THREADS + 32 * gemm.producers,
        producers=gemm.producers,
        columns=stored,
        target=str(gemm.arch.target("wgmma")),
        rows_operand=operands[names[0]],
        columns_operand=operands[names[1]],
        owners=gemm.schedule.owners(n),
        share=gemm.share,
        cluster=gemm.schedule.cluster,
        cluster_blocks=in_a_cluster,
        sharing_blocks="both blocks" if in_a_cluster == 2 else f"all {in_a_cluster} blocks",
        ping_pong=ping_pong,
        step_sums=_STEP_SUMS[gemm.step_sums],
        registers=REGISTERS[groups] if gemm.redistributes_registers else None,
        block_scales=block_scale_facts(gemm, groups, blocks),
    )


def _mma(gemm: GemmPlan, row: Multiplied) -> MmaWork:
    _, n, k = gemm.tile
    k_step = _k_step(gemm)
    warps = gemm.warps
    if not prod(warps) or k % k_step:
        raise TILE_BEYOND_MMA.error(tile=gemm.tile, accumulators=MAX_ACCUMULATORS, k_step=k_step, k=2 * k_step)
    producer_warps = 0 if gemm.epilogue is None else 1
    return MmaWork(
        mma=_scaled_mma(gemm, row, k_step) or row.mma(k_step),
        warps=warps,
        consumer_threads=32 * prod(warps),
        threads=32 * (prod(warps) + producer_warps),
        columns=n // warps[1],
        partial=gemm.epilogue is not None and gemm.slices > 1,
        target=gemm.arch.name if gemm.scales is None else str(gemm.arch.target(SCALED_MMA)),
        scales=scale_facts(gemm),
    )


def _scaled_mma(gemm: GemmPlan, row: Multiplied, k_step: int) -> str:
    """The instruction of a warp with scale factors; "": there are none."""
    scales = scale_facts(gemm)
    if gemm.scales is None or scales is None:
        return ""
    return f"kind::{gemm.scales.mma_kind}.{scales.qualifier}.{row.mma(k_step)}.{gemm.scales.scale_type}"


def _epilogue(gemm: GemmPlan, work: WgmmaWork | MmaWork | Tcgen05Work) -> EpilogueFacts:
    """Indices of loops with one turn are left out: one block of rows, one warpgroup, one slice."""
    slices = gemm.slices if gemm.epilogue is not None else 1
    if isinstance(work, Tcgen05Work):
        return EpilogueFacts(
            slices=slices,
            buffer=_c_buffer(gemm, slices),
            sums="d[block]",
            sums_extents="[ROWS][SUMS]",
            first_row="sums_row(block)",
            first_column="first",
        )
    if isinstance(work, MmaWork):
        other_slices = " - slice * C_COLUMNS" if slices > 1 else ""
        return EpilogueFacts(
            slices=slices,
            buffer="",
            sums="d[block]",
            sums_extents="[ROWS][COLUMNS * 4]",
            first_row="first_m + block * 16",
            first_column=f"first_n + first{other_slices}",
        )
    registers = f"[{work.wgmma_registers}]"
    has_blocks = work.blocks > 1
    facts = EpilogueFacts(
        slices=slices,
        buffer=_c_buffer(gemm, slices),
        sums="d[block]" if has_blocks else "d",
        sums_extents=f"[{work.blocks}]{registers}" if has_blocks else registers,
        first_row=f"{_block_row(work)}warp * 16",
        first_column="first",
        c_first=first_of_slice(gemm, slices),
    )
    return _add_finish(facts, gemm, work)


def _add_finish(facts: EpilogueFacts, gemm: GemmPlan, work: WgmmaWork) -> EpilogueFacts:
    """The epilogue with its other operands.

    A bias is loaded early: of swapped tiles a thread has that of its rows, of others the lanes of a warp share that of all columns.
    A residual that TMA does not load needs more registers than are free, so it is loaded in halves of a slice when it is needed.
    """
    staged = ("residual", "beta") if gemm.stages_residual else ()  # which the epilogue adds where it stores
    finishing_names = [name for name in _FINISHING if name not in staged]
    taken = [(str(each), each.name) for each in gemm_parameters(gemm) if each.name in finishing_names]
    if gemm.batch.count > 1:
        taken.append(("int item", "item"))
    reads_residual = gemm.fused.residual and not staged
    swapped = gemm.schedule.swapped
    fetched = [each for each in taken if each[1] != "bias"]
    by_element = swapped and reads_residual
    finishing = [each for each in fetched if by_element or each[1] in ("alpha", "beta")]
    rows = f"group * {work.blocks * WGMMA_ROWS} + " if work.groups > 1 else ""
    stored_columns = gemm.fused.columns(gemm.share)
    return replace(
        facts,
        finish_declarations="".join(f", {declared}" for declared, _ in finishing),
        finish_arguments="".join(f", {argument}" for _, argument in finishing),
        bias_pairs=ceil_div(stored_columns, WARP_THREADS * _LANE_COLUMNS),
        bias_column=f"n + {rows}warp * 16" if swapped else first_of_slice(gemm, 1),
        fetches=reads_residual and not swapped,
        fetched_columns=work.columns if work.columns % 32 else work.columns // 2,
        fetch_declarations="".join(f", {declared}" for declared, _ in fetched),
        fetch_arguments="".join(f", {argument}" for _, argument in fetched),
    )


def _c_buffer(gemm: GemmPlan, slices: int) -> str:
    """The addition to C_OFFSET that selects one of two buffers for a slice."""
    # A warpgroup that computes whole tiles has its own buffers.
    group_offset = f"instance * {gemm.c_buffers} + " if gemm.schedule.ping_pong else ""
    if gemm.c_buffers == 1:
        return " + instance * C_BYTES" if group_offset else ""
    number = "slice" if slices > 1 else "0"
    if gemm.schedule.persistent and not gemm.holds_all_slices:
        turn = "turn" if group_offset else "t"
        number = f"({turn} * {slices} + slice)" if slices > 1 else turn
    if not gemm.holds_all_slices:
        number += f" % {gemm.c_buffers}"
    return f" + ({group_offset}{number}) * C_BYTES" if group_offset else f" + {number} * C_BYTES"


def _block_row(work: WgmmaWork) -> str:
    """The first row of a block of 64: this warpgroup's, and of these the one that the loop is at."""
    if work.groups > 1 and work.blocks > 1:
        return f"(group * {work.blocks} + block) * 64 + "
    if work.groups > 1:
        return "group * 64 + "
    return "block * 64 + " if work.blocks > 1 else ""
