"""The first lines of answers about shared memory: swizzles, layouts, copies and banks."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from tilescope.questions.first_lines import bits_of_byte, element_line, line, place_facts, refused
from tilescope.questions.question import FirstLine
from tilescope.sentence import filled

if TYPE_CHECKING:
    from tilescope.layout import Layout, Modes
    from tilescope.notation import Conversion, NoEquivalent
    from tilescope.questions.layouts import EveryNotation
    from tilescope.smem.layout_search import LayoutSearch
    from tilescope.smem.report import TileReport
    from tilescope.swizzle import Swizzle
    from tilescope.tma import Identification, Trace
    from tilescope.tma.place import Place

_INSTEAD = "an XOR of the offset in the buffer gives {address:#x} instead"
_SEARCH = "--fix searches for a layout without conflicts."
_COST = "{name}: {verdict}, {wavefronts:wavefront}[[ where {ideal} would do]]"


def of_swizzle(mode: Swizzle, address: int) -> FirstLine:
    """Where the mode puts a byte."""
    if mode.bits == 0:
        return line("Swizzle {name} moves nothing: every byte lies at its own address.", name=mode.name)
    return line(
        "Swizzle {name} moves byte a to {c}, a pattern of {repeat_bytes} bytes[[; a buffer at {address:#x} starts on "
        "its line {base_offset}]].",
        name=mode.name,
        c=mode.c_expression,
        repeat_bytes=mode.repeat_bytes,
        address=address,
        base_offset=str(mode.base_offset(address)),
    )


def of_layout(layout: Layout, element: tuple[int, int] | None) -> FirstLine:
    """Where one element of a layout lies, or all of them."""
    if element is not None:
        first_bit = int(layout.bit_modes.at(*element)) % layout.unit_bits
        return element_line(element, layout.address(*element), bits=bits_of_byte(first_bit, layout.element_bits))
    return line(
        "{shape: x } elements of {bits:bit} take {size_bytes:byte} from {start:#x}: element ({names:, }) lies at {c}.",
        shape=layout.shape,
        bits=layout.element_bits,
        size_bytes=layout.size_bytes,
        start=layout.start,
        names=("mn", "k", "stage")[: len(layout.shape)],
        c=layout.terms().c,
    )


def of_layout_difference(one: Layout, other: Layout) -> FirstLine:
    """How many elements two layouts place elsewhere, and the first of them."""
    differing = int(np.count_nonzero(one.addresses() != other.addresses()))
    first = one.first_difference(other)
    if first is None:
        return line("The layouts are the same: all {count:element} lie at equal addresses.", count=one.elements)
    return line(
        "The layouts differ: {differing} of {count:element} lie elsewhere, the first {element} at {one:#x} and at "
        "{other:#x}.",
        differing=differing,
        count=one.elements,
        element=first,
        one=one.address(*first),
        other=other.address(*first),
    )


def of_thread_values(modes: Modes) -> FirstLine:
    """How many values threads hold."""
    threads, *values = modes.indices
    return line(
        "{threads:thread} hold {values:value} each, at offsets 0 to {last}.",
        threads=prod(extent for extent, _ in threads),
        values=prod(extent for extent, _ in chain(*values)),
        last=modes.cosize - 1,
    )


def of_matrix(modes: Modes) -> FirstLine:
    """How large a plain tile is, and which step leads to the next row and column."""
    (rows, down), (columns, across) = modes.pairs
    return line(
        "A tile of {rows} x {columns} elements at offsets 0 to {last}: {down} from row to row, {across} from column to column.",
        rows=rows,
        columns=columns,
        last=modes.cosize - 1,
        down=down,
        across=across,
    )


def of_conversion(conversion: Conversion) -> FirstLine:
    """The text in another notation."""
    return line(
        "In {notation}: {text} (all {compared:address|addresses} equal[[; beside it: {beside:, }]]).",
        notation=conversion.notation,
        text=conversion.result,
        compared=conversion.compared,
        beside=tuple(f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value),
    )


def of_no_equivalent(notation: str, reason: NoEquivalent) -> FirstLine:
    """Why a notation has no text for a layout."""
    return refused(filled("{notation} has no text for this layout", {"notation": notation}), reason.violations)


def of_every_notation(every: EveryNotation, layout: Layout) -> FirstLine:
    """In how many notations there is a text, and tilescope's own."""
    return line(
        "{written} of {count} notations write this layout, {layout}, with equal addresses.",
        written=len(every.texts) - len(every.lacking),
        count=len(every.texts),
        layout=repr(layout),
    )


