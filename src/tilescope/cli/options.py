"""The options and argument types that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce, wraps
from pathlib import Path
from typing import Any, TypeAlias, overload

import click

from tilescope.cli.output import STDOUT, Output
from tilescope.errors import shortened

Command: TypeAlias = Callable[..., Any]
LARGEST_EXTENT = 1 << 32  # of a tensor
SMEM_ADDRESS_END = 1 << 32


def number(text: str) -> int:
    """An integer as people write it: 1024, 0x400, 0b1000, 1_024. For `type=` of an option or argument.

    >>> number("0x400"), number("1_024"), number("-16")
    (1024, 1024, -16)
    """
    try:
        return int(text, 10 if text.strip().lstrip("+-").isdecimal() else 0)
    except ValueError:
        raise click.BadParameter(f"{shortened(text, 40)!r} is not a number; write 1024, 0x400 or 1_024.") from None


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


def numbers(text: str) -> tuple[int, ...]:
    """Numbers as people list them: 4096,4096 or 4096x4096 or (64, 8) or "64 32 32 8".

    >>> numbers("4096,0x40"), numbers("64 x 32"), numbers("(64,)"), numbers("")
    ((4096, 64), (64, 32), (64,), ())
    """
    plain = text.strip().strip("()[]{}").strip()
    if re.fullmatch(r"[1-9]\d*(\s*[xX*]\s*\d+)+", plain):
        pieces = re.split(r"\s*[xX*]\s*", plain)
    else:
        pieces = re.split(r"\s*,\s*|\s+", re.sub(r"\s*,$", "", plain)) if plain else []
    if "" in pieces:
        raise click.BadParameter(f"{shortened(text, 40)!r} has a comma without a number.")
    return tuple(number(piece) for piece in pieces)


def pair(text: str) -> tuple[int, int]:
    """Two indices: 5,8."""
    found = numbers(text)
    if len(found) != 2:
        count = "is one number" if len(found) == 1 else f"has {len(found)} numbers"
        raise click.BadParameter(f"{shortened(text, 40)!r} {count}; write two, such as 5,8.")
    return found[0], found[1]


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


def rows_and_columns(text: str) -> tuple[int, int]:
    """The two extents of a tile: 64x64, 128x64."""
    found = extents(text)
    if len(found) != 2:
        raise click.BadParameter(f"{shortened(text, 40)!r} has {len(found)} extents; write two, such as 64x64.")
    return found[0], found[1]


def smem_address_option(default: str | None = "0") -> Callable[[Command], Command]:
    """--smem-address A, which the command receives as `start`; where only shared memory has addresses, --address too."""
    saying = "Shared address of the tile. [default: 0]"
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


_SVG = "Also write the drawing as SVG; - is stdout."
