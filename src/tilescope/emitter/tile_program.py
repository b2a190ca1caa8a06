"""A plan as a whole program: what the templates of a load and of a store say, as data.

    plan ──▶ facts (copies, descriptors, addresses, roles) ──▶ template ──▶ source

A kernel proves its own plan. A load multiplies every tile by an identity matrix, so that the accumulators are the
tile's elements (or lets threads read it); a store writes known elements. The host compares all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from tilescope.arch import Arch
from tilescope.emitter.role_text import Work, group_text, role_text
from tilescope.emitter.source import (
    EMIT,
    MULTIPLIED,
    TYPE_NOT_MULTIPLIED,
    Facts,
    Multiplied,
    multiplied,
    told,
)
from tilescope.layout import AddressTerms, Layout
from tilescope.mma.consumer import Consumer
from tilescope.mma.descriptor import WgmmaDescriptor
from tilescope.mma.instruction import K_STEP_BYTES
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Barrier
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.planned_tile import MBARRIER_BYTES
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.smem.access import Access
from tilescope.tensor_map.any_map import AnyMap

CONSUMER_WARPS = 4
IDENTITY_ROWS = 64  # of A, which wgmma takes in blocks of 64; B's identity has as many rows as a K step
_SUMMARY = (  # reasons of the plan that the program repeats
    "row-is-a-span",
    "row-of-spans",
    "core-matrices",
    "plain-rows",
    "boxes",
    "folded-box",
    "copied-by-threads",
    "budget",
)
ELEMENT = {8: "unsigned char", 16: "unsigned short", 32: "unsigned", 64: "unsigned long long"}
# an operand of inline assembly, by bits
REGISTER = {8: '"r"(static_cast<unsigned>(value))', 16: '"h"(value)', 32: '"r"(value)', 64: '"l"(value)'}

ELEMENT_NOT_MOVED = EMIT.worded(
    argument="data_type",
    found="elements of {data_type}",
    limit="programs are emitted for elements of 8, 16, 32 and 64 bits",
    fix="Plan the same bytes as uint8.",
)
PROGRAM_EXCEEDS_SMEM = EMIT.worded(
    argument="stages",
    found="{smem_bytes} bytes of shared memory, barriers and identity included",
    limit="a block of {arch} has {limit_bytes} bytes",
    fix="Plan with {fewer} stages or a smaller tile.",
)
VECTOR_NOT_READ = EMIT.worded(
    limit="threads read 2 to 16 bytes at once",
    fix='Use consumer="ld.b16 rows".',
)
FP8_NOT_MULTIPLIED = EMIT.worded(
    argument="data_type",
    found="{data_type} on {arch}",
    limit="mma multiplies fp8 from sm_89 on",
    fix='Plan for arch="sm_89".',
)
TILE_NOT_TRANSPOSED = EMIT.worded(
    argument="major",
    found="{reader} of an MN-major {data_type} tile",
    limit="ldmatrix.trans moves 16 bits",
    fix='Plan with major="K".',
)


@dataclass(frozen=True, slots=True)
class TileFacts:
    """A plan, its problem, its layout and the terms of an address, for templates that read their fields, and a title."""

    plan: Plan
    problem: Problem
    layout: Layout
    terms: AddressTerms
    title: str

    @classmethod
    def of(cls, plan: Plan) -> TileFacts:
        """The facts of a plan."""
        problem = plan.problem
        title = f"{problem.tile[0]} x {problem.tile[1]} {problem.data_type.ptx} tile, {problem.major}-major"
        return cls(plan, problem, plan.layout, plan.layout.terms(), title)


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


class Coordinate(NamedTuple):
    """A coordinate of a copy: name / divisor + offset; without a name the offset alone."""

    name: str
    offset: int
    divisor: int = 1

    def __str__(self) -> str:
        if not self.name:
            return str(self.offset)
        divided = f"{self.name} / {self.divisor}" if self.divisor > 1 else self.name
        return f"{divided} + {self.offset}" if self.offset else divided


class TileCopy(NamedTuple):
    """A copy of one tile: its offset in the stage, and its coordinates in `mn` and k."""

    offset: int
    coords: tuple[Coordinate, ...]


def copies_of(plan: Plan, mn: str = "mn") -> tuple[TileCopy, ...]:
    """The copies of one tile, the name of its rows being `mn`."""
    row, column = (mn, "k") if plan.problem.major == "K" else ("k", mn)
    names = [column, row]
    divisors = [1, 1]
    if plan.folded:
        rows, columns = plan.containers.as_rows().tiling.atom
        names = ["", row, column]
        divisors = [1, 1, columns]
        if plan.atom_order == "row":
            names = ["", "", column, row]
            divisors = [1, 1, columns, rows]
    return tuple(
        TileCopy(copy.smem_offset_bytes, tuple(map(Coordinate, names, copy.coords, divisors))) for copy in plan.copies
    )


def copy_lines(call: str, copies: tuple[TileCopy, ...]) -> list[str]:
    """A call for each copy: its offset in the stage, and its coordinates."""
    lines = []
    for copy in copies:
        offset = f" + {copy.offset}" if copy.offset else ""
        lines.append(call.format(offset, ", ".join(map(str, copy.coords))))
    return lines


def map_facts(tensor_map: AnyMap) -> Facts:
    """A tensor map's arguments as the encode call spells them; its kind says which there are."""
    data_type = tensor_map.data_type.tma.name
    swizzle = tensor_map.swizzle.name
    own = {name: getattr(tensor_map, name) for name in tensor_map.to_dict()}
    return {
        **own,
        "rank": len(tensor_map.dims),
        "data_type": f"CU_TENSOR_MAP_DATA_TYPE_{data_type.upper()}",
        "interleave": tensor_map.interleave.driver_name,
        "l2_promotion": tensor_map.l2_promotion.driver_name,
        "oob_fill": tensor_map.oob_fill.driver_name,
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{swizzle.upper()}",
        "core": {  # what cuda.core calls them
            "interleave": tensor_map.interleave.name,
            "l2_promotion": tensor_map.l2_promotion.name,
            "oob_fill": tensor_map.oob_fill.name,
            "swizzle": swizzle,
            "data_type": data_type,
        },
    }


