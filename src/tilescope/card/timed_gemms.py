"""Kernels of GEMMs that were timed on a card of the user's own: what `bench gemm --tune --save-card` keeps.

    product "512x4096x7168 e4m3 …"    kernel "128x128x128"            24.6 us, predicted 25.0, bound by steps
                                      kernel "64x128x128, split 2"    26.9 us, predicted 25.9, bound by memory

A prediction for a kernel that was timed is that time. For others it is multiplied by the mean of measured to predicted times: of the
product's kernels that were timed, else of those with the same bound, else of all; of three at least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import NamedTuple

from tilescope.errors import PlainData

FEWEST_TIMED = 3  # kernels: fewer are not enough for a correction of others


class TimedGemm(NamedTuple):
    """A kernel, its time, and the time that was predicted without corrections; microseconds."""

    product: str
    kernel: str
    us: float
    predicted_us: float
    bound: str
    date: str
    model: str  # which predicted that: another one predicts other times

    @classmethod
    def from_dict(cls, data: PlainData) -> TimedGemm:
        """The kernel that a file of a card has; KeyError, TypeError or ValueError if it has none."""
        us, predicted_us = float(data["us"]), float(data["predicted_us"])
        if not (us > 0 and predicted_us > 0):
            raise ValueError(f"{us} us measured, {predicted_us} us predicted")
        return cls(
            product=str(data["product"]),
            kernel=str(data["kernel"]),
            us=us,
            predicted_us=predicted_us,
            bound=str(data["bound"]),
            date=str(data["date"]),
            model=str(data["model"]),
        )


class Correction(NamedTuple):
    """What a predicted time is multiplied by, and what that rests on."""

    ratio: float
    kernels: int  # that were timed: 1 is this one itself
    date: str  # of the last of them


class _Group(NamedTuple):
    """Kernels whose mean corrects others: of a product, of a bound, or all; of predictions by one model."""

    model: str
    product: str = ""
    bound: str = ""


@dataclass(frozen=True, slots=True)
class TimedGemms:
    """All kernels that were timed on a card, and the means of their groups.

    >>> times = [TimedGemm("p", f"k{i}", 11.0, 10.0, "memory", "2026-11-18", "m") for i in range(3)]
    >>> timed = TimedGemms.of(times)
    >>> timed.correct("p", "k1", 20.0, "memory", "m").ratio, round(timed.correct("q", "k9", 20.0, "memory", "m").ratio, 3)
    (0.55, 1.1)
    >>> timed.correct("q", "k9", 20.0, "memory", "another model")
    """

    by_kernel: Mapping[tuple[str, str], TimedGemm]
    by_group: Mapping[_Group, Correction]

    @classmethod
    def of(cls, kernels: Iterable[TimedGemm]) -> TimedGemms:
        """Those of a file."""
        by_kernel = {(each.product, each.kernel): each for each in kernels}
        groups: dict[_Group, list[TimedGemm]] = {}
        for each in by_kernel.values():
            for group in _groups(each.product, each.bound, each.model):
                groups.setdefault(group, []).append(each)
        return cls(by_kernel, {group: _mean(alike) for group, alike in groups.items() if len(alike) >= FEWEST_TIMED})

    def correct(self, product: str, kernel: str, predicted_us: float, bound: str, model: str) -> Correction | None:
        """The correction of a model's prediction; None: no timed kernel applies."""
        timed = self.by_kernel.get((product, kernel))
        if timed is not None:
            return Correction(timed.us / predicted_us, 1, timed.date)
        means = (self.by_group.get(group) for group in _groups(product, bound, model))
        return next((mean for mean in means if mean is not None), None)


def _groups(product: str, bound: str, model: str) -> tuple[_Group, _Group, _Group]:
    """The groups of a kernel, the nearest first."""
    return _Group(model, product=product), _Group(model, bound=bound), _Group(model)


def _mean(alike: list[TimedGemm]) -> Correction:
    """The geometric mean of measured to predicted times."""
    mean = sum(log(each.us / each.predicted_us) for each in alike) / len(alike)
    return Correction(exp(mean), len(alike), max(each.date for each in alike))
