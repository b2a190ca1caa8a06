"""The question whether the driver takes a tensor map, or each map of a log; and the nearest map that it takes.

tilescope check --type bf16 --dims 64,64 --box 64,300         refused: box[1] = 300 elements; 1 to 256 elements
tilescope check --fix --type bf16 --dims 64,64 --box 64,300   the call with box (64, 256), and what was changed
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilescope.errors import TensorMapError, Violation
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.map_inputs import (
    DESCRIBED_MAP,
    MAP_FIELDS,
    MAP_PRESETS,
    asking_map,
    encode_call,
    fix_map,
    map_call,
    map_taken,
    read_map,
    written_map,
)
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, Input, Question, flag
from tilescope.sentence import fill_template
from tilescope.tensor_map import AnyMap, MapArguments, MapLog, MapReport, TensorMap
from tilescope.tensor_map.map_arguments import MAP_KINDS, ArgumentChange
from tilescope.tensor_map.text.driver_answer import DRIVER_RESULT
from tilescope.tensor_map.text.map_log import lines_in_words
from tilescope.tensor_map.text.pasted_source import MapSource

_KIND = {"tiled": "tiled", "im2col": "im2col", "wide": "im2col-wide"}
_MAP = (
    "{kind} map of {dims: x } {data_type}[[, box {box: x }]][[, {pixels} pixels of {channels} channels]]"
    "[[, interleave {interleave}]][[, swizzle {swizzle}]]"
)
_MOST_NAMED = 3  # arguments that differ or change


def check_answer(asked: Asked) -> Answer:
    """The verdict on a map, or on each map of a log; for a log without maps, the answer of `explain`."""
    if "log" in asked:
        from tilescope.questions import topic_questions  # late: most logs have maps

        return topic_questions.answer(asked.saying(topic=(asked["log"],)))
    maps = read_map(asked)
    if maps.is_log:
        return _log_answer(maps, is_fixed=bool(asked.get("fix")))
    (report,) = maps.reports()
    if report.not_understood:
        raise TensorMapError(report.not_understood)  # exit status 2, not 1
    if asked.get("fix"):
        fixed = _repair_answer(maps.asked[0]) if maps.asked else FixedMap(maps.tensor_map(), ())
        return Answer(
            fixed.tensor_map,
            first=_summarize_fix(fixed.tensor_map, fixed.changes),
            extra=_fixed_facts(fixed),
            text=_fixed_text(fixed),
        )
    return Answer(
        report,
        map_call(maps),
        first=_summarize_report(report),
        shown={"asked": maps.asked[0].given if maps.asked else {}},
        is_yes=report.accepted,
        violations=report.violations,
        told_in="findings",
    )


def _log_answer(maps: MapSource, *, is_fixed: bool) -> Answer:
    """The verdicts on the maps of a log; fixed, the calls of those that are refused."""
    log = MapLog.of(maps)
    if all(logged.verdict == "not understood" for logged in log.maps):
        raise TensorMapError([broken for logged in log.maps for broken in logged.violations])  # exit status 2, not 1
    if is_fixed:
        return _fixed_log(log)
    title = "The maps of the log" if log.accepted else "The maps of the log, refused ones first"
    return Answer(log, first=_summarize_log(log), shown={"title": title}, is_yes=log.accepted)


class FixedMap(NamedTuple):
    """A map with the fixes of the rules that it broke, and what was changed."""

    tensor_map: AnyMap
    changes: tuple[ArgumentChange, ...]


def _fixed_log(log: MapLog) -> Answer:
    """The encode calls of the refused maps with the fixes of the broken rules, and what was changed."""
    refused = log.with_verdict("refused")
    texts = [f"// {log.summary}"]
    facts: list[dict[str, object]] = []
    for logged in refused:
        where = lines_in_words(logged.lines)
        try:
            fixed = _repair_answer(logged.asked)
        except TensorMapError as error:
            texts += [
                f"// {where}: no change that a rule names fixes it",
                *(f"//   {violation}" for violation in error.violations),
            ]
            continue
        texts += [f"// {where}", _fixed_text(fixed)]
        facts.append({"lines": list(logged.lines), "tensor_map": fixed.tensor_map.to_dict()} | _fixed_facts(fixed))
    is_yes = len(facts) == len(log.maps) - len(log.with_verdict("accepted"))
    return Answer(log, first=_summarize_log(log), extra={"fixed": facts}, is_yes=is_yes, text="\n".join(texts))


def _repair_answer(asked: MapArguments) -> FixedMap:
    repaired = asked.repaired()
    return FixedMap(repaired.tensor_map(), tuple(asked.changes_to(repaired)))


def _fixed_facts(fixed: FixedMap) -> dict[str, object]:
    """Additional JSON of a map that was fixed."""
    return {"changes": [str(change) for change in fixed.changes], "encode": encode_call(fixed.tensor_map)}


def _fixed_text(fixed: FixedMap) -> str:
    """What was changed, and the calls in C++ and Python."""
    from tilescope.emitter import snippet

    lines = [f"// {_summarize_fix(fixed.tensor_map, fixed.changes).sentence}"]
    lines += [f"// changed {change}" for change in fixed.changes] or ["// nothing changed: no rule is broken"]
    lines.append(encode_call(fixed.tensor_map))
    lines.append(snippet(fixed.tensor_map, "encode-bindings"))
    return "\n".join(lines)


def _summarize_report(report: MapReport) -> FirstLine:
    """Whether the driver takes a map."""
    errors = [violation for violation in report.violations if violation.severity == "error"]
    if report.tensor_map is None:
        reasons = [violation for violation in errors if violation.rule != DRIVER_RESULT.name]
        return refusal_line("Refused", reasons or errors)
    if not report.accepted:
        return refusal_line("No rule is broken, yet the driver refused the map", errors)
    warnings = [violation for violation in report.violations if violation.severity == "warning"]
    return make_line(
        "Accepted[[, with {warnings:warning}]]: {map}; a copy transfers {transaction_bytes} bytes[[. {first}]].",
        warnings=len(warnings),
        map=describe_map(report.tensor_map),
        transaction_bytes=report.tensor_map.transaction_bytes,
        first=_first_warning(warnings),
    )


def _first_warning(warnings: Sequence[Violation]) -> str:
    if not warnings:
        return ""
    return fill_template("{found}; {limit}", {"found": warnings[0].found, "limit": warnings[0].limit})


def _summarize_log(log: MapLog) -> FirstLine:
    """How many maps of a log are refused, and on which lines; the advice is about the first of them."""
    refused_maps = [*log.with_verdict("refused"), *log.with_verdict("not understood")]
    if not refused_maps:
        return FirstLine(log.summary)
    first = refused_maps[0]
    errors = [violation for violation in first.violations if violation.severity == "error"]
    reason = next((violation for violation in errors if violation.rule != DRIVER_RESULT.name), errors[0])
    facts = {"line": first.line, "found": reason.found, "limit": reason.limit, "fix": reason.fix}
    return FirstLine(log.summary, fill_template("Line {line}: {found}; {limit}. {fix}", facts))


def _summarize_fix(tensor_map: AnyMap, changes: Sequence[ArgumentChange]) -> FirstLine:
    """What was changed in a map that was refused."""
    return make_line(
        "Accepted[[ with {count:change}: {named:; }]][[ and {more} more]]: {map}.",
        count=len(changes),
        named=tuple(map(str, changes[:_MOST_NAMED])),
        more=max(0, len(changes) - _MOST_NAMED),
        map=describe_map(tensor_map),
    )


def describe_map(a: AnyMap) -> str:
    """A map in a few words.

    >>> from tilescope.tensor_map import TensorMap
    >>> describe_map(TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B"))
    'tiled map of 64 x 64 bfloat16, box 64 x 8, swizzle 128B'
    """
    is_tiled = a.subject == "tiled"
    facts = {
        "kind": _KIND[a.subject],
        "dims": a.dims,
        "data_type": a.data_type.name,
        "box": getattr(a, "box", ()) if is_tiled else (),
        "pixels": 0 if is_tiled else a.visited_elements[-1],
        "channels": 0 if is_tiled else a.inner_elements,
        "interleave": a.interleave.name if a.interleave.slice_bytes else "",
        "swizzle": a.swizzle.name if a.swizzle.bits else "",
    }
    return fill_template(_MAP, facts)


CHECK = Question(
    name="check",
    help="""Check whether the driver accepts a tensor map, and list every broken rule.

    The map is described by options, or by SOURCE: a file or text with JSON, with the arguments that CUTLASS, TileLang,
    Triton and others print when a map fails, with a call of the driver in C++ or Python, or with the words of a
    descriptor; - is stdin. --from-json FILE takes only JSON. Options override SOURCE.

    A log may be of any length and hold any number of maps. The answer begins with the number of refused maps and
    their lines; the refused maps follow in full, the others in one line each. FILE:3 is the third line of a file that
    holds one map a line, as watch writes it.
    """,
    inputs=(
        Input(
            "fix",
            "--fix",
            "Print the call of the nearest map that is accepted, in C++ and Python, and what was changed",
            read=flag,
        ),
        *DESCRIBED_MAP,
    ),
    answer=check_answer,
    functions=(TensorMap,),
    taken=map_taken,
)


def _map_leads(asked: Asked, _: Answer) -> Leads:
    """The page that shows a copy through the map."""
    arguments = read_map(asked).asked[0].given
    query = {"kind": asked["kind"], "coords": ""} | written_map(arguments)
    return {"copy": {"See a copy through it": address("load", query)}}


def _check_form(kind: str) -> PageForm:
    """The form of the page of one kind of map."""
    return PageForm(
        CHECK,
        inputs=MAP_FIELDS[kind],
        presets=MAP_PRESETS[kind],
        asking=asking_map,
        shown={"show_bytes": True},
        leads=_map_leads,
        fixes=fix_map,
    )


CHECK_FORMS = {kind: _check_form(kind) for kind in MAP_KINDS}
QUESTIONS = (CHECK,)
