"""The question about banks: the cost of access patterns on a tile in shared memory, and a layout without conflicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilescope.data_type import DataType
from tilescope.layout import Layout
from tilescope.notation import parse_layout, parse_modes
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.layout_questions import TEXT
from tilescope.questions.page import Fixes, PageForm
from tilescope.questions.question import Answer, Asked, Input, Question, flag, refuse
from tilescope.questions.shared_inputs import (
    ATOM_ORDER,
    ELEMENT_BITS,
    ELEMENT_TYPE,
    LAYOUT_BESIDE,
    LAYOUT_SHAPE,
    MAJOR,
    START,
    UNIT,
)
from tilescope.sentence import fill_template
from tilescope.smem.access import Access
from tilescope.smem.layout_search import FoundLayout, LayoutSearch, find_layouts
from tilescope.smem.report import TileReport, cured_report, layout_as_written, padded_report, tile_report
from tilescope.swizzle import SWIZZLE
from tilescope.written import number, rows_and_columns, tile

LARGEST_ACCESSED_ELEMENTS = 1 << 15  # of a tile on a page
TILE = Input("tile", "", "Tile", "in elements, rows x columns.", read=rows_and_columns)
TILE_SWIZZLE = Input("swizzle", "--swizzle", "Swizzle", "a mode, or xor:B,M,S.", choices=tuple(SWIZZLE), is_open=True)
PAD = Input(
    "pad", "--pad", "Padding in bytes", "after each row of an atom.", read=number, unsaid="rows as TMA writes them"
)
ATOM = Input("atom", "--atom", "Atom", "rows x columns that are stored as one piece.", read=tile)
TILE_MAJOR = replace(MAJOR, hint="with MN, the first extent of the tile is contiguous.")
TILE_OPTIONS = (TILE_SWIZZLE, PAD, ATOM, ATOM_ORDER, TILE_MAJOR)
LAYOUT_OPTIONS = (ELEMENT_BITS, LAYOUT_SHAPE, UNIT)
LAYOUT_TEXT = Input("text", "--layout", "The layout in any notation", "in place of tile and type.")
MAX_PADDING = Input("max_padding_bytes", "--max-padding", "Widest padding to try, in bytes", read=number)


_SEARCH = "--fix searches for a layout without conflicts."
_COST = "{name}: {verdict}, {wavefronts:wavefront}[[ where {ideal} would do]]"


def answer(asked: Asked) -> Answer:
    """The cost of the patterns on the current layout; with `fix`, also on the best layout that the search finds."""
    _refuse_misuse(asked)
    patterns: tuple[str, ...] = asked.get("patterns", ())
    if "tile" not in asked and "text" not in asked:  # addresses that the patterns define
        named = [Call(Access.named, (pattern,), name="") for pattern in patterns]
        call = Call(tile_report, (named,), name="report")
        report = call.run()
        return Answer(report, call, first=_summarize_banks(report))
    placing = _tile_call(asked) if "tile" in asked else _text_call(asked)
    layout = placing.run()
    asked.require_at_most("elements", layout.elements, argument="tile", fix="Use a smaller tile.")
    rows = layout.as_rows().shape
    named = [Call(Access.named, (pattern, rows, layout.element_bits), name="") for pattern in patterns]
    accesses = [access.run() for access in named]
    if "tv" in asked:
        accesses.append(Access.thread_values(parse_modes(asked["tv"]), layout, asked.get("op")))
    report = padded_report(accesses, layout, asked.get("pad", 0))
    call = Call(tile_report, (named, placing), name="report")
    if not asked.get("fix"):
        return Answer(report, call, first=_summarize_banks(report, may_search="tv" not in asked))
    return _with_search(asked, report, accesses, layout, call)


def _with_search(
    asked: Asked, report: TileReport, accesses: list[Access], layout: Layout, call: Call[TileReport]
) -> Answer:
    """The report beside that of the best layout, if that one is better."""
    searched = layout if "tile" in asked else layout.as_rows().shape
    options = {"tile": searched, "element_bits": layout.element_bits} | asked.options([MAX_PADDING])
    search = Call(find_layouts, (accesses,), options).run()
    cured = cured_report(accesses, layout, search.best.layout) if report.excess > search.best.excess else None
    return Answer(
        report,
        call,
        first=_summarize_banks(report, search),
        shown={"search": search, "cured": cured},
        extra={"search": search.to_dict()},
        is_yes=search.conflict_free,
    )


def _summarize_banks(report: TileReport, search: LayoutSearch | None = None, *, may_search: bool = False) -> FirstLine:
    """The cost of every pattern, and the layout without conflicts or how to search for it."""
    costs = [
        fill_template(
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
        return FirstLine(fill_template("{costs:; }.", {"costs": tuple(costs)}), advice)
    best = search.best
    if search.conflict_free:
        return make_line("{costs:; }. Without a conflict: {label}.", costs=tuple(costs), label=best.label)
    sentence = fill_template(
        "{costs:; }. No layout of {tried} tried is without a conflict; {label} has the least, {excess:wavefront} too "
        "many.",
        {"costs": tuple(costs), "tried": sum(search.tried.values()), "label": best.label, "excess": best.excess},
    )
    return FirstLine(sentence, " ".join(search.reasons) or fill_template("Use {label}.", {"label": best.label}))


def _text_call(asked: Asked) -> Call[Layout]:
    """The call that reads the text of a layout."""
    return Call(parse_layout, (asked["text"],), asked.options(LAYOUT_BESIDE), "layout")


def _tile_call(asked: Asked) -> Call[Layout]:
    """The layout of a tile with the atoms or the padding that TMA makes, where none are given."""
    rows, columns = asked["tile"]
    asked.require_at_most("elements", rows * columns, argument="tile", fix="Use a smaller tile.")
    bits = DataType.named(asked["data_type"]).smem_bits
    written = Call(layout_as_written, (asked["tile"], bits), asked.options((*TILE_OPTIONS, START))).run()
    options: dict[str, object] = {
        "atom": written.atom,
        "atom_order": written.atom_order,
        "padding_bytes": written.padding_bytes,
        "major": written.major,
        "start": written.start,
        "swizzle": written.swizzle.name,
    }
    if written.atom == written.shape:
        options.pop("atom")  # one atom is what a Layout has anyway
    return Call(Layout, (written.shape, written.element_bits), options, "layout")


def _refuse_misuse(asked: Asked) -> None:
    """Refuse what does not go together, and options that would count for nothing."""
    has_tile = "tile" in asked
    has_text = "text" in asked
    has_tv = "tv" in asked
    fix = asked.get("fix")
    refuse("patterns" not in asked and not has_tv, "say what is accessed: --pattern P, or --tv TEXT of a --layout.")
    refuse(has_text and has_tile, "--layout takes the place of the tile: give one of them.")
    refuse(has_tv and not has_text, "--tv is a thread-value layout of a tile: give the tile as --layout TEXT.")
    refuse(
        fix and (has_tv or not (has_tile or has_text)),
        "--fix needs a tile, such as 64x64 bf16, or a --layout, and patterns alone.",
    )
    refuse(has_tile and "data_type" not in asked, "a tile needs the type of its elements, such as 64x64 bf16.")
    refuse("op" in asked and not has_tv, "--op is the operation of --tv; a --pattern contains its operation.")
    refuse("max_padding_bytes" in asked and not fix, "--max-padding is for --fix, which tries paddings.")
    for row, reason in _out_of_place(has_tile=has_tile, has_text=has_text):
        refuse(row.name in asked, f"{row.option.split()[0]} {reason}")


def _out_of_place(*, has_tile: bool, has_text: bool) -> Iterator[tuple[Input, str]]:
    """Options without effect: those of a tile if a layout is passed, and the other way round."""
    if not has_tile:
        for row in TILE_OPTIONS:
            if row.name != "major":
                yield row, "describes a TILE such as 64x64 bf16; a --layout contains it in its text."
    if not has_text:
        for row in LAYOUT_OPTIONS:
            yield row, "is for a --layout; a TILE and its TYPE say it themselves."
    if not has_tile and not has_text:
        for row in (TILE_MAJOR, START):
            yield row, "needs a tile; patterns without one say their addresses."


def _asking_patterns(asked: Asked) -> Asked:
    """The patterns of a page, which has a field for each of two."""
    return asked.saying(patterns=tuple(asked[name] for name in ("pattern", "other") if asked.get(name)))


def _asking_cure(asked: Asked) -> Asked:
    """A page always searches for a fix."""
    return _asking_patterns(asked).saying(fix=True)


def _asking_cure_of_text(asked: Asked) -> Asked:
    return _asking_cure(asked).saying(text=asked.get("text", ""))  # an empty text is refused with its reason


def _fix_tile(asked: Asked, answer: Answer | None) -> Fixes:
    """The fields of a tile in the layouts that the search found."""
    tile: tuple[int, int] = asked["tile"]
    fixes = {}
    for candidate in _better_layouts(answer):
        layout = candidate.layout
        is_cut = layout.atom is not None and layout.atom != tile and not layout.padding_bytes
        fields = {
            "swizzle": layout.swizzle.name,
            "pad": str(layout.padding_bytes) if candidate.family == "padding" else "",
            "atom": ATOM.written(layout.atom) if is_cut else "",
        }
        if layout.atom_order is not None:
            fields["atom_order"] = layout.atom_order
        fixes[f"Apply: {candidate.label}"] = fields
    return fixes


def _fix_text(_: Asked, answer: Answer | None) -> Fixes:
    """The text of the layouts that the search found."""
    return {
        f"Apply: {candidate.label}": {"text": repr(candidate.layout), "element_bits": ""}
        for candidate in _better_layouts(answer)
    }


def _better_layouts(answer: Answer | None) -> tuple[FoundLayout, ...]:
    """The first layout of each family that costs less than the present one, and the best mode of the hardware."""
    search = None if answer is None else answer.shown.get("search")
    if answer is None or not isinstance(search, LayoutSearch) or not isinstance(answer.value, TileReport):
        return ()
    candidates = [*search.found] if search.hardware is None else [*search.found, search.hardware]
    first_of_family: dict[str, FoundLayout] = {}
    for candidate in candidates:
        if candidate.excess < answer.value.excess:
            first_of_family.setdefault(candidate.family, candidate)
    return tuple(first_of_family.values())


_ACCESSES = (
    "transpose",
    "st.b128 rows",
    "ld.b32 columns",
    "ldmatrix.x4",
    "ldmatrix.x4.trans",
    "stmatrix.x4",
    "cp.async",
    "mma.m16n8k16 A bf16",
)
BANKS = Question(
    name="banks",
    help="""Count the shared-memory wavefronts of patterns on a TILE such as 64x64 (rows x columns) of TYPE such as
    bf16.

    \b
    A pattern is one of
      "st.b128 rows", "ld.b32 columns"   lanes along a row or down a column
      "ld.b32 lanes 8x4"                 lanes as 8 rows x 4 pieces of 4 bytes
      transpose                          single elements, column by column
      ldmatrix.x4, ldmatrix.x2.trans     a walk over the tile
      stmatrix.x4                        an epilogue
      cp.async, "cp.async.4 columns"     a copy, 16 or 4 bytes a lane
      "mma.m16n8k16 A bf16"              registers loaded straight from the tile
                                         (A.trans: MN-major)
      "ld.b32: lane * 33 * 4"            an expression of lane; it needs no tile

    A TILE such as 2048 is one row. With --major MN the first extent is contiguous: 128x64 is stored as 64 rows of 128, and
    patterns walk these rows.
    """,
    inputs=(
        LAYOUT_TEXT,
        Input("tv", "--tv", "An access", "(thread, value) → index of the layout, as CuTe writes it."),
        Input("op", "--op", "What --tv loads or stores with", unsaid="the widest load"),
        *TILE_OPTIONS,
        *LAYOUT_OPTIONS,
        START,
        MAX_PADDING,
        replace(TILE, is_required=False),
        replace(ELEMENT_TYPE, is_required=False, choices=(), shown_as="[TYPE]"),
        Input("patterns", "--pattern", "An access; may be repeated", read=str, is_many=True, shown_as="P"),
        Input("fix", "--fix", "Search for layouts that serve all patterns", read=flag),
    ),
    answer=answer,
    functions=(layout_as_written, find_layouts),
)
_PATTERN = Input(
    "pattern", "", "Pattern", "an access of one warp, or a walk over the tile.", choices=_ACCESSES, is_open=True
)
_SECOND_PATTERN = Input("other", "", "And", "a second pattern on the same tile.", choices=_ACCESSES, is_open=True)
_LIMITS = {"elements": LARGEST_ACCESSED_ELEMENTS}
TILE_FORM = PageForm(
    BANKS,
    inputs=(TILE, ELEMENT_TYPE, _PATTERN, _SECOND_PATTERN, *TILE_OPTIONS, START),
    presets={
        "tile": "32x32",
        "data_type": "f32",
        "pattern": "transpose",
        "other": "st.b32 rows",
        "swizzle": "none",
        "smem_address": "0x0",
    },
    asking=_asking_cure,
    limits=_LIMITS,
    shown={"all_banks": True},
    fixes=_fix_tile,
)
LAYOUT_FORM = PageForm(
    BANKS,
    inputs=(
        replace(TEXT, option="--layout", hint="in any notation that the layout page reads."),
        ELEMENT_BITS,
        _PATTERN,
        _SECOND_PATTERN,
    ),
    presets={"text": "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)", "pattern": "ldmatrix.x4"},
    asking=_asking_cure_of_text,
    limits=_LIMITS,
    shown={"all_banks": True},
    fixes=_fix_text,
)
LANES_FORM = PageForm(
    BANKS,
    inputs=(Input("pattern", "", "Addresses", "an access, a colon, an expression of lane."),),
    presets={"pattern": "ld.b32: lane * 33 * 4"},
    asking=_asking_patterns,
    shown={"all_banks": True},
)
QUESTIONS = (BANKS,)
