"""The suites of `tilescope verify`: cases drawn by a seed, what tilescope says of them, and what the card does.

    draw(random, arch) ──▶ case ──┬── predict(case) ───────▶ pieces ──┐
                                  └── run(device, cases) ──▶ arrays ──┴── equal, or the first difference in words

A case is plain data (JSON), so that it can be sent to a child process and kept in a capture. The bytes of a result are
those of its arrays, one after the other; a case that gives none has an outcome that says how it ended.

The card and the emulator start from the same bytes on every machine. SplitMix64 gives them; every eighth chunk of 16 is
one of the special values (infinities, NaNs, denormals, zeros), which random bits of wide types would hardly ever hit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tilescope.arithmetic import ceil_div
from tilescope.errors import FaultError, RuleError, unknown_name
from tilescope.sentence import shorten
from tilescope.swizzle import CHUNK_BYTES

if TYPE_CHECKING:
    from tilescope.gpu.driver.device import Device

Case: TypeAlias = dict[str, Any]  # plain data, as a capture keeps it
Array: TypeAlias = npt.NDArray[Any]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Result: TypeAlias = Iterable[Array | np.generic | bytes]  # of a case, one after the other

UNTOUCHED = 0xEE  # what memory holds before
DIGEST_BYTES = 16


class Piece(NamedTuple):
    """A part of a result: words for a number's row and place in it, the numbers, and how many make a row."""

    words: str  # "lane {}, register {}"
    numbers: Array
    row: int = 1


def memory(name: str, contents: bytes | Bytes) -> Piece:
    """Bytes of memory as lines of 128."""
    return Piece(f"{name}, line {{}}, byte {{}}", np.frombuffer(contents, np.uint8), 128)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a case: bytes, or how it ended instead ("error 715", "no answer in 20 s").

    Outcomes with equal digests are equal: a capture does not keep all bytes.
    """

    data: bytes | None = field(default=b"", compare=False)
    ended: str = ""
    digest: bytes = b""  # BLAKE2b-128 of the bytes

    def __post_init__(self) -> None:
        if self.data is not None:
            object.__setattr__(self, "digest", blake2b(self.data, digest_size=DIGEST_BYTES).digest())


@dataclass(frozen=True, slots=True)
class Suite:
    """One thing that is verified."""

    name: str
    draw: Callable[[random.Random, str], Case | None]  # for an architecture; None or a RuleError: draw again
    predict: Callable[[Case], Sequence[Piece]]  # a FaultError predicts that the card ends with it
    run: Callable[[Device, list[Case]], Iterable[Result]]  # the arrays of cases of one kind, in a child process
    kernels: tuple[str, ...] = ()  # files that `run` launches from
    kind: Callable[[Case], str] = lambda _case: ""  # cases of one kind run together
    count: int = 2000  # default number of cases
    together: int = 250  # cases that a child is sent at once
    feature: str = "tma"  # what an architecture must have (see arch.py)
    children: int = 1  # processes side by side: more where most cases kill theirs
    seconds_at_most: float = 120.0  # that a child may take for what it was sent
    # where a case has no one right result: what is wrong with an outcome, in words (none: nothing)
    judge: Callable[[Case, Outcome], str] | None = None
    note: Callable[[Sequence[Case], Sequence[Outcome]], str] | None = None  # a remark about all cases together
    # all cases for an architecture, where they can be listed: none runs twice
    every: Callable[[str], Sequence[Case]] | None = None

    def cases(self, count: int, seed: int, arch: str) -> list[Case]:
        """The first `count` cases of a seed. A case has a separate generator, so case 7 is the same in any count.

        Where all cases can be listed, they come in their order if all are wanted, else in the order of the seed.
        """
        if self.every is not None:
            listed = list(self.every(arch))
            if count < len(listed):
                random.Random(f"{seed} {self.name}").shuffle(listed)  # noqa: S311
            return listed[:count]
        return [self._case(random.Random(f"{seed} {self.name} {number}"), arch) for number in range(count)]  # noqa: S311

    def _case(self, random: random.Random, arch: str) -> Case:
        while True:
            try:
                case = self.draw(random, arch)
            except RuleError:
                continue
            if case:
                return case

    def expected(self, case: Case) -> Outcome:
        """The prediction for a case."""
        try:
            return Outcome(b"".join(piece.numbers.tobytes() for piece in self.predict(case)))
        except FaultError as fault:
            return Outcome(ended=f"error {fault.code}")

    def results(self, device: Device, cases: Sequence[Case]) -> list[bytes]:
        """What the card gives, in the order of the cases."""
        results = [b""] * len(cases)
        for kind in dict.fromkeys(map(self.kind, cases)):
            numbers = [number for number, case in enumerate(cases) if self.kind(case) == kind]
            for number, arrays in zip(numbers, self.run(device, [cases[number] for number in numbers]), strict=True):
                results[number] = b"".join(map(_bytes, arrays))
        return results

    def difference(self, case: Case, measured: Outcome) -> str:
        """How the card's outcome differs from ours, in words; empty where they are equal."""
        if self.judge is not None:
            return self.judge(case, measured)
        expected = self.expected(case)
        if measured == expected:
            return ""
        if measured.ended or expected.ended:
            words = f"card: {measured.ended or 'done'}, ours: {expected.ended or 'done'}"
        elif measured.data is None:
            words = "our bytes have another digest than the card's, which were not kept"
        else:
            words = first_difference(measured.data, self.predict(case))
        return f"{words}; case {shorten(str(case), 300)}"


