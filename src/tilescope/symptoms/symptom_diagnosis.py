"""From a sentence somebody typed to the symptoms and causes it names.

    "my kernel is stuck in try_wait"  →  {hang, try, wait}       words that mean the same are folded (word_forms.py)
    phrase "hang try wait"            →  all its words are there: this symptom, three words strong
    "715: cute.printf after dealloc"  →  the symptom of 715, and of its causes first the one whose phrase is there

Of the phrases whose words are all in the question the strongest decides; rare words weigh more than common ones. Where
no phrase fits whole, what shares its rare words is offered (nearest.py), never something that shares nothing.

An error code goes before words: "Failed to initialize the TMA descriptor 801" is 801, and no symptom of another code is it,
however well its phrases fit. The number of an Xid line, which only the driver's log has, goes before words too.

Numbers of the question are evaluated (line_arithmetic.py): "Required: 131072, Hardware limit: 101376" gives the stages
that fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log
from typing import NamedTuple, TypeAlias

from tilescope.cuda_error import CUDA_ERROR, LEAST_DISTINCT_CODE, MentionedCodes, codes_in
from tilescope.symptoms.index import fault_word_uses, indexed_topics
from tilescope.symptoms.printed_line import line_with_codes
from tilescope.symptoms.ranking import closeness, likeliest, nearest, score_phrase, spells_more_than_background
from tilescope.symptoms.senses import quoted_reason, with_senses
from tilescope.symptoms.tables import CAUSE, SEEN, SYMPTOM, Cause, Symptom, table
from tilescope.symptoms.vocabulary import name_words, vocabulary, written_words
from tilescope.symptoms.word_forms import (
    ASKING,
    BACKGROUND,
    DECISIVE,
    ELSEWHERE,
    FILLER,
    MAX_CHARACTERS,
    PRINTED,
    VAGUE,
    fold_word,
    ordered_words,
    read_as,
    words_of,
)
from tilescope.value import Value, row_field

_SUGGESTED = 5
_LEAST_SHARED = 0.6  # of a phrase's weight, for a symptom to be offered
_DECIDES = 3  # how many rare words a word outweighs that describes a symptom
_PRINTED_WEIGHT = 1.5  # … and one for text that one kind of program prints
_BACKGROUND_WEIGHT = 1.0  # of a card's name: a place has little to do with the cause
_NAMES_A_CARD = "gpucard"  # a word that every card's name adds (word_forms.py)
_NAMES_A_TARGET = "smtarget"  # … and every target, sm_90 or compute_120
_CARDS_DIFFER = "architecture"
_EXPECTED = 1.3  # how much more a named cause weighs that the symptom has as well
_ANYBODYS_WORDS = 999  # "unknown error" occurs in every program
_IN_CUDAS_WORDS = 3.0  # how much more a CUDA error weighs whose words follow each other: "illegal instruction"
_XID = re.compile(r"\bxid\b(?:\s*\([^)]*\))?\W{0,3}(\d{1,3})\b", re.IGNORECASE)
_WANTED_SUCCESS = re.compile(r"==\s*(?:CUDA_SUCCESS|cudaSuccess)\b")  # of an assertion: what did not come back
_PTXAS_LINE = re.compile(r"\bptxas\b.*?\b(?:error|fatal)\s*:", re.IGNORECASE | re.DOTALL)
_REFUSED_BY_PTXAS = "ptxas: the instruction does not take these types, shapes or arguments"
# What a line of ptxas may be: nothing has run yet.
_OF_PTXAS = frozenset(table("ptxas")) | {
    "too much shared memory, or an invalid value at launch (1, 9)",
    "the linker or the loader does not find a symbol",
    "a compiler of kernels stops",
}
_OF_MAPS = frozenset({"tma", "tensormap", "encode"})  # words of a question about a tensor map
_AFTER_ANOTHER_XID = (43, 45, 154)  # the driver cleans up, or reports what the card needs

Phrases: TypeAlias = "tuple[frozenset[str], ...]"


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
    named: tuple[Cause, ...] = row_field(Cause.named, default=())  # causes that the question itself names, best first
    arithmetic: tuple[str, ...] = ()  # what the numbers of the question come to
    nearest: tuple[str, ...] = ()  # where nothing is named: names of topics that share its rare words, best first
    rival: str = ""  # another topic that fits the question about as well
    candidates: tuple[tuple[str, str], ...] = ()  # of a sentence: topics that may be meant, and what tells each
    strength: float = 1.0  # how likely what comes first is the right answer

    @property
    def is_known(self) -> bool:
        """Whether the question names something, or its numbers have a meaning; otherwise there are only similar topics."""
        return bool(self.symptoms or self.named or self.arithmetic)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The causes that the words name, then the others of the best symptom, most likely first."""
        of_symptom = self.symptoms[0].causes if self.symptoms else ()
        first = [cause.name for cause in self.named]
        return tuple(CAUSE[name] for name in dict.fromkeys((*first, *of_symptom)))


