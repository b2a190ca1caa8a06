"""The question about tensor memory: the place of a matrix, the thread that loads an element, and which matrices fit together."""

from __future__ import annotations

from tilescope.mma.datapath import known_datapath
from tilescope.mma.tmem_address import CELL_BITS, QUARTER_LANES, TMEM_COLUMNS
from tilescope.mma.tmem_budget import TmemBudget, tmem_budget
from tilescope.mma.tmem_layout import TmemLayout, tmem_layout
from tilescope.mma.tmem_load import LoadedElement, loaded_element
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line, shared_bits
from tilescope.questions.question import Answer, Asked, Input, Question, flag, in_words, refuse
from tilescope.questions.tmem_parts import named_layouts, tmem_parts
from tilescope.sentence import fill_template
from tilescope.written import number, pair

TMEM_FORM = (
    Input(
        "cta_group",
        "--cta-group",
        "Blocks that multiply together",
        "2 for a pair: M and N are the pair's.",
        read=number,
    ),
    Input("ws", "--ws", "The .ws instruction (M 32, 64, 128)", read=flag),
    Input("sparse", "--sparse", "The .sp instruction", read=flag),
)
TMEM_OPTIONS = (
    *TMEM_FORM,
    Input("data_type", "--type", "The matrix's own type", unsaid="f32 for D, bf16 for A"),
    Input("address", "--address", "Address of its first cell", "lane << 16 | column.", read=number),
)


def tmem_answer(asked: Asked) -> Answer:
    """The place of D or A in tensor memory; with `budget`, whether several matrices fit together."""
    if "budget" in asked:
        return _budget_answer(asked)
    refuse(
        "m" not in asked, "Give --m M with --n N or --k K; or --budget D:128x256,A:128x64, the matrices that share it."
    )
    m: int = asked["m"]
    n: int | None = asked.get("n")
    k: int | None = asked.get("k")
    if n is None and k is None:
        Call(known_datapath, (m,), asked.options(TMEM_FORM)).run()  # a wrong m is reported first: no --n would help
    what = "--n N for the accumulator D, or --k K for A"
    refuse(n is None and k is None, f"Give {what} (and --metadata for its metadata).")
    refuse(n is not None and k is not None, f"Give one of --n and --k: {what}.")
    refuse(asked.get("metadata") and k is None, "Give --k K in place of --n: metadata belong to A.")
    if k is None:
        operand = "D"
    else:
        operand = "metadata" if asked.get("metadata") else "A"
    call = Call(tmem_layout, ((m, n or k or 0),), {"operand": operand} | asked.options(TMEM_OPTIONS), "matrix")
    matrix = call.run()
    element = asked.get("element")
    extra: dict[str, object] = {}
    loaded: LoadedElement | None = None
    if element is not None:
        extra = {"element": list(element), "place": matrix.place(*element)._asdict()}
    if "load" in asked:
        refuse(element is None, "--ld says who gets one element by a load: give it with --element ROW,COLUMN.")
        row, column = asked["element"]
        loaded = loaded_element(matrix, row, column, asked["load"])
        extra["loaded"] = loaded._asdict() | {"address": hex(loaded.address)}
    return Answer(
        matrix,
        call,
        first=_summarize_tmem(matrix, element, loaded),
        shown={"element": element, "loaded": loaded},
        extra=extra,
    )


def _budget_answer(asked: Asked) -> Answer:
    """Whether matrices fit into tensor memory together."""
    refuse(
        any(name in asked for name in ("m", "n", "k", "metadata", "data_type", "address", "element", "load")),
        "--budget lists whole matrices, and places them; --cta-group, --ws and --sparse alone go with it.",
    )
    written = Call(tmem_parts, (in_words(asked["budget"]),), name="", module="tilescope.questions.tmem_parts")
    named = Call(
        named_layouts, (written, asked.options(TMEM_FORM)), name="parts", module="tilescope.questions.tmem_parts"
    )
    call = Call(tmem_budget, (named,), name="budget", module="tilescope.mma.tmem_budget")
    budget = call.run()
    return Answer(
        budget,
        call,
        first=_summarize_budget(budget),
        extra={"alloc_columns": budget.alloc_columns},
        is_yes=budget.fits,
        violations=budget.violations,
    )


