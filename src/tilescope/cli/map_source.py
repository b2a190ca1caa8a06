"""Where a tensor map comes from: options, a file, stdin, or text on the command line; as bytes, JSON or a pasted dump.

tilescope check SOURCE --box 64,8        options replace what SOURCE says
tilescope encode --type bf16 --dims …    or say it all
tilescope check --from-json map.json     SOURCE by another name, which has to be JSON
tilescope load maps.jsonl:3 --coords …   the map in one line of a file, such as watch writes
dump | tilescope load - --coords 0,128
"""

from __future__ import annotations

import re
import sys
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from tilescope.cli.command import INPUT_FILE as EXISTING_FILE
from tilescope.cli.command import Command, options, refuse
from tilescope.errors import RuleError, TensorMapError
from tilescope.inputs.maps import MAP, WIDTHS
from tilescope.rule import rule
from tilescope.sentence import shortened
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.source import WHOLE_BYTES, MapSource

STDIN = "-"
_LINE_OF_FILE = re.compile(r"(.+):(\d{1,9})")
_NAME = re.compile(r"[^\n]*(?:[/\\~]|\.\w|[g-wyzG-WYZ])[^\n]*")  # more than hexadecimal digits: the name of a file

_input_rule = partial(rule, source="the command line", passing='ts.cli.map_source.read_source(("00" * 128,))')
INPUT_FILE = _input_rule(
    "input-file",
    "A SOURCE is the name of one file or pipe, - for stdin, or a tensor map as text.",
    failing='ts.cli.map_source.read_source(("no-such-folder/map.json",))',
)
INPUT_EMPTY = _input_rule(
    "input-empty",
    "A file or stdin that is to give a tensor map is not empty.",
    failing='ts.cli.map_source.read_source(("/dev/null",))',
)
INPUT_SIZE = _input_rule(
    "input-size",
    "A map's file is at most 1 MiB, and so is a line of a log; a log may have any number of lines.",
    failing='ts.cli.map_source.read_source(("/dev/zero",))',
)


def map_options(command: Command) -> Command:
    """Give a command SOURCE, as `source`, and the options of a map, as `asked`: None if nobody gives one.

    `described(source, asked)` is the map that they describe together, sound or not.
    """

    @wraps(command)
    def with_map(*, words: tuple[str, ...], from_json: str | None = None, **said: Any) -> Any:
        refuse((words and from_json, "SOURCE and --from-json both give a map; give one of them."))
        arguments = {row.name: value for row in MAP if (value := said.pop(row.name, None)) is not None}
        if "mode" in arguments:
            for width, row in WIDTHS.items():
                corner = arguments.pop(row.name.replace("width", "corner"), None)
                arguments |= {} if corner is None else {width: corner[0] if len(corner) == 1 else corner}
        source = words if from_json is None else read_source((from_json,), as_json=True)
        return command(source=source, asked=MapArguments.of(arguments) if arguments else None, **said)

    json_option = click.option("--from-json", type=EXISTING_FILE, metavar="FILE", help="SOURCE as JSON; - is stdin.")
    return click.argument("words", nargs=-1, metavar="[SOURCE]...")(options(*MAP)(json_option(with_map)))


def described(source: tuple[str, ...] | MapSource, asked: MapArguments | None = None) -> MapSource:
    """The map that SOURCE gives, with the options' arguments in place of its own; without both, what stdin gives."""
    if not source and asked is not None:
        return _complete((asked.completed(),))
    refuse((not source and sys.stdin.isatty(), "describe a map: --type, --dims and --box, or a file, or - for stdin."))
    maps = source if isinstance(source, MapSource) else read_source(source or (STDIN,))
    refuse((maps.blob is not None and asked, "options replace arguments, not the bytes of a descriptor."))
    if maps.blob is not None:
        return maps
    return _complete(maps.asked if asked is None else tuple(asked.completed(base) for base in maps.asked))


def _complete(asked: tuple[MapArguments, ...]) -> MapSource:
    """These arguments, or everything they lack; strides follow from the rest."""
    lacking = [arguments.lacking() for arguments in asked]
    if not all(lacking):  # of several maps, a report says what one lacks
        return MapSource(None, asked)
    raise TensorMapError([violation for missing in lacking for violation in missing])


def read_source(words: tuple[str, ...], *, as_json: bool = False, takes_options: bool = True) -> MapSource:
    """The map that the words name (a file, "-" for stdin) or show (hex, words, JSON, a dump).

    `takes_options`: whether the command could be given the map as options instead, which a refusal then says.
    """
    file_name = _file_name(words[0]) if len(words) == 1 else None
    if file_name is not None:
        return _read_file(*file_name, as_json=as_json)
    try:
        return MapSource.read(" ".join(words).encode("utf-8", errors="replace"))
    except RuleError:
        _refuse_names(words, takes_options=takes_options)
        raise


def _file_name(word: str) -> tuple[str, int | None] | None:
    """The file that a word names ("-" is stdin), and the line that it asks for, as maps.jsonl:3 does."""
    line = _LINE_OF_FILE.fullmatch(word)
    for name, number in ((word, None), *([(line[1], int(line[2]))] if line and line[1] != STDIN else [])):
        try:
            if name == STDIN or (Path(name).exists() and not Path(name).is_dir()):
                return name, number
        except (OSError, ValueError):  # a text that no file could be called
            continue
    return None


def _read_file(name: str, line: int | None, *, as_json: bool) -> MapSource:
    with click.open_file(name, "rb") as file:
        if line is not None:
            content = next((text for number, text in enumerate(file, 1) if number == line), b"")
        else:
            content = file.read(WHOLE_BYTES + 1)
        if not content.strip():
            which = "stdin" if name == STDIN else name if line is None else f"line {line} of {name}"
            raise INPUT_EMPTY.error(
                "source", f"{which} is empty", "it has to hold a tensor map: 128 bytes, words, JSON or a dump of arguments",
                "Pass another file, or write one: tilescope encode … --out FILE.", **({} if line is None else {"line": line}),
            )  # fmt: skip
        if line is not None or len(content) <= WHOLE_BYTES:
            return MapSource.from_json(content) if as_json else MapSource.read(content)
        if b"\n" not in content:
            raise _too_large(name, WHOLE_BYTES)
        return MapSource.read_log(content, file)


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


def _refuse_names(words: tuple[str, ...], *, takes_options: bool) -> None:
    """Say of words that show no map why they name none."""
    limit, name = "SOURCE is one file, - for stdin, or a map as text", shortened(" ".join(words))
    if len(words) > 1 and any(map(_file_name, words)):
        fix = f"Use one of them, such as {shortened(words[0])}."
        raise INPUT_FILE.error("source", f"{len(words)} sources", limit, fix, sources=len(words))
    if 0 < len(name) < 80 and Path(name).is_dir():
        raise INPUT_FILE.error("source", f"{name} is a directory", limit, f"Use a file, such as {name}/map.json.")
    if _NAME.fullmatch(" ".join(words)):
        as_options = "give the map as options: --type bf16 --dims 4096,4096 --box 64,128"
        as_text = "paste what it should hold: numbers are decimal, or 0x and hexadecimal digits"
        fix = f"Check the path, or {as_options if takes_options else as_text}."
        raise INPUT_FILE.error("source", f"no such file: {name}", limit, fix)
