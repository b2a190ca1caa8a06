"""A swizzle in words: where things go, everything that is known about the mode, and who takes it.

rule_sentence   Chunk c of line l (128 bytes) is stored at place c XOR (l mod 8).
facts           repeats   every 1024 bytes (8 lines), counted from shared address 0
                codes     driver 3, PTX mode 3, PTX atomicity 0, wgmma 1, tcgen05 2
used_by         the same map as the 128B mode: TMA, `wgmma` and `tcgen05` take it
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.sentence import counted, listed
from tilescope.swizzle.mode import CHUNK_BYTES, SMEM_LINE_BYTES, Swizzle

_REMARKS = {
    "none": "Rows follow each other without gaps. The tensor core's layout without swizzle is "
    "another one (core matrices): the two agree only for rows of 16 bytes.",
    "96B": "Reached only through `tensormap.replace`. Whether rows are 96 or 128 bytes apart is not documented.",
    "128B_ATOM_32B": "On sm_120 not for loads to shared::cluster.",
    "128B_ATOM_32B_FLIP_8B": "The manual says that alternate lines are flipped, not which: odd lines are a reading "
    "of it. On sm_120 not for loads to shared::cluster. CuTe has no name for it.",
    "128B_ATOM_64B": "CuTe maps `Swizzle<2,6,S>` to this mode; the PTX table, followed here, has one bit. "
    "On sm_120 not for loads to shared::cluster.",
}


class _MovedPiece(NamedTuple):
    """What moves whole: its name, and how its number follows from that of the chunk."""

    name: str
    number: str

    @property
    def letter(self) -> str:
        return self.number[0]


_MOVED_PIECE = {  # by its bytes
    16: _MovedPiece("Chunk", "c"),
    32: _MovedPiece("Pair of chunks", "p = c / 2"),
    64: _MovedPiece("Half", "h = c / 4"),
}


class _AddressBits(NamedTuple):
    """Bits of an address, as the documentation writes them: 6:4."""

    changed: str
    causing: str


def rule_sentence(swizzle: Swizzle) -> str:
    """Where things go, in one or two sentences.

    >>> rule_sentence(Swizzle.named("128B_ATOM_64B"))
    'Half h = c / 4 of line l (128 bytes) is stored at place h XOR (l mod 2). Chunks keep their place inside it.'
    """
    if swizzle.bits == 0:
        return "Nothing moves: every byte keeps its address."
    if swizzle.feature is None or swizzle.atom_bytes not in _MOVED_PIECE:
        bits = _address_bits(swizzle)
        if swizzle.bits == 1:
            return f"Address bit {bits.changed} is XORed with bit {bits.causing}."
        return f"Address bits {bits.changed} are XORed with bits {bits.causing}."
    piece = _MOVED_PIECE[swizzle.atom_bytes]
    place = f"{piece.letter} XOR (l mod {1 << swizzle.bits})"
    sentences = [f"{piece.name} {piece.number} of line l (128 bytes) is stored at place {place}."]
    if swizzle.atom_bytes > CHUNK_BYTES:
        sentences.append("Chunks keep their place inside it.")
    if swizzle.flip_bytes:
        sentences.append("Odd lines also exchange the 8-byte halves of every chunk.")
    return " ".join(sentences)


def facts(swizzle: Swizzle, address: int = 0) -> dict[str, str]:
    """Everything known about the mode, and about a buffer at shared address `address`, by name.

    >>> facts(Swizzle.named("64B"))["alignment"]
    'shared address a multiple of 128; of 512 for base offset 0'
    """
    facts_by_name = _pattern_facts(swizzle) | {"base offset": _base_offset(swizzle, address)}
    if swizzle.feature is not None:
        facts_by_name |= _mode_facts(swizzle)
    else:
        facts_by_name |= {
            "moves whole": counted(swizzle.atom_bytes, "byte"),
            "names": _cute_name(swizzle),
            "used by" if swizzle.hardware_mode is None else "equals": used_by(swizzle),
            "sources": "CuTe, swizzle.hpp",
        }
    return {name: fact for name, fact in facts_by_name.items() if fact}


def used_by(swizzle: Swizzle) -> str:
    """Who takes an XOR swizzle: the hardware too, if it equals one of its modes and rows are one span wide.

    >>> used_by(Swizzle.xor(5, 2, 5))
    'software alone: neither TMA nor the tensor core has this mode'
    """
    mode = swizzle.hardware_mode
    if mode is None:
        return "software alone: neither TMA nor the tensor core has this mode"
    readers = ["TMA"]
    if mode.wgmma_code:  # 0, no swizzle, is another layout there: core matrices
        readers.append("`wgmma`")
    if mode.tcgen05_code:
        readers.append("`tcgen05`")
    taken = f"{listed(readers)} {'takes' if len(readers) == 1 else 'take'} it"
    if mode.span_bytes:
        taken += f" where rows are {mode.span_bytes} bytes wide; threads may store rows of any width"
    return f"the same map as the {mode.name} mode: {taken}"


def _pattern_facts(swizzle: Swizzle) -> dict[str, str]:
    if swizzle.bits == 0:
        return {"C": f"`{swizzle.c_expression}`", "repeats": "no pattern: every line looks the same"}
    bits = _address_bits(swizzle)
    changes = f"{bits.changed} XORed with {bits.causing}"
    if swizzle.flip_bytes:
        changes += "; bit 3 is XORed with bit 7"
    lines = counted(swizzle.period_lines, "line")
    return {
        "C": f"`{swizzle.c_expression}` for the logical byte address a",
        "address bits": changes,
        "repeats": f"every {swizzle.repeat_bytes} bytes ({lines}), counted from shared address 0",
    }


def _address_bits(swizzle: Swizzle) -> _AddressBits:
    """The address bits that change, and those that change them."""

    def written(low: int) -> str:
        return str(low) if swizzle.bits == 1 else f"{low + swizzle.bits - 1}:{low}"

    changed = swizzle.base + max(0, -swizzle.shift)
    causing = swizzle.base + max(0, swizzle.shift)
    return _AddressBits(written(changed), written(causing))


def _base_offset(swizzle: Swizzle, address: int) -> str:
    """Where in the pattern a buffer starts; empty where it starts at address 0."""
    if address == 0:
        return ""
    offset = swizzle.base_offset(address)
    text = f"{offset} = ({address:#x} / 128) mod {swizzle.period_lines}"
    if offset:
        before = address // swizzle.repeat_bytes * swizzle.repeat_bytes
        after = before + swizzle.repeat_bytes
        text += f": the pattern starts on line {offset}; {before:#x} and {after:#x} have 0"
    if address % SMEM_LINE_BYTES == 0:
        return text
    if swizzle.feature is None:
        return f"{text}. The marked cell holds the address"
    return f"{text}. TMA refuses {address:#x}: it is not a multiple of 128; the marked cell holds it"


def _mode_facts(swizzle: Swizzle) -> dict[str, str]:
    """The facts about a mode of the hardware."""
    return {
        "alignment": _alignment(swizzle),
        "inner width": _inner_width(swizzle),
        "architectures": ", ".join(swizzle.architectures),
        "names": _names(swizzle),
        "codes": _codes(swizzle),
        "basis": "measured on an H200 (sm_90)" if swizzle.basis == "measured" else "documented; not measured on a card",
        "note": _REMARKS.get(swizzle.name, ""),
        "sources": _sources(swizzle),
    }


def _alignment(swizzle: Swizzle) -> str:
    text = "shared address a multiple of 128"
    if swizzle.bits:
        text += f"; of {swizzle.repeat_bytes} for base offset 0"
    if "_ATOM_" in swizzle.name:
        text += " (the manual says 1024 for every 128B mode)"
    return text


def _inner_width(swizzle: Swizzle) -> str:
    span = swizzle.span_bytes
    if span is None:
        return "any multiple of 16 bytes, at most 256 elements"
    text = f"a multiple of 16, at most {span} bytes ({span} x 8, {span // 2} x 16 or {span // 4} x 32 bit)"
    return text if swizzle.name == "96B" else f"{text}; narrower rows leave gaps"


def _cute_name(swizzle: Swizzle) -> str:
    return f"CuTe `Swizzle<{swizzle.bits},{swizzle.base},{swizzle.shift}>` on byte addresses"


def _names(swizzle: Swizzle) -> str:
    names = []
    if swizzle.driver_code is not None:
        names.append(f"driver `CU_TENSOR_MAP_SWIZZLE_{swizzle.name.upper()}`")
    if swizzle.name == "96B":
        names.append("PTX `.swizzle_mode` 96B")
    elif not swizzle.flip_bytes:
        names.append(_cute_name(swizzle))
    return ", ".join(names)


def _codes(swizzle: Swizzle) -> str:
    codes = {
        "driver": swizzle.driver_code,
        "PTX mode": swizzle.ptx_mode,
        "PTX atomicity": swizzle.ptx_atomicity,
        "wgmma": swizzle.wgmma_code,
        "tcgen05": swizzle.tcgen05_code,
    }
    return ", ".join(f"{name} {'-' if code is None else code}" for name, code in codes.items())


def _sources(swizzle: Swizzle) -> str:
    sources = ['PTX ISA, "Swizzling Modes"']
    if swizzle.driver_code is None:
        sources.append('PTX ISA, "tensormap.replace"')
    else:
        sources.append("cuda.h, CUtensorMapSwizzle")
    if swizzle.basis == "measured":
        sources.append('CUDA C++ Programming Guide, "The Swizzle Modes"')
    if swizzle.wgmma_code is not None:
        sources.append('PTX ISA, wgmma "Matrix Descriptor Format"')
    if swizzle.tcgen05_code is not None:
        sources.append('PTX ISA, tcgen05 "Shared memory descriptor"')
    return "; ".join(sources)
