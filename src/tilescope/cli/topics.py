"""What can be explained, and where it comes from.

Each provider names its topics and finds one by what a user typed. To explain another kind of thing, write
a provider and append it to `PROVIDERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple, TypeVar

from tilescope.arch import ARCH, KIB, Arch
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError, nearest_names, shortened
from tilescope.rule import RULES, UNKNOWN_NAME, Rule
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.symptoms import SYMPTOM, Diagnosis, diagnose
from tilescope.symptoms.glossary import TERMS, Term
from tilescope.symptoms.question import says_nothing_else
from tilescope.tensor_map import field_topics
from tilescope.value import Value
from tilescope.view.swizzle_view import facts, rule_sentence, used_by

LONGEST_TEXT = 8_000  # characters that are read
LONGEST_QUESTION = 400  # characters of a question about a term
_ASKING = re.compile(
    r"\s*(?:what(?:'s| is| are| does| do)?|explain|define|meaning of|difference|how (?:does|big|large|many|much))\b",
    re.IGNORECASE,
)
_ALIKE = 0.65  # how like a name a word must be spelled to stand for it


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


class Provider(NamedTuple):
    """A group of topics: their names, other spellings to suggest by, and how to find one (None: unknown)."""

    group: str
    names: Callable[[], Iterable[str]]
    spellings: Callable[[], Mapping[str, str]]  # alias: name
    find: Callable[[str], Topic | Rule | Diagnosis | None]


def index() -> TopicIndex:
    """All topics."""
    return TopicIndex(tuple((provider.group, tuple(provider.names())) for provider in PROVIDERS))


def names() -> Iterator[str]:
    """The name of every topic that is a word or a rule: what a shell completes."""
    return (name for provider in PROVIDERS[:-1] for name in provider.names())


def find(name: str) -> Topic | Rule | Diagnosis:
    """The topic of that name, the rule, or the symptom that the words describe; others are refused with the nearest.

    >>> find("leading byte offset").name
    'LBO'
    """
    if len(name) > LONGEST_TEXT:  # a log names its error first or last
        name = f"{name[: LONGEST_TEXT // 2]} {name[-LONGEST_TEXT // 2 :]}"
    providers = [provider.find for provider in PROVIDERS]
    asks = _ASKING.match(name) is not None  # for a word's meaning, not for what is wrong
    for find_topic in (*providers[:-1], *([_find_contained_term] if asks else []), providers[-1], _find_contained_term):
        if (topic := find_topic(name)) is not None:
            return topic
    symptoms = [f'"{symptom.name}"' for symptom in diagnose(name).suggested[:3]]
    nearest = (symptoms or _nearest(name)) if len(name.split()) > 1 else (_nearest(name) or symptoms)
    raise UNKNOWN_NAME.error(
        "topic",
        f"topic {shortened(name)!r}",
        "no term, rule, symptom, field, mode, data type or architecture has that name",
        f"Did you mean {' or '.join(nearest)}?" if nearest else "`tilescope explain` lists what can be explained.",
    )


def _nearest(name: str) -> list[str]:
    """The topics spelled most like `name`: the best, and up to two that are about as near."""
    spelled = {_folded(alias): each for provider in PROVIDERS for alias, each in provider.spellings().items()}
    spelled |= {
        _folded(each): each for provider in PROVIDERS[:-1] for each in provider.names()
    }  # symptoms are sentences
    wanted = _folded(name)[:80]
    near = [topic for topic in nearest_names(wanted, spelled) if SequenceMatcher(None, topic, wanted).ratio() >= _ALIKE]
    return list(dict.fromkeys(spelled[topic] for topic in near))[:3]


def _folded(name: str) -> str:
    """A name without case, and without what people put between words."""
    return re.sub(r"[\s_\-]+", " ", name.strip().casefold())


def _term_topic(term: Term) -> Topic:
    return Topic(term.name, "terms", term.meaning, term.see)


def _find_term(name: str) -> Topic | None:
    term = _TERM_BY_SPELLING.get(_folded(name))
    return None if term is None else _term_topic(term)


def _find_contained_term(name: str) -> Topic | None:
    """The longest term in a question that says nothing beside it: "what does expect_tx mean", "SBO meaning"."""
    asked = " ".join(re.sub(r"[^\w.:<>\[\]]+", " ", _folded(name[:LONGEST_QUESTION])).split())
    for spelling in sorted(_TERM_BY_SPELLING, key=len, reverse=True):
        if f" {spelling} " in f" {asked} ":
            beside = f" {asked} ".replace(f" {spelling} ", " ").split()
            return _term_topic(_TERM_BY_SPELLING[spelling]) if all(map(says_nothing_else, beside)) else None
    return None


def _find_swizzle(name: str) -> Topic | None:
    bare = re.sub(r"(?i)\bswizzl(?:e|ing)\b(?!<)|\bmode\b", " ", name).strip()
    bare = re.sub(r"(?i)^(?:K_|MN_)?SW(\d+)$", r"\1B", bare)  # as CuTe's atoms write it
    row = _row(Swizzle.named, name) or _row(Swizzle.named, bare or name)
    if row is None:
        return None
    known = facts(row)
    if row.feature is None:
        mode = row.hardware_mode
        used = f"Used by {used_by(row)}." if mode is None else f"It is {used_by(row)}."
        meaning = f"{rule_sentence(row)} In C: {known['C']}. The pattern repeats {known['repeats']}. {used}"
        return Topic(
            row.name, "swizzle modes", meaning, ("swizzle",) if mode is None else ("swizzle", mode.name, "span")
        )
    sentences = [
        rule_sentence(row),
        f"The inner row of a box is {known['inner width']}.",
        f"The pattern repeats {known['repeats']}." if row.bits else "",
        f"TMA has it on {', '.join(row.architectures)}; {known['basis']}.",
        known.get("note", ""),
        f"`tilescope swizzle {row.name}` draws it.",
    ]
    return Topic(row.name, "swizzle modes", " ".join(filter(None, sentences)), ("swizzle", "span", "base offset"))


def _find_data_type(name: str) -> Topic | None:
    row = _row(DataType.named, name)
    if row is None:
        return None
    kind = (
        "floating-point type" if row.is_float else "integer type" if not row.name.startswith(("16u", "b1")) else "type"
    )
    sentences = [f"A {kind} of {row.bits} bit{'s' if row.bits > 1 else ''} an element, in PTX `.{row.ptx}`."]
    if row.driver_code is None:
        sentences.append(f"TMA does not know it and moves it as {row.tma_name}.")
    else:
        sentences.append(f"TMA knows it: the driver's number for it is {row.driver_code}, that of PTX {row.ptx_code}.")
        sentences.append(f"Fill outside the tensor is zero{' or NaN' if row.is_float else ''}.")
    if row.smem_bits != row.bits:
        sentences.append(f"In shared memory an element takes {row.smem_bits} bits, padding included.")
    return Topic(row.name, "data types", " ".join(sentences), ("tensor map", "out-of-bounds fill"))


def _find_arch(name: str) -> Topic | None:
    row = _row(Arch.named, name)
    if row is None:
        return None
    special_target = row.name + "a"
    plain = [feature for feature in row.features if row.target(feature) == row.name]
    special = [feature for feature in row.features if row.target(feature) == special_target]
    major, minor = row.compute_capability
    basis = "was measured on a card" if row.basis == "measured" else "rests on the documents"
    sentences = [
        f"Compute capability {major}.{minor}.",
        f"Shared memory: {row.smem_per_sm_bytes // KIB} KiB an SM, at most {row.smem_per_block_bytes // KIB} KiB a block.",
        f"At most {row.blocks_per_sm} blocks an SM.",
        f"Code for {row.name} has {_listed(plain)}.",
        f"Code for {special_target} also has {_listed(special)}." if special else "",
        f"What tilescope says about it {basis}.",
    ]
    return Topic(row.name, "architectures", " ".join(filter(None, sentences)), ("TMA", "wgmma", "tcgen05"))


def _listed(names: list[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


Row = TypeVar("Row", Swizzle, DataType, Arch)


def _row(named: Callable[[object], Row], name: str) -> Row | None:
    try:
        return named(name)
    except RuleError:
        return None


def _find_rule(name: str) -> Rule | None:
    return _RULE_BY_SPELLING.get(_folded(name))


def _find_symptom(name: str) -> Diagnosis | None:
    found = diagnose(name)
    return found if found.symptoms else None


def _find_map_topic(name: str) -> Topic | None:
    found = field_topics.find(name)
    return None if found is None else Topic(found.name, "tensor map fields", found.meaning, found.see, found.facts)


_RULE_BY_SPELLING = {_folded(name): rule for name, rule in RULES.items()}
_TERM_BY_SPELLING = {_folded(spelling): term for term in TERMS for spelling in (*term.aliases, term.name)}
PROVIDERS: tuple[Provider, ...] = (
    Provider("rules", lambda: RULES, dict, _find_rule),
    Provider(
        "terms",
        lambda: (term.name for term in TERMS),
        lambda: {alias: term.name for term in TERMS for alias in term.aliases},
        _find_term,
    ),
    Provider("swizzle modes", lambda: SWIZZLE, dict, _find_swizzle),
    Provider(
        "data types", lambda: DATA_TYPE, lambda: {row.ptx: row.name for row in DATA_TYPE.values()}, _find_data_type
    ),
    Provider("architectures", lambda: ARCH, dict, _find_arch),
    Provider("tensor map fields", field_topics.names, field_topics.spellings, _find_map_topic),
    Provider("symptoms", lambda: SYMPTOM, dict, _find_symptom),
)
