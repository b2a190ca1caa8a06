"""The --help of a command, laid out like a page of a manual.

    Usage: tilescope swizzle [OPTIONS] MODE          how it is written
      Show the swizzle MODE: …                       what it answers
    The map:  --type TYPE  …                         options, those that belong together below one heading
    Output:   -q, --quiet  …
    Examples:                                        command lines, and what each answers
    Exit status:                                     what a script can rely on
    See also:                                        other commands, and the page of the documentation

The first three come from the command itself, the others from manual.toml.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import click

from tilescope.cli.named_commands import NamedCommands
from tilescope.sentence import listed

_USUAL_NO = "the result is negative: the hardware refuses the request; the reasons are on stdout"
_NOT_UNDERSTOOD = "the input was not understood; the reasons are on stderr"
_OUTPUT_OPTIONS = ("--quiet", "--verbose", "--json", "--svg", "--out", "--hex", "--c")


class Example(NamedTuple):
    """A command line, and what it answers."""

    run: str  # several lines where one would be too long
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manual:
    """The text of --help below the options of a command."""

    examples: tuple[Example, ...] = ()
    no: str = _USUAL_NO  # when the exit status is 1
    missing: str = ""  # when it is 3; empty: never
    passes_on: bool = False  # whether the exit status is that of the program that the command runs
    see_also: tuple[str, ...] = ()  # words of other commands
    page: str = ""  # of the documentation
    groups: Mapping[str, tuple[str, ...]]  # headings, and the options below them

    def exit_statuses(self) -> list[tuple[str, str]]:
        """Numbers, and what each means.

        >>> Manual(groups={}, no="they differ").exit_statuses()[1]
        ('1', 'they differ')
        """
        if self.passes_on:
            rows = [("COMMAND's", "the program ran"), ("2", _NOT_UNDERSTOOD)]
        else:
            rows = [("0", "done"), ("1", self.no), ("2", _NOT_UNDERSTOOD)]
        if self.missing:
            rows.append(("3", self.missing))
        return rows


@cache
def manuals() -> Mapping[str, Manual]:
    """Every command's manual, by the words of the command."""
    import tomllib  # late: only --help needs it

    table = tomllib.loads(files("tilescope.cli").joinpath("manual.toml").read_text("utf-8"))
    return {words: _manual(row) for words, row in table.items()}


def _manual(row: dict[str, Any]) -> Manual:
    return Manual(
        examples=tuple(Example(**example) for example in row["example"]),
        no=row.get("no", _USUAL_NO),
        missing=row.get("missing", ""),
        passes_on=row.get("passes_on", False),
        see_also=tuple(row["see_also"]),
        page=row["page"],
        groups={heading: tuple(options) for heading, options in row.get("groups", {}).items()},
    )


class ManualCommand(click.Command):
    """A command whose --help is a page of the manual; it refuses a repeated option, unless it may be repeated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words of a command line; refuse what click would misread or pass over."""
        written = list(args)  # click consumes its list
        try:
            self._refuse_repeated(ctx, written)
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name[1:2].isdecimal():
                raise
            number = next(word for word in written if word.startswith(error.option_name))
            raise click.UsageError(f"{number!r} is below 0; sizes, shapes and words are not.", ctx) from None

    def _refuse_repeated(self, ctx: click.Context, written: list[str]) -> None:
        """Refuse two values for one option: click would take the last without a word."""
        _, _, parameters = self.make_parser(ctx).parse_args(list(written))
        for parameter, times in Counter(parameters).items():
            takes_one = isinstance(parameter, click.Option) and not (
                parameter.multiple or parameter.is_flag or parameter.count
            )
            if takes_one and times > 1:
                often = "twice" if times == 2 else f"{times} times"
                raise click.UsageError(f"{parameter.opts[0]} is given {often}; it takes one value.", ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Options below headings: those of the manual, then the others, then the output options."""
        write_options(self.get_params(ctx), ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, exit statuses, and where to go on."""
        write_manual(manual_of(ctx), formatter)


class ManualGroup(NamedCommands):
    """A group of commands whose --help is a page of the manual."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, exit statuses, and where to go on."""
        write_manual(manual_of(ctx), formatter)


def manual_of(ctx: click.Context) -> Manual:
    """The manual of the command that a context runs: of "tilescope mma tmem" the one of "mma tmem"."""
    return manuals()[ctx.command_path.partition(" ")[2]]


def write_options(parameters: Iterable[click.Parameter], ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write options below headings."""
    groups = manual_of(ctx).groups
    heading_of = {option: heading for heading, options in groups.items() for option in options}
    sections: dict[str, list[tuple[str, str]]] = {heading: [] for heading in ("Options", *groups, "Output")}
    for parameter in parameters:
        record = parameter.get_help_record(ctx)
        if record is None or isinstance(parameter, click.Argument):  # the usage names arguments
            continue
        named = [heading_of[option] for option in parameter.opts if option in heading_of]
        is_output = any(option in _OUTPUT_OPTIONS for option in parameter.opts)
        heading = named[0] if named else "Output" if is_output else "Options"
        sections[heading].append(record)
    for heading, records in sections.items():
        if records:
            with formatter.section(heading):
                formatter.write_dl(records)


def write_manual(manual: Manual, formatter: click.HelpFormatter) -> None:
    """Write the text below the options."""
    with formatter.section("Examples"):
        for example in manual.examples:
            for line in example.run.splitlines():
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
            if example.says:
                formatter.write(f"{'':{formatter.current_indent + 4}}{example.says}\n")
    with formatter.section("Exit status"):
        formatter.write_dl(manual.exit_statuses())
    with formatter.section("See also"):
        formatter.write_text(f"the commands {listed(manual.see_also)}; docs/{manual.page}")
