"""The meaning of a word by its neighbours, and the reason that a line quotes.

"descriptor" beside wgmma, LBO         a matrix descriptor         beside TMA, encode    a tensor map
"barrier" beside expect_tx, parity     an mbarrier                 beside bar.sync, id   a named barrier
"serialized due to insufficient register resources"                the reason is what stands behind "due to"
"""

from __future__ import annotations

import re
from typing import NamedTuple


class _Sense(NamedTuple):
    """The meaning of a word if one of its neighbours is in the same line."""

    word: str
    meaning: tuple[str, ...]
    neighbours: frozenset[str]


_SENSES = (
    _Sense(
        "descriptor",
        ("matrixdescriptor",),
        frozenset({"wgmma", "umma", "gmma", "lbo", "sbo", "tcgen05", "leading", "idesc", "instruction"}),
    ),
    _Sense("descriptor", ("tensormap",), frozenset({"tma", "encode", "tensormap", "multicast", "cutensormap"})),
    _Sense("barrier", ("named", "barrier"), frozenset({"bar", "sync", "named", "id", "syncthreads"})),
    _Sense(
        "barrier",
        ("mbarrier",),
        frozenset({"tma", "expect", "tx", "parity", "phase", "mbarrier", "try", "transaction"}),
    ),
)
_REASON = re.compile(
    r"\b(?:due to|because of|because|caused by|the (?:root )?cause (?:is|was)|reason:)\s+(?P<reason>[^.;\n]{8,160})",
    re.IGNORECASE,
)


def with_senses(words: frozenset[str]) -> frozenset[str]:
    """The words of a question, and what those with several meanings mean there.

    >>> sorted(with_senses(frozenset({"wgmma", "descriptor"})))
    ['descriptor', 'matrixdescriptor', 'wgmma']
    """
    for sense in _SENSES:
        if sense.word in words and not words.isdisjoint(sense.neighbours):
            return words | frozenset(sense.meaning)
    return words


def quoted_reason(question: str) -> str:
    """The reason that a line gives for what it reports; empty where it gives none.

    >>> quoted_reason("wgmma is serialized due to insufficient register resources for the pipeline")
    'insufficient register resources for the pipeline'
    """
    match = _REASON.search(question)
    return "" if match is None else match["reason"]
