"""What is known about a swizzle mode, in words: its rule, limits, names, codes and sources."""

from __future__ import annotations

from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle
from tilescope.view.parts import Table

_REMARKS = {
    "none": "Rows follow each other at a pitch of their own length. The tensor core's layout without swizzle is "
    "another one (core matrices): the two agree only for rows of 16 bytes.",
    "96B": "Reached only through `tensormap.replace`. Whether rows lie 96 or 128 bytes apart is not documented.",
    "128B_ATOM_32B": "On sm_120 not for loads to shared::cluster.",
    "128B_ATOM_32B_FLIP_8B": "The manual says that alternate lines are flipped, not which: odd lines are a reading "
    "of it. On sm_120 not for loads to shared::cluster. CuTe has no name for it.",
    "128B_ATOM_64B": "CuTe maps `Swizzle<2,6,S>` to this mode; the PTX table, followed here, has one bit. On sm_120 not "
    "for loads to shared::cluster.",
}
_PIECE = {16: ("Chunk", "c"), 32: ("Pair of chunks", "p = c / 2"), 64: ("Half", "h = c / 4")}


def rule_sentence(swizzle: Swizzle) -> str:
    """Where things go, in one or two sentences.

    >>> rule_sentence(Swizzle.named("128B_ATOM_64B"))
    'Half h = c / 4 of line l (128 bytes) lies at place h XOR (l mod 2). Chunks keep their place inside it.'
    """
    if swizzle.bits == 0:
        return "Nothing moves: every byte lies at its own address."
    if swizzle.feature is None or swizzle.atom_bytes not in _PIECE:
        target, source = _target_bits(swizzle), _source_bits(swizzle)
        if swizzle.bits == 1:
            return f"Address bit {target} is XORed with bit {source}."
        return f"Address bits {target} are XORed with bits {source}."
    piece, name = _PIECE[swizzle.atom_bytes]
    lines = 1 << swizzle.bits
    sentence = f"{piece} {name} of line l (128 bytes) lies at place {name[0]} XOR (l mod {lines})."
    if swizzle.atom_bytes > 16:
        sentence += " Chunks keep their place inside it."
    if swizzle.flip_bytes:
        sentence += " Odd lines also exchange the 8-byte halves of every chunk."
    return sentence


def fact_table(swizzle: Swizzle, address: int) -> Table:
    """The facts as a table of names and values."""
    return Table(tuple(facts(swizzle, address).items()))


def facts(swizzle: Swizzle, address: int = 0) -> dict[str, str]:
    """Everything known about the mode, and about a buffer at shared address `address`, by name.

    >>> facts(Swizzle.named("64B"))["alignment"]
    'shared address a multiple of 128; of 512 for base offset 0'
    """
    found = {"C": f"`{swizzle.c_expression}`" + (" for the logical byte address a" if swizzle.bits else "")}
    if swizzle.bits:
        found["address bits"] = _bits(swizzle)
    found["repeats"] = _repeat(swizzle)
    if address:
        found["base offset"] = _base_offset(swizzle, address)
    if swizzle.feature is None:
        return found | {
            "moves whole": _bytes(swizzle.atom_bytes),
            "names": f"CuTe `{_cute(swizzle)}` on byte addresses",
            "used by" if swizzle.hardware_mode is None else "equals": used_by(swizzle),
            "sources": "CuTe, swizzle.hpp",
        }
    found |= {
        "alignment": _alignment(swizzle),
        "inner width": _inner_width(swizzle),
        "architectures": ", ".join(swizzle.architectures),
        "names": _names(swizzle),
        "codes": _codes(swizzle),
        "basis": _basis(swizzle),
    }
    if swizzle.name in _REMARKS:
        found["note"] = _REMARKS[swizzle.name]
    return found | {"sources": "; ".join(_sources(swizzle))}


