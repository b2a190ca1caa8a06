"""What is known about a swizzle mode, in words: its rule, limits, names, codes and sources."""

from __future__ import annotations

from tilescope.swizzle import SMEM_LINE_BYTES, Swizzle

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
        target, source = _changed_and_causing(swizzle)
        if swizzle.bits == 1:
            return f"Address bit {target} is XORed with bit {source}."
        return f"Address bits {target} are XORed with bits {source}."
    piece, name = _PIECE[swizzle.atom_bytes]
    return (
        f"{piece} {name} of line l (128 bytes) lies at place {name[0]} XOR (l mod {1 << swizzle.bits})."
        + " Chunks keep their place inside it." * (swizzle.atom_bytes > 16)
        + " Odd lines also exchange the 8-byte halves of every chunk." * bool(swizzle.flip_bytes)
    )


def facts(swizzle: Swizzle, address: int = 0) -> dict[str, str]:
    """Everything known about the mode, and about a buffer at shared address `address`, by name.

    >>> facts(Swizzle.named("64B"))["alignment"]
    'shared address a multiple of 128; of 512 for base offset 0'
    """
    is_mode, moves = swizzle.feature is not None, swizzle.bits > 0
    target, source = _changed_and_causing(swizzle)
    lines = f"{swizzle.period_lines} lines" if swizzle.period_lines > 1 else "1 line"
    cute = f"CuTe `Swizzle<{swizzle.bits},{swizzle.base},{swizzle.shift}>` on byte addresses"
    found = {
        "C": f"`{swizzle.c_expression}`" + " for the logical byte address a" * moves,
        "address bits": f"{target} XORed with {source}" + "; bit 3 is XORed with bit 7" * bool(swizzle.flip_bytes),
        "repeats": f"every {swizzle.repeat_bytes} bytes ({lines}), counted from shared address 0",
        "base offset": _base_offset(swizzle, address),
    }
    if not moves:
        found |= {"address bits": "", "repeats": "no pattern: every line looks the same"}
    if is_mode:
        found |= _mode_facts(swizzle, cute)
    else:
        found |= {
            "moves whole": "1 byte" if swizzle.atom_bytes == 1 else f"{swizzle.atom_bytes} bytes",
            "names": cute,
            "used by" if swizzle.hardware_mode is None else "equals": used_by(swizzle),
            "sources": "CuTe, swizzle.hpp",
        }
    return {name: said for name, said in found.items() if said}


def _mode_facts(swizzle: Swizzle, cute: str) -> dict[str, str]:
    """What is known of a mode of the hardware alone."""
    measured, span = swizzle.basis == "measured", swizzle.span_bytes
    aligned = "shared address a multiple of 128"
    if swizzle.bits:
        aligned += f"; of {swizzle.repeat_bytes} for base offset 0"
        aligned += " (the manual says 1024 for every 128B mode)" * ("_ATOM_" in swizzle.name)
    width = "any multiple of 16 bytes, at most 256 elements"
    if span is not None:
        width = f"a multiple of 16, at most {span} bytes ({span} x 8, {span // 2} x 16 or {span // 4} x 32 bit)"
        width += "; narrower rows leave gaps" * (swizzle.name != "96B")
    driver = "" if swizzle.driver_code is None else f"driver `CU_TENSOR_MAP_SWIZZLE_{swizzle.name.upper()}`"
    names = [driver, "" if swizzle.flip_bytes or swizzle.name == "96B" else cute]
    codes = {
        "driver": swizzle.driver_code, "PTX mode": swizzle.ptx_mode, "PTX atomicity": swizzle.ptx_atomicity,
        "wgmma": swizzle.wgmma_code, "tcgen05": swizzle.tcgen05_code,
    }  # fmt: skip
    sources = {
        'PTX ISA, "Swizzling Modes"': True,
        'PTX ISA, "tensormap.replace"': not driver,
        "cuda.h, CUtensorMapSwizzle": driver,
        'CUDA C++ Programming Guide, "The Swizzle Modes"': measured,
        'PTX ISA, wgmma "Matrix Descriptor Format"': swizzle.wgmma_code is not None,
        'PTX ISA, tcgen05 "Shared memory descriptor"': swizzle.tcgen05_code is not None,
    }
    return {
        "alignment": aligned,
        "inner width": width,
        "architectures": ", ".join(swizzle.architectures),
        "names": ", ".join(filter(None, names)) or "PTX `.swizzle_mode` 96B",
        "codes": ", ".join(f"{name} {'-' if code is None else code}" for name, code in codes.items()),
        "basis": "measured on an H200 (sm_90)" if measured else "documented; not measured on a card",
        "note": _REMARKS.get(swizzle.name, ""),
        "sources": "; ".join(source for source, holds in sources.items() if holds),
    }


def used_by(swizzle: Swizzle) -> str:
    """Who takes an XOR swizzle: the hardware too, where it equals one of its modes and rows are one span wide.

    >>> used_by(Swizzle.xor(5, 2, 5))
    'software alone: neither TMA nor the tensor core has this mode'
    """
    mode = swizzle.hardware_mode
    if mode is None:
        return "software alone: neither TMA nor the tensor core has this mode"
    readers = ["TMA", *(["`wgmma`"] if mode.wgmma_code else []), *(["`tcgen05`"] if mode.tcgen05_code else [])]
    taken = " and ".join(filter(None, [", ".join(readers[:-1]), readers[-1]])) + (
        " take it" if readers[1:] else " takes it"
    )
    if mode.span_bytes:
        taken += f" where rows are {mode.span_bytes} bytes wide; threads may store rows of any width"
    return f"the same map as the {mode.name} mode: {taken}"


def _changed_and_causing(swizzle: Swizzle) -> tuple[str, str]:
    """The address bits that change, and those that change them, as the documents write them: 6:4."""
    lows = (swizzle.base + max(0, -swizzle.shift), swizzle.base + max(0, swizzle.shift))
    changed, causing = (str(low) if swizzle.bits == 1 else f"{low + swizzle.bits - 1}:{low}" for low in lows)
    return changed, causing


def _base_offset(swizzle: Swizzle, address: int) -> str:
    """Where in the pattern a buffer starts; empty where it starts at address 0."""
    offset = swizzle.base_offset(address)
    aligned = address // swizzle.repeat_bytes * swizzle.repeat_bytes
    said = f"{offset} = ({address:#x} / 128) mod {swizzle.period_lines}" if address else ""
    if offset:
        said += f": the pattern starts on line {offset}; {aligned:#x} and {aligned + swizzle.repeat_bytes:#x} have 0"
    if address % SMEM_LINE_BYTES and swizzle.feature is None:
        said += ". The marked cell holds the address"
    elif address % SMEM_LINE_BYTES:
        said += f". TMA refuses {address:#x}: it is no multiple of 128; the marked cell holds it"
    return said
