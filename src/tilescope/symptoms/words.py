"""The words of a question, one form for all that mean the same.

    "My kernel is stuck: misalligned adress"  →  {hang, misaligned, address}
    "shared memory", "shared mem", "smem"     →  smem                    several words that are one thing (words.toml)
    "it doesn't work"                         →  {not, right}            n't is a word
    "Mismatched elements: 7168 / 8192"        →  … {87, percent}         a share of the whole is read as a percentage

A word that is a form of a known one, or misspelt by a letter or two, is read as the known one.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from tilescope.symptoms.tables import table

MAX_WORDS = 200  # of a question: the first and the last of a pasted log
MAX_CHARACTERS = 20_000
_ALIKE = 0.83  # how like a known word another is spelled to be read as it
_MISSPELT_LETTERS = 5  # the fewest of a word that may be misspelt
_ENDINGS = ("s", "es", "ed", "d", "ing", "ly")
_LEAST_COUNTED = 64  # of elements, for a fraction of them to be a share: 7 / 8 may be anything

_WORDS = table("words")
SAME = {word: name for name, words in _WORDS["same"].items() for word in words.split()}
FILLER = frozenset(_WORDS["filler"]["words"].split())
ASKING = frozenset(_WORDS["asking"]["words"].split())
VAGUE = frozenset(_WORDS["vague"]["words"].split())
CONTEXT = frozenset(_WORDS["context"]["words"].split())  # words of the trade, though no phrase has them
ELSEWHERE = frozenset(_WORDS["elsewhere"]["words"].split())  # a question with one of these is not about tiles
# What several words say together, the longest first: "shared memory" before "memory".
_TOGETHER = {spelled: name for name, spellings in _WORDS["together"].items() for spelled in spellings}
_TOGETHER_PATTERN = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, _TOGETHER), key=len, reverse=True))})\b")
_PIECE = re.compile(r"\d+(?:st|nd|rd|th)\b|[a-z]+\d+[a-z]*|\d+x\d+|[a-z]+|\d+|%")
_SHARE = re.compile(r"\b(\d{1,9})\s*(?:/|of|out of)\s*(\d{2,9})\b")


def words_of(text: str) -> frozenset[str]:
    """The words of a text, folded: one form for words that mean the same, filler left out.

    >>> sorted(words_of("CUDA_ERROR_ILLEGAL_INSTRUCTION"))
    ['illegal', 'instruction']
    >>> sorted(words_of("out of shared memory"))
    ['out', 'smem']
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z]{2})", " ", text[:MAX_CHARACTERS])  # cudaErrorMisalignedAddress
    bare = re.sub(r"[_\-\s]+", " ", apart.casefold().replace("\u2019", "'").replace("n't", " not"))
    pieces = _PIECE.findall(_TOGETHER_PATTERN.sub(lambda found: _TOGETHER[found[0]], bare))
    if len(pieces) > MAX_WORDS:
        pieces = pieces[: MAX_WORDS // 2] + pieces[-MAX_WORDS // 2 :]
    return frozenset(folded(piece) for piece in (*pieces, *_percentages(bare)) if piece not in FILLER)


def _percentages(text: str) -> list[str]:
    """The share that counts of elements make, in percent: "7168 / 8192" is 87 percent."""
    for part, whole in _SHARE.findall(text):
        if int(whole) >= _LEAST_COUNTED and int(part) <= int(whole):
            return [str(100 * int(part) // int(whole)), "percent"]
    return []


def folded(word: str) -> str:
    """The word that stands for all that mean the same; of others the singular.

    >>> folded("deadlock"), folded("chunks")
    ('hang', 'chunk')
    """
    if word in SAME or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return SAME.get(word, word)
    return SAME.get(word[:-1], word[:-1])


def read_as(word: str, known: Collection[str]) -> str:
    """The known word that `word` is a form of (counts, counted), or a misspelling; the word itself otherwise.

    >>> read_as("counted", {"count"}), read_as("adress", {"address"}), read_as("egg", {"address"})
    ('count', 'address', 'egg')
    """
    if word in known or word in FILLER or word in ELSEWHERE:
        return word
    for ending in _ENDINGS:
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            has_double_letter = stem[-2:-1] == stem[-1:]  # swapped: swapp, swap
            for form in (stem, stem + "e", stem[:-1] if has_double_letter else stem):
                same = SAME.get(form, form)
                if same in known:
                    return same
    if len(word) >= _MISSPELT_LETTERS and word.isalpha():
        others = [other for other in (*known, *SAME) if other[0] == word[0] and abs(len(other) - len(word)) <= 2]
        for near in get_close_matches(word, others, n=1, cutoff=_ALIKE):
            return folded(near)
    return word
