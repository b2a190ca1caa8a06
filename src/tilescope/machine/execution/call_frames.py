"""Functions that call themselves, directly or through others.

A register or a variable of a function has one place in the machine. While a function is called again before it has returned, the
values of its earlier calls are kept here:

    fib(3)                    registers and parameters of fib: those of fib(3)
      fib(2)                  those of fib(2); kept: fib(3)
        fib(1)                those of fib(1); kept: fib(3), fib(2)
      fib(2)                  put back by the return
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.undefined_values import Origins
from tilescope.machine.program import Frame, Program
from tilescope.sync.cluster_shape import LaneNumbers

MAX_CALL_DEPTH = 512  # of functions that call themselves; the stack of a card has room for tens to hundreds of calls


@dataclass(slots=True)
class _Kept:
    """The values of the calls with one number, for each lane of the cluster."""

    registers: tuple[npt.NDArray[np.generic], ...]
    local: npt.NDArray[np.uint8]  # (lanes, bytes)
    origins: Origins | None = None  # (registers and bytes, lanes): of undefined values; None: there were none


class CallFrames:
    """The calls of one cluster's threads that have not returned."""

    def __init__(self, program: Program, lane_count: int) -> None:
        self._frames = program.frames
        self._open: dict[str, npt.NDArray[np.intp]] = {
            name: np.zeros(lane_count, np.intp) for name in self._frames
        }  # by function: its calls of each lane
        self._kept: dict[tuple[str, int], _Kept] = {}  # by function and the number of its calls before

    def enter(self, cluster: Cluster, function: str, lanes: LaneNumbers) -> None:
        """Lanes call a function: keep the values of the call before."""
        calls = self._open.get(function)
        if calls is None:
            return
        for number, chosen in _by_number(calls, lanes):
            self._keep(cluster, function, number, chosen)
        calls[lanes] += 1

    def leave(self, cluster: Cluster, function: str, lanes: LaneNumbers) -> None:
        """Lanes return from a function: put back the values of the call before."""
        calls = self._open.get(function)
        if calls is None:
            return
        calls[lanes] -= 1
        for number, chosen in _by_number(calls, lanes):
            self._put_back(cluster, function, number, chosen)

    def _keep(self, cluster: Cluster, function: str, number: int, lanes: LaneNumbers) -> None:
        frame = self._frames[function]
        kept = self._kept.get((function, number))
        if kept is None:
            kept = self._kept[function, number] = self._make_kept(cluster, frame)
        for register, values in zip(frame.registers, kept.registers, strict=True):
            values[lanes] = cluster.registers[register][lanes]
        kept.local[lanes] = _local_rows(cluster)[np.ix_(lanes, frame.local_bytes)]
        if cluster.undefined is not None:
            if kept.origins is None:
                kept.origins = np.zeros((len(frame.registers) + len(frame.local_bytes), cluster.lane_count), np.int32)
            kept.origins[:, lanes] = cluster.undefined.frame_origins(frame, lanes)
        elif kept.origins is not None:
            kept.origins[:, lanes] = 0

    def _make_kept(self, cluster: Cluster, frame: Frame) -> _Kept:
        registers = tuple(np.zeros_like(cluster.registers[register]) for register in frame.registers)
        return _Kept(registers, np.zeros((cluster.lane_count, len(frame.local_bytes)), np.uint8))

    def _put_back(self, cluster: Cluster, function: str, number: int, lanes: LaneNumbers) -> None:
        frame = self._frames[function]
        kept = self._kept[function, number]
        for register, values in zip(frame.registers, kept.registers, strict=True):
            cluster.registers[register][lanes] = values[lanes]
        _local_rows(cluster)[np.ix_(lanes, frame.local_bytes)] = kept.local[lanes]
        if kept.origins is None:
            origins = np.zeros((len(frame.registers) + len(frame.local_bytes), len(lanes)), np.int32)
        else:
            origins = kept.origins[:, lanes]
        if cluster.undefined is None and origins.any():
            cluster.follow_undefined(cluster.undefined_values)
        if cluster.undefined is not None:
            cluster.undefined.put_frame(frame, lanes, origins)


def _local_rows(cluster: Cluster) -> npt.NDArray[np.uint8]:
    """Local memory, a row for each lane."""
    return cluster.local.reshape(cluster.lane_count, cluster.local_stride)


def _by_number(calls: npt.NDArray[np.intp], lanes: LaneNumbers) -> Iterator[tuple[int, LaneNumbers]]:
    """Lanes that have calls which have not returned, by the number of these calls."""
    numbers = calls[lanes]
    for number in np.unique(numbers[numbers > 0]).tolist():
        yield number, lanes[numbers == number]
