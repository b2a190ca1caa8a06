"""The options and argument types that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import click

from tilescope import written
from tilescope.cli.output import STDOUT, Output
from tilescope.errors import shortened

Command: TypeAlias = Callable[..., Any]
Read = TypeVar("Read")
LARGEST_EXTENT = 1 << 32  # of a tensor
SMEM_ADDRESS_END = 1 << 32


def _for_options(read: Callable[[str], Read]) -> Callable[[str], Read]:
    """A reader for `type=` of an option or argument: what it says of a wrong text, click says with the option's name."""

    @wraps(read)
    def reading(text: str) -> Read:
        try:
            return read(text)
        except ValueError as error:
            found, instead = error.args
            raise click.BadParameter(f"{found}; write {instead}.") from None

    return reading


number = _for_options(written.number)
numbers = _for_options(written.numbers)
pair = _for_options(written.pair)


def byte_count(text: str) -> int:
    """A number of bytes: at least 0."""
    found = number(text)
    if found < 0:
        raise click.BadParameter(f"{shortened(text, 40)} is negative; at least 0.")
    return found


def address(text: str) -> int:
    """A byte address of shared memory: a number from 0 to 2^32 - 1."""
    found = byte_count(text)
    if found >= SMEM_ADDRESS_END:
        raise click.BadParameter(f"{shortened(text, 40)} is beyond shared memory, whose addresses have 32 bits.")
    return found


def extents(text: str) -> tuple[int, ...]:
    """Extents as people write a tile or a shape: 128x64, 4096x4096x4096.

    >>> extents("128x64"), extents("4096 x 4096 x 64")
    ((128, 64), (4096, 4096, 64))
    """
    try:
        found = numbers(re.sub("[xX*]", ",", text))  # never hexadecimal: 0x64 has no rows
    except click.BadParameter:
        found = ()
    if len(found) < 2 or min(found) < 0:
        raise click.BadParameter(f"{shortened(text, 40)!r} is not a shape; write 128x64.")
    if max(found) > LARGEST_EXTENT:
        raise click.BadParameter(f"{shortened(text, 40)!r} is too large; an extent is at most 2^32.")
    return found


def shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Several shapes: 64x64,128x64.

    >>> shapes("64x64, 128x64")
    ((64, 64), (128, 64))
    """
    return tuple(extents(piece) for piece in text.split(","))


def words(text: str) -> tuple[str, ...]:
    """Several names: bf16,e4m3."""
    return tuple(piece.strip() for piece in text.split(",") if piece.strip())


def rows_and_columns(text: str) -> tuple[int, int]:
    """The two extents of a tile: 64x64, 128x64."""
    found = extents(text)
    if len(found) != 2:
        raise click.BadParameter(f"{shortened(text, 40)!r} has {len(found)} extents; write two, such as 64x64.")
    return found[0], found[1]


def completing(*tables: Iterable[str]) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """What a shell may complete a value to: the names of some tables that begin with what is typed."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        names = (name for table in tables for name in table)
        return [name for name in names if name.casefold().startswith(incomplete.casefold())]

    return complete


def given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were given; the others are left to the defaults of the library."""
    return {name: value for name, value in options.items() if value is not None}


def smem_address_option(
    default: str | None = "0", saying: str = "Shared address of the tile. [default: 0]"
) -> Callable[[Command], Command]:
    """--smem-address A, which the command receives as `start`; where only shared memory has addresses, --address too."""
    return click.option("--smem-address", "--address", "start", type=address, default=default, metavar="A", help=saying)


def output_file(text: str) -> Path:
    """A file to write to; "-" is stdout."""
    path = Path(text)
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory; name a file in it.")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r} to write {path.name!r} to.")
    return path


@overload
def output_options(command: Command) -> Command: ...
@overload
def output_options(*, svg: bool = ..., out: str | None = ...) -> Callable[[Command], Command]: ...
def output_options(
    command: Command | None = None, *, svg: bool = True, out: str | None = None
) -> Command | Callable[[Command], Command]:
    """Give a command --json and --svg FILE; it receives them as one argument, `output`.

    `@output_options(svg=False)` leaves --svg out, for commands that draw nothing; `out`, which --help shows, adds --out
    FILE, for commands that make bytes.
    """
    if command is None:
        return lambda command: output_options(command, svg=svg, out=out)  # type: ignore[call-overload]

    @wraps(command)
    def with_output(
        *args: Any, as_json: bool, svg_path: Path | None = None, out_path: Path | None = None, **options: Any
    ) -> Any:
        to_stdout = ["--json"] * as_json + [
            f"{option} -" for option, path in (("--svg", svg_path), ("--out", out_path)) if path == STDOUT
        ]
        if len(to_stdout) > 1:
            one, other, *_ = to_stdout
            raise click.UsageError(f"{one} and {other} both write to stdout; give {other.removesuffix(' -')} a file.")
        return command(*args, output=Output(as_json, svg_path, out_path), **options)

    added = [click.option("--out", "out_path", type=output_file, metavar="FILE", help=out)] * (out is not None)
    added += [click.option("--svg", "svg_path", type=output_file, metavar="FILE", help=_SVG)] * svg
    added.append(click.option("--json", "as_json", is_flag=True, help="Print the value as JSON instead of a drawing."))
    return reduce(lambda wrapped, option: option(wrapped), added, with_output)


def emit_options(command: Command) -> Command:
    """Give a command --emit TARGET and -o FILE, which it receives as `emit` and `source_path`."""
    target = click.option(
        "--emit", metavar="TARGET", help="Print source code instead: cuda, ptx, cute, triton or python."
    )
    path = click.option("-o", "source_path", type=output_file, metavar="FILE", help="With --emit: write it to FILE.")
    return target(path(command))


def print_source(source: str, path: Path | None) -> int:
    """Source code on stdout, or in a file."""
    Output(out_path=path or STDOUT).write(source.encode())
    return 0


_SVG = "Also write the drawing as SVG; - is stdout."
