"""The drawings of logs of maps: how many are refused, those in full, the others in one line each; two logs compared."""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.errors import Violation
from tilescope.sentence import counted
from tilescope.tensor_map.text.log_difference import MapLogDiff
from tilescope.tensor_map.text.map_log import LoggedMap, MapLog, lines_in_words
from tilescope.view.drawing import Drawing, Part, Table
from tilescope.view.tensor_map_view import arguments_table, broken_rules, differences_table, findings, violation_words

_IN_FULL = 50  # refused maps; of more, the rest have a line each
_LINES_IN_ROW = 3  # of equal maps


def draw_map_log(log: MapLog, *, title: str = "") -> Drawing:
    """The summary, or a title in its place; the refused maps in full, the accepted ones in one line each, and remarks."""
    refused = [*log.with_verdict("refused"), *log.with_verdict("not understood")]
    accepted = log.with_verdict("accepted")
    parts: dict[str, Part | tuple[Part, ...]] = {
        f"line {logged.line}": _in_full(logged) for logged in refused[:_IN_FULL]
    }
    parts["more refused"] = _one_line_each(refused[_IN_FULL:], "Refused too", are_rules_shown=True)
    parts["accepted"] = _one_line_each(accepted, "Accepted")
    parts["remarks"] = _remarks(accepted)
    parts["without map"] = _without_map(log)
    parts["cut"] = "The log holds more different maps; the first ones are answered." if log.is_cut else ""
    return Drawing(title or log.summary, parts)


def _in_full(one: LoggedMap) -> tuple[Part, ...]:
    """The lines of a refused map, the reasons, and its arguments."""
    broken = broken_rules(one.violations)
    where = lines_in_words(one.lines).capitalize()
    times = f", x {one.times}" if one.times > 1 else ""
    verdict: str = one.verdict
    if verdict == "refused" and broken:
        verdict = f"refused, {counted(broken, 'broken rule')}"
    elif verdict == "refused":
        verdict = "sound arguments, which the driver refused"
    return f"{where}{times}: {verdict}. {one.map}", *findings(one.violations), arguments_table(one.arguments)


def _one_line_each(maps: Iterable[LoggedMap], title: str, *, are_rules_shown: bool = False) -> Table:
    """A row for each map: how often it is there, its lines, and the map in short."""
    rows = []
    for logged in maps:
        times = f"x {logged.times}" if logged.times > 1 else ""
        rows.append((times, _lines(logged), _describe_map(logged, are_rules_shown)))
    return Table(rows, ("", "line", "map"), title, "rl")


def _lines(one: LoggedMap) -> str:
    shown = ", ".join(map(str, one.lines[:_LINES_IN_ROW]))
    return f"{shown}, …" if one.times > _LINES_IN_ROW else shown


def _describe_map(one: LoggedMap, are_rules_shown: bool) -> str:
    if not are_rules_shown:
        return one.map
    rules = dict.fromkeys(broken.rule for broken in one.violations if broken.severity == "error")
    return f"{one.map}: {', '.join(rules)}"


def _remarks(accepted: Iterable[LoggedMap]) -> Table:
    """Accepted maps that are wrong or slow, a row for each rule: its lines, and its message for the first."""
    first: dict[str, Violation] = {}
    lines: dict[str, list[int]] = {}
    for logged in accepted:
        for remark in logged.violations:
            first.setdefault(remark.rule, remark)
            lines.setdefault(remark.rule, []).extend(logged.lines)
    rows = []
    for rule, remark in first.items():
        where = lines_in_words(tuple(sorted(set(lines[rule]))), _LINES_IN_ROW)
        rows.append((rule, f"{where}: {violation_words(remark)}"))
    return Table(rows, title="Accepted, but")


def _without_map(log: MapLog) -> str:
    if not log.lines_without_map:
        return ""
    where = lines_in_words(log.lines_without_map).capitalize()
    if len(log.lines_without_map) == 1:
        return f"{where} has a call of the driver without the whole of its arguments; it is not counted."
    return f"{where} have calls of the driver without the whole of their arguments; they are not counted."


def draw_map_log_diff(diff: MapLogDiff, *, title: str = "") -> Drawing:
    """The summary, or a title in its place; what changed, and what only one of the logs holds."""
    parts: dict[str, Part | tuple[Part, ...]] = {}
    for changed in diff.changed:
        before = lines_in_words(changed.one_lines, _LINES_IN_ROW).capitalize()
        after = lines_in_words(changed.other_lines, _LINES_IN_ROW)
        times = f", x {len(changed.one_lines)}" if len(changed.one_lines) > 1 else ""
        heading = f"{before}, in the second {after}{times}: {changed.map}"
        parts[f"changed {changed.one_lines[0]}"] = differences_table(heading, changed.arguments)
    parts["only one"] = _one_line_each(diff.only_one, "Only in the first")
    parts["only other"] = _one_line_each(diff.only_other, "Only in the second")
    return Drawing(title or diff.summary, parts)


DRAWINGS = {MapLog: draw_map_log, MapLogDiff: draw_map_log_diff}
