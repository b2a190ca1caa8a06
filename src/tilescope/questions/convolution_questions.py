"""The question which im2col map a convolution needs, and the page that asks it.

    tilescope conv 2x16x16x64 128x3x3 bf16 --pad 1

An image of 2 x 16 x 16 pixels with 64 channels, under filters of 3 x 3 taps with a border of one pixel: lower corner (-1, -1),
upper corner (-1, -1), and an offset for each of the nine taps.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilescope.arithmetic import ceil_div
from tilescope.errors import TensorMapError
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.map_inputs import encode_call, page_fields, page_of
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, Input, Question, defaults, in_words
from tilescope.questions.shared_inputs import ELEMENT_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import Convolution, MapReport, TensorMap
from tilescope.tensor_map.convolution import PASSES
from tilescope.written import extents, number, numbers

LARGEST_COPY_BYTES = 1 << 17  # of the first copy, which the page draws
_LINES = 128  # of shared memory, drawn on the page
_EXACT = (32, 64)  # columns and rows of the tensor that are drawn one by one
IMAGE = Input("image", "", "Image", "NxHxWxC, channels last; NxWxC or NxDxHxWxC too.", read=extents)
FILTERS = Input("filters", "", "Filter", "its count and taps: KxRxS; KxS or KxTxRxS too.", read=extents)
CONV_OPTIONS = (
    Input("direction", "--direction", "Direction", choices=PASSES),
    Input("pad", "--pad", "Padding", "one number, or one for each dimension, outermost (D, H) first.", read=numbers),
    Input("stride", "--stride", "Stride", "in the order of the padding.", read=numbers),
    Input("dilation", "--dilation", "Dilation", "in the order of the padding.", read=numbers),
    Input(
        "channels_per_pixel",
        "--channels",
        "Channels of one copy",
        read=number,
        unsaid="a span of the widest swizzle",
    ),
    Input("pixels_per_column", "--pixels", "Pixels of one copy", read=number),
    Input("swizzle", "--swizzle", "Swizzle", unsaid="the widest that divides the channels"),
    Input("arch", "--arch", "Architecture", unsaid=str(defaults(TensorMap)["arch"])),
)


def conv_answer(asked: Asked) -> Answer:
    """The map of a convolution, or why there is none."""
    call = Call(
        Convolution.of,
        (asked["image"], asked["filters"], asked["data_type"]),
        asked.options(CONV_OPTIONS),
        "convolution",
        module="tilescope.tensor_map",
    )
    try:
        convolution = call.run()
    except TensorMapError as error:
        report = MapReport(False, error.violations, None)
        if report.not_understood:
            raise  # exit status 2, not 1
        return Answer(
            report,
            call,
            first=refusal_line("No such map", error.violations),
            is_yes=False,
            violations=error.violations,
            told_in="findings",
        )
    encode = encode_call(convolution.tensor_map)
    return Answer(
        convolution,
        call,
        first=_summarize_convolution(convolution),
        shown={"copy": asked.get("copy")},
        extra={"encode": encode},
        violations=convolution.tensor_map.findings,
        told_in="findings",
        code=encode,
    )


def _summarize_convolution(convolution: Convolution) -> FirstLine:
    """The map that a convolution needs."""
    a = convolution.tensor_map
    columns = ceil_div(prod(convolution.output_shape), a.pixels_per_column)
    slices = ceil_div(a.dims[0], a.channels_per_pixel)
    return make_line(
        "{direction} needs an im2col map with lower corner {lower} and upper corner {upper}: {copies:copy|copies} of "
        "{pixels} pixels x {channels} channels, {size} bytes each.",
        direction=convolution.direction.capitalize(),
        lower=a.lower_corner,
        upper=a.upper_corner,
        copies=columns * slices * len(convolution.taps),
        pixels=a.pixels_per_column,
        channels=a.channels_per_pixel,
        size=a.smem_bytes,
    )


CONV = Question(
    name="conv",
    help="""Make the im2col map of a convolution, with the corners, the strides and the offsets of every filter tap.

    The image is NxWxC, NxHxWxC or NxDxHxWxC, channels last; the filter is its count and taps: KxS, KxRxS, KxTxRxS.

    wgrad's map is that of the activations.
    """,
    inputs=(IMAGE, FILTERS, ELEMENT_TYPE, *CONV_OPTIONS),
    answer=conv_answer,
    functions=(Convolution.of,),
)


def _page_answer(asked: Asked) -> Answer:
    """The map, with its first copy drawn where that is small enough."""
    answer = conv_answer(asked)
    convolution = answer.value
    if not isinstance(convolution, Convolution) or convolution.tensor_map.smem_bytes > LARGEST_COPY_BYTES:
        return answer
    return replace(answer, shown={"copy": True, "lines": _LINES, "exact": _EXACT})


def _conv_leads(_: Asked, answer: Answer) -> Leads:
    """The map itself, and its first copy."""
    convolution = answer.value
    if not isinstance(convolution, Convolution):
        return {}
    offsets = convolution.taps[0][1]
    first_copy = {"coords": in_words(convolution.coords(0, 0)), "offsets": in_words(offsets)}
    leads = {
        "See its first copy": address("load", page_fields(convolution.tensor_map) | first_copy),
        "See the map's bytes": page_of(convolution.tensor_map),
    }
    return {"facts": leads}


def _page_input(row: Input) -> Input:
    """An option as a field of the page, which lists the swizzles."""
    return replace(row, choices=tuple(SWIZZLE), is_open=True) if row.name == "swizzle" else row


CONV_FORM = PageForm(
    CONV,
    inputs=(IMAGE, FILTERS, ELEMENT_TYPE, *map(_page_input, CONV_OPTIONS)),
    presets={"image": "2x16x16x64", "filters": "128x3x3", "data_type": "bf16", "pad": "1", "pixels_per_column": "64"},
    rare=frozenset(["dilation", "channels_per_pixel", "pixels_per_column", "swizzle", "arch"]),
    answer=_page_answer,
    walks=True,
    leads=_conv_leads,
)
QUESTIONS = (CONV,)
