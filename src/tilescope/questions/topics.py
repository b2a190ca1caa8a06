"""The question what something is: a term, a rule, a field, a mode, a data type, an architecture, or what somebody sees.

Topics come in groups; a group finds one of its topics by what a user typed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

from tilescope.arch import ARCH, KIB, SHARED_ROWS, Arch, target_of
from tilescope.cuda_error import known_names, unknown_names_in
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError, Violation
from tilescope.names import nearest_name, nearest_names
from tilescope.questions.first_lines.topics import of_index, of_nearest, of_topic
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.rule import RULES, UNKNOWN_NAME, Rule
from tilescope.sentence import shortened
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.swizzle.description import facts, rule_sentence, used_by
from tilescope.symptoms import CAUSE, ERRORS, SEEN, TERMS, Cause, Diagnosis, Term, diagnose
from tilescope.symptoms.arithmetic import numbers_read
from tilescope.symptoms.question import is_certain, question_words, says_nothing_else, strength_of
from tilescope.symptoms.ranking import Likely, is_about_a_fault, likeliest, spells_only_ordinary_words, terms_in, weight
from tilescope.symptoms.words import FILLER, words_of
from tilescope.tensor_map import field_topics
from tilescope.value import Value

LONGEST_TEXT = 8_000  # characters that are read
LONGEST_QUESTION = 400  # characters of a question about a term
_ASKING = re.compile(
    r"\s*(?:\[[^\]]*\]\s*)*(?:what(?:'s| is| are| does| do)?|explain|define|meaning of|difference|how (?:does|big|large|many|much))\b",
    re.IGNORECASE,
)
_SIZES = re.compile(r"\s*(?:\[[^\]]*\]\s*)*how (?:big|large|many|much)\b", re.IGNORECASE)  # of the last thing named
_COMPARED = re.compile(r"\bdifferences?\s+between:?\s+(?:an?\s+|the\s+)?([\w.:]+)", re.IGNORECASE)
_ALIKE = 0.65  # how like a name a word must be spelled to stand for it
_SENTENCE_WORDS = 2
_ONE_WORD_RULES = frozenset({"capture", "drawing", "emit", "rank"})
_RULE_WORDS = 4  # of the longest name of a rule
_NAME_WORDS = 5  # of the longest name of a mode, a type, an architecture or a field, with what stands around it
_FEW_WORDS = 4  # that say something
_TRADE_WORDS = 2  # of a sentence, for a term in it to be what it is about
_AS_LIKELY = 0.8  # of what speaks for the best topic, for another to be named beside it
_MUCH_MORE = 1.5  # times what speaks for a term, for a diagnosis to go before what somebody asks for
_SYMPTOMS_SHOWN = 3  # of those that a cause has
_LISTED = "`tilescope explain` lists what can be explained."


@dataclass(frozen=True, slots=True)
class Topic(Value):
    """Something explained: its name, its group, a few sentences, and what to read next."""

    name: str
    group: str
    meaning: str
    see: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # a table below the sentences
    rival: str = ""  # another topic that fits the question about as well


@dataclass(frozen=True, slots=True)
class TopicIndex(Value):
    """The names of all topics, group by group."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class NearestTopics(Value):
    """What somebody may have meant by words that name no topic."""

    question: str
    reason: str  # why it is not known
    topics: tuple[str, ...] = ()  # their names, the nearest first; empty where nothing is near
    advice: str = ""  # what to do instead


Finder: TypeAlias = Callable[[str], Topic | Rule | Diagnosis | None]


class Group(NamedTuple):
    """A group of topics: their names, how to find one (None: unknown), and other spellings of them."""

    name: str
    names: Iterable[str]
    find: Finder
    spellings: Mapping[str, str] = {}  # alias: name


def index() -> TopicIndex:
    """All topics."""
    return TopicIndex(tuple((group.name, tuple(group.names)) for group in GROUPS))


