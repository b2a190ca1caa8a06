"""The question about scale factors: where those of a block-scaled matrix lie."""

from __future__ import annotations

from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.scale_packing import SCALE_ATOM, SCALE_FORMATS
from tilescope.questions.call import Call
from tilescope.questions.first_lines.tensor_core import of_scales
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


def scales_answer(asked: Asked) -> Answer:
    """Where the scale factors of a block-scaled matrix lie."""
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
        factors, call, first=of_scales(factors, block), shown={"element": element, "block": block}, extra=extra
    )


SCALED_SHAPE = Input("shape", "", "Matrix", "rows x k, in elements.", read=tile)
SCALE_KIND = Input(
    "kind", "", "Kind", "mxfp8, mxfp4 or nvfp4, or a kind of tcgen05.mma.", choices=tuple(SCALE_FORMATS), is_open=True
)
SCALES = Question(
    name="mma scales",
    summary="Where the scale factors of mxfp8, mxfp4, nvfp4 lie.",
    help="""Draw where the scale factors of SHAPE (rows x k, such as 128x256) elements of KIND (mxfp8, mxfp4, nvfp4)
    lie.

    A block of 16 or 32 elements along k has one factor. In memory 128 rows x 4 factors are one piece of 512 bytes, as
    tcgen05.cp takes it; --element and --block say the byte of one factor.
    """,
    inputs=(
        SCALED_SHAPE,
        SCALE_KIND,
        Input(
            "element",
            "--element",
            "Say where the scale of this element of the matrix lies",
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
