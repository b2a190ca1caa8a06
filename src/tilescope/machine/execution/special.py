"""Special registers: %tid, %ctaid, %laneid, %cluster_ctarank and the others, for every lane of a cluster."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from tilescope.arch import WARP_LANES
from tilescope.machine.step import RefusedError
from tilescope.sync.address import SHARED_RESERVED_BYTES
from tilescope.sync.cluster_shape import ClusterShape

Extents = tuple[int, int, int]
AXES = "xyz"
MULTIPROCESSOR_WARPS = 64  # %nwarpid; this and the sizes of shared memory as an H200 gives them
CLOCKS = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})
"""Special registers that change while a kernel runs: an instruction reads them, no register holds them."""
ARBITRARY = CLOCKS | {"%smid", "%gridid"}
"""Special registers whose values a card chooses anew in every launch."""

GRID_WORKSPACE = "of the grid's barrier"
"""The variable that a cooperative launch adds: its size and a word that cooperative_groups' grid.sync() counts blocks in."""
GRID_WORKSPACE_REGISTERS = {"%envreg2": 0, "%envreg1": 32}  # which bits of its address each holds
_PER_AXIS = frozenset(
    {"%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"}
)
_LANE_MASKS = frozenset({"%lanemask_eq", "%lanemask_le", "%lanemask_lt", "%lanemask_ge", "%lanemask_gt"})
_PER_LANE = frozenset({"%laneid", "%warpid", "%cluster_ctarank"})
_SINGLE = frozenset(
    {
        "%nwarpid",
        "%smid",
        "%nsmid",
        "%gridid",
        "%cluster_nctarank",
        "%is_explicit_cluster",
        "%dynamic_smem_size",
        "%total_smem_size",
        "%aggr_smem_size",
        "%reserved_smem_offset_begin",
        "%reserved_smem_offset_end",
        "%reserved_smem_offset_cap",
        "%reserved_smem_offset_0",
        "%reserved_smem_offset_1",
        "WARP_SZ",
    }
)


def require_special(name: str) -> None:
    """Refuse a special register that the machine does not have."""
    stem, _, axis = name.partition(".")
    is_known = name in _LANE_MASKS | _PER_LANE | _SINGLE | CLOCKS or (stem in _PER_AXIS and axis in (*AXES, "w"))
    is_known = is_known or name in GRID_WORKSPACE_REGISTERS
    if not is_known:
        raise RefusedError(f"the special register {name} has no value here")


def require_held(name: str) -> None:
    """Refuse a special register as an operand: one that the machine does not have, or that changes while a kernel runs."""
    require_special(name)
    if name in CLOCKS:
        raise RefusedError(f"{name} changes while the kernel runs: only mov reads it")


class LaunchFacts(Protocol):
    """The values of special registers that describe a launch."""

    grid: Extents
    block: Extents
    cluster: Extents
    is_clustered: bool
    smem_bytes: int
    multiprocessors: int
    variable_addresses: dict[str, int]

    @property
    def shared_end(self) -> int:
        """Where a block's shared memory ends."""


def special_values(launch: LaunchFacts, cluster: ClusterShape, name: str) -> npt.NDArray[np.generic]:
    """The value of a special register for every lane."""
    stem, _, axis = name.partition(".")
    if stem in _PER_AXIS:
        if axis == "w":
            return _everywhere(cluster, 0)
        return _by_axis(launch, cluster, stem, AXES.index(axis)).astype(np.uint32)
    lane = np.arange(cluster.lane_count, dtype=np.uint32) % WARP_LANES
    if name in _LANE_MASKS:
        return _lane_mask(name.removeprefix("%lanemask_"), lane)
    if name == "%laneid":
        return lane
    if name == "%warpid":
        return (np.arange(cluster.lane_count) % cluster.block_lanes // WARP_LANES).astype(np.uint32)
    if name == "%cluster_ctarank":
        return cluster.block_of_lane.astype(np.uint32)
    if name == "%is_explicit_cluster":
        return np.full(cluster.lane_count, launch.is_clustered)
    if name in GRID_WORKSPACE_REGISTERS:
        address = launch.variable_addresses[GRID_WORKSPACE]
        return _everywhere(cluster, address >> GRID_WORKSPACE_REGISTERS[name] & 0xFFFFFFFF)
    if name == "%gridid":
        return np.zeros(cluster.lane_count, np.uint64)
    return _everywhere(cluster, _single(launch, cluster, name))


def _everywhere(cluster: ClusterShape, value: int) -> npt.NDArray[np.generic]:
    return np.broadcast_to(np.array(value, np.uint32), (cluster.lane_count,))


def _single(launch: LaunchFacts, cluster: ClusterShape, name: str) -> int:
    first = cluster.first_block
    block_number = first[0] + launch.grid[0] * (first[1] + launch.grid[1] * first[2])
    values = {
        "%nwarpid": MULTIPROCESSOR_WARPS,
        "%smid": block_number % launch.multiprocessors,
        "%nsmid": launch.multiprocessors,
        "%cluster_nctarank": cluster.blocks,
        "%dynamic_smem_size": launch.smem_bytes,
        "%total_smem_size": launch.shared_end - SHARED_RESERVED_BYTES,
        "%aggr_smem_size": launch.shared_end,
        "%reserved_smem_offset_begin": 0,
        "%reserved_smem_offset_end": 0x120,  # what the system uses of the bytes that it reserves
        "%reserved_smem_offset_cap": SHARED_RESERVED_BYTES,
        "%reserved_smem_offset_0": 0,  # nothing is reserved by the linker
        "%reserved_smem_offset_1": 0,
        "WARP_SZ": WARP_LANES,
    }
    return values[name]


def _by_axis(launch: LaunchFacts, cluster: ClusterShape, stem: str, axis: int) -> npt.NDArray[np.intp]:
    """A register that has x, y and z."""
    lane = np.arange(cluster.lane_count)
    if stem == "%tid":
        return _unravel(lane % cluster.block_lanes, launch.block, axis)
    in_cluster = _unravel(cluster.block_of_lane, launch.cluster, axis)
    if stem == "%cluster_ctaid":
        return in_cluster
    if stem == "%ctaid":
        return cluster.first_block[axis] + in_cluster
    values = {
        "%ntid": launch.block[axis],
        "%nctaid": launch.grid[axis],
        "%clusterid": cluster.first_block[axis] // launch.cluster[axis],
        "%nclusterid": launch.grid[axis] // launch.cluster[axis],
        "%cluster_nctaid": launch.cluster[axis],
    }
    return np.full(cluster.lane_count, values[stem])


def _unravel(number: npt.NDArray[np.intp], extents: tuple[int, int, int], axis: int) -> npt.NDArray[np.intp]:
    """The x, y or z of numbers that count x first."""
    step = int(np.prod(extents[:axis], dtype=np.int64))
    return number // step % extents[axis]


def _lane_mask(relation: str, lane: npt.NDArray[np.uint32]) -> npt.NDArray[np.generic]:
    own_bit = np.uint64(1) << lane.astype(np.uint64)
    below = own_bit - np.uint64(1)
    masks = {
        "eq": own_bit,
        "lt": below,
        "le": below | own_bit,
        "ge": ~below,
        "gt": ~(below | own_bit),
    }
    return masks[relation].astype(np.uint32)
