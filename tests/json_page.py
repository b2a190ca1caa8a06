"""docs/json.md, made from the values themselves: every kind with its fields, every command with an example.

    python tests/json_page.py        writes docs/json.md, and stores a sample of every kind that has none

What a field means stands behind it in its class, as a comment; `json_fields.toml` has it for fields without one. Which
commands there are, and what they print, is the table of tests/cli/test_json_leads_back.py.

A stored sample is never changed: it is what this version wrote, and what every later one must read.
"""

import ast
import contextlib
import inspect
import io
import json
import os
import runpy
import shutil
import sys
import tempfile
import tokenize
import tomllib
import types
import typing
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

import tilescope
from tilescope.cli import run
from tilescope.errors import Violation
from tilescope.swizzle import Swizzle
from tilescope.value import ADVICE, ANSWER, EXTRA, JSON_VERSION, Row, Value, _kind_called

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "json.md"
SAMPLES = HERE / "golden" / "json"
TABLE = tomllib.loads((HERE / "json_fields.toml").read_text("utf-8"))
_LONGEST_LINE = 108  # characters of a line of an example
_ENTRIES_SHOWN = 3  # of a list in an example
_TIMED_KINDS = ("verification", "kernel_run", "environment")  # their JSON differs from run to run
_JSON_WORDS = {"None": "null", "True": "true", "False": "false"}
_PLAIN_TYPES = {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}
_PLURALS = {"integer": "integers", "number": "numbers", "true or false": "true or false", "text": "texts"}


class Described(NamedTuple):
    """A field of a kind, as the page tells of it."""

    name: str
    type: str
    meaning: str


@cache
def kinds():
    """Every kind of value by its name, violations included; those of other tests are none of ours."""
    _kind_called("no such kind")
    ours = {name: kind for name, kind in Value._kinds.items() if kind.__module__.startswith("tilescope.")}
    return dict(sorted((ours | {Violation.kind: Violation}).items()))


@cache
def comments_in(module):
    """What stands behind the fields of every class of a module, by class and field."""
    source = inspect.getsource(sys.modules[module])
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    by_line = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    found = {}
    for declared in ast.walk(ast.parse(source)):
        if not isinstance(declared, ast.ClassDef):
            continue
        for statement in declared.body:
            if isinstance(statement, ast.AnnAssign):
                lines = range(statement.lineno, statement.end_lineno + 1)
                said = " ".join(by_line[line] for line in lines if line in by_line)
                if said and not said.startswith(("type:", "noqa")):
                    found[declared.name, statement.target.id] = said
    return found


def comment_on(cls, name):
    """What stands behind a field, in its class or in one that it derives from."""
    for base in cls.__mro__:
        said = (
            comments_in(base.__module__).get((base.__name__, name))
            if base.__module__.startswith("tilescope.")
            else None
        )
        if said:
            return said
    return ""


def meaning_of(kind, cls, name):
    """What a field means: as its class says, or the table; empty where nobody says it."""
    held = getattr(cls, name, None)
    if isinstance(held, property):
        return (inspect.getdoc(held) or "").splitlines()[0]
    return TABLE["kinds"].get(kind, {}).get(name) or comment_on(cls, name) or TABLE["fields"].get(name, "")


def in_json_words(text):
    """A meaning with JSON's words for Python's."""
    for python, in_json in _JSON_WORDS.items():
        text = text.replace(f"{python}:", f"{in_json}:").replace(f"{python} ", f"{in_json} ")
    return text


def described_fields(kind, cls):
    """The fields of a kind, then what to_dict adds to them."""
    hints = type_hints(cls)
    told = [
        Described(
            field.name,
            TABLE["types"].get(f"{kind}.{field.name}") or type_in_words(hints[field.name], field.metadata),
            meaning_of(kind, cls, field.name),
        )
        for field in fields(cls)
        if field.init
    ]
    for name in getattr(cls, "_derived", ()):
        getter = getattr(cls, name).fget
        returned = resolved(getter.__annotations__["return"], getter.__module__)
        told.append(Described(name, type_in_words(returned, {}), meaning_of(kind, cls, name) + " For reading only."))
    return told


def type_hints(cls):
    """The types of the fields of a class, and of those that it derives from."""
    return {
        name: resolved(annotation, base.__module__)
        for base in reversed(cls.__mro__)
        for name, annotation in vars(base).get("__annotations__", {}).items()
    }


def resolved(annotation, module):
    """The type that an annotation names; names that are imported for type checkers alone are looked up among all kinds."""
    if not isinstance(annotation, str):
        return annotation
    return eval(annotation, {}, ChainMap(vars(sys.modules[module]), classes_of_kinds()))


