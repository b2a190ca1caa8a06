"""One table of cards: how many SMs, how fast its memory, its TMA and its tensor cores are, and what the numbers rest on.

    cell                 H200, measured                                          other cards, from their datasheets
    memory_gb_per_s      4559, the fastest loads by TMA                          the memory's own peak
    tflop_per_s          790 for 16-bit floats, held for seconds                 dense peak, sums in 32 bits
    tma                  GB/s by row bytes, L2 promotion, bytes in flight;       None: nobody measured it
                         one SM's GB/s; nanoseconds to issue a copy

`tilescope bench --save-card NAME` adds a card of the user's own, measured there, which is used where NAME is asked for.

A cell is None if neither a measurement nor a datasheet fills it; plans then say what they could not weigh.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tilescope.arch import ARCH, Arch, Basis
from tilescope.arithmetic import rounded_up
from tilescope.data_type import DataType
from tilescope.errors import DeviceError, PlainData, RuleError, check_fields, unknown_name
from tilescope.rule import rule
from tilescope.value import Row, Value

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

CardName = Literal["H200", "H100 SXM", "H100 PCIe", "A100", "L40S", "RTX 4090", "RTX 5090", "B200"]
GbPerS = Mapping[int, int]

SECTOR_BYTES = 32  # the least that global memory delivers
# operations of one SM's tensor cores: wgmma.m64n256k16 takes 128 cycles, as benchmarks/wgmma_rates.py found on an H200
_SM_FLOP_PER_CYCLE = {("sm_90", "float16"): 4096, ("sm_90", "bfloat16"): 4096}
REQUEST_BYTES = 128  # the most that one request takes of a row: a cache line
ROW_BYTES = (128, 64, 32, 16)  # widths of the box rows that were measured
_SHARPNESS = 3  # how sharply a rate bends from one bound to the next: recorded loads follow the cube best
_FULL_SHARE = 0.995  # a load that reaches this share of memory's rate is bound by memory alone
_TIMED_ROWS = 64  # the box whose latency was measured: 64 rows of 128 bytes
_TIMED_BYTES = 64 * 128


def sector_share(request_bytes: int) -> float:
    """The part of the delivered bytes that a request of contiguous bytes uses.

    >>> sector_share(16), sector_share(64), sector_share(48)
    (0.5, 1.0, 0.75)
    """
    return request_bytes / rounded_up(request_bytes, SECTOR_BYTES)


def _by_width(rates: Mapping[int, int]) -> GbPerS:
    """Rates by widths that are numbers."""
    return MappingProxyType({int(width): rate for width, rate in rates.items()})


@dataclass(frozen=True, slots=True, eq=False)
class TmaRates(Value):
    """How fast TMA moves tiles on a card, in GB/s of the whole card, from or to its memory.

    Three rates bound a load. It reaches (a^-3 + b^-3 + c^-3)^(-1/3): a little less than the slowest of them.

        memory    what boxes with rows of this width reach when nothing else is in the way (`loads`)
        latency   the bytes in flight, divided by the time of one copy: `latency_us` for a box of 64 rows of 128 bytes, one
                  cycle for every further row, and the time a tile takes in one SM's engine, divided by the tiles in flight
        issuing   a thread issues a copy every `issue_ns`

    >>> h200 = Card.named("H200").tma
    >>> h200.load(128), h200.load(16), h200.store(16)
    (4559.0, 2400.0, 886.0)
    >>> round(h200.load(128, in_flight_bytes=8192)), h200.one_sm(64, 1 << 20)
    (1427, 124.0)
    >>> round(h200.load(64, in_flight_bytes=98304, tile_bytes=24576, box_rows=8, boxes=48))  # 48 copies by one thread
    1452
    """

    sms: int  # that loaded or stored while the rates were measured
    loads: Mapping[str, GbPerS] = field(hash=False)  # by L2 promotion and bytes of a box row, bytes enough in flight
    stores: GbPerS = field(hash=False)  # by bytes of a box row; promotion and height made no difference
    sm_loads: GbPerS = field(hash=False)  # one SM alone, from memory or L2, by bytes of a box row
    latency_us: float  # from issue to arrival of a box of 64 rows of 128 bytes
    issue_ns: Mapping[str, int] = field(hash=False)  # between two copies

    def __post_init__(self) -> None:
        """JSON has texts for the widths by which rates are looked up."""
        loads = {promotion: _by_width(rates) for promotion, rates in self.loads.items()}
        object.__setattr__(self, "loads", MappingProxyType(loads))
        object.__setattr__(self, "stores", _by_width(self.stores))
        object.__setattr__(self, "sm_loads", _by_width(self.sm_loads))

    def load(
        self,
        row_bytes: int,
        l2_promotion: str = "128B",
        in_flight_bytes: int | None = None,
        *,
        tile_bytes: int = 8192,
        box_rows: int = 64,
        boxes: int = 1,
        issuers: int = 1,
    ) -> float:
        """GB/s at which all SMs together load tiles in such boxes.

        `in_flight_bytes` (None: enough) and `issuers`, the threads that issue copies, are those of one SM.
        """
        width = _measured_width(row_bytes)
        memory = float(self.loads[l2_promotion][width])
        bounds = [memory, self.sms * issuers * tile_bytes / (boxes * self.issue_ns["one thread"])]
        if in_flight_bytes is not None:
            tiles = max(1.0, in_flight_bytes / tile_bytes)
            narrowest = min(ROW_BYTES)  # such rows pass one SM's engine at one a cycle
            rows_ns = (box_rows - _TIMED_ROWS) * narrowest / self.sm_loads[narrowest]
            engine_ns = tile_bytes / tiles / self.sm_loads[width] - _TIMED_BYTES / self.sm_loads[128]
            bounds.append(self.sms * in_flight_bytes / (1e3 * self.latency_us + rows_ns + engine_ns))
        rate = sum(bound**-_SHARPNESS for bound in bounds) ** (-1 / _SHARPNESS)
        return memory if rate > _FULL_SHARE * memory else rate

    def store(self, row_bytes: int) -> float:
        """GB/s at which all SMs together store boxes with such rows."""
        return float(self.stores[_measured_width(row_bytes)])

    def one_sm(self, row_bytes: int, in_flight_bytes: int) -> float:
        """GB/s that one SM loads: at most one box row a cycle, and the bytes in flight divided by the time of a copy."""
        return min(float(self.sm_loads[_measured_width(row_bytes)]), in_flight_bytes / self.latency_us / 1e3)

    def fastest(self, direction: str) -> int:
        """The fastest loads, or stores, that were measured."""
        tables = self.loads.values() if direction == "load" else (self.stores,)
        return max(rate for table in tables for rate in table.values())

    @property
    def enough_in_flight_bytes(self) -> int:
        """Bytes in flight with which one SM reaches its own limit.

        >>> Card.named("H200").tma.enough_in_flight_bytes  # 210 GB/s x 0.75 us
        157500
        """
        return round(max(self.sm_loads.values()) * self.latency_us * 1e3)


def _measured_width(row_bytes: int) -> int:
    """The widest of the measured rows that is no wider than this one; the narrowest if all are wider."""
    return max((width for width in ROW_BYTES if width <= row_bytes), default=min(ROW_BYTES))


@dataclass(frozen=True, slots=True, eq=False)
class Card(Row):
    """One card: its architecture, its rates, and what they rest on.

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
    tflop_per_s: Mapping[str, float] = field(repr=False, hash=False)  # dense, by data type, summed in 32 bits
    tma: TmaRates | None = field(repr=False)
    measured: frozenset[str] = field(
        repr=False
    )  # names of cells, and data types of tflop_per_s; the rest is documented
    source: str

    @classmethod
    def named(cls, name: object) -> Card:
        """The row called `name`, however it is spaced and capitalised; H100 is the SXM card.

        A name that the table does not have is looked up among the cards that `tilescope bench --save-card` wrote.

        >>> Card.named("rtx4090").name, Card.named("H100").name, Card.named("NVIDIA GeForce RTX 5090").name
        ('RTX 4090', 'H100 SXM', 'RTX 5090')
        """
        if isinstance(name, Card):
            return name
        row = (card_called(name) or saved_card(name)) if isinstance(name, str) else None
        if row is None:
            raise RuleError([unknown_name("card", "card", name, (*CARD, *saved_names()))])
        return row

    @classmethod
    def of_arch(cls, arch: Arch) -> Card | None:
        """The card that stands for an architecture where none is named; None where no card of it is known.

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
        """What a cell rests on: "measured" or "documented"; None where it is empty. A cell of `tflop_per_s` is its type.

        >>> Card.named("H200").basis("bfloat16"), Card.named("H200").basis("e4m3"), Card.named("L40S").basis("l2_bytes")
        ('measured', 'documented', None)
        """
        filled = getattr(self, cell) if cell in self.__slots__ else self.tflop_per_s.get(cell)
        if filled is None:
            return None
        return "measured" if cell in self.measured else "documented"

    def tflops(self, data_type: DataType) -> float | None:
        """Dense TFLOP/s of the tensor cores for a type; a measured rate is one that the card's power allows for seconds."""
        return self.tflop_per_s.get(data_type.name)

    def peak_tflops(self, data_type: DataType) -> float | None:
        """Dense TFLOP/s that no kernel exceeds, however short: every tensor core busy at the highest clock.

        What a datasheet says is that already; of a measured rate, the cycles of its instructions tell.

        >>> bf16 = DataType.named("bf16")
        >>> h200 = Card.named("H200")
        >>> h200.tflops(bf16), round(h200.peak_tflops(bf16))  # 132 SMs x 4096 operations x 1.98 GHz
        (790, 1071)
        """
        in_a_cycle = _SM_FLOP_PER_CYCLE.get((self.arch.name, data_type.name))
        if in_a_cycle is None or self.clock_mhz is None or self.basis(data_type.name) != "measured":
            return self.tflops(data_type)
        return self.sms * in_a_cycle * self.clock_mhz / 1e6

    @property
    def smem_gb_per_s(self) -> float | None:
        """What one SM's shared memory delivers at its highest clock: 32 banks of 4 bytes a cycle."""
        return None if self.clock_mhz is None else 128 * self.clock_mhz / 1e3