def names() -> Iterator[str]:
    """The name of every topic that is a word or a rule: what a shell completes. Symptoms are sentences."""
    return (name for group in (*WORD_GROUPS, CAUSES) for name in group.names)


def find(name: str) -> Topic | Rule | Diagnosis:
    """The topic of that name, the rule, or the symptom that the words describe.

    A sentence that names nothing gives a Diagnosis that holds only what is near; other words are refused with the nearest.

    >>> find("leading byte offset").name
    'LBO'
    """
    if len(name) > LONGEST_TEXT:  # a log names its error first or last
        name = f"{name[: LONGEST_TEXT // 2]} {name[-LONGEST_TEXT // 2 :]}"
    tried = [(find_topic, name) for find_topic in (CAUSES.find, TERM_NAMES.find, _rule_as_written)]
    if _may_be_a_name(name):
        tried += [(group.find, name) for group in WORD_GROUPS if group not in (RULE_NAMES, TERM_NAMES)]
    asking = _ASKING.match(name)
    asked_for = name[asking.end() :].strip(" ?\"'") if asking else ""
    if asked_for and _may_be_a_name(asked_for):  # what is e4m3
        tried += [(find_topic, asked_for) for find_topic in (_swizzle_mode, _data_type, _arch)]
    of_sentences = (_compared_term, _in_sentence, _rule, _likely_term, _near_sentence)
    tried += [(find_topic, name) for find_topic in of_sentences]
    for find_topic, words in tried:
        topic = find_topic(words)
        if topic is not None:
            return _with_numbers(topic, name)
    nearest = _nearest(name)
    raise UNKNOWN_NAME.error(
        argument="topic",
        found=f"topic {shortened(name)!r}",
        limit="no term, rule, symptom, field, mode, data type or architecture has that name",
        fix=f"Did you mean {' or '.join(nearest)}?" if nearest else _LISTED,
    )


def _with_numbers(topic: Topic | Rule | Diagnosis, name: str) -> Topic | Rule | Diagnosis:
    """A topic with what the numbers of the question come to; a diagnosis has it already.

    >>> _with_numbers(find("TMA"), "what does TMA make of a box of 512").facts[0][0]
    'your numbers'
    """
    said = numbers_read(name)
    if not isinstance(topic, Topic) or not said:
        return topic
    return replace(topic, facts=(("your numbers", " ".join(said)), *topic.facts))


def _may_be_a_name(name: str) -> bool:
    """Whether words are few enough to be the name of a mode, a type, an architecture or a field."""
    return len(name.split()) <= _NAME_WORDS


def _nearest(name: str) -> list[str]:
    """The topics spelled most like `name`: the best, and up to two that are about as near."""
    spelled = {_folded(alias): topic for group in GROUPS for alias, topic in group.spellings.items()}
    spelled |= {_folded(topic): topic for topic in names()}
    wanted = _folded(name)[:80]
    near = [topic for topic in nearest_names(wanted, spelled) if SequenceMatcher(None, topic, wanted).ratio() >= _ALIKE]
    return list(dict.fromkeys(spelled[topic] for topic in near))[:3]


def _folded(name: str) -> str:
    """A name without case, and without what people put between words."""
    return re.sub(r"[\s_\-]+", " ", name.strip().casefold())


def _term(spelling: str) -> Topic | None:
    term = _TERM_BY_SPELLING.get(_folded(spelling))
    return None if term is None else Topic(term.name, "terms", term.meaning, term.see)


def _contained_term(name: str) -> Topic | None:
    """The term in a question that says nothing beside it: "what does expect_tx mean", "SBO meaning".

    Of several, who asks what something is names it first; in a title the rarest is the subject.
    """
    asked = _question(name)
    spellings = _spellings_in(name)
    bare = []
    for word in spellings:
        others = asked.replace(f" {word} ", " ").split()
        if all(map(says_nothing_else, others)):
            bare.append(word)
    if not bare:
        return None
    return _term(bare[0] if _ASKING.match(name) and not _SIZES.match(name) else _rarest(bare))


