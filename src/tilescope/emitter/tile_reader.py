"""Who reads the tile of a load in the emitted proof: a warpgroup by descriptors, warps by ldmatrix, or threads.

wgmma       tile x identity, by descriptors       ──▶ the accumulators are the tile's elements
ldmatrix    tile x identity, by mma               ──▶ the same
threads     vectors of 2 to 16 bytes              ──▶ the elements themselves
"""

from __future__ import annotations

from dataclasses import dataclass

from tilescope.emitter.source_template import EMIT, MULTIPLIED, TYPE_NOT_MULTIPLIED, Multiplied, multiplied_row
from tilescope.mma.consumer import Consumer
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import WgmmaDescriptor
from tilescope.planner.plans import Plan
from tilescope.smem.access import Access

IDENTITY_ROWS = 64  # of A, which wgmma takes in blocks of 64; B's identity has as many rows as a K step
VECTOR_NOT_READ = EMIT.worded(
    limit="threads read 2 to 16 bytes at once",
    fix='Use {consumer:="ld.b16 rows"}.',
)
FP8_NOT_MULTIPLIED = EMIT.worded(
    argument="data_type",
    found="{data_type} on {arch}",
    limit="mma multiplies fp8 from sm_89 on",
    fix='Plan for {arch:="sm_89"}.',
)
TILE_NOT_TRANSPOSED = EMIT.worded(
    argument="major",
    found="{reader} of an MN-major {data_type} tile",
    limit="ldmatrix.trans moves 16 bits",
    fix='Plan with {major:="K"}.',
)


@dataclass(frozen=True, slots=True)
class DescriptorFacts:
    """The descriptors of a stage by [mn block][K step], and the fields that they share."""

    descriptors: list[list[str]]
    descriptor_fields: str

    @classmethod
    def of(cls, plan: Plan) -> DescriptorFacts:
        """The facts of a plan whose tile is read by descriptors."""
        first = plan.descriptors()[0][0]
        fields = f"leading {first.leading_bytes}, stride {first.stride_bytes} bytes, swizzle {first.swizzle.name}"
        return cls(plan.descriptor_words(), fields)


@dataclass(frozen=True, slots=True)
class SampleData:
    """How the host makes the bits of an element from a hash `h`."""

    bits: str
    comment: str


@dataclass(frozen=True, slots=True)
class Words:
    """What a lane reads at once: PTX width, C type and register constraint of a word, number of words."""

    ptx: str
    type: str
    constraint: str
    count: int


