"""What is read of a line that a program printed.

"ninja: build stopped: subcommand failed."                 → "buildstops": one word for what only tools say (printed.toml)
"ERROR 07-23 17:34:30 [core.py:615] out of memory"         → "ERROR out of memory": times and places of a log go
"/opt/x/csrc/scheduler/mma_utils.cpp:2158"                 → "mma_utils.cpp": folders and line numbers go
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilescope.symptoms.tables import table

_PATTERNS = {word: re.compile("|".join(entry["patterns"]), re.IGNORECASE) for word, entry in table("printed").items()}
_OWN_NUMBERS = ("buildstops", "process died")  # their numbers are statuses, signals and times, no CUDA errors
MARKS = tuple(word for word in _PATTERNS if " " not in word)  # words that users do not type: "compilerstop"
_SOURCE = r"\.(?:cpp|cc|cuh?|h|hpp|inl|inc|pyx?|ptx|mlir|rs|jl|so)"  # endings of source files and libraries
_NOISE = re.compile(
    "|".join(
        (
            r"https?://\S+",
            r"(?<=ptxas )\S+, line \d+;",
            r"'NoneType' object has no attribute",  # of any program that got nothing where it looked for something
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*",
            r"\b\d{1,2}[-/]\d{1,2}(?:/\d{4})?[- ]\d\d:\d\d:\d\d\S*",
            r"\b\d\d:\d\d:\d\d(?:\.\d+)?\b",
            r"\[\w+\.py(?::\d+)?\]",
            r'\bFile "[^"\n]+", line \d+(?:, in \S+)?',
            r"(?<![\w/.])(?:~|\.{1,2})?/(?:[\w.+@-]+/)+",  # the folders of a path
            rf"(?:[\w.+@-]+/)+(?=[\w.+-]+{_SOURCE}\b)",
            r"\b(?:at |in |on )?line[ =:]{1,2}\d+\b(?: (?:of|in) (?=\S))?",
            r"\b0x[0-9a-f]{5,}\b",
            r"\b__cuda_sm\d+_",  # helpers of CUDA in a debug build
            r"(?<=stride)s?[(\[]0[)\]]",  # stride(0) is one of several, not 0
        )
    ),
    re.IGNORECASE,
)
_LONG_WORD = re.compile(
    r"(\S{200})(?=\S)"
)  # taken apart: patterns that look back and forth take the square of its length
_LINE_NUMBER = re.compile(rf"({_SOURCE})(?::\d+(?::\d+)?|\(\d+\))", re.IGNORECASE)


@lru_cache(maxsize=64)
def bare_line(text: str) -> str:
    """A text without the parts that only locate a message; text that only one kind of program prints becomes its word.

    >>> bare_line("ERROR 07-23 17:34:30 [core.py:615] csrc/layout.hpp:57 'Unknown recipe'").split()
    ['ERROR', 'layout.hpp', "'Unknown", "recipe'"]
    >>> bare_line("make[2]: *** [gemm.o] Error 255").strip()
    'buildstops'
    """
    text = _with_short_words(text)
    for word, pattern in _PATTERNS.items():
        text = pattern.sub(f" {word} ", text)
    return _without_places(text)


def line_with_codes(text: str) -> str:
    """A text that may contain an error's number: without the statuses of tools, times and line numbers.

    >>> line_with_codes("CUDA error 700 at gemm.cu:98, exit status 1")
    'CUDA error 700 at gemm.cu,  '
    """
    text = _with_short_words(text)
    for word in _OWN_NUMBERS:
        text = _PATTERNS[word].sub(" ", text)
    return _without_places(text)


def _with_short_words(text: str) -> str:
    """A text whose long words are taken apart: the time that patterns need grows with the square of a word's length."""
    return _LONG_WORD.sub(r"\1 ", text)


def _without_places(text: str) -> str:
    return _NOISE.sub(" ", _LINE_NUMBER.sub(r"\1", text))
