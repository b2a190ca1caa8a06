"""What a layout may be made of: every reason why not, at once."""

from __future__ import annotations

from typing import Any

from tilescope.errors import RuleError, Violation, broken, printed, printed_hex
from tilescope.layout.modes import Modes, as_modes
from tilescope.layout.tiling import ATOM_ORDERS, ELEMENT_BITS, Major, Tiling, oriented
from tilescope.reading import entries, plain_int

MAX_RANK = 5
WINDOW_BYTES = 1 << 32  # a shared address has 32 bits
POINTER_BYTES = 1 << 48  # of a pointer that a debugger or CuTe prints


def checked_tiling(
    shape: Any, element_bits: Any, atom: Any, atom_order: Any, padding_bytes: Any, start: Any, major: Major
) -> tuple[Tiling, int]:
    """The tile that arguments in (mn, k) order ask for, and where it starts; RuleError with every reason why not."""
    tile = _pair("shape", shape)
    whole = tile if atom is None else _pair("atom", atom)
    bits, padding, address = plain_int(element_bits), plain_int(padding_bytes), plain_int(start)
    problems = start_problems(element_bits, start)

    def refuse(argument: str, found: str, limit: str, fix: str) -> None:
        problems.append(Violation("layout", "error", argument, found, limit, fix))

    row_elements = oriented(major, *whole)[1]
    if bits in ELEMENT_BITS and bits and row_elements * bits % 8:
        refuse("atom", f"a row of {row_elements} elements of {bits} bits", "rows are whole bytes", "Widen the atom.")
    if tile[0] % whole[0] or tile[1] % whole[1]:
        enough = " x ".join(str(-(-extent // step) * step) for extent, step in zip(tile, whole, strict=True))
        found = f"{tile[0]} x {tile[1]} elements in atoms of {whole[0]} x {whole[1]}"
        refuse("shape", found, "a tile is a whole number of atoms", f"Use {enough}.")
    if not isinstance(atom_order, str) or atom_order not in ATOM_ORDERS:
        refuse("atom_order", printed(atom_order), '"column" or "row"', 'Use "column" unless you know better.')
    if padding is None or padding < 0:
        refuse("padding_bytes", printed(padding_bytes), "an integer of at least 0", "Use padding_bytes=0.")
    if not problems:
        tiling = Tiling(oriented(major, *tile), bits or 0, oriented(major, *whole), atom_order, padding or 0)
        if (address or 0) + tiling.size_bytes <= WINDOW_BYTES:
            return tiling, address or 0
        found = f"{printed(tiling.size_bytes)} bytes from {printed_hex(address or 0)}"
        refuse("shape", found, "shared addresses have 32 bits", "Make the tile smaller.")
    raise RuleError(problems)


def checked_modes(modes: Any, element_bits: Any, unit_bits: Any, start: Any) -> Modes:
    """The modes with strides in bits; RuleError with every reason why they are no layout."""
    problems = start_problems(element_bits, start)
    unit = plain_int(element_bits if unit_bits is None else unit_bits)
    given = modes if isinstance(modes, Modes) else as_modes(modes)

    def refuse(argument: str, found: str, limit: str, fix: str) -> None:
        problems.append(Violation("layout", "error", argument, found, limit, fix))

    if unit_bits is not None and (unit is None or unit < 1):
        refuse("unit_bits", f"unit_bits = {printed(unit_bits)}", "an integer of at least 1", "Leave it out: elements.")
    if len(given.parts) > MAX_RANK:
        refuse("modes", f"{len(given.parts)} indices", f"at most {MAX_RANK}", "Group some of them.")
    if min(stride for _, stride in given.pairs) < 0:
        refuse("modes", str(given), "strides of at least 0", "Start at the lowest address.")
    elif given.cosize > POINTER_BYTES:
        refuse("modes", f"{printed(given.cosize)} elements apart", "addresses below 2^48", "Use smaller strides.")
    if problems:
        raise RuleError(problems)
    return given.scaled(unit or 1) or given


def start_problems(element_bits: Any, start: Any) -> list[Violation]:
    """Why an element's bits and a start address are none."""
    problems = []
    if plain_int(element_bits) not in ELEMENT_BITS:
        known = f"{', '.join(map(str, ELEMENT_BITS[:-1]))} or {ELEMENT_BITS[-1]}"
        found, fix = f"{printed(element_bits)} bits", "Give the element's bits."
        problems.append(Violation("layout", "error", "element_bits", found, known, fix))
    address = plain_int(start)
    if address is None or not 0 <= address < POINTER_BYTES:
        limit = "an integer of at least 0" if address is None or address < 0 else "an address below 2^48"
        problems.append(Violation("layout", "error", "start", printed(start), limit, "Give a shared address."))
    return problems


def _pair(argument: str, given: Any) -> tuple[int, int]:
    found = [plain_int(each) for each in entries(given, 3) or ()]
    mn, k = found if len(found) == 2 else (None, None)
    if mn is None or k is None or min(mn, k) < 1:
        shown, limit = f"{argument} = {printed(given)}", "two integers of at least 1: mn, k"
        raise broken("layout", argument, shown, limit, "Give (mn, k) in elements.")
    return mn, k
