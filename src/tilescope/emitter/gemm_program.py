"""A GEMM plan as a whole program: persistent, warp-specialised, staged, and checked against a plain product."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod, sqrt

from tilescope.emitter.role_text import Work
from tilescope.emitter.source import (
    CONVERSION,
    EMIT,
    GEMM_TYPE_NOT_MULTIPLIED,
    Facts,
    Multiplied,
    multiplied,
    rendered,
    told,
)
from tilescope.emitter.tile_program import (
    ELEMENT,
    REGISTER,
    RolesFacts,
    TileCopy,
    TileFacts,
    copies_of,
    copy_lines,
    load_destination,
    map_facts,
)
from tilescope.emitter.tile_reader import DescriptorFacts, require_program
from tilescope.layout import AddressTerms
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.pipeline.threads import WARPGROUP_THREADS
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.planned_gemm import MAX_ACCUMULATORS
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.planner.schedule import Schedule
from tilescope.sentence import by

_CUDA_TYPE = {
    "bf16": "CUDA_R_16BF",
    "f16": "CUDA_R_16F",
    "tf32": "CUDA_R_32F",
    "f32": "CUDA_R_32F",
    "e4m3": "CUDA_R_8F_E4M3",
    "e5m2": "CUDA_R_8F_E5M2",
    "s8": "CUDA_R_8I",
    "u8": "CUDA_R_8U",
    "s32": "CUDA_R_32I",
}
_CUDA_NUMBER = {  # of the names above, for scripts that load cuBLAS
    "CUDA_R_16BF": 14,
    "CUDA_R_16F": 2,
    "CUDA_R_32F": 0,
    "CUDA_R_8F_E4M3": 28,
    "CUDA_R_8F_E5M2": 29,
    "CUDA_R_8I": 3,
    "CUDA_R_8U": 8,
    "CUDA_R_32I": 10,
    "CUBLAS_COMPUTE_32F": 68,
    "CUBLAS_COMPUTE_32F_FAST_TF32": 77,
    "CUBLAS_COMPUTE_32I": 72,
}
_CUDA_COMPUTE = {"tf32": "CUBLAS_COMPUTE_32F_FAST_TF32", "s8": "CUBLAS_COMPUTE_32I", "u8": "CUBLAS_COMPUTE_32I"}

SUMS_NOT_CONVERTED = EMIT.worded(
    argument="output_type",
    found="C of {data_type}",
    limit="{sums} sums become {known:, }",
    fix="Use output_type='{nearest}'.",
)
TILE_BEYOND_WARPGROUPS = EMIT.worded(
    argument="tile",
    found="a tile of {tile: x }",
    limit="two warpgroups hold at most {accumulators} accumulators a thread, and one instruction covers all of n",
    fix="Plan with tile={nearest}.",
)
TILE_BEYOND_MMA = EMIT.worded(
    argument="tile",
    found="a tile of {tile: x }",
    limit="mma takes 16 rows, 8 columns and {k_step} of k, in at most {accumulators} accumulators a thread",
    fix="Plan with tile=(64, 64, {k}).",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmOperand:
    """A matrix of the product: its plan, where it lies in shared memory, and how it is copied and read."""

    name: str
    plan: Plan
    problem: Problem
    terms: AddressTerms
    mn: str  # the name of its rows in the kernel
    offset: int
    transposed: bool
    copies: tuple[TileCopy, ...]  # none where threads copy
    map: Facts | None
    descriptors: list[list[str]] | None  # where the tensor core reads by descriptor
    descriptor_fields: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaWork:
    """Warpgroups that multiply by wgmma."""

    consumer: str = "wgmma"
    wgmma: str
    wgmma_registers: int
    wgmma_flags: str
    k_steps: int
    groups: int
    blocks: int  # of 64 rows, for each warpgroup
    consumer_threads: int
    threads: int
    columns: int
    partial: bool = False
    target: str
    rows_operand: GemmOperand  # gives wgmma its 64 rows; the other one its columns
    columns_operand: GemmOperand
    owners: int  # blocks of a cluster that add and store
    share: int  # columns of the sums that one of them has
    producers: int  # warps
    promoted: bool  # whether the sums of a K step are added to sums of full precision


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaWork:
    """Warps that multiply by mma."""

    consumer: str = "mma"
    mma: str
    warps: tuple[int, int]
    consumer_threads: int
    threads: int
    columns: int  # of a warp
    partial: bool  # whether a slice of C has part of a warp's columns
    target: str


@dataclass(frozen=True, slots=True)
class EpilogueFacts:
    """How the sums of a thread are declared and indexed, and the rows and columns of a slice of C that they belong to."""

    slices: int
    buffer: str  # added to C_OFFSET: which of two buffers a slice takes
    sums: str
    sums_extents: str
    first_row: str
    first_column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductFacts:
    """The product, its matrices and its types."""

    gemm: GemmPlan
    title: str
    operands: list[GemmOperand]
    a: GemmOperand
    b: GemmOperand
    c: GemmOperand | None  # where TMA stores
    tma: bool
    destination: str
    offsets: dict[str, tuple[int, ...]]
    element_type: str
    output_type: str
    register: str
    conversion: str
    accumulator: str  # the C type of a sum, and its register in inline assembly
    constraint: str
    signed: bool
    spread: int
    number_bits: list[str]
    k_step: int
    stmatrix_count: int
    transposed: bool  # whether stmatrix writes the transpose of the sums
    schedule: Schedule
    tile_lines: list[str]
    moved_bytes: int  # A and B once, and C
    cuda_type: str  # as cuBLAS names them
    cuda_output_type: str
    cuda_compute: str
    cublas_type: int  # the same as numbers
    cublas_output_type: int
    cublas_compute: int
    rank: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProgram:
    """Everything that the program of a GEMM is told."""

    product: ProductFacts
    work: WgmmaWork | MmaWork
    epilogue: EpilogueFacts
    roles: RolesFacts | None  # where TMA loads

    def facts(self) -> Facts:
        """All of it, by the names that the templates use."""
        parts = told(self.product, self.work, self.epilogue)
        return parts if self.roles is None else parts | told(self.roles)


def gemm_program(gemm: GemmPlan) -> GemmProgram:
    """What the program of a GEMM is told."""
    row = multiplied(gemm.data_type, "a GEMM", GEMM_TYPE_NOT_MULTIPLIED)
    require_program(gemm.a.problem.tensor_core)
    conversion = _conversion(gemm, row)
    operands = _operands(gemm)
    work = _wgmma(gemm, row, operands) if gemm.a.problem.reads_by_descriptor else _mma(gemm, row)
    epilogue = _epilogue(gemm, work)
    product = _product(gemm, row, operands, conversion, work.columns)
    roles = None
    if product.c is not None:
        roles = _roles(gemm, product, product.c, work, epilogue)
    return GemmProgram(product=product, work=work, epilogue=epilogue, roles=roles)


def _conversion(gemm: GemmPlan, row: Multiplied) -> str:
    """The body of the function that makes C's bits of a sum."""
    conversions = {name: body for (sums, name), body in CONVERSION.items() if sums == row.accumulator}
    if gemm.output_type.ptx not in conversions:
        known = tuple(conversions)
        raise SUMS_NOT_CONVERTED.error(
            data_type=gemm.output_type.name, sums=row.accumulator, known=known, nearest=known[0]
        )
    return conversions[gemm.output_type.ptx]


