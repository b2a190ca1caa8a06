"""Cards: how many SMs, how fast its memory, its TMA and its tensor cores are, and what the numbers rest on.

    cell                 H200, measured                                          other cards, from their datasheets
    memory_gb_per_s      4559, the fastest loads by TMA                          the memory's own peak
    tflop_per_s          790 for 16-bit floats, held for seconds                 dense peak, sums in 32 bits
    tma                  GB/s by row bytes, L2 promotion, bytes in flight;       None: nobody measured it
                         one SM's GB/s; nanoseconds to issue a copy

    >>> h200 = CARD["H200"]
    >>> round(1000 * h200.tflop_per_s["bfloat16"] / h200.memory_gb_per_s)  # operations in the time of one byte from memory
    173

A cell is None if neither a measurement nor a datasheet fills it; plans then report which effects they could not rank
by.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from tilescope.arch import ARCH, Arch, Basis
from tilescope.card.card_table import MEASURED_BY_BENCH, read_card_table
from tilescope.card.saved import SAVED_CARD, saved_cells, saved_names, saved_path
from tilescope.card.timed_gemms import TimedGemm, TimedGemms
from tilescope.card.tma_rates import ROW_BYTES, GbPerS, TmaRates
from tilescope.data_type import DataType
from tilescope.errors import PlainData, RuleError, check_fields, unknown_name
from tilescope.value import Row

CardName = Literal[
    "H200", "H100 SXM", "H100 PCIe", "A100", "L40S", "RTX 4090", "RTX 5090", "RTX PRO 6000", "B200", "B300"
]

# operations of one SM's tensor cores: wgmma.m64n256k16 takes 128 cycles, as benchmarks/wgmma_rates.py found on an H200
_SM_FLOP_PER_CYCLE = {
    ("sm_90", "float16"): 4096,
    ("sm_90", "bfloat16"): 4096,
    ("sm_100", "bfloat16"): 8192,  # m128 n256 k16 of tcgen05 in 128 cycles
    ("sm_103", "bfloat16"): 8192,
}


@dataclass(frozen=True, slots=True, eq=False)
class Card(Row):
    """One card: its architecture, its rates, and whether each was measured.

    >>> h200 = Card.named("H200")
    >>> h200.arch.name, h200.sms, h200.memory_gb_per_s, h200.basis("memory_gb_per_s")
    ('sm_90', 132, 4559, 'measured')
    >>> b200 = Card.named("nvidia b200")
    >>> b200.clock_mhz is None, b200.tma is None, b200.basis("sms")
    (True, True, 'documented')
    """

    name: str
    arch: Arch
    sms: int
    clock_mhz: int | None  # the highest
    l2_bytes: int | None
    memory_gb_per_s: int
    tflop_per_s: Mapping[str, float] = field(
        repr=False, hash=False
    )  # dense, by type or scaled format, summed in 32 bits
    tma: TmaRates | None = field(repr=False)
    measured: frozenset[str] = field(repr=False)  # names of cells, and types of tflop_per_s; the rest is documented
    source: str
    timed_gemms: TimedGemms | None = field(
        default=None, repr=False
    )  # of the user's own card, if `bench gemm --tune` kept some

    @classmethod
    def named(cls, name: object) -> Card:
        """The row called `name`, ignoring spaces and case; H100 is the SXM card.

        A name that the table does not have is looked up among the cards that `tilescope bench --save-card` wrote.

        >>> Card.named("rtx4090").name, Card.named("H100").name, Card.named("NVIDIA GeForce RTX 5090").name
        ('RTX 4090', 'H100 SXM', 'RTX 5090')
        """
        if isinstance(name, Card):
            return name
        row = None
        if isinstance(name, str):
            row = card_called(name) or saved_card(name)
        if row is None:
            raise RuleError([unknown_name("card", "card", name, (*CARD, *saved_names()))])
        return row

    @classmethod
    def of_arch(cls, arch: Arch) -> Card | None:
        """The default card of an architecture; None if no card of it is known.

        >>> Card.of_arch(Arch.named("sm_90")).name, Card.of_arch(Arch.named("sm_86"))
        ('H200', None)
        """
        return next((row for row in CARD.values() if row.arch is arch), None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Card:
        """The row that `to_dict` described."""
        check_fields("card", data, data, ["name"])
        return cls.named(data["name"])

    def basis(self, cell: str) -> Basis | None:
        """The basis of a cell: "measured" or "documented"; None if it is empty. A cell of `tflop_per_s` is named by its type.

        >>> Card.named("H200").basis("bfloat16"), Card.named("H200").basis("e4m3"), Card.named("L40S").basis("l2_bytes")
        ('measured', 'documented', None)
        """
        filled = getattr(self, cell) if cell in self.__slots__ else self.tflop_per_s.get(cell)
        if filled is None:
            return None
        return "measured" if cell in self.measured else "documented"

    def tflops(self, data_type: DataType, scales: str = "") -> float | None:
        """Dense TFLOP/s of the tensor cores for a type; a measured rate is one that the card sustains within its power limit.

        `scales` names the format of scale factors, which some cards multiply at another rate.

        >>> e4m3 = DataType.named("e4m3")
        >>> Card.named("RTX 5090").tflops(e4m3), Card.named("RTX 5090").tflops(e4m3, "mxfp8")
        (419, 838)
        """
        return self.tflop_per_s.get(scales, self.tflop_per_s.get(data_type.name))

    def peak_tflops(self, data_type: DataType, scales: str = "") -> float | None:
        """The dense peak in TFLOP/s: every tensor core busy at the highest clock.

        A datasheet's rate is that already; for a measured rate, it follows from the cycles of its instructions.

        >>> bf16 = DataType.named("bf16")
        >>> h200 = Card.named("H200")
        >>> h200.tflops(bf16), round(h200.peak_tflops(bf16))  # 132 SMs x 4096 operations x 1.98 GHz
        (790, 1071)
        """
        in_a_cycle = _SM_FLOP_PER_CYCLE.get((self.arch.name, data_type.name))
        if in_a_cycle is None or self.clock_mhz is None or self.basis(data_type.name) != "measured":
            return self.tflops(data_type, scales)
        return self.sms * in_a_cycle * self.clock_mhz / 1e6

    @property
    def smem_gb_per_s(self) -> float | None:
        """Shared-memory bandwidth of one SM at its highest clock: 32 banks of 4 bytes per cycle.

        A clock that no document has follows from the TFLOP/s of bf16, if it is known what an SM multiplies in a cycle.

        >>> round(Card.named("B200").smem_gb_per_s)  # 2250 TFLOP/s = 148 SMs x 8192 operations x 1.856 GHz
        238
        """
        clock_mhz: float | None = self.clock_mhz
        bf16 = DataType.named("bfloat16")
        in_a_cycle = _SM_FLOP_PER_CYCLE.get((self.arch.name, bf16.name))
        tflops = self.tflops(bf16)
        if clock_mhz is None and in_a_cycle is not None and tflops is not None:
            clock_mhz = tflops * 1e6 / (self.sms * in_a_cycle)
        return None if clock_mhz is None else 128 * clock_mhz / 1e3


def card_called(name: str) -> Card | None:
    """The card of the table that people mean by a name, or None.

    >>> card_called("h100-pcie").name, card_called("sm_90")
    ('H100 PCIe', None)
    """
    return _BY_PLAIN_NAME.get(re.sub(r"nvidia|geforce|tesla|[\s_-]", "", name.casefold()))


CARD: dict[str, Card] = {
    facts.name: Card(**(facts._asdict() | {"arch": ARCH[facts.arch]})) for facts in read_card_table()
}
_BY_PLAIN_NAME = {row.name.replace(" ", "").casefold(): row for row in CARD.values()} | {
    "h100": CARD["H100 SXM"],
    "h200sxm": CARD["H200"],
    "a100sxm": CARD["A100"],
    "h100sxm5": CARD["H100 SXM"],
    "b300sxm6ac": CARD["B300"],
    "rtxpro6000blackwell": CARD["RTX PRO 6000"],
    "rtxpro6000blackwellworkstationedition": CARD["RTX PRO 6000"],
}


def saved_card(name: str) -> Card | None:
    """The card that `save_card` wrote under this name, or None."""
    try:
        cells = saved_cells(name)
        return None if cells is None else _card_of_cells(name, cells)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SAVED_CARD.error(path=str(saved_path(name)), problem=f"{type(error).__name__} {error}") from error


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
    listed = card_called(cells["card"])
    tflop_per_s: Mapping[str, float] = MappingProxyType({})
    measured = MEASURED_BY_BENCH
    if listed is not None:
        tflop_per_s = listed.tflop_per_s
        measured |= listed.measured
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
        timed_gemms=_timed_gemms(cells.get("gemms", [])),
    )


def _timed_gemms(rows: list[dict[str, object]]) -> TimedGemms | None:
    return TimedGemms.of(map(TimedGemm.from_dict, rows)) if rows else None


def _by_number(table: Mapping[str, int]) -> GbPerS:
    return MappingProxyType({width: int(table[str(width)]) for width in ROW_BYTES})
