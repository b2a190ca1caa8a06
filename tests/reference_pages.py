"""docs/python.md, docs/tables.md and docs/commands.md, made from docstrings, tables and --help; and the pages of --help.

python tests/reference_pages.py        writes all of them
"""

import functools
import importlib.util
import inspect
import io
import os
import re
import textwrap
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import click

import tilescope as ts
import tilescope.cli
from tilescope import types, value
from tilescope.symptoms.tables import CAUSE, TERMS

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
HELP_PAGES = Path(tilescope.cli.__file__).parent / "help"
_MOST_ROWS = 60  # of a table, that are named
_spec = importlib.util.spec_from_file_location("public_api_of_the_test", HERE / "test_public_api.py")
public_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(public_api)


def paragraphs(docstring):
    """A docstring as Markdown: examples and drawings become blocks, the rest stays as it is."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if part.lstrip().startswith(">>> "):
            yield f"```pycon\n{textwrap.dedent(part)}\n```"
        elif all(line.startswith("    ") for line in part.splitlines()):
            yield f"```text\n{textwrap.dedent(part)}\n```"
        else:
            yield from with_indented_end(part)


def with_indented_end(part):
    """A paragraph, and the drawing that follows it without an empty line."""
    lines = part.splitlines()
    count = next((n for n, line in enumerate(lines) if line.startswith((">>> ", "    "))), len(lines))
    yield plain("\n".join(lines[:count]))
    if lines[count:]:
        language = "pycon" if lines[count].startswith(">>> ") else "text"
        yield f"```{language}\n{textwrap.dedent(chr(10).join(lines[count:]))}\n```"


def plain(text):
    """Prose in which Markdown finds nothing but code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else escaped(piece) for piece in pieces)


def escaped(text):
    return re.sub(r"(?<!\w)_|\*|\](?=\()", r"\\\g<0>", re.sub(r"<(?=[\w/])", "&lt;", text))


def described(function):
    """The first sentence of a docstring."""
    first = (inspect.getdoc(function) or "").split("\n\n")[0]
    return plain(" ".join(first.split())).replace("|", "\\|")


def members(cls):
    """Rows of a table: what a class has beside its fields."""
    for attribute in inspect.classify_class_attrs(cls):
        owner = attribute.defining_class
        is_told_elsewhere = owner is not cls and (
            owner.__name__ in ts.__all__ or not owner.__module__.startswith("tilescope")
        )
        if attribute.name.startswith("_") or is_told_elsewhere:
            continue
        held = attribute.object
        if isinstance(held, property | functools.cached_property):
            getter = held.fget if isinstance(held, property) else held.func
            yield f"| `{attribute.name}` | {described(getter)} |"
        elif callable(getattr(held, "__func__", held)) and attribute.kind.endswith("method"):
            arguments = inspect.signature(getattr(held, "__func__", held)).parameters
            shown = ", ".join(name for name in arguments if name not in ("self", "cls", "former"))
            yield f"| `{attribute.name}({shown})` | {described(held)} |"


def name_lines(name, value):
    yield f"### ts.{name}\n" if callable(value) else f"### ts.{name}, a table\n"
    if not callable(value):
        row_type = type(next(iter(value.values()))).__name__
        rows = ", ".join(f"`{key}`" for key in value if len(value) < _MOST_ROWS)
        linked = f"[{row_type}](#ts{row_type.lower()})" if row_type in ts.__all__ else f"`{row_type}`"
        yield f"Rows of {linked} by name{': ' + rows if rows else ''}.\n"
        return
    has_signature = not inspect.isclass(value) or inspect.isfunction(value.__init__)
    signature = public_api.signature(value) if has_signature else ""
    yield f"```text\n{textwrap.fill(f'ts.{name}{signature}', 82, subsequent_indent='    ', break_long_words=False)}\n```\n"
    yield "\n\n".join(paragraphs(value.__doc__)) + "\n"
    if inspect.isclass(value) and (rows := list(members(value))):
        yield "\n".join(["| member | what it is |", "|---|---|", *rows]) + "\n"


def python_page():
    """Every public name with its signature and its docstring."""
    lines = [
        "# Python, name by name",
        "",
        "What the docstrings say, for every name of `import tilescope as ts`; [the public names](api.md) has them by subject.",
        "The examples are run as doctests. This page is made by `python tests/reference_pages.py`.",
        "",
    ]
    for name in sorted(ts.__all__, key=str.lower):
        lines += name_lines(name, getattr(ts, name))
    lines += result_type_lines()
    return "\n".join(lines).rstrip() + "\n"


