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
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.planned_gemm import MAX_ACCUMULATORS
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.sentence import by

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
    fix="Plan with tile=(128, 256, {k}).",
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
    """How the sums of a thread are indexed, and the rows and columns of a slice of C that they belong to."""

    slices: int
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
    transposed: bool = False
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
    work = _wgmma(gemm, row) if gemm.a.problem.reads_by_descriptor else _mma(gemm, row)
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
    )


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
        operands["c"] = _operand("c", "mn", gemm.epilogue, (m, n), offsets["epilogue"][0])
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


def _wgmma(gemm: GemmPlan, row: Multiplied) -> WgmmaWork:
    a = gemm.a.descriptors()
    b = gemm.b.descriptors()
    n = b.block_mn
    groups = min(2, len(a))
    blocks = len(a) // groups
    if len(b) != 1 or len(a) % groups or blocks * n // 2 > MAX_ACCUMULATORS:
        raise TILE_BEYOND_WARPGROUPS.error(tile=gemm.tile, accumulators=MAX_ACCUMULATORS, k=gemm.tile[2])
    instruction = row.wgmma(n, b.k_per_step, gemm.a.problem.major, gemm.b.problem.major)
    return WgmmaWork(
        wgmma=instruction.wgmma,
        wgmma_registers=instruction.wgmma_registers,
        wgmma_flags=instruction.wgmma_flags,
        k_steps=len(b[0]),
        groups=groups,
        blocks=blocks,
        consumer_threads=groups * WARPGROUP_THREADS,
        threads=groups * WARPGROUP_THREADS + 32,
        columns=0 if gemm.epilogue is None else gemm.epilogue.problem.columns,
        target=str(gemm.arch.target("wgmma")),
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
            sums="d[block]",
            sums_extents="[ROWS][COLUMNS * 4]",
            first_row="first_m + block * 16",
            first_column=f"first_n + first{other_slices}",
        )
    registers = f"[{work.wgmma_registers}]"
    has_blocks = work.blocks > 1
    return EpilogueFacts(
        slices=slices,
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
    tile = "const int tile = blockIdx.x + t * gridDim.x, m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;"
    stages = "const unsigned a = base + A_OFFSET + slot * A_STAGE_BYTES, b = base + B_OFFSET + slot * B_STAGE_BYTES;"
    producer = Work(
        lines={
            "copy a": copy_lines("tma_load(a{}, &a_map, full + 8 * slot, {});", product.a.copies),
            "copy b": copy_lines("tma_load(b{}, &b_map, full + 8 * slot, {});", product.b.copies),
        },
        opening={"t": [tile], "k_tile": ["const int k = k_tile * TILE_K;", stages]},
        notes={
            "wait empty": "passes at once while the slots are fresh",
            "expect full": "A and B",
            "tail empty": "every stage was read",
        },
    )
    if isinstance(work, WgmmaWork):
        pipeline = plan_pipeline(gemm, consumers=work.groups)
        arrivals = "one arrival of each consumer warpgroup"
        sums = f"Accumulator d{epilogue.sums_extents};"
        share = "group, k_tile == 0" if work.groups > 1 else "k_tile == 0"
    else:
        pipeline = plan_pipeline(gemm)
        arrivals = "one arrival of each consumer warp"
        sums = f"Accumulator d{epilogue.sums_extents} = {{}};"
        share = "first_m, first_n"
    first_column = "n + slice * C_COLUMNS" if epilogue.slices > 1 else "n"
    stores = copy_lines("tma_store(&c_map, base + C_OFFSET{}, {});", c.copies)
    consumer = Work(
        lines={
            "multiply": [f"multiply(d, a, b, {share});"],
            "write": rendered("gemm_epilogue.jinja", told(product, work, epilogue)).splitlines(),
            "store": [f"const int mn = m, k = {first_column};  // rows and columns of C", *stores],
        },
        opening={"t": [tile, sums], "k_tile": [stages]},
        notes={
            "wait_group bulk": "TMA has read the last slice",
            "fence proxy.async": "before TMA's next access",
            "wait_group wgmma": "older products have read their stages",
        },
        unrolled=("slice",),
    )
    return RolesFacts.of(pipeline, producer, consumer, arrivals)
