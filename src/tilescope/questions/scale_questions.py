"""The question about the places of scale factors of a block-scaled matrix."""

from __future__ import annotations

from tilescope.mma.scale_format import SCALE_FORMATS
from tilescope.mma.scale_layout import ScaleLayout, scale_layout
from tilescope.mma.scale_packing import SCALE_ATOM
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.question import Answer, Asked, Input, Question, refuse
from tilescope.rule import ARGUMENT_RANGE
from tilescope.written import pair, tile

SCALES_ATOM = Input(
    "atom",
    "--atom",
    "Layout in memory",
    "128x4 for cuBLAS and CUTLASS; 8x4 for TensorRT-LLM's and FlashInfer's kernels of few rows.",
    choices=tuple(SCALE_ATOM),
)


_SCALE_IN_MEMORY = (
    "The scale of row {row}, block {block} (k {first} to {last}) is byte {offset} ({offset:#x}) in memory"
)
TENSOR_CORE_ATOM = "128x4"  # in which tcgen05 finds scale factors


def scales_answer(asked: Asked) -> Answer:
    """The places of the scale factors of a block-scaled matrix."""
    rows, k = asked["shape"]
    asked.require_at_most("scaled elements", rows * k, argument="shape", fix="Use fewer rows, or a smaller k.")
    call = Call(scale_layout, (rows, k, asked["kind"]), asked.options([SCALES_ATOM]), "scales")
    factors = call.run()
    element: tuple[int, int] | None = asked.get("element")
    block: tuple[int, int] | None = asked.get("block")
    refuse(element is not None and block is not None, "Give one of --element ROW,K and --block ROW,BLOCK.")
    if element is not None:
        row, column = element
        if not (0 <= row < rows and 0 <= column < k):
            last = f"({rows - 1}, {k - 1})"
            raise ARGUMENT_RANGE.error(
                argument="element", found=f"element = {element}", limit=f"(0, 0) to {last}", fix=f"Use at most {last}."
            )
        block = row, column // factors.format.block
    extra: dict[str, object] = {}
    if element is not None:
        extra["element"] = list(element)
    elif block is not None:
        extra["row"] = block[0]
    if block is not None:
        extra["block"] = block[1]
        extra["offset"] = int(factors.offset(*block))
    return Answer(
        factors, call, first=_summarize_scales(factors, block), shown={"element": element, "block": block}, extra=extra
    )


def _summarize_scales(scales: ScaleLayout, block: tuple[int, int] | None) -> FirstLine:
    """The place of the scale of a (row, block), or the size of all scales."""
    if block is None:
        return make_line(
            "{shape: x } scale factors of {scale_type}, one for {width} elements of k, take {size_bytes} bytes: {atoms: x } "
            "atoms of {atom}.",
            shape=scales.shape,
            scale_type=scales.format.scale_type,
            width=scales.format.block,
            size_bytes=scales.size_bytes,
            atoms=scales.atoms,
            atom=scales.atom.replace("x", " x "),
        )
    row, number = block
    width = scales.format.block
    in_memory = {
        "row": row,
        "block": number,
        "first": number * width,
        "last": number * width + width - 1,
        "offset": int(scales.offset(row, number)),
    }
    if scales.atom != TENSOR_CORE_ATOM:  # how others reach tensor memory is not documented
        return make_line(f"{_SCALE_IN_MEMORY}.", **in_memory)
    place = scales.tensor_memory("A").place(row, number)
    return make_line(
        f"{_SCALE_IN_MEMORY}; in tensor memory it is in lanes {{lanes:and}}, column {{column}}, byte {{byte}}.",
        **in_memory,
        lanes=place.lanes,
        column=place.column,
        byte=place.bit // 8,
    )


SCALED_SHAPE = Input("shape", "", "Matrix", "rows x k, in elements.", read=tile)
SCALE_KIND = Input(
    "kind", "", "Kind", "mxfp8, mxfp4 or nvfp4, or a kind of tcgen05.mma.", choices=tuple(SCALE_FORMATS), is_open=True
)
SCALES = Question(
    name="mma scales",
    summary="Where the scale factors of mxfp8, mxfp4 and nvfp4 are stored.",
    help="""Draw where the scale factors of SHAPE (rows x k, such as 128x256) elements of KIND (mxfp8, mxfp4, nvfp4)
    are stored.

    A block of 16 or 32 elements along k has one factor. In memory 128 rows x 4 factors form an atom of 512 bytes,
    which tcgen05.cp copies; --element and --block locate one factor.
    """,
    inputs=(
        SCALED_SHAPE,
        SCALE_KIND,
        Input(
            "element",
            "--element",
            "Locate the scale factor of this element of the matrix",
            "row,k, in elements.",
            read=pair,
        ),
        Input("block", "--block", "The same by block", "row,block, as ScaleLayout.offset takes them.", read=pair),
        SCALES_ATOM,
    ),
    answer=scales_answer,
    functions=(scale_layout,),
)
QUESTIONS = (SCALES,)
