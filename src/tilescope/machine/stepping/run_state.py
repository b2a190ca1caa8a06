"""The state of a run after one of its steps: plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tilescope.machine.observers.last_writer import LastWriter
from tilescope.machine.observers.smem_picture import SmemPicture
from tilescope.reading import integer
from tilescope.value import Value, hex_field

Doing = Literal["ready", "waiting", "exited", "stopped", "not started"]
FindWriter = Callable[[int], LastWriter | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRan(Value):
    """The instruction that a step executed, and the threads of one block that executed it together."""

    ptx_line: int
    source_line: str | None
    ptx_text: str
    block: tuple[int, int, int]
    threads: str  # "0-127"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpPlace(Value):
    """Threads of a warp that are at one instruction: the next that they execute, or the one at which they wait or ended.

    `waits_for` names what threads with `doing` "waiting" wait for; a warp with diverged threads has several places.
    """

    warp: int  # its number in the block
    threads: str  # their numbers in the block: "32-47"
    ptx_line: int | None
    source_line: str | None
    ptx_text: str
    doing: Doing
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterValue(Value):
    """A register of the thread: its bits, its value by its declared type, and the step and PTX line that wrote it."""

    name: str
    type: str
    bits: int = hex_field()
    value: str
    step: int
    ptx_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBytes(Value):
    """Bytes of the thread's local memory as one store left them, and the step and PTX line that wrote them."""

    address: int = hex_field()  # in the local memory of the thread
    content: str  # hexadecimal, in the order of addresses
    step: int  # that wrote them
    ptx_line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TmemWriter(Value):
    """Cells of tensor memory that one instruction wrote last: how many, in which lanes and columns, and the first value."""

    ptx_line: int
    source_line: str | None
    ptx_text: str
    step: int  # of the last write
    lanes: str  # "0-127"
    columns: str  # "0-255"
    cells: int
    first: int = hex_field()  # the value of the first cell


@dataclass(frozen=True, slots=True, kw_only=True)
class TmemAt(Value):
    """The tensor memory of the block: the columns that it has allocated, and who wrote which cells last."""

    allocations: tuple[tuple[int, int], ...]  # first column, and number of columns
    writers: tuple[TmemWriter, ...]  # by PTX line


@dataclass(frozen=True, slots=True, kw_only=True)
class MbarrierAt(Value):
    """An mbarrier of the block: the number of its running phase, and what is missing to complete it."""

    address: int = hex_field()
    phase: int  # 0 after init
    parity: int  # of the running phase
    count: int  # arrivals of a phase
    pending: int  # arrivals that are missing
    tx_bytes: int  # bytes that are missing; negative if a copy completed before it was expected


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingWork(Value):
    """An asynchronous copy, wgmma or tcgen05 instruction that was issued and is not complete.

    `bytes`, `shared_address` and `coords` belong to bulk and tensor copies.
    """

    unit: str  # "load", "bulk", "cp.async", "wgmma", "tcgen05" …
    ptx_line: int
    source_line: str | None
    ptx_text: str
    threads: str  # of the block that issued it
    issued: int  # the step
    bytes: int | None = None
    shared_address: int | None = hex_field(default=None)
    barrier: int | None = hex_field(default=None)
    coords: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(Value):
    """Something that happened in a step, for a time line: work issued or completed, a phase, a barrier."""

    step: int
    event: str  # "load issued", "load completed", "phase completed", "barrier completed"
    ptx_line: int
    source_line: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(Value):
    """The state of a run after `step` instructions, for one block and one of its threads.

    `steps` is the number of steps recorded; `is_whole` is False if the recording ended before the run did. `ran` is the
    instruction of this step, None at step 0. `registers` and `local` are
    those that the thread has written. `last_writer` says who wrote a byte.
    """

    step: int
    steps: int
    is_whole: bool
    block: tuple[int, int, int]
    thread: int
    ran: StepRan | None
    warps: tuple[WarpPlace, ...] = field(repr=False)
    registers: tuple[RegisterValue, ...] = field(repr=False)
    mbarriers: tuple[MbarrierAt, ...] = field(repr=False)
    pending: tuple[PendingWork, ...] = field(repr=False)
    smem: SmemPicture | None = field(repr=False)  # None: the block has not started
    local: tuple[LocalBytes, ...] = field(default=(), repr=False)  # what the thread has written to its local memory
    tmem: TmemAt | None = field(default=None, repr=False)  # None: the block has no tensor memory
    events: tuple[StepEvent, ...] = field(default=(), repr=False)  # the first 500 of the whole run
    _find_writer: FindWriter | None = field(default=None, init=False, repr=False, compare=False)

    def last_writer(self, address: int) -> LastWriter | None:
        """The last writer of a byte up to this step; None if it was not written.

        `address` is an offset in the shared memory of the block, as `smem` has them, or an address in global memory.
        """
        place = integer("address", address)
        return None if self._find_writer is None else self._find_writer(place)
