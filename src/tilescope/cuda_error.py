"""CUDA's errors by number, by either of their names, and as a pasted line mentions them.

    "Failed to initialize the TMA descriptor 801"         →  801, CUDA_ERROR_NOT_SUPPORTED
    "CUDA error 0x2cb"                                    →  715, in hexadecimal
    "cudaErrorMisalignedAddress"                          →  716, by its name in the runtime
    "CUDA error: invalid resource handle"                 →  400, in CUDA's own words
    "unspecified launch failure in x.cu (error-code 4)"   →  719, in words that only CUDA says; then the number
    "Xid 13 … Warp Exception on (…): Misaligned Address"  →  716, which the exception ends in
    "CUDA_EXCEPTION_14, Warp Illegal Address"             →  700, by the debugger's number
    "error code 12345"                                    →  a code that no CUDA error has
    "N = 700 is wrong", "max error 3", "Xid 31"           →  no code: nothing says that the number is one

The rows are in `cuda_errors.tsv`, and the words that show whether a number is an error code in `cuda_error_words.tsv`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple


class CudaError(NamedTuple):
    """One error: its number, its names in the driver and in the runtime, CUDA's words for it, and what it means.

    >>> CUDA_ERROR[801].driver_name, CUDA_ERROR[801].words
    ('CUDA_ERROR_NOT_SUPPORTED', 'operation not supported')
    """

    number: int
    driver_name: str  # a CUresult; empty if the driver has no such error
    runtime_name: str  # a cudaError_t; empty if the runtime has no such error
    words: str  # the text of cudaGetErrorString; empty if there is none
    meaning: str

    @property
    def name(self) -> str:
        """Its name in the driver, or in the runtime where the driver has none."""
        return self.driver_name or self.runtime_name


class MentionedCodes(NamedTuple):
    """The error codes that a text mentions, in its order: those of CUDA errors, and numbers that no error has."""

    known: tuple[int, ...]
    unknown: tuple[int, ...]


def _rows() -> Iterator[CudaError]:
    table = files(__package__).joinpath("cuda_errors.tsv").read_text("utf-8")
    for line in table.splitlines():
        if not line.startswith("#"):
            number, *texts = line.split("\t")
            yield CudaError(int(number), *("" if text == "-" else text for text in texts))


CUDA_ERROR = {row.number: row for row in _rows()}
_NUMBER_OF_NAME = {
    name.casefold(): row.number for row in CUDA_ERROR.values() for name in (row.driver_name, row.runtime_name) if name
}

SUCCESS = 0
INVALID_VALUE = 1
LEAST_DISTINCT_CODE = 98  # smaller numbers are as often counts of something
_MOST_HEX_DIGITS = 4  # a longer word is an address, a descriptor or a mask
_NAME = re.compile(r"\b(?:CUDA_ERROR_\w+|CUDA_SUCCESS|cudaError[A-Z]\w*|cudaSuccess)\b", re.IGNORECASE)
# What the driver's log (Xid 13) and the debugger call the exception of a warp, and the error that the program gets. Measured
# on an H200 with driver 580.159.04, except illegal instruction encoding and stack error, which go by CUDA's names.
_EXCEPTIONS = {
    "misaligned address": 716,
    "illegal address": 700,
    "illegal instruction": 715,
    "illegal instruction parameter": 715,
    "illegal instruction encoding": 715,
    "out of range address": 700,
    "out-of-range address": 700,
    "mmu fault": 700,
    "invalid address space": 717,
    "stack error": 714,
    "cta not present": 719,
    "target block not present": 719,
    "block not present": 719,
}
_EXCEPTION = re.compile(
    r"(?:exception on \([^)]*\)\W*|\b(?:warp|lane|device|cluster)[_ ])"
    rf"({'|'.join(sorted(_EXCEPTIONS, key=len, reverse=True))})"
)
# What cuda-gdb numbers exceptions by, and the error that the program gets. Names: those that cuda-gdb 13.0 prints. Errors: 4 to
# 7, 12, 14 and 17 measured on an H200, the others by CUDA's name for the same thing. The debugger's API (CUDBGException_t in
# cudadebugger.h) has the same numbers up to 14, but 18 for the block that is not present.
_DEBUGGER_EXCEPTIONS = {
    1: 700,  # lane illegal address
    3: 714,  # device hardware stack overflow
    4: 715,  # warp illegal instruction
    5: 700,  # warp out-of-range address
    6: 716,  # warp misaligned address
    7: 717,  # warp invalid address space
    8: 718,  # warp invalid PC
    9: 714,  # warp hardware stack overflow
    10: 700,  # device illegal address
    11: 716,  # lane misaligned address
    12: 710,  # warp assert
    14: 700,  # warp illegal address
    17: 719,  # cluster target block not present
    21: 721,  # warp tensor memory leak
}
_DEBUGGER_EXCEPTION = re.compile(r"\bcuda[_ ]exception[_ ](\d+)", re.IGNORECASE)
_TYPE_NAMES = ("cudaerror_t", "cudaerror_enum")  # name no error
_TOKEN = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+|e[+-]?\d+)+|\d+|[a-z_]+|[^\sa-z0-9_]", re.IGNORECASE)
_OWN_LETTERS = 25  # length from which an error's words can only be CUDA's: "unspecified launch failure"
_MOST_BETWEEN = 4  # tokens between the word that announces a code and the code


def _words() -> dict[str, set[str]]:
    """The words near a number, by what they imply about it."""
    words: dict[str, set[str]] = {}
    table = files(__package__).joinpath("cuda_error_words.tsv").read_text("utf-8")
    for line in table.splitlines():
        if not line.startswith("#"):
            says, word = line.split("\t")
            words.setdefault(says, set()).add(word)
    return words


_WORDS = _words()
_ERROR = re.compile(r"\berror\b[\s:\[(]*")
_WHOSE_ERROR = re.compile(r"(?:cuda|\d+)[\s:\])]*")  # between "error" and its words: Triton Error [CUDA]: …
# Words before a code: always, or only if CUDA has an error of that number.
_SAYS_CODE = _WORDS["says code"]
_MAY_SAY_CODE = _WORDS["may say code"]
_BETWEEN = _WORDS["between"]
# What makes an announced number something else: whose error it is, or what kind.
_OTHER_ERRORS = _WORDS["other error"]
_UNITS = _WORDS["unit"]
_ENDS = _WORDS["ends"]


def codes_in(text: str) -> MentionedCodes:
    """The error codes that a text mentions: by number where something announces one, by name, or in CUDA's words.

    >>> codes_in("Failed to initialize the TMA descriptor 801")
    MentionedCodes(known=(801,), unknown=())
    >>> codes_in("error code 12345"), codes_in("the tile of 700 rows is wrong")
    (MentionedCodes(known=(), unknown=(12345,)), MentionedCodes(known=(), unknown=()))
    """
    named = [_NUMBER_OF_NAME[name[0].casefold()] for name in _names(text) if name[0].casefold() in _NUMBER_OF_NAME]
    numbers = [*named, *_by_debugger(text), *_find_worded(text), *_find_announced(text)]
    known_numbers = tuple(dict.fromkeys(number for number in numbers if number in CUDA_ERROR))
    if known_numbers:  # old runtimes number some errors otherwise: "error 77: an illegal memory access was encountered"
        return MentionedCodes(known_numbers, ())
    return MentionedCodes((), tuple(dict.fromkeys(numbers)))


def unknown_names_in(text: str) -> tuple[str, ...]:
    """What a text spells as the name of a CUDA error, and is none.

    >>> unknown_names_in("CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_LUCK")
    ('CUDA_ERROR_OUT_OF_LUCK',)
    """
    return tuple(name[0] for name in _names(text) if name[0].casefold() not in _NUMBER_OF_NAME)


def known_names() -> tuple[str, ...]:
    """The names of all errors, those of the driver first."""
    driver = [row.driver_name for row in CUDA_ERROR.values() if row.driver_name]
    runtime = [row.runtime_name for row in CUDA_ERROR.values() if row.runtime_name]
    return (*driver, *runtime)


def _names(text: str) -> Iterator[re.Match[str]]:
    return (name for name in _NAME.finditer(text) if name[0].casefold() not in _TYPE_NAMES)


def _by_debugger(text: str) -> list[int]:
    """The errors that exceptions of cuda-gdb end in."""
    numbers = [int(match[1]) for match in _DEBUGGER_EXCEPTION.finditer(text)]
    return [_DEBUGGER_EXCEPTIONS[number] for number in numbers if number in _DEBUGGER_EXCEPTIONS]


def _find_worded(text: str) -> list[int]:
    """The errors in words: the whole text, behind "error" (Triton Error [CUDA]: …), or as a warp's exception in a log."""
    words = re.sub(r"\s+", " ", text.casefold()).strip(" .")
    if words in _number_of_words():
        return [_number_of_words()[words]]
    exceptions = [_EXCEPTIONS[match[1]] for match in _EXCEPTION.finditer(words.replace("_", " "))]
    return [*exceptions, *_behind_error(words), *_in_cudas_own_words(words)]


