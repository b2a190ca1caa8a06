"""The cost of a run's accesses as values: the worst access of an instruction, copies by map, operands of wgmma."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tilescope.arch import WARP_LANES
from tilescope.layout import Major
from tilescope.machine.observers.access_cost import Tally
from tilescope.machine.observers.costs import Costs
from tilescope.machine.program import Program
from tilescope.smem.op import SmemOp
from tilescope.smem.report import BankCollision, BankReport, bank_report
from tilescope.swizzle import SMEM_LINE_BYTES
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

_COLLISIONS_KEPT = 4096
_NO_ADDRESS = 0  # of an inactive lane; ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstAccess(Value):
    """The execution of an instruction by one warp with the most bank conflicts.

    `lanes` conflict: they access different words of `bank` at the same time. `report()` explains all banks.

    >>> columns = tuple(range(0x400, 0x1400, 128))
    >>> where = {"block": (0, 0, 0), "warp": 0, "lane_address": columns}
    >>> worst = WorstAccess(op="ld.b32", wavefronts=32, least_wavefronts=1, lanes=tuple(range(32)), bank=0, **where)
    >>> worst.report().verdict
    '32-way conflict'
    """

    op: str
    wavefronts: int
    least_wavefronts: int
    block: tuple[int, int, int]
    warp: int  # of the block
    lane_address: tuple[int | None, ...] = hex_field()  # shared addresses of 32 lanes; None: inactive
    lanes: tuple[int, ...]
    bank: int

    def report(self) -> BankReport:
        """Every group of lanes and every bank of the access."""
        return _report(self.op, self.lane_address)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTraffic(Value):
    """The global memory traffic of the copies through one tensor map, or of all bulk copies, in one direction.

    A request is the part of a box row inside the tensor: contiguous bytes. A multicast counts once.
    """

    map_number: int | None  # among the maps of the run; None: bulk copies
    direction: Literal["load", "store", "reduce"]
    boxes: int
    requests: int
    bytes: int
    least_request_bytes: int | None  # None: no byte was inside the tensor
    l2_promotion: str | None
    swizzle: str | None

    @property
    def request_bytes(self) -> float:
        """Bytes of a request, on average."""
        return self.bytes / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandRead(Value):
    """An operand of a wgmma or a tcgen05.mma in shared memory: its decoded descriptor, and the number of reads.

    Descriptors that differ only in their start are one: `starts` counts them (up to 256), `first_start` is the lowest.
    """

    ptx_line: int
    source_line: str | None
    operand: Literal["A", "B"]
    rows: int  # of m or n
    k: int
    element_bits: int
    major: Major
    swizzle: str
    leading_bytes: int
    stride_bytes: int
    base_offset: int
    first_start: int = hex_field()
    starts: int
    reads: int


def worst_access(tally: Tally) -> WorstAccess | None:
    """The worst execution of an instruction on shared memory; None if it had no bank conflict."""
    worst = tally.worst
    if worst is None or worst.cost == worst.least or worst.kind.shared_op is None:
        return None
    inactive = (None,) * (WARP_LANES - len(worst.lane_address))
    lane_address = (*worst.lane_address, *inactive)
    collision = _collision_in_lines(worst.kind.shared_op.name, _from_first_line(lane_address))
    return WorstAccess(
        op=worst.kind.shared_op.name,
        wavefronts=worst.cost,
        least_wavefronts=worst.least,
        block=worst.block,
        warp=worst.warp,
        lane_address=lane_address,
        lanes=tuple(sorted(lane for lanes in collision.lanes for lane in lanes)),
        bank=collision.banks[0],
    )


def _from_first_line(lane_address: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """The same lines and banks, from the line of the lowest address on."""
    start = min(address for address in lane_address if address is not None) & -SMEM_LINE_BYTES
    return tuple(None if address is None else address - start for address in lane_address)


@lru_cache(_COLLISIONS_KEPT)
def _collision_in_lines(op: str, lane_address: tuple[int | None, ...]) -> BankCollision:
    """The busiest collision of an access. Instructions of unrolled loops, and further launches, repeat them."""
    return busiest_collision(_report(op, lane_address))


def busiest_collision(report: BankReport) -> BankCollision:
    """The collision of an access that takes the most wavefronts."""
    collisions = [group.collisions[0] for group in report.groups if group.collisions]
    return max(collisions, key=lambda collision: collision.degree)


def _report(op: str, lane_address: tuple[int | None, ...]) -> BankReport:
    row = SmemOp.named(op)
    active = [address is not None for address in lane_address]
    is_whole = all(active[: row.lanes])
    addresses = [_NO_ADDRESS if address is None else address for address in lane_address]
    return bank_report(row, addresses, None if is_whole else active)


def copy_traffic(costs: Costs, maps: list[AnyMap]) -> tuple[CopyTraffic, ...]:
    """Copies by map and direction, the most bytes first."""
    rows = []
    for key, tally in costs.traffic.items():
        tensor_map = None if key.map_number is None else maps[key.map_number]
        rows.append(
            CopyTraffic(
                map_number=key.map_number,
                direction=key.direction,
                boxes=tally.boxes,
                requests=tally.requests,
                bytes=tally.bytes,
                least_request_bytes=tally.least_request_bytes,
                l2_promotion=None if tensor_map is None else tensor_map.l2_promotion.name,
                swizzle=None if tensor_map is None else tensor_map.swizzle.name,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def operand_reads(costs: Costs, program: Program) -> tuple[OperandRead, ...]:
    """The operands of every wgmma and tcgen05.mma that ran, in the order of the program."""
    rows = []
    for key, tally in sorted(costs.operands.reads.items(), key=lambda item: item[0]):
        instruction = program.instructions[key.pc]
        assert instruction is not None
        descriptor = key.descriptor
        rows.append(
            OperandRead(
                ptx_line=instruction.line,
                source_line=instruction.source_line,
                operand=key.shape.operand,
                rows=key.shape.rows,
                k=key.shape.k,
                element_bits=key.shape.element_bits,
                major=key.shape.major,
                swizzle=descriptor.swizzle.name,
                leading_bytes=descriptor.leading_bytes,
                stride_bytes=descriptor.stride_bytes,
                base_offset=descriptor.base_offset,
                first_start=min(tally.starts),
                starts=len(tally.starts),
                reads=tally.count,
            )
        )
    return tuple(rows)
