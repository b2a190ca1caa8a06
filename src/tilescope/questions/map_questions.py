"""The question whether the driver takes a tensor map, or each map of a log; and the nearest map that it takes.

tilescope check --type bf16 --dims 64,64 --box 64,300         refused: box[1] = 300 elements; 1 to 256 elements
tilescope check --fix --type bf16 --dims 64,64 --box 64,300   the call with box (64, 256), and what was changed
"""

from __future__ import annotations

from typing import NamedTuple

from tilescope.errors import TensorMapError
from tilescope.questions.first_lines.maps import of_fixed, of_log, of_report
from tilescope.questions.map_inputs import (
    DESCRIBED_MAP,
    MAP_FIELDS,
    MAP_PRESETS,
    asking_map,
    described,
    encode_call,
    map_call,
    map_taken,
    written_map,
)
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, Input, Question, flag
from tilescope.tensor_map import AnyMap, MapArguments, MapLog, TensorMap
from tilescope.tensor_map.map_arguments import MAP_KINDS, ArgumentChange
from tilescope.tensor_map.text.map_log import lines_in_words
from tilescope.tensor_map.text.pasted_source import MapSource


def check_answer(asked: Asked) -> Answer:
    """The verdict on a map, or on each map of a log."""
    maps = described(asked)
    if maps.is_log:
        return _log_answer(maps, is_fixed=bool(asked.get("fix")))
    (report,) = maps.reports()
    if report.not_understood:
        raise TensorMapError(report.not_understood)  # exit status 2, not 1
    if asked.get("fix"):
        fixed = _repaired(maps.asked[0]) if maps.asked else FixedMap(maps.tensor_map(), ())
        return Answer(
            fixed.tensor_map,
            first=of_fixed(fixed.tensor_map, fixed.changes),
            extra=_fixed_facts(fixed),
            text=_fixed_text(fixed),
        )
    return Answer(
        report,
        map_call(maps),
        first=of_report(report),
        shown={"asked": maps.asked[0].given if maps.asked else {}},
        is_yes=report.accepted,
        violations=report.violations,
        told_in="findings",
    )


def _log_answer(maps: MapSource, *, is_fixed: bool) -> Answer:
    """The verdicts on the maps of a log; fixed, the calls of those that are refused."""
    log = MapLog.of(maps)
    if all(one.verdict == "not understood" for one in log.maps):
        raise TensorMapError([broken for one in log.maps for broken in one.violations])  # exit status 2, not 1
    if is_fixed:
        return _fixed_log(log)
    title = "The maps of the log" if log.accepted else "The maps of the log, refused ones first"
    return Answer(log, first=of_log(log), shown={"title": title}, is_yes=log.accepted)


class FixedMap(NamedTuple):
    """A map with the fixes of the rules that it broke, and what was changed."""

    tensor_map: AnyMap
    changes: tuple[ArgumentChange, ...]


def _fixed_log(log: MapLog) -> Answer:
    """The encode calls of the refused maps with the fixes of the broken rules, and what was changed."""
    refused = log.with_verdict("refused")
    texts = [f"// {log.summary}"]
    facts: list[dict[str, object]] = []
    for one in refused:
        where = lines_in_words(one.lines)
        try:
            fixed = _repaired(one.asked)
        except TensorMapError as error:
            texts += [
                f"// {where}: no change that a rule names mends it",
                *(f"//   {said}" for said in error.violations),
            ]
            continue
        texts += [f"// {where}", _fixed_text(fixed)]
        facts.append({"lines": list(one.lines), "tensor_map": fixed.tensor_map.to_dict()} | _fixed_facts(fixed))
    is_yes = len(facts) == len(log.maps) - len(log.with_verdict("accepted"))
    return Answer(log, first=of_log(log), extra={"fixed": facts}, is_yes=is_yes, text="\n".join(texts))


def _repaired(asked: MapArguments) -> FixedMap:
    repaired = asked.repaired()
    return FixedMap(repaired.tensor_map(), tuple(asked.changes_to(repaired)))


def _fixed_facts(fixed: FixedMap) -> dict[str, object]:
    """What stands in JSON beside a map that was fixed."""
    return {"changes": [str(change) for change in fixed.changes], "encode": encode_call(fixed.tensor_map)}


def _fixed_text(fixed: FixedMap) -> str:
    """What was changed, and the calls in C++ and Python."""
    from tilescope.emitter import snippet

    lines = [f"// {of_fixed(fixed.tensor_map, fixed.changes).sentence}"]
    lines += [f"// changed {change}" for change in fixed.changes] or ["// nothing changed: no rule is broken"]
    lines.append(encode_call(fixed.tensor_map))
    lines.append(snippet(fixed.tensor_map, "encode-bindings"))
    return "\n".join(lines)


CHECK = Question(
    name="check",
    help="""Say whether the driver takes a tensor map, and every reason why not.

    The map is described by options, or by SOURCE: a file or text with JSON, with the arguments that CUTLASS, TileLang,
    Triton and others print when a map fails, with a call of the driver in C++ or Python, or with the words of a
    descriptor; - is stdin. --from-json FILE takes nothing but JSON. Options replace what SOURCE says.

    A log may be of any length and hold any number of maps. The answer begins with how many are refused, and on which
    lines; then come the refused ones in full, and the others in one line each. FILE:3 is the third line of a file that
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
    arguments = described(asked).asked[0].given
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
    )


CHECK_FORMS = {kind: _check_form(kind) for kind in MAP_KINDS}
QUESTIONS = (CHECK,)