def _compared_term(name: str) -> Topic | None:
    """The first of two terms whose difference somebody asks for, whatever else the question guesses at.

    >>> _compared_term("Is the difference between mbarrier and barrier their handling of the count?").name
    'mbarrier'
    """
    compared = _COMPARED.search(name)
    if compared is None:
        return None
    parts = compared[1].rstrip(".:").split(".")
    spellings = (".".join(parts[:count]) for count in range(len(parts), 0, -1))  # mbarrier.try_wait, then mbarrier
    return next((topic for topic in map(_term, spellings) if topic is not None), None)


def _rarest(spellings: Iterable[str]) -> str:
    """The spelling whose rarest word says most; of those that say as much, the longest."""
    return max(spellings, key=lambda spelling: (_rarest_word(spelling), len(spelling)))


def _rarest_word(spelling: str) -> float:
    return max((weight({word}) for word in words_of(spelling)), default=0.0)


def _in_sentence(name: str) -> Topic | Diagnosis | None:
    """What a sentence is about: what its numbers say, the term that it asks for, or what speaks most strongly."""
    asks_for_meaning = _ASKING.match(name) is not None  # of a word, not for what is wrong
    is_short = len(words_of(name)) <= _FEW_WORDS
    term = _contained_term(name)
    if term is not None and asks_for_meaning and not _says_more(diagnose(name), name):
        return term
    diagnosis = _known_diagnosis(name)
    if is_certain(name) or (diagnosis.symptoms and is_short):
        return diagnosis
    names_a_fault = is_about_a_fault(name) and bool(diagnosis.named)
    if term is not None and is_short and not asks_for_meaning and not names_a_fault:
        return term
    return _strongest(diagnosis, _mentioned_terms(name))


def _says_more(diagnosis: Diagnosis, name: str) -> bool:
    """Whether what a question describes says much more than the terms it spells: "what alignment does TMA need"."""
    terms = _mentioned_terms(name)
    return bool(terms) and strength_of(diagnosis) > _MUCH_MORE * terms[0].score


def _strongest(diagnosis: Diagnosis, terms: tuple[Likely, ...]) -> Topic | Diagnosis | None:
    """What speaks most strongly: the diagnosis or a term; with the runner-up, if about as much speaks for it."""
    found = list(terms)
    if diagnosis.symptoms:
        found.append(Likely(strength_of(diagnosis), diagnosis.symptoms[0].name, "symptom"))
    elif diagnosis.named:
        found.append(Likely(strength_of(diagnosis), diagnosis.named[0].name, "cause"))
    if not found:
        return None
    best, *others = sorted(found, key=lambda likely: -likely.score)
    rival = next((other.name for other in others if _is_rival(other, best)), "")
    if best.kind != "term":
        return replace(diagnosis, rival=rival)
    topic = _term(best.name)
    return None if topic is None else replace(topic, rival=rival)


def _is_rival(other: Likely, best: Likely) -> bool:
    """Whether about as much speaks for another topic, and it is not another side of the same thing."""
    return other.score >= _AS_LIKELY * best.score and words_of(other.name).isdisjoint(words_of(best.name))


def _likely_term(name: str) -> Topic | None:
    """The term that a sentence is most about although it does not spell it."""
    guess = likeliest(question_words(name), name)
    return _term(guess.name) if guess is not None and guess.kind == "term" else None


def _mentioned_terms(name: str) -> tuple[Likely, ...]:
    """The terms that a sentence spells, the strongest first; an ordinary word only beside other words of the trade.

    "Why does CUTLASS use a 3-4-3 swizzle?" is about swizzles; "my dog has a box" is not about boxes.
    """
    words = set(_question(name).split())
    of_trade = [word for word in words if not word.isdecimal() and word not in FILLER and says_nothing_else(word)]
    if len(of_trade) < _TRADE_WORDS and spells_only_ordinary_words(name):
        return ()
    return terms_in(name, question_words(name))


