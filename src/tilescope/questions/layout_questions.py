"""The questions about layouts in any notation: how one is drawn, and how another notation writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from math import prod

import numpy as np

from tilescope.errors import RuleError
from tilescope.layout import Layout, Modes
from tilescope.layout.layout_comparison import require_one_tile
from tilescope.notation import (
    NOTATION,
    Conversion,
    NoEquivalent,
    assumption,
    convert_layout,
    parse_layout,
    parse_layout_assuming,
    parse_layout_or_modes,
    parse_modes,
)
from tilescope.notation.every_notation import EveryNotation
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, layout_line, make_line, refusal_line
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, Input, Question, flag, refuse
from tilescope.questions.shared_inputs import ELEMENT, ELEMENT_BITS, LAYOUT_BESIDE
from tilescope.sentence import fill_template

LARGEST_DRAWN_ELEMENTS = 1 << 16  # on a page, of a layout, of each of two, or of threads and values


def draw_answer(asked: Asked) -> Answer:
    """A layout both ways; with another one, their differences; a plain tile, or threads and values, if the bits are unknown."""
    beside = asked.options(LAYOUT_BESIDE)
    layout = Call(parse_layout_or_modes, (asked["text"],), beside).run()
    if isinstance(layout, Modes):
        refuse(
            "other" in asked or "element" in asked,
            "--other and --element are for a layout of shared memory, and this text does not say how wide an element is: "
            "add --bits.",
        )
        is_tile = layout.is_matrix and "shape" not in asked
        what = "elements" if is_tile else "threads and values"
        asked.require_at_most(what, layout.size, argument="text", fix=_part_to_draw(layout))
        call = Call(parse_modes, (asked["text"],), name="modes", module="tilescope.notation")
        first = _summarize_matrix(layout) if is_tile else _summarize_thread_values(layout)
        return Answer(layout, call, first=first, shown={"shape": asked.get("shape")})
    asked.require_at_most("elements", layout.elements, argument="text", fix="Draw a part of it.")
    parsing = Call(parse_layout, (asked["text"],), beside, "layout")
    element = asked.get("element")
    if "other" not in asked:
        return Answer(
            layout,
            parsing,
            first=layout_line(layout, element),
            shown={"element": element, "whole": asked.get("whole")},
        )
    parsing_other = Call(parse_layout, (asked["other"],), beside, "other")
    other = parsing_other.run()
    most = max(layout.elements, other.elements)
    asked.require_at_most(
        "elements", most, argument="other", fix="Compare a part of them.", counted="elements compared"
    )
    facts = comparison_facts(layout, other)
    return Answer(
        layout,
        parsing,
        first=_summarize_layout_difference(layout, other),
        then=Call(Layout.first_difference, (parsing_other,), name="", receiver=parsing),
        shown={"element": element, "other": other, "whole": asked.get("whole")},
        extra=facts,
    )


def _part_to_draw(layout: Modes) -> str:
    """The advice for a layout that is too large to draw: a part of a matrix with the same strides.

    >>> _part_to_draw(Modes((1024, 1024), (1024, 1)))
    'Draw a part of it, such as (256,256):(1024,1).'
    """
    if not layout.is_matrix:
        return "Draw fewer threads or values."
    rows, columns = (extent for extent, _ in layout.pairs)
    while rows * columns > LARGEST_DRAWN_ELEMENTS:
        if rows >= columns:
            rows //= 2
        else:
            columns //= 2
    return f"Draw a part of it, such as {Modes((rows, columns), layout.stride)}."


def comparison_facts(layout: Layout, other: Layout) -> dict[str, object]:
    """A second layout of the same tile, and the first element that it places elsewhere."""
    require_one_tile(layout, other)
    first = layout.first_difference(other)
    return {"other": other.to_dict(), "first_difference": None if first is None else list(first)}


def convert_answer(asked: Asked) -> Answer:
    """The layout in another notation, or in all of them."""
    beside = asked.options(LAYOUT_BESIDE)
    layout, assumed = Call(parse_layout_assuming, (asked["text"],), beside).run()
    asked.require_at_most("elements", layout.elements, argument="text", fix="Convert a part of it.")
    extra: dict[str, object] = {"assumed": assumed} if assumed else {}
    assumed_text = assumption(layout, assumed)
    if "notation" not in asked:
        return _every_notation_answer(asked, layout, assumed_text, extra)
    call = Call(convert_layout, (asked["text"], asked["notation"]), beside, "conversion")
    conversion = _conversion(asked["text"], asked["notation"], beside)
    if isinstance(conversion, Conversion):
        return Answer(
            conversion,
            call,
            first=_summarize_conversion(conversion),
            shown={"picture": asked.get("picture", False) or "svg" in asked},
            code=conversion.result,
        )
    first = _summarize_no_equivalent(asked["notation"], conversion)
    more = [str(violation) for violation in conversion.violations[1:]]
    return Answer(
        conversion,
        call,
        first=first,
        extra=extra,
        is_yes=False,
        violations=conversion.violations,
        told_in="reasons",
        shown={"layout": layout},
        text="\n".join(line for line in (first.sentence, first.advice, *more, assumed_text) if line),
        below=(Answer(layout),) if asked.get("picture") else (),
    )


def _every_notation_answer(asked: Asked, layout: Layout, said: str, extra: Mapping[str, object]) -> Answer:
    """The layout in every notation; `said` and `extra` are the assumptions, as a sentence and as data."""
    beside = asked.options(LAYOUT_BESIDE)
    conversions = {notation: _conversion(asked["text"], notation, beside) for notation in NOTATION}
    texts = {notation: str(conversion) for notation, conversion in conversions.items()}
    lacking = tuple(name for name, conversion in conversions.items() if isinstance(conversion, NoEquivalent))
    every = EveryNotation(asked["text"].strip(), texts, said, lacking)
    return Answer(
        layout,
        Call(parse_layout, (asked["text"],), beside, "layout"),
        first=_summarize_every_notation(every, layout),
        shown={"notations": every, "whole": asked.get("picture")},
        extra={"notations": texts, **extra},
    )


def _summarize_matrix(modes: Modes) -> FirstLine:
    """How large a plain tile is, and which step leads to the next row and column."""
    (rows, down), (columns, across) = modes.pairs
    return make_line(
        "A tile of {rows} x {columns} elements at offsets 0 to {last}: {down} from row to row, {across} from column to column.",
        rows=rows,
        columns=columns,
        last=modes.cosize - 1,
        down=down,
        across=across,
    )


def _summarize_thread_values(modes: Modes) -> FirstLine:
    """How many values threads hold."""
    threads, *values = modes.indices
    return make_line(
        "{threads:thread} hold {values:value} each, at offsets 0 to {last}.",
        threads=prod(extent for extent, _ in threads),
        values=prod(extent for extent, _ in chain(*values)),
        last=modes.cosize - 1,
    )


def _summarize_layout_difference(one: Layout, other: Layout) -> FirstLine:
    """How many elements two layouts place elsewhere, and the first of them."""
    differing = int(np.count_nonzero(one.addresses() != other.addresses()))
    first = one.first_difference(other)
    if first is None:
        return make_line("The layouts are the same: all {count:element} have equal addresses.", count=one.elements)
    return make_line(
        "The layouts differ: {differing} of {count:element} are elsewhere, the first {element} at {one:#x} and at "
        "{other:#x}.",
        differing=differing,
        count=one.elements,
        element=first,
        one=one.address(*first),
        other=other.address(*first),
    )


def _summarize_conversion(conversion: Conversion) -> FirstLine:
    """The text in another notation."""
    return make_line(
        "In {notation}: {text} (all {compared:address|addresses} equal[[; not in the text: {beside:, }]]).",
        notation=conversion.notation,
        text=conversion.result,
        compared=conversion.compared,
        beside=tuple(f"{name} = {value}" for name, value in conversion.beside.items() if name != "start" or value),
    )


def _summarize_no_equivalent(notation: str, reason: NoEquivalent) -> FirstLine:
    """Why a notation has no text for a layout."""
    return refusal_line(
        fill_template("{notation} has no text for this layout", {"notation": notation}), reason.violations
    )


def _summarize_every_notation(every: EveryNotation, layout: Layout) -> FirstLine:
    """In how many notations there is a text, and tilescope's own."""
    return make_line(
        "{written} of {count} notations write this layout, {layout}, with equal addresses.",
        written=len(every.texts) - len(every.lacking),
        count=len(every.texts),
        layout=repr(layout),
    )


