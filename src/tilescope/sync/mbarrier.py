"""The mbarrier: 64 bits of shared memory that count arrivals and bytes, phase after phase.

    63      62 … 43       42     41 … 21       20 … 1       0
    phase   - pending      0     - tx bytes    - expected   0        each count negated, in two's complement

A phase ends when no arrival is pending and the received bytes equal those expected. Then the phase bit flips and
pending starts again from expected. All of it was measured on an H200: 1,000 random sequences without a difference.

Arrivals beyond pending are a fault only within one instruction, where the lanes of a warp add up: four lanes that arrive at once
at a barrier with one pending. Single arrivals one after another end phase after phase instead, and nothing is reported.
The fault (719) comes later than the instruction: always where the block lives on, mostly not where it exits directly after.

    init 1                  pending 1                 0x7ffff800001ffffe
    arrive.expect_tx 32768  pending 0, 32768 bytes    0x000003f0001ffffe
    the copy lands          phase 1, pending 1        0xfffff800001ffffe
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from tilescope.arithmetic import ceil_div
from tilescope.errors import RuleError, Violation, Wording, raise_all
from tilescope.reading import plain_int, try_read
from tilescope.rule import rule
from tilescope.sentence import counted, format_hex, format_value
from tilescope.sync.thread_limits import BLOCK_THREADS, MAX_BLOCKS
from tilescope.tensor_map.limits import TRANSACTION_END_BYTES
from tilescope.value import Value

MBARRIER_BYTES = 8  # of shared memory
ARRIVALS_END = 1 << 20  # counts are below this
TX_END_BYTES = TRANSACTION_END_BYTES  # the bytes outstanding are below this, either way
CLUSTER_THREADS = MAX_BLOCKS * BLOCK_THREADS  # of the largest cluster: no barrier waits for more
_H200 = "an H200, driver 580.159.04, CUDA 13.0"
ARGUMENT = rule(
    "mbarrier-argument",
    "Counts of an mbarrier are 1 to 2^20 - 1, parities 0 or 1, bytes an unsigned 32-bit number.",
    argument="{name}",
    found="{name} = {shown}",
    limit="an mbarrier counts {least} to 2^20 - 1 arrivals",
    fix="Use {least} to {most}.",
    source="PTX ISA, mbarrier",
    passing="ts.Mbarrier(1)",
    failing="ts.Mbarrier(0)",
)
PHASE = ARGUMENT.worded(limit="the parity of a phase is 0 or 1")
PARITY = ARGUMENT.worded(limit="a parity is 0 or 1")
OUTSTANDING_BYTES = ARGUMENT.worded(limit="an mbarrier counts at most 2^20 - 1 bytes")
COUNTED_BYTES = ARGUMENT.worded(limit="bytes are an unsigned 32-bit number")
ARRIVALS = rule(
    "mbarrier-arrivals",
    "One instruction, over all lanes of its warp, adds at most as many arrivals as are pending.",
    argument="count",
    found="{arrivals:arrival} with {pending} pending",
    limit="more arrivals than pending in one instruction (lanes of a warp add up) are a launch failure",
    fix="Make {pending:arrival} at most, or initialise the barrier with {needed}.",
    source=_H200,
    basis="measured",
    code=719,
    passing="ts.Mbarrier(2).arrive(2)",
    failing="ts.Mbarrier(2).arrive(3)",
)
BYTES = rule(
    "mbarrier-bytes",
    "An mbarrier has at most 2^20 - 1 outstanding bytes, in either direction.",
    argument="bytes",
    found="{tx_bytes} bytes outstanding",
    limit="an mbarrier counts from {least} to {most} bytes",
    fix="Spread the copies over {barriers} barriers or phases.",
    source=f"{_H200}; PTX ISA, mbarrier, for the exact limit",
    basis="measured",
    code=719,
    passing="ts.Mbarrier(1).expect_tx(2**20 - 1)",
    failing="ts.Mbarrier(1).expect_tx(2**20)",
)
WORD = rule(
    "mbarrier-word",
    "An mbarrier is a 64-bit word whose bits 42 and 0 are 0.",
    argument="word",
    found="{word:#x}: bit {bit} is set",
    limit="bits 42 and 0 of an mbarrier are 0",
    fix="Read the word that mbarrier.inval wrote.",
    source=_H200,
    basis="measured",
    passing="ts.Mbarrier.decode(0x7FFFF800001FFFFE)",
    failing="ts.Mbarrier.decode(0x7FFFF800001FFFFF)",
)
NO_WORD = WORD.worded(found="{shown}", limit="an mbarrier is an integer of 64 bits", fix="Use 0x7ffff800001ffffe.")
TOKEN = rule(
    "mbarrier-token",
    "The token of an arrival is a 64-bit word whose bit 42 is 0.",
    argument="token",
    found="{word:#x}: bit {bit} is set",
    limit="bit 42 of a token is 0",
    fix="Use what mbarrier.arrive returned.",
    source=_H200,
    basis="measured",
    passing="ts.Mbarrier.decode_token(0x7FFFF80000000000)",
    failing="ts.Mbarrier.decode_token(1 << 42)",
)
_PHASE_BIT = 63
_PENDING_BIT = 43
_ZERO_BIT = 42  # belongs to no field
_TX_BIT = 21
_EXPECTED_BIT = 1
_LAST_BIT = 0  # belongs to no field
_TX_FIELD_END = 2 * TX_END_BYTES  # 21 bits
_TOKEN_BIT = 32  # a token holds the word from here on


@dataclass(frozen=True, slots=True, init=False)
class Mbarrier(Value):
    """An mbarrier's state; every operation returns the next state, and completes the phase if nothing is pending.

    Arrivals beyond those pending, and byte counts out of range, raise LaunchFailureError, as the chip does.

    >>> full = Mbarrier(1).arrive_expect_tx(32768)
    >>> full.pending, full.tx_bytes, full.passes(0)
    (0, 32768, False)
    >>> full = full.complete_tx(16384).complete_tx(16384)  # both copies landed: the phase ends
    >>> full.phase, full.pending, full.passes(0), full.passes(1)
    (1, 1, True, False)
    >>> hex(full.encode())
    '0xfffff800001ffffe'
    """

    _derived: ClassVar[tuple[str, ...]] = ("expected",)

    count: int  # arrivals that end a phase
    phase: int = 0  # parity of the running phase
    pending: int = 0  # arrivals that are still missing
    tx_bytes: int = 0  # bytes that are still missing; negative where a copy landed before it was expected

    def __init__(self, count: int, *, phase: int = 0, pending: int | None = None, tx_bytes: int = 0) -> None:
        problems: list[Violation] = []
        counts = _COUNT if pending is None else _PENDING  # arrive_drop may leave none
        expected = try_read(problems, 0, counts.read, "count", count)
        parity = try_read(problems, 0, _PHASE.read, "phase", phase)
        missing = expected if pending is None else try_read(problems, 0, _PENDING.read, "pending", pending)
        outstanding = try_read(problems, 0, _TX_BYTES.read, "tx_bytes", tx_bytes)
        raise_all(problems)
        object.__setattr__(self, "count", expected)
        object.__setattr__(self, "phase", parity)
        object.__setattr__(self, "pending", missing)
        object.__setattr__(self, "tx_bytes", outstanding)

    @property
    def expected(self) -> int:
        """Arrivals that each phase expects."""
        return self.count

    def passes(self, parity: int) -> bool:
        """Whether test_wait with this parity passes: the current phase has the other parity.

        >>> Mbarrier(1).passes(0), Mbarrier(1).passes(1)  # fresh: a consumer waits, a producer does not
        (False, True)
        """
        return self.phase != _PARITY.read("parity", parity)

    def arrive(self, count: int = 1) -> Mbarrier:
        """After `count` arrivals."""
        return self._after(arrivals=_COUNT.read("count", count))

    def expect_tx(self, bytes: int) -> Mbarrier:  # noqa: A002  the promised name
        """After `bytes` more are expected in this phase."""
        return self._after(tx_bytes=_BYTES.read("bytes", bytes))

    def complete_tx(self, bytes: int) -> Mbarrier:  # noqa: A002
        """After `bytes` of a copy have arrived; they may arrive before they are expected."""
        return self._after(tx_bytes=-_BYTES.read("bytes", bytes))

    def arrive_expect_tx(self, bytes: int) -> Mbarrier:  # noqa: A002
        """After expecting `bytes` and one arrival, as one operation."""
        return self._after(tx_bytes=_BYTES.read("bytes", bytes), arrivals=1)

    def arrive_drop(self, count: int = 1) -> Mbarrier:
        """After `count` arrivals that also leave: later phases expect that many fewer.

        >>> Mbarrier(2).arrive_drop().arrive()
        Mbarrier(count=1, phase=1, pending=1)
        """
        return self._after(arrivals=_COUNT.read("count", count), dropped=count)

    def _after(self, *, tx_bytes: int = 0, arrivals: int = 0, dropped: int = 0) -> Mbarrier:
        """The state after an operation, into the next phase where it ends this one."""
        left = self.pending - arrivals
        outstanding = self.tx_bytes + tx_bytes
        expected = self.count - dropped
        if left < 0:
            raise ARRIVALS.error(arrivals=arrivals, pending=self.pending, needed=self.count - left)
        if abs(outstanding) >= TX_END_BYTES:
            most = TX_END_BYTES - 1
            raise BYTES.error(
                tx_bytes=outstanding,
                least=-most,
                most=most,
                barriers=ceil_div(abs(outstanding), most),
            )
        if left == 0 and outstanding == 0:
            return Mbarrier(expected, phase=1 - self.phase, pending=expected)
        return Mbarrier(expected, phase=self.phase, pending=left, tx_bytes=outstanding)

    def encode(self) -> int:
        """The 64 bits, as mbarrier.inval writes them to memory.

        >>> hex(Mbarrier(128).encode())
        '0x7ffc0000001fff00'
        """
        return (
            self.phase << _PHASE_BIT
            | -self.pending % ARRIVALS_END << _PENDING_BIT
            | -self.tx_bytes % _TX_FIELD_END << _TX_BIT
            | -self.count % ARRIVALS_END << _EXPECTED_BIT
        )

    @classmethod
    def decode(cls, word: int) -> Mbarrier:
        """The state in a 64-bit word.

        >>> Mbarrier.decode(0x000003F0001FFFFE)
        Mbarrier(count=1, pending=0, tx_bytes=32768)
        """
        number = _word(word)
        for bit in (_ZERO_BIT, _LAST_BIT):
            if number >> bit & 1:
                raise WORD.error(word=number, bit=bit)
        return cls(
            -(number >> _EXPECTED_BIT) % ARRIVALS_END,
            phase=number >> _PHASE_BIT,
            pending=-(number >> _PENDING_BIT) % ARRIVALS_END,
            tx_bytes=_tx_bytes(number >> _TX_BIT),
        )

    @classmethod
    def decode_token(cls, token: int) -> MbarrierToken:
        """The state before an arrival, from the upper 32 bits of the token of mbarrier.arrive.

        >>> Mbarrier.decode_token(Mbarrier(2).arrive_expect_tx(32768).encode())
        MbarrierToken(phase=0, pending=1, tx_bytes_lowest=30721, tx_bytes_highest=32768)
        """
        number = _word(token)
        if number >> _ZERO_BIT & 1:
            raise TOKEN.error(word=number, bit=_ZERO_BIT)
        unknown = (1 << _TOKEN_BIT - _TX_BIT) - 1  # the low bits of the field are in the lower half
        highest_field = number >> _TX_BIT & ~unknown
        lowest, highest = _tx_bytes(highest_field + unknown), _tx_bytes(highest_field)
        return MbarrierToken(number >> _PHASE_BIT, -(number >> _PENDING_BIT) % ARRIVALS_END, lowest, highest)

    @property
    def state(self) -> str:
        """The state in words.

        >>> Mbarrier(2).arrive_expect_tx(4096).state
        'phase 0 (parity 1 passes, parity 0 waits): 1 of 2 arrivals and 4096 bytes are missing'
        """
        arrivals = f"{self.pending} of {counted(self.count, 'arrival')}"
        if self.tx_bytes < 0:
            return (
                f"{_parities(self.phase)}: {arrivals} missing, {-self.tx_bytes} bytes arrived that are not expected yet"
            )
        return f"{_parities(self.phase)}: {arrivals} and {self.tx_bytes} bytes are missing"

    @property
    def plausible(self) -> bool:
        """Whether a kernel's barrier can be in this state: its phase is not complete, and a cluster has that many threads."""
        return (
            0 < self.count <= CLUSTER_THREADS and self.pending <= self.count and (self.pending, self.tx_bytes) != (0, 0)
        )