class _Fit(NamedTuple):
    """How well the phrases of something fit a question."""

    phrase: frozenset[str]  # the strongest that is there whole; empty: none is
    weight: float  # the score of the phrase at its positions; 0 if none matches completely
    shared: float  # of a phrase that is not: the share of its weight that is there, at best


@lru_cache(maxsize=16)  # cached: explaining a sentence needs it several times
def diagnose(question: str) -> Diagnosis:
    """The symptoms and causes that `question` names: an error code, an error's name, or what somebody sees.

    >>> [symptom.name for symptom in diagnose("CUDA_ERROR_MISALIGNED_ADDRESS").symptoms]
    ['misaligned address (716)']
    >>> diagnose("CUDA error 715 since I added cute.printf").causes[0].name
    'too-few-registers'
    >>> diagnose("how do I boil an egg").symptoms
    ()
    """
    codes = _codes_in(question)
    code_words = frozenset(map(str, codes.known))
    words = question_words(question) | code_words
    fits = _fits(_symptom_phrases(), words, question)
    if codes.known or codes.unknown:
        fits = {name: fit for name, fit in fits.items() if _may_be_code(SEEN[name], codes.known)}
    is_of_ptxas = _PTXAS_LINE.search(question) is not None
    if is_of_ptxas:
        fits = {name: fit for name, fit in fits.items() if name in _OF_PTXAS}
    certain = _certain(codes.known, _xids_in(question), words, fits)
    by_words = [name for name, fit in fits.items() if fit.phrase and name not in certain]
    by_words.sort(key=lambda name: -fits[name].weight)
    symptom_names = [*certain, *by_words]
    if not symptom_names and is_of_ptxas:
        symptom_names = [_REFUSED_BY_PTXAS]
    best = SYMPTOM[symptom_names[0]] if symptom_names else None
    seen = fits[best.name].phrase if best and best.name in fits and best.name not in certain else frozenset()
    named = list(dict.fromkeys((*causes_in_reason(question), *_named_causes(question, words, best, seen))))
    if not symptom_names and not named and not codes.unknown:
        broken = _limit_broken(question)
        symptom_names, named = ([], [broken]) if broken else _likeliest(question, words)
    is_named = bool(symptom_names or named)
    return Diagnosis(
        question,
        tuple(SYMPTOM[name] for name in symptom_names),
        () if is_named else _suggest_symptoms(fits),
        codes.unknown,
        tuple(CAUSE[name] for name in named),
        () if words & ELSEWHERE else read_numbers(question),
        () if is_named else nearest(words, question, _SUGGESTED),
    )


def _likeliest(question: str, words: frozenset[str]) -> tuple[list[str], list[str]]:
    """The symptom and the cause with the best score if no phrase matches completely and no term is spelled.

    Where nothing speaks for any, a title that names a card or a target says what is seen there (slow, wrong), or asks what
    the card can do. A term that says no more than a card's name does (PTX, mma) does not count as spelled.
    """
    if spells_more_than_background(question) or words & ELSEWHERE:
        return [], []
    guess = likeliest(words, question)
    names_hardware = not words.isdisjoint((_NAMES_A_CARD, _NAMES_A_TARGET))
    if guess is None and names_hardware and words & VAGUE:
        return _symptoms_of_word(words & VAGUE), []
    if guess is None:
        says_more = any(not word.isdecimal() for word in words - BACKGROUND - ASKING)
        return [], ([_CARDS_DIFFER] if names_hardware and says_more else [])
    if guess.kind == "term":
        return [], []
    return ([guess.name], []) if guess.kind == "symptom" else ([], [guess.name])


