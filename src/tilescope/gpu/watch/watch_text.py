"""What `tilescope watch` says on stderr: a refused map explained, a warning, a line, the summary."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tilescope.errors import RuleError
from tilescope.gpu.watch.watch_call import Call, Frame, Verdict
from tilescope.sentence import counted
from tilescope.tensor_map.map_arguments import MapArguments
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Part
from tilescope.view.table import Table
from tilescope.view.tensor_map_view import arguments_table, findings

LIMITS = (
    "watching tensor maps that are made through the driver; maps made on the device (tl.make_tensor_descriptor, "
    "tensormap.replace) are not seen, and torch.profiler, ncu and compute-sanitizer do not work beside this."
)
_INTERPRETER = re.compile(r"(lib)?python[\d.]*(\.so|$)")
_STARTS_MAIN = re.compile(r"libc\.so|ld-linux")
_FRAMES_SHOWN = 8
_LARGEST_SYMBOLISED_BYTES = 256 << 20
_SYMBOLISE_SECONDS = 2


@dataclass(frozen=True, slots=True)
class WatchedMap(Value):
    """The calls for one map, at any address, from one place."""

    function: str
    map: str  # in short
    caller: str
    times: int
    refused: int
    disagreements: int
    rules: tuple[str, ...]  # that any of the calls broke


@dataclass(frozen=True, slots=True)
class WatchSummary(Value):
    """Everything that a program under watch did with tensor maps."""

    maps: tuple[WatchedMap, ...]
    processes: int  # that initialised CUDA
    unwatched: tuple[str, ...]  # why processes could not be watched
    lost: int
    lost_refused: int

    @property
    def times(self) -> int:
        """How many calls were seen."""
        return sum(row.times for row in self.maps)


def watched_maps(calls: Iterable[tuple[Verdict, int]]) -> tuple[WatchedMap, ...]:
    """Calls, and how often each was made, as one row a map and caller: the refused first, then the most frequent."""
    groups: dict[tuple[str, str, str], list[tuple[Verdict, int]]] = {}
    for verdict, times in calls:
        call = verdict.call
        groups.setdefault((call.function.name, call.short, call.caller), []).append((verdict, times))
    rows = [
        WatchedMap(
            *key,
            times=sum(times for _, times in group),
            refused=sum(times for verdict, times in group if verdict.call.result),
            disagreements=sum(times for verdict, times in group if verdict.state == "disagreement"),
            rules=tuple(dict.fromkeys(rule for verdict, _ in group for rule in verdict.rules)),
        )
        for key, group in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.refused, -row.times, row.function, row.map, row.caller)))


def draw_verdict(verdict: Verdict, process: str) -> Drawing:
    """Draw a refused call, or one on which driver and rules disagree, with its arguments; or the remarks on an accepted one."""
    call = verdict.call
    remarks = findings(verdict.report.violations)
    if verdict.state == "accepted":
        return Drawing(f"Accepted, with remarks: {call.short}, by {call.caller} in {process}", {"findings": remarks})
    kind = "Refused"
    reasons = [verdict.reason] if verdict.reason else []
    if verdict.state == "disagreement":
        kind = "DISAGREEMENT between the driver and the rules"
        reasons.append("One of the two is wrong: please report it with these arguments and the driver's version.")
    arguments = {name: value for name, value in call.arguments.items() if name != "kind" and value is not None}
    title = f"{kind}: {call.function.name} in {process} returned {verdict.result_name}"
    tables = (*remarks, arguments_table(arguments), *_called_by(call), *_accepted_instead(verdict))
    return Drawing(title, {"reasons": tuple(reasons), "tables": tables})


def _accepted_instead(verdict: Verdict) -> list[Part]:
    """The nearest call that the driver takes, as `tilescope check --fix` prints it; nothing where no rule names a change."""
    if verdict.state != "refused" or verdict.call.function.map_class is None:
        return []
    from tilescope.emitter import snippet  # late: a program that is refused nothing does not wait for it

    try:
        tensor_map = verdict.call.asked.repaired().tensor_map()
    except RuleError:
        return []
    lines = [line for line in snippet(tensor_map, "encode").splitlines() if line]
    return [Table(tuple((f"`{line}`",) for line in lines), title="A call that is accepted")]


def accepted_line(call: Call, process: str) -> str:
    """An accepted map in one line."""
    return f"accepted: {call.short}, at {call.arguments['address']:#x}, by {call.caller} in {process}"


def repeated_line(call: Call, process: str) -> str:
    """A call that another process made before, in one line."""
    return f"also refused in {process}, as above: {call.short}"


def draw_summary(summary: WatchSummary) -> Drawing:
    """The summary as a table: the maps, how often, by whom, what was refused and remarked."""
    rows = tuple(
        (str(row.times), str(row.refused or ""), row.map, row.caller, ", ".join(row.rules)) for row in summary.maps
    )
    parts: list[Part] = [Table(rows, ("times", "refused", "map", "called by", "rules"), align="rr")] if rows else []
    if not summary.processes:
        parts.append("No process of this program initialised CUDA, or none that could be watched.")
    if summary.lost:
        lost = f"{summary.lost} calls came too fast to be recorded, {summary.lost_refused} of them refused"
        parts.append(f"{lost}; they are not counted.")
    parts += [f"A process ran unwatched: {reason}" for reason in summary.unwatched]
    calls = counted(summary.times, "call")
    processes = counted(summary.processes, "process", "processes")
    refused = sum(row.refused for row in summary.maps)
    counts = [f"{calls} in {processes}", f"{refused} refused"]
    disagreements = sum(row.disagreements for row in summary.maps)
    if disagreements:
        differing = counted(disagreements, "DISAGREEMENT", "DISAGREEMENTS")
        counts.append(f"{differing} between the driver and the rules")
    return Drawing(", ".join(counts), {"parts": tuple(parts)})


def map_line(verdict: Verdict) -> dict[str, object]:
    """A call as one line of JSON: `tensor_map` is what check, diff and load take, or None where the call holds no map.

    It holds none where an array or the map itself could not be read.
    """
    call = verdict.call
    arguments = {name: value for name, value in call.arguments.items() if value is not None}
    arguments["address"] = hex(call.arguments["address"])
    is_map = not MapArguments.of(arguments).misnamed()
    line: dict[str, object] = {"tensor_map": arguments} if is_map else {"tensor_map": None, "arguments": arguments}
    return line | {
        "function": call.function.name,
        "result": call.result,
        "state": verdict.state,
        "process": call.record.pid,
        "violations": [violation.to_dict() for violation in verdict.report.violations],
        "called_by": [frame._asdict() for frame in call.native],
        "python": [frame._asdict() for frame in call.python],
    }


def _called_by(call: Call) -> Iterator[Part]:
    """The callers as tables: libraries with their functions, as far as the interpreter; Python files with their lines."""
    frames = takewhile(lambda frame: not _INTERPRETER.match(Path(frame.file).name), call.native)
    shown = [frame for frame in frames if not _STARTS_MAIN.match(Path(frame.file).name)][:_FRAMES_SHOWN]
    names: dict[Frame, str] = {}
    for file in dict.fromkeys(frame.file for frame in shown):
        names |= _functions(Path(file), [frame for frame in shown if frame.file == file])
    if shown:
        yield Table(tuple((Path(frame.file).name, names[frame]) for frame in shown), title="Called by")
    if call.python:
        lines = tuple((frame.python_place, frame.function) for frame in call.python[:_FRAMES_SHOWN])
        yield Table(lines, title="Python, innermost call first")


def _functions(library: Path, frames: Sequence[Frame]) -> Iterator[tuple[Frame, str]]:
    """The functions of frames, else their offsets; with file and line where a library of moderate size tells."""
    names = [frame.function for frame in frames]
    demangled = _output("c++filt", *names) if any(names) else []
    lines: list[str] = []  # a line with the function and one with its place, for every frame
    if library.is_file() and library.stat().st_size <= _LARGEST_SYMBOLISED_BYTES:
        lines = _output("addr2line", "-f", "-C", "-e", str(library), *(hex(frame.place) for frame in frames))
    if not lines:
        lines = ["", ""] * len(frames)
    for frame, name, function, position in zip(frames, demangled or names, lines[::2], lines[1::2], strict=False):
        source, _, line = position.partition(" ")[0].rpartition(":")
        if line.isdecimal() and source != "??":
            yield frame, f"{function}, {Path(source).name}:{line}"
        else:
            yield frame, name or f"+{frame.place:#x}"


def _output(tool: str, *arguments: str) -> list[str]:
    """The output lines of a tool of binutils, which is installed with C compilers; none if it is missing or slow."""
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, timeout=_SYMBOLISE_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", errors="replace").splitlines()