def _in_cudas_own_words(said: str) -> list[int]:
    """The errors whose words occur anywhere in a text, if the words are long enough to be CUDA's."""
    there = [words for words in _number_of_words() if len(words) >= _OWN_LETTERS and words in said]
    longest = [words for words in there if not any(words != other and words in other for other in there)]
    numbers = [_number_of_words()[words] for words in longest]
    return [number for number in numbers if number >= LEAST_DISTINCT_CODE]


@cache
def _number_of_words() -> dict[str, int]:
    """Numbers by CUDA's words; of two errors with the same words, the one with fewer other meanings comes first."""
    return {row.words.casefold().strip(" ."): row.number for row in reversed(CUDA_ERROR.values()) if row.words}


def _behind_error(said: str) -> Iterator[int]:
    """The errors whose words follow "error"; of several with the same beginning, the one with the most words."""
    for match in _ERROR.finditer(said):
        following = said[match.end() :]
        words = _first_words(following) or _first_words(_WHOSE_ERROR.sub("", following, count=1))
        if words:
            yield _number_of_words()[words]


def _first_words(said: str) -> str:
    """The words of an error that a text begins with, the most of them; empty if it begins with none."""
    begun = [words for words in _number_of_words() if said.startswith(words)]
    return max((words for words in begun if not said[len(words) : len(words) + 1].isalnum()), key=len, default="")


