"""Where a tensor map comes from: a file, stdin, or text on the command line; as bytes, JSON or a pasted dump.

tilescope check SOURCE --box 64,8        options replace what SOURCE says
tilescope encode --type bf16 --dims …    or say it all
tilescope check --from-json map.json     SOURCE by another name, which has to be JSON
tilescope load maps.jsonl:3 --coords …   the map in one line of a file, such as watch writes
dump | tilescope load - --coords 0,128
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from tilescope.cli.map_options import JsonFile
from tilescope.errors import RuleError, TensorMapError, shortened
from tilescope.rule import rule
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.source import WHOLE_BYTES, MapSource

STDIN = "-"
_LINE_OF_FILE = re.compile(r"(.+):(\d{1,9})")
_NAME = re.compile(r"[^\n]*(?:[/\\~]|\.\w|[g-wyzG-WYZ])[^\n]*")  # more than hexadecimal digits: the name of a file

_ZEROS = '"00" * 128'  # a map as text
INPUT_FILE = rule(
    "input-file",
    "A SOURCE is the name of one file or pipe, - for stdin, or a tensor map as text.",
    source="the command line",
    passing=f"ts.cli.map_source.read_source(({_ZEROS},))",
    failing='ts.cli.map_source.read_source(("no-such-folder/map.json",))',
)
INPUT_EMPTY = rule(
    "input-empty",
    "A file or stdin that is to give a tensor map is not empty.",
    source="the command line",
    passing=f"ts.cli.map_source.read_source(({_ZEROS},))",
    failing='ts.cli.map_source.read_source(("/dev/null",))',
)
INPUT_SIZE = rule(
    "input-size",
    "A map's file is at most 1 MiB, and so is a line of a log; a log may have any number of lines.",
    source="the command line",
    passing=f"ts.cli.map_source.read_source(({_ZEROS},))",
    failing='ts.cli.map_source.read_source(("/dev/zero",))',
)


def described(words: tuple[str, ...], asked: MapArguments | None) -> MapSource:
    """The map that SOURCE gives, with the options' arguments in place of its own; without both, what stdin gives."""
    if not words and asked is None:
        if sys.stdin.isatty():
            raise click.UsageError("describe a map: --type, --dims and --box, or a file, or - for stdin.")
        words = (STDIN,)
    if not words:
        assert asked is not None
        return _complete((asked.completed(),))
    given = read_source(words)
    if given.blob is not None and asked is not None:
        raise click.UsageError("options replace arguments, not the bytes of a descriptor.")
    if given.blob is not None:
        return given
    return _complete(given.asked if asked is None else tuple(asked.completed(each) for each in given.asked))


def _complete(asked: tuple[MapArguments, ...]) -> MapSource:
    """These arguments, or everything they lack; strides follow from the rest."""
    lacking = [violation for each in asked for violation in each.misnamed()]
    if not lacking or any(not each.misnamed() for each in asked):  # of several maps, a report says what one lacks
        return MapSource(None, asked)
    raise TensorMapError([each for each in lacking if each.argument != "strides_bytes"] or lacking)


def read_source(words: tuple[str, ...]) -> MapSource:
    """The map that the words name (a file, "-" for stdin) or show (hex, words, JSON, a dump)."""
    try:
        if _is_given_by_name(words):
            return _read_file(words[0], is_json=isinstance(words, JsonFile))
        content = " ".join(words).encode("utf-8", errors="replace")
        return MapSource.from_json(content) if isinstance(words, JsonFile) else MapSource.read(content)
    except RuleError:
        if not _is_given_by_name(words):
            _refuse_names(words)
        raise


def _read_file(name: str, *, is_json: bool) -> MapSource:
    line = _LINE_OF_FILE.fullmatch(name) if not _is_file(name) else None
    if line is not None:
        content = _line(line[1], int(line[2]))
        _refuse_empty(content, f"line {line[2]} of {line[1]}")
        return MapSource.from_json(content) if is_json else MapSource.read(content)
    with click.open_file(name, "rb") as file:
        content = file.read(WHOLE_BYTES + 1)
        _refuse_empty(content, "stdin" if name == STDIN else name)
        if len(content) <= WHOLE_BYTES:
            return MapSource.from_json(content) if is_json else MapSource.read(content)
        if b"\n" not in content:
            raise _too_large(name, WHOLE_BYTES)
        return MapSource.read_log(content, file)


def _refuse_empty(content: bytes, which: str) -> None:
    if not content.strip():
        raise INPUT_EMPTY.error(
            "source",
            f"{which} is empty",
            "a map as bytes, words, JSON or a dump",
            "Write one there: tilescope encode … --out FILE makes its bytes.",
        )


def read_input(source: str, most_bytes: int = WHOLE_BYTES) -> bytes:
    """What a file holds, or stdin for "-"; more than `most_bytes` is refused."""
    with click.open_file(source, "rb") as file:
        content: bytes = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise _too_large(source, most_bytes)
    return content


def _too_large(source: str, most_bytes: int) -> RuleError:
    size = f"{most_bytes >> 20} MiB"
    return INPUT_SIZE.error(
        source, f"more than {size}", f"at most {size} are read, and of a log any number of lines",
        "Cut the file to what the question is about.", MiB=most_bytes >> 20,
    )  # fmt: skip


def _line(path: str, number: int) -> bytes:
    """A line of a file, counted from 1; nothing where it has fewer."""
    with click.open_file(path, "rb") as file:
        return next((line for count, line in enumerate(file, 1) if count == number), b"")


def _is_given_by_name(words: tuple[str, ...]) -> bool:
    """Whether the words are "-", the path of something that can be read, or a line of a file, as in maps.jsonl:3."""
    if len(words) != 1:
        return False
    line = _LINE_OF_FILE.fullmatch(words[0])
    return _is_file(words[0]) or (line is not None and line[1] != STDIN and _is_file(line[1]))


def _is_file(word: str) -> bool:
    """Whether it is "-" or the path of a file, a pipe, a device."""
    try:
        return word == STDIN or (Path(word).exists() and not Path(word).is_dir())
    except (OSError, ValueError):  # a text that no file could be called
        return False


def _refuse_names(words: tuple[str, ...]) -> None:
    """Say of words that show no map why they name none."""
    limit = "SOURCE is one file, - for stdin, or a map as text"
    for word in words:
        if word == STDIN or (len(words) > 1 and _is_given_by_name((word,))):
            raise INPUT_FILE.error(
                "source",
                f"{len(words)} sources",
                limit,
                f"Use one of them, such as {shortened(words[0])}.",
                sources=len(words),
            )
    name = shortened(" ".join(words))
    if len(words) == 1 and 0 < len(name) < 80 and Path(words[0]).is_dir():
        raise INPUT_FILE.error("source", f"{name} is a directory", limit, f"Use a file, such as {name}/map.json.")
    if _NAME.fullmatch(" ".join(words)):
        raise INPUT_FILE.error(
            "source",
            f"no such file: {name}",
            limit,
            "Check the path, or give the map as options: --type bf16 --dims 4096,4096 --box 64,128.",
        )
