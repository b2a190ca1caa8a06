"""Columns of tensor memory: whether all that a kernel wants fits, and where it lies.

    tcgen05.alloc              one warp asks for 32, 64, 128, 256 or 512 columns, all lanes; it waits until they are free
    tcgen05.relinquish_…       the block will not ask again, so that a second block on the SM need not wait for it
    tcgen05.dealloc            with the address and the columns of the alloc; everything is freed before the kernel ends

    column   0         128       256  260  264       512
             │ D0      │ D1      │SFA │SFB │ free     │       one alloc of 512 columns; parts in the order in which they are given

Accumulators that use half of each quarter (layouts C and F) share their columns: the second one starts at lane 16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilescope.errors import RuleError, Violation, argument_type, ceil_div, raise_all
from tilescope.mma.tcgen05_kind import Documented, blackwell_rule
from tilescope.mma.tmem_address import TMEM_COLUMNS
from tilescope.mma.tmem_layout import DATAPATHS, TmemLayout
from tilescope.reading import entries
from tilescope.value import Value

_BUDGET = 'ts.TensorMemory.budget({{"D": (ts.tmem_layout((128, 256)), {count})}}).violations'
TMEM_BUDGET = blackwell_rule(
    "tmem-budget", "Accumulators, A, metadata and scale factors fit into 512 columns together.", "Tensor Memory",
    _BUDGET.format(count=2), _BUDGET.format(count=3),
)  # fmt: skip
ALLOC_COLUMNS = (32, 64, 128, 256, 512)
_COPY_ALIGNMENT = 4  # columns: where tcgen05.cp writes, and metadata lies
_UPPER_LANE = 16
_LESS_SCALES = "Use a narrower accumulator, or copy the scale factors of fewer k at a time."
_FIXES = {
    "D": "Use a narrower accumulator, or one stage fewer of it.",
    "A": "Use a narrower accumulator, one stage fewer of it, or keep A in shared memory.",
} | dict.fromkeys(("SFA", "SFB", "metadata"), _LESS_SCALES)


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
    """What a kernel keeps in tensor memory, and whether it fits.

    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> wide = tmem_layout((128, 256))
    >>> budget = tmem_budget({"D0": wide, "D1": wide, "A": tmem_layout((128, 64), operand="A")})
    >>> budget.fits, budget.columns, [part.first_column for part in budget.parts]
    (False, 544, [0, 256, None])
    >>> print(budget.violations[0])
    tmem-budget: A needs 32 columns after 512 taken ones; tensor memory has 512 columns. Use a narrower accumulator, one stage \
fewer of it, or keep A in shared memory.
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
        """The columns to ask tcgen05.alloc for: a power of two of at least 32; None if the parts do not fit."""
        taken = [part.first_column + part.columns for part in self.parts if part.first_column is not None]
        return next(column for column in ALLOC_COLUMNS if column >= max(taken, default=0)) if self.fits else None


def tmem_budget(parts: Mapping[str, Any]) -> TmemBudget:
    """A budget over layouts by name: accumulators, A, metadata, scale factors; (layout, count) stands for several alike.

    >>> from tilescope.mma.scale_layout import scale_layout
    >>> from tilescope.mma.tmem_layout import tmem_layout
    >>> scales = scale_layout(128, 256, "nvfp4").tensor_memory("A")
    >>> budget = tmem_budget({"D": (tmem_layout((128, 128)), 2), "SFA": scales})
    >>> [(part.name, part.first_column, part.columns) for part in budget.parts], budget.alloc_columns
    ([('D 0', 0, 128), ('D 1', 128, 128), ('SFA', 256, 16)], 512)
    """
    placed: list[TmemPart] = []
    problems: list[Violation] = []
    after = needed = 0
    half: tuple[int, int] | None = None  # columns whose upper lanes are free: the first, and how many
    for name, layout in _listed(parts):
        columns, operand = layout.columns, layout.operand
        shares = operand == "D" and layout.datapath is not None and DATAPATHS[layout.datapath].is_half
        if shares and half is not None and columns <= half[1]:
            placed.append(TmemPart(name, operand, columns, half[0], _UPPER_LANE))
            half = None
            continue
        alignment = _COPY_ALIGNMENT if operand in ("SFA", "SFB", "metadata") else 1
        first = ceil_div(after, alignment) * alignment
        needed += first + columns - after
        if first + columns > TMEM_COLUMNS:
            found = f"{name} needs {columns} columns after {after} taken ones"
            limit = f"tensor memory has {TMEM_COLUMNS} columns"
            problems.append(
                TMEM_BUDGET.violation(name, found, limit, _FIXES[operand], part=name, columns=columns, taken=after)
            )
            placed.append(TmemPart(name, operand, columns, None))
            continue
        placed.append(TmemPart(name, operand, columns, first))
        after, half = first + columns, (first, columns) if shares else half
    return TmemBudget(tuple(placed), needed, tuple(problems))


def _listed(parts: Any) -> list[tuple[str, TmemLayout]]:
    if not isinstance(parts, Mapping) or not parts:
        fix = 'Use {"D": tmem_layout((128, 256))}, for example.'
        raise RuleError([argument_type("parts", parts, "layouts of tensor memory by name", fix)])
    listed: list[tuple[str, TmemLayout]] = []
    problems = []
    for name, part in parts.items():
        layout, count = (part, 1) if isinstance(part, TmemLayout) else (*(entries(part, 3) or ()), None, None)[:2]
        if not isinstance(layout, TmemLayout) or not isinstance(count, int) or not 1 <= count <= TMEM_COLUMNS:
            wanted, fix = "a layout of tensor memory, or (layout, count)", "Use tmem_layout((128, 256))."
            problems.append(argument_type(str(name), part, wanted, fix))
        else:
            listed += [(str(name) if count == 1 else f"{name} {number}", layout) for number in range(count)]
    raise_all(problems)
    return listed
