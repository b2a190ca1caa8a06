"""The targets with a feature that a line reports as missing, and the toolkits for the PTX versions and targets that it names.

    '.tile::scatter4' not supported on … sm_120a   sm_100a, sm_103a and sm_110a have it; sm_120 stores row by row
    'cvt with .e2m1x2' … .target 'sm_120'          sm_120a and sm_120f have more than sm_120
    version 8.7; current version is '8.5'          PTX 8.7 came with CUDA 12.8
    Value 'sm_103a' is not defined                 needs PTX 8.8, which came with CUDA 12.9

The tables are held against ptxas and cuda.bindings by tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tilescope.arch import ARCH, Arch
from tilescope.sentence import listed

_PTX_VERSION = re.compile(r"\bversion(?: is)?\W{0,3}(\d+\.\d)\b", re.IGNORECASE)
_TARGET = re.compile(r"\b(?:sm|compute)_?(\d{2,3})([af]?)\b", re.IGNORECASE)
_LEAST_TARGET = re.compile(r"requires \.?target '?(sm_\d+[af]?)'? or higher")
_REFUSES = re.compile(
    r"not supported|unsupported|requires|not compatible|does not support|doesn't support", re.IGNORECASE
)
# The CUDA release of each version of PTX (PTX ISA, "Release Notes"). A test compares it with cuda.bindings' table.
TOOLKIT_OF_PTX = {
    "7.0": "11.0",
    "7.1": "11.1",
    "7.2": "11.2",
    "7.3": "11.3",
    "7.4": "11.4",
    "7.5": "11.5",
    "7.6": "11.6",
    "7.7": "11.7",
    "7.8": "11.8",
    "8.0": "12.0",
    "8.1": "12.1",
    "8.2": "12.2",
    "8.3": "12.3",
    "8.4": "12.4",
    "8.5": "12.5",
    "8.6": "12.7",
    "8.7": "12.8",
    "8.8": "12.9",
    "9.0": "13.0",
    "9.1": "13.1",
    "9.2": "13.2",
    "9.3": "13.3",
    "9.4": "13.4",
    "9.5": "13.5",
}
# The first toolkit whose ptxas reads it, where that is a later one (llvm/llvm-project#123898 and #125846).
_PTXAS_OF_PTX = {"8.6": "12.8"}
# The first version of PTX with a target (PTX ISA, "Release Notes"); a test runs ptxas. ptxas of CUDA 13 has no sm_101.
FIRST_PTX = {
    "80": "7.0",
    "86": "7.1",
    "87": "7.4",
    "88": "9.0",
    "89": "7.8",
    "90": "7.8",
    "90a": "8.0",
    "100": "8.6",
    "100a": "8.6",
    "100f": "8.8",
    "101": "8.6",
    "101a": "8.6",
    "101f": "8.8",
    "103": "8.8",
    "103a": "8.8",
    "103f": "8.8",
    "107": "9.4",
    "107a": "9.4",
    "107f": "9.4",
    "110": "9.0",
    "110a": "9.0",
    "110f": "9.0",
    "120": "8.7",
    "120a": "8.7",
    "120f": "8.8",
    "121": "8.8",
    "121a": "8.8",
    "121f": "8.8",
}
# The last CUDA toolkit that has a target: clang's MaxVersionForOffloadArch for 30 to 37, and what ptxas 12.9 has and ptxas 13.4
# has not; sm_101 is sm_110 from PTX 9.0 on.
LAST_TOOLKIT = {
    "30": "10.2",
    "32": "10.2",
    "35": "11.8",
    "37": "11.8",
    "50": "12.9",
    "52": "12.9",
    "53": "12.9",
    "60": "12.9",
    "61": "12.9",
    "62": "12.9",
    "70": "12.9",
    "72": "12.9",
    "101": "12.9",
}
_UNKNOWN_TARGET = ("not defined", "unsupported gpu arch", "unsupported target", "unknown target")
_SPEAKS_OF_PTX = re.compile(r"(?<!\.)\bptx|\.version\b|current version")


class _Feature(NamedTuple):
    """A missing feature: its spellings in a line and in an answer, and the features of arch.py, any of which provides it."""

    spelling: str
    shown: str
    features: tuple[str, ...]
    instead: str = ""  # advice for a card without it

    def target(self, row: Arch) -> str:
        """The compilation target; empty if the architecture lacks the feature."""
        targets = [row.target(feature) for feature in self.features]
        return next((target for target in targets if target), "")

    def is_in(self, row: Arch, suffix: str) -> bool:
        """Whether the target of an architecture with this suffix has it."""
        return any(suffix in _SUFFIXES[row.features[feature]] for feature in self.features)


_SUFFIXES = {"-": (), "plain": ("", "a", "f"), "a": ("a",), "a,f": ("a", "f")}
_SCALED = ("tcgen05", "mma_f8f6f4")  # modifiers of tcgen05.mma, and of mma on sm_120
_TO_CTA = "To .shared::cta it exists from sm_100 on."
# A spelling goes before those that are part of it.
_FEATURES = (
    _Feature(
        "scatter4", "scatter4", ("scatter4",), "Store the rows there one by one: a box of one row, or plain stores."
    ),
    _Feature(
        "gather4 with destination state space as .shared::cluster",
        "gather4 to .shared::cluster",
        ("gather4_cluster",),
        _TO_CTA,
    ),
    _Feature("gather4", "gather4", ("gather4",), "Load the rows there one by one: a box of one row, or plain loads."),
    _Feature("tensormap.replace", "tensormap.replace", ("tensormap_replace",)),
    _Feature("multicast::cluster", "multicast", ("multicast",), "There each block loads its own copy."),
    _Feature("im2col::w::128", "im2col::w::128", ("im2col_wide_128",)),
    _Feature(
        "im2col::w with destination state space as .shared::cluster",
        "im2col::w to .shared::cluster",
        ("im2col_wide_cluster",),
        _TO_CTA,
    ),
    _Feature("im2col::w", "im2col::w", ("im2col_wide",)),
    _Feature("mma with block scale", "mma with block scale", ("mma_f8f6f4",)),
    _Feature("tcgen05", "tcgen05", ("tcgen05",), "Multiply by wgmma on sm_90a, by mma elsewhere."),
    _Feature("cta_group", "cta_group", ("cta_group",), "There each block multiplies alone."),
    _Feature(".block_scale", ".block_scale", _SCALED),
    _Feature(".kind::mxf", ".kind::mxf4 and its like", _SCALED),
    _Feature(".kind::f8f6f4", ".kind::f8f6f4", _SCALED),
    _Feature("wgmma", "wgmma", ("wgmma",), "Multiply by tcgen05 on sm_100a, sm_103a and sm_110a, by mma elsewhere."),
    _Feature("cp.async.bulk", "TMA", ("tma",), "Copy by cp.async there."),
    _Feature("stmatrix", "stmatrix", ("stmatrix",), "Store from registers there."),
    _Feature("ldmatrix", "ldmatrix", ("ldmatrix",)),
)
_FEATURES_SAID = 2  # of a line


class _Named(NamedTuple):
    """A target as a line names it: sm_121a is the row of sm_120, and its own name."""

    row: Arch
    plain: str  # sm_121
    suffix: str  # a, f or nothing


def target_sentences(text: str) -> Iterator[str]:
    """The architectures with a feature that a line reports as unsupported or required."""
    if not _REFUSES.search(text):
        return
    plain = text.casefold()
    least = _LEAST_TARGET.search(plain)
    if least:
        yield f"It exists from {least[1]} on: compile for that, or for a later one."
        return
    targets = [
        _Named(Arch.named(f"sm_{number}"), f"sm_{number}", suffix)
        for number, suffix in _TARGET.findall(plain)
        if f"sm_{number}" in ARCH or number in ("121", "101")
    ]
    features = _features_in(plain)
    for feature in features[:_FEATURES_SAID]:
        yield _who_has(feature, targets)
        if feature.instead and _targets_without(feature, targets):
            yield feature.instead
    if not features and ".target" in plain:
        yield from _plain_targets(targets)


def _features_in(plain: str) -> list[_Feature]:
    """The features that a line spells, none twice."""
    features = []
    remaining = plain
    for feature in _FEATURES:
        if feature.spelling in remaining:
            features.append(feature)
            remaining = remaining.replace(feature.spelling, " ")
    return features


def _who_has(feature: _Feature, found: list[_Named]) -> str:
    """The targets that have a feature, and what that means for those that a line names."""
    targets = [target for row in ARCH.values() if (target := feature.target(row))]
    sentence = f"{feature.shown} exists for {listed(targets)}"
    lacking = _targets_without(feature, found)
    if lacking:
        return f"{sentence}; {listed(lacking)} does not have it."
    needed = [
        feature.target(named.row).replace(named.row.name, named.plain)
        for named in found
        if not feature.is_in(named.row, named.suffix)
    ]
    return f"{sentence}; compile for {listed(dict.fromkeys(needed))}." if needed else f"{sentence}."


def _targets_without(feature: _Feature, found: list[_Named]) -> list[str]:
    """The targets of a line that do not have a feature under any suffix."""
    return list(dict.fromkeys(named.plain for named in found if not feature.target(named.row)))


def _plain_targets(found: list[_Named]) -> Iterator[str]:
    """That a plain target leaves out what its a and f targets have (PTX ISA, ".target")."""
    for name in dict.fromkeys(named.plain for named in found if not named.suffix):
        if f"{name.removeprefix('sm_')}f" in FIRST_PTX:
            yield f"{name} leaves out what only {name}a and {name}f have: compile for one of those."
        elif f"{name.removeprefix('sm_')}a" in FIRST_PTX:
            yield f"{name} leaves out what only {name}a has: compile for that."


def version_sentences(text: str) -> Iterator[str]:
    """The toolkits of the versions of PTX that a line names, and of the targets that a toolkit does not know."""
    plain = text.casefold()
    knows_target = not any(word in plain for word in _UNKNOWN_TARGET)
    if knows_target and not _SPEAKS_OF_PTX.search(plain):
        return
    versions = [version for version in dict.fromkeys(_PTX_VERSION.findall(text)) if version in TOOLKIT_OF_PTX]
    if versions:
        yield f"{listed([f'PTX {version} came with CUDA {_toolkit(version)}' for version in versions])}."
    if not knows_target:
        for number, suffix in dict.fromkeys(_TARGET.findall(plain)):
            yield from _toolkits_of_target(number, suffix)


def _toolkits_of_target(number: str, suffix: str) -> Iterator[str]:
    """The first toolkit that has a target, and the last where later ones have dropped it."""
    target = f"{number}{suffix}"
    if target in FIRST_PTX:
        version = FIRST_PTX[target]
        yield f"sm_{target} needs PTX {version}, which came with CUDA {_toolkit(version)}."
    if number in LAST_TOOLKIT:
        renamed = ": CUDA 13 calls it sm_110" if number == "101" else ""
        yield f"CUDA {LAST_TOOLKIT[number]} is the last that has sm_{target}{renamed}."


def _toolkit(ptx_version: str) -> str:
    """The CUDA release of a version of PTX, and the toolkit that supports it if that is a later one."""
    release = TOOLKIT_OF_PTX[ptx_version]
    if ptx_version not in _PTXAS_OF_PTX:
        return release
    return f"{release} (its toolkit is {_PTXAS_OF_PTX[ptx_version]})"