def is_certain(question: str) -> bool:
    """Whether a question identifies itself: by the number of an error or of an Xid line, by a broken limit, as a line of ptxas."""
    has_number = bool(_codes_in(question).known or _xids_in(question))
    return has_number or bool(_limit_broken(question)) or _PTXAS_LINE.search(question) is not None


def _codes_in(question: str) -> MentionedCodes:
    """The CUDA errors that a question mentions; exit statuses of tools, times and line numbers are none."""
    return codes_in(_WANTED_SUCCESS.sub(" ", line_with_codes(question[:MAX_CHARACTERS])))


def _limit_broken(question: str) -> str:
    """The cause that the numbers of a question about tensor maps imply; a stride of shared memory has no such limit."""
    if question_words(question).isdisjoint(_OF_MAPS) or not _has_number(question):
        return ""
    from tilescope.symptoms.line_arithmetic import limit_broken

    return limit_broken(question)


def read_numbers(question: str) -> tuple[str, ...]:
    """What the numbers of a question come to; the module that reads them is imported where there is one."""
    if not _has_number(question):
        return ()
    from tilescope.symptoms.line_arithmetic import numbers_read

    return numbers_read(question)


def _has_number(question: str) -> bool:
    return any(letter.isdigit() for letter in question[:MAX_CHARACTERS])


def score_of(diagnosis: Diagnosis) -> float:
    """The score of what a diagnosis names, for comparison with terms that the question also spells."""
    question = diagnosis.question
    words = question_words(question)
    scores = [0.0]
    if diagnosis.symptoms:
        name = diagnosis.symptoms[0].name
        phrase = _strongest_there(_symptom_phrases().get(name, ()), question, words)
        if phrase:
            factor = _in_cudas_words(name, phrase, question)
            scores.append(factor * score_phrase("symptom", name, phrase, question, words))
    if diagnosis.causes:  # those that the words name, or the likeliest of the symptom, which they may name as well
        name = diagnosis.causes[0].name
        phrase = _strongest_there(_cause_phrases()[name], question, words)
        scores.append(score_phrase("cause", name, phrase, question, words) if phrase else 0.0)
    return max(scores) or _score_of_guess(diagnosis)


def _score_of_guess(diagnosis: Diagnosis) -> float:
    """The score of what a diagnosis names although no phrase of it matches completely: shared words, or a card's name."""
    if not (diagnosis.symptoms or diagnosis.named):
        return 0.0
    guess = likeliest(question_words(diagnosis.question), diagnosis.question)
    return guess.score if guess is not None else _BACKGROUND_WEIGHT


def _strongest_there(phrases: Phrases, question: str, words: frozenset[str]) -> frozenset[str]:
    """The completely matching phrase with the highest weight; empty if there is none."""
    there = (phrase for phrase in phrases if phrase <= words)
    return max(there, key=lambda phrase: closeness(phrase, question) * _weight(phrase), default=frozenset())


def _suggest_symptoms(fits: Mapping[str, _Fit]) -> tuple[Symptom, ...]:
    """The symptoms of which most of a phrase is there."""
    near = sorted((name for name in fits if fits[name].shared >= _LEAST_SHARED), key=lambda name: -fits[name].shared)
    return tuple(SYMPTOM[name] for name in near[:_SUGGESTED])


def _may_be_code(symptom: Symptom, codes: tuple[int, ...]) -> bool:
    """Whether a symptom is one of the codes, or no code at all; its words may fit another error as well."""
    return not symptom.codes or bool(set(symptom.codes) & set(codes))


def _certain(
    codes: tuple[int, ...], xids: tuple[int, ...], words: frozenset[str], fits: Mapping[str, _Fit]
) -> list[str]:
    """The symptoms that numbers name: phrases that have the code in them, the code's own, then those of Xid lines.

    Of several with one code, those that share the most with the question come first.
    """
    code_words = frozenset(map(str, codes))
    with_code = {
        name: max(map(_weight, phrases))
        for name, symptom_phrases in _symptom_phrases().items()
        if (phrases := [phrase for phrase in symptom_phrases if phrase & code_words and phrase <= words])
    }
    strongest_first = sorted(with_code, key=lambda name: -with_code[name])
    of_codes: list[str] = []
    for code in codes:
        of_codes += sorted(_symptoms_of_code(code), key=lambda name: -fits[name].weight if name in fits else 0.0)
    of_xids = [name for xid in xids for name, symptom in SEEN.items() if xid in symptom.xids]
    return list(dict.fromkeys((*strongest_first, *of_codes, *of_xids)))


