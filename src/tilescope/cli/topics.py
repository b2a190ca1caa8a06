"""`tilescope explain`: what can be explained, by groups of topics that find one by what a user typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Any, NamedTuple

import click

from tilescope.arch import ARCH, KIB, Arch
from tilescope.cli.command import Output, command, completing
from tilescope.cuda_error import known_names, unknown_names_in
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError
from tilescope.names import nearest_name, nearest_names
from tilescope.rule import RULES, UNKNOWN_NAME, Rule
from tilescope.sentence import shortened
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.swizzle.description import facts, rule_sentence, used_by
from tilescope.symptoms import CAUSE, ERRORS, SEEN, TERMS, Diagnosis, Term, diagnose
from tilescope.symptoms.question import says_nothing_else
from tilescope.tensor_map import field_topics
from tilescope.value import Value
from tilescope.view.drawing import Drawing, Table

LONGEST_TEXT = 8_000  # characters that are read
LONGEST_QUESTION = 400  # characters of a question about a term
_ASKING = re.compile(
    r"\s*(?:what(?:'s| is| are| does| do)?|explain|define|meaning of|difference|how (?:does|big|large|many|much))\b",
    re.IGNORECASE,
)
_ALIKE = 0.65  # how like a name a word must be spelled to stand for it
_SYMPTOMS_SHOWN = 3  # of those that a cause has


@dataclass(frozen=True, slots=True)
class Topic(Value):
    """Something explained: its name, its group, a few sentences, and what to read next."""

    name: str
    group: str
    meaning: str
    see: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()  # a table below the sentences


@dataclass(frozen=True, slots=True)
class TopicIndex(Value):
    """The names of all topics, group by group."""

    groups: tuple[tuple[str, tuple[str, ...]], ...]


class Group(NamedTuple):
    """A group of topics: their names, how to find one (None: unknown), and other spellings of them."""

    name: str
    names: Iterable[str]
    find: Callable[[str], Topic | Rule | Diagnosis | None]
    spellings: Mapping[str, str] = {}  # alias: name


def index() -> TopicIndex:
    """All topics."""
    return TopicIndex(tuple((group.name, tuple(group.names)) for group in GROUPS))


def names() -> Iterator[str]:
    """The name of every topic that is a word or a rule: what a shell completes. Symptoms are sentences."""
    return (name for group in (*WORD_GROUPS, CAUSES) for name in group.names)


def find(name: str) -> Topic | Rule | Diagnosis:
    """The topic of that name, the rule, or the symptom that the words describe; others are refused with the nearest.

    >>> find("leading byte offset").name
    'LBO'
    """
    if len(name) > LONGEST_TEXT:  # a log names its error first or last
        name = f"{name[: LONGEST_TEXT // 2]} {name[-LONGEST_TEXT // 2 :]}"
    asks = _ASKING.match(name) is not None  # for a word's meaning, not for what is wrong
    words = [CAUSES.find, *(group.find for group in WORD_GROUPS)]
    for find_topic in (*words, *([_contained_term, _symptom] if asks else [_symptom, _contained_term])):
        if (topic := find_topic(name)) is not None:
            return topic
    symptoms = [f'"{symptom.name}"' for symptom in diagnose(name).suggested[:3]]
    symptoms += [_TERM_BY_SPELLING[spelling].name for spelling in _spellings_in(name)[:1] if symptoms]
    nearest = (symptoms or _nearest(name)) if len(name.split()) > 1 else (_nearest(name) or symptoms)
    raise UNKNOWN_NAME.error(
        "topic",
        f"topic {shortened(name)!r}",
        "no term, rule, symptom, field, mode, data type or architecture has that name",
        f"Did you mean {' or '.join(nearest)}?" if nearest else "`tilescope explain` lists what can be explained.",
    )


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
    """The first term in a question that says nothing beside it: "what does expect_tx mean", "SBO meaning"."""
    for first in _spellings_in(name)[:1]:
        beside = _question(name).replace(f" {first} ", " ").split()
        return _term(first) if all(map(says_nothing_else, beside)) else None
    return None


def _spellings_in(name: str) -> list[str]:
    """The spellings of terms that a question holds, in its order; of those that begin together, the longest first."""
    asked = _question(name)
    places = {spelling: asked.find(f" {spelling} ") for spelling in _TERM_BY_SPELLING}
    return sorted((word for word, place in places.items() if place >= 0), key=lambda word: (places[word], -len(word)))


def _question(name: str) -> str:
    """A question in bare words, a space around each."""
    words = re.sub(r"[^\w.:<>\[\]]+", " ", _folded(name[:LONGEST_QUESTION])).split()
    return f" {' '.join(words)} "


def _bare_mode(name: str) -> str:
    """The mode that a phrase names: "128B swizzle mode", or SW128 as CuTe's atoms write it."""
    bare = re.sub(r"(?i)\bswizzl(?:e|ing)\b(?!<)|\bmode\b", " ", name).strip()
    return re.sub(r"(?i)^(?:K_|MN_)?SW(\d+)$", r"\1B", bare) or name


