"""The site: what is generated is fresh, every page is in the navigation, nothing is loaded from elsewhere, and it builds."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilescope.gpu.verify.suites import SUITE_NAMES
from tilescope.rule import RULES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
HOW_WE_KNOW = DOCS / "how-we-know.md"


def script(name):
    """One of the scripts that make pages, beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_rule_has_its_heading_and_its_demand():
    page = (DOCS / "rules.md").read_text("utf-8")
    escaped = script("rules_page").escaped
    stale = [row.name for row in RULES.values() if f"\n### {row.name}\n\n{escaped(row.demand)}\n" not in page]
    assert stale == [], "docs/rules.md is stale: python tests/rules_page.py"


def test_the_page_of_rules_has_every_rule_of_the_sources_and_no_other():
    """A module that the rule book does not load is noticed here: the page was written by a process that loaded nothing else."""
    sources = "".join(path.read_text("utf-8") for path in (ROOT / "src").glob("**/*.py"))
    written = set(re.findall(r"^[A-Z0-9_]+ = rule\(\s*\"([\w-]+)\"", sources, re.MULTILINE))
    page = set(re.findall(r"^### (.+)$", (DOCS / "rules.md").read_text("utf-8"), re.MULTILINE))
    assert written - page == set()
    assert page - set(RULES) == set()


@pytest.mark.slow
def test_the_page_of_rules_is_what_the_rule_book_says():
    made = script("rules_page")
    assert made.PAGE.read_text("utf-8") == made.page(), "docs/rules.md is stale: python tests/rules_page.py"


@pytest.mark.parametrize(
    "name", ["python.md", "tables.md", "commands.md", "glossary.md", "stability.md", "tilescope.1"]
)
def test_the_reference_is_what_docstrings_and_tables_say(name):
    made = script("reference_pages")
    path = DOCS / name
    assert path.read_text("utf-8") == made.PAGES[path](), f"docs/{name} is stale: python tests/reference_pages.py"


def test_pages_of_help_say_what_the_commands_say():
    made = script("reference_pages")
    pages = made.help_pages()
    stored = {path: path.read_text("utf-8") for path in made.HELP_PAGES.iterdir()}
    assert stored == pages, "src/tilescope/cli/help is stale: python tests/reference_pages.py"


def test_the_moving_picture_is_what_the_library_says():
    made = script("front_picture")
    assert made.PICTURE.read_text("utf-8") == made.drawn(), (
        "docs/images/path.svg is stale: python tests/front_picture.py"
    )


def test_the_moving_picture_stands_still_for_readers_who_ask_for_less_motion():
    drawn = (DOCS / "images" / "path.svg").read_text("utf-8")
    at_rest, motion = drawn.partition("</style>")[0].split("@media (prefers-reduced-motion:no-preference)")
    assert "animation" in motion
    assert not re.search("animation|keyframes|transform", at_rest)


