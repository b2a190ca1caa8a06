"""Cards: how many SMs they have, and how fast their memory, TMA and tensor cores are.

`card_table` has the facts, `card` the rows, `tma_rates` what boxes and bytes in flight make of a card's TMA; `saved` reads and
`saving` writes the files of cards that users measured themselves.
"""

from tilescope.card.card import CARD, Card, CardName, card_called, saved_card
from tilescope.card.saving import add_timed_gemms, describe_card, free_path, save_card
from tilescope.card.tma_rates import REQUEST_BYTES, ROW_BYTES, sector_share

__all__ = [
    "CARD",
    "REQUEST_BYTES",
    "ROW_BYTES",
    "Card",
    "CardName",
    "add_timed_gemms",
    "card_called",
    "describe_card",
    "free_path",
    "save_card",
    "saved_card",
    "sector_share",
]
