"""What the site needs that the pages, which are also read as files, do not say.

Links that leave docs/ (to examples/ and tests/) lead to files of the repository, which the site does not have: they become text.
A picture is a link to itself: a drawing may be wider than the column of text. Python with prompts is coloured as a session.
The first use of a glossary term in the prose of a page links to the glossary. The notebooks of examples/ become pages, with the
outputs that are stored in them. The pages of the explorer that states.md names are exported into the site, and linked there and
below the how-to pages that they are for.
"""

import json
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from mkdocs.structure.files import File, Files, InclusionLevel

_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_NOTEBOOK_LINK = re.compile(r"\((?:\.\./)+examples/(\w+)\.ipynb\)")
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

_STATE = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `(/[^`]+)` \|(?: (.+) \|)?$", re.MULTILINE)
_HOW_TO = re.compile(r"\]\((how-to/[^)]+)\)")
_PICTURES = {  # for the card of a link, by the page of the explorer
    "banks": "explorer-banks-dark.png",
    "load": "explorer-load.png",
    "pipeline": "explorer-pipeline.png",
    "swizzle": "explorer-compare.png",
    "tensor-map": "explorer-tensor-map.png",
}


class State(NamedTuple):
    """A line of states.md: a page of the explorer, and the how-to pages that it is for."""

    title: str
    address: str
    how_tos: tuple[str, ...]

    @property
    def file(self) -> str:
        """Its path in the site."""
        return f"states/{re.sub('[^a-z0-9]+', '-', self.title.lower()).strip('-')}.html"


@cache
def states() -> tuple[State, ...]:
    """The lines of states.md."""
    text = (Path(__file__).parent / "states.md").read_text("utf-8")
    return tuple(
        State(found[1], _with_texts(found[3]), tuple(_HOW_TO.findall(found[4] or "")))
        for found in _STATE.finditer(text)
    )


def _with_texts(address: str) -> str:
    """The address with the text of a template or a sample in place of its name."""
    from tilescope.pipeline.toml_text import template_text
    from tilescope.questions.pipeline_samples import SAMPLES

    def text_of(found: re.Match[str]) -> str:
        name = found[1]
        return quote(SAMPLES[name].text if name in SAMPLES else template_text(name))

    return re.sub(r"\{([\w-]+)\}", text_of, address)


def export_states(site_url: str) -> Iterator[tuple[str, str]]:
    """The pages of states.md as documents, with their paths in the site; a card's picture needs the address of the site."""
    from tilescope.web.rendering import export_page

    for state in states():
        name = state.address.strip("/").partition("?")[0]
        picture = f"{site_url.rstrip('/')}/images/{_PICTURES.get(name, 'explorer-path.png')}"
        yield state.file, export_page(state.address, image=picture if site_url else f"../images/{Path(picture).name}")


def _link_states(markdown: str, src_uri: str) -> str:
    """The page with links to the exported pages: in states.md itself, and at the end of a how-to page."""
    if src_uri == "states.md":
        named = {state.title: state.file for state in states()}
        return _STATE.sub(
            lambda found: found[0].replace(f"| {found[1]} |", f"| [{found[1]}]({named[found[1]]}) |", 1), markdown
        )
    links = [f"[{state.title}](../{state.file})" for state in states() if src_uri in state.how_tos]
    return f"{markdown}\n\n**To look at:** {', '.join(links)}.\n" if links else markdown


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """The page without links out of docs/, with pictures that open and sessions that are coloured."""
    if page.file.src_uri in _ALONE_IN_THEIR_TAB:
        page.meta["hide"] = ["navigation"]
    to_docs = posixpath.relpath(".", posixpath.dirname(page.file.src_uri) or ".")
    with_notebooks = _NOTEBOOK_LINK.sub(rf"({to_docs}/notebooks/\1.md)", _link_states(markdown, page.file.src_uri))
    inside = _OUTSIDE.sub(r"\1", with_notebooks)
    if page.file.src_uri not in _PAGES_WITHOUT_TERMS:
        inside = link_terms(inside, page.file.src_uri)
    return _SESSION.sub("```pycon\n", _PICTURE.sub(r"[![\1](\2)](\2)", inside))


def on_files(files: Files, config: Any, **_: object) -> Files:
    """The files of the site, with the exported pages of the explorer and a page for each notebook."""
    for path, content in export_states(config.site_url or ""):
        files.append(File.generated(config, path, content=content))
    for notebook in sorted(_EXAMPLES.glob("*.ipynb")):
        page = File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook))
        page.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(page)
    return files


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code, and the outputs stored in it."""
    parts = []
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += [output_block(output) for output in cell.get("outputs", ())]
    return "\n\n".join(part for part in parts if part) + "\n"


def output_block(output: dict[str, Any]) -> str:
    """One output of a cell: a table or a drawing as it is, anything else as text."""
    data = output.get("data", {})
    markup = "".join(data.get("text/html") or data.get("image/svg+xml", ""))
    if markup:
        in_one_block = re.sub(r"\n\s*\n", "\n", re.sub(r"<\?xml[^>]*\?>", "", markup))  # an empty line would end it
        return f'<div class="output">{in_one_block}</div>'
    text = "".join(output.get("text") or data.get("text/plain", ""))
    return f"```text\n{text.rstrip()}\n```" if text else ""


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