def result_type_lines():
    """The types of results, which functions make and programs annotate."""
    yield "## Types of results\n"
    yield "`tilescope.types` has the types that functions return, and those that such results hold, for annotations:\n"
    yield "```python\nfrom tilescope.types import KernelRun\n\n\ndef count_copies(run: KernelRun) -> int:"
    yield "    return len(run.copies)\n```\n"
    yield "Their names and fields are promised; their constructors are not. The module loads a type's own module on first use.\n"
    yield table(("type", "what it is"), [(f"`{name}`", described(getattr(types, name))) for name in types.__all__])


def table(headings, rows):
    return "\n".join(
        [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|", *(f"| {' | '.join(row)} |" for row in rows), ""]
    )


def shown(value, unit=""):
    return "-" if value is None else f"{value:,}{unit}" if isinstance(value, int | float) else str(value)


def type_rows():
    for row in ts.DATA_TYPE.values():
        yield (
            f"`{row.name}`",
            shown(row.bits),
            shown(row.smem_bits),
            shown(row.driver_code),
            f"`{row.ptx}`" if row.ptx else "-",
            f"`{row.numpy_name}`" if row.numpy_name else "-",
        )


def arch_rows():
    for row in ts.ARCH.values():
        capability = ".".join(map(str, row.compute_capability))
        per_sm, per_block = row.smem_per_sm_bytes >> 10, row.smem_per_block_bytes >> 10
        yield (f"`{row.name}`", capability, f"{per_sm} KiB", f"{per_block} KiB", shown(row.blocks_per_sm), row.basis)


def feature_rows():
    """For every feature the target that has it, by architecture."""
    for feature in next(iter(ts.ARCH.values())).features:
        yield (feature.replace("_", " "), *(shown(row.target(feature)) for row in ts.ARCH.values()))


def card_rows():
    for row in ts.CARD.values():
        measured = ", ".join(sorted(row.measured)) or "nothing"
        memory = shown(row.memory_gb_per_s, " GB/s")
        l2 = "-" if row.l2_bytes is None else f"{row.l2_bytes >> 20} MiB"
        yield (
            row.name,
            f"`{row.arch.name}`",
            shown(row.sms),
            shown(row.clock_mhz, " MHz"),
            memory,
            l2,
            measured,
            row.source,
        )


def tables_page():
    """Types, architectures and cards, row by row."""
    parts = [
        "# Types, architectures, cards",
        "",
        "All other facts are computed from these tables: `ts.DATA_TYPE`, `ts.ARCH`, `ts.CARD`. This page is generated by",
        "`python tests/reference_pages.py`.",
        "",
        "## Types",
        "",
        "Bits in global memory and in shared memory differ for packed types that TMA unpacks.",
        "",
        table(("type", "bits", "in shared memory", "driver's code", "PTX", "numpy"), type_rows()),
        "## Architectures",
        "",
        table(
            ("name", "compute capability", "shared memory per SM", "per block", "blocks per SM", "basis"),
            arch_rows(),
        ),
        "The next table has the compilation target that each feature needs; - means that the architecture lacks it.",
        "",
        table(("feature", *(f"`{name}`" for name in ts.ARCH)), feature_rows()),
        "## Cards",
        "",
        "Rates that were not measured come from the source in the last column. `tilescope bench --save-card NAME` adds a card.",
        "",
        table(("card", "architecture", "SMs", "clock", "memory", "L2", "measured", "source"), card_rows()),
    ]
    return "\n".join(parts).rstrip() + "\n"


def help_of(words):
    """What the command says of itself to `tilescope WORDS --help` on a terminal of 80 columns."""
    terminal = mock.patch.dict(os.environ, {"COLUMNS": "80", "NO_COLOR": "1"})
    no_page = mock.patch.object(tilescope.cli, "help_page", return_value=None)
    with terminal, no_page, redirect_stdout(io.StringIO()) as printed:
        tilescope.cli.run([*words, "--help"])
    return printed.getvalue().rstrip()


def every_command(words=()):
    """The words of each command, and of the commands of a group."""
    command = tilescope.cli.tilescope
    for word in words:
        command = command.get_command(None, word)
    if words:
        yield words
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():
        yield from every_command((*words, name))


def help_pages():
    """The page of --help of every command, by its file."""
    return {HELP_PAGES / f"{' '.join(words)}.txt": f"{help_of(words)}\n" for words in every_command()}


def command_lines(words, level):
    """A command's manual, and below it those of its own commands."""
    command = tilescope.cli.tilescope
    for word in words:
        command = command.get_command(None, word)
    yield f"{'#' * level} tilescope {' '.join(words)}\n"
    yield f"```text\n{help_of(words)}\n```\n"
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():
        yield from command_lines([*words, name], level + 1)


def commands_page():
    """The manual of every command."""
    lines = [
        "# Every command",
        "",
        "What `tilescope COMMAND --help` prints: arguments, options, examples, exit statuses.",
        "[The command line](command-line.md) says what all commands have in common. This page is made by",
        "`python tests/reference_pages.py`.",
        "",
    ]
    for commands in tilescope.cli.COMMAND_GROUPS.values():
        for name in commands:
            lines += command_lines([name], 2)
    return "\n".join(lines).rstrip() + "\n"


def term_lines(term):
    """A term of the glossary: its meaning, other spellings, and what to read next."""
    known = {other.name for other in TERMS}
    yield f"### {plain(term.name)}\n"
    yield f"{plain(term.meaning)}\n"
    if term.aliases:
        yield f"Also: {plain(', '.join(term.aliases))}.\n"
    see = [f"[{plain(name)}](#{anchor(name)})" for name in term.see if name in known]
    see += [f"[{plain(name)}](rules.md#{name})" for name in term.see if name in ts.RULES]
    see += [f"[{plain(name)}](symptoms.md#{name})" for name in term.see if name in CAUSE]
    if see:
        yield f"See {', '.join(see)}.\n"


def anchor(heading):
    """The anchor of a heading, as the site and forges make it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def glossary_page():
    """Every term of the glossary that `tilescope explain` reads."""
    lines = [
        "# Glossary",
        "",
        "The terms of the field as these pages use them. `tilescope explain TERM` prints the same text. On the site, the first use of",
        "a term on a page links here. This page is made by `python tests/reference_pages.py`.",
        "",
    ]
    for term in sorted(TERMS, key=lambda term: term.name.lower()):
        lines += term_lines(term)
    return "\n".join(lines).rstrip() + "\n"


def man_page():
    """The manual page tilescope(1): commands, exit statuses and where to read more; `--help` has the options."""
    lines = [
        f'.TH TILESCOPE 1 "" "tilescope {ts.__version__}" "User Commands"',
        ".SH NAME",
        "tilescope \\- the path a tile takes on an NVIDIA GPU, planned, checked, emulated and run",
        ".SH SYNOPSIS",
        ".B tilescope",
        "\\fICOMMAND\\fR [\\fIARGUMENT\\fR]... [\\fIOPTION\\fR]...",
        ".SH COMMANDS",
    ]
    for group, commands in tilescope.cli.COMMAND_GROUPS.items():
        lines.append(f'.SS "{group}"')
        for name in commands:
            command = tilescope.cli.tilescope.get_command(None, name)
            lines += [".TP", f".B {name}", command.get_short_help_str(limit=200).replace("-", "\\-")]
    lines += [".SH OPTIONS", ".TP", ".B \\-q, \\-\\-quiet", "Print the answer alone."]
    lines += [".TP", ".B \\-\\-json", "Print the answer as JSON.", ".TP", ".B \\-\\-help"]
    lines += ["Show the manual of a command: arguments, options, examples.", ".TP", ".B \\-\\-version"]
    lines += ["Show the version, with the commit of a checkout.", ".SH EXIT STATUS"]
    for status, meaning in EXIT_STATUSES.items():
        lines += [".TP", f".B {status}", meaning]
    lines += [".SH EXAMPLES", ".nf", 'tilescope explain "my kernel hangs"', "tilescope plan 128x64 bf16 \\-q", ".fi"]
    return "\n".join(lines) + "\n"


EXIT_STATUSES = {
    0: "Done.",
    1: "The result is negative: refused by a rule of the hardware, different, or not found. The reasons are on standard output.",
    2: "The input is invalid. The reasons are on standard error.",
    3: "Something is missing: a GPU, a driver, an optional package.",
}


def promised_lists():
    """Every name that 0.1 promises, by what it is."""
    value._kind_called("no such kind")  # which loads every module that defines one
    commands = [name for names in tilescope.cli.COMMAND_GROUPS.values() for name in names]
    return {
        "Public names": sorted(ts.__all__, key=str.lower),
        "Types of results": types.__all__,
        "Commands": sorted(commands),
        "JSON kinds": sorted(value.Value._kinds),
    }


def stability_page():
    """docs/stability.md: its text as it is, and the lists anew."""
    heading = "## The lists\n"
    text, found, _ = (DOCS / "stability.md").read_text("utf-8").partition(heading)
    lists = [
        f"### {title} ({len(names)})\n\n"
        + textwrap.fill(", ".join(f"`{name}`" for name in names), 120, break_on_hyphens=False)
        for title, names in promised_lists().items()
    ]
    made_by = "These lists are made by `python tests/reference_pages.py`; a test compares them. Rules are listed [by name](rules.md)."
    return text + found + "\n" + "\n\n".join([made_by, *lists]) + "\n"


PAGES = {
    DOCS / "stability.md": stability_page,
    DOCS / "tilescope.1": man_page,
    DOCS / "python.md": python_page,
    DOCS / "tables.md": tables_page,
    DOCS / "commands.md": commands_page,
    DOCS / "glossary.md": glossary_page,
}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), "utf-8")
    for path, page in help_pages().items():
        path.write_text(page, "utf-8")
