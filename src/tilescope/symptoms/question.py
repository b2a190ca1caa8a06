"""From a sentence somebody typed to the symptoms it names.

    "my kernel is stuck in try_wait"  →  {hang, try, wait}       words that mean the same are folded
    "misalligned adress"              →  {misaligned, address}   a word misspelt by a letter or two is read as the nearest known
    phrase "hang try wait"            →  all its words are there: this symptom, three words strong

Of the phrases whose words are all in the question the strongest decides; rare words weigh more than common ones. Where
no phrase fits whole, the symptoms that share its rare words are offered, never one that shares nothing.

An error code goes before words: "Failed to initialize the TMA descriptor 801" is 801, and no symptom of another code is it,
however well its phrases fit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from math import log

from tilescope.cuda_error import codes_in
from tilescope.symptoms.tables import CAUSE, SEEN, SYMPTOM, TERMS, Cause, Symptom, table
from tilescope.value import Value, row_field

MAX_WORDS = 200  # of a question: the first and the last of a pasted log
MAX_CHARACTERS = 20_000
_SUGGESTED = 5
_LEAST_SHARED = 0.6  # of a phrase's weight, for a symptom to be offered
_ALIKE = 0.83  # how like a known word another is spelled to be read as it
_MISSPELT_LETTERS = 5  # the fewest of a word that may be misspelt
_ENDINGS = ("s", "es", "ed", "d", "ing", "ly")

_WORDS = table("words")
_SAME = {word: name for name, words in _WORDS["same"].items() for word in words.split()}
_EMPTY = frozenset(_WORDS["filler"]["words"].split())
_ASKING = frozenset(_WORDS["asking"]["words"].split())
_VAGUE = frozenset(_WORDS["vague"]["words"].split())
_CONTEXT = frozenset(_WORDS["context"]["words"].split())  # words of the trade, though no phrase has them
_ELSEWHERE = frozenset(_WORDS["elsewhere"]["words"].split())  # a question with one of these is not about tiles
_PIECE = re.compile(r"\d+(?:st|nd|rd|th)\b|[a-z]+\d+[a-z]*|\d+x\d+|[a-z]+|\d+|%")


@dataclass(frozen=True, slots=True)
class Diagnosis(Value):
    """The symptoms that a question names, and the causes to try in order.

    >>> found = diagnose("my kernel hangs in mbarrier try_wait")
    >>> found.symptoms[0].name, found.causes[0].name
    ('the kernel hangs', 'parity')
    """

    question: str
    symptoms: tuple[Symptom, ...] = row_field(Symptom.named)  # best first; empty where the question names none
    # where none is named: those that share words with the question
    suggested: tuple[Symptom, ...] = row_field(Symptom.named, default=())
    unknown_codes: tuple[int, ...] = ()  # error codes of the question that no CUDA error has

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
    codes = codes_in(question[:MAX_CHARACTERS])
    known_codes = {str(code) for code in codes.known}
    words = question_words(question) | known_codes
    is_strange = not all(word in _weights() or says_nothing_else(word) for word in words)
    of_code = {name for code in codes.known for name in _symptoms_of_code(code)}
    weight_found = dict.fromkeys(sorted(of_code, key=list(SYMPTOM).index), 0.0)  # best phrase that is there whole
    overlap: dict[str, float] = {}  # share of a phrase's weight that is there
    for symptom, phrases in _phrases_asked(words):
        names_a_code = bool(codes.known or codes.unknown)
        if names_a_code and SYMPTOM[symptom].codes and symptom not in of_code:
            continue  # its words may fit; it is another error
        for phrase in phrases:
            shared = phrase & words
            if not _says_enough(phrase, shared, is_strange):
                continue
            if shared < phrase:
                overlap[symptom] = max(overlap.get(symptom, 0), _weight(shared) / _weight(phrase))
                continue
            weight_found[symptom] = max(weight_found.get(symptom, 0), _weight(phrase))
            if phrase & known_codes:
                of_code.add(symptom)
    named = sorted(weight_found, key=lambda name: (name not in of_code, -weight_found[name]))
    near = sorted((name for name in overlap if overlap[name] >= _LEAST_SHARED), key=lambda name: -overlap[name])
    suggested = () if named else tuple(SYMPTOM[name] for name in near[:_SUGGESTED])
    return Diagnosis(question, tuple(SYMPTOM[name] for name in named), suggested, codes.unknown)


def _phrases_asked(words: frozenset[str]) -> Iterable[tuple[str, tuple[frozenset[str], ...]]]:
    """The phrases of every symptom; none for a question about other things than tiles."""
    return () if words & _ELSEWHERE else _phrases().items()


def _says_enough(phrase: frozenset[str], shared: frozenset[str], is_strange: bool) -> bool:
    """Whether the words that a question shares with a phrase count; beside words that nobody knows, vague ones do not."""
    if not is_strange:
        return bool(shared)
    is_whole = shared == phrase
    return bool(shared) and not phrase <= _VAGUE and (is_whole or len(shared) >= 2)


def question_words(question: str) -> frozenset[str]:
    """The words of a question, folded, each read as the word of a phrase that it is a form or a misspelling of.

    >>> sorted(question_words("It hangs: misalligned adress"))
    ['address', 'hang', 'misaligned']
    """
    return frozenset(map(_known, _words(question)))


def _words(text: str) -> frozenset[str]:
    """The words of a text, folded: one form for words that mean the same, filler left out.

    >>> sorted(_words("CUDA_ERROR_ILLEGAL_INSTRUCTION"))
    ['illegal', 'instruction']
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", " ", text[:MAX_CHARACTERS])  # cudaErrorMisalignedAddress
    pieces = _PIECE.findall(apart.casefold().replace("_", " "))
    if len(pieces) > MAX_WORDS:
        pieces = pieces[: MAX_WORDS // 2] + pieces[-MAX_WORDS // 2 :]
    return frozenset(_folded(piece) for piece in pieces if piece not in _EMPTY)


def _folded(word: str) -> str:
    """The word that stands for all that mean the same; of others the singular."""
    if word in _SAME or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return _SAME.get(word, word)
    return _SAME.get(word[:-1], word[:-1])


def says_nothing_else(word: str) -> bool:
    """Whether a word beside a term leads nowhere else: filler, a number, or a word of the trade."""
    return word in _EMPTY or word in _ASKING or word.isdecimal() or _folded(word) in _vocabulary()


@cache
def _vocabulary() -> frozenset[str]:
    """The words of the glossary, and others of the trade."""
    text = " ".join(f"{term.name} {' '.join(term.aliases)} {term.meaning}" for term in TERMS)
    return frozenset(map(_folded, (*re.findall(r"[\w.:]+", text.casefold().replace(". ", " ")), *_CONTEXT)))


@lru_cache(maxsize=4096)
def _known(word: str) -> str:
    """The word of the phrases that `word` is a form of (swapped, swaps), or a misspelling; the word itself otherwise."""
    known = _weights()
    if word in known or word in _EMPTY:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            has_double_letter = stem[-2:-1] == stem[-1:]  # swapped: swapp, swap
            for form in (stem, stem + "e", stem[:-1] if has_double_letter else stem):
                folded = _SAME.get(form, form)
                if folded in known:
                    return folded
    if len(word) >= _MISSPELT_LETTERS and word.isalpha():
        others = [other for other in (*known, *_SAME) if other[0] == word[0] and abs(len(other) - len(word)) <= 2]
        for near in get_close_matches(word, others, n=1, cutoff=_ALIKE):
            return _folded(near)
    return word


@cache
def _symptoms_of_code(code: int) -> tuple[str, ...]:
    """The symptoms that are a CUDA error, the likeliest first."""
    return tuple(name for name, symptom in SYMPTOM.items() if code in symptom.codes)


@cache
def _phrases() -> dict[str, tuple[frozenset[str], ...]]:
    """The phrases of every symptom as sets of folded words; its name is one of them."""
    return {name: tuple(phrase for phrase in map(_words, (*row.phrases, name)) if phrase) for name, row in SEEN.items()}


@cache
def _weights() -> dict[str, float]:
    """How much a word says: the fewer symptoms use it, the more."""
    used = Counter(word for phrases in _phrases().values() for word in frozenset().union(*phrases))
    return {word: log(1 + len(SEEN) / count) for word, count in used.items()}


def _weight(words: frozenset[str]) -> float:
    return sum(_weights()[word] for word in words)
