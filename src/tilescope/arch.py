"""The features of a GPU architecture: shared memory, and the instructions on the tile's path.

A feature is written as the compilation target that has it, since plain, family and exact targets differ:

    feature           sm_80   sm_90   sm_100  sm_120
    tma               -       plain   plain   plain      compile for sm_90, sm_100, ...
    wgmma             -       a       -       -          compile for sm_90a, nothing else has it
    tcgen05           -       -       a,f     -          compile for sm_100a or sm_100f
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from tilescope.errors import RuleError, unknown_name
from tilescope.rule import Basis, rule
from tilescope.sentence import format_value
from tilescope.value import Row

__all__ = ["ARCH", "KIB", "WARP_LANES", "Arch", "ArchName", "Basis", "architectures_with"]

ArchName = Literal["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120"]
KIB = 1024
WARP_LANES = 32
ARCH_PARTLY_KNOWN = rule(
    "arch-partly-known",
    "The architecture is in the table. sm_107 (Rubin) is not documented completely enough for an entry.",
    argument="arch",
    found="arch = {asked}",
    limit="{arch} is documented in parts only: {missing}",
    fix="`tilescope explain {arch}` says what is documented; for what it shares with {near}, ask for {near}.",
    source="PTX ISA 9.4, CUDA C++ Programming Guide 13.4, and Triton's sources for sm_107",
    passing='ts.plan((128, 64), "bf16", arch="sm_103")',
    failing='ts.plan((128, 64), "bf16", arch="sm_107")',
)

# Which target assembles a feature's instructions, as ptxas 13.0 answers.
_FEATURE_TABLE = """
feature             sm_80   sm_86   sm_89   sm_90   sm_100  sm_103  sm_110  sm_120
ldmatrix            plain   plain   plain   plain   plain   plain   plain   plain
ldmatrix_b8         -       -       -       -       a,f     a,f     a,f     a,f
stmatrix            -       -       -       plain   plain   plain   plain   plain
stmatrix_b8         -       -       -       -       a,f     a,f     a,f     a,f
mma                 plain   plain   plain   plain   plain   plain   plain   plain
mma_fp8             -       -       plain   plain   plain   plain   plain   plain
mma_f8f6f4          -       -       -       -       -       -       -       a,f
mma_f64_m16         -       -       -       plain   plain   plain   plain   plain
wgmma               -       -       -       a       -       -       -       -
tcgen05             -       -       -       -       a,f     a,f     a,f     -
tcgen05_i8          -       -       -       -       a       -       a       -
tcgen05_k96         -       -       -       -       -       a       -       -
tcgen05_ld_red      -       -       -       -       -       a,f     a,f     -
tcgen05_shift       -       -       -       -       a       a       a       -
tma                 -       -       -       plain   plain   plain   plain   plain
multicast           -       -       -       plain   plain   plain   plain   plain
cta_group           -       -       -       -       a,f     a,f     a,f     -
gather4             -       -       -       -       plain   plain   plain   plain
gather4_cluster     -       -       -       -       a,f     a,f     a,f     -
scatter4            -       -       -       -       a,f     a,f     a,f     -
im2col_wide         -       -       -       -       plain   plain   plain   plain
im2col_wide_cluster -       -       -       -       a,f     a,f     a,f     -
im2col_wide_128     -       -       -       -       a,f     a,f     a,f     -
tensormap_replace   -       -       -       a       a,f     a,f     a,f     a,f
packed_types        -       -       -       -       a,f     a,f     a,f     a,f
swizzle_atomicity   -       -       -       -       a,f     a,f     a,f     a,f
swizzle_96B         -       -       -       -       -       a       -       -
half_row_16u6_store -       -       -       -       -       a       -       -
"""


@dataclass(frozen=True, slots=True, eq=False)
class Arch(Row):
    """One GPU architecture.

    >>> hopper = Arch.named("sm_90")
    >>> hopper.smem_per_block_bytes, hopper.has("wgmma"), hopper.has("tcgen05")
    (232448, True, False)
    >>> hopper.target("wgmma")
    'sm_90a'
    """

    name: str
    compute_capability: tuple[int, int]
    smem_per_sm_bytes: int
    smem_per_block_bytes: int  # with the opt-in function attribute
    blocks_per_sm: int
    basis: Basis  # measured: the rules that tilescope applies to it were held against a card
    features: Mapping[str, str] = field(repr=False, hash=False)

    @classmethod
    def named(cls, name: object) -> Arch:
        """The row called `name`; sm_90a, sm_100f, sm_121 (family of sm_120), 9.0, H100 and hopper are understood too.

        >>> Arch.named("sm_90a").name, Arch.named("H200").name
        ('sm_90', 'sm_90')
        """
        if isinstance(name, Arch):
            return name
        canonical = _canonical(name) if isinstance(name, str) else ""
        if canonical in _PARTLY_KNOWN:
            partly = _PARTLY_KNOWN[canonical]
            raise ARCH_PARTLY_KNOWN.error(
                asked=format_value(name), arch=canonical, near=partly.near, missing=partly.missing
            )
        if canonical not in ARCH:
            raise RuleError([unknown_name("architecture", "arch", name, ARCH)])
        return ARCH[canonical]

    def has(self, feature: str) -> bool:
        """Whether any target of this architecture assembles the feature.

        >>> Arch.named("sm_80").has("tma")
        False
        """
        return self._targets(feature) != "-"

    def target(self, feature: str) -> str | None:
        """The target to compile for, such as "sm_90a" for wgmma; None if the feature is missing."""
        suffix = {"-": None, "plain": "", "a": "a", "a,f": "a"}[self._targets(feature)]
        return None if suffix is None else self.name + suffix

    def _targets(self, feature: str) -> str:
        if not isinstance(feature, str) or feature not in self.features:
            raise RuleError([unknown_name("feature", "feature", feature, self.features)])
        return self.features[feature]


_TARGET_SPELLING = re.compile(r"(?:sm_?|compute_?)?(\d{1,2})\.?(\d)[af]?")
# Targets without a row of their own, and the one that speaks for them: the documentation gives sm_121 the column of sm_120, and
# sm_101 is what sm_110 was called before PTX 9.0.
SHARED_ROWS = {"sm_121": "sm_120", "sm_101": "sm_110"}


def _canonical(name: str) -> str:
    """sm_90 for "SM90a", "compute_90", "9.0"; sm_120 for sm_121, which shares its column in the documentation."""
    plain = name.strip().casefold()
    target = target_of(plain)
    return _CARDS.get(plain) or SHARED_ROWS.get(target, target) or name


def target_of(name: str) -> str:
    """The target that a name spells, without its suffix, even where it shares the row of another; "" if it spells none.

    >>> target_of("sm_121a"), Arch.named("sm_121a").name, target_of("H200")
    ('sm_121', 'sm_120', '')
    """
    written = _TARGET_SPELLING.fullmatch(name.strip().casefold())
    return f"sm_{written[1]}{written[2]}" if written else ""


def architectures_with(feature: str) -> tuple[str, ...]:
    """Names of the architectures that have the feature.

    >>> architectures_with("wgmma")
    ('sm_90',)
    """
    return tuple(name for name, row in ARCH.items() if row.has(feature))


# Cards that people name instead (NVIDIA's list of CUDA GPUs), and generations by the data centre's card.
_CARDS = {
    card: name
    for name, cards in {
        "sm_80": "ampere a100 a30",
        "sm_86": "a10 a40 a6000",
        "sm_89": "ada l4 l40 l40s rtx4090",
        "sm_90": "hopper h100 h200 h800 h20 gh200",
        "sm_100": "blackwell b100 b200 gb200",
        "sm_103": "b300 gb300",
        "sm_107": "rubin vr200",
        "sm_110": "thor",
        "sm_120": "rtx5090 rtxpro6000",
    }.items()
    for card in cards.split()
}


class _PartlyKnown(NamedTuple):
    """An architecture that is refused: what its documents leave open, and the row that is nearest to it."""

    missing: str
    near: str


_PARTLY_KNOWN = {
    "sm_107": _PartlyKnown(
        "tensor memory, the k of its 8- and 4-bit products and the order of its scale factors differ from sm_103's, and no "
        "document here has all of it",
        near="sm_103",
    )
}


def _features_by_arch(table: str) -> dict[str, Mapping[str, str]]:
    """The columns of the table: the targets that have a feature, by its name."""
    header, *rows = [line.split() for line in table.strip().splitlines()]
    return {
        name: MappingProxyType({row[0]: row[column] for row in rows})
        for column, name in enumerate(header)
        if name != "feature"
    }


_FEATURES = _features_by_arch(_FEATURE_TABLE)


# Shared memory: CUDA programming guide, compute capability table; blocks: the occupancy header.
_ROWS = (
    Arch(
        "sm_80",
        compute_capability=(8, 0),
        smem_per_sm_bytes=164 * KIB,
        smem_per_block_bytes=163 * KIB,
        blocks_per_sm=32,
        basis="documented",
        features=_FEATURES["sm_80"],
    ),
    Arch(
        "sm_86",
        compute_capability=(8, 6),
        smem_per_sm_bytes=100 * KIB,
        smem_per_block_bytes=99 * KIB,
        blocks_per_sm=16,
        basis="documented",
        features=_FEATURES["sm_86"],
    ),
    Arch(
        "sm_89",
        compute_capability=(8, 9),
        smem_per_sm_bytes=100 * KIB,
        smem_per_block_bytes=99 * KIB,
        blocks_per_sm=24,
        basis="documented",
        features=_FEATURES["sm_89"],
    ),
    Arch(
        "sm_90",
        compute_capability=(9, 0),
        smem_per_sm_bytes=228 * KIB,
        smem_per_block_bytes=227 * KIB,
        blocks_per_sm=32,
        basis="measured",
        features=_FEATURES["sm_90"],
    ),
    Arch(
        "sm_100",
        compute_capability=(10, 0),
        smem_per_sm_bytes=228 * KIB,
        smem_per_block_bytes=227 * KIB,
        blocks_per_sm=32,
        basis="documented",
        features=_FEATURES["sm_100"],
    ),
    Arch(
        "sm_103",
        compute_capability=(10, 3),
        smem_per_sm_bytes=228 * KIB,
        smem_per_block_bytes=227 * KIB,
        blocks_per_sm=32,
        basis="documented",
        features=_FEATURES["sm_103"],
    ),
    Arch(
        "sm_110",
        compute_capability=(11, 0),
        smem_per_sm_bytes=228 * KIB,
        smem_per_block_bytes=227 * KIB,
        blocks_per_sm=24,
        basis="documented",
        features=_FEATURES["sm_110"],
    ),
    Arch(
        "sm_120",
        compute_capability=(12, 0),
        smem_per_sm_bytes=100 * KIB,
        smem_per_block_bytes=99 * KIB,
        blocks_per_sm=24,
        basis="documented",
        features=_FEATURES["sm_120"],
    ),
)
ARCH: dict[str, Arch] = {row.name: row for row in _ROWS}
