"""The facts for the templates of a GEMM's program: its product, who multiplies, its epilogue and its roles."""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.emitter.cublas_names import CudaName
from tilescope.emitter.gemm_parameters import Parameter
from tilescope.emitter.source_template import Facts, template_values
from tilescope.emitter.tile_program import RolesFacts, TileCopy
from tilescope.layout import AddressTerms
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.gemm_schedule import Schedule
from tilescope.planner.loading import Registers
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmOperand:
    """A matrix of the product: its plan, its place in shared memory, and how it is copied and read."""

    name: str
    plan: Plan
    problem: Problem
    terms: AddressTerms
    mn: str  # the name of its rows in the kernel
    offset: int
    transposed: bool
    copies: tuple[TileCopy, ...]  # none where threads copy
    map: Facts | None
    dims: list[str]  # of the map, and its strides, as expressions of m
    strides_bytes: list[str]
    descriptors: list[list[str]] | None  # where the tensor core reads by descriptor
    descriptor_fields: str | None


@dataclass(frozen=True, slots=True)
class BlockScaleFacts:
    """The arrays of scales that are applied in registers."""

    k_blocks: int
    a_count: int  # scales of A that a thread has
    b_shape: tuple[int, int]  # of one item
    item: bool  # whether the kernel has an item at hand
    stacks_a: bool  # whether every item has scales of A
    is_ahead: bool  # whether those of the next K step are loaded behind the products of one
    declared: str  # the consumers' line before the K steps of a tile
    prefetch: str  # the producer's line for a stage
    fetches: tuple[str, ...]  # the consumers' lines for a K step, behind its products


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
    cluster: tuple[int, int]  # blocks along m and along n that fetch for each other
    cluster_blocks: int  # of both together
    sharing_blocks: str  # these in words
    ping_pong: bool  # whether two warpgroups take tiles in turn
    step_sums: tuple[str, ...]  # accumulators that hold the sums of a K step in turn; none: nothing is promoted
    registers: Registers | None  # that setmaxnreg distributes
    scales: None = None  # wgmma takes no scale factors
    block_scales: BlockScaleFacts | None = None  # those of float32, which threads apply


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
    scales: ScaleFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcgen05Work:
    """One thread that multiplies by tcgen05, and four warps that take the sums from tensor memory."""

    consumer: str = "tcgen05"
    kind: str
    cta_group: int  # blocks that multiply together
    cluster: tuple[int, int]  # blocks along m and along n
    cluster_blocks: int  # of both together
    instruction: str  # the descriptor of its types and shape
    instruction_text: str
    k_steps: int
    blocks: int  # of 128 rows, or of 64
    consumer_threads: int  # that store
    threads: int
    columns: int  # of a slice of the sums
    partial: bool = False
    target: str
    rows_operand: GemmOperand  # gives the instruction its rows; the other one its columns
    columns_operand: GemmOperand
    tmem_load: TmemLoad
    scales: ScaleFacts | None = None


def _format_numbers(numbers: object) -> list[str]:
    """The numbers of a map, as text."""
    return [str(number) for number in numbers] if isinstance(numbers, tuple) else []


@dataclass(frozen=True, slots=True)
class ScaledOperand:
    """The scale factors of A or B: their map, their place, and where the instructions find them."""

    name: str  # sfa or sfb
    mn: str  # the name of the operand's rows in the kernel
    offset: int  # of the first stage in shared memory
    stage_bytes: int
    box_words: int  # that a K step moves along the map
    map: Facts
    column: int  # of tensor memory, behind the accumulators
    copies: list[tuple[str, int]]  # tcgen05.cp: descriptor of a stage at address 0, and column
    step_columns: list[int]  # for every instruction along k

    @property
    def dims(self) -> list[str]:
        """Of the map, as a matrix's."""
        return _format_numbers(self.map["dims"])

    @property
    def strides_bytes(self) -> list[str]:
        """Of the map, as a matrix's."""
        return _format_numbers(self.map["strides_bytes"])


@dataclass(frozen=True, slots=True)
class ScaleFacts:
    """The scale factors of a product."""

    format: str
    block: int  # elements of k under one scale
    qualifier: str  # of tcgen05.mma
    instructions: list[str]  # a word for every instruction along k: it selects the byte of the scale word
    one: str  # the bits of scales 1 and 2
    two: str
    has_global: bool  # whether C is scaled by one number, too
    block_columns: int  # from the scales of 128 rows to those of the next 128
    shift: str  # where in its first atom a tile of the operand with the columns begins, in columns of tensor memory; "": at 0
    a: ScaledOperand
    b: ScaledOperand

    @property
    def both(self) -> tuple[ScaledOperand, ScaledOperand]:
        """Of A, then of B."""
        return self.a, self.b


@dataclass(frozen=True, slots=True)
class TmemLoad:
    """How tcgen05.ld loads a slice of the accumulators to the registers of a thread."""

    shape: str  # 16x256b: as mma's D fragment; 32x32b: one row a thread
    pieces: int  # in which a thread has its rows
    repeats: int  # of the shape in one instruction
    columns: int  # that one instruction loads
    registers: int  # of one instruction


@dataclass(frozen=True, slots=True)
class EpilogueFacts:
    """How the sums of a thread are declared and indexed, and the rows and columns of a slice of C that they belong to."""

    slices: int
    buffer: str  # added to C_OFFSET: which of two buffers a slice takes
    sums: str
    sums_extents: str
    first_row: str
    first_column: str
    c_first: str = ""  # of C: the column of a slice's first sums, of swapped operands the row
    finish_declarations: str = ""  # other parameters of the epilogue, after m and n
    finish_arguments: str = ""
    bias_pairs: int = 0  # of neighbouring columns of C whose bias a lane has, unless tiles are swapped
    bias_column: str = ""  # of C: the first one that a block stores, of swapped tiles a warp
    fetches: bool = False  # whether a residual is loaded from global memory, for several columns at once
    fetched_columns: int = 0  # of C
    fetch_declarations: str = ""
    fetch_arguments: str = ""


@dataclass(frozen=True, slots=True)
class ResidualFacts:
    """The type of a residual."""

    element: str  # the C type of its bits
    data_type: str
    read: str  # a float, from `bits`
    one: str  # the bits of 1


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
    rows: int  # of A, in the program's own launch
    parameters: tuple[Parameter, ...]  # of the kernel, behind its matrices
    alpha: str  # of that launch
    beta: str
    tolerance: str  # of what the hardware approximates, by the mantissa of C
    residual: ResidualFacts | None
    decoding: str  # C's bits as a float, where the check needs them
    product_decoding: str  # of a product in the type of the operands; "": cuBLAS stores none
    load_ranks: list[int]  # of the maps
    store_ranks: list[int]
    tile_lines: list[str]
    moved_bytes: int  # A and B once, and C
    cuda_type: CudaName
    cuda_output_type: CudaName
    cuda_compute: CudaName
    linkage: str = 'extern "C"'  # of the kernel; a header's is static
    rank: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmProgram:
    """All facts that the program of a GEMM takes."""

    product: ProductFacts
    work: WgmmaWork | MmaWork | Tcgen05Work
    epilogue: EpilogueFacts
    roles: RolesFacts | None  # where TMA loads

    def facts(self) -> Facts:
        """All of it, by the names that the templates use."""
        scales = self.work.scales
        parts = template_values(self.product, self.work, self.epilogue)
        parts["encoded_maps"] = [*self.product.operands, *(() if scales is None else scales.both)]
        return parts if self.roles is None else parts | template_values(self.roles)
