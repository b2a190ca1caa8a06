"""Where a tile of C starts, by its number: tiles go down m, in groups where the plan says so."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.planner.gemm_plan import GemmPlan, tile_grid


class TileOrigin(NamedTuple):
    """The first row and column of a tile as expressions of `tile`, and the lines that they need before them."""

    before: tuple[str, ...]
    m: str
    n: str

    def lines(self, m_offset: str = "", n_offset: str = "") -> list[str]:
        """Declarations of m and n, each with an offset of the block."""
        return [*self.before, f"const int m = {self.m}{m_offset}, n = {self.n}{n_offset};"]


def tile_origin(gemm: GemmPlan, m_tiles: str = "M_TILES") -> TileOrigin:
    """Where tile number `tile` starts; `m_tiles` names the number of tiles along m.

    >>> from tilescope.planner import plan_gemm
    >>> tile_origin(plan_gemm(256, 256, 64, "bf16", tile=(128, 128, 64), group=0)).lines()
    ['const int m = tile % M_TILES * TILE_M, n = tile / M_TILES * TILE_N;']
    """
    group = gemm.schedule.group
    if not 0 < group < tile_grid(gemm.shape, gemm.tile)[0]:
        return TileOrigin((), f"tile % {m_tiles} * TILE_M", f"tile / {m_tiles} * TILE_N")
    left = f"{m_tiles} - first"
    first = "const int first = tile / (GROUP * N_TILES) * GROUP"
    return TileOrigin(
        (f"{first}, rows = {left} < GROUP ? {left} : GROUP;",),
        "(first + tile % (GROUP * N_TILES) % rows) * TILE_M",
        "tile % (GROUP * N_TILES) / rows * TILE_N",
    )
