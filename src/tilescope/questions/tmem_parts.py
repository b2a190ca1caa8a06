"""The parts of a budget of tensor memory, as people write them: D:128x256*2,SFA:128x256:nvfp4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tilescope.mma.scale_lanes import ScaleOperand
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tmem_address import TMEM_LANES
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout

_PART = re.compile(
    r"(?:(?P<operand>\w+):)?(?P<rows>\d{1,6})x(?P<columns>\d{1,6})(?::(?P<type>[\w.]+))?(?:\*(?P<count>\d{1,3}))?"
)
_COLUMNS = re.compile(r"(?P<columns>\d{1,6})(?:\*(?P<count>\d{1,3}))?")
_OPERANDS = {name.casefold(): name for name in ("D", "A", "metadata", "SFA", "SFB")}
_WRITTEN = "D:128x256, D:128x256*2, A:128x64:bf16, SFA:128x256:nvfp4 or 64 for columns, with commas between them"


class TmemMatrix(NamedTuple):
    """A matrix that a kernel keeps in tensor memory, once or several times."""

    operand: str  # "columns": what they hold is not named
    shape: tuple[int, int]
    type_name: str  # of its elements, or the kind of scale factors; empty: the operand's usual one
    times: int  # how often it is there

    def __str__(self) -> str:
        """As people write it."""
        rows, columns = self.shape
        what = str(columns) if self.operand == "columns" else f"{self.operand}:{rows}x{columns}"
        named = f"{what}:{self.type_name}" if self.type_name else what
        return f"{named}*{self.times}" if self.times != 1 else named

    def in_memory(self, form: Mapping[str, Any], m: int) -> tuple[TmemLayout | int, int]:
        """Its layout or columns, and how often it is there; `form` (cta_group, ws, sparse) and m are the instruction's."""
        if self.operand == "columns":
            return self.shape[1], self.times
        if self.operand in ("SFA", "SFB"):
            scales = scale_layout(*self.shape, self.type_name)
            operand: ScaleOperand = "A" if self.operand == "SFA" else "B"
            cta_group = form.get("cta_group", 1)
            m_of_scales = m if cta_group == 2 else TMEM_LANES
            return scales.tensor_memory(operand, m=m_of_scales, cta_group=cta_group), self.times
        options = dict(form) | {"operand": self.operand}
        if self.type_name:
            options["data_type"] = self.type_name
        return tmem_layout(self.shape, **options), self.times


def tmem_parts(text: str) -> tuple[TmemMatrix, ...]:
    """The matrices of a budget; without a letter, a shape is that of an accumulator D.

    >>> tmem_parts("128x256*2,SFA:128x256:nvfp4")[1]
    TmemMatrix(operand='SFA', shape=(128, 256), type_name='nvfp4', times=1)
    >>> ",".join(map(str, tmem_parts("128x256*2,64")))
    'D:128x256*2,64'
    """
    return tuple(_part(piece.strip()) for piece in text.split(","))


def _part(text: str) -> TmemMatrix:
    alone = _COLUMNS.fullmatch(text)
    if alone is not None:
        return TmemMatrix("columns", (TMEM_LANES, int(alone["columns"])), "", int(alone["count"] or 1))
    match = _PART.fullmatch(text)
    operand = None if match is None else _OPERANDS.get((match["operand"] or "D").casefold())
    if match is None or operand is None:
        raise ValueError(f"{text[:80]!r} is no matrix of tensor memory", _WRITTEN)
    is_scale = operand in ("SFA", "SFB")
    if is_scale and not match["type"]:
        raise ValueError(f"{text[:80]!r} does not say the kind of its scale factors", f"{operand}:128x256:nvfp4")
    shape = int(match["rows"]), int(match["columns"])
    return TmemMatrix(operand, shape, match["type"] or "", int(match["count"] or 1))


def named_layouts(parts: Iterable[TmemMatrix], form: Mapping[str, Any]) -> dict[str, tuple[TmemLayout | int, int]]:
    """The parts as a budget takes them: by their operand, with a number where several are listed.

    >>> {name: held.columns for name, (held, _) in named_layouts(tmem_parts("D:64x128,D:64x64,A:64x64"), {}).items()}
    {'D': 128, 'D (2)': 64, 'A': 32}
    """
    matrices = _number_parts(parts)
    m = next((part.shape[0] for part in matrices.values() if part.operand in ("D", "A")), TMEM_LANES)
    return {name: part.in_memory(form, m) for name, part in matrices.items()}


def _number_parts(parts: Iterable[TmemMatrix]) -> dict[str, TmemMatrix]:
    named: dict[str, TmemMatrix] = {}
    for part in parts:
        same = sum(1 for other in named.values() if other.operand == part.operand)
        named[part.operand if same == 0 else f"{part.operand} ({same + 1})"] = part
    return named
