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
from typing import NamedTuple

import click

from tilescope.cli.map_options import JsonFile, with_strides
from tilescope.errors import RuleError, TensorMapError, broken, shortened
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.argument_dump import dumped_arguments
from tilescope.tensor_map.arguments import MapArguments, MapReport
from tilescope.tensor_map.decoding import decode_tensor_map, inspect_tensor_map
from tilescope.tensor_map.descriptor import DESCRIPTOR_BYTES
from tilescope.tensor_map.paste import descriptor_bytes

STDIN = "-"
LARGEST_INPUT_BYTES = 1 << 20  # a tensor map, however it is written, is far smaller
_DUMP = re.compile(r"globalDim\b|gmem_address|elemType=|shape=\[|Failed to (?:initialize|create)|Triton Error")
_JSON = re.compile(r"""\s*\{(?:[^{]*"|\s*'?[A-Za-z_]\w*'?\s*:)""")  # what may stand in braces otherwise are words in C
_TEXT = re.compile(r"[\x09-\x0d\x20-\x7e\x80-\U0010ffff]*")
_LINE_OF_FILE = re.compile(r"(.+):(\d{1,9})")
_NAME = re.compile(r"[^\n]*(?:[/\\~]|\.\w|[g-wyzG-WYZ])[^\n]*")  # more than hexadecimal digits: the name of a file


class Source(NamedTuple):
    """What was given: a descriptor, or the arguments of one or several maps."""

    blob: bytes | None
    asked: tuple[MapArguments, ...] = ()

    def reports(self) -> tuple[MapReport, ...]:
        """What the rules say of each map."""
        if self.blob is None:
            return tuple(each.report() for each in self.asked)
        found = inspect_tensor_map(self.blob)
        return (MapReport(found.tensor_map is not None, found.violations, found.tensor_map),)

    def tensor_map(self) -> AnyMap:
        """The one map, or its violations raised."""
        if len(self.asked) > 1:
            found = f"the arguments of {len(self.asked)} maps"
            raise broken("one-map", "source", found, "one map at a time", "Leave the others out.")
        return self.asked[0].tensor_map() if self.blob is None else decode_tensor_map(self.blob)


def described(words: tuple[str, ...], asked: MapArguments | None) -> Source:
    """The map that SOURCE gives, with the options' arguments in place of its own; without both, what stdin gives."""
    if not words and asked is None:
        if sys.stdin.isatty():
            raise click.UsageError("describe a map: --type, --dims and --box, or a file, or - for stdin.")
        words = (STDIN,)
    if not words:
        assert asked is not None
        return _complete((with_strides(asked),))
    given = read_source(words)
    if given.blob is not None and asked is not None:
        raise click.UsageError("options replace arguments, not the bytes of a descriptor.")
    if given.blob is not None:
        return given
    return _complete(given.asked if asked is None else tuple(with_strides(asked, each) for each in given.asked))


def _complete(asked: tuple[MapArguments, ...]) -> Source:
    """These arguments, or everything they lack; strides follow from the rest."""
    lacking = [violation for each in asked for violation in each.misnamed()]
    if not lacking:
        return Source(None, asked)
    raise TensorMapError([each for each in lacking if each.argument != "strides_bytes"] or lacking)


def read_source(words: tuple[str, ...]) -> Source:
    """The map that the words name (a file, "-" for stdin) or show (hex, words, JSON, a dump)."""
    content = _content(words)
    if isinstance(words, JsonFile):
        return Source(None, MapArguments.all_from_json(content))
    text = content.decode("utf-8", errors="replace")
    is_text = _TEXT.fullmatch(text) is not None and "\ufffd" not in text
    if not is_text and (len(content) == DESCRIPTOR_BYTES or _is_given_by_name(words)):
        if len(content) != DESCRIPTOR_BYTES:
            found = f"{len(content)} bytes that are no text"
            raise broken("input-binary", "source", found, "the bytes of a descriptor are 128", "Give the map alone.")
        return Source(content)
    if _JSON.match(text):
        return Source(None, MapArguments.all_from_json(text))
    if _DUMP.search(text):
        return Source(None, dumped_arguments(text))
    try:
        return Source(descriptor_bytes(text))
    except RuleError:
        if text.lstrip().startswith("[") and "x" not in text:  # a list of too few words, or JSON
            return Source(None, MapArguments.all_from_json(text))
        if not _is_given_by_name(words):
            _refuse_names(words)
        raise


def _content(words: tuple[str, ...]) -> bytes:
    if not _is_given_by_name(words):
        return " ".join(words).encode("utf-8", errors="replace")
    line = _LINE_OF_FILE.fullmatch(words[0]) if not _is_file(words[0]) else None
    content = _line(line[1], int(line[2])) if line else read_input(words[0])
    if not content.strip():
        which = "stdin" if words[0] == STDIN else f"line {line[2]} of {line[1]}" if line else words[0]
        raise broken("input-empty", "source", f"{which} is empty", "a map as bytes, words, JSON or a dump", "Give one.")
    return content


def read_input(source: str) -> bytes:
    """What a file holds, or stdin for "-"; more than a tensor map could need is refused."""
    with click.open_file(source, "rb") as file:
        content: bytes = file.read(LARGEST_INPUT_BYTES + 1)
    if len(content) > LARGEST_INPUT_BYTES:
        raise broken("input-size", source, "more than 1 MiB", "a tensor map is 128 bytes", "Give the map alone.")
    return content


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
            raise broken("input-file", "source", f"{len(words)} sources", limit, "Give one.")
    name = shortened(" ".join(words))
    if len(words) == 1 and 0 < len(name) < 80 and Path(words[0]).is_dir():
        raise broken("input-file", "source", f"{name} is a directory", limit, "Name a file in it.")
    if _NAME.fullmatch(" ".join(words)):
        raise broken("input-file", "source", f"no such file: {name}", limit, "Check the path.")