def _spellings_in(name: str) -> list[str]:
    """The spellings of terms that a question holds, in its order; of those that begin together, the longest first."""
    asked = _question(name)
    places = {spelling: asked.find(f" {spelling} ") for spelling in _TERM_BY_SPELLING}
    return sorted((word for word, place in places.items() if place >= 0), key=lambda word: (places[word], -len(word)))


def _question(name: str) -> str:
    """A question in bare words, a space around each; names in capitals are taken apart where no term is spelled so."""
    asked = _bare_words(name)
    if any(f" {spelling} " in asked for spelling in _TERM_BY_SPELLING):
        return asked
    return _bare_words(re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name))  # WarpSpecializedPingpong


@lru_cache(maxsize=64)
def _bare_words(name: str) -> str:
    words = re.sub(r"[^\w.:<>\[\]]+", " ", _folded(name[:LONGEST_QUESTION])).split()
    return f" {' '.join(word.rstrip('.:') or word for word in words)} "


def _bare_mode(name: str) -> str:
    """The mode that a phrase names: "128B swizzle mode", or SW128 as CuTe's atoms write it."""
    bare = re.sub(r"(?i)\bswizzl(?:e|ing)\b(?!<)|\bmode\b", " ", name).strip()
    return re.sub(r"(?i)^(?:K_|MN_)?SW(\d+)$", r"\1B", bare) or name


def _swizzle_mode(name: str) -> Topic | None:
    for spelling in (name, _bare_mode(name)):
        try:
            return _described_mode(Swizzle.named(spelling))
        except RuleError:
            continue
    return None


def _described_mode(row: Swizzle) -> Topic:
    known = facts(row)
    mode = row.hardware_mode
    sentences = [rule_sentence(row)]
    if row.feature is None:
        sentences.append(f"In C: {known['C']}.")
        sentences.append(f"The pattern repeats {known['repeats']}.")
        sentences.append(f"Used by {used_by(row)}." if mode is None else f"It is {used_by(row)}.")
        see = ("swizzle",) if mode is None else ("swizzle", mode.name, "span")
        return Topic(row.name, "swizzle modes", " ".join(sentences), see)
    sentences.append(f"The inner row of a box is {known['inner width']}.")
    if row.bits:
        sentences.append(f"The pattern repeats {known['repeats']}.")
    sentences.append(f"TMA has it on {', '.join(row.architectures)}; {known['basis']}.")
    if "note" in known:
        sentences.append(known["note"])
    sentences.append(f"`tilescope swizzle {row.name}` draws it.")
    return Topic(row.name, "swizzle modes", " ".join(sentences), ("swizzle", "span", "base offset"))


def _data_type(name: str) -> Topic | None:
    try:
        row = DataType.named(name)
    except RuleError:
        return None
    width = "1 bit" if row.bits == 1 else f"{row.bits} bits"
    sentences = [f"A {_kind_of_type(row)} of {width} an element, in PTX `.{row.ptx}`."]
    if row.driver_code is None:
        sentences.append(f"TMA does not know it and moves it as {row.tma_name}.")
    else:
        fill = "zero or NaN" if row.is_float else "zero"
        sentences.append(
            f"TMA knows it: the driver's number for it is {row.driver_code}, that of PTX {row.ptx_code}. "
            f"Fill outside the tensor is {fill}."
        )
    if row.smem_bits != row.bits:
        sentences.append(f"In shared memory an element takes {row.smem_bits} bits, padding included.")
    return Topic(row.name, "data types", " ".join(sentences), ("tensor map", "out-of-bounds fill"))


def _kind_of_type(row: DataType) -> str:
    if row.is_float:
        return "floating-point type"
    return "type" if row.name.startswith(("16u", "b1")) else "integer type"


