"""What the accesses of a run cost, as values: the worst access of an instruction, copies by map, operands of wgmma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilescope.arch import WARP_LANES
from tilescope.layout import Major
from tilescope.machine.observers.access_cost import Tally
from tilescope.machine.observers.costs import Costs
from tilescope.machine.program import Program
from tilescope.smem.op import SmemOp
from tilescope.smem.report import BankCollision, BankReport, bank_report
from tilescope.tensor_map import AnyMap
from tilescope.value import Value, hex_field

_NO_LANE = 0  # the address of a lane that is not looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstAccess(Value):
    """The execution of an instruction by one warp that lost most to bank conflicts.

    `lanes` are to blame: they want different words of `bank` at the same time. `report()` explains all banks.

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
    lane_address: tuple[int | None, ...] = hex_field()  # shared addresses of 32 lanes; None: not asked
    lanes: tuple[int, ...]
    bank: int

    def report(self) -> BankReport:
        """Every group of lanes and every bank of the access."""
        return _report(self.op, self.lane_address)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTraffic(Value):
    """What the copies through one tensor map, or all bulk copies, asked of global memory in one direction.

    A request is a row of the box, as far as it lies in the tensor: bytes that follow each other. A multicast counts once.
    """

    map_number: int | None  # among the maps of the run; None: bulk copies
    direction: Literal["load", "store", "reduce"]
    boxes: int
    requests: int
    bytes: int
    least_request_bytes: int | None  # None: nothing lay in the tensor
    l2_promotion: str | None
    swizzle: str | None

    @property
    def request_bytes(self) -> float:
        """Bytes of a request, on average."""
        return self.bytes / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandRead(Value):
    """An operand of a wgmma or a tcgen05.mma in shared memory: what its descriptor says, decoded, and how often it was read.

    Descriptors that differ in their start alone are one: `starts` says how many there were (up to 256), `first_start` is the lowest.
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
    """The worst execution of an instruction on shared memory; None where it had no conflict."""
    worst = tally.worst
    if worst is None or worst.cost == worst.least or worst.kind.shared_op is None:
        return None
    unasked = (None,) * (WARP_LANES - len(worst.lane_address))
    lane_address = (*worst.lane_address, *unasked)
    blamed = busiest_collision(_report(worst.kind.shared_op.name, lane_address))
    return WorstAccess(
        op=worst.kind.shared_op.name,
        wavefronts=worst.cost,
        least_wavefronts=worst.least,
        block=worst.block,
        warp=worst.warp,
        lane_address=lane_address,
        lanes=tuple(sorted(lane for lanes in blamed.lanes for lane in lanes)),
        bank=blamed.banks[0],
    )


def busiest_collision(report: BankReport) -> BankCollision:
    """The bank, or the banks, that an access with a conflict waits for longest."""
    collisions = [group.collisions[0] for group in report.groups if group.collisions]
    return max(collisions, key=lambda collision: collision.degree)


def _report(op: str, lane_address: tuple[int | None, ...]) -> BankReport:
    row = SmemOp.named(op)
    active = [address is not None for address in lane_address]
    is_whole = all(active[: row.lanes])
    addresses = [_NO_LANE if address is None else address for address in lane_address]
    return bank_report(row, addresses, None if is_whole else active)


def copy_traffic(costs: Costs, maps: list[AnyMap]) -> tuple[CopyTraffic, ...]:
    """Copies by map and direction, those that moved most first."""
    rows = []
    for key, counted in costs.traffic.items():
        tensor_map = None if key.map_number is None else maps[key.map_number]
        rows.append(
            CopyTraffic(
                map_number=key.map_number,
                direction=key.direction,
                boxes=counted.boxes,
                requests=counted.requests,
                bytes=counted.bytes,
                least_request_bytes=counted.least_request_bytes,
                l2_promotion=None if tensor_map is None else tensor_map.l2_promotion.name,
                swizzle=None if tensor_map is None else tensor_map.swizzle.name,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.bytes))


def operand_reads(costs: Costs, program: Program) -> tuple[OperandRead, ...]:
    """The operands of every wgmma and tcgen05.mma that ran, in the order of the program."""
    rows = []
    for key, counted in sorted(costs.operands.reads.items(), key=lambda item: item[0]):
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
                first_start=min(counted.starts),
                starts=len(counted.starts),
                reads=counted.count,
            )
        )
    return tuple(rows)
