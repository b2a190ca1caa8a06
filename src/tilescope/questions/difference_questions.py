"""The question how two tensor maps, or the maps of two logs, differ, and its page.

tilescope diff '… box 64x64 …' '… box 64x128 …'  →  box 64 x 64 against 64 x 128, and the words that hold it
tilescope diff before.log after.log              →  which maps are in both, which changed, which are in one alone
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Any

from tilescope.errors import Violation
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.map_inputs import page_of
from tilescope.questions.map_questions import describe_map
from tilescope.questions.opened_file import fields_of_dump
from tilescope.questions.page import Leads, OpenedField, PageForm
from tilescope.questions.question import Answer, Asked, Input, Question
from tilescope.sentence import fill_template
from tilescope.tensor_map import MapArguments, MapLog, MapLogDiff, TensorMapDiff
from tilescope.tensor_map.text.driver_answer import DRIVER_RESULT
from tilescope.tensor_map.text.pasted_source import MapSource
from tilescope.value import Value

_MOST_NAMED = 3  # arguments that differ or change


def diff_answer(asked: Asked) -> Answer:
    """How two maps or the maps of two logs differ; `one_source` and `other_source` are what they were read from."""
    source: MapSource = asked["one_source"]
    other_source: MapSource = asked["other_source"]
    if len(source.asked) > 1 or len(other_source.asked) > 1:
        return _log_difference(asked)
    refusals = {"first": _refusal(source), "second": _refusal(other_source)}
    if any(refusals.values()):
        return _refused_difference(asked, {side: broken for side, broken in refusals.items() if broken})
    call = _diff_call(asked, MapSource.tensor_map, TensorMapDiff.of, "tilescope.tensor_map.difference")
    difference = TensorMapDiff.of(source.tensor_map(), other_source.tensor_map())
    return Answer(difference, call, first=_summarize_difference(difference), is_yes=difference.same)


def _summarize_difference(difference: TensorMapDiff) -> FirstLine:
    """In what two maps differ."""
    if difference.same:
        return make_line("The maps are the same: {map}.", map=describe_map(difference.one))
    named = [
        fill_template(
            "{name} is {one} and {other}", {"name": argument.name, "one": argument.one, "other": argument.other}
        )
        for argument in difference.arguments[:_MOST_NAMED]
    ]
    return make_line(
        "The maps differ in {count:argument}: {named:, }[[ and {more} more]].",
        count=len(difference.arguments),
        named=tuple(named),
        more=len(difference.arguments) - len(named),
    )


def _log_difference(asked: Asked) -> Answer:
    """How the maps of two logs differ."""
    call = _diff_call(asked, log_of, MapLogDiff.of, "tilescope.tensor_map.text.log_difference")
    logs = MapLogDiff.of(log_of(asked["one_source"]), log_of(asked["other_source"]))
    return Answer(logs, call, first=FirstLine(logs.summary), shown={"title": "What differs"}, is_yes=logs.same)


def _refusal(source: MapSource) -> tuple[Violation, ...]:
    """Why the one map of a source is refused, by the rules of the hardware; nothing where it is accepted."""
    if source.blob is not None:
        return ()
    (arguments,) = source.asked
    broken = [violation for violation in arguments.check() if violation.severity == "error"]
    return (
        () if arguments.misnamed() else tuple(violation for violation in broken if violation.rule != DRIVER_RESULT.name)
    )


def _refused_difference(asked: Asked, refusals: Mapping[str, tuple[Violation, ...]]) -> Answer:
    """In what a map that the driver refuses differs from another one, and why it is refused."""
    answer = _log_difference(asked)
    side, broken = next(iter(refusals.items()))
    first = refusal_line(f"The {side} map is refused", broken)
    if len(refusals) > 1:
        first = refusal_line("Both maps are refused; the first", broken)
    violations = tuple(violation for group in refusals.values() for violation in group)
    return replace(answer, first=first, is_yes=False, violations=violations)


def _diff_call(asked: Asked, taken: Callable[..., object], compared: Callable[..., Value], module: str) -> Call[Value]:
    """The Python that reads both texts and compares what is taken from them."""
    sides: list[Call[Any]] = []
    for written, name in (("one", "first"), ("other", "second")):
        content = asked[written].encode("utf-8", errors="replace")
        source = Call(MapSource.read, (content,), name="", module="tilescope.tensor_map.text.pasted_source")
        if taken is log_of:
            sides.append(Call(log_of, (source,), name=name, module="tilescope.questions.difference_questions"))
        else:
            sides.append(Call(taken, (), name=name, receiver=source, module="builtins"))
    return Call(compared, tuple(sides), name="difference", module=module)


def log_of(source: MapSource) -> MapLog:
    """The maps of a log; the bytes of one map are a log of one line."""
    if source.blob is None:
        return MapLog.of(source)
    tensor_map = source.tensor_map()
    named = {name: getattr(tensor_map, name) for name in tensor_map.readers}
    arguments = replace(MapArguments.of({"kind": tensor_map.kind, **named}), lines=(1,))
    return MapLog.of(MapSource(None, (arguments,)))


DIFF = Question(
    name="diff",
    help="""Compare two tensor maps: arguments, what follows from them, and the words of their descriptors.

    ONE and OTHER are files or texts with JSON, with a dump of arguments, or with the bytes or words of a descriptor; -
    is stdin, FILE:3 the third line of a file that holds one map a line. Logs of several maps are compared map by map,
    whatever their addresses: how many are in both, which changed and how, which are in one alone.
    """,
    inputs=(Input("one", read=str), Input("other", read=str)),
    answer=diff_answer,
)


def _reading_texts(asked: Asked) -> Asked:
    """The maps that the two fields show; a command reads its two words so."""
    read = {name: MapSource.read(asked[name].encode("utf-8", errors="replace")) for name in ("one", "other")}
    return asked.saying(one_source=read["one"], other_source=read["other"])


def _page_answer(asked: Asked) -> Answer:
    return DIFF.answer(_reading_texts(asked))


def _diff_leads(_: Asked, answer: Answer) -> Leads:
    """The pages of both maps."""
    difference = answer.value
    if not isinstance(difference, TensorMapDiff):
        return {}
    leads = {"Check the first": page_of(difference.one), "Check the second": page_of(difference.other)}
    return {"arguments": leads, "words": leads} if difference.same else {"arguments": leads}


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
    answer=_page_answer,
    leads=_diff_leads,
    opens={"one": OpenedField(fields_of_dump), "other": OpenedField(fields_of_dump)},
)
QUESTIONS = (DIFF,)