def _arch(name: str) -> Topic | None:
    try:
        row = Arch.named(name)
    except RuleError:
        return None
    target = target_of(name)
    shown = target if target in SHARED_ROWS else row.name
    special = _features(row, f"{row.name}a")
    smem_per_sm = f"{row.smem_per_sm_bytes // KIB} KiB of shared memory an SM"
    smem_per_block = f"at most {row.smem_per_block_bytes // KIB} KiB a block"
    sentences = [
        f"Compute capability {shown[3:-1]}.{shown[-1]}, with {smem_per_sm} and {smem_per_block}.",
        f"At most {row.blocks_per_sm} blocks an SM.",
        f"Code for {shown} has {_features(row, row.name)}.",
    ]
    if special:
        sentences.append(f"Code for {shown}a also has {special}.")
    if shown != row.name:
        sentences.append(f"These are the facts of {row.name}, whose row it shares.")
    basis = "was measured on a card" if row.basis == "measured" else "rests on the documents"
    sentences.append(f"What tilescope says about it {basis}.")
    return Topic(shown, "architectures", " ".join(sentences), ("TMA", "wgmma", "tcgen05"))


def _features(row: Arch, target: str) -> str:
    """What code for a target of the architecture has."""
    return ", ".join(feature.replace("_", " ") for feature in row.features if row.target(feature) == target)


def _rule_as_written(name: str) -> Rule | None:
    """The rule whose name is written as it is printed: a word with hyphens, but for the few that have none.

    All rules together are the whole package, which takes a second to import: most questions are answered without.
    """
    bare = name.strip()
    is_name = bare in _ONE_WORD_RULES or ("-" in bare and not re.search(r"\s", bare))
    return _rule(name) if is_name else None


def _rule(name: str) -> Rule | None:
    """The rule of that name, with whatever stands between its words."""
    return _rules_by_spelling().get(_folded(name)) if len(name.split()) <= _RULE_WORDS else None


@cache
def _rules_by_spelling() -> dict[str, Rule]:
    return {_folded(name): rule for name, rule in RULES.items()}


def _symptom(name: str) -> Diagnosis | None:
    """What the words describe, if it is something seen."""
    diagnosis = _known_diagnosis(name)
    return diagnosis if diagnosis.symptoms else None


def _known_diagnosis(name: str) -> Diagnosis:
    """What the words describe; an error code that no CUDA error has is refused, whatever stands around it."""
    diagnosis = diagnose(name)
    if diagnosis.symptoms:
        return diagnosis
    if diagnosis.unknown_codes:
        raise UNKNOWN_NAME.error(
            argument="topic",
            found=f"error {diagnosis.unknown_codes[0]}",
            limit="no error of CUDA's driver or runtime has that number, so it is unknown here",
            fix="Look it up where it was printed: a library's own codes, an exit status and an errno are other "
            "numbers.",
        )
    unknown = unknown_names_in(name)
    if unknown:
        nearest = nearest_name(unknown[0], known_names())
        raise UNKNOWN_NAME.error(
            argument="topic",
            found=f"error {shortened(unknown[0])}",
            limit="no error of CUDA's driver or runtime has that name",
            fix=f"Did you mean {nearest}?" if nearest else _LISTED,
        )
    return diagnosis


def _near_sentence(name: str) -> Diagnosis | None:
    """What a sentence is near to that names nothing."""
    if len(name.split()) < _SENTENCE_WORDS:
        return None
    diagnosis = diagnose(name)
    return diagnosis if diagnosis.suggested or diagnosis.nearest else None


def _cause(name: str) -> Topic | None:
    """The cause of that very name, hyphens too: what it is, how to tell, the fix, the test; its word first, if any."""
    asked = name.strip()[:LONGEST_QUESTION]
    cause = CAUSE.get(_ASKING.sub("", asked).strip(" ?\"'").casefold())
    if cause is None:
        return None
    if not cause.term:
        return Topic(cause.name, "causes", cause.mechanism, facts=_cause_facts(cause))
    term = _TERM_BY_SPELLING[_folded(cause.term)]
    see = tuple(word for word in (term.name, *term.see) if word != cause.name)
    return Topic(cause.name, "causes", term.meaning, see, _cause_facts(cause))


