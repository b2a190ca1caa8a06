"""The stored --help of a command: printing it loads neither tables nor the emulator.

help/mma tmem.txt is the output of `tilescope mma tmem --help` on a terminal of 80 columns or more.
tests/reference_pages.py generates the pages from the commands, and a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence

HELP_OPTIONS = ("-h", "--help")
PAGE_COLUMNS = 80  # wider terminals get the same page


def help_page(arguments: Sequence[str]) -> str | None:
    """The stored page for a command line; None if it is not a request for help, or the terminal is narrow.

    >>> help_page(["swizzle", "--help"]).splitlines()[0]
    'Usage: tilescope swizzle [OPTIONS] MODE'
    >>> help_page(["swizzle", "128B"]), help_page(["swizle", "--help"])
    (None, None)
    """
    words = arguments[:-1]
    if not words or arguments[-1] not in HELP_OPTIONS or not all(word.isalpha() for word in words):
        return None
    import shutil
    from importlib.resources import files

    if shutil.get_terminal_size().columns < PAGE_COLUMNS:
        return None
    page = files("tilescope.cli").joinpath("help", f"{' '.join(words)}.txt")
    return page.read_text("utf-8") if page.is_file() else None