def used_by(swizzle: Swizzle) -> str:
    """Who takes an XOR swizzle: the hardware too, where it equals one of its modes and rows are one span wide.

    >>> used_by(Swizzle.xor(5, 2, 5))
    'software alone: neither TMA nor the tensor core has this mode'
    """
    mode = swizzle.hardware_mode
    if mode is None:
        return "software alone: neither TMA nor the tensor core has this mode"
    readers = ["TMA"] + [f"`{name}`" for name, code in (("wgmma", mode.wgmma_code), ("tcgen05", mode.tcgen05_code)) if code]
    *others, last = readers
    taken = f"{', '.join(others)} and {last} take it" if others else f"{last} takes it"
    if mode.span_bytes:
        taken += f" where rows are {mode.span_bytes} bytes wide; threads may store rows of any width"
    return f"the same map as the {mode.name} mode: {taken}"


def _bit_range(low: int, count: int) -> str:
    return str(low) if count == 1 else f"{low + count - 1}:{low}"


def _target_bits(swizzle: Swizzle) -> str:
    return _bit_range(swizzle.base + max(0, -swizzle.shift), swizzle.bits)


def _source_bits(swizzle: Swizzle) -> str:
    return _bit_range(swizzle.base + max(0, swizzle.shift), swizzle.bits)


def _bits(swizzle: Swizzle) -> str:
    flip = "; bit 3 is XORed with bit 7" if swizzle.flip_bytes else ""
    return f"{_target_bits(swizzle)} XORed with {_source_bits(swizzle)}{flip}"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _repeat(swizzle: Swizzle) -> str:
    if swizzle.bits == 0:
        return "no pattern: every line looks the same"
    lines = f"{swizzle.period_lines} lines" if swizzle.period_lines > 1 else "1 line"
    return f"every {swizzle.repeat_bytes} bytes ({lines}), counted from shared address 0"


def _base_offset(swizzle: Swizzle, address: int) -> str:
    offset = swizzle.base_offset(address)
    aligned = address // swizzle.repeat_bytes * swizzle.repeat_bytes
    said = f"{offset} = ({address:#x} / 128) mod {swizzle.period_lines}"
    if offset:
        said += f": the pattern starts on line {offset}; {aligned:#x} and {aligned + swizzle.repeat_bytes:#x} have 0"
    if swizzle.feature is not None and address % SMEM_LINE_BYTES:
        said += f". TMA refuses {address:#x}: it is no multiple of 128; the marked cell holds it"
    elif address % SMEM_LINE_BYTES:
        said += ". The marked cell holds the address"
    return said


def _alignment(swizzle: Swizzle) -> str:
    if swizzle.bits == 0:
        return "shared address a multiple of 128"
    stated = " (the manual says 1024 for every 128B mode)" if "_ATOM_" in swizzle.name else ""
    return f"shared address a multiple of 128; of {swizzle.repeat_bytes} for base offset 0{stated}"


def _inner_width(swizzle: Swizzle) -> str:
    if swizzle.span_bytes is None:
        return "any multiple of 16 bytes, at most 256 elements"
    span = swizzle.span_bytes
    widest = f"{span} bytes ({span} x 8, {span // 2} x 16 or {span // 4} x 32 bit)"
    return f"a multiple of 16, at most {widest}" + ("; narrower rows leave gaps" if swizzle.name != "96B" else "")


def _cute(swizzle: Swizzle) -> str:
    return f"Swizzle<{swizzle.bits},{swizzle.base},{swizzle.shift}>"


def _names(swizzle: Swizzle) -> str:
    names = [] if swizzle.driver_code is None else [f"driver `CU_TENSOR_MAP_SWIZZLE_{swizzle.name.upper()}`"]
    if not swizzle.flip_bytes and swizzle.name != "96B":
        names.append(f"CuTe `{_cute(swizzle)}` on byte addresses")
    return ", ".join(names) or "PTX `.swizzle_mode` 96B"


def _codes(swizzle: Swizzle) -> str:
    codes = [
        ("driver", swizzle.driver_code),
        ("PTX mode", swizzle.ptx_mode),
        ("PTX atomicity", swizzle.ptx_atomicity),
        ("wgmma", swizzle.wgmma_code),
        ("tcgen05", swizzle.tcgen05_code),
    ]
    return ", ".join(f"{name} {'-' if code is None else code}" for name, code in codes)


def _basis(swizzle: Swizzle) -> str:
    if swizzle.basis == "measured":
        return "measured on an H200 (sm_90)"
    return "documented; not measured on a card"


def _sources(swizzle: Swizzle) -> list[str]:
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
    return sources
