"""What the site needs that the pages, which are also read as files, do not say.

Links that leave docs/ (to examples/ and tests/) lead to files of the repository, which the site does not have: they become text.
A picture is a link to itself: a drawing may be wider than the column of text. Python with prompts is coloured as a session.
The first use of a glossary term in the prose of a page links to the glossary.
"""

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?:examples|tests|src|CHANGELOG|README)[^)]*\)")
_PICTURE = re.compile(r"^!\[([^\]]*)\]\(([^)]+)\)$", re.MULTILINE)
_ALONE_IN_THEIR_TAB = ("index.md", "hardware.md", "comparison.md")
_NOT_PROSE = re.compile(
    r"```.*?^```|`[^`\n]+`|!?\[[^\]]*\]\([^)]*\)|^#.*$|^\|.*$|<!--.*?-->|<[^>\n]+>", re.MULTILINE | re.DOTALL
)
_PAGES_WITHOUT_TERMS = ("glossary.md", "python.md", "commands.md", "json.md", "rules.md", "symptoms.md", "tables.md")
_EVERYDAY_WORDS = {
    "line",
    "box",
    "bank",
    "request",
    "floor",
    "period",
    "parity",
    "span",
    "scope",
    "cluster",
    "stages",
    "registers",
}
_EVERYDAY_WORDS |= {
    "layout",
    "fragment",
    "coordinates",
    "reduction",
    "cooperative",
    "interleave",
    "prefetch",
    "volatile",
    "atomics",
    "PTX",
}
_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The page without links out of docs/, with pictures that open and sessions that are coloured."""
    if page.file.src_uri in _ALONE_IN_THEIR_TAB:
        page.meta["hide"] = ["navigation"]
    inside = _OUTSIDE.sub(r"\1", markdown)
    if page.file.src_uri not in _PAGES_WITHOUT_TERMS:
        inside = link_terms(inside, page.file.src_uri)
    return _SESSION.sub("```pycon\n", _PICTURE.sub(r"[![\1](\2)](\2)", inside))


@cache
def glossary_terms() -> dict[str, str]:
    """Terms that prose links to the glossary, with their anchors; the longest first, so that "TMA store" wins over "TMA"."""
    text = Path(__file__).with_name("glossary.md").read_text("utf-8")
    terms = [term.replace("\\", "") for term in re.findall(r"^### (.+)$", text, re.MULTILINE)]
    linked = sorted((term for term in terms if term not in _EVERYDAY_WORDS), key=len, reverse=True)
    return {term: re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", term).strip().lower()) for term in linked}


def link_terms(markdown: str, page: str) -> str:
    """The text of a page in which the first use of each term links to the glossary.

    >>> link_terms("An mbarrier counts. The `mbarrier` of an mbarrier.", "how-to/a-hang.md")
    'An [mbarrier](../glossary.md#mbarrier) counts. The `mbarrier` of an mbarrier.'
    """
    terms = dict(glossary_terms())
    any_term = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, terms))})(?![\w-])")
    glossary = posixpath.relpath("glossary.md", posixpath.dirname(page) or ".")

    def linked(match: re.Match[str]) -> str:
        anchor = terms.pop(match[1], None)
        return match[0] if anchor is None else f"[{match[1]}]({glossary}#{anchor})"

    parts = []
    end = 0
    for other in _NOT_PROSE.finditer(markdown):
        parts += [any_term.sub(linked, markdown[end : other.start()]), other[0]]
        end = other.end()
    return "".join([*parts, any_term.sub(linked, markdown[end:])])
