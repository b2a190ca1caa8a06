"""The words of a question, one form for all that mean the same.

    "My kernel is stuck: misalligned adress"  →  {hang, misaligned, address}
    "shared memory", "shared mem", "smem"     →  smem                    several words that are one thing (words.toml)
    "it doesn't work"                         →  {not, right}            n't is a word
    "sm120a", "SM_120", "compute_120"         →  {smtarget, sm, 120}     a target, not an SM
    "Mismatched elements: 7168 / 8192"        →  … {87, percent}         a share of the whole is read as a percentage
    "2-D", "2d"                               →  2d                      a rank, no letter D

Forms of a word have one stem; a word that is misspelt by a letter or two is read as the known one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import lru_cache

from tilescope.symptoms.printed_line import MARKS, bare_line
from tilescope.symptoms.tables import table

MAX_WORDS = 200  # of a question: the first and the last of a pasted log
MAX_CHARACTERS = 20_000
_BETWEEN = " | "  # phrases that are parsed together: no phrase contains it
_ALIKE = 0.83  # how like a known word another is spelled to be read as it
_MISSPELT_LETTERS = 5  # the fewest of a word that may be misspelt
_STEM_LETTERS = 4  # a shorter word is no form of another
# Of a form, and of its stem. Nouns of verbs first: initialization, allocation; illegally.
_ENDINGS = {"izations": "iz", "ization": "iz", "isation": "iz", "ations": "at", "ation": "at", "ally": "al"}
_ENDINGS |= {"ies": "y", "ied": "y", "ings": "", "ing": "", "ed": "", "s": ""}
_NO_FORMS = ("ss", "us", "is", "eed")  # endings of words that are no forms: address, exceed
_DOUBLED = frozenset("bdgmnprt")  # letters that a form doubles
_LEAST_COUNTED = 64  # of elements, for a fraction of them to be a share: 7 / 8 may be anything

_WORDS = table("words")
SAME = {word: name for name, words in _WORDS["same"].items() for word in words.split()}
_NAMES = frozenset(SAME.values())
FILLER = frozenset(_WORDS["filler"]["words"].split())
_RAW = {
    kind: _WORDS[kind]["words"].split()
    for kind in (
        "asking",
        "vague",
        "decisive",
        "context",
        "elsewhere",
        "fault",
        "everyday",
        "ordinary",
        "unlike",
        "of_neighbours",
    )
}
# The meaning of several words together, the longest first: "shared memory" before "memory".
_TOGETHER = {spelled: name for name, spellings in _WORDS["together"].items() for spelled in spellings}
_TOGETHER_PATTERN = re.compile(rf"\b(?:{'|'.join(sorted(map(re.escape, _TOGETHER), key=len, reverse=True))})\b")
_PIECE = re.compile(r"\d+(?:st|nd|rd|th)\b|\dd\b|[a-z]+\d+[a-z]*|\d+x\d+|[a-z]+|\d+|%")
# sm90a, sm_120, compute_100, 90a; capability 120, compute capability 12.0
_TARGET = re.compile(r"\b(?:(?:sm|compute|capability)[_ ]?(\d{2,3})[af]?|(90|1[012]\d)[af])\b")
_CAPABILITY = re.compile(r"\bcapability[ :(]{1,3}(\d{1,2})[., ]{1,2}(\d)\b")
# Where a name in capitals is taken apart: cudaError Misaligned Address, SM100 ArchSpec, NVFP4 Tensor, Fence MBarrier Init,
# TMA Reduce Op, Store Async TMA Op
_JOINTS = re.compile(
    r"(?:(?<=[a-z])|(?<=[A-Z]\d)|(?<=[A-Z]\d\d)|(?<=[A-Z]\d{3}))(?=[A-Z]{1,2}[a-z]{2})"
    r"|(?<=[A-Z]{3})(?=[A-Z][a-z])|(?<=[a-z]{2})(?=[A-Z]{3})"
)
# Cards and families by name: "does it run on Thor" is the same question as "does it run on a 4090".
_GPU = re.compile(rf"\b(?:{'|'.join(_WORDS['gpus']['words'].split())})\b")
_CARD = re.compile(r"\b([rg]tx)(\d{4})")  # RTX5090
# A model with its size and its types: DeepSeek-R1-0528-NVFP4, Qwen3.6-27B
_MODEL = re.compile(rf"\b(?:{'|'.join(_WORDS['models']['words'].split())})[\w.]*(?:-[\w.]+)+", re.IGNORECASE)
_FULL = re.compile(r"\b100 ?(?:%|percent\b)")  # a load; the 100 of sm_100 near another percentage is not
_FRACTION = re.compile(r"\b(\d) ?(?:out of|of|/) ?(\d)\b")  # "3 of 4 are wrong"; version 3.4 is none
# What a change does, before what it is about: "[Bugfix] Update grouped GEMM to use TMA descriptors" updates no descriptor.
_CHANGE = re.compile(
    r"\A(\s*(?:\[[^\]]*\]\s*:?\s*)*)(?:updates?|refactor|rewrites?|stage(?!\W+(?:count|ind|num))"
    r"|register(?!\W+(?:alloc|bank|budget|count|file|fragment|layout|limit|press|promo|re|sp|steal|tile|to|usage)))"
    r"\b(?=(?:\W+\w+){3})",
    re.IGNORECASE,
)
_SEVERAL = re.compile(r"\bmultiple (?!of\b)(?=(?:[a-z]+ ){0,2}[a-z]+s\b)")  # multiple tiles; a multiple of 16 is none
_PLACE = re.compile(r",? line \d+;")  # of a compiler's message: no line of shared memory
_SHARE = re.compile(r"\b(\d{1,9})\s*(?:/|of|out of)\s*(\d{2,9})\b")


def _without_joints(text: str) -> str:
    """A text whose names in capitals are taken apart, in small letters, words parted by blanks, targets by their number."""
    apart = _JOINTS.sub(" ", _MODEL.sub(" ", _PLACE.sub(" ", _CHANGE.sub(r"\1", text))))
    apart = re.sub(r"(?<=\d)B(?:\b|(?=[A-Z][a-z]))", " byte ", apart)  # 16B, 128BSwizzle, but 256b are bits
    apart = re.sub(r"\b(?:e\.g\.|i\.e\.)", " ", apart)  # their letters are no words: -G is one
    plain = apart.casefold().replace("\u2019", "'").replace("n't", " not")
    plain = _CAPABILITY.sub(r"capability \1\2", plain)
    bare = _TARGET.sub(r"smtarget sm \1\2", re.sub(r"[_\-\s<>=]+", " ", plain))
    bare = _SEVERAL.sub("several ", re.sub(r"\b([1-5]) d\b", r"\1d", bare))
    return _GPU.sub(r"gpucard \g<0>", bare)


@lru_cache(maxsize=4096)
def sequence_of(text: str) -> tuple[str, ...]:
    """The words of a text in their order, folded, filler among them.

    >>> sequence_of("elementStrides of the TMA_desc")
    ('element', 'strid', 'of', 'the', 'tma', 'descriptor')
    """
    return tuple(map(fold_word, spelled_words(text)))


@lru_cache(maxsize=4096)
def spelled_words(text: str) -> tuple[str, ...]:
    """The words of a text in their order, as they are spelled.

    >>> spelled_words("warp_specialize"), spelled_words("warp specialization")
    (('warp', 'specialize'), ('warp', 'specialization'))
    """
    return tuple(_shorten(_PIECE.findall(_without_joints(bare_line(text[:MAX_CHARACTERS])))))


def _shorten(pieces: list[str]) -> list[str]:
    """The first and the last words of a long text."""
    return pieces if len(pieces) <= MAX_WORDS else pieces[: MAX_WORDS // 2] + pieces[-MAX_WORDS // 2 :]


def words_of(text: str) -> frozenset[str]:
    """The words of a text, folded: one form for words that mean the same, filler left out.

    >>> sorted(words_of("CUDA_ERROR_ILLEGAL_INSTRUCTION"))
    ['illegal', 'instruction']
    >>> sorted(words_of("out of shared memory"))
    ['out', 'smem']
    """
    return frozenset(ordered_words(text))


@lru_cache(maxsize=8192)
def ordered_words(text: str) -> tuple[str, ...]:
    """The words of a text in their order, folded, filler left out; shares in percent at the end.

    >>> ordered_words("CUDA_ERROR_ILLEGAL_INSTRUCTION after 7168 / 8192")
    ('illegal', 'instruction', '7168', '8192', '87', 'percent')
    """
    bare = _without_joints(bare_line(text[:MAX_CHARACTERS]))
    pieces = _shorten(_PIECE.findall(_join_words(bare)))
    return tuple(fold_word(piece) for piece in (*pieces, *_percentages(bare)) if piece not in FILLER)


def words_of_each(phrases: Iterable[str]) -> tuple[frozenset[str], ...]:
    """The words of every phrase, as words_of has them; phrases that are filler throughout are left out.

    All phrases are taken apart in one text: thousands of them are read before the first question is answered.

    >>> words_of_each(["out of shared memory", "the kernel", "deadlock"]) == (frozenset({"out", "smem"}), frozenset({"hang"}))
    True
    """
    together = _join_words(_without_joints(_BETWEEN.join(phrases)))
    pieces_of_each = (_PIECE.findall(phrase) for phrase in together.split(_BETWEEN))
    words = (frozenset(fold_word(piece) for piece in pieces if piece not in FILLER) for pieces in pieces_of_each)
    return tuple(phrase for phrase in words if phrase)


def _join_words(bare: str) -> str:
    """A bare text in which several words that are one thing are one word."""
    fractions = _FRACTION.sub(r"fraction\1\2", _FULL.sub("fullpercent percent", bare))
    apart = _CARD.sub(r"\1 \2", fractions)
    return _TOGETHER_PATTERN.sub(lambda match: _TOGETHER[match[0]], apart)


def _percentages(text: str) -> list[str]:
    """The share that counts of elements make, in percent: "7168 / 8192" is 87 percent."""
    for part, whole in _SHARE.findall(text):
        if int(whole) >= _LEAST_COUNTED and int(part) <= int(whole):
            return [str(100 * int(part) // int(whole)), "percent"]
    return []


@lru_cache(maxsize=8192)
def fold_word(word: str) -> str:
    """The representative of words with the same meaning; for others the stem, so that their forms agree.

    >>> fold_word("deadlock"), fold_word("chunks"), fold_word("overlapping") == fold_word("overlaps")
    ('hang', 'chunk', True)
    """
    if word in SAME or word in _NAMES:
        return SAME.get(word, word)
    stem = _stem(word)
    for form in (stem, f"{stem}e"):
        if form in SAME or form in _NAMES:
            return SAME.get(form, form)
    return stem


def _stem(word: str) -> str:
    """A word without the endings of its forms: released, releases, releasing are releas."""
    if len(word) < _STEM_LETTERS or not word.isalpha():
        return word
    for ending, instead in _ENDINGS.items():
        stem = word.removesuffix(ending)
        if stem != word and len(stem) + len(instead) >= _STEM_LETTERS - 1 and not word.endswith(_NO_FORMS):
            word = stem + instead
            break
    if word[-1:] == word[-2:-1] and word[-1:] in _DOUBLED:  # overlapp(ing)
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > _STEM_LETTERS else word


def read_as(word: str, known: Collection[str]) -> str:
    """The known word that a folded word is a misspelling of; the word itself otherwise.

    >>> read_as("adress", {"address"}), read_as("egg", {"address"}), read_as("model", {"mode"})
    ('address', 'egg', 'model')
    """
    if word in known or word in FILLER or word in ELSEWHERE or word in UNLIKE:
        return word
    if len(word) >= _MISSPELT_LETTERS and word.isalpha():
        others = [other for other in (*known, *SAME) if other[0] == word[0] and abs(len(other) - len(word)) <= 2]
        for near in get_close_matches(word, others, n=1, cutoff=_ALIKE):
            return fold_word(near)
    return word


def _with_folded(words: list[str]) -> frozenset[str]:
    """Words as people write them, and as questions have them."""
    return frozenset((*words, *map(fold_word, words)))


ASKING = _with_folded(_RAW["asking"])
VAGUE = _with_folded(_RAW["vague"])
DECISIVE = _with_folded(_RAW["decisive"])  # describes a symptom, with any other words
CONTEXT = _with_folded(_RAW["context"])  # words of the trade, though no phrase has them
ELSEWHERE = _with_folded(_RAW["elsewhere"])  # a question with one of these is not about tiles
UNLIKE = _with_folded(_RAW["unlike"])  # separate words, even if they are spelled like a known one
OF_NEIGHBOURS = _with_folded(_RAW["of_neighbours"])  # of a phrase: they modify the adjacent word
PRINTED = frozenset(map(fold_word, MARKS))  # each represents what one kind of program prints
FAULT = _with_folded(_RAW["fault"])  # a question with one of these tells of something that goes wrong
EVERYDAY = _with_folded(_RAW["everyday"])  # terms that are ordinary words as well
ORDINARY = _with_folded(_RAW["ordinary"]) | EVERYDAY  # … and those that need another technical word near them
# Places, which have little to do with the cause: cards, families, targets, head dimensions; and the purpose of a
# change.
BACKGROUND = _with_folded([*_WORDS["gpus"]["words"].split(), *_WORDS["purpose"]["words"].split()])
BACKGROUND |= {"gpucard", "smtarget", "sm", "headdim"}