def of_trace(trace: Trace, places: tuple[Place, ...], asked_element: bool) -> FirstLine:
    """What a copy moves, or where the element that was asked for lies."""
    lines = []
    for number, place in enumerate(places):
        lines.append(_of_place(trace, place, by_address=number > 0 or not asked_element))
    if lines:
        return FirstLine(" ".join(one.sentence for one in lines))
    a = trace.tensor_map
    return line(
        "The {operation} moves {rows:row} of {row_bytes} bytes {direction} shared address {smem:#x}[[; the mbarrier "
        "expects {expected} bytes]][[; {outside} rows lie outside the tensor]][[; {cut_bytes} bytes of a row lie "
        "outside the tensor]][[; {overrun_bytes} bytes behind the tensor's rows are overwritten]].",
        operation=trace.operation,
        rows=trace.rows,
        row_bytes=a.interleave.slice_bytes or a.inner_bytes,
        direction="to" if trace.is_load else "from",
        smem=trace.smem_address,
        expected=trace.transaction_bytes,
        outside=trace.filled_rows,
        cut_bytes=trace.outside_bytes,
        overrun_bytes=trace.overrun_bytes,
    )


def _of_place(trace: Trace, place: Place, *, by_address: bool) -> FirstLine:
    """Where an element lies, or what lies at an address."""
    if place.element is None:
        return line(
            "Byte {address:#x} holds nothing of this copy, which lies at {first:#x} to {last:#x}.",
            address=place.address,
            first=trace.smem_address,
            last=trace.smem_address + trace.tensor_map.smem_bytes - 1,
        )
    instead = ""
    if place.offset_xor_address is not None and place.offset_xor_address != place.address:
        instead = filled(_INSTEAD, {"address": place.offset_xor_address})
    if not by_address:
        bits = bits_of_byte(place.first_bit or 0, trace.tensor_map.data_type.bits)
        return element_line(place.element, place.address, instead, bits)
    return line(
        "Byte {address:#x} (line {line}, chunk {chunk}, bank {bank}) holds {elements} of the box, "
        "coordinates {coords}[[, {outside}]][[; {instead}]].",
        elements=_elements_of_byte(trace, place.element),
        coords=place.coords,
        outside="outside the tensor" if place.holds == "fill" else "",
        instead=instead,
        **place_facts(place.address),
    )


def _elements_of_byte(trace: Trace, first: tuple[int, int]) -> str:
    """The elements that have bits in a byte, of which the first is known; of 4 and of 6 bits there are two."""
    from tilescope.tma.tracing import first_bit_in_box  # which the lines of other answers do without

    if not first_bit_in_box(trace, 1):
        return f"element {first}"
    row, column = first
    parts = "" if trace.tensor_map.data_type.bits == 4 else "parts of "
    return f"{parts}elements {first} and {(row, column + 1)}"


def of_identification(found: Identification) -> FirstLine:
    """Where a tile lies in a dump."""
    if not found.found:
        sentence = filled(
            "The tile is not in the dump: even the best layout leaves {wrong} of {compared} bytes wrong.",
            {"wrong": found.wrong_bytes, "compared": found.compared_bytes},
        )
        return FirstLine(
            sentence, "Check that the dump is of the same stage, and that the tile has the right type and values."
        )
    facts = {
        "subject": "The tile lies" if found.explained else "A part of the tile lies",
        "offset": found.offset,
        "swizzle": found.swizzle.name,
        "base_offset": found.base_offset,
        "order": found.order_words,
        "transposed": "transposed" if found.transposed else "",
        "fits": found.compared_bytes - found.wrong_bytes - found.missing_bytes,
        "compared": found.compared_bytes,
    }
    where = (
        "{subject} at byte {offset:#x} of the dump: swizzle {swizzle}[[, base offset {base_offset}]], {order}"
        "[[, {transposed}]]; {fits} of {compared} bytes fit"
    )
    wrong = found.first_wrong
    if wrong is None:
        return line(where + ".", **facts)
    return line(
        where
        + ", the first wrong at {address:#x}: element ({row}, {column}) should be {expected:#04x}, not {is_now:#04x}.",
        address=wrong.address,
        row=wrong.row,
        column=wrong.column,
        expected=wrong.expected,
        is_now=wrong.found,
        **facts,
    )


def of_banks(report: TileReport, search: LayoutSearch | None = None, *, may_search: bool = False) -> FirstLine:
    """What every pattern costs, and what cures them if that was looked for, or how to look for it."""
    costs = [
        filled(
            _COST,
            {
                "name": cost.name,
                "verdict": cost.verdict,
                "wavefronts": cost.wavefronts,
                "ideal": cost.ideal if cost.excess else 0,
            },
        )
        for cost in report.costs
    ]
    if search is None or report.conflict_free:
        advice = _SEARCH if may_search and not report.conflict_free else ""
        return FirstLine(filled("{costs:; }.", {"costs": tuple(costs)}), advice)
    best = search.best
    if search.conflict_free:
        return line("{costs:; }. Without a conflict: {label}.", costs=tuple(costs), label=best.label)
    sentence = filled(
        "{costs:; }. No layout of {tried} tried is without a conflict; {label} has the least, {excess:wavefront} too "
        "many.",
        {"costs": tuple(costs), "tried": sum(search.tried.values()), "label": best.label, "excess": best.excess},
    )
    return FirstLine(sentence, " ".join(search.reasons) or filled("Use {label}.", {"label": best.label}))