def card_called(name: str) -> Card | None:
    """The card of the table that people mean by a name, or None.

    >>> card_called("h100-pcie").name, card_called("sm_90")
    ('H100 PCIe', None)
    """
    return _BY_PLAIN_NAME.get(re.sub(r"nvidia|geforce|tesla|[\s_-]", "", name.casefold()))


def _by_row_bytes(*gb_per_s: int) -> GbPerS:
    """Rates of boxes with rows of 128, 64, 32 and 16 bytes."""
    return MappingProxyType(dict(zip(ROW_BYTES, gb_per_s, strict=True)))


# Under driver 580.159.04: 64 x 64 fp16 tiles; loads by 3 blocks on an SM with 8 stages each, stores of 512 MiB. The rate of
# rows of 16 bytes varies with the tile's shape: 2400 is the middle value of 139 tiles, of which 64 x 64 reached 2554.
_H200_TMA = TmaRates(
    sms=132,
    loads=MappingProxyType(
        {
            "none": _by_row_bytes(4552, 4042, 3480, 2461),
            "128B": _by_row_bytes(4559, 4519, 3970, 2400),
            "256B": _by_row_bytes(4231, 4036, 3467, 2385),
        }
    ),
    stores=_by_row_bytes(4190, 4319, 3060, 886),
    sm_loads=_by_row_bytes(210, 124, 62, 31),
    latency_us=0.75,
    issue_ns=MappingProxyType({"one thread": 46, "one thread that waits for each": 93, "four warps": 14}),
)