def _product(
    gemm: GemmPlan, row: Multiplied, operands: dict[str, GemmOperand], conversion: str, columns: int
) -> ProductFacts:
    bits = gemm.output_type.bits
    cuda_type = _CUDA_TYPE[gemm.data_type.ptx]
    cuda_output_type = _CUDA_TYPE[gemm.output_type.ptx]
    cuda_compute = _CUDA_COMPUTE.get(gemm.data_type.ptx, "CUBLAS_COMPUTE_32F")
    stmatrix_count = 0
    if gemm.epilogue is not None and bits == 16:
        stmatrix_count = 4 if columns % 16 == 0 else 2
    return ProductFacts(
        gemm=gemm,
        title=f"GEMM {by(gemm.shape)} {gemm.data_type.ptx}, tile {by(gemm.tile)}",
        operands=list(operands.values()),
        a=operands["a"],
        b=operands["b"],
        c=operands.get("c"),
        tma=gemm.epilogue is not None,
        destination=load_destination(gemm.arch),
        offsets=gemm.smem_offsets(),
        element_type=ELEMENT[gemm.data_type.bits],
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
        tile_lines=_tile_lines(gemm),
        moved_bytes=_moved_bytes(gemm),
        cuda_type=cuda_type,
        cuda_output_type=cuda_output_type,
        cuda_compute=cuda_compute,
        cublas_type=_CUDA_NUMBER[cuda_type],
        cublas_output_type=_CUDA_NUMBER[cuda_output_type],
        cublas_compute=_CUDA_NUMBER[cuda_compute],
    )


