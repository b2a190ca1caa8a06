"""The term that a question spells: as the whole question, as one side of a comparison, or among the words of a sentence.

>>> term_topic("leading byte offset").name, contained_term("what does SBO mean").name
('LBO', 'SBO')
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from tilescope.symptoms import TERMS, Term
from tilescope.symptoms.ranking import Likely, likeliest, spells_only_ordinary_words, terms_in, weight
from tilescope.symptoms.symptom_diagnosis import question_words, says_nothing_else
from tilescope.symptoms.topic import Topic, fold_name
from tilescope.symptoms.word_forms import FILLER, words_of

LONGEST_QUESTION = 400  # characters of a question about a term
ASKING = re.compile(
    r"\s*(?:\[[^\]]*\]\s*)*(?:what(?:'s| is| are| does| do)?|explain|define|meaning of|difference|how (?:does|big|large|many|much))\b",
    re.IGNORECASE,
)
_SIZES = re.compile(r"\s*(?:\[[^\]]*\]\s*)*how (?:big|large|many|much)\b", re.IGNORECASE)  # of the last thing named
_COMPARED = re.compile(r"\bdifferences?\s+between:?\s+(?:an?\s+|the\s+)?([\w.:]+)", re.IGNORECASE)
_TRADE_WORDS = 2  # of a sentence, for a term in it to be what it is about
TERM_BY_SPELLING: dict[str, Term] = {fold_name(name): term for term in TERMS for name in (*term.aliases, term.name)}


def term_topic(spelling: str) -> Topic | None:
    """The term of that name or alias, as a topic; None if there is none."""
    term = TERM_BY_SPELLING.get(fold_name(spelling))
    return None if term is None else Topic(term.name, "terms", term.meaning, term.see)


def contained_term(name: str) -> Topic | None:
    """The term in a question without other content: "what does expect_tx mean", "SBO meaning".

    If there are several: a user who asks for a meaning names the term first; in a title, the rarest is the subject.
    """
    question = _bare_question(name)
    spellings = _spellings_in(name)
    bare = []
    for word in spellings:
        others = question.replace(f" {word} ", " ").split()
        if all(map(says_nothing_else, others)):
            bare.append(word)
    if not bare:
        return None
    return term_topic(bare[0] if ASKING.match(name) and not _SIZES.match(name) else _rarest(bare))


def compared_term(name: str) -> Topic | None:
    """The first of two terms whose difference the user asks for, before any other interpretation.

    >>> compared_term("Is the difference between mbarrier and barrier their handling of the count?").name
    'mbarrier'
    """
    compared = _COMPARED.search(name)
    if compared is None:
        return None
    parts = compared[1].rstrip(".:").split(".")
    spellings = (".".join(parts[:count]) for count in range(len(parts), 0, -1))  # mbarrier.try_wait, then mbarrier
    return next((topic for topic in map(term_topic, spellings) if topic is not None), None)


def _rarest(spellings: Iterable[str]) -> str:
    """The spelling whose rarest word has the most weight; of equal ones, the longest."""
    return max(spellings, key=lambda spelling: (_rarest_word(spelling), len(spelling)))


def _rarest_word(spelling: str) -> float:
    return max((weight({word}) for word in words_of(spelling)), default=0.0)


def likely_term(name: str) -> Topic | None:
    """The term that a sentence is most about although it does not spell it."""
    guess = likeliest(question_words(name), name)
    return term_topic(guess.name) if guess is not None and guess.kind == "term" else None


def mentioned_terms(name: str) -> tuple[Likely, ...]:
    """The terms that a sentence spells, the strongest first; an ordinary word counts only next to other technical words.

    "Why does CUTLASS use a 3-4-3 swizzle?" is about swizzles; "my dog has a box" is not about boxes.
    """
    words = set(_bare_question(name).split())
    of_trade = [word for word in words if not word.isdecimal() and word not in FILLER and says_nothing_else(word)]
    if len(of_trade) < _TRADE_WORDS and spells_only_ordinary_words(name):
        return ()
    return terms_in(name, question_words(name))


def _spellings_in(name: str) -> list[str]:
    """The spellings of terms that a question holds, in its order; none inside a longer one."""
    question = _bare_question(name)
    places = {spelling: place for spelling in TERM_BY_SPELLING if (place := question.find(f" {spelling} ")) >= 0}
    outermost = (
        word for word in places if not any(f" {word} " in f" {longer} " for longer in places if longer != word)
    )
    return sorted(outermost, key=places.__getitem__)


def _bare_question(name: str) -> str:
    """A question in bare words, a space around each; names in capitals are taken apart where no term is spelled so."""
    question = _bare_words(name)
    if any(f" {spelling} " in question for spelling in TERM_BY_SPELLING):
        return question
    return _bare_words(re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name))  # WarpSpecializedPingpong


@lru_cache(maxsize=64)
def _bare_words(name: str) -> str:
    words = re.sub(r"[^\w.:<>\[\]]+", " ", fold_name(name[:LONGEST_QUESTION])).split()
    return f" {' '.join(word.rstrip('.:') or word for word in words)} "