def _summarize_tmem(matrix: TmemLayout, element: tuple[int, int] | None, loaded: LoadedElement | None) -> FirstLine:
    """The place of a matrix or one of its elements in tensor memory, and the thread that loads the element."""
    first, second = matrix.names[:2]
    if element is None:
        return make_line(
            "{operand} of {shape: x } ({names: x }) takes {columns:column} from {first_column} on and {lanes} lanes of "
            "tensor memory[[: layout {datapath}]].",
            operand=matrix.operand,
            shape=matrix.matrix,
            names=(first, second),
            columns=matrix.columns,
            first_column=matrix.base.column,
            lanes=len(matrix.lanes),
            datapath=matrix.datapath,
        )
    place = matrix.place(*element)
    element_values = {"first": first, "row": element[0], "second": second, "column": element[1]}
    block = f"block {place.cta} of the pair" if matrix.ctas > 1 else ""
    if loaded is not None:
        return make_line(
            "Element ({first} {row}, {second} {column}) is loaded to warp {warp}, lane {lane}, register {register}"
            "[[, bits {bits: to }]][[ of {block}]], by {instruction} at {address:#010x}.",
            warp=loaded.warp,
            lane=loaded.lane,
            register=loaded.register,
            bits=shared_bits(loaded.bit, matrix.element_bits, CELL_BITS),
            block=block,
            instruction=loaded.instruction,
            address=loaded.address,
            **element_values,
        )
    return make_line(
        "Element ({first} {row}, {second} {column}) is in {lanes_word} {lanes:and}, column {place_column}[[, bits {bits: to }]]"
        "[[ of {block}]]: address {address:#010x}, which warp {warp} of four reaches.",
        lanes_word="lane" if len(place.lanes) == 1 else "lanes",
        lanes=place.lanes,
        place_column=place.column,
        bits=shared_bits(place.bit, matrix.element_bits, CELL_BITS),
        block=block,
        address=place.lanes[0] << 16 | place.column,
        warp=place.lanes[0] // QUARTER_LANES,
        **element_values,
    )


def _summarize_budget(budget: TmemBudget) -> FirstLine:
    """Whether the parts of a kernel fit into tensor memory together."""
    shared = sum(1 for part in budget.parts if part.lane)
    facts = {
        "parts": len(budget.parts),
        "columns": budget.columns,
        "most": TMEM_COLUMNS,
        "shared": shared,
        "alloc": budget.alloc_columns,
    }
    if budget.fits:
        return make_line(
            "{parts:part} fit: {columns} of {most} columns[[, {shared} of them in free lanes of another's columns]]; "
            "request {alloc} from tcgen05.alloc.",
            **facts,
        )
    sentence = fill_template("{parts:part} do not fit: {columns} columns, tensor memory has {most}.", facts)
    return FirstLine(sentence, budget.violations[0].fix)


TMEM_M = Input("m", "--m", "Rows; with --cta-group 2 the pair's", read=number, shown_as="M")
TMEM_N = Input("n", "--n", "Columns of the accumulator D", read=number)
TMEM_K = Input("k", "--k", "Instead of --n", "A, or with --metadata its metadata, of K elements along k.", read=number)
TMEM_METADATA = Input("metadata", "--metadata", "With --k, where the metadata of a sparse A is stored", read=flag)
TMEM_ELEMENT = Input("element", "--element", "Locate this element", "row,column.", read=pair)
TMEM_LOAD = Input(
    "load", "--ld", "With --element, who gets it", "by a tcgen05.ld such as 32x32b.x32.", shown_as="SHAPE"
)
TMEM_BUDGET = Input(
    "budget",
    "--budget",
    "Whether these fit together",
    "D, A, metadata: MxN[:TYPE][*COUNT]; SFA, SFB: ROWSxK:KIND.",
    read=tmem_parts,
    shown_as="PART,…",
)
TMEM = Question(
    name="mma tmem",
    summary="Tensor memory: where D or A is, who loads it, what fits.",
    help="""Draw where D (with --n) or A (with --k) is stored in tensor memory: lanes by columns, with the warps' quarters.

    --ld names the warp, lane and register that get the element. --budget adds up columns: accumulators that use half of
    the lanes (m 64) share theirs.
    """,
    inputs=(
        TMEM_N,
        TMEM_K,
        *TMEM_FORM,
        TMEM_METADATA,
        *TMEM_OPTIONS[len(TMEM_FORM) :],
        TMEM_ELEMENT,
        TMEM_LOAD,
        TMEM_BUDGET,
        TMEM_M,
    ),
    answer=tmem_answer,
    functions=(tmem_layout,),
)
QUESTIONS = (TMEM,)