def _cause_facts(cause: Cause) -> tuple[tuple[str, str], ...]:
    """The table below the sentences about a cause."""
    symptoms = [symptom.name for symptom in SEEN.values() if cause.name in symptom.causes]
    rows = {
        "as a cause": cause.mechanism if cause.term else "",
        "how to tell": cause.tell,
        "fix": cause.fix,
        "test it": f"`{cause.command}`",
        "basis": cause.basis,
        "seen in": ", ".join(cause.threads),
        "comes with": "; ".join(symptoms[:_SYMPTOMS_SHOWN]),
    }
    return tuple((title, said) for title, said in rows.items() if said)


def _map_field(name: str) -> Topic | None:
    field = field_topics.topic(name)
    return None if field is None else Topic(field.name, "tensor map fields", field.meaning, field.see, field.facts)


_TERM_BY_SPELLING: dict[str, Term] = {_folded(name): term for term in TERMS for name in (*term.aliases, term.name)}
_TERM_ALIASES = {alias: term.name for term in TERMS for alias in term.aliases}
_PTX_TYPES = {row.ptx: row.name for row in DATA_TYPE.values()}
RULE_NAMES = Group("rules", RULES, _rule)
TERM_NAMES = Group("terms", [term.name for term in TERMS], _term, _TERM_ALIASES)
WORD_GROUPS = (
    RULE_NAMES,
    TERM_NAMES,
    Group("swizzle modes", SWIZZLE, _swizzle_mode),
    Group("data types", DATA_TYPE, _data_type, _PTX_TYPES),
    Group("architectures", ARCH, _arch),
    Group("tensor map fields", list(field_topics.topics()), _map_field, field_topics.TOPIC_SPELLINGS),
)
CAUSES = Group("causes", CAUSE, _cause)
GROUPS = (*WORD_GROUPS, CAUSES, Group("symptoms", SEEN, _symptom), Group("CUDA errors", ERRORS, _symptom))


def answer(asked: Asked) -> Answer:
    """What the words name; without words, everything that can be explained. Exit status 1 if only something is near."""
    if "topic" not in asked:
        topics = index()
        return Answer(topics, first=of_index(topics))
    question = " ".join(asked["topic"])
    try:
        found = find(question)
    except RuleError as error:
        near = _near_words(question, *error.violations)
        return Answer(near, is_yes=False, first=of_nearest(near))
    return Answer(found, is_yes=not isinstance(found, Diagnosis) or found.is_known, first=of_topic(found))


def _near_words(question: str, unknown: Violation) -> NearestTopics:
    """What is near to words that name nothing; where nothing is, what to do instead."""
    topics = tuple(_nearest(question))
    is_sentence = len(question.split()) >= _SENTENCE_WORDS and unknown.found.startswith("topic ")
    reason = "No topic shares enough of these words." if is_sentence else f"{unknown.found}: {unknown.limit}."
    return NearestTopics(shortened(question), reason, topics, "" if topics else unknown.fix)


EXPLAIN = Question(
    name="explain",
    help="""Explain TOPIC: a term such as "base offset", a rule, a field, a mode, a data type, an architecture, or
    what you see.

    What you see may be a pasted line of a log, of ptxas or of a library; an error code (715) or its name; or a few words:
    hang, "garbage in every second row". Numbers in it are read: "Required: 131072, Hardware limit: 101376" says what fits.
    A - reads stdin.

    Where two topics fit about as well, the first line names both. Words that name nothing get the nearest topics, and
    exit status 1. Without TOPIC: list everything that can be explained.
    """,
    inputs=(Input("topic", read=str, is_many=True, is_required=False, completed=names),),
    answer=answer,
    is_drawn=False,
)
QUESTIONS = (EXPLAIN,)
