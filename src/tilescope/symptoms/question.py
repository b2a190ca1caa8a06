"""From a sentence somebody typed to the symptoms it names.

    "my kernel is stuck in try_wait"  →  {hang, try, wait}       words that mean the same are folded
    phrase "hang try wait"            →  all its words are there: this symptom, three words strong

Of the phrases whose words are all in the question the strongest decides; rare words weigh more than common ones. Where
no phrase fits whole, the symptoms that share its rare words are offered, never one that shares nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from math import log

from tilescope.symptoms.cause import CAUSE, Cause
from tilescope.symptoms.symptom import SYMPTOM, Symptom
from tilescope.value import Value, row_field

MAX_WORDS = 200  # of a question: a pasted log is not one
_SUGGESTED = 5

# What people write, and the word that stands for it in phrases.
_SAME = {
    word: name
    for name, words in {
        "hang": "hangs hung hanging stuck deadlock deadlocks deadlocked freeze freezes frozen stall stalls stalled spins spinning "
        "blocked infinite forever",
        "wrong": "incorrect bad mismatch mismatches garbage garbled corrupt corrupted broken differs differ",
        "right": "correct ok fine good works work passes",
        "fail": "fails failed failing failure",
        "refuse": "refuses refused rejects rejected",
        "slow": "slower slowly slowdown",
        "tile": "tiles",
        "stage": "stages",
        "block": "blocks cta ctas",
        "row": "rows",
        "element": "elements values entries",
        "second": "2nd other alternate",
        "first": "1st",
        "conflict": "conflicts",
        "bank": "banks",
        "zero": "zeros zeroes 0s",
        "nan": "nans",
        "finish": "finishes finished return returns end ends terminate terminates complete completes completed",
        "misaligned": "misalignment unaligned",
        "aligned": "alignment align",
        "byte": "bytes",
        "smem": "shared",
        "transposed": "transpose transposition",
        "overwrite": "overwrites overwritten overwriting clobbers clobbered",
        "neighbour": "neighbor neighbors neighbours neighbouring neighboring adjacent",
        "ncu": "nsight profiler",
        "serialised": "serialized serialization serialisation",
        "ignored": "ignore ignores",
        "percent": "%",
        "random": "randomly sporadic sporadically intermittent intermittently sometimes occasionally",
        "chunk": "chunks",
        "swapped": "swap swaps exchanged permuted",
        "wait": "waits waiting",
        "multicast": "multicasting",
        "cluster": "clusters",
        "graph": "graphs cudagraph cudagraphs",
        "missing": "lost dropped",
        "encode": "cutensormapencodetiled cutensormapencodeim2col encodetiled encodes encoding",
        "iteration": "iterations step steps",
    }.items()
    for word in words.split()
}
_FILLER = (
    "a an and are as at be because but by can cannot could do does doing for from get gets getting got had has have how i if in "
    "into is it its just me my of on only or our so some than that the their then there these they this to was we were what when "
    "where which while why will with you your error errors kernel cuda gpu code runtime device during encountered exception "
    "cudaerror cutensormap see seeing show shows after using use every each"
)
_EMPTY = frozenset(_FILLER.split())


@dataclass(frozen=True, slots=True)
class Diagnosis(Value):
    """The symptoms that a question names, and the causes to try in order.

    >>> found = diagnose("my kernel hangs in mbarrier try_wait")
    >>> found.symptoms[0].name, found.causes[0].name
    ('the kernel hangs', 'parity')
    """

    question: str
    symptoms: tuple[Symptom, ...] = row_field(Symptom.named)  # best first; empty where the question names none
    suggested: tuple[Symptom, ...] = row_field(
        Symptom.named, default=()
    )  # where none is named: those that share words with the question

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes of the best symptom, most likely first."""
        return tuple(CAUSE[name] for name in self.symptoms[0].causes) if self.symptoms else ()


def diagnose(question: str) -> Diagnosis:
    """The symptoms that `question` names: an error code, an error's name, or what somebody sees.

    >>> [symptom.name for symptom in diagnose("CUDA_ERROR_MISALIGNED_ADDRESS").symptoms]
    ['misaligned address (716)']
    >>> diagnose("how do I boil an egg").symptoms
    ()
    """
    words = _words(question)
    strength: dict[str, float] = {}
    overlap: dict[str, float] = {}
    for symptom, phrases in _phrases().items():
        for phrase in phrases:
            weight = sum(map(_weight, phrase))
            shared = phrase & words
            if shared == phrase:
                strength[symptom] = max(strength.get(symptom, 0), weight)
            elif shared:
                share = sum(map(_weight, shared)) / weight
                overlap[symptom] = max(overlap.get(symptom, 0), share)
    named = sorted(strength, key=lambda name: -strength[name])
    near = [] if named else sorted((name for name in overlap if overlap[name] >= 0.5), key=lambda name: -overlap[name])
    return Diagnosis(
        question, tuple(SYMPTOM[name] for name in named), tuple(SYMPTOM[name] for name in near[:_SUGGESTED])
    )


def _words(text: str) -> frozenset[str]:
    """The words of a question or a phrase, folded: one form for words that mean the same, filler left out.

    >>> sorted(_words("CUDA_ERROR_ILLEGAL_INSTRUCTION"))
    ['illegal', 'instruction']
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", " ", text)  # cudaErrorMisalignedAddress
    pieces = re.findall(r"[a-z]+\d+[a-z]*|\d+x\d+|[a-z]+|\d+|%", apart.casefold().replace("_", " "))[:MAX_WORDS]
    return frozenset(_SAME.get(piece, piece) for piece in pieces if piece not in _EMPTY)


@cache
def _phrases() -> dict[str, tuple[frozenset[str], ...]]:
    """The phrases of every symptom as sets of folded words; its name is one of them."""
    return {
        name: tuple(phrase for phrase in map(_words, (*row.phrases, name)) if phrase) for name, row in SYMPTOM.items()
    }


@cache
def _weights() -> dict[str, float]:
    """How much a word says: the fewer symptoms use it, the more."""
    used = Counter(word for phrases in _phrases().values() for word in frozenset().union(*phrases))
    return {word: log(1 + len(SYMPTOM) / count) for word, count in used.items()}


def _weight(word: str) -> float:
    return _weights()[word]