def load_destination(arch: Arch) -> str:
    """The state space that a TMA load names for its own block's shared memory.

    PTX 8.6 has .shared::cta. The older .shared::cluster means the same bytes, but is slow where there are no clusters worth the
    name (jax-ml/jax#40721, NVIDIA/cccl#6362); elsewhere it assembles with every toolkit that has TMA.

    >>> load_destination(Arch.named("sm_90")), load_destination(Arch.named("sm_121"))
    ('shared::cluster', 'shared::cta')
    """
    return "shared::cta" if arch.compute_capability[0] == 12 else "shared::cluster"


@dataclass(frozen=True, slots=True)
class RolesFacts:
    """What the producer and the consumers do."""

    barriers: tuple[Barrier, ...]
    arrivals: dict[str, str]  # who arrives, by barrier
    producer: str
    consumer_steps: str

    @classmethod
    def of(cls, pipeline: Pipeline, producer: Work, consumer: Work, consumer_arrivals: str) -> RolesFacts:
        """As a pipeline says."""
        return cls(
            barriers=pipeline.barriers,
            arrivals={"full": "the producer's arrive.expect_tx", "empty": consumer_arrivals},
            producer=role_text(pipeline, "producer", producer, 6),
            consumer_steps=role_text(pipeline, "consumer", consumer, 2),
        )


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
        """What the tile is multiplied by lies in registers."""
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


