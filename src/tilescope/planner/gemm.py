"""A GEMM tile planned whole: A, B and the epilogue, how many stages fit, and how well the tiles fill the card.

    for each k tile:  A (tile_m x tile_k) ─┐
                                           ├─▶ tensor core ─▶ accumulators ─▶ epilogue tile ─▶ C
                      B (tile_n x tile_k) ─┘

    shared memory = stages x (A + B) + epilogue + one mbarrier pair a stage

A tile shape is judged by its floor, the larger of arithmetic (in whole rounds of the card) and memory time, both
at rates measured on an H200. Among shapes within a tenth of the best floor, the one whose busiest SM fetches the
fewest operand bytes wins: large tiles for large matrices, and enough tiles for all SMs where there is little work.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilescope.arch import Arch, ArchName
from tilescope.data_type import DataType
from tilescope.errors import PlanError, RuleError, Violation, broken, printed
from tilescope.mma.canonical import Major
from tilescope.planner.plans import RESERVED_BYTES, Plan
from tilescope.planner.problem import CONSUMERS, best_consumer
from tilescope.planner.search import plan
from tilescope.tensor_map.reading import integer
from tilescope.value import Value, is_one_of, row_field

TILE_M = (64, 128, 256)
TILE_N = (8, 16, 32, 64, 96, 128, 192, 256)
LARGEST_ACCUMULATOR = 128 * 256  # elements: two warpgroups of 64 x 256 in registers, or all of tensor memory
MOST_STAGES = 8
FEWEST_STAGES = 2
BARRIER_BYTES = 16  # full and empty
K_TILE_BYTES = 128  # the widest swizzle's span
EPILOGUE_ROW_BYTES = 128
H200_SMS = 132
MOST_SMS = 1024
FLOPS_16_BIT = 790e12  # bf16 through cuBLAS on an H200
BYTES_PER_S = 4.55e12


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPlan(Value):
    """C = A x B for one block's tile: three plans, their stages, and the shared memory they share.

    >>> best = plan_gemm(4096, 4096, 4096, "bf16")
    >>> best.tile, best.stages, best.a.swizzle.name
    ((128, 256, 64), 4, '128B')
    """

    shape: tuple[int, int, int]
    data_type: DataType = row_field(DataType.named)
    tile: tuple[int, int, int]
    stages: int
    a: Plan
    b: Plan
    epilogue: Plan
    sms: int
    floor_us: float  # no kernel with these tiles is faster
    reasons: tuple[str, ...]
    others: tuple[str, ...]  # tile shapes that came after, each with its floor

    @property
    def smem_bytes(self) -> int:
        """Shared memory of a block: all stages of A and B, the epilogue's slice, the barriers."""
        return self.stages * (self.a.stage_bytes + self.b.stage_bytes + BARRIER_BYTES) + self.epilogue.stage_bytes

    @property
    def budget_bytes(self) -> int:
        """What a block can have."""
        return self.a.problem.arch.smem_per_block_bytes

    @property
    def tiles(self) -> int:
        """Tiles of C."""
        return -(-self.shape[0] // self.tile[0]) * -(-self.shape[1] // self.tile[1])

    @property
    def rounds(self) -> int:
        """How often every SM takes a tile, the last round perhaps not full."""
        return _rounds(self.shape, self.tile, self.sms)

    def smem_offsets(self) -> dict[str, tuple[int, ...]]:
        """Where each stage of A and of B, and the epilogue, start in an aligned block of shared memory.

        >>> plan_gemm(4096, 4096, 4096, "bf16").smem_offsets()["b"]
        (65536, 98304, 131072, 163840)
        """
        a = tuple(stage * self.a.stage_bytes for stage in range(self.stages))
        start = self.stages * self.a.stage_bytes
        b = tuple(start + stage * self.b.stage_bytes for stage in range(self.stages))
        return {"a": a, "b": b, "epilogue": (start + self.stages * self.b.stage_bytes,)}


def plan_gemm(
    m: int,
    n: int,
    k: int,
    data_type: Any,
    *,
    arch: ArchName | Arch = "sm_90",
    consumer: str | None = None,
    a_major: Major = "K",
    b_major: Major = "K",
    output_type: Any = None,
    tile: tuple[int, int, int] | None = None,
    stages: int | None = None,
    sms: int = H200_SMS,
) -> GemmPlan:
    """Tile shape, stages, swizzles, maps and shared-memory budget of a GEMM, planned together.

    The consumer is the architecture's best (tcgen05, wgmma, ldmatrix) unless given; `sms` is the card's.

    >>> low_batch = plan_gemm(16, 4096, 4096, "bf16")
    >>> low_batch.tile[0], low_batch.b.swizzle.name
    (64, '128B')
    """
    if not 1 <= integer("sms", sms) <= MOST_SMS:
        raise broken("gemm-sms", "sms", f"sms = {sms}", f"1 to {MOST_SMS} multiprocessors", "Use 132 for an H200.")
    if stages is not None and integer("stages", stages) < 1:
        raise broken("gemm-stages", "stages", f"stages = {stages}", "at least 1", "Leave it out for as many as fit.")
    shape = tuple(_extent(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
    row, target = DataType.named(data_type), Arch.named(arch)
    output = row if output_type is None else DataType.named(output_type)
    chosen = best_consumer(target) if consumer is None else consumer
    if not is_one_of(chosen, CONSUMERS):
        raise broken("gemm-consumer", "consumer", printed(consumer), ", ".join(CONSUMERS), "Use one of these, or none.")
    shapes = [_given_tile(tile)] if tile is not None else _ranked_tiles(shape, row, output, sms)
    refusals: list[Violation] = []
    for position, tile_shape in enumerate(shapes):
        try:
            found = _planned(shape, row, output, target, chosen, (a_major, b_major), tile_shape, stages, sms)
        except RuleError as error:
            refusals = refusals or list(error.violations)  # of the best tile: the others fail for the same or for less
        else:
            others = shapes[position + 1 : position + 4]
            return _with_reasons(found, tuple(_tile_in_words(shape, each, row, output, sms) for each in others))
    raise PlanError(refusals)


def _ranked_tiles(
    shape: tuple[int, ...], data_type: DataType, output: DataType, sms: int
) -> list[tuple[int, int, int]]:
    tiles = list(_tile_shapes(shape, data_type))
    floors = {tile: _floor_us(shape, tile, data_type, output, sms) for tile in tiles}
    near = 1.1 * min(floors.values())
    return sorted(tiles, key=lambda tile: (max(floors[tile], near), _busiest_bytes(shape, tile, data_type, sms)))


def _busiest_bytes(shape: tuple[int, ...], tile: tuple[int, int, int], data_type: DataType, sms: int) -> float:
    """Operand bytes that the SM with the most tiles fetches; rows beyond the matrix are filled, not fetched."""
    rounds = _rounds(shape, tile, sms)
    return rounds * (min(shape[0], tile[0]) + min(shape[1], tile[1])) * shape[2] * data_type.bits / 8


def _rounds(shape: tuple[int, ...], tile: tuple[int, int, int], sms: int) -> int:
    return -(-(-(-shape[0] // tile[0]) * -(-shape[1] // tile[1])) // sms)


def _tile_in_words(
    shape: tuple[int, ...], tile: tuple[int, int, int], data_type: DataType, output: DataType, sms: int
) -> str:
    floor = _floor_us(shape, tile, data_type, output, sms)
    busiest = _busiest_bytes(shape, tile, data_type, sms)
    return f"{' x '.join(map(str, tile))}: floor {floor:.1f} us, {busiest / 1e6:.1f} MB for the busiest SM"


def _tile_shapes(shape: tuple[int, ...], data_type: DataType) -> Iterator[tuple[int, int, int]]:
    tile_k = K_TILE_BYTES * 8 // data_type.smem_bits
    for tile_m in TILE_M:
        for tile_n in TILE_N:
            too_tall = tile_m > TILE_M[0] and tile_m >= 2 * shape[0]
            too_wide = tile_n > TILE_N[0] and tile_n >= 2 * shape[1]
            if tile_m * tile_n <= LARGEST_ACCUMULATOR and not too_tall and not too_wide:
                yield tile_m, tile_n, tile_k


def _planned(
    shape: tuple[int, ...], data_type: DataType, output: DataType, arch: Arch, consumer: str, majors: tuple[Major, Major],
    tile: tuple[int, int, int], stages: int | None, sms: int,
) -> GemmPlan:  # fmt: skip
    tile_m, tile_n, tile_k = tile
    copy: Any = "tma" if arch.has("tma") else "cp.async"
    common: dict[str, Any] = {"consumer": consumer, "arch": arch, "copy": copy}
    a = plan(
        (tile_m, tile_k), data_type, major=majors[0], operand="A", global_shape=(shape[0], shape[2]), **common
    ).best
    b = plan(
        (tile_n, tile_k), data_type, major=majors[1], operand="B", global_shape=(shape[1], shape[2]), **common
    ).best
    epilogue = _epilogue((tile_m, tile_n), output, arch, (shape[0], shape[1]))
    stage = a.stage_bytes + b.stage_bytes + BARRIER_BYTES
    fitting = (arch.smem_per_block_bytes - epilogue.stage_bytes) // stage
    wanted = min(MOST_STAGES, fitting) if stages is None else stages
    if wanted > fitting or wanted < (1 if stages else FEWEST_STAGES):
        raise PlanError([Violation(
            "gemm-smem", "error", "stages", f"{wanted} stages of {stage} bytes and an epilogue of {epilogue.stage_bytes}",
            f"a block of {arch.name} has {arch.smem_per_block_bytes} bytes ({RESERVED_BYTES} more are reserved)",
            f"Use {fitting} stages or a smaller tile." if fitting > 0 else "Use a smaller tile.",
        )])  # fmt: skip
    floor = _floor_us(shape, tile, data_type, output, sms)
    return GemmPlan(
        shape=(shape[0], shape[1], shape[2]), data_type=data_type, tile=tile, stages=wanted, a=a, b=b, epilogue=epilogue,
        sms=sms, floor_us=floor, reasons=(), others=(),
    )  # fmt: skip


def _epilogue(tile: tuple[int, int], output: DataType, arch: Arch, shape: tuple[int, int]) -> Plan:
    """A slice of the result tile, one swizzle span wide, through shared memory; slices take turns.

    On cards without TMA the plan is of the layout alone.
    """
    span = EPILOGUE_ROW_BYTES * 8 // output.smem_bits
    tile = (tile[0], span if tile[1] % span == 0 else tile[1])
    if arch.has("tma"):
        return plan(tile, output, direction="store", arch=arch, consumer="ldmatrix", global_shape=shape).best
    return plan(tile, output, copy="cp.async", arch=arch, consumer="ldmatrix").best


def _floor_us(
    shape: tuple[int, ...], tile: tuple[int, int, int], data_type: DataType, output: DataType, sms: int
) -> float:
    """Microseconds below which these tiles cannot go: arithmetic in whole rounds, or every byte moved once."""
    m, n, k = shape
    moved = (m + n) * k * data_type.bits / 8 + m * n * output.bits / 8
    return max(_arithmetic_us(shape, tile, data_type, sms), moved / BYTES_PER_S * 1e6)


def _arithmetic_us(shape: tuple[int, ...], tile: tuple[int, int, int], data_type: DataType, sms: int) -> float:
    rate = FLOPS_16_BIT * 16 / max(data_type.smem_bits, 8) / H200_SMS  # of one SM
    return _rounds(shape, tile, sms) * 2 * tile[0] * tile[1] * shape[2] / rate * 1e6


def _with_reasons(best: GemmPlan, others: tuple[str, ...]) -> GemmPlan:
    m, n, k = best.shape
    tile_m, tile_n, tile_k = best.tile
    full = best.tiles / (best.rounds * best.sms)
    bound = (
        "arithmetic" if best.floor_us <= _arithmetic_us(best.shape, best.tile, best.data_type, best.sms) else "memory"
    )
    share = f"{full:.0%}".replace("%", " %")
    rounds = "1 round" if best.rounds == 1 else f"{best.rounds} rounds"
    stage = f"{best.stages} stages of {best.a.stage_bytes} + {best.b.stage_bytes} bytes"
    words = (
        f"Tile {tile_m} x {tile_n} x {tile_k}: {best.tiles} tiles of C for {best.sms} SMs, {rounds}, {share} full.",
        f"Floor {best.floor_us:.1f} us, bound by {bound} at an H200's rates: {2 * m * n * k / 1e9:.1f} GFLOP.",
        f"{stage} and an epilogue of {best.epilogue.stage_bytes}: {best.smem_bytes} of {best.budget_bytes} bytes.",
        f"K tile of {tile_k}: 128 contiguous bytes a row, one span of the widest swizzle.",
    )
    return replace(best, reasons=words, others=others)


def _extent(name: str, given: Any) -> int:
    extent = integer(name, given)
    if not 1 <= extent <= 1 << 32:
        raise broken("gemm-shape", name, f"{name} = {extent}", "1 to 2^32", "Give the extents of the matrices.")
    return extent


def _given_tile(tile: Any) -> tuple[int, int, int]:
    if not isinstance(tile, list | tuple) or len(tile) != 3:
        raise broken("gemm-tile", "tile", printed(tile), "three extents: m, n, k", "Give (128, 256, 64), say.")
    return _extent("tile m", tile[0]), _extent("tile n", tile[1]), _extent("tile k", tile[2])