def test_every_page_is_in_the_navigation_once():
    named = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    named += re.findall(r"^  - [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("**/*.md")}
    assert sorted(set(named)) == sorted(pages)


def test_every_picture_is_shown_somewhere():
    shown = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *DOCS.glob("**/*.md")))
    assert [path.name for path in (DOCS / "images").iterdir() if path.name not in shown] == []


DRAWN_BY_A_TEST = {
    "architecture.svg",
    "path.svg",
    "ptx-swizzle-32B-slice-0.svg",
}  # of this file, and of tests/tma/test_ptx_examples.py


def test_every_drawing_is_made_by_a_command_of_a_page_or_by_a_test():
    """test_documentation.py compares what the commands draw; here no drawing is left that nothing makes."""
    pages = "".join(page.read_text("utf-8") for page in (ROOT / "README.md", *DOCS.glob("**/*.md")))
    drawn = set(re.findall(r"--svg[ \\\n]+([\w.-]+)", pages)) | DRAWN_BY_A_TEST
    assert [path.name for path in sorted((DOCS / "images").glob("*.svg")) if path.name not in drawn] == []


REMOTE = re.compile(
    r"""(?:<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=["']?|url\(["']?|@import ["'])(https?:)?//"""
)


def site_hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LARGEST_PAGE_BYTES = 360_000


@pytest.mark.slow
def test_eight_kernels_and_twenty_states_are_exported(require):
    require("mkdocs")
    hooks = site_hooks()
    pages = dict(hooks.export_states("https://docs.example/"))
    assert len(pages) == len(hooks.states()) == 28
    sizes = sorted(len(page.encode()) for page in pages.values())
    assert sizes[len(sizes) // 2] < 220_000
    assert sizes[-1] < LARGEST_PAGE_BYTES
    for path, page in pages.items():
        assert re.search('property="og:image" content="https://docs.example/images/[\\w-]+.png"', page), path
        assert 'class="verdict refused"' not in page, path


def test_every_how_to_leads_to_a_page_to_look_at(require):
    require("mkdocs")
    hooks = site_hooks()
    named = {page for state in hooks.states() for page in state.how_tos}
    how_tos = {path.relative_to(DOCS).as_posix() for path in DOCS.glob("how-to/*.md")} - {"how-to/index.md"}
    assert named == how_tos


@pytest.mark.slow
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(tmp_path, require):
    require("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("**/*.html"))
    assert len(pages) > len(list(DOCS.glob("**/*.md")))  # all of them, and the page for addresses that do not exist
    assert [page.name for page in pages if REMOTE.search(page.read_text("utf-8"))] == []
    assert len(list((tmp_path / "states").glob("*.html"))) == 28
    how_to = (tmp_path / "how-to" / "bank-conflicts.html").read_text("utf-8")
    assert 'href="../states/a-transpose-with-conflicts.html"' in how_to


@pytest.mark.slow
def test_a_page_is_filled_with_what_its_blocks_print(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ tilescope --version\n…\n```\n\n```python\n>>> 6 * 7\n…\n>>> 1 + 1\n2\n```\n", "utf-8"
    )
    subprocess.run([sys.executable, ROOT / "tests" / "fill_pages.py", page], check=True)
    filled = page.read_text("utf-8")
    assert re.search(r"\$ tilescope --version\ntilescope \d+\.\d+\.\d+[^\n]*\n```", filled)
    assert ">>> 6 * 7\n42\n>>> 1 + 1\n2\n" in filled


def shown_kernels():
    """The PTX texts of all pages, with the page."""
    for page in sorted(DOCS.glob("**/*.md")):
        for text in re.findall(r'"""\n?(\s*\.version.*?)"""', page.read_text("utf-8"), re.DOTALL):
            yield page.name, text


@pytest.mark.slow
def test_ptxas_assembles_the_kernels_of_the_pages(tmp_path, require):
    ptxas = Path(require("nvcc")).resolve().with_name("ptxas")
    kernels = list(shown_kernels())
    assert {"09-a-kernel-that-runs-here.md", "a-hang.md", "a-race.md"} <= {page for page, _ in kernels}
    refused = {}
    for page, text in kernels:
        source = tmp_path / "kernel.ptx"
        source.write_text(text, "utf-8")
        target = re.search(r"\.target (sm_\w+)", text)[1]
        command = [ptxas, f"-arch={target}", "-o", tmp_path / "kernel.cubin", source]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        if done.returncode:
            refused[page] = done.stderr[:300]
    assert refused == {}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("An mbarrier, an mbarrier.", "An [mbarrier](../glossary.md#mbarrier), an mbarrier."),
        ("`mbarrier` and [mbarrier](x.md)", "`mbarrier` and [mbarrier](x.md)"),
        ("# mbarrier\n\n| mbarrier |", "# mbarrier\n\n| mbarrier |"),
        ("A TMA store.", "A [TMA store](../glossary.md#tma-store)."),
        ("A line of a box.", "A line of a box."),
        ("```\nmbarrier\n```", "```\nmbarrier\n```"),
    ],
)
def test_the_first_use_of_a_term_links_to_the_glossary(text, wanted):
    assert site_hooks().link_terms(text, "how-to/a-hang.md") == wanted


def explorer_links():
    """(page, path and query) of every link to the explorer in the how-to pages."""
    for page in sorted((DOCS / "how-to").glob("*.md")):
        for state in re.findall(r"<http://127\.0\.0\.1:8765(/[^>]+)>", page.read_text("utf-8")):
            yield page.name, state


@pytest.mark.parametrize(("page", "state"), list(explorer_links()))
def test_a_link_to_the_explorer_asks_what_a_command_of_the_page_asks(page, state):
    form_at = pytest.importorskip("tilescope.web.pages").form_at
    words = form_at(state).command
    own = [word for word in words if not word.startswith("-")]  # the tile, shape or text, and values of options
    text = (DOCS / "how-to" / page).read_text("utf-8")
    commands = [line for line in text.splitlines() if line.startswith(f"$ tilescope {words[0]}")]
    assert any(own[1] in line for line in commands), (words, commands)


def test_many_how_to_pages_link_to_the_explorer():
    assert len(dict(explorer_links())) >= 8


def claims_of_the_readme():
    """What the README claims: the rows of its table with their counts, and the numbers of the paragraph below it."""
    measured = README.read_text("utf-8").partition("## What is measured")[2].partition("## Read on")[0]
    for row in re.findall(r"^\| (.+?) \| ([\d,; ]+) \|$", measured, flags=re.MULTILINE):
        yield from zip(row[0].split("; "), row[1].split("; "), strict=True)
    prose = measured.rpartition("|\n")[2]
    for number in re.findall(r"\d+(?:\.\d+)?(?: to \d+\.\d+)?", prose):
        yield "", number


def test_every_claim_of_the_readme_has_its_command():
    rows = [line for line in HOW_WE_KNOW.read_text("utf-8").splitlines() if line.startswith("| ")]
    claims = list(claims_of_the_readme())
    assert len(claims) >= 10
    for claim, number in claims:
        holding = [row for row in rows if claim in row and number in row]
        assert holding, f"how-we-know.md has no row for {claim or 'the number'} {number}"
        assert all("`" in row.split(" | ")[1] for row in holding), f"no command for {claim} {number}"


def test_the_commands_of_how_we_know_exist():
    text = HOW_WE_KNOW.read_text("utf-8")
    for arguments in re.findall(r"`\./test( [^`]*)?`", text):
        for path in (word for word in arguments.split() if not word.startswith("--")):
            assert (ROOT / path).exists(), path
    suites = re.findall(r"`tilescope verify ([a-z0-9 ]+)`", text)
    assert suites
    assert {name for names in suites for name in names.split()} <= set(SUITE_NAMES)
