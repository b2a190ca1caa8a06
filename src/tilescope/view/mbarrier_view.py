"""The drawing of an mbarrier: its state in words, and its 64 bits."""

from __future__ import annotations

from tilescope.errors import RuleError
from tilescope.pipeline.mbarrier import Mbarrier, MbarrierToken
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part
from tilescope.view.ruler import BitField, BitRuler

STALE = (
    "The state of a live barrier is not in memory: plain loads, atomics and bulk stores show stale bytes. "
    "mbarrier.inval writes it back; the token of mbarrier.arrive holds it from bit 32 on."
)


def draw_mbarrier(barrier: Mbarrier) -> Drawing:
    """The barrier's state and its word.

    >>> draw_mbarrier(Mbarrier(1)).title
    'mbarrier 0x7ffff800001ffffe'
    """
    word = barrier.encode()
    return Drawing(f"mbarrier {word:#018x}", tuple(_parts(barrier, word)))


def barrier_readings(word: int) -> dict[str, Mbarrier | MbarrierToken]:
    """What a word says as an mbarrier and as the token of an arrival, where a kernel can have met it.

    >>> [*barrier_readings(0x000003F0001FFFFE)], [*barrier_readings(0x4000004000010040)]
    (['mbarrier'], [])
    """
    found: dict[str, Mbarrier | MbarrierToken] = {}
    for name, decode in (("mbarrier", Mbarrier.decode), ("mbarrier token", Mbarrier.decode_token)):
        try:
            reading: Mbarrier | MbarrierToken = decode(word)
        except RuleError:
            continue
        if reading.plausible:
            found[name] = reading
    return found


def reading_parts(word: int, readings: dict[str, Mbarrier | MbarrierToken]) -> list[Part]:
    """What `tilescope decode` draws below the other readings of a word."""
    parts: list[Part] = []
    for name, reading in readings.items():
        parts.append(Paragraph(f"As an {name}:"))
        parts += _parts(reading, word)
    return parts


def _parts(reading: Mbarrier | MbarrierToken, word: int) -> list[Part]:
    return [Paragraph(f"It is in {reading.state}. {STALE}"), _ruler(reading, word)]


def _ruler(reading: Mbarrier | MbarrierToken, word: int) -> BitRuler:
    fields = [
        BitField(63, 63, "phase", str(word >> 63), "parity of the running phase", 0),
        BitField(43, 62, "- pending", hex(word >> 43 & 0xFFFFF), f"arrivals missing: {reading.pending}", 1),
    ]
    if isinstance(reading, Mbarrier):
        fields += [
            BitField(21, 41, "- bytes", hex(word >> 21 & 0x1FFFFF), f"bytes missing: {reading.tx_bytes}", 4),
            BitField(1, 20, "- expected", hex(word >> 1 & 0xFFFFF), f"arrivals that end a phase: {reading.count}", 5),
        ]
    else:
        known = f"bytes missing: {reading.tx_bytes_lowest} to {reading.tx_bytes_highest}"
        fields += [
            BitField(32, 41, "- bytes, upper", hex(word >> 32 & 0x3FF), known, 4),
            BitField(0, 31, "no state", hex(word & 0xFFFFFFFF), "the lower half of a token is not the state", "unused"),
        ]
    return BitRuler("", tuple(fields), bits=64, row_bits=64, notes=("Counts are stored negated; unnamed bits are 0.",))
