"""docs/rules.md, made from the rule book: every rule with its demand, its source and its two examples.

    python tests/rules_page.py        writes docs/rules.md

What a rule says is what `tilescope explain RULE` shows: both are made from the same drawing.
"""

import difflib
import re
from pathlib import Path
from typing import NamedTuple

from tilescope.rule import RULES
from tilescope.tensor_map.demonstration import demonstrate
from tilescope.view.rule_view import draw_rule
from tilescope.view.tensor_map_view import violation_words

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"
_LONGEST_EXAMPLE = 400  # characters of an expression; a longer one is left to the rule book


class Section(NamedTuple):
    """A part of the page: the rules whose names begin so, or that apply to one of the subjects."""

    title: str
    opening: str
    prefixes: tuple[str, ...] = ()
    subjects: frozenset[str] = frozenset()


SECTIONS = (
    Section(
        "What a run finds",
        "`tilescope run`, `ts.Kernel` and the pytest plugin name these ([running.md](running.md)).",
        ("run-",),
    ),
    Section(
        "Barriers and pipelines",
        "`tilescope pipeline`, `ts.simulate` and `ts.Mbarrier` name these ([pipelines.md](pipelines.md)).",
        ("pipeline-", "mbarrier-"),
    ),
    Section(
        "Tensor maps",
        "`tilescope check`, `ts.TensorMap` and its relatives name these ([tensor-maps.md](tensor-maps.md)).",
        subjects=frozenset({"tiled", "im2col", "wide", "array", "convolution", "encoding", "replacement"}),
    ),
    Section(
        "Copies by TMA",
        "`tilescope load`, `ts.load`, `ts.store` and their relatives name these ([copies.md](copies.md)).",
        ("bulk-", "gather-", "tiles-", "trace-", "dump-", "tile-bounds"),
        frozenset({"instruction"}),
    ),
    Section(
        "Plans and GEMMs",
        "`tilescope plan`, `tilescope gemm` and `ts.emit` name these ([planning.md](planning.md)).",
        ("plan-", "gemm-", "problem-", "emit"),
    ),
    Section(
        "Tensor memory and scale factors",
        "These rules apply to Blackwell ([tensor-memory.md](tensor-memory.md)).",
        ("tmem-", "scale-", "block-scaled", "tcgen05-", "pair-"),
    ),
    Section(
        "Tensor cores and descriptors",
        "`tilescope mma`, `ts.WgmmaDescriptor`, `ts.fragment` and `ts.compatible` name these ([tensor-cores.md](tensor-cores.md)).",
        ("wgmma-", "descriptor-", "mma-", "fragment-", "matrix-", "canonical-"),
        frozenset({"descriptor"}),
    ),
    Section("Everything else", "These rules are about arguments, files, notations, launches, layouts and banks."),
)


def sections():
    """The rules of every section, by its title; a rule belongs to the first that takes it."""
    found = {section: [] for section in SECTIONS}
    for row in RULES.values():
        found[next(section for section in SECTIONS if belongs(row, section))].append(row)
    return found


def belongs(row, section):
    is_last = not (section.prefixes or section.subjects)
    is_named = bool(section.prefixes) and row.name.startswith(section.prefixes)
    return is_named or is_last or not section.subjects.isdisjoint(row.subjects)


def example_lines(row):
    """The two examples, and the message for the second."""
    if isinstance(row.passing, str) and isinstance(row.failing, str) and "\n" in row.failing:
        yield from kernel_lines(row)
    else:
        labelled = [(label, said) for label, said in draw_rule(row)["examples"].rows if label]
        yield from (f"- {label}: {as_code(said)}" for label, said in labelled)
    yield from (f"\n> {escaped(violation_words(violation))}" for violation in demonstrate(row, row.failing)[:1])


def kernel_lines(row):
    """The differences of the two kernels."""
    compared = difflib.unified_diff(row.failing.splitlines(), row.passing.splitlines(), lineterm="", n=2)
    _, _, _, *lines = compared  # two file names, and where the first difference is
    shown = [" …" if line.startswith("@@") else line for line in lines]
    yield "The kernel that breaks the rule, and the change to one that keeps it (`+` lines are added, `-` lines removed):\n"
    yield "\n".join(["```diff", *shown, "```"])


def as_code(said):
    """An example as Markdown code: arguments are marked already."""
    if said.startswith(("`", "(left out)")):
        return said
    if len(said) > _LONGEST_EXAMPLE:
        return f"`ts.RULES` has it, {len(said)} characters"
    return f"`{said}`" if "`" not in said else f"`` {said} ``"


def escaped(text):
    """A sentence in which Markdown finds nothing of its own but code."""
    one_line = " ".join(text.split())
    return re.sub(r"(?<!\w)_|\*|\](?=\()", r"\\\g<0>", re.sub(r"<(?=[\w/])", "&lt;", one_line))


def rule_lines(row):
    yield f"### {row.name}\n"
    yield f"{escaped(row.demand)}\n"
    facts = dict(draw_rule(row)["facts"].rows)
    told = [facts[label] for label in ("basis", "the chip answers", "applies to", "architectures") if label in facts]
    yield escaped(" · ".join([f"{row.severity}, {told[0]}", *told[1:], f"source: {row.source}"])) + "\n"
    if row.passing is not None and row.failing is not None:
        yield from example_lines(row)
        yield ""


def page():
    """The whole page."""
    measured = sum(row.basis == "measured" for row in RULES.values())
    lines = [
        "# Every rule",
        "",
        f"tilescope has {len(RULES)} named rules. {measured} of them were measured on a card; the others come from documentation, or",
        "describe tilescope's input. `tilescope explain RULE` prints one in a terminal, and `ts.RULES` has them as data. On this page,",
        "every rule has an anchor, two examples, and the message for the second. It is generated by `python tests/rules_page.py`.",
        "",
        "An **error** is refused; a **warning** is accepted, but wrong or forbidden by the documentation; a **note** is advice.",
        "",
    ]
    for section, rows in sections().items():
        names = ", ".join(f"[{row.name}](#{row.name.lower()})" for row in rows)
        lines += [f"## {section.title}", "", section.opening, "", names, ""]
        for row in rows:
            lines += rule_lines(row)
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
