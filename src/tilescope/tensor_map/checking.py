"""A check of maps: the rule, what it reads of a record, and what it finds there.

    Check(
        BOX_RANGE,
        reads=("box",),                          not asked where one of these could not be read
        broken=lambda a: max(a.box) > 256 …,     quick: it is asked of every map
        find=_extents_outside,                   where it is broken: BOX_RANGE.violation(axis=…, …) for every extent
        concerns=lambda options: …,              settled once for all maps with the same options
    )

Beside the arguments, a check may read what follows from them:

    rank                       known where dims could be read, even if they are empty
    takes_half_rows            without the architecture, unless the type is 16u6_align16b
    alignment_bytes            of addresses and strides: without the interleave, for types that need 32 anyway
    step_bits                  from one index of dim 0 to the next: without the type, if the map is interleaved
    inner_elements, box_bytes, rows, pixels (the rows of an interleaved copy): `derived` of the record says from what
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tilescope.arch import architectures_with
from tilescope.errors import Violation
from tilescope.rule import Rule
from tilescope.tensor_map.record import MapOptions, MapSubject
from tilescope.tensor_map.samples import CUDA_H, H200

MAPS: tuple[MapSubject, ...] = ("tiled", "im2col", "wide")
TMA_ARCHITECTURES = architectures_with("tma")
DRIVER = f"{CUDA_H}; {H200}"  # the documentation of the call, and the driver's behaviour


def _always(_: object) -> bool:
    return True


class Check(NamedTuple):
    """How the maps that break a rule are found."""

    rule: Rule
    reads: tuple[str, ...]
    find: Callable[[Any], Iterable[Violation]]  # the violations of a record that breaks the rule
    broken: Callable[[Any], bool] = _always  # whether a record whose options concern the rule breaks it
    concerns: Callable[[MapOptions], bool] = _always  # whether maps with these options can break it
    only: tuple[MapSubject, ...] | None = None  # of the kinds that the rule applies to; None: all of them

    def is_about(self, subject: MapSubject) -> bool:
        """Whether it applies to maps of this kind."""
        return subject in (self.rule.subjects if self.only is None else self.only)


def nearest(number: int, least: int, most: int) -> int:
    """The number from `least` to `most` that is nearest.

    >>> nearest(300, 1, 256), nearest(-8, 1, 256), nearest(64, 1, 256)
    (256, 1, 64)
    """
    return min(max(number, least), most)