@cache
def classes_of_kinds():
    return {cls.__name__: cls for cls in kinds().values()}


def type_in_words(hint, metadata):
    """What JSON has for a type: "list of integers", "`map_report` or null"."""
    if "dtype" in metadata:
        optional = " or null" if type(None) in typing.get_args(hint) else ""
        return f"nested lists of {metadata['dtype']}{optional}"
    if metadata.get("hex"):
        return _hexadecimal(hint)
    if hint in _PLAIN_TYPES:
        return _PLAIN_TYPES[hint]
    if isinstance(hint, type) and issubclass(hint, Row):
        return f"name ([`{hint.kind}`](#{hint.kind}))"
    if isinstance(hint, type) and issubclass(hint, Value | Violation):
        return _kinds_in_words(hint)
    return _generic_in_words(hint, metadata)


def _hexadecimal(hint):
    if typing.get_origin(hint) is tuple:
        return "list of hexadecimal texts"
    optional = " or null" if type(None) in typing.get_args(hint) else ""
    return f"hexadecimal text{optional}"


def _kinds_in_words(hint):
    """The kind, or every kind that derives from a class that is none itself."""
    if hint is Value:
        return "value of any kind"
    names = [name for name, kind in kinds().items() if issubclass(kind, hint)]
    if hint.kind in names:
        names = [hint.kind]
    return " or ".join(f"[`{name}`](#{name})" for name in names)


def _generic_in_words(hint, metadata):
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return " or ".join(f'"{each}"' for each in arguments)
    if origin in (typing.Union, types.UnionType):
        said = [type_in_words(each, metadata) for each in arguments if each is not type(None)]
        return " or ".join([*said, *(["null"] if type(None) in arguments else [])])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return f"list of {_plural(type_in_words(arguments[0], metadata))}"
    if origin is tuple:
        inner = [type_in_words(each, metadata) for each in arguments]
        if len(set(inner)) == 1:
            return f"list of {len(inner)} {_plural(inner[0])}"
        return f"list of {len(inner)}: {', '.join(inner)}"
    if origin is not None and issubclass(origin, Mapping):
        return f"object: {_plural(type_in_words(arguments[1], metadata))} by name"
    if origin is not None and issubclass(origin, np.ndarray):
        return "nested lists of numbers"
    return "anything that JSON has"


def _plural(words):
    for one, several in (("name ", "names "), ("list of ", "lists of ")):
        if words.startswith(one):
            return several + words.removeprefix(one)
    return _PLURALS.get(words, words)


def printed_table():
    """The command lines that tests/cli prints as JSON, with the kind and what stands beside it."""
    return runpy.run_path(str(HERE / "cli" / "test_json_leads_back.py"))["PRINTED"]


def name_of_command(arguments):
    return " ".join(arguments[:2]) if arguments[0] == "mma" else arguments[0]


@cache
def printed_json(*, is_page=True):
    """What those command lines print, in a folder with the files that they name.

    A page shows one of every kind that a command prints; of those that say how long they took, what is stored of them.
    """
    found = []
    seen = set()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        write_files()
        for arguments, kind, beside in printed_table():
            shown = (name_of_command(arguments), kind)
            data = {"kind": kind, EXTRA: dict.fromkeys(beside)}
            if is_page and kind in _TIMED_KINDS and shown not in seen:
                data = samples_of_this_version()[kind]
            elif not is_page or shown not in seen:
                data = json.loads(printed_by(arguments))
            found.append((arguments, data))
            seen.add(shown)
    return found


def write_files():
    """The files that the command lines name: a tile, a dump in which it lies swizzled, and what lies beside the table."""
    tile = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    np.save("tile.npy", tile)
    Path("dump.bin").write_bytes(Swizzle.named("128B").swizzle(tile.tobytes()))
    for kernel in (HERE / "cli").glob("*.ptx"):
        shutil.copy(kernel, ".")


def printed_by(arguments):
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        run([*arguments, "--json"])
    return written.getvalue()


def cut(value, depth=0):
    """A value of an example: the first entries of lists, inner values by their kind."""
    if isinstance(value, dict) and depth and isinstance(value.get("kind"), str):
        return {"kind": value["kind"], "…": "…"}
    if isinstance(value, dict):
        shown = list(value.items())[:_ENTRIES_SHOWN]
        return {name: cut(each, depth + 1) for name, each in shown} | ({"…": "…"} if len(value) > len(shown) else {})
    if isinstance(value, list):
        shown = [cut(each, depth + 1) for each in value[:_ENTRIES_SHOWN]]
        return shown + (["…"] if len(value) > len(shown) else [])
    return value


