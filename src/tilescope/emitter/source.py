"""From facts to text: templates that read like the code they make."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tilescope.emitter"),
        undefined=StrictUndefined,
        block_start_string="<%",  # {% would meet the registers of inline assembly
        block_end_string="%>",
        variable_start_string="${",
        variable_end_string="}",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  source code, not HTML
    )
    environment.filters["registers"] = _registers
    environment.filters["results"] = _results
    return environment


def _registers(count: int) -> list[str]:
    """Operands %0, %1, … of inline assembly, a line for every 16."""
    lines = batched([f"%{number}" for number in range(count)], 16)
    return [", ".join(line) + ("," if 16 * index < count else "") for index, line in enumerate(lines, 1)]


def _results(count: int, constraint: str) -> str:
    """The output operands of `count` registers d[…], six on a line."""
    lines = batched([f'"+{constraint}"(d[{number}])' for number in range(count)], 6)
    return ",\n        ".join(map(", ".join, lines))


def batched(items: list[str], length: int) -> list[list[str]]:
    """The items in lists of `length`, the last perhaps shorter."""
    return [items[first : first + length] for first in range(0, len(items), length)]


def rendered(template: str, facts: dict[str, Any]) -> str:
    """The text of a template: never more than one empty line, none at the end."""
    text = _environment().get_template(template).render(facts)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
