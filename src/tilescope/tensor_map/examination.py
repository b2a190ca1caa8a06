"""From the arguments of a map to a record, and to all results of the rules.

    arguments ── readers ──▶ record ── checks ──▶ violations
                    │                     ▲
                    └── what cannot be read is a violation too; checks that read it are not asked

Facts that follow from the options are computed once for all maps with the same options: their rows, and the checks that
apply to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from tilescope.arch import ARCH, Arch
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError, Violation, unknown_name
from tilescope.reading import integer, integers, known_name
from tilescope.rule import rule
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.checking import MAPS, TMA_ARCHITECTURES, Check
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL, Interleave, L2Promotion, OobFill
from tilescope.tensor_map.record import (
    SIX_BIT_TYPE,
    WIDE_MODES,
    MapOptions,
    MapRecord,
    MapSubject,
    TiledRecord,
    WideMode,
)
from tilescope.tensor_map.rules import MAP_CHECKS
from tilescope.tensor_map.samples import CUDA_H, MATRIX

Reader = Callable[[str, Any], Any]
Given = Mapping[str, Any]  # arguments by name, as somebody passed them

ARGUMENT_LENGTH = rule(
    "argument-length",
    "Every sequence has one entry for each dimension; strides_bytes one less, corners two less.",
    argument="{name}",
    found="{name} has {entries:entry|entries} for rank {rank}",
    limit="{wanted:entry|entries}: {which}",
    fix="Use {wanted:entry|entries}, innermost first.",
    source=CUDA_H,
    basis="measured",
    subjects=MAPS,
    architectures=TMA_ARCHITECTURES,
    passing=MATRIX | {"strides_bytes": (8192,)},
    failing=MATRIX | {"strides_bytes": (2, 8192)},
)
_STRIDE_OF_DIM_0 = ARGUMENT_LENGTH.worded(fix="strides_bytes leaves out dim 0: drop the first entry.")
# How many entries fewer than dimensions a sequence has …
_FEWER = {"strides_bytes": 1, "box": 0, "element_strides": 0, "lower_corner": 2, "upper_corner": 2}
# … and which dimensions have one.
_WHICH = {
    0: "one for each dimension",
    1: "one for each dimension but the innermost",
    2: "one for each of W, H, D",
}
# Stand-ins for arguments that could not be read; no check uses them.
_STAND_INS: Mapping[str, object] = {
    "data_type": DATA_TYPE["uint8"],
    "interleave": INTERLEAVE["none"],
    "swizzle": SWIZZLE["none"],
    "l2_promotion": L2_PROMOTION["none"],
    "oob_fill": OOB_FILL["zero"],
    "arch": ARCH["sm_90"],
    "dims": (),
    "strides_bytes": (),
    "element_strides": (),
    "box": (),
    "lower_corner": (),
    "upper_corner": (),
    "address": 0,
    "lower_width": 0,
    "upper_width": 0,
    "channels_per_pixel": 1,
    "pixels_per_column": 1,
    "mode": "W",
}
_OPTIONS = ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "arch")
_options_in = itemgetter(*_OPTIONS)


def _moved_type(_: str, value: object) -> DataType:
    """The driver's type as which TMA moves a type."""
    return DataType.named(value).tma


def _hardware_swizzle(argument: str, value: object) -> Swizzle:
    """A swizzle of TMA's table, not a software swizzle."""
    row = Swizzle.named(value)
    if row.feature is None:
        raise RuleError([unknown_name("swizzle of TMA", argument, row.name, SWIZZLE)])
    return row


def _element_strides(argument: str, value: object) -> tuple[int, ...] | None:
    """Traversal strides; None where none were given."""
    return None if value is None else integers(argument, value)


def _wide_mode(argument: str, value: object) -> WideMode:
    return known_name(argument, value, WIDE_MODES, "im2col-wide mode")


# The readers of the arguments that all kinds of map have, and of those of each kind; in the order of a report.
_COMMON_READERS: Mapping[str, Reader] = {
    "data_type": _moved_type,
    "dims": integers,
    "strides_bytes": integers,
    "element_strides": _element_strides,
    "interleave": lambda _, value: Interleave.named(value),
    "swizzle": _hardware_swizzle,
    "l2_promotion": lambda _, value: L2Promotion.named(value),
    "oob_fill": lambda _, value: OobFill.named(value),
    "address": integer,
    "arch": lambda _, value: Arch.named(value),
}
READERS: Mapping[MapSubject, Mapping[str, Reader]] = {
    "tiled": {**_COMMON_READERS, "box": integers},
    "im2col": {
        **_COMMON_READERS,
        "lower_corner": integers,
        "upper_corner": integers,
        "channels_per_pixel": integer,
        "pixels_per_column": integer,
    },
    "wide": {
        **_COMMON_READERS,
        "lower_width": integer,
        "upper_width": integer,
        "channels_per_pixel": integer,
        "pixels_per_column": integer,
        "mode": _wide_mode,
    },
}


