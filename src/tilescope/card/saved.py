"""Cards of the user's own: `tilescope bench --save-card NAME` writes what it measured, and NAME is a card from then on.

    bench loads stores --save-card my-h200     →  <configuration folder>/tilescope/cards/my-h200.json
    plan 128x64 bf16 --card my-h200            ←  reads it: SMs, clock, L2, memory and TMA rates as measured there

The file holds no rates of tensor cores. They are those of the card in the table that the driver's name means, if there is one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tilescope.errors import DeviceError, PlainData
from tilescope.rule import rule

SAVED_CARD = rule(
    "saved-card",
    "A saved card has a name that is not in the table, and a file that `bench --save-card` wrote.",
    argument="card",
    found="{path}: {problem}",
    limit="a file that `tilescope bench --save-card` wrote",
    fix="Measure the card again, or remove the file.",
    source="tilescope bench --save-card",
    passing='ts.card.free_path("my-h200")',
    failing='ts.card.free_path("H200")',
)
SAVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,60}")


def cards_folder() -> Path:
    """The folder of the user's own cards; DeviceError without platformdirs, which determines it, or a home directory."""
    try:
        from platformdirs import user_config_path
    except ModuleNotFoundError as error:  # in a checkout that was not installed
        raise DeviceError(f"A card of your own needs the package {error.name}: pip install platformdirs.") from error
    try:
        return user_config_path("tilescope") / "cards"
    except RuntimeError as error:
        raise DeviceError("A card of your own needs a home directory, and this user has none: set HOME.") from error


def saved_names() -> tuple[str, ...]:
    """The names of the user's own cards."""
    try:
        return tuple(sorted(path.stem for path in cards_folder().glob("*.json")))
    except DeviceError:
        return ()


def saved_path(name: str) -> Path:
    """The file of a card of the user's own."""
    return cards_folder() / f"{name}.json"


def saved_cells(name: str) -> PlainData | None:
    """The cells that `save_card` wrote under this name, or None; ValueError for a file that is not JSON."""
    if not SAVED_NAME.fullmatch(name) or name not in saved_names():
        return None
    cells: PlainData = json.loads(saved_path(name).read_text("utf-8"))
    return cells