def _bytes(part: Array | np.generic | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.tobytes()


def first_difference(data: bytes, expected: Sequence[Piece]) -> str:
    """The first number in which the card's bytes differ from ours; what the last piece of one lacks counts as untouched.

    >>> first_difference(bytes([1, 7]), [Piece("lane {}", np.array([1, 9], np.uint8))])
    'lane 1: card 0x7, ours 0x9 (1 of 2 differ)'
    """
    for piece in expected:
        expected_bytes = piece.numbers.tobytes()
        longest = ceil_div(max(len(expected_bytes), len(data)), piece.numbers.itemsize) * piece.numbers.itemsize
        size = longest if piece is expected[-1] else len(expected_bytes)
        card_numbers = _pad_piece(data, size, piece)
        our_numbers = _pad_piece(expected_bytes, size, piece)
        wrong = np.flatnonzero(card_numbers != our_numbers)
        if wrong.size:
            place = piece.words.format(*divmod(wrong[0], piece.row))
            card = _format_number(card_numbers[wrong[0]].item())
            ours = _format_number(our_numbers[wrong[0]].item())
            return f"{place}: card {card}, ours {ours} ({wrong.size} of {card_numbers.size} differ)"
        data = data[size:]
    return "the results have other lengths"


def _pad_piece(data: bytes, size: int, piece: Piece) -> Array:
    """The numbers of the first bytes; what is missing of them counts as untouched."""
    return np.frombuffer(data[:size].ljust(size, bytes([UNTOUCHED])), piece.numbers.dtype)


def _format_number(number: object) -> str:
    return f"{number:#x}" if isinstance(number, int) else str(number)


# the module here that holds a suite, as a constant of its name
_MODULE = {
    "encode": "map_suite",
    "loads": "copy_suite",
    "im2col": "copy_suite",
    "multicast": "copy_suite",
    "gather4": "copy_suite",
    "bulk": "copy_suite",
    "plans": "copy_suite",
    "stores": "copy_suite",
    "reductions": "copy_suite",
    "scatter4": "copy_suite",
    "faults": "mbarrier_suite",
    "mbarriers": "mbarrier_suite",
    "wgmma": "operand_addresses",
    "tcgen05": "operand_addresses",
    "fragments": "product_suite",
    "tensor_memory": "tmem_suite",
    "ldmatrix": "matrix_suite",
    "banks": "wavefront_suite",
    "emitted": "emit_suite",
    "pipelines": "pipeline_suite",
    "kernels": "kernel_suite",
    "approx": "approx_suite",
    "shifts": "open_point_suite",
    "remote_arrivals": "open_point_suite",
    "pair_exits": "open_point_suite",
    "rates": "open_point_suite",
}
SUITE_NAMES = tuple(_MODULE)


def suite_named(name: str) -> Suite:
    """The suite called `name`; its module is imported on first use.

    >>> suite_named("loads").count
    2000
    """
    if name not in _MODULE:
        raise RuleError([unknown_name("suite", "suite", name, SUITE_NAMES)])
    suite: Suite = getattr(import_module(f"{__name__}.{_MODULE[name]}"), name.upper())
    return suite


POOL_BYTES = 1 << 20
_ONE_IN = 8  # chunks: one of them is special

# Patterns of one element, by its bytes; a chunk holds several
_SPECIAL = {
    2: (0x7C00, 0xFC00, 0x7E01, 0x0001, 0x8000, 0x83FF, 0x7F80, 0xFF80, 0x7FC1, 0x0080),
    4: (0x7F800000, 0xFF800000, 0x7FC00001, 0xFFA00000, 0x00000001, 0x807FFFFF, 0x80000000, 0x3F800FFF, 0x3F801000),
    8: (0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000001, 0xFFF4000000000000, 1, 0x8000000000000000),
}


def splitmix_bytes(seed: int, count: int) -> Bytes:
    """`count` random bytes: those of 64-bit words 1, 2, …, each the SplitMix64 finaliser of its place.

    >>> splitmix_bytes(1, 8).tobytes().hex()
    '380182a31a5a2cc4'
    """
    with np.errstate(over="ignore"):
        place = np.arange(1, ceil_div(count, 8) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = place + (np.uint64(seed) << np.uint64(32))
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return z.astype("<u8").view(np.uint8)[:count]


def _special_chunks(element_bytes: int, values: tuple[int, ...]) -> Bytes:
    """A chunk for each value, which is followed in it by its neighbours."""
    elements = CHUNK_BYTES // element_bytes
    numbers = np.array(values, f"<u{element_bytes}")
    chunks = np.array([np.roll(numbers, -first)[:elements] for first in range(len(values))])
    return chunks.view(np.uint8)


@cache
def pool() -> Bytes:
    """The megabyte from which copies read, and with which memory is filled before stores; read-only."""
    chunks = splitmix_bytes(1, POOL_BYTES).reshape(-1, CHUNK_BYTES).copy()
    specials = np.concatenate([_special_chunks(size, values) for size, values in _SPECIAL.items()])
    choice = splitmix_bytes(2, len(chunks) * 2).view("<u2")
    taken = choice % _ONE_IN == 0
    chunks[taken] = specials[choice[taken] // _ONE_IN % len(specials)]
    chunks.flags.writeable = False
    return chunks.reshape(-1)
