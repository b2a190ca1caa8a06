"""Whether all that a kernel keeps in tensor memory fits its 512 columns.

A budget gives the parts of a kernel their columns, in the order in which it lists them:

    column   0         128       256  260  264       512
             │ D0      │ D1      │SFA │SFB │ free     │       one alloc of 512 columns
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, Violation, Wording, argument_type, raise_all
from tilescope.mma.datapath import DATAPATHS
from tilescope.mma.tcgen05_kind import BLACKWELL, Documented
from tilescope.mma.tmem_address import ALLOC_COLUMNS, TMEM_COLUMNS, UPPER_HALF_LANE
from tilescope.mma.tmem_layout import TmemLayout
from tilescope.reading import entries, plain_int
from tilescope.rule import rule
from tilescope.value import Value

_COPY_COLUMNS = 4  # alignment of tcgen05.cp's destination, and of metadata
TMEM_BUDGET = rule(
    "tmem-budget",
    "Accumulators, A, metadata and scale factors fit into 512 columns together.",
    argument="{part}",
    found="{part} needs {columns} columns after {taken} taken ones",
    limit="tensor memory has {most} columns",
    fix="Use a narrower accumulator, or one stage fewer of it.",
    source="PTX ISA, Tensor Memory",
    architectures=BLACKWELL,
    passing='ts.TensorMemory.budget({"D": (ts.tmem_layout((128, 256)), 2)}).violations',
    failing='ts.TensorMemory.budget({"D": (ts.tmem_layout((128, 256)), 3)}).violations',
)
A_OVER_BUDGET = TMEM_BUDGET.worded(fix="Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.")
SCALES_OVER_BUDGET = TMEM_BUDGET.worded(
    fix="Use a narrower accumulator, or copy the scale factors of fewer k at a time."
)


class _Columns(NamedTuple):
    """Columns, with all their lanes, whose content is not named."""

    columns: int
    operand: str = "columns"
    datapath: str | None = None


@dataclass(frozen=True, slots=True)
class TmemPart(Value):
    """One matrix of a budget: its columns, and the first of them; None if it does not fit."""

    name: str
    operand: str
    columns: int
    first_column: int | None
    lane: int = 0


@dataclass(frozen=True, slots=True)
class TmemBudget(Documented, Value):
    """The parts of tensor memory that a kernel uses, and whether they fit.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> wide = tmem_layout((128, 256))
    >>> budget = tmem_budget({"D0": wide, "D1": wide, "A": tmem_layout((128, 64), operand="A")})
    >>> budget.fits, budget.columns, [part.first_column for part in budget.parts]
    (False, 544, [0, 256, None])
    >>> budget.violations[0].found
    'A needs 32 columns after 512 taken ones'
    >>> budget.violations[0].fix
    'Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.'
    """

    parts: tuple[TmemPart, ...]
    columns: int  # of all parts
    violations: tuple[Violation, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether all parts have their columns."""
        return not self.violations

    @property
    def alloc_columns(self) -> int | None:
        """The columns for tcgen05.alloc: a power of two of at least 32; None if the parts do not fit."""
        if not self.fits:
            return None
        ends = [part.first_column + part.columns for part in self.parts if part.first_column is not None]
        return next(columns for columns in ALLOC_COLUMNS if columns >= max(ends, default=0))


def tmem_budget(parts: Mapping[str, Any]) -> TmemBudget:
    """Whether accumulators, A, metadata and scale factors fit, and the reasons if they do not.

    The parts have names, and are layouts, numbers of columns, or (layout, count). Accumulators that use half of each
    quarter (layouts C and F) share their columns: the second one starts at lane 16.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> scales = scale_layout(128, 256, "nvfp4").tensor_memory("A")
    >>> budget = tmem_budget({"D": (tmem_layout((128, 128)), 2), "SFA": scales})
    >>> [(part.name, part.first_column, part.columns) for part in budget.parts], budget.alloc_columns
    ([('D 0', 0, 128), ('D 1', 128, 128), ('SFA', 256, 16)], 512)
    >>> tmem_budget({"D": (tmem_layout((64, 128)), 2), "else": 64}).columns  # the two D lie beside each other in lanes
    192
    """
    placed: list[TmemPart] = []
    problems: list[Violation] = []
    taken = 0  # columns, from the first on
    needed = 0
    half_used: TmemPart | None = None  # whose columns have free lanes
    for name, layout in _named_layouts(parts):
        columns = layout.columns
        operand = layout.operand
        is_half = operand == "D" and DATAPATHS[layout.datapath or "D"].is_half
        if is_half and half_used is not None and columns <= half_used.columns:
            placed.append(TmemPart(name, operand, columns, half_used.first_column, UPPER_HALF_LANE))
            half_used = None
            continue
        first = taken if operand in ("D", "A", "columns") else rounded_up(taken, _COPY_COLUMNS)
        needed += first + columns - taken
        if first + columns > TMEM_COLUMNS:
            placed.append(TmemPart(name, operand, columns, None))
            wording = _over_budget(operand)
            problems.append(wording.violation(part=name, columns=columns, taken=taken, most=TMEM_COLUMNS))
            continue
        placed.append(TmemPart(name, operand, columns, first))
        taken = first + columns
        if is_half:
            half_used = placed[-1]
    return TmemBudget(tuple(placed), needed, tuple(problems))


def _over_budget(operand: str) -> Wording:
    """The message for an operand that does not fit."""
    if operand in ("D", "columns"):
        return TMEM_BUDGET.wording
    return A_OVER_BUDGET if operand == "A" else SCALES_OVER_BUDGET


def _named_layouts(parts: object) -> list[tuple[str, TmemLayout | _Columns]]:
    """Every part as often as it is there, several with a number behind their name."""
    if not isinstance(parts, Mapping) or not parts:
        fix = 'Use {"D": tmem_layout((128, 256))}, for example.'
        raise RuleError([argument_type("parts", parts, "layouts of tensor memory by name", fix)])
    listed: list[tuple[str, TmemLayout | _Columns]] = []
    problems = []
    for name, part in parts.items():
        layout, count = _layout_and_count(part)
        if layout is None or layout.columns < 1 or count is None:
            expected = "a layout of tensor memory, a number of columns, or (layout, count)"
            problems.append(argument_type(str(name), part, expected, "Use tmem_layout((128, 256))."))
        elif count == 1:
            listed.append((str(name), layout))
        else:
            listed += [(f"{name} {number}", layout) for number in range(count)]
    raise_all(problems)
    return listed


def _layout_and_count(part: object) -> tuple[TmemLayout | _Columns | None, int | None]:
    """The layout or columns, and their count; None for anything else."""
    layout = part
    times: object = 1
    fields = entries(part, 2) or ()
    if len(fields) == 2:
        layout, times = fields
    count = plain_int(times)
    if count not in range(1, TMEM_COLUMNS + 1):
        count = None
    if isinstance(layout, TmemLayout):
        return layout, count
    columns = plain_int(layout)
    return (None if columns is None else _Columns(columns)), count