_VECTOR = {  # by bytes
    2: Words("b16", "unsigned short", "h", 1),
    4: Words("b32", "unsigned", "r", 1),
    8: Words("v2.b32", "unsigned", "r", 2),
    16: Words("v4.b32", "unsigned", "r", 4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadReader:
    """Threads that read the tile in vectors."""

    consumer: str = "threads"
    result_type: str = "Element"
    vector_bytes: int
    vector_words: Words
    by_columns: bool
    data: SampleData
    decode: None = None  # the host compares bits

    @property
    def identity(self) -> None:
        """What the tile is multiplied by."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Multiplying:
    """What all readers have that multiply the tile by an identity."""

    result_type: str
    accumulator: str  # the C type of a sum, and its register in inline assembly
    constraint: str
    one: str
    k_step: int
    data: SampleData
    decode: Multiplied  # how the host reads the bits of an element


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaReader(_Multiplying):
    """Warps that read the tile by ldmatrix."""

    consumer: str = "mma"
    mma: str  # the instruction
    mn_tail: bool  # whether the last instructions reach beyond the tile
    k_tail: bool

    @property
    def identity(self) -> None:
        """The other operand of the product is in registers."""
        return None


@dataclass(frozen=True, slots=True)
class Identity:
    """An identity matrix in shared memory, in core matrices."""

    bytes: int
    rows: int
    descriptor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WgmmaReader(_Multiplying):
    """A warpgroup that reads the tile by descriptors."""

    consumer: str  # wgmma_a or wgmma_b: the operand that the tile is
    descriptors: list[list[str]]
    descriptor_fields: str
    wgmma: str
    wgmma_registers: int
    wgmma_flags: str
    identity: Identity
    blocks: int
    k_steps: int
    n: int


Reader = ThreadReader | MmaReader | WgmmaReader


def require_program(row: Consumer | None) -> None:
    """Refuse a tensor core with accumulators in tensor memory: no template reads them."""
    if row is not None and row.accumulators == "tensor memory":
        raise EMIT.error(consumer=row.name)


def reader_of(plan: Plan) -> Reader:
    """How the tile is read in the proof: by descriptor, by ldmatrix and mma, or by threads."""
    problem = plan.problem
    consumer = problem.consumer
    require_program(problem.tensor_core)
    if isinstance(consumer, Access) and not consumer.op.is_matrix:
        return _thread_reader(plan, consumer)
    name = consumer.op.name if isinstance(consumer, Access) else consumer
    row = multiplied_row(problem.data_type, name, TYPE_NOT_MULTIPLIED)
    return _wgmma_reader(plan, row) if problem.reads_by_descriptor else _mma_reader(plan, row, name)


def _thread_reader(plan: Plan, access: Access) -> ThreadReader:
    data_type = plan.problem.data_type
    vector_bytes = max(access.op.access_bytes, data_type.bits // 8)
    if vector_bytes not in _VECTOR:
        raise VECTOR_NOT_READ.error(consumer=access.name, vector_bytes=vector_bytes)
    bits = MULTIPLIED["tf32"].sample if data_type.ptx.startswith("tf32") else "h"
    return ThreadReader(
        vector_bytes=vector_bytes,
        vector_words=_VECTOR[vector_bytes],
        by_columns="columns" in access.name,
        data=SampleData(bits, "any bits"),
    )


def _moderate(plan: Plan, row: Multiplied) -> SampleData:
    return SampleData(row.sample, f"a {plan.problem.data_type.name} of moderate size")


def _wgmma_reader(plan: Plan, row: Multiplied) -> WgmmaReader:
    loop = plan.descriptors()
    k_step = loop.k_per_step
    major = plan.problem.major
    core_matrices = WgmmaDescriptor(0, leading_bytes=128, stride_bytes=256, swizzle="none")
    if loop.operand == "A":  # the identity is B
        rows = n = k_step
        instruction = row.wgmma(n, k_step, major, "K")
    else:
        rows = IDENTITY_ROWS
        n = loop.block_mn
        instruction = row.wgmma(n, k_step, "K", major)
    described = DescriptorFacts.of(plan)
    return WgmmaReader(
        result_type=row.sum_type,
        accumulator=row.sum_type,
        constraint=row.constraint,
        one=row.one,
        k_step=_k_step(plan),
        data=_moderate(plan, row),
        decode=row,
        consumer=f"wgmma_{loop.operand.lower()}",
        descriptors=described.descriptors,
        descriptor_fields=f"{described.descriptor_fields}; the start is the offset in the stage",
        wgmma=instruction.wgmma,
        wgmma_registers=instruction.wgmma_registers,
        wgmma_flags=instruction.wgmma_flags,
        identity=Identity(rows * K_STEP_BYTES, rows, f"{core_matrices.encode():#x}"),
        blocks=len(loop),
        k_steps=len(loop[0]),
        n=n,
    )


def _k_step(plan: Plan) -> int:
    """Elements of k that one instruction takes."""
    return K_STEP_BYTES * 8 // plan.problem.data_type.bits


def _mma_reader(plan: Plan, row: Multiplied, reader: str) -> MmaReader:
    problem = plan.problem
    mn, k = problem.tile
    k_step = _k_step(plan)
    if row.name in ("e4m3", "e5m2") and not problem.arch.has("mma_fp8"):
        raise FP8_NOT_MULTIPLIED.error(data_type=row.name, arch=problem.arch.name)
    if problem.major == "MN" and problem.data_type.bits != 16:
        raise TILE_NOT_TRANSPOSED.error(reader=reader, data_type=row.name)
    return MmaReader(
        result_type=row.sum_type,
        accumulator=row.sum_type,
        constraint=row.constraint,
        one=row.one,
        k_step=k_step,
        data=_moderate(plan, row),
        decode=row,
        mma=row.mma(k_step),
        mn_tail=mn % 16 != 0,
        k_tail=k % k_step != 0,
    )