@dataclass(frozen=True, slots=True)
class MbarrierToken(Value):
    """The state of a barrier before an arrival, from its token; bytes are known to within 2,048."""

    phase: int
    pending: int
    tx_bytes_lowest: int
    tx_bytes_highest: int

    @property
    def state(self) -> str:
        """The state in words."""
        missing = f"{counted(self.pending, 'arrival')} and {self.tx_bytes_lowest} to {self.tx_bytes_highest} bytes"
        return f"{_parities(self.phase)}: {missing} were missing before this arrival"

    @property
    def plausible(self) -> bool:
        """Whether a barrier can be in this state before an arrival: 1 pending, up to the threads of a cluster."""
        return 0 < self.pending <= CLUSTER_THREADS


def _parities(phase: int) -> str:
    return f"phase {phase} (parity {1 - phase} passes, parity {phase} waits)"


def _tx_bytes(field: int) -> int:
    """The bytes that are missing, from their field and the bits above it: negated, in two's complement."""
    missing = -field % _TX_FIELD_END
    return missing - _TX_FIELD_END if missing > TX_END_BYTES else missing


class _Range(NamedTuple):
    """The integers that an argument may be, and the wording of its error."""

    least: int
    most: int
    wording: Wording

    def read(self, name: str, value: object) -> int:
        """The argument `name`."""
        number = plain_int(value)
        if number is None or not self.least <= number <= self.most:
            facts: dict[str, Any] = {name: value}
            raise self.wording.error(name=name, shown=format_value(value), least=self.least, most=self.most, **facts)
        return number


