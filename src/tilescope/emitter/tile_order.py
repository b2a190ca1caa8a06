"""The start of a tile of C by its number: tiles go down m, in groups if the plan has them; for a batch item by item."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.planner.gemm_plan import GemmPlan, tile_grid
from tilescope.planner.gemm_schedule import PLAIN


class TileOrigin(NamedTuple):
    """The first row and column of a tile as expressions of `tile`, and the lines that they need before them."""

    before: tuple[str, ...]
    m: str
    n: str

    def lines(self, m_offset: str = "", n_offset: str = "") -> list[str]:
        """Declarations of m and n, each with an offset of the block."""
        return [*self.before, f"const int m = {self.m}{m_offset}, n = {self.n}{n_offset};"]


def tile_lines(gemm: GemmPlan) -> list[str]:
    """Declarations of m and n, and of the item of a batch, for tile number `tile`.

    >>> from tilescope.planner import plan_gemm
    >>> tile_lines(plan_gemm(64, 256, 64, "bf16", tile=(64, 128, 64), experts=4))[-1]
    'const int item = experts[m] > 0 ? experts[m] : 0;  // rows without an expert are padding'
    """
    origin = tile_origin(gemm, "m_tiles")
    if gemm.batch.rows == "masked":
        return ["const Place place = located(tile, experts);", "const int m = place.m, n = place.n, item = place.item;"]
    if gemm.batch.rows == "contiguous":
        whose = "const int item = experts[m] > 0 ? experts[m] : 0;  // rows without an expert are padding"
        return [*origin.lines(), whose]
    along_m, along_n = gemm.schedule.multicast  # blocks of a cluster are adjacent
    lines = origin.lines(" + x * TILE_M" if along_m > 1 else "", " + y * TILE_N" if along_n > 1 else "")
    if gemm.batch.count == 1:
        return lines
    placed = "const int item = tile / (m_tiles * N_TILES), place = tile - item * (m_tiles * N_TILES);"
    return [placed, *(line.replace("tile ", "place ") for line in lines)]


def tile_origin(gemm: GemmPlan, m_tiles: str = "m_tiles") -> TileOrigin:
    """Where tile number `tile`, or that of a cluster, starts; `m_tiles` names the number of them along m.

    >>> from tilescope.planner import plan_gemm
    >>> tile_origin(plan_gemm(256, 256, 64, "bf16", tile=(128, 128, 64), group=0)).lines()
    ['const int m = tile % m_tiles * TILE_M, n = tile / m_tiles * TILE_N;']
    """
    group = gemm.schedule.group
    step_m, step_n = ("CLUSTER_M", "CLUSTER_N") if gemm.schedule.multicast != PLAIN.multicast else ("TILE_M", "TILE_N")
    if not 0 < group < tile_grid(gemm.shape, gemm.tile)[0]:
        return TileOrigin((), f"tile % {m_tiles} * {step_m}", f"tile / {m_tiles} * {step_n}")
    left = f"{m_tiles} - first"
    first = "const int first = tile / (GROUP * N_TILES) * GROUP"
    return TileOrigin(
        (f"{first}, rows = {left} < GROUP ? {left} : GROUP;",),
        f"(first + tile % (GROUP * N_TILES) % rows) * {step_m}",
        f"tile % (GROUP * N_TILES) / rows * {step_n}",
    )