def _xids_in(question: str) -> tuple[int, ...]:
    """The numbers of Xid lines, those that follow from another last: "NVRM: Xid (PCI:0000:41:00): 13, …" has 13.

    >>> _xids_in("Xid (PCI:0000:dc:00): 45, Ch 00000001 caused by previous Xid 149")
    (149, 45)
    >>> _xids_in("NVRM: Xid (PCI:0000:41:00): 31, pid=1896"), _xids_in("Xid 79"), _xids_in("79")
    ((31,), (79,), ())
    """
    numbers = dict.fromkeys(int(number) for number in _XID.findall(question[:MAX_CHARACTERS]))
    return tuple(sorted(numbers, key=lambda number: number in _AFTER_ANOTHER_XID))


def _named_causes(question: str, words: frozenset[str], symptom: Symptom | None, seen: frozenset[str]) -> list[str]:
    """The causes of which a phrase is there whole, the strongest first.

    For a symptom that was `seen` by a phrase, a cause of it needs any additional weight, and another cause needs more
    than the whole phrase: "bank conflicts in the epilogue" is not matched again by "bank conflict".
    """
    expected = symptom.causes if symptom else ()
    likeliest = expected[0] if expected else ""  # stays first if nothing outweighs its phrase
    seen_weight = closeness(seen, question) * _weight(seen)
    weights: dict[str, float] = {}
    for name, fit in _fits(_cause_phrases(), words, question).items():
        if name in expected:
            says_more = fit.weight >= seen_weight or not fit.phrase <= seen
            weight = _EXPECTED * fit.weight
        else:
            says_more = fit.weight > seen_weight
            weight = fit.weight
        if fit.phrase and (says_more or name == likeliest):
            weights[name] = weight
    named = sorted(weights, key=lambda name: -weights[name])
    return named[: named.index(likeliest)] if likeliest in named else named


def causes_in_reason(question: str) -> list[str]:
    """The cause that the reason names which a line quotes: it goes before all others."""
    reason = quoted_reason(question)
    if not reason:
        return []
    fits = {name: fit for name, fit in _fits(_cause_phrases(), question_words(reason), reason).items() if fit.phrase}
    return sorted(fits, key=lambda name: -fits[name].weight)[:1]


def says_first_cause(diagnosis: Diagnosis) -> bool:
    """Whether the words name the first cause, and not only its symptom."""
    if diagnosis.named or not diagnosis.symptoms or not diagnosis.causes:
        return bool(diagnosis.named)
    words = question_words(diagnosis.question)
    seen = _strongest_there(_symptom_phrases().get(diagnosis.symptoms[0].name, ()), diagnosis.question, words)
    phrase = _strongest_there(_cause_phrases()[diagnosis.causes[0].name], diagnosis.question, words)
    return bool(phrase) and not phrase <= seen


def _fits(phrases_of: Mapping[str, Phrases], words: frozenset[str], question: str) -> dict[str, _Fit]:
    """How well the phrases fit, by name; nothing for a question about other things than tiles."""
    if words & ELSEWHERE:
        return {}
    is_strange = not all(word in _weights() or word in vocabulary() or word.isdecimal() for word in words)
    fits: dict[str, _Fit] = {}
    for name, phrases in phrases_of.items():
        if words.isdisjoint(_words_of_all(phrases)):
            continue
        best: frozenset[str] = frozenset()
        best_weight = 0.0
        shared_weight = 0.0
        for phrase in phrases:
            shared = phrase & words
            if not _says_enough(phrase, shared, is_strange):
                continue
            if shared != phrase:
                shared_weight = max(shared_weight, _weight(shared) / _weight(phrase))
                continue
            weight = _in_cudas_words(name, phrase, question) * closeness(phrase, question) * _weight(phrase)
            if weight > best_weight:
                best, best_weight = phrase, weight
        if best or shared_weight:
            fits[name] = _Fit(best, best_weight, shared_weight)
    return fits