_COUNT = _Range(1, ARRIVALS_END - 1, ARGUMENT.wording)
_PENDING = _Range(0, ARRIVALS_END - 1, ARGUMENT.wording)
_PHASE = _Range(0, 1, PHASE)
_PARITY = _Range(0, 1, PARITY)
_TX_BYTES = _Range(1 - TX_END_BYTES, TX_END_BYTES - 1, OUTSTANDING_BYTES)
_BYTES = _Range(0, (1 << 32) - 1, COUNTED_BYTES)


def _word(value: object) -> int:
    """64 bits."""
    number = plain_int(value)
    if number is None or not 0 <= number < 1 << 64:
        shown = format_value(value) if number is None else format_hex(number)
        raise NO_WORD.error(shown=shown, word=value)
    return number


def barrier_readings(word: int) -> dict[str, Mbarrier | MbarrierToken]:
    """A word found in memory as an mbarrier and as a token, for those that a kernel's barrier can be.

    >>> [*barrier_readings(0x000003F0001FFFFE)], [*barrier_readings(0x4000004000010040)]
    (['mbarrier'], [])
    """
    readings: dict[str, Mbarrier | MbarrierToken] = {}
    barrier = _decoded_barrier(word)
    if barrier is not None and barrier.plausible:
        readings["mbarrier"] = barrier
    token = _decoded_token(word)
    if token is not None and token.plausible:
        readings["mbarrier token"] = token
    return readings


def _decoded_barrier(word: int) -> Mbarrier | None:
    try:
        return Mbarrier.decode(word)
    except RuleError:  # not an mbarrier
        return None


def _decoded_token(word: int) -> MbarrierToken | None:
    try:
        return Mbarrier.decode_token(word)
    except RuleError:
        return None
