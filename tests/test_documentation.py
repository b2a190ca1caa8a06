"""What README.md and docs/ show is what happens: every command and every Python block runs.

In a `console` block each line `$ command` is run, and what stands below it, if anything, is its whole output; the sentences of
`-q` may be shown on several lines. In an `sh` block each line is a command. A command that ends in `# exit 1` must exit so, all
others with 0. How many seconds something took is not compared. The Python blocks of a page share one namespace; those
with `>>>` are compared like doctests, where long lines may also be shown on several; tests that a block defines are called.

A comment `<!-- needs triton -->` above a block says what it needs beside the environment of ./test, or that it needs time: the block
is run by a slow test, which asks for that piece.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import click
import pytest

import tilescope.cli
import tilescope.testing

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TEXTS = [*sorted(ROOT.glob("*.md")), *PAGES[1:]]
IMAGES = ROOT / "docs" / "images"

NEEDS = re.compile(r"<!-- needs (\w+) -->\n\Z")
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"((?:[^\n]*\\\n)*[^\n]*?)(?: +# exit (\d+))?(?:\n(.*))?", re.DOTALL)  # text, status, output
LINK = re.compile(r"""(?<!\\)\]\(([^)\s]+)[^)]*\)|(?:src|href)="([^"]+)\"""")
SECONDS = re.compile(r"\b\d[\d.]* s\b")
COLUMNS = 96  # what a forge shows of a block without scrolling
QUIET = re.compile(r" (?:-q|--quiet)\b")
SHOWN_ONLY = {
    "yaml",  # a workflow, which tests/triton_driver runs
    "text",
    "json",
    "cpp",
    "ptx",
    "diff",
    "pycon",
    "bash",
    "zsh",
    "fish",
}  # drawings, what other programs read, doctests
GOES_ON_WITH = {"10-on-the-card.md": "09-a-kernel-that-runs-here.md"}  # a page, and the one whose files it uses
NOT_RUN = (
    "./test",
    "bash .ci/run",
    "pip install",
    "git clone",
    "cd ",
    "tilescope serve",
    "tilescope watch",
    "python tests/",
    "python benchmarks/",
)


def name_of(page):
    """README.md, docs/how-to/im2col.md."""
    return page.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int
    needs: str  # a piece of conftest.PIECES, "time", or nothing


def blocks(page):
    text = page.read_text("utf-8")
    for fence in FENCE.finditer(text):
        needs = NEEDS.search(text, 0, fence.start())
        line = text.count("\n", 0, fence.start()) + 2
        yield Block(fence[2], textwrap.dedent(fence[3]), line, needs[1] if needs else "")


class WrappedSentences(doctest.OutputChecker):
    """Exact, but that lines too long for a page may be shown on several."""

    def check_output(self, want, got, optionflags):
        longest = max(map(len, got.splitlines()), default=0)
        is_wrapped = longest > COLUMNS and want.split() == got.split()
        return is_wrapped or super().check_output(want, got, optionflags)


def run_python(text, where, namespace):
    if ">>> " not in text:
        known = set(namespace)
        exec(compile(text, where, "exec"), namespace)
        for name in namespace.keys() - known:
            if name.startswith("test_"):
                namespace[name](clean_run)
        return
    example = doctest.DocTestParser().get_doctest(text, namespace, where, where, 0)
    report = []
    runner = doctest.DocTestRunner(WrappedSentences(), verbose=False)
    failed = runner.run(example, out=report.append, clear_globs=False).failed
    assert not failed, "".join(report)
    namespace.update(example.globs)


def clean_run(kernel, **launch):
    """What the fixture `tilescope_run` of the pytest plugin does."""
    run = kernel.run(**launch)
    tilescope.testing.assert_clean(run)
    return run


def is_only_shown(command):
    """Whether a command is not run: it installs, serves, takes long or needs a card."""
    return command.replace("./tilescope", "tilescope", 1).startswith(NOT_RUN)


def run_command(text, where, folder):
    command, status, output = COMMAND.fullmatch(text).groups()
    if is_only_shown(command):
        return
    assert command.startswith(("tilescope ", "./tilescope ")), (
        f"{where}: {command!r} is neither tilescope nor one of {NOT_RUN}"
    )
    exited, text = printed_by(command, folder)
    assert exited == int(status or 0), f"{where}: {command} exited with {exited}:\n{text}"
    if output and output.strip():
        read = words_of if QUIET.search(command) else lines_of
        assert read(output) == read(text), f"{where}: {command} prints something else:\n{text}"


def lines_of(text):
    """The lines of an output without what differs from run to run."""
    return [SECONDS.sub("… s", line.rstrip()) for line in text.strip("\n").splitlines()]


def words_of(text):
    """The words of sentences: a page shows a long answer on several lines, as a terminal does."""
    return SECONDS.sub("… s", text).split()


def printed_by(command, folder):
    """Exit status and output of a command."""
    search_path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    package = Path(tilescope.__file__).parent.parent  # the one under test, whichever else is installed
    environment = {"PATH": search_path, "HOME": str(folder), "PYTHONPATH": str(package)}
    command = command.removeprefix("./") if command.startswith("./tilescope") else command
    words = plain_words(command)
    return run_here(words[1:], folder, environment) if words else run_in_shell(command, folder, environment)


def plain_words(command):
    """The words of a command in which a shell has nothing else to do; none where it has."""
    reader = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    words = list(reader)
    has_operator = any(set(word) <= set("();<>|&") for word in words)
    return [] if has_operator or re.search(r"[$`*?~\n]", command.replace("\\\n", " ")) else words


def run_here(words, folder, environment):
    """Exit status and output of a tilescope command, without the start of a process."""
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with (
        contextlib.chdir(folder),
        mock.patch.dict(os.environ, environment, clear=True),
        Path(os.devnull).open(encoding="utf-8") as nothing,
        mock.patch("sys.stdin", nothing),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        exited = tilescope.cli.run(words)
    printed.flush()
    return exited, printed.buffer.getvalue().decode()


def run_in_shell(command, folder, environment):
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        check=False,
    )
    return done.returncode, done.stdout


def run_page(page, folder, pieces=()):
    """Run the blocks of a page one after another, in a folder that has the examples and recordings.

    `pieces` are at hand; blocks that need others are passed over.
    """
    for name in ("examples", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    namespace = {"__name__": page.stem}
    for block in blocks(page):
        if not block.needs or block.needs in pieces:
            run_block(block, f"{page.name}:{block.line}", folder, namespace)


def run_block(block, where, folder, namespace):
    match block.language:
        case "python":
            run_python(block.text, where, namespace)
        case "console":
            for command in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                run_command(command, where, folder)
        case "sh":
            for command in block.text.splitlines():
                run_command(command, where, folder)
        case _:
            assert block.language in SHOWN_ONLY, f"{where}: nobody knows how to run a block of {block.language!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_and_python_block_does_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name in GOES_ON_WITH:
        run_page(page.with_name(GOES_ON_WITH[page.name]), tmp_path)
    run_page(page, tmp_path)
    for drawn in tmp_path.glob("*.svg"):
        shown = IMAGES / drawn.name
        assert shown.read_text("utf-8") == drawn.read_text("utf-8"), f"{page.name} draws another {drawn.name}"


NEEDY = sorted({(name_of(page), block.needs) for page in PAGES for block in blocks(page) if block.needs})


@pytest.mark.slow
@pytest.mark.parametrize(("page", "piece"), NEEDY)
def test_blocks_that_need_more_do_what_the_page_shows(page, piece, tmp_path, monkeypatch, require):
    if piece != "time":
        require(piece)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run_page(ROOT / page, tmp_path, pieces={piece})


def prose_of(page):
    """A page without its blocks and code: smem_ptr[16b](unset) is no link, # exit 1 no heading."""
    return re.sub(r"``.*?``|`[^`\n]*`(?!\])", "", FENCE.sub("", page.read_text("utf-8")))


