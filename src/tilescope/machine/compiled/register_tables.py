"""Where compiled code finds the registers of a cluster, and which of its lanes are active."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.sync.cluster_shape import Lanes

Register = npt.NDArray[np.generic]


class ActiveLanes(NamedTuple):
    """The active lanes: the address of an array with a byte for each lane of the cluster, the first lane, and the one behind the last."""

    address: int
    first: int
    end: int


class RegisterTables:
    """Addresses in one cluster. Its registers are never moved."""

    def __init__(self, registers: Sequence[Register], lane_count: int) -> None:
        self._registers = registers
        self._lane_count = lane_count
        self._tables: dict[tuple[int, ...], tuple[int, object]] = {}
        self._copies: dict[int, Register] = {}  # of registers that are one value for all lanes
        self._ones = np.ones(lane_count, np.uint8)
        self._all = ActiveLanes(_address(self._ones), 0, lane_count)
        self._last: tuple[Lanes, ActiveLanes, Register] | None = None  # of the last call

    def table(self, numbers: tuple[int, ...]) -> int:
        """The address of a table of the addresses of some registers."""
        known = self._tables.get(numbers)
        if known is None:
            table = np.array([_address(self._register(number)) for number in numbers], np.uint64)
            known = self._tables[numbers] = (_address(table), table)
        return known[0]

    def _register(self, number: int) -> Register:
        register = self._registers[number]
        if register.strides == (register.itemsize,):
            return register
        if number not in self._copies:
            self._copies[number] = np.ascontiguousarray(register)
        return self._copies[number]

    def active(self, at: Lanes, alignment: int) -> ActiveLanes:
        """Lanes as compiled code takes them; the first is aligned."""
        if isinstance(at, slice):
            return self._all
        if self._last is None or self._last[0] is not at:
            is_active = np.zeros(self._lane_count, np.uint8)
            is_active[at] = 1
            first = int(at[0]) // alignment * alignment if len(at) else 0
            end = int(at[-1]) + 1 if len(at) else 0
            self._last = (at, ActiveLanes(_address(is_active), first, end), is_active)
        return self._last[1]


def _address(array: Register) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
