"""Where a tile of C starts, by its number: tiles go down m, in groups where the plan says so."""

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


def tile_origin(gemm: GemmPlan, m_tiles: str = "M_TILES") -> TileOrigin:
    """Where tile number `tile`, or that of a cluster, starts; `m_tiles` names the number of them along m.

    >>> from tilescope.planner import plan_gemm
    >>> tile_origin(plan_gemm(256, 256, 64, "bf16", tile=(128, 128, 64), group=0)).lines()
    ['const int m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;']
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
