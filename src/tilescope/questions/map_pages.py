"""The pages that compare two tensor maps, and that make the map of a convolution."""

from __future__ import annotations

from dataclasses import replace
from importlib.resources import files

from tilescope.questions.inputs import ELEMENT_TYPE
from tilescope.questions.maps import CONV, CONV_OPTIONS, DIFF, FILTERS, IMAGE, conv_answer, written_map
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, in_words
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import AnyMap, Convolution, TensorMapDiff
from tilescope.tensor_map.source import MapSource

LARGEST_COPY_BYTES = 1 << 17  # of the first copy, which the page draws
_LINES = 128  # of shared memory, drawn on the page
_EXACT = (32, 64)  # columns and rows of the tensor that are drawn one by one


def _reading_texts(asked: Asked) -> Asked:
    """The maps that the two fields show; a command reads its two words so."""
    read = {name: MapSource.read(asked[name].encode("utf-8", errors="replace")) for name in ("one", "other")}
    return asked.saying(one_source=read["one"], other_source=read["other"])


def _diff_answer(asked: Asked) -> Answer:
    return DIFF.answer(_reading_texts(asked))


def _diff_leads(_: Asked, answer: Answer) -> Leads:
    """The pages of both maps."""
    difference = answer.value
    if not isinstance(difference, TensorMapDiff):
        return {}
    leads = {"Check the first": _page_of(difference.one), "Check the second": _page_of(difference.other)}
    return {"arguments": leads, "words": leads} if difference.same else {"arguments": leads}


def _page_of(tensor_map: AnyMap) -> str:
    """The page of a map, with its arguments in the fields."""
    given = {name: getattr(tensor_map, name) for name in tensor_map.readers}
    return address("tensor-map", {"kind": tensor_map.kind} | written_map(given))


def _conv_answer(asked: Asked) -> Answer:
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
    given = {name: getattr(convolution.tensor_map, name) for name in convolution.tensor_map.readers}
    copied = {"kind": convolution.tensor_map.kind} | written_map(given)
    copied |= {"coords": in_words(convolution.coords(0, 0)), "offsets": in_words(offsets)}
    leads = {
        "See its first copy": address("load", copied),
        "See the map's bytes": _page_of(convolution.tensor_map),
    }
    return {"facts": leads}


def _sample(name: str) -> str:
    return (files("tilescope.questions") / "samples" / name).read_text("utf-8").rstrip()


_SHOWN_AS = (
    "JSON, what CUTLASS, TileLang or Triton print, a call in C++, words from cuda-gdb, or hex; or a log of several."
)
_ONE_INPUT, _OTHER_INPUT = DIFF.inputs
DIFF_FORM = PageForm(
    DIFF,
    inputs=(
        replace(_ONE_INPUT, label="One map", hint=_SHOWN_AS, is_long=True),
        replace(_OTHER_INPUT, label="The other", hint="the same ways.", is_long=True),
    ),
    presets={"one": _sample("diff_one.json"), "other": _sample("diff_other.json")},
    answer=_diff_answer,
    leads=_diff_leads,
)
_SWIZZLED = tuple(
    replace(row, choices=tuple(SWIZZLE), is_open=True) if row.name == "swizzle" else row for row in CONV_OPTIONS
)
CONV_FORM = PageForm(
    CONV,
    inputs=(IMAGE, FILTERS, ELEMENT_TYPE, *_SWIZZLED),
    presets={"image": "2x16x16x64", "filters": "128x3x3", "data_type": "bf16", "pad": "1", "pixels_per_column": "64"},
    rare=frozenset(["dilation", "channels_per_pixel", "pixels_per_column", "swizzle", "arch"]),
    answer=_conv_answer,
    walks=True,
    leads=_conv_leads,
)
