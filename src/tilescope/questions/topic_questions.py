"""The question what something is: a term, a rule, a field, a mode, a data type, an architecture, or what somebody sees.

Topics come in groups; a group finds one of its topics by what a user typed. Words that name none are a sentence.

    >>> find("leading byte offset").name, find("box-range").name, find("sm_90").group
    ('LBO', 'box-range', 'architectures')
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from typing import NamedTuple, TypeAlias

from tilescope.arch import ARCH, SHARED_ROWS, target_of
from tilescope.errors import RuleError, Violation
from tilescope.names import nearest_names
from tilescope.questions.computed_answers import computed_answer
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.questions.sentence_choice import choose_answer, guess
from tilescope.questions.sentence_topics import (
    SENTENCE_WORDS,
    asked_term,
    in_sentence,
    known_diagnosis,
    near_sentence,
)
from tilescope.questions.term_topics import (
    ASKING,
    LONGEST_QUESTION,
    TERM_BY_SPELLING,
    compared_term,
    likely_term,
    term_topic,
)
from tilescope.rule import RULES, UNKNOWN_NAME, Rule
from tilescope.sentence import fill_template, first_sentence, shorten
from tilescope.symptoms import CAUSE, ERRORS, SEEN, TERMS, Cause, Diagnosis, Symptom, diagnose
from tilescope.symptoms.choice import is_sure
from tilescope.symptoms.symptom_diagnosis import read_numbers, says_first_cause
from tilescope.symptoms.topic import HOW_TO_LIST, YOUR_NUMBERS, NearestTopics, Topic, TopicIndex, fold_name

LONGEST_TEXT = 8_000  # characters that are read
_ALIKE = 0.65  # similarity of spelling at which a word is taken for a name
_ONE_WORD_RULES = frozenset({"capture", "drawing", "emit", "rank"})
_RULE_WORDS = 4  # of the longest name of a rule
_CODE_WORDS = 2  # of a name with a dot, an underscore or a capital inside: field data_type
_CODE_NAME = re.compile(r"[_.:]|[a-z][A-Z]")
# Of names without a number: types of C, generations of cards, fields.
_ROW_WORDS = frozenset(
    (
        *("half", "float", "double", "bool", "char", "uchar", "byte", "short", "ushort", "int", "unsigned", "signed"),
        *("long", "longlong", "ulonglong", "size", "none", "replace", "address", "rank", "interleave", "swizzle"),
        *("field", "ampere", "ada", "hopper", "blackwell", "rubin", "thor"),
    )
)
_BESIDE_ROW_WORDS = frozenset({"mode", "swizzling", "high"})  # in the name of a row, and name none
_NAME_WORDS = 5  # of the longest name of a mode, a type, an architecture or a field, with its context
_SYMPTOMS_SHOWN = 3  # of those that a cause has


Finder: TypeAlias = Callable[[str], Topic | Rule | Diagnosis | None]


_NEAREST_SAID = 3
_CAUSES_SAID = 3
_CODE_SIGN = "`"  # around code in a text


class Group(NamedTuple):
    """A group of topics: their names, how to find one (None: unknown), and other spellings of them."""

    name: str
    names: Iterable[str]
    find: Finder
    spellings: Mapping[str, str] = {}  # alias: name


def index() -> TopicIndex:
    """All topics."""
    return TopicIndex(tuple((group.name, tuple(group.names)) for group in all_groups()))


def names() -> Iterator[str]:
    """The name of every topic that is a word or a rule: what a shell completes. Symptoms are sentences."""
    return (name for group in (RULE_NAMES, TERM_NAMES, *row_groups(), CAUSES) for name in group.names)


def find(name: str) -> Topic | Rule | Diagnosis:
    """The topic of that name, the rule, or the symptom that the words describe.

    A sentence that names nothing gives a Diagnosis that holds only what is near; other words are refused with the nearest.

    >>> find("leading byte offset").name
    'LBO'
    """
    if len(name) > LONGEST_TEXT:  # a log names its error first or last
        name = f"{name[: LONGEST_TEXT // 2]} {name[-LONGEST_TEXT // 2 :]}"
    for find_topic, words in _finders(name):
        topic = find_topic(words)
        if topic is not None:
            return _with_numbers(_error_first(topic, name), name)
    entry = find_by_tables(name)
    if entry is not None:
        return _with_numbers(entry if isinstance(entry, Rule) else choose_answer(name, entry), name)
    guessed = guess(name)
    if guessed is not None:
        return guessed
    nearest = _nearest(name)
    raise UNKNOWN_NAME.error(
        argument="topic",
        found=f"topic {shorten(name)!r}",
        limit="no term, rule, symptom, field, mode, data type or architecture has that name",
        fix=f"Did you mean {' or '.join(nearest)}?" if nearest else HOW_TO_LIST,
    )


def _finders(name: str) -> Iterator[tuple[Finder, str]]:
    """What finds the topic that words name, and the words; tables that take long to import come late."""
    yield from (
        (find_topic, name) for find_topic in (CAUSES.find, TERM_NAMES.find, _rule_as_written, _symptom_as_listed)
    )
    if may_name_a_row(name):
        yield from ((group.find, name) for group in row_groups())
    asking = ASKING.match(name)
    subject = name[asking.end() :].strip(" ?\"'") if asking else ""
    if subject and may_name_a_row(subject):  # what is e4m3
        yield from ((group.find, subject) for group in row_groups() if group.name != FIELDS)
    yield from ((find_topic, name) for find_topic in (compared_term, computed_answer, asked_term))


def find_by_tables(name: str) -> Topic | Rule | Diagnosis | None:
    """What the phrases of the tables find in a sentence."""
    for find_topic in (in_sentence, _rule, likely_term, near_sentence):
        topic = find_topic(name)
        if topic is not None:
            return topic
    return None


def _error_first(topic: Topic | Rule | Diagnosis, name: str) -> Topic | Rule | Diagnosis:
    """A bare number as CUDA's error of that number, even if an architecture has the same number: 100, 101, 103.

    >>> find("100").rival, find("sm_100").name
    ('sm_100', 'sm_100')
    """
    if not isinstance(topic, Topic) or topic.group != "architectures" or not name.strip().isdecimal():
        return topic
    error = diagnose(name)
    return replace(error, rival=topic.name) if error.symptoms else topic


def _with_numbers(topic: Topic | Rule | Diagnosis, name: str) -> Topic | Rule | Diagnosis:
    """A topic with the meaning of the question's numbers; a diagnosis has it already.

    >>> _with_numbers(find("TMA"), "what does TMA make of a box of 512").facts[0][0]
    'your numbers'
    """
    sentences = read_numbers(name)
    if not isinstance(topic, Topic) or not sentences:
        return topic
    return replace(topic, facts=((YOUR_NUMBERS, " ".join(sentences)), *topic.facts))


def may_name_a_row(name: str) -> bool:
    """Whether words may be the name of a mode, a type, an architecture or a field; their tables take long to import.

    >>> may_name_a_row("128B swizzle mode"), may_name_a_row("globalDim"), may_name_a_row("misaligned address")
    (True, True, False)
    >>> may_name_a_row("100"), may_name_a_row("715")
    (True, False)
    """
    words = [word.strip("?.,\"'") for word in name.split()]
    if len(words) > _NAME_WORDS or not all(map(_may_stand_in_a_row_name, words)):
        return False
    if name.strip().isdecimal():  # most numbers are errors
        return target_of(name) in ARCH.keys() | SHARED_ROWS.keys()
    if any(letter.isdigit() or letter == "[" for letter in name):
        return True
    is_name_of_code = len(words) <= _CODE_WORDS and _CODE_NAME.search(name) is not None
    return is_name_of_code or not _ROW_WORDS.isdisjoint(word.casefold() for word in words)


def _may_stand_in_a_row_name(word: str) -> bool:
    is_code = _CODE_NAME.search(word) is not None or any(letter.isdigit() or letter == "[" for letter in word)
    return is_code or word.casefold() in _ROW_WORDS or word.casefold() in _BESIDE_ROW_WORDS


def _nearest(name: str) -> list[str]:
    """The topics spelled most like `name`: the best, and up to two that are about as near."""
    spelled = {fold_name(alias): topic for group in all_groups() for alias, topic in group.spellings.items()}
    spelled |= {fold_name(topic): topic for topic in names()}
    folded = fold_name(name)[:80]
    near = [topic for topic in nearest_names(folded, spelled) if SequenceMatcher(None, topic, folded).ratio() >= _ALIKE]
    return list(dict.fromkeys(spelled[topic] for topic in near))[:3]


def _rule_as_written(name: str) -> Rule | None:
    """The rule whose name is written as it is printed: a word with hyphens, but for the few that have none."""
    bare = name.strip()
    is_name = bare in _ONE_WORD_RULES or ("-" in bare and not re.search(r"\s", bare))
    return _rule(name) if is_name else None


def _rule(name: str) -> Rule | None:
    """The rule of that name, with any separators between its words."""
    rule_name = _rule_names_by_spelling().get(fold_name(name)) if len(name.split()) <= _RULE_WORDS else None
    return None if rule_name is None else RULES[rule_name]


@cache
def _rule_names_by_spelling() -> dict[str, str]:
    return {fold_name(name): name for name in RULES}


def _symptom(name: str) -> Diagnosis | None:
    """What the words describe, if it is something seen."""
    diagnosis = known_diagnosis(name)
    return diagnosis if diagnosis.symptoms else None


def _symptom_as_listed(name: str) -> Diagnosis | None:
    """The symptom of that very name, though it is a question that a command answers too."""
    return _symptom(name) if name.strip() in SEEN else None


def _cause(name: str) -> Topic | None:
    """The cause of that very name, hyphens too: what it is, how to tell, the fix, the test; its word first, if any."""
    question = name.strip()[:LONGEST_QUESTION]
    cause = CAUSE.get(ASKING.sub("", question).strip(" ?\"'").casefold())
    if cause is None:
        return None
    if not cause.term:
        return Topic(cause.name, "causes", cause.mechanism, facts=_cause_facts(cause))
    term = TERM_BY_SPELLING[fold_name(cause.term)]
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
    return tuple((title, text) for title, text in rows.items() if text)


_TERM_ALIASES = {alias: term.name for term in TERMS for alias in term.aliases}
RULE_NAMES = Group("rules", RULES, _rule)
TERM_NAMES = Group("terms", [term.name for term in TERMS], term_topic, _TERM_ALIASES)
FIELDS = "tensor map fields"
CAUSES = Group("causes", CAUSE, _cause)
SYMPTOM_NAMES = Group("symptoms", SEEN, _symptom)
ERROR_NAMES = Group("CUDA errors", ERRORS, _symptom)


@cache
def row_groups() -> tuple[Group, ...]:
    """The groups whose topics are rows of tables: modes, types, architectures, fields."""
    from tilescope.data_type import DATA_TYPE
    from tilescope.questions.row_topics import arch_topic, field_topic, swizzle_topic, type_topic
    from tilescope.swizzle import SWIZZLE
    from tilescope.tensor_map import field_topics

    ptx_types = {row.ptx: row.name for row in DATA_TYPE.values()}
    return (
        Group("swizzle modes", SWIZZLE, swizzle_topic),
        Group("data types", DATA_TYPE, type_topic, ptx_types),
        Group("architectures", ARCH, arch_topic),
        Group(FIELDS, list(field_topics.topics()), field_topic, field_topics.TOPIC_SPELLINGS),
    )


def all_groups() -> tuple[Group, ...]:
    """Every group, in the order of the list that `explain` prints."""
    return (RULE_NAMES, TERM_NAMES, *row_groups(), CAUSES, SYMPTOM_NAMES, ERROR_NAMES)


def answer(asked: Asked) -> Answer:
    """What the words name; without words, everything that can be explained. Exit status 1 if only something is near."""
    if "topic" not in asked:
        topics = index()
        return Answer(topics, first=_summarize_index(topics))
    question = " ".join(asked["topic"])
    try:
        entry = find(question)
    except RuleError as error:
        near = _near_words(question, *error.violations)
        return Answer(near, is_yes=False, first=_summarize_nearest(near))
    return Answer(entry, is_yes=not isinstance(entry, Diagnosis) or entry.is_known, first=summarize_topic(entry))


def summarize_topic(topic: Topic | Rule | Diagnosis) -> FirstLine:
    """The description of a topic; for a symptom, the likeliest cause and its fix. If two topics fit, both are named."""
    if isinstance(topic, Rule):
        return FirstLine(_name_with_sentence(topic.name, topic.demand))
    if topic.candidates and not is_sure(topic.strength) and not _has_numbers(topic):
        return _summarize_candidates(topic)
    if isinstance(topic, Diagnosis):
        first = _summarize_diagnosis(topic)
    else:
        first = _summarize_plain_topic(topic)
    if not topic.rival:
        return first
    facts = {"best": _name_of(topic), "rival": topic.rival, "first": first.sentence}
    both = fill_template('Two topics fit, "{best}" and "{rival}". {first}', facts)
    return FirstLine(both, first.advice)


def _has_numbers(topic: Topic | Diagnosis) -> bool:
    """Whether the numbers of the question have a meaning, which is certain for any topic."""
    if isinstance(topic, Diagnosis):
        return bool(topic.arithmetic)
    return bool(topic.facts) and topic.facts[0][0] == YOUR_NUMBERS


def _summarize_candidates(topic: Topic | Diagnosis) -> FirstLine:
    """The topics that may be meant, none of which is sure, and what tells the first."""
    (first, tell), *_ = topic.candidates
    line = make_line("Not sure: one of these: {names:or}.", names=tuple(name for name, _ in topic.candidates))
    return FirstLine(line.sentence, _without_code_signs(f"{first}: {tell}"))


def _summarize_plain_topic(topic: Topic) -> FirstLine:
    """The description of a topic, or the meaning of the numbers that the question contains."""
    if topic.facts and topic.facts[0][0] == YOUR_NUMBERS:
        return make_line("{name}: {said}", name=topic.name, said=topic.facts[0][1])
    return FirstLine(_name_with_sentence(topic.name, topic.meaning))


def _name_of(topic: Topic | Diagnosis) -> str:
    """The name of a topic, or of what a diagnosis puts first."""
    if not isinstance(topic, Diagnosis):
        return topic.name
    return topic.symptoms[0].name if topic.symptoms else topic.named[0].name


def _summarize_diagnosis(diagnosis: Diagnosis) -> FirstLine:
    if not diagnosis.is_known:
        near = (*(symptom.name for symptom in diagnosis.suggested), *diagnosis.nearest)
        return _summarize_unknown_words(tuple(dict.fromkeys(near))[:_NEAREST_SAID])
    if diagnosis.arithmetic:
        fix = diagnosis.causes[0].fix if diagnosis.causes else ""
        return FirstLine(" ".join(diagnosis.arithmetic[:2]), _without_code_signs(fix))
    if not diagnosis.symptoms:
        cause = diagnosis.named[0]
        return FirstLine(_name_with_sentence(cause.name, cause.mechanism), _without_code_signs(cause.fix))
    symptom = diagnosis.symptoms[0]
    if not diagnosis.causes or (symptom.advice and not diagnosis.named):
        return FirstLine(_name_with_sentence(symptom.name, symptom.note), _without_code_signs(symptom.advice))
    cause = diagnosis.causes[0]
    is_likely = says_first_cause(diagnosis) and cause.name in {name for name, _ in diagnosis.candidates}
    if diagnosis.candidates and len(diagnosis.causes) > 1 and not is_likely:
        return _summarize_causes(symptom, diagnosis.causes)
    facts = {"symptom": symptom.name, "cause": cause.name, "mechanism": _first_plain_sentence(cause.mechanism)}
    sentence = fill_template("{symptom}: look first at {cause}. {mechanism}", facts)
    return FirstLine(sentence, _without_code_signs(cause.fix))


def _summarize_causes(symptom: Symptom, causes: tuple[Cause, ...]) -> FirstLine:
    """The causes of something seen in the order to try them, where no word names one; how to tell the first, not its fix."""
    first, *others = (cause.name for cause in causes[:_CAUSES_SAID])
    line = make_line(
        "{symptom}: look first at {first}, then at {others:and}.",
        symptom=symptom.name,
        first=first,
        others=tuple(others),
    )
    return FirstLine(line.sentence, _without_code_signs(f"{first}: {first_sentence(causes[0].tell)}"))


def _name_with_sentence(name: str, text: str) -> str:
    """A name and the first sentence about it."""
    return fill_template("{name}: {sentence}", {"name": name, "sentence": _first_plain_sentence(text)})


def _first_plain_sentence(text: str) -> str:
    return _without_code_signs(first_sentence(text))


def _summarize_nearest(near: NearestTopics) -> FirstLine:
    """That the words name nothing, and what they are near to."""
    return (
        _summarize_unknown_words(near.topics)
        if near.topics
        else FirstLine(near.reason, _without_code_signs(near.advice))
    )


def _summarize_unknown_words(names: tuple[str, ...]) -> FirstLine:
    near = tuple(f'"{name}"' for name in names)
    return make_line("Nothing is known by these words[[; is it {near:or}?]]", near=near)


def _summarize_index(index: TopicIndex) -> FirstLine:
    """How many topics there are."""
    return make_line(
        "{count} topics can be explained: {groups:and}.",
        count=sum(len(names) for _, names in index.groups),
        groups=tuple(name for name, _ in index.groups),
    )


def _without_code_signs(text: str) -> str:
    """A text without the signs around code."""
    return text.replace(_CODE_SIGN, "")


def _near_words(question: str, unknown: Violation) -> NearestTopics:
    """Names similar to words that match nothing; if there are none, other suggestions."""
    topics = tuple(_nearest(question))
    is_sentence = len(question.split()) >= SENTENCE_WORDS and unknown.found.startswith("topic ")
    reason = "No topic shares enough of these words." if is_sentence else f"{unknown.found}: {unknown.limit}."
    return NearestTopics(shorten(question), reason, topics, "" if topics else unknown.fix)


EXPLAIN = Question(
    name="explain",
    help="""Explain TOPIC: a term such as "base offset", a rule, a field, a mode, a data type, an architecture, or
    what you see.

    What you see may be a pasted line of a log, of ptxas or of a library; an error code (715) or its name; or a few words:
    hang, "garbage in every second row". Numbers in it are used: for "Required: 131072, Hardware limit: 101376" the output says what fits.
    The name of a file reads the file, and - reads stdin.

    A sentence gets up to three topics, with how to tell them apart; if none is likely enough, the first line says
    "not sure" and gives no fix. Unknown words get the nearest topics, and exit status 1. Without TOPIC: list everything that can be
    explained.
    """,
    inputs=(Input("topic", read=str, is_many=True, is_required=False, completed=names),),
    answer=answer,
    is_drawn=False,
)
QUESTIONS = (EXPLAIN,)