def _swizzle(row: Swizzle) -> Topic:
    known, mode = facts(row), row.hardware_mode
    repeats = f"The pattern repeats {known['repeats']}." if row.bits or row.feature is None else ""
    if row.feature is None:
        used = f"Used by {used_by(row)}." if mode is None else f"It is {used_by(row)}."
        sentences = [rule_sentence(row), f"In C: {known['C']}.", repeats, used]
        return _topic(row, "swizzle modes", sentences, "swizzle", *(() if mode is None else (mode.name, "span")))
    width, where = f"The inner row of a box is {known['inner width']}.", ", ".join(row.architectures)
    basis, draws = f"TMA has it on {where}; {known['basis']}.", f"`tilescope swizzle {row.name}` draws it."
    sentences = [rule_sentence(row), width, repeats, basis, known.get("note", ""), draws]
    return _topic(row, "swizzle modes", sentences, "swizzle", "span", "base offset")


def _data_type(row: DataType) -> Topic:
    kind = "floating-point type" if row.is_float else "type" if row.name.startswith(("16u", "b1")) else "integer type"
    knows = (
        f"TMA knows it: the driver's number for it is {row.driver_code}, that of PTX {row.ptx_code}. "
        f"Fill outside the tensor is zero{' or NaN' if row.is_float else ''}."
    )
    sentences = [
        f"A {kind} of {row.bits} bit{'s' if row.bits > 1 else ''} an element, in PTX `.{row.ptx}`.",
        f"TMA does not know it and moves it as {row.tma_name}." if row.driver_code is None else knows,
        f"In shared memory an element takes {row.smem_bits} bits, padding included." * (row.smem_bits != row.bits),
    ]
    return _topic(row, "data types", sentences, "tensor map", "out-of-bounds fill")


def _arch(row: Arch) -> Topic:
    plain, special = (
        ", ".join(feature.replace("_", " ") for feature in row.features if row.target(feature) == target)
        for target in (row.name, row.name + "a")
    )
    major, minor = row.compute_capability
    basis = "was measured on a card" if row.basis == "measured" else "rests on the documents"
    sentences = [
        f"Compute capability {major}.{minor}.",
        f"Shared memory: {row.smem_per_sm_bytes // KIB} KiB an SM, at most {row.smem_per_block_bytes // KIB} KiB a block.",
        f"At most {row.blocks_per_sm} blocks an SM.",
        f"Code for {row.name} has {plain}.",
        f"Code for {row.name}a also has {special}." if special else "",
        f"What tilescope says about it {basis}.",
    ]
    return _topic(row, "architectures", sentences, "TMA", "wgmma", "tcgen05")


def _topic(row: Any, group: str, sentences: list[str], *see: str) -> Topic:
    return Topic(row.name, group, " ".join(filter(None, sentences)), see)


def _explained_row(describe: Callable[[Any], Topic], table: Any, *spellings: str) -> Topic | None:
    """The row of a table that one of the spellings names, explained."""
    for name in spellings:
        with suppress(RuleError):
            return describe(table.named(name))
    return None