def _conversion(text: str, notation: str, beside: Mapping[str, object]) -> Conversion | NoEquivalent:
    """The text in that notation, or why there is none."""
    try:
        return Call(convert_layout, (text, notation), beside).run()
    except RuleError as refused:
        if any(violation.rule != "no-equivalent" for violation in refused.violations):
            raise
        return NoEquivalent(refused.violations)


def _asking_whole(asked: Asked) -> Asked:
    """A page has space for the whole tile beside shared memory."""
    return asked.saying(whole=True)


def _asking_picture(asked: Asked) -> Asked:
    """A page draws what is converted."""
    return asked.saying(picture=True)


def _convert_leads(asked: Asked, _: Answer) -> Leads:
    """The page that draws the layout beside shared memory, and the page that counts the cost of reading it."""
    query = {"text": asked["text"]}
    query |= {row.name: row.written(asked[row.name]) for row in LAYOUT_BESIDE if row.name in asked}
    leads = {"See it beside shared memory": address("layout", query)}
    if "shape" not in asked:  # which the form of the other page has no field for
        bank_query = {row.name: query[row.name] for row in (TEXT, ELEMENT_BITS) if row.name in query}
        leads["Count its bank conflicts"] = address("banks", {"given": "layout"} | bank_query)
    return {"texts": leads, "facts": leads}


