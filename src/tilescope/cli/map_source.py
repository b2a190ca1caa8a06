"""Where a tensor map comes from: options, a file, stdin, or text on the command line; as bytes, JSON or a pasted dump.

tilescope check SOURCE --box 64,8        options replace what SOURCE says
tilescope encode --type bf16 --dims …    or say it all
tilescope check --from-json map.json     SOURCE by another name, which has to be JSON
tilescope load maps.jsonl:3 --coords …   the map in one line of a file, such as watch writes
dump | tilescope load - --coords 0,128
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import click

from tilescope.cli.command import is_file
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.rule import rule
from tilescope.sentence import shorten
from tilescope.tensor_map.text.pasted import NoDescriptorError
from tilescope.tensor_map.text.pasted_source import WHOLE_BYTES, MapSource

STDIN = "-"
_LOG_WORDS = 3
_FAILURE = re.compile(
    r"error|exception|traceback|fail|assert|fatal|abort|warning|illegal|hang|wrong|timed? ?out|\bxid\b", re.IGNORECASE
)
_LINE_OF_FILE = re.compile(r"(.+):(\d{1,9})")
_SHAPE = re.compile(r"\d{1,12}(?:[x,*]\d{1,12})+")
_NAME = re.compile(r"[^\n]*(?:[/\\~]|\.\w|[g-wyzG-WYZ])[^\n]*")  # more than hexadecimal digits: the name of a file

_PASSING = 'ts.cli.map_source.read_source(("00" * 128,))'
INPUT_FILE = rule(
    "input-file",
    "A SOURCE is the name of one file or pipe, - for stdin, or the text of a tensor map.",
    argument="source",
    found="no such file: {name}",
    limit="SOURCE is one file, - for stdin, or a map as text",
    fix="Check the path, or give the map as options: --type bf16 --dims 4096,4096 --box 64,128.",
    source="the command line",
    passing=_PASSING,
    failing='ts.cli.map_source.read_source(("no-such-folder/map.json",))',
)
NO_FILE_OF_TEXT = INPUT_FILE.worded(
    fix="Check the path, or paste what it should hold: numbers are decimal, or 0x and hexadecimal digits.",
)
WORDS_OF_A_PLAN = INPUT_FILE.worded(
    found="{name}, the shape or type of a tensor",
    limit="SOURCE is a file or a map as text; shapes and types are options",
    fix="Write {options}: extents and box are innermost first.",
)
SEVERAL_SOURCES = INPUT_FILE.worded(found="{sources} sources", fix="Use one of them, such as {first}.")
DIRECTORY = INPUT_FILE.worded(found="{name} is a directory", fix="Use a file, such as {name}/map.json.")
INPUT_EMPTY = rule(
    "input-empty",
    "A file or stdin that contains a tensor map is not empty.",
    argument="source",
    found="{name} is empty",
    limit="it has to hold a tensor map: 128 bytes, words, JSON or a dump of arguments",
    fix="Pass another file, or write one: tilescope encode … --out FILE.",
    source="the command line",
    passing=_PASSING,
    failing='ts.cli.map_source.read_source(("/dev/null",))',
)
EMPTY_LINE = INPUT_EMPTY.worded(found="line {line} of {name} is empty")
INPUT_SIZE = rule(
    "input-size",
    "A map's file and each line of a log have at most 1 MiB; a log may have any number of lines.",
    argument="{name}",
    found="more than {MiB} MiB",
    limit="at most {MiB} MiB are read, and of a log any number of lines",
    fix="Cut the file to the relevant part.",
    source="the command line",
    passing=_PASSING,
    failing='ts.cli.map_source.read_source(("/dev/zero",))',
)


class NamedFile(NamedTuple):
    """A file ("-" is stdin), and the requested line of it, as in maps.jsonl:3."""

    name: str
    line: int | None


def read_source(words: tuple[str, ...], *, as_json: bool = False, takes_options: bool = True) -> MapSource:
    """The map that the words name (a file, "-" for stdin) or show (hex, words, JSON, a dump).

    `takes_options`: whether the map could also be passed as options, which the error then mentions.
    """
    named = _named_file(words[0]) if len(words) == 1 else None
    if named is not None:
        return _read_file(named, as_json=as_json)
    if takes_options:
        _refuse_shape_and_type(words)
    try:
        return MapSource.read(" ".join(words).encode("utf-8", errors="replace"))
    except NoDescriptorError as error:
        if not error.words and not is_log(error.text):
            _refuse_names(words, takes_options=takes_options)
        raise


def is_log(text: str) -> bool:
    """Whether a text without a tensor map reports that something failed: a traceback, a line of a log.

    >>> is_log("RuntimeError: CUDA error: misaligned address"), is_log("maps/first.json")
    (True, False)
    """
    return len(text.split()) >= _LOG_WORDS and _FAILURE.search(text) is not None


def _named_file(word: str) -> NamedFile | None:
    """The file that a word names; None if there is none."""
    if word == STDIN or is_file(word):
        return NamedFile(word, None)
    line = _LINE_OF_FILE.fullmatch(word)
    if line is not None and is_file(line[1]):
        return NamedFile(line[1], int(line[2]))
    return None


def _read_file(named: NamedFile, *, as_json: bool) -> MapSource:
    with click.open_file(named.name, "rb") as file:
        if named.line is not None:
            content = next((text for number, text in enumerate(file, 1) if number == named.line), b"")
        else:
            content = file.read(WHOLE_BYTES + 1)
        if not content.strip():
            raise _empty(named)
        if named.line is not None or len(content) <= WHOLE_BYTES:
            return MapSource.from_json(content) if as_json else MapSource.read(content)
        if b"\n" not in content:
            raise _too_large(named.name, WHOLE_BYTES)
        return MapSource.read_log(content, file)


def _empty(named: NamedFile) -> RuleError:
    if named.line is not None:
        return EMPTY_LINE.error(name=named.name, line=named.line)
    return INPUT_EMPTY.error(name="stdin" if named.name == STDIN else named.name)


def read_input(source: str, most_bytes: int = WHOLE_BYTES) -> bytes:
    """What a file holds, or stdin for "-"; more than `most_bytes` is refused."""
    with click.open_file(source, "rb") as file:
        content: bytes = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(source, most_bytes)
    return content


def _too_large(source: str, most_bytes: int) -> RuleError:
    return INPUT_SIZE.error(name=source, MiB=most_bytes >> 20)


def _refuse_shape_and_type(words: tuple[str, ...]) -> None:
    """Refuse `4096x1000 bf16`, the form of plan and gemm, and suggest the equivalent options of a map."""
    shapes = [word for word in words if _SHAPE.fullmatch(word)]
    types = [word for word in words if word not in shapes and DataType.knows(word)]
    if len(shapes) > 1 or len(types) > 1 or len(shapes) + len(types) < len(words):
        return
    dims = ",".join(reversed(re.findall(r"\d+", shapes[0]))) if shapes else "4096,4096"
    raise WORDS_OF_A_PLAN.error(
        name=shorten(" ".join(words)), options=f"--type {types[0] if types else 'bf16'} --dims {dims} --box …"
    )


def _refuse_names(words: tuple[str, ...], *, takes_options: bool) -> None:
    """Say of words that show no map why they name none."""
    name = shorten(" ".join(words))
    if len(words) > 1 and any(map(_named_file, words)):
        raise SEVERAL_SOURCES.error(sources=len(words), first=shorten(words[0]))
    if 0 < len(name) < 80 and Path(name).is_dir():
        raise DIRECTORY.error(name=name)
    if _NAME.fullmatch(" ".join(words)):
        raise INPUT_FILE.error(name=name) if takes_options else NO_FILE_OF_TEXT.error(name=name)
