"""What a word found in memory says as an mbarrier, or as the token of an arrival."""

from __future__ import annotations

from tilescope.errors import RuleError
from tilescope.sync.mbarrier import Mbarrier, MbarrierToken


def barrier_readings(word: int) -> dict[str, Mbarrier | MbarrierToken]:
    """The word as an mbarrier and as a token, if a kernel can have met it.

    >>> [*barrier_readings(0x000003F0001FFFFE)], [*barrier_readings(0x4000004000010040)]
    (['mbarrier'], [])
    """
    readings: dict[str, Mbarrier | MbarrierToken] = {}
    barrier = _barrier(word)
    if barrier is not None and barrier.plausible:
        readings["mbarrier"] = barrier
    token = _token(word)
    if token is not None and token.plausible:
        readings["mbarrier token"] = token
    return readings


def _barrier(word: int) -> Mbarrier | None:
    try:
        return Mbarrier.decode(word)
    except RuleError:  # the word is none
        return None


def _token(word: int) -> MbarrierToken | None:
    try:
        return Mbarrier.decode_token(word)
    except RuleError:
        return None
