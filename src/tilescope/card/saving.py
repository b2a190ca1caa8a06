"""Writing cards of the user's own: what `bench --save-card` measured, or the rates of a card in the table, and times of kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilescope.card.card import Card, card_called
from tilescope.card.saved import SAVED_CARD, SAVED_NAME, saved_cells, saved_path
from tilescope.card.timed_gemms import TimedGemm

CARD_NAME_SPELLING = SAVED_CARD.worded(
    argument="save_card",
    found="card name {name!r}",
    limit="a name has 1 to 61 letters, digits, spaces, dots and dashes, and begins with a letter or a digit",
    fix="Use my-h200, for example.",
)
CARD_NAME_TAKEN = CARD_NAME_SPELLING.worded(limit="{known} is a card of the table, which a saved one cannot replace")


def free_path(name: str) -> Path:
    """The file for a card of the user's own; a name that a row of the table has is refused."""
    if not SAVED_NAME.fullmatch(name):
        raise CARD_NAME_SPELLING.error(name=name)
    listed = card_called(name)
    if listed is not None:
        raise CARD_NAME_TAKEN.error(name=name, known=listed.name)
    return saved_path(name)


def save_card(name: str, cells: Mapping[str, object]) -> Path:
    """Write a measured card, and report the file."""
    path = free_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(cells, indent=1) + "\n", "utf-8")
    return path


def describe_card(name: str, known: Card, driver_name: str) -> Path:
    """Write a user's card with the rates of the table's card whose name the driver reports."""
    tma = known.tma
    assert tma is not None
    cells = {
        "card": driver_name,
        "arch": known.arch.name,
        "sms": known.sms,
        "clock_mhz": known.clock_mhz,
        "l2_bytes": known.l2_bytes,
        "memory_gb_per_s": known.memory_gb_per_s,
        "tma": {
            "sms": tma.sms,
            "loads": {promotion: dict(row) for promotion, row in tma.loads.items()},
            "stores": dict(tma.stores),
            "sm_loads": dict(tma.sm_loads),
            "latency_us": tma.latency_us,
            "issue_ns": dict(tma.issue_ns),
        },
        "source": f"rates of the {known.name} in tilescope's table",
    }
    return save_card(name, cells)


def add_timed_gemms(name: str, timed: Iterable[TimedGemm]) -> Path:
    """Keep times of kernels in the user's own card; a kernel that was timed before gets its new time."""
    cells = dict(saved_cells(name) or {})
    rows = [TimedGemm.from_dict(row) for row in cells.get("gemms", [])]
    latest = {(row.product, row.kernel): row for row in (*rows, *timed)}
    cells["gemms"] = [row._asdict() for row in latest.values()]
    return save_card(name, cells)