def _symptom(name: str) -> Diagnosis | None:
    """What the words describe; an error code that no CUDA error has is refused, whatever stands around it."""
    diagnosis = diagnose(name)
    if diagnosis.symptoms:
        return diagnosis
    if diagnosis.unknown_codes:
        raise UNKNOWN_NAME.error(
            "topic",
            f"error {diagnosis.unknown_codes[0]}",
            "no error of CUDA's driver or runtime has that number, so it is unknown here",
            "Look it up where it was printed: a library's own codes, an exit status and an errno are other numbers.",
        )
    if names := unknown_names_in(name):
        nearest = nearest_name(names[0], known_names())
        raise UNKNOWN_NAME.error(
            "topic",
            f"error {shortened(names[0])}",
            "no error of CUDA's driver or runtime has that name",
            f"Did you mean {nearest}?" if nearest else "`tilescope explain` lists what can be explained.",
        )
    return None


def _cause(name: str) -> Topic | None:
    """The cause of that very name, hyphens too: what it is, how to tell, the fix, the test; its word first, if it has one."""
    asked = name.strip()[:LONGEST_QUESTION]
    cause = CAUSE.get(_ASKING.sub("", asked).strip(" ?\"'").casefold())
    if cause is None:
        return None
    term = _TERM_BY_SPELLING[_folded(cause.term)] if cause.term else None
    seen = [symptom.name for symptom in SEEN.values() if cause.name in symptom.causes]
    facts = {
        "as a cause": cause.mechanism if term else "",
        "how to tell": cause.tell,
        "fix": cause.fix,
        "test it": f"`{cause.command}`",
        "basis": cause.basis,
        "seen in": ", ".join(cause.threads),
        "comes with": "; ".join(seen[:_SYMPTOMS_SHOWN]),
    }
    words = [] if term is None else [word for word in (term.name, *term.see) if word != cause.name]
    return Topic(
        cause.name,
        "causes",
        term.meaning if term else cause.mechanism,
        tuple(words),
        tuple((title, said) for title, said in facts.items() if said),
    )


def _map_field(name: str) -> Topic | None:
    field = field_topics.topic(name)
    return None if field is None else Topic(field.name, "tensor map fields", field.meaning, field.see, field.facts)


_RULE_BY_SPELLING = {_folded(name): rule for name, rule in RULES.items()}
_TERM_BY_SPELLING: dict[str, Term] = {_folded(name): term for term in TERMS for name in (*term.aliases, term.name)}
WORD_GROUPS = (
    Group("rules", RULES, lambda name: _RULE_BY_SPELLING.get(_folded(name))),
    Group(
        "terms", [term.name for term in TERMS], _term, {alias: term.name for term in TERMS for alias in term.aliases}
    ),
    Group("swizzle modes", SWIZZLE, lambda name: _explained_row(_swizzle, Swizzle, name, _bare_mode(name))),
    Group(
        "data types",
        DATA_TYPE,
        partial(_explained_row, _data_type, DataType),
        {row.ptx: row.name for row in DATA_TYPE.values()},
    ),
    Group("architectures", ARCH, partial(_explained_row, _arch, Arch)),
    Group("tensor map fields", list(field_topics.topics()), _map_field, field_topics.TOPIC_SPELLINGS),
)
CAUSES = Group("causes", CAUSE, _cause)
GROUPS = (*WORD_GROUPS, CAUSES, Group("symptoms", SEEN, _symptom), Group("CUDA errors", ERRORS, _symptom))


@command(svg=False)
@click.argument("topic", nargs=-1, shell_complete=completing(names()))
def explain(topic: tuple[str, ...], output: Output) -> int:
    """Explain TOPIC: a term such as "base offset", a rule, a field, a mode, a data type, an architecture, or what you see.

    What you see may be an error code (715), an error's name, or a few words: hang, "garbage in every second row".

    Without TOPIC: list everything that can be explained.
    """
    if not topic:
        groups = {name: ", ".join(listed) for name, listed in index().groups}
        return output.show(index(), Drawing("What can be explained", [Table(groups)]))
    explained = find(" ".join(topic))
    if not isinstance(explained, Topic):  # rules and diagnoses draw themselves
        return output.show(explained)
    see = f"See also: {', '.join(explained.see)}." if explained.see else ""
    return output.show(explained, Drawing(explained.name, [explained.meaning, Table(explained.facts), see]))
