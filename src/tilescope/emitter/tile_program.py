"""A plan as a whole program: the facts for the templates of a load and of a store.

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
from tilescope.emitter.source_template import EMIT, Facts, template_values
from tilescope.emitter.tile_reader import Identity, Reader, reader_of
from tilescope.layout import AddressTerms, Layout
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Barrier
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.plans import Plan
from tilescope.planner.problem import Problem
from tilescope.sync.mbarrier import MBARRIER_BYTES
from tilescope.tensor_map.any_map import AnyMap

CONSUMER_WARPS = 4
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


class Coordinate(NamedTuple):
    """A coordinate of a copy: name / divisor + offset; without a name only the offset."""

    name: str
    offset: int
    divisor: int = 1

    def __str__(self) -> str:
        if not self.name:
            return str(self.offset)
        divided = f"{self.name} / {self.divisor}" if self.divisor > 1 else self.name
        return f"{divided} + {self.offset}" if self.offset else divided


class TileCopy(NamedTuple):
    """A copy of one tile: its offset in the stage, its coordinates in `mn` and k, and where its block's part begins."""

    offset: int
    coords: tuple[Coordinate, ...]
    part: str = ""


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


def copies_of_part(plan: Plan, mn: str, parts: int, part: str) -> tuple[TileCopy, ...]:
    """The copies of one part of a tile that several blocks fetch for each other; `part` names its number in the kernel.

    >>> from tilescope.planner import plan_gemm
    >>> gemm = plan_gemm(512, 128, 64, "bf16", arch="sm_100", tile=(128, 64, 64), multicast=2)
    >>> copy_lines("load(b{}, {});", copies_of_part(gemm.b, "n", 2, "b_part"))
    ['load(b + b_part * 4096, k, n + b_part * 32);']
    """
    rows = plan.containers.as_rows().tiling.shape[0] // parts  # the outer coordinate of a copy counts them
    step = next(copy.smem_offset_bytes for copy in plan.copies if copy.coords == (0, rows))
    part_copies = [
        copy for copy, planned in zip(copies_of(plan, mn), plan.copies, strict=True) if planned.coords[1] < rows
    ]
    return tuple(
        TileCopy(copy.offset, (inner, outer._replace(name=f"{outer.name} + {part} * {rows}")), f"{part} * {step}")
        for copy in part_copies
        for inner, outer in (copy.coords,)
    )


def copy_lines(call: str, copies: tuple[TileCopy, ...]) -> list[str]:
    """A call for each copy: its offset in the stage, and its coordinates."""
    lines = []
    for copy in copies:
        offset = f" + {copy.offset}" if copy.offset else ""
        offset += f" + {copy.part}" if copy.part else ""
        lines.append(call.format(offset, ", ".join(map(str, copy.coords))))
    return lines


def map_facts(tensor_map: AnyMap) -> Facts:
    """A tensor map's arguments as in the encode call; its kind determines which there are."""
    data_type = tensor_map.data_type.tma.name
    swizzle = tensor_map.swizzle.name
    arguments = {name: getattr(tensor_map, name) for name in tensor_map.to_dict()}
    return {
        **arguments,
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
    epilogue_steps: str = ""  # of its own role, if the accumulators are in tensor memory
    scheduler_steps: str = ""  # of the role that requests tiles, if the schedule is dynamic

    @classmethod
    def of(cls, pipeline: Pipeline, producer: Work, consumer: Work, consumer_arrivals: str) -> RolesFacts:
        """From a pipeline."""
        return cls(
            barriers=pipeline.barriers,
            arrivals={
                "full": "the producer's arrive.expect_tx",
                "empty": consumer_arrivals,
                "order": "the other warpgroup",
                "residual_full": "the arrive.expect_tx of the thread that stores",
            },
            producer=role_text(pipeline, "producer", producer, 6),
            consumer_steps=role_text(pipeline, "consumer", consumer, 2),
        )


class Region(NamedTuple):
    """The shared memory after the stages."""

    name: str
    offset: int
    comment: str


@dataclass(frozen=True, slots=True)
class LoadFacts:
    """The program of a load: how the tile is read, and all addresses."""

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
    """All facts of a program for the plan of one tile."""

    tile: TileFacts
    matrix: MatrixFacts
    work: LoadFacts | StoreFacts
    reader: Reader | None  # of a load
    roles: RolesFacts | None  # where TMA loads

    def facts(self) -> Facts:
        """All of it, by the names that the templates use."""
        facts = template_values(self.tile, self.matrix, self.work)
        if self.reader is not None:
            facts |= template_values(self.reader)
        if self.roles is not None:
            facts |= template_values(self.roles)
        return facts


def tile_program(plan: Plan) -> TileProgram:
    """The facts of a program for the plan of one tile."""
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
        reader = reader_of(plan)
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
    """The code of the warps of a load by TMA, from its pipeline."""
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
    regions = []  # the stages: name, bytes, comment
    if reader.identity is not None:
        regions.append(("IDENTITY", reader.identity.bytes, "behind the stages"))
    if pipeline is not None:
        barriers_bytes = problem.stages * MBARRIER_BYTES
        regions.append(("FULL", barriers_bytes, "a barrier a stage: the tile has arrived"))
        regions.append(("EMPTY", barriers_bytes, "and: the tile was read"))
    sizes = (size for _, size, _ in regions)
    *offsets, smem_bytes = accumulate(sizes, initial=problem.stages * plan.stage_bytes)
    producer_warps = 0 if pipeline is None else 1
    return LoadFacts(
        target=str(problem.arch.target("wgmma")) if problem.reads_by_descriptor else problem.arch.name,
        identity=reader.identity,
        group_steps="wgmma_commit(); wgmma_wait<0>();" if pipeline is None else group_text(pipeline, "wgmma"),
        regions=[Region(name, at, comment) for (name, _, comment), at in zip(regions, offsets, strict=True)],
        smem_bytes=smem_bytes,
        threads=32 * (CONSUMER_WARPS + producer_warps),
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