def _in_cudas_words(name: str, phrase: frozenset[str], question: str) -> float:
    """How much more a phrase weighs that is a CUDA error in CUDA's own words; 1 for all others.

    >>> phrase = frozenset({"illegal", "instruction"})
    >>> _in_cudas_words("illegal instruction (715)", phrase, "CUDA illegal instruction in graph capture")
    3.0
    """
    sequence = ordered_words(question)
    is_said = any(set(words) == phrase and _follows(words, sequence) for words in _words_of_errors(name))
    return _IN_CUDAS_WORDS if is_said else 1.0


def _follows(said: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    """Whether all words occur consecutively in the question."""
    return any(asked[place : place + len(said)] == said for place, word in enumerate(asked) if word == said[0])


@cache
def _words_of_errors(name: str) -> tuple[tuple[str, ...], ...]:
    """CUDA's texts of the errors of a symptom: "an illegal instruction was encountered", folded."""
    codes = SEEN[name].codes if name in SEEN else ()
    return tuple(
        ordered_words(CUDA_ERROR[code].words)
        for code in codes
        if code >= LEAST_DISTINCT_CODE and code != _ANYBODYS_WORDS
    )


@cache
def _words_of_all(phrases: Phrases) -> frozenset[str]:
    return frozenset().union(*phrases)


def _says_enough(phrase: frozenset[str], shared: frozenset[str], is_strange: bool) -> bool:
    """Whether the words that a question shares with a phrase count; next to unknown words, vague ones do not."""
    if not is_strange:
        return bool(shared)
    is_whole = shared == phrase
    return bool(shared) and not phrase <= VAGUE and (is_whole or len(shared) >= 2)


def question_words(question: str) -> frozenset[str]:
    """The words of a question, folded, each read as the word of a phrase that it is a form or a misspelling of.

    >>> sorted(question_words("It hangs: misalligned adress"))
    ['address', 'hang', 'misaligned']
    """
    return with_senses(frozenset(map(_known, words_of(question))))


def says_nothing_else(word: str) -> bool:
    """Whether a word has no other topic next to a term: filler, a number, or a technical word."""
    if word in FILLER or word in ASKING or word.isdecimal():
        return True
    return word in written_words() or fold_word(word) in name_words()


@lru_cache(maxsize=4096)
def _known(word: str) -> str:
    return read_as(word, _weights())


def _symptoms_of_word(vague: frozenset[str]) -> list[str]:
    """The symptoms that a single vague word names."""
    return [name for name, phrases in _symptom_phrases().items() if any({word} in phrases for word in vague)]


@cache
def _symptoms_of_code(code: int) -> tuple[str, ...]:
    """The symptoms that are a CUDA error, the likeliest first."""
    return tuple(name for name, symptom in SYMPTOM.items() if code in symptom.codes)


@cache
def _symptom_phrases() -> dict[str, Phrases]:
    """The phrases of every symptom as sets of folded words; its name is one of them."""
    return {row.name: _phrases_in((*row.phrases, row.name_words)) for row in indexed_topics() if row.kind == "symptom"}


@cache
def _cause_phrases() -> dict[str, Phrases]:
    """The phrases of every cause as sets of folded words."""
    return {row.name: _phrases_in(row.phrases) for row in indexed_topics() if row.kind == "cause"}


def _phrases_in(phrases: Phrases) -> Phrases:
    return tuple(phrase for phrase in phrases if phrase)


@cache
def _weights() -> dict[str, float]:
    """The weight of a word: the fewer symptoms and causes use it, the higher; deciding words have the highest."""
    rows = sum(topic.kind != "term" for topic in indexed_topics())
    weights = {word: log(1 + rows / count) for word, count in fault_word_uses().items()}
    weights |= {_NAMES_A_CARD: _BACKGROUND_WEIGHT}
    rarest = max(weights.values())
    weights |= {word: _PRINTED_WEIGHT * rarest for word in PRINTED if word in weights}
    return weights | {word: _DECIDES * rarest for word in DECISIVE if word in weights}


def _weight(words: frozenset[str]) -> float:
    return sum(_weights()[word] for word in words)
