"""How fast TMA moves tiles on a card: a few measured rates, from which those of any box and any outstanding bytes follow.

An H200 loads boxes with rows of 128 bytes at 4559 GB/s. With one box of 64 rows in flight on each of its 132 SMs, the time
of a copy bounds it: 8192 bytes every 0.75 us on an SM.

    132 SMs x 8192 bytes / 0.75 us = 1442 GB/s     predicted 1427: the bound of memory takes a little of it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tilescope.arithmetic import rounded_up
from tilescope.value import Value

GbPerS = Mapping[int, int]  # by the bytes of a box row

SECTOR_BYTES = 32  # the least that global memory delivers
REQUEST_BYTES = 128  # the most that one request takes of a row: a cache line
ROW_BYTES = (128, 64, 32, 16)  # widths of the box rows that were measured
_SHARPNESS = 3  # how sharply a rate bends from one bound to the next: recorded loads follow the cube best
_FULL_SHARE = 0.995  # a load that reaches this share of memory's rate is bound only by memory
_TIMED_ROWS = 64  # the box whose latency was measured: 64 rows of 128 bytes
_TIMED_BYTES = 64 * 128


def sector_share(request_bytes: int) -> float:
    """The part of the delivered bytes that a request of contiguous bytes uses.

    >>> sector_share(16), sector_share(64), sector_share(48)
    (0.5, 1.0, 0.75)
    """
    return request_bytes / rounded_up(request_bytes, SECTOR_BYTES)


def _by_width(rates: Mapping[int, int]) -> GbPerS:
    """Rates by widths that are numbers."""
    return MappingProxyType({int(width): rate for width, rate in rates.items()})


@dataclass(frozen=True, slots=True, eq=False)
class TmaRates(Value):
    """The rates of TMA on a card, in GB/s of the whole card, from or to its memory.

    Three rates bound a load. It reaches (a^-3 + b^-3 + c^-3)^(-1/3): a little less than the slowest of them.

        memory    what boxes with rows of this width reach when nothing else is in the way (`loads`)
        latency   the bytes in flight, divided by the time of one copy: `latency_us` for a box of 64 rows of 128 bytes, one
                  cycle for every further row, and the time a tile takes in one SM's engine, divided by the tiles in flight
        issuing   a thread issues a copy every `issue_ns`

    >>> import tilescope as ts
    >>> h200 = ts.Card.named("H200").tma
    >>> h200.load(128), h200.load(16), h200.store(16)
    (4559.0, 2400.0, 886.0)
    >>> round(h200.load(128, in_flight_bytes=8192)), h200.one_sm(64, 1 << 20)
    (1427, 124.0)
    >>> round(h200.load(64, in_flight_bytes=98304, tile_bytes=24576, box_rows=8, boxes=48))  # 48 copies by one thread
    1452
    """

    sms: int  # that loaded or stored while the rates were measured
    loads: Mapping[str, GbPerS] = field(
        hash=False
    )  # by L2 promotion and bytes of a box row, with enough outstanding bytes
    stores: GbPerS = field(hash=False)  # by bytes of a box row; promotion and height made no difference
    sm_loads: GbPerS = field(hash=False)  # one busy SM, from memory or L2, by bytes of a box row
    latency_us: float  # from issue to arrival of a box of 64 rows of 128 bytes
    issue_ns: Mapping[str, int] = field(hash=False)  # between two copies

    def __post_init__(self) -> None:
        """JSON has texts for the widths by which rates are looked up."""
        loads = {promotion: _by_width(rates) for promotion, rates in self.loads.items()}
        object.__setattr__(self, "loads", MappingProxyType(loads))
        object.__setattr__(self, "stores", _by_width(self.stores))
        object.__setattr__(self, "sm_loads", _by_width(self.sm_loads))

    def load(
        self,
        row_bytes: int,
        l2_promotion: str = "128B",
        in_flight_bytes: int | None = None,
        *,
        tile_bytes: int = 8192,
        box_rows: int = 64,
        boxes: int = 1,
        issuers: int = 1,
    ) -> float:
        """GB/s at which all SMs together load tiles in such boxes.

        `in_flight_bytes` (None: enough) and `issuers`, the threads that issue copies, are those of one SM.
        """
        width = _measured_width(row_bytes)
        memory = float(self.loads[l2_promotion][width])
        bounds = [memory, self.sms * issuers * tile_bytes / (boxes * self.issue_ns["one thread"])]
        if in_flight_bytes is not None:
            tiles = max(1.0, in_flight_bytes / tile_bytes)
            narrowest = min(ROW_BYTES)  # such rows pass one SM's engine at one a cycle
            rows_ns = (box_rows - _TIMED_ROWS) * narrowest / self.sm_loads[narrowest]
            engine_ns = tile_bytes / tiles / self.sm_loads[width] - _TIMED_BYTES / self.sm_loads[128]
            bounds.append(self.sms * in_flight_bytes / (1e3 * self.latency_us + rows_ns + engine_ns))
        rate = sum(bound**-_SHARPNESS for bound in bounds) ** (-1 / _SHARPNESS)
        return memory if rate > _FULL_SHARE * memory else rate

    def store(self, row_bytes: int) -> float:
        """GB/s at which all SMs together store boxes with such rows."""
        return float(self.stores[_measured_width(row_bytes)])

    def one_sm(self, row_bytes: int, in_flight_bytes: int) -> float:
        """GB/s that one SM loads: at most one box row a cycle, and the bytes in flight divided by the time of a copy."""
        return min(float(self.sm_loads[_measured_width(row_bytes)]), in_flight_bytes / self.latency_us / 1e3)

    def fastest(self, direction: str) -> int:
        """The fastest loads, or stores, that were measured."""
        tables = self.loads.values() if direction == "load" else (self.stores,)
        return max(rate for table in tables for rate in table.values())

    @property
    def enough_in_flight_bytes(self) -> int:
        """Bytes in flight with which one SM reaches its own limit.

        >>> import tilescope as ts
        >>> ts.Card.named("H200").tma.enough_in_flight_bytes  # 210 GB/s x 0.75 us
        157500
        """
        return round(max(self.sm_loads.values()) * self.latency_us * 1e3)


def _measured_width(row_bytes: int) -> int:
    """The widest of the measured rows that is no wider than this one; the narrowest if all are wider."""
    return max((width for width in ROW_BYTES if width <= row_bytes), default=min(ROW_BYTES))