def _moved_bytes(gemm: GemmPlan) -> int:
    m, n, k = gemm.shape
    return ((m + n) * k * gemm.data_type.bits + m * n * gemm.output_type.bits) // 8


def _tile_lines(gemm: GemmPlan) -> list[str]:
    """Where a tile of this number starts: tiles go down m, in groups where the plan says so."""
    group = gemm.schedule.group
    if not 0 < group < tile_grid(gemm.shape, gemm.tile)[0]:
        return ["const int m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;"]
    return [
        "const int first = tile / (GROUP * N_TILES) * GROUP, rows = M_TILES - first < GROUP ? M_TILES - first : GROUP;",
        "const int m = (first + tile % (GROUP * N_TILES) % rows) * TILE_M, n = tile % (GROUP * N_TILES) / rows * TILE_N;",
    ]


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
    m, n, k = gemm.shape
    offsets = gemm.smem_offsets()
    operands = {
        "a": _operand("a", "m", gemm.a, (m, k), offsets["a"][0]),
        "b": _operand("b", "n", gemm.b, (n, k), offsets["b"][0]),
    }
    if gemm.epilogue is not None:
        shape = (n, m) if gemm.schedule.swapped else (m, n)
        operands["c"] = _operand("c", "mn", gemm.epilogue, shape, offsets["epilogue"][0])
    return operands


def _operand(name: str, mn: str, plan: Plan, shape: tuple[int, int], offset: int) -> GemmOperand:
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
        copies=copies_of(plan, mn) if by_tma else (),
        map=map_facts(plan.tensor_map(0, shape)) if by_tma else None,
        descriptors=None if described is None else described.descriptors,
        descriptor_fields=None if described is None else described.descriptor_fields,
    )


def _wgmma(gemm: GemmPlan, row: Multiplied, operands: dict[str, GemmOperand]) -> WgmmaWork:
    rows_plan, columns_plan = gemm.operands
    a = rows_plan.descriptors()
    b = columns_plan.descriptors()
    n = b.block_mn
    groups = min(2, len(a))
    blocks = len(a) // groups
    most = MAX_ACCUMULATORS // 2 if gemm.product.is_promoted else MAX_ACCUMULATORS
    if len(b) != 1 or len(a) % groups or blocks * n // 2 > most:
        raise TILE_BEYOND_WARPGROUPS.error(tile=gemm.tile, accumulators=most, nearest=(128, 2 * most, gemm.tile[2]))
    instruction = row.wgmma(n, b.k_per_step, rows_plan.problem.major, columns_plan.problem.major)
    names = ("b", "a") if gemm.schedule.swapped else ("a", "b")
    stored = 0
    if gemm.epilogue is not None:
        stored = gemm.epilogue.problem.tile[1] if gemm.schedule.swapped else gemm.epilogue.problem.columns
    return WgmmaWork(
        wgmma=instruction.wgmma,
        wgmma_registers=instruction.wgmma_registers,
        wgmma_flags=instruction.wgmma_flags,
        k_steps=len(b[0]),
        groups=groups,
        blocks=blocks,
        consumer_threads=groups * WARPGROUP_THREADS,
        threads=groups * WARPGROUP_THREADS + 32 * gemm.producers,
        producers=gemm.producers,
        columns=stored,
        target=str(gemm.arch.target("wgmma")),
        rows_operand=operands[names[0]],
        columns_operand=operands[names[1]],
        owners=gemm.schedule.owners(n),
        share=gemm.share,
        promoted=gemm.product.is_promoted,
    )


