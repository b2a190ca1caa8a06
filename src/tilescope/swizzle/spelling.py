"""How swizzles are written: Swizzle<3,4,3> in CuTe, a pair of mode and atomicity in PTX."""

from __future__ import annotations

import re

from tilescope.errors import printed, shortened
from tilescope.reading import plain_int
from tilescope.rule import rule

XOR_SWIZZLE = rule(
    "xor-swizzle",
    "An XOR swizzle has bits and a base of at least 0 within a 32-bit address, and a shift of at least its bits.",
    source="CuTe, Swizzle<bits, base, shift>",
    passing="ts.Swizzle.xor(3, 4, 3)",
    failing="ts.Swizzle.xor(3, 4, 2)",
)
PTX_SWIZZLE_PAIR = rule(
    "ptx-swizzle-pair",
    "PTX takes a swizzle atomicity only with the swizzle modes of its table of valid combinations.",
    source='PTX ISA, "Swizzling Modes"',
    passing='ts.Swizzle.from_ptx("128B", "32B")',
    failing='ts.Swizzle.from_ptx("64B", "32B")',
)
_PTX_MODE = {"none": 0, "32B": 1, "64B": 2, "128B": 3, "96B": 4}
_PTX_ATOMICITY = {"16B": 0, "32B": 1, "32B+8B-flip": 2, "64B": 3}
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
        limit, fix = "three integers: bits, base, shift", "Use xor:3,4,3, for example."
        raise XOR_SWIZZLE.error("swizzle", f"swizzle {shortened(text, 40)}", limit, fix)
    bits, base, shift = map(int, triple.groups())
    return bits, base, shift


def ptx_pair(mode: int | str, atomicity: int | str | None, known: tuple[PtxPair, ...]) -> PtxPair:
    """The pair of `known` that these numbers or spellings are; RuleError where PTX has no such pair."""
    wanted = _code(_PTX_MODE, mode), 0 if atomicity is None else _code(_PTX_ATOMICITY, atomicity)
    for pair in known:
        if (pair[0], pair[1] or 0) == wanted:
            return pair
    modes, atoms = ({code: name for name, code in codes.items()} for codes in (_PTX_MODE, _PTX_ATOMICITY))
    valid = ", ".join(modes[one or 0] + (" alone" if atom is None else f" with {atoms[atom]}") for one, atom in known)
    raise PTX_SWIZZLE_PAIR.error(
        "mode, atomicity",
        f"swizzle mode {printed(mode)} with atomicity {printed(atomicity)}",
        f"PTX's table of valid combinations has {valid}",
        "Use 128B with 32B, or leave the atomicity out: only the 128B mode has a choice of atoms.",
    )  # fmt: skip


def _code(codes: dict[str, int], spelling: object) -> int:
    """The number of a spelling; a number stays itself; -1 for what is neither."""
    code = codes.get(spelling) if isinstance(spelling, str) else plain_int(spelling)
    return -1 if code is None else code
