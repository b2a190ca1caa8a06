"""How swizzles are written: Swizzle<3,4,3> in CuTe, a pair of mode and atomicity in PTX."""

from __future__ import annotations

import re

from tilescope.reading import plain_int
from tilescope.rule import rule
from tilescope.sentence import shorten

XOR_SWIZZLE = rule(
    "xor-swizzle",
    "An XOR swizzle has bits and a base of at least 0 within a 32-bit address, and a shift of at least its bits.",
    argument="shift",
    found="shift = {shift} with bits = {bits}",
    limit="the changed bits must not overlap the bits that change them, or the map is not its own inverse",
    fix="Use shift = {least}.",
    source="CuTe, Swizzle<bits, base, shift>",
    passing="ts.Swizzle.xor(3, 4, 3)",
    failing="ts.Swizzle.xor(3, 4, 2)",
)
XOR_BEYOND_ADDRESS = XOR_SWIZZLE.worded(
    argument="bits, base, shift",
    found="xor:{bits},{base},{shift} uses address bits {base} to {top}",
    limit="bits 0 to 31 of an address exist",
    fix="Use xor:3,4,3, for example: bits >= 0, base >= 0, base + |shift| + bits <= {address_bits}.",
)
XOR_TRIPLE = XOR_SWIZZLE.worded(
    argument="swizzle",
    found="swizzle {text}",
    limit="three integers: bits, base, shift",
    fix="Use xor:3,4,3, for example.",
)
PTX_SWIZZLE_PAIR = rule(
    "ptx-swizzle-pair",
    "PTX accepts only the swizzle atomicities that its table of valid combinations lists for the swizzle mode.",
    argument="mode, atomicity",
    found="swizzle mode {mode!r} with atomicity {atomicity!r}",
    limit="PTX's table of valid combinations has {valid:, }",
    fix="Use 128B with 32B, or leave the atomicity out: only the 128B mode has a choice of atoms.",
    source='PTX ISA, "Swizzling Modes"',
    passing='ts.Swizzle.from_ptx("128B", "32B")',
    failing='ts.Swizzle.from_ptx("64B", "32B")',
)
# In the order of their numbers.
PTX_MODES = ("none", "32B", "64B", "128B", "96B")
PTX_ATOMICITIES = ("16B", "32B", "32B+8B-flip", "64B")
PtxPair = tuple[int | None, int | None]  # .swizzle_mode, .swizzle_atomicity; None: the mode has no atomicity


def written_triple(text: str) -> tuple[int, int, int] | None:
    """bits, base and shift of "xor:3,4,3", "Swizzle<3,4,3>" or "Sw<3,4,3>"; None for a text of another kind.

    >>> written_triple("Sw<3,4,3>"), written_triple("128B")
    ((3, 4, 3), None)
    """
    bracket = re.match(r"\s*(?:xor|swizzle|sw|s)\s*[:(<]", text, re.IGNORECASE)
    if bracket is None:
        return None
    triple = re.fullmatch(r"\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(-?\d{1,4})\s*[)>]?\s*", text[bracket.end() :])
    if triple is None:
        raise XOR_TRIPLE.error(text=shorten(text, 40))
    bits, base, shift = map(int, triple.groups())
    return bits, base, shift


def ptx_pair(mode: int | str, atomicity: int | str | None, known: tuple[PtxPair, ...]) -> PtxPair:
    """The pair of `known` for these numbers or spellings; RuleError if PTX has no such pair."""
    mode_code = _code(PTX_MODES, mode)
    atomicity_code = 0 if atomicity is None else _code(PTX_ATOMICITIES, atomicity)
    for pair in known:
        if (pair[0], pair[1] or 0) == (mode_code, atomicity_code):
            return pair
    raise PTX_SWIZZLE_PAIR.error(mode=mode, atomicity=atomicity, valid=tuple(map(_pair_in_words, known)))


def _pair_in_words(pair: PtxPair) -> str:
    """A pair as PTX spells it.

    >>> _pair_in_words((3, 1)), _pair_in_words((0, None))
    ('128B with 32B', 'none alone')
    """
    mode, atomicity = pair
    spelled = PTX_MODES[mode or 0]
    return f"{spelled} alone" if atomicity is None else f"{spelled} with {PTX_ATOMICITIES[atomicity]}"


def _code(names: tuple[str, ...], spelling: object) -> int | None:
    """The number of a spelling; a number stays itself; None for what is neither."""
    if isinstance(spelling, str) and spelling in names:
        return names.index(spelling)
    return plain_int(spelling)