def example(data):
    """The JSON of a command in short: a line for every field."""
    lines = []
    for name, value in data.items():
        said = json.dumps(cut(value, 1), ensure_ascii=False)
        for marked, shown in (('{"…": "…"}', "{…}"), (', "…": "…"', ", …"), ('"…"', "…")):
            said = said.replace(marked, shown)
        line = f"  {json.dumps(name)}: {said}"
        is_whole = len(line) <= _LONGEST_LINE or name in (ANSWER, ADVICE)
        lines.append(line if is_whole else line[: _LONGEST_LINE - 1] + "…")
    return "\n".join(["{", ",\n".join(lines), "}"])


def shown_command(arguments):
    """A command line as one types it; a long text is left out."""
    words = [f"'{word[:40]}…'" if len(word) > 60 else word for word in arguments]
    quoted = [f"'{word}'" if set(word) & set(' (){}"<>;*|') and not word.startswith("'") else word for word in words]
    return f"tilescope {' '.join(quoted)} --json".replace("\n", " ").replace(str(HERE.parent), ".")


def command_lines():
    """For every command, the kinds that it prints, what may stand beside them, and an example."""
    commands = {}
    for arguments, data in printed_json():
        commands.setdefault(name_of_command(arguments), []).append((arguments, data))
    for name, printed in commands.items():
        found = dict.fromkeys(data["kind"] for _, data in printed)
        beside = dict.fromkeys(key for _, data in printed for key in data.get(EXTRA, {}))
        yield f"### tilescope {name}\n"
        yield "Prints " + " or ".join(f"[`{kind}`](#{kind})" for kind in found) + "."
        if beside:
            yield "`extra` may have:\n"
            yield from (f"- `{key}`: {TABLE['extra'].get(key, '')}" for key in beside)
        shown = {}
        for arguments, data in printed:
            shown.setdefault(data["kind"], (arguments, data))
        for arguments, data in shown.values():
            yield f"\n```text\n{shown_command(arguments)}\n```\n\n```json\n{example(data)}\n```"
        yield ""


def kind_lines():
    """For every kind, what it is, and a table of its fields."""
    for kind, cls in kinds().items():
        yield f"### {kind}\n"
        yield f"{in_json_words(first_paragraph(cls))}\n"
        yield "| field | type | meaning |\n|---|---|---|"
        for name, words, meaning in described_fields(kind, cls):
            yield f"| `{name}` | {words} | {in_json_words(meaning)} |".replace("\n", " ")
        yield ""


def first_paragraph(cls):
    """The first sentences of a class, on one line."""
    return " ".join(inspect.getdoc(cls).split("\n\n")[0].split())


def page():
    """The whole page."""
    opening = TABLE["page"]["opening"].format(version=JSON_VERSION).strip()
    closing = TABLE["page"]["commands"].strip()
    parts = [opening, "", "## Commands", "", closing, "", *command_lines(), "## Kinds", "", *kind_lines()]
    return "\n".join(parts).rstrip() + "\n"


def objects_in(data):
    """Every object with a kind in plain data, the outermost first."""
    if isinstance(data, dict):
        if isinstance(data.get("kind"), str):
            yield data
        for value in data.values():
            yield from objects_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from objects_in(value)


def fresh_samples():
    """The shortest JSON of every kind that commands print, and of those that the table makes."""
    found = {}
    for _, data in printed_json(is_page=False):
        for told in objects_in(data):
            written = json.dumps(told, separators=(",", ":"))
            if told["kind"] not in found or len(written) < len(found[told["kind"]]):
                found[told["kind"]] = written
    made = {kind: expression for kind, expression in TABLE["samples"].items() if kind in kinds()}
    for kind, expression in made.items():
        names = {"ts": tilescope, "np": np, "Value": Value, "import_module": import_module}
        value = eval(" ".join(expression.split()), names)
        found.setdefault(kind, json.dumps(value.to_dict(), separators=(",", ":")))
    return {kind: found[kind] for kind in kinds() if kind in found}


def sample_file():
    """The samples of this version."""
    return SAMPLES / f"{tilescope.__version__}.json"


def samples_of_this_version():
    return json.loads(sample_file().read_text("utf-8")) if sample_file().exists() else {}


def store_samples():
    """Add the kinds that have no sample yet; those that are there stay as they are."""
    held = samples_of_this_version()
    written = {kind: json.dumps(sample, separators=(",", ":")) for kind, sample in held.items()}
    whole = dict(sorted((fresh_samples() | written).items()))
    lines = [f"{json.dumps(kind)}:{sample}" for kind, sample in whole.items()]
    SAMPLES.mkdir(exist_ok=True)
    sample_file().write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    os.environ.pop("FORCE_COLOR", None)
    store_samples()
    PAGE.write_text(page(), "utf-8")