@cache
def anchors_of(page):
    """What a link can name in a page: its headings, as GitHub and the site spell them."""
    headings = re.findall(r"^#+ +(.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(page):
    """The links of a page that lead nowhere: no such file, or no such heading in it."""
    links = ["".join(groups) for groups in LINK.findall(prose_of(page))]
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            yield link


def test_links_point_at_files_and_headings_that_exist():
    assert {page.name: found for page in TEXTS if (found := list(broken_links(page)))} == {}


def test_a_link_that_leads_nowhere_is_seen(tmp_path):
    (tmp_path / "there.md").write_text("# A page: `code` and more\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[1](there.md) [2](there.md#a-page-code-and-more) [3](there.md#no-heading) [4](away.md) [5](#away)\n"
    )
    assert list(broken_links(page)) == ["there.md#no-heading", "away.md", "#away"]


def options_of(command):
    """Every option of a command and of the commands below it."""
    names = command.list_commands(None) if isinstance(command, click.Group) else []
    own = {option for parameter in command.params for option in parameter.opts}
    return own.union(*(options_of(command.get_command(None, name)) for name in names))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_options_that_a_page_names_exist(page):
    named = set(re.findall(r"(?<![-\w[])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*", page.read_text("utf-8")))
    of_others = {
        "--tilescope",
        "--tilescope-seeds",
        "--tilescope-lenient",
        "--time",
        "--cublas",
        "--nproc-per-node",
        "--all",
        "--find-links",
        "--from",
        "--no-index",
    }  # pytest's, an emitted GEMM's, torchrun's, ./test's, pip's and uvx's
    assert named - options_of(tilescope.cli.tilescope) - of_others - {"--help", "--version"} == set()


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        ("```python\nassert 1 == 2, 'unequal'\n```", "unequal"),
        ("```python\n>>> 1 + 1\n3\n```", "Failed example"),
        ("```python\n>>> print('1 2')\n1\n2\n```", "Failed example"),
        ("```python\ndef test_it(tilescope_run):\n    assert False, 'untrue'\n```", "untrue"),
        ("```console\n$ tilescope --version\nanother\n```", "prints something else"),
        ("```console\n$ tilescope swizzle 128B -q\n128B:\nanother\n```", "prints something else"),
        ("```console\n$ tilescope --version  # exit 1\n```", "exited with 0"),
        ("```console\n$ tilescope swizzle \\\n    nonsense\n```", "exited with 2"),
        ("```sh\n./tilescope swizzle nonsense\n```", "exited with 2"),
        ("```sh\nmake\n```", "is neither tilescope nor"),
        ("```pyhton\n1 + 1\n```", "nobody knows how to run"),
        ("- In a list:\n\n  ```sh\n  make\n  ```", "is neither tilescope nor"),
    ],
)
def test_a_page_that_shows_something_else_is_seen(block, reason, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}\n")
    with pytest.raises(AssertionError, match=re.escape(reason)):
        run_page(page, tmp_path)


def test_lines_of_c_that_the_readme_shows_are_those_of_the_example():
    shown = re.findall(r"^(\S.*?;) +// (\w+\.cu):(\d+)$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert shown
    for line, file, number in shown:
        assert (ROOT / "examples" / file).read_text("utf-8").splitlines()[int(number) - 1].strip() == line


def test_a_page_that_shows_the_truth_runs(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nimport tilescope as ts\n```\n"
        "```python\n>>> mode = ts.Swizzle.named('128B')\n```\n"
        "```python\n>>> mode.apply(128)\n144\n```\n"
        "```sh\n./test --all\ntilescope swizzle 128B > table\n```\n"
        "```console\n$ tilescope swizzle nonsense > table 2>&1  # exit 2\n$ tilescope swizzle 128B -q\n"
        "Swizzle 128B moves byte a to a ^ ((a >> 3) & 0x70), a pattern of 1024 bytes.\n```\n"
        "```text\nanything\n```\n"
    )
    run_page(page, tmp_path)
    assert (tmp_path / "table").exists()
