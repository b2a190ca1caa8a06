"""Cards of the user's own: `tilescope bench --save-card NAME` writes what it measured, and NAME is a card from then on.

    bench loads stores --save-card my-h200     →  <configuration folder>/tilescope/cards/my-h200.json
    plan 128x64 bf16 --card my-h200            ←  reads it: SMs, clock, L2, memory and TMA rates as measured there

The file holds no rates of tensor cores. They are those of the card in the table that the driver's name means, if there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tilescope.arch import ARCH
from tilescope.card.card import MEASURED_BY_BENCH, Card, card_called
from tilescope.card.tma_rates import ROW_BYTES, GbPerS, TmaRates
from tilescope.errors import DeviceError, PlainData
from tilescope.rule import rule

SAVED_CARD = rule(
    "saved-card",
    "A card of the user's own has a name that the table does not have, and a file that `bench --save-card` wrote.",
    argument="card",
    found="{path}: {problem}",
    limit="a file that `tilescope bench --save-card` wrote",
    fix="Measure the card again, or remove the file.",
    source="tilescope bench --save-card",
    passing='ts.card.free_path("my-h200")',
    failing='ts.card.free_path("H200")',
)
CARD_NAME_SPELLING = SAVED_CARD.worded(
    argument="save_card",
    found="card name {name!r}",
    limit="a name has 1 to 61 letters, digits, spaces, dots and dashes, and begins with a letter or a digit",
    fix="Use my-h200, for example.",
)
CARD_NAME_TAKEN = CARD_NAME_SPELLING.worded(limit="{known} is a card of the table, which a saved one cannot replace")
_SAVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,60}")


def cards_folder() -> Path:
    """The folder of the user's own cards; DeviceError without platformdirs, which knows it."""
    try:
        from platformdirs import user_config_path
    except ModuleNotFoundError as error:  # in a checkout that was not installed
        raise DeviceError(f"A card of your own needs the package {error.name}: pip install platformdirs.") from error
    return user_config_path("tilescope") / "cards"


def saved_names() -> tuple[str, ...]:
    """The names of the user's own cards."""
    try:
        return tuple(sorted(path.stem for path in cards_folder().glob("*.json")))
    except DeviceError:
        return ()


def saved_card(name: str) -> Card | None:
    """The card that `save_card` wrote under this name, or None."""
    if not _SAVED_NAME.fullmatch(name) or name not in saved_names():
        return None
    path = cards_folder() / f"{name}.json"
    try:
        return _card_of_cells(name, json.loads(path.read_text("utf-8")))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SAVED_CARD.error(path=str(path), problem=f"{type(error).__name__} {error}") from error


def _card_of_cells(name: str, cells: PlainData) -> Card:
    """The card that a file describes; its tensor cores are those of the card in the table that it is one of."""
    rates = cells["tma"]
    tma = TmaRates(
        sms=rates["sms"],
        loads=MappingProxyType({promotion: _by_number(row) for promotion, row in rates["loads"].items()}),
        stores=_by_number(rates["stores"]),
        sm_loads=_by_number(rates["sm_loads"]),
        latency_us=rates["latency_us"],
        issue_ns=MappingProxyType(rates["issue_ns"]),
    )
    known = card_called(cells["card"])
    tflop_per_s: Mapping[str, float] = MappingProxyType({})
    measured = MEASURED_BY_BENCH
    if known is not None:
        tflop_per_s = known.tflop_per_s
        measured |= known.measured
    return Card(
        name=name,
        arch=ARCH[cells["arch"]],
        sms=cells["sms"],
        clock_mhz=cells["clock_mhz"],
        l2_bytes=cells["l2_bytes"],
        memory_gb_per_s=cells["memory_gb_per_s"],
        tflop_per_s=tflop_per_s,
        tma=tma,
        measured=measured,
        source=cells["source"],
    )


def free_path(name: str) -> Path:
    """The file for a card of the user's own; a name that a row of the table has is refused."""
    if not _SAVED_NAME.fullmatch(name):
        raise CARD_NAME_SPELLING.error(name=name)
    known = card_called(name)
    if known is not None:
        raise CARD_NAME_TAKEN.error(name=name, known=known.name)
    return cards_folder() / f"{name}.json"


def save_card(name: str, cells: Mapping[str, object]) -> Path:
    """Write a measured card, and say where."""
    path = free_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells, indent=1) + "\n", "utf-8")
    return path


def _by_number(table: Mapping[str, int]) -> GbPerS:
    return MappingProxyType({width: int(table[str(width)]) for width in ROW_BYTES})