_SAMPLES = (
    "Sw<3,4,3> o smem_ptr[16b](unset) o (_16,_64):(_64,_1)",
    "GMMA::Layout_K_SW128_Atom<half_t>",
    "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
    "(TileTransform((8, 64)), SwizzleTransform(128))",
    'Layout((64, 64), 16, swizzle="128B")',
    "((4,8),(2,2)):((32,1),(16,8))",
)
TEXT = Input("text", "", "Layout", "CuTe, Triton, Gluon, Mosaic, PTX, the driver's names, Layout(…).", is_long=True)
OTHER = Input("other", "--other", "Compare with", "a second layout of the same tile.", is_long=True)
DRAW = Question(
    name="draw",
    help="""Draw the layout TEXT: where each element of a tile is stored in shared memory, or which thread holds it.

    TEXT is in any notation that `tilescope convert` reads. A shape and stride without --bits is a thread-value layout:
    thread and value give an index of the tile, whose first index runs fastest; --shape draws which thread holds each element.
    """,
    inputs=(TEXT, replace(ELEMENT, label="Locate this element"), OTHER, *LAYOUT_BESIDE),
    answer=draw_answer,
    functions=(parse_layout,),
)
TO = Input(
    "notation",
    "--to",
    "The target notation",
    f"{', '.join(NOTATION)}.",
    unsaid="all",
    choices=tuple(NOTATION),
    is_strict=True,
    shown_as="NOTATION",
)
CONVERT = Question(
    name="convert",
    help="""Translate the layout TEXT into another notation, or into all of them; all addresses are compared.

    TEXT is what CuTe prints (Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1), S<3,4,3> o 0 o (8,64):(64,1)), an
    atom's name (GMMA::Layout_K_SW128_Atom<half_t>), a Triton encoding (#ttg.nvmma_shared<{…}>), Mosaic's transforms,
    CU_TENSOR_MAP_SWIZZLE_128B, PTX's .swizzle_mode and .swizzle_atomicity, or Layout((64, 64), 16, swizzle="128B").
    """,
    inputs=(
        TEXT,
        *LAYOUT_BESIDE,
        TO,
        Input("picture", "--draw", "Draw both layouts side by side", read=flag),
    ),
    answer=convert_answer,
    functions=(convert_layout,),
)
DRAW_FORM = PageForm(
    DRAW,
    inputs=(replace(TEXT, choices=_SAMPLES, is_open=True), OTHER, *LAYOUT_BESIDE),
    presets={"text": _SAMPLES[0], "major": "", "unit": "", "smem_address": "0x0"},
    limits={
        "threads and values": LARGEST_DRAWN_ELEMENTS,
        "elements": LARGEST_DRAWN_ELEMENTS,
        "elements compared": LARGEST_DRAWN_ELEMENTS,
    },
    asking=_asking_whole,
    walks=True,
)
CONVERT_FORM = PageForm(
    CONVERT,
    inputs=(
        replace(TEXT, choices=_SAMPLES[:-1], is_open=True),
        replace(TO, label="To", hint=""),
        *LAYOUT_BESIDE,
    ),
    presets={"text": _SAMPLES[0], "major": "", "unit": "", "smem_address": "0x0"},
    rare=frozenset(row.name for row in LAYOUT_BESIDE),
    limits={"elements": LARGEST_DRAWN_ELEMENTS},
    asking=_asking_picture,
    leads=_convert_leads,
)
QUESTIONS = (DRAW, CONVERT)