class Examined(NamedTuple):
    """A map's arguments as they were read, as a record and by name, and every rule that they break."""

    record: MapRecord
    arguments: Mapping[str, Any]
    violations: tuple[Violation, ...]


class _Settled(NamedTuple):
    """What the options of a map decide."""

    rows: Mapping[str, object]  # the options that could be read
    untold: frozenset[str]  # the names of the others, and of what follows from them
    left: Mapping[str, Reader]  # arguments that are still to be read
    fewer: Mapping[str, int]  # the sequences among them: how many entries fewer than dimensions they have
    checks: tuple[Check, ...]  # those that concern the map


def examine(kind: type[MapRecord], given: Given) -> Examined:
    """The arguments of a kind of map, and their mistakes."""
    settled = _settled_by(kind.subject, given)
    violations: list[Violation] = []
    untold: set[str] = set(settled.untold)
    fields: dict[str, Any] = dict(settled.rows)
    for name, read in settled.left.items():
        try:
            fields[name] = read(name, given[name])
        except RuleError as error:
            violations += error.violations
            fields[name] = _STAND_INS[name]
            untold.add(name)
    if fields["element_strides"] is None:
        fields["element_strides"] = (1,) * len(fields["dims"])
    if "dims" not in untold:
        for wrong in _wrong_lengths(fields, settled.fewer, untold):
            violations.append(wrong)
            untold.add(wrong.argument)
    record = kind(**fields)
    checks = settled.checks
    if untold or not record.dims:
        untold |= _without_entries(record, untold)
        untold |= {name for name, sources in record.derived.items() if not untold.isdisjoint(sources)}
        checks = tuple(check for check in checks if untold.isdisjoint(check.reads))
    for check in checks:
        if check.broken(record):
            violations += check.find(record)
    return Examined(record, fields, tuple(violations))


def _wrong_lengths(fields: Given, fewer_entries: Mapping[str, int], untold: set[str]) -> list[Violation]:
    """The sequences that could be read and do not fit the rank."""
    rank = len(fields["dims"])
    wrong = []
    for name, fewer in fewer_entries.items():
        entries = len(fields[name])
        if entries != rank - fewer and (entries or rank > fewer) and name not in untold:
            has_dim_0 = name == "strides_bytes" and entries == rank
            wording = _STRIDE_OF_DIM_0 if has_dim_0 else ARGUMENT_LENGTH
            expected = max(0, rank - fewer)
            wrong.append(wording.violation(name=name, entries=entries, rank=rank, wanted=expected, which=_WHICH[fewer]))
    return wrong


def _without_entries(record: MapRecord, untold: set[str]) -> set[str]:
    """The names of what cannot be known of a record without dims, or with sequences that have no first entry."""
    names = set()
    if "dims" in untold:
        names.add("rank")
    if not record.dims:
        names.add("dims")
    if not record.element_strides:
        names.add("element_strides")
    if isinstance(record, TiledRecord):
        if not record.box:
            names.add("box")
        elif len(record.box) != len(record.element_strides) and max(record.element_strides, default=1) > 1:
            names.add("rows")  # without dims, either may have the wrong length
    return names


def _settled_by(subject: MapSubject, given: Given) -> _Settled:
    written = _options_in(given)
    try:
        return _settle_options(subject, *written)
    except (TypeError, ValueError):  # an option that is no key of a cache
        return _settle_options.__wrapped__(subject, *written)


@lru_cache(maxsize=4096, typed=True)
def _settle_options(subject: MapSubject, *written: object) -> _Settled:
    """What options written like this decide; those that cannot be read stay in `left`, to be refused in their turn."""
    left = dict(READERS[subject])
    rows: dict[str, Any] = {}
    unread = []
    for name, value in zip(_OPTIONS, written, strict=True):
        try:
            rows[name] = left[name](name, value)
        except RuleError:
            unread.append(name)
        else:
            del left[name]
    options = MapOptions(**rows | {name: _STAND_INS[name] for name in unread})
    checks = tuple(check for check in MAP_CHECKS if check.is_about(subject) and check.concerns(options))
    fewer = {name: entries for name, entries in _FEWER.items() if name in left}
    return _Settled(rows=rows, untold=_untold(options, unread), left=left, fewer=fewer, checks=checks)


def _untold(options: MapOptions, unread: list[str]) -> frozenset[str]:
    """The options that could not be read, and what cannot be known without them."""
    names = set(unread)
    is_type_unread = "data_type" in unread
    if is_type_unread or (options.data_type.name == SIX_BIT_TYPE and "arch" in unread):
        names |= {"takes_half_rows", "alignment_bytes"}
    needs_wide_alignment = options.is_padded and not options.takes_half_rows  # for every interleave
    if "interleave" in unread and not needs_wide_alignment:
        names.add("alignment_bytes")
    if "interleave" in unread or (is_type_unread and not options.is_interleaved):
        names.add("step_bits")
    return frozenset(names)
