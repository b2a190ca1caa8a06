"""The rates of each card from datasheets and measurements, as one table of text.

    half, tf32, fp8, …    dense TFLOP/s by type, halved where a datasheet counts sparsity, with 32-bit sums
    -                     neither a datasheet nor a measurement has it

The H200's row is measured but for TFLOP/s of other types than float16 and bfloat16.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tilescope.card.tma_rates import ROW_BYTES, GbPerS, TmaRates

# The first card of an architecture is its default.
_TABLE = """
card          arch    sms  clock_mhz  l2_mib  memory_gb_per_s  half   tf32   fp8     mxfp8  fp6   fp4     int8    int4    b1
H200          sm_90   132  1980       60      4559             790    494.5  1979    -      -     -       1979    -       -
H100 SXM      sm_90   132  1980       50      3350             989.5  494.5  1979    -      -     -       1979    -       -
H100 PCIe     sm_90   114  1755       50      2000             756.5  378    1513    -      -     -       1513    -       -
A100          sm_80   108  1410       40      2039             312    156    -       -      -     -       624     1248    4992
L40S          sm_89   142  2520       -       864              362    183    733     -      -     -       733     -       -
RTX 4090      sm_89   128  2520       72      1008             165.2  82.6   330.3   -      -     -       660.6   1321.2  -
RTX 5090      sm_120  170  2407       96      1792             209.5  104.8  419     838    -     1676    838     -       -
RTX PRO 6000  sm_120  188  2617       128     1792             503.8  251.9  1007.6  -      -     2015.2  1007.6  -       -
B200          sm_100  148  -          -       8000             2250   1125   4500    -      4500  9000    4500    -       -
B300          sm_103  148  -          -       8000             2250   1125   4500    -      4500  14000   150     -       -
"""
_SOURCES = {
    "H200": "measured under driver 580.159.04, cuBLAS reaching 0.87 of the 790 TFLOP/s; other types: H200 datasheet",
    "H100 SXM": "H100 datasheet; clock and L2: H100 architecture white paper",
    "H100 PCIe": "H100 datasheet; clock and L2: H100 architecture white paper",
    "A100": "A100 architecture white paper and datasheet, SXM with 80 GB",
    "L40S": "L40S datasheet",
    "RTX 4090": "Ada architecture white paper",
    "RTX 5090": "RTX Blackwell architecture white paper; mxfp8: its rate with 16-bit sums, which learn-cuda 08 reports",
    "RTX PRO 6000": "RTX PRO Blackwell architecture white paper, Workstation Edition",
    "B200": "HGX B200 datasheet, an eighth of eight cards; TF32 is 1100 to 1250 on NVIDIA's pages",
    "B300": "HGX B300 datasheet, an eighth of eight cards; FP4 (k = 96) is 13,125 to 14,000 on NVIDIA's pages",
}
_TYPES_OF_RATE = {  # the data types that a datasheet's rate is for
    "tf32": ("tfloat32", "tfloat32_ftz"),
    "half": ("float16", "bfloat16"),
    "fp8": ("e4m3", "e5m2"),
    "mxfp8": ("mxfp8",),  # with scale factors, if those have a separate rate
    "fp6": ("e2m3", "e3m2", "16u6_align16b", "16u4_align16b"),  # elements that take a byte of shared memory
    "fp4": ("e2m1", "16u4_align8b"),
    "int8": ("int8", "uint8"),
    "int4": ("int4", "uint4"),
    "b1": ("b1",),
}
MEASURED_BY_BENCH = frozenset({"name", "arch", "sms", "clock_mhz", "l2_bytes", "memory_gb_per_s", "tma"})


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


class CardFacts(NamedTuple):
    """One row of the table."""

    name: str
    arch: str
    sms: int
    clock_mhz: int | None
    l2_bytes: int | None
    memory_gb_per_s: int
    tflop_per_s: Mapping[str, float]  # by data type or scaled format
    tma: TmaRates | None
    measured: frozenset[str]  # names of cells, and of types
    source: str


def read_card_table() -> Iterator[CardFacts]:
    """The rows of the table.

    >>> next(row.tflop_per_s["e4m3"] for row in read_card_table() if row.name == "B200")
    4500
    """
    heading, *lines = _TABLE.strip().splitlines()
    columns = heading.split()
    for line in lines:
        row = dict(zip(columns, re.split(r" {2,}", line.strip()), strict=True))
        is_h200 = row["card"] == "H200"
        l2_mib = _read_whole(row["l2_mib"])
        yield CardFacts(
            name=row["card"],
            arch=row["arch"],
            sms=int(row["sms"]),
            clock_mhz=_read_whole(row["clock_mhz"]),
            l2_bytes=None if l2_mib is None else l2_mib << 20,
            memory_gb_per_s=int(row["memory_gb_per_s"]),
            tflop_per_s=_read_rates(row),
            tma=_H200_TMA if is_h200 else None,
            measured=MEASURED_BY_BENCH | {"float16", "bfloat16"} if is_h200 else frozenset(),
            source=_SOURCES[row["card"]],
        )


def _read_whole(cell: str) -> int | None:
    return None if cell == "-" else int(cell)


def _read_rates(row: Mapping[str, str]) -> Mapping[str, float]:
    """TFLOP/s of a row's cells, by data type."""
    rates: dict[str, float] = {}
    for kind, types in _TYPES_OF_RATE.items():
        if row[kind] != "-":
            rate = float(row[kind]) if "." in row[kind] else int(row[kind])
            rates.update(dict.fromkeys(types, rate))
    return MappingProxyType(rates)
