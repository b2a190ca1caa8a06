"""Fills in what the commands and Python blocks of a page show, by running them; pictures go to docs/images.

    python tests/fill_pages.py docs/how-to/a-hang.md …     a line `…` becomes what is printed there
    python tests/fill_pages.py --all docs/how-to/a-hang.md  so does everything else that the page shows

Read the page afterwards: test_documentation.py holds a page to what is printed, and cannot know whether that is right.
"""

import contextlib
import doctest
import re
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # pytest imports this file too, to look for examples in it

from test_documentation import COLUMNS, COMMAND, FENCE, IMAGES, QUIET, ROOT, is_only_shown, printed_by

LEFT_OPEN = "…"
FRAMES = re.compile(r"(Traceback \(most recent call last\):\n)(?: +.*\n)+")  # they name files of this machine


def filled_command(text, folder, *, is_all):
    """A command of a console block with what it prints below it."""
    command, status, output = COMMAND.fullmatch(text.rstrip("\n")).groups()
    if is_only_shown(command):
        return text
    exited, printed = printed_by(command, folder)
    shown = (output or "").strip()
    if exited != int(status or 0):
        sys.exit(f"{command} exits with {exited}:\n{printed}")
    if shown != LEFT_OPEN and not (shown and is_all):
        return text
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if QUIET.search(command):
        lines = [part for line in lines for part in wrapped(line)]
    note = f"  # exit {status}" if status else ""
    return "\n".join([command + note, *lines]) + "\n"


def wrapped(sentence):
    """The lines of a sentence. None begins like a prompt, which the site would colour as a command."""
    lines = textwrap.wrap(sentence, COLUMNS, break_on_hyphens=False)
    for n in range(1, len(lines)):
        if lines[n].startswith(("(", "%", "$", "#", ">")):
            lines[n - 1], _, moved = lines[n - 1].rpartition(" ")
            lines[n] = f"{moved} {lines[n]}"
    return lines


def filled_console(text, folder, *, is_all):
    opening, *commands = re.split(r"^\$ ", text, flags=re.MULTILINE)
    return opening + "".join("$ " + filled_command(each, folder, is_all=is_all) for each in commands)


class _Recorder(doctest.DocTestRunner):
    """Keeps what every example printed."""

    def __init__(self):
        super().__init__(verbose=False)
        self.printed = {}

    def report_success(self, out, test, example, got):
        self.printed[example.lineno] = FRAMES.sub(r"\1    ...\n", got)

    report_failure = report_success

    def report_unexpected_exception(self, out, test, example, exc_info):
        sys.exit(f"{test.name}: {example.source}raises {exc_info[1]!r}")


def filled_python(text, where, namespace, *, is_all):
    """A block of examples with what each of them prints."""
    if ">>> " not in text:
        exec(compile(text, where, "exec"), namespace)
        return text
    test = doctest.DocTestParser().get_doctest(text, namespace, where, where, 0)
    recorder = _Recorder()
    recorder.run(test, out=lambda _: None, clear_globs=False)
    namespace.update(test.globs)
    lines = []
    for example in test.examples:
        is_open = example.want.strip() == LEFT_OPEN or (example.want and is_all)
        first, *rest = example.source.splitlines()
        lines += [f">>> {first}", *(f"... {line}" for line in rest)]
        lines += (recorder.printed[example.lineno] if is_open else example.want).splitlines()
    return "\n".join(lines) + "\n"


def filled_page(text, where, folder, *, is_all):
    namespace = {"__name__": where}

    def filled(fence):
        indent, language, block = fence.groups()
        if indent or language not in ("python", "console", "sh"):
            return fence[0]
        if language == "python":
            block = filled_python(block, where, namespace, is_all=is_all)
        elif language == "console":
            block = filled_console(block, folder, is_all=is_all)
        else:
            for command in block.splitlines():
                filled_command(command, folder, is_all=False)
        opening = fence[0].partition("\n")[0]
        return f"{opening}\n{block}```"

    return FENCE.sub(filled, text)


def main(arguments):
    is_all = "--all" in arguments
    pages = [Path(name).resolve() for name in arguments if name != "--all"]
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            for name in ("examples", "tests"):
                Path(name).symlink_to(ROOT / name)
            page.write_text(filled_page(page.read_text("utf-8"), page.stem, Path(folder), is_all=is_all), "utf-8")
            for drawn in Path(folder).glob("*.svg"):
                shutil.copy(drawn, IMAGES / drawn.name)


if __name__ == "__main__":
    main(sys.argv[1:])