_TYPES_OF_RATE = {  # the data types that a datasheet's rate is for
    "tf32": ("tfloat32", "tfloat32_ftz"),
    "half": ("float16", "bfloat16"),
    "fp8": ("e4m3", "e5m2"),
    "fp6": ("e2m3", "e3m2", "16u6_align16b"),
    "fp4": ("e2m1", "16u4_align8b", "16u4_align16b"),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4"),
    "b1": ("b1",),
}


def _tflops(**rates: float) -> Mapping[str, float]:
    return MappingProxyType({name: rate for kind, rate in rates.items() for name in _TYPES_OF_RATE[kind]})


_NONE: frozenset[str] = frozenset()
_MEASURED = frozenset({"name", "arch", "sms", "clock_mhz", "l2_bytes", "memory_gb_per_s", "tma"})

# Of an architecture's cards, the first stands for it. Peaks with sparsity are halved; where a datasheet tells them apart,
# TFLOP/s are those with 32-bit sums.
_CARDS = (
    Card(
        name="H200",
        arch=ARCH["sm_90"],
        sms=132,
        clock_mhz=1980,
        l2_bytes=60 << 20,
        memory_gb_per_s=4559,
        tflop_per_s=_tflops(half=790, tf32=494.5, fp8=1979, int8=1979),
        tma=_H200_TMA,
        measured=_MEASURED | {"float16", "bfloat16"},
        source="measured under driver 580.159.04, cuBLAS reaching 0.87 of the 790 TFLOP/s; other types: H200 datasheet",
    ),
    Card(
        name="H100 SXM",
        arch=ARCH["sm_90"],
        sms=132,
        clock_mhz=1980,
        l2_bytes=50 << 20,
        memory_gb_per_s=3350,
        tflop_per_s=_tflops(half=989.5, tf32=494.5, fp8=1979, int8=1979),
        tma=None,
        measured=_NONE,
        source="H100 datasheet; clock and L2: H100 architecture white paper",
    ),
    Card(
        name="H100 PCIe",
        arch=ARCH["sm_90"],
        sms=114,
        clock_mhz=1755,
        l2_bytes=50 << 20,
        memory_gb_per_s=2000,
        tflop_per_s=_tflops(half=756.5, tf32=378, fp8=1513, int8=1513),
        tma=None,
        measured=_NONE,
        source="H100 datasheet; clock and L2: H100 architecture white paper",
    ),
    Card(
        name="A100",
        arch=ARCH["sm_80"],
        sms=108,
        clock_mhz=1410,
        l2_bytes=40 << 20,
        memory_gb_per_s=2039,
        tflop_per_s=_tflops(half=312, tf32=156, int8=624, int4=1248, b1=4992),
        tma=None,
        measured=_NONE,
        source="A100 architecture white paper and datasheet, SXM with 80 GB",
    ),
    Card(
        name="L40S",
        arch=ARCH["sm_89"],
        sms=142,
        clock_mhz=2520,
        l2_bytes=None,
        memory_gb_per_s=864,
        tflop_per_s=_tflops(half=362, tf32=183, fp8=733, int8=733),
        tma=None,
        measured=_NONE,
        source="L40S datasheet",
    ),
    Card(
        name="RTX 4090",
        arch=ARCH["sm_89"],
        sms=128,
        clock_mhz=2520,
        l2_bytes=72 << 20,
        memory_gb_per_s=1008,
        tflop_per_s=_tflops(half=165.2, tf32=82.6, fp8=330.3, int8=660.6, int4=1321.2),
        tma=None,
        measured=_NONE,
        source="Ada architecture white paper",
    ),
    Card(
        name="RTX 5090",
        arch=ARCH["sm_120"],
        sms=170,
        clock_mhz=2407,
        l2_bytes=96 << 20,
        memory_gb_per_s=1792,
        tflop_per_s=_tflops(half=209.5, tf32=104.8, fp8=419, fp4=1676, int8=838),
        tma=None,
        measured=_NONE,
        source="RTX Blackwell architecture white paper",
    ),
    Card(
        name="B200",
        arch=ARCH["sm_100"],
        sms=148,
        clock_mhz=None,
        l2_bytes=None,
        memory_gb_per_s=8000,
        tflop_per_s=_tflops(half=2250, fp8=4500, fp6=4500, fp4=9000, int8=4500),
        tma=None,
        measured=_NONE,
        source="HGX B200 datasheet, an eighth of eight cards; NVIDIA's pages differ on TF32",
    ),
)
CARD: dict[str, Card] = {row.name: row for row in _CARDS}
_BY_PLAIN_NAME = {row.name.replace(" ", "").casefold(): row for row in CARD.values()} | {
    "h100": CARD["H100 SXM"],
    "h200sxm": CARD["H200"],
    "a100sxm": CARD["A100"],
    "h100sxm5": CARD["H100 SXM"],
}


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
    return Card(
        name=name,
        arch=ARCH[cells["arch"]],
        sms=cells["sms"],
        clock_mhz=cells["clock_mhz"],
        l2_bytes=cells["l2_bytes"],
        memory_gb_per_s=cells["memory_gb_per_s"],
        tflop_per_s=MappingProxyType({} if known is None else known.tflop_per_s),
        tma=tma,
        measured=_MEASURED if known is None else _MEASURED | known.measured,
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
