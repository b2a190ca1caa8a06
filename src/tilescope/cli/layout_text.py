"""Options for what the text of a layout leaves unsaid."""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from tilescope.cli.options import Command, rows_and_columns, smem_address_option

_OPTIONS = (
    click.option("--bits", "element_bits", type=int, help="Bits of an element, where the text does not say."),
    click.option("--shape", type=rows_and_columns, metavar="MNxK", help="The tile in elements, where the text does not say."),
    click.option(
        "--major", type=click.Choice(["K", "MN"]), help="The contiguous index, where the text does not say. [default: K]"
    ),
    click.option(
        "--unit", type=click.Choice(["bytes", "elements"]), help="What CuTe's Python form of a swizzle counts. [default: bytes]"
    ),
    smem_address_option(),
)  # fmt: skip


def layout_text_options(command: Command) -> Command:
    """Give a command --bits, --shape, --major, --unit and --smem-address; it receives them as one argument, `beside`."""

    @wraps(command)
    def with_beside(*args: Any, **options: Any) -> Any:
        names = ("element_bits", "shape", "major", "unit", "start")
        beside = {name: options.pop(name) for name in names}
        return command(*args, beside=beside, **options)

    wrapped: Command = with_beside
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped
