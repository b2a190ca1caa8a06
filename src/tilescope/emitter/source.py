"""From facts to text: templates that read like the code they make."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tilescope.rule import rule

EMIT = rule(
    "emit",
    "Programs are emitted for wgmma, ldmatrix and threads, and for types that these multiply or move.",
    source="tilescope's templates",
    passing='ts.emit(ts.plan((64, 64), "bf16").best, "ptx")',
    failing='ts.emit(ts.plan((128, 64), "bf16", arch="sm_100").best, "ptx")',
)


@cache
def _environment() -> Any:
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
    environment.filters["core_name"] = _core_name
    return environment


def _core_name(name: str, prefix: str) -> str:
    """A row's name as cuda.core spells it: NONE, SWIZZLE_128B."""
    return f"{prefix}_{name}" if name[:1].isdigit() else name.upper()


def rendered(template: str, facts: dict[str, Any]) -> str:
    """The text of a template: never more than one empty line, none at the end."""
    text = _environment().get_template(template).render(facts)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