def _mma(gemm: GemmPlan, row: Multiplied) -> MmaWork:
    _, n, k = gemm.tile
    k_step = _k_step(gemm)
    warps = gemm.warps
    if not prod(warps) or k % k_step:
        raise TILE_BEYOND_MMA.error(tile=gemm.tile, accumulators=MAX_ACCUMULATORS, k_step=k_step, k=2 * k_step)
    producer_warps = 0 if gemm.epilogue is None else 1
    return MmaWork(
        mma=row.mma(k_step),
        warps=warps,
        consumer_threads=32 * prod(warps),
        threads=32 * (prod(warps) + producer_warps),
        columns=n // warps[1],
        partial=gemm.epilogue is not None and gemm.slices > 1,
        target=gemm.arch.name,
    )


def _epilogue(gemm: GemmPlan, work: WgmmaWork | MmaWork) -> EpilogueFacts:
    """Indices of loops with one turn are left out: one block of rows, one warpgroup, one slice."""
    slices = gemm.slices if gemm.epilogue is not None else 1
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
    buffer = ""
    if gemm.c_buffers > 1:
        number = "slice" if slices > 1 else "0"
        if gemm.schedule.persistent:
            number = f"(t * {slices} + slice)" if slices > 1 else "t"
        buffer = f" + {number} % {gemm.c_buffers} * C_BYTES"
    registers = f"[{work.wgmma_registers}]"
    has_blocks = work.blocks > 1
    return EpilogueFacts(
        slices=slices,
        buffer=buffer,
        sums="d[block]" if has_blocks else "d",
        sums_extents=f"[{work.blocks}]{registers}" if has_blocks else registers,
        first_row=f"{_block_row(work)}warp * 16",
        first_column="first",
    )


def _block_row(work: WgmmaWork) -> str:
    """The first row of a block of 64: this warpgroup's, and of these the one that the loop is at."""
    if work.groups > 1 and work.blocks > 1:
        return f"(group * {work.blocks} + block) * 64 + "
    if work.groups > 1:
        return "group * 64 + "
    return "block * 64 + " if work.blocks > 1 else ""