def _find_announced(text: str) -> Iterator[int]:
    """The numbers of a text that something before or behind them calls an error code."""
    tokens = [token.casefold() for token in _TOKEN.findall(text)]
    words = [token for token in tokens if re.search(r"\w", token)]
    for place, token in enumerate(tokens):
        number = _number(token)
        if number is None:
            continue
        is_alone = words == [token]
        following = tokens[place + 1] if place + 1 < len(tokens) else "."
        if is_alone or _is_announced(number, tokens[:place], following, initializes="initialize" in tokens):
            yield number


def _number(token: str) -> int | None:
    """The number that a token may be a code by: decimal, or a short hexadecimal one."""
    if token.startswith("0x"):
        return int(token, 16) if len(token) <= 2 + _MOST_HEX_DIGITS else None
    return int(token) if token.isdecimal() and token.isascii() and len(token) <= 6 else None


def _is_announced(number: int, before: list[str], behind: str, *, initializes: bool) -> bool:
    """Whether a number is called an error code by the words before it, or by "error" behind it."""
    is_distinct = number in CUDA_ERROR and number >= LEAST_DISTINCT_CODE
    if behind in _UNITS:
        return False
    if behind == "error" and is_distinct:
        return True
    may_end = behind in _ENDS or is_distinct or not behind.isalpha()
    near = before[-_MOST_BETWEEN - 2 :]
    while near and near[-1] in _BETWEEN:
        near.pop()
    if not near or any(word in _OTHER_ERRORS for word in near[-3:]):
        return False
    announcing = near[-1]
    if announcing in _SAYS_CODE or (announcing in ("descriptor", "desc") and initializes):
        return may_end
    return announcing in _MAY_SAY_CODE and is_distinct