class Region(NamedTuple):
    """What lies behind the stages in shared memory."""

    name: str
    offset: int
    comment: str


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """The program of a load: how the tile is read, and where everything lies."""

    target: str
    identity: Identity | None
    group_steps: str  # that close a group of wgmma and wait for it
    regions: list[Region]
    smem_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The program of a store."""

    target: str
    stmatrix_count: int  # matrices an instruction writes; 0: stmatrix does not serve
    register: str  # an element as an operand of inline assembly
    smem_bytes: int
    threads: int
    steps: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixFacts:
    """The matrix that the program moves tile by tile, and how."""

    summary: list[str]
    element_type: str
    shape: tuple[int, int]
    pitch_bytes: int
    transposed: bool
    consumer_warps: int
    tma: bool
    destination: str
    rank: int
    map: Facts | None
    copies: tuple[TileCopy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TileProgram:
    """Everything that a program for the plan of one tile is told."""

    tile: TileFacts
    matrix: MatrixFacts
    work: LoadFacts | StoreFacts
    reader: Reader | None  # of a load
    roles: RolesFacts | None  # where TMA loads

    def facts(self) -> Facts:
        """All of it, by the names that the templates use."""
        facts = told(self.tile, self.matrix, self.work)
        if self.reader is not None:
            facts |= told(self.reader)
        if self.roles is not None:
            facts |= told(self.roles)
        return facts


def tile_program(plan: Plan) -> TileProgram:
    """What the program for the plan of one tile is told."""
    problem = plan.problem
    element = problem.data_type
    if element.bits not in ELEMENT or element.smem_bits != element.bits:
        raise ELEMENT_NOT_MOVED.error(data_type=element.name, bits=element.bits)
    matrix = _matrix(plan)
    reader = roles = None
    work: LoadFacts | StoreFacts
    if problem.direction == "store":
        work = _store(plan, matrix.copies)
    else:
        reader = _reader(plan)
        pipeline = None if plan.boxes is None else plan_pipeline(plan, arrivals="warp")
        roles = None if pipeline is None else _roles(pipeline, matrix.copies)
        work = _load(plan, reader, pipeline)
    limit_bytes = problem.arch.smem_per_block_bytes
    if work.smem_bytes > limit_bytes:
        raise PROGRAM_EXCEEDS_SMEM.error(
            smem_bytes=work.smem_bytes,
            limit_bytes=limit_bytes,
            arch=problem.arch.name,
            fewer=max(problem.stages - 1, 1),
        )
    return TileProgram(tile=TileFacts.of(plan), matrix=matrix, work=work, reader=reader, roles=roles)


def _matrix(plan: Plan) -> MatrixFacts:
    problem = plan.problem
    mn, k = problem.tile
    shape = problem.global_shape or (3 * mn, (2 * problem.stages + 1) * k)  # slots and phases come round twice
    contiguous = shape[1] if problem.major == "K" else shape[0]
    pitch_bytes = contiguous * problem.data_type.bits // 8
    if problem.strides_bytes:
        pitch_bytes = problem.strides_bytes[0]
    tma = plan.boxes is not None
    return MatrixFacts(
        summary=[str(reason) for reason in plan.reasons if reason.name in _SUMMARY],
        element_type=ELEMENT[problem.data_type.bits],
        shape=shape,
        pitch_bytes=pitch_bytes,
        transposed=problem.major == "MN",
        consumer_warps=CONSUMER_WARPS,
        tma=tma,
        destination=load_destination(problem.arch),
        rank=len(plan.box or ()),
        map=map_facts(plan.tensor_map(0, shape, (pitch_bytes,))) if tma else None,
        copies=copies_of(plan) if tma else (),
    )


_OPENING = {
    "i": ["const unsigned stage = base + slot * STAGE_BYTES;", "const int mn = mn_tile * TILE_MN, k = i * TILE_K;"]
}


def _roles(pipeline: Pipeline, copies: tuple[TileCopy, ...]) -> RolesFacts:
    """What the warps of a load by TMA do, as its pipeline says."""
    producer = Work(
        lines={"copy a": copy_lines("tma_load(stage{}, &map, full + 8 * slot, {});", copies)},
        opening=_OPENING,
        notes={
            "wait empty": "passes at once while the slots are fresh",
            "expect full": "all copies of a tile",
            "tail empty": "every tile was read",
        },
    )
    consumer = Work(
        lines={"multiply": ["consume(base, base + slot * STAGE_BYTES, result, mn_tile, i, k_tiles);"]},
        notes={"fence proxy.async": "the reads come before TMA's next writes"},
        inside=("wgmma",),
    )
    return RolesFacts.of(pipeline, producer, consumer, "one arrival of each consumer warp")


def _load(plan: Plan, reader: Reader, pipeline: Pipeline | None) -> LoadFacts:
    problem = plan.problem
    behind = []  # the stages: name, bytes, comment
    if reader.identity is not None:
        behind.append(("IDENTITY", reader.identity.bytes, "behind the stages"))
    if pipeline is not None:
        barriers_bytes = problem.stages * MBARRIER_BYTES
        behind.append(("FULL", barriers_bytes, "a barrier a stage: the tile has arrived"))
        behind.append(("EMPTY", barriers_bytes, "and: the tile was read"))
    sizes = (size for _, size, _ in behind)
    *offsets, smem_bytes = accumulate(sizes, initial=problem.stages * plan.stage_bytes)
    producer_warps = 0 if pipeline is None else 1
    return LoadFacts(
        target=str(problem.arch.target("wgmma")) if problem.reads_by_descriptor else problem.arch.name,
        identity=reader.identity,
        group_steps="wgmma_commit(); wgmma_wait<0>();" if pipeline is None else group_text(pipeline, "wgmma"),
        regions=[Region(name, at, comment) for (name, _, comment), at in zip(behind, offsets, strict=True)],
        smem_bytes=smem_bytes,
        threads=32 * (CONSUMER_WARPS + producer_warps),
    )


def require_program(row: Consumer | None) -> None:
    """Refuse a tensor core whose sums lie in tensor memory: no template reads it."""
    if row is not None and row.accumulators == "tensor memory":
        raise EMIT.error(consumer=row.name)


def _reader(plan: Plan) -> Reader:
    """How the tile is read in the proof: by descriptor, by ldmatrix and mma, or by threads."""
    problem = plan.problem
    consumer = problem.consumer
    require_program(problem.tensor_core)
    if isinstance(consumer, Access) and not consumer.op.is_matrix:
        return _thread_reader(plan, consumer)
    name = consumer.op.name if isinstance(consumer, Access) else consumer
    row = multiplied(problem.data_type, name, TYPE_NOT_MULTIPLIED)
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


def _store(plan: Plan, copies: tuple[TileCopy, ...]) -> StoreFacts:
    problem = plan.problem
    work = Work(
        lines={
            "write": ["write_tile(stage, mn_tile, i, k_tiles * TILE_K);"],
            "store": copy_lines("tma_store(&map, stage{}, {});", copies),
        },
        opening=_OPENING,
        notes={
            "wait_group bulk": "TMA has read what this slot held",
            "fence proxy.async": "every writer, before the barrier",
        },
    )
    return StoreFacts(
        target=problem.arch.name,
        stmatrix_count=_stmatrix_count(problem),
        register=REGISTER[problem.data_type.bits],
        smem_bytes=problem.stages * plan.stage_bytes,
        threads=32 * CONSUMER_WARPS,
        steps=role_text(plan_pipeline(plan), "epilogue", work, 2),
    )


def _stmatrix_count(problem: Problem) -> int:
    """The most matrices of 8 x 8 that an stmatrix writes, where the tile is a whole number of them; else 0."""
    mn, k = problem.tile
    if problem.data_type.bits != 16 or mn % 8 or k % 8:
        return 0
    matrices = mn * k // 64
    return next(count for count in (4, 2, 1) if matrices % count == 0)