def _roles(
    gemm: GemmPlan, product: ProductFacts, c: GemmOperand, work: WgmmaWork | MmaWork, epilogue: EpilogueFacts
) -> RolesFacts:
    """What the producer and the consumers do, as the GEMM's pipeline says."""
    schedule = gemm.schedule
    tile = [*_tile_number(schedule), *product.tile_lines]
    first_k = "k_tile * TILE_K"
    if not schedule.persistent or schedule.tail > 1:
        first_k = "first_k + k_tile * TILE_K"
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    producer = Work(
        lines={
            "copy a": copy_lines("tma_load(a{}, &a_map, full + 8 * slot, {});", product.a.copies),
            "copy b": copy_lines("tma_load(b{}, &b_map, full + 8 * slot, {});", product.b.copies),
        },
        opening={
            "t": tile,
            "k_tile": [f"const int k = {first_k};", stages],
            "early": _early_lines(first_k, "early", "b"),
            "late": _early_lines(first_k, "late", "a"),
        },
        notes={
            "griddepcontrol wait": "the kernel before this one has written A",
            "griddepcontrol launch": "the next one may start",
            "wait empty": "passes at once while the slots are fresh",
            "expect full": "A and B",
            "tail empty": "every stage was read",
        },
    )
    if isinstance(work, WgmmaWork):
        pipeline = plan_pipeline(gemm, consumers=work.groups)
        arrivals = "one arrival of each consumer warpgroup"
        sums = f"Accumulator d{epilogue.sums_extents};"
        clear = "true" if work.promoted else "k_tile == 0"
        share = f"group, {clear}" if work.groups > 1 else clear
        if work.promoted:
            sums = f"Accumulator d{epilogue.sums_extents} = {{}}, step_sums{epilogue.sums_extents};"
    else:
        pipeline = plan_pipeline(gemm)
        arrivals = "one arrival of each consumer warp"
        sums = f"Accumulator d{epilogue.sums_extents} = {{}};"
        share = "first_m, first_n"
    stores = copy_lines("tma_store(&c_map, c_slice{}, {});", c.copies)
    leaves = "break" if schedule.persistent else "return"
    index = "blockIdx.x % TAIL_TILES" if schedule.tail > 1 else "tile * OWNERS + rank"
    consumer = Work(
        lines={
            "multiply": _multiply_lines(work, share),
            "write a": [],
            "write parts": ["send_parts(d, base, rank);"],
            "read parts": ["add_part(d, base, rank, other);"],
            "write partial": [f"if (!add_all(d, partial, arrived, {index}, part)) {leaves};  // another block stores"],
            "write": rendered("gemm_epilogue.jinja", told(product, work, epilogue)).splitlines(),
            "store": [_stored_at(gemm, epilogue), *stores],
        },
        opening={"t": [*tile, sums], "k_tile": [stages]},
        closing={"k_tile": ["promote(d, step_sums);"]} if isinstance(work, WgmmaWork) and work.promoted else {},
        notes={
            "wait_group bulk": "TMA has read the last slice",
            "fence proxy.async": "before TMA's next access",
            "wait_group wgmma": "older products have read their stages",
        },
        unrolled=("slice",),
    )
    return RolesFacts.of(pipeline, producer, consumer, arrivals)


def _early_lines(first_k: str, counter: str, matrix: str) -> list[str]:
    """The k and the stage of one matrix, for the loops of a dependent launch."""
    name = matrix.upper()
    return [
        f"const int k = {first_k.replace('k_tile', counter)};",
        f"const unsigned {matrix} = base + {name}_OFFSET + slot * {name}_STAGE_BYTES;",
    ]


def _multiply_lines(work: WgmmaWork | MmaWork, share: str) -> list[str]:
    """A K step; where sums are promoted, those of the step before are added first: they are complete by then."""
    if isinstance(work, WgmmaWork) and work.promoted:
        return ["if (k_tile > 0) promote(d, step_sums);", f"multiply(step_sums, a, b, {share});"]
    return [f"multiply(d, a, b, {share});"]


def _tile_number(schedule: Schedule) -> list[str]:
    """The number of the tile that a persistent block takes in its round t."""
    if schedule.tail == 1:
        return ["const int tile = blockIdx.x + t * gridDim.x;"]
    return [
        "const int part = t == whole ? blockIdx.x / TAIL_TILES : 0, first_k = part * TAIL_K_TILES * TILE_K;",
        "const int tile = t == whole ? whole * BLOCKS + blockIdx.x % TAIL_TILES : blockIdx.x + t * BLOCKS;",
    ]


def _stored_at(gemm: GemmPlan, epilogue: EpilogueFacts) -> str:
    """Where a slice of the sums lies in C."""
    parts = ["m" if gemm.schedule.swapped else "n"]
    if gemm.schedule.split > 1:
        parts.append("rank * SHARE")
    if epilogue.slices > 1:
        parts.append("slice * C_COLUMNS")
    column = " + ".join(parts)
    if gemm.schedule.swapped:
        return f"const int mn = n, k = {column};  // columns and rows of C"
    return f"const int mn = m, k = {column};  // rows and columns of C"
