"""What `tilescope watch` says on stderr: a refused map explained, a warning, a line, the summary."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilescope.errors import RuleError
from tilescope.gpu.watch_record import Call, Frame, Stack
from tilescope.gpu.watch_verdict import Verdict, asked_by
from tilescope.tensor_map.arguments import MapArguments
from tilescope.tensor_map.repair import repaired
from tilescope.value import Value
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph, Part, Table
from tilescope.view.tensor_map_view import findings

LIMITS = (
    "watching tensor maps that are made through the driver; maps made on the device (tl.make_tensor_descriptor, "
    "tensormap.replace) are not seen, and torch.profiler, ncu and compute-sanitizer do not work beside this."
)
_INTERPRETER = re.compile(r"(lib)?python[\d.]*(\.so|$)")
_STARTS_MAIN = re.compile(r"libc\.so|ld-linux")
_FRAMES_SHOWN = 8
_LARGEST_SYMBOLISED_BYTES = 256 << 20
_SYMBOLISE_SECONDS = 2
_KIND = {
    "cuTensorMapEncodeTiled": "tiled",
    "cuTensorMapEncodeIm2col": "im2col",
    "cuTensorMapEncodeIm2colWide": "im2col-wide",
}


@dataclass(frozen=True, slots=True)
class WatchedMap(Value):
    """The calls for one map, whatever its address, from one place."""

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
        return sum(each.times for each in self.maps)


@dataclass(slots=True)
class Tally:
    """The summary as it grows."""

    times: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    refused: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    disagreements: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    rules: dict[tuple[str, str, str], dict[str, None]] = field(default_factory=dict)

    def add(self, verdict: Verdict, times: int = 1) -> None:
        """Count so many calls."""
        call = verdict.call
        key = call.function, in_short(call), caller_in_short(call.stack)
        self.times[key] += times
        self.refused[key] += times * (call.result != 0)
        self.disagreements[key] += times * (verdict.state == "disagreement")
        self.rules.setdefault(key, {}).update(dict.fromkeys(violation.rule for violation in verdict.report.violations))

    def maps(self) -> tuple[WatchedMap, ...]:
        """One row a map and caller, the refused first, then the most frequent."""
        keys = sorted(self.times, key=lambda key: (-self.refused[key], -self.times[key], key))
        return tuple(
            WatchedMap(*key, self.times[key], self.refused[key], self.disagreements[key], tuple(self.rules[key]))
            for key in keys
        )


def in_short(call: Call) -> str:
    """A map in a few words, without its address: "tiled 4096 x 4096 bfloat16, box 64 x 64, swizzle 128B"."""
    if call.function == "cuTensorMapReplaceAddress":
        return "address replaced"
    given = call.arguments
    parts = [f"{_KIND[call.function]} {_by(given.get('dims')) or f'of rank {call.rank}'} {given['data_type']}"]
    if given.get("box"):
        parts.append(f"box {_by(given['box'])}")
    if "channels_per_pixel" in given:
        parts.append(f"{given['pixels_per_column']} pixels of {given['channels_per_pixel']} channels")
    parts += [f"{name} {given[name]}" for name in ("interleave", "swizzle") if given[name] != "none"]
    return ", ".join(parts)


def caller_in_short(stack: Stack) -> str:
    """The library that called, and the Python line if there is one."""
    library = Path(stack.native[0].file).name if stack.native else "unknown"
    return f"{library}, {_python_place(stack.python[0])}" if stack.python else library


def explained(verdict: Verdict, program: str) -> Drawing:
    """A call that the driver refused, or on which driver and rules differ: the reasons, the arguments, the callers."""
    call = verdict.call
    where = f"{call.function} in process {call.pid} ({program})"
    parts: list[Part] = [Paragraph(verdict.reason)] if verdict.reason else []
    if verdict.state == "disagreement":
        title = f"DISAGREEMENT between the driver and the rules: {where} returned {verdict.result_name}"
        parts.append(
            Paragraph("One of the two is wrong: please report it with these arguments and the driver's version.")
        )
    else:
        title = f"Refused: {where} returned {verdict.result_name}"
    parts += [*findings(verdict.report.violations), Table(_rows(call), title="The arguments"), *called_by(call.stack)]
    parts += _accepted_instead(verdict)
    return Drawing(title, tuple(parts))


def _accepted_instead(verdict: Verdict) -> list[Part]:
    """The nearest call that the driver takes, as `tilescope check --fix` prints it; nothing where no rule names a change."""
    if verdict.state != "refused" or verdict.call.function == "cuTensorMapReplaceAddress":
        return []
    from tilescope.emitter import snippet  # late: a program that is refused nothing does not wait for it

    try:
        tensor_map = repaired(asked_by(verdict.call)).tensor_map()
    except RuleError:
        return []
    lines = [line for line in snippet(tensor_map, "encode").splitlines() if line]
    return [Table(tuple((f"`{line}`",) for line in lines), title="A call that is accepted")]


def warned(verdict: Verdict, program: str) -> Drawing:
    """An accepted map of which the rules have something to say."""
    call = verdict.call
    title = (
        f"Accepted, with remarks: {in_short(call)}, by {caller_in_short(call.stack)} in process {call.pid} ({program})"
    )
    return Drawing(title, tuple(findings(verdict.report.violations)))


def accepted_line(verdict: Verdict, program: str) -> str:
    """An accepted map in one line."""
    call = verdict.call
    return f"accepted: {in_short(call)}, at {call.address:#x}, by {caller_in_short(call.stack)} in process {call.pid} ({program})"


def repeated_line(verdict: Verdict, program: str) -> str:
    """A call that another process made before, in one line."""
    call = verdict.call
    return f"also refused in process {call.pid} ({program}), as above: {in_short(call)}"


def summarised(summary: WatchSummary) -> Drawing:
    """The summary as a table: the maps, how often, by whom, what was refused and remarked."""
    parts: list[Part] = []
    if summary.maps:
        rows = tuple(
            (str(each.times), str(each.refused or ""), each.map, each.caller, ", ".join(each.rules))
            for each in summary.maps
        )
        parts.append(Table(rows, ("times", "refused", "map", "called by", "rules"), align="rr"))
    elif not summary.processes:
        parts.append(Paragraph("No process of this program initialised CUDA, or none that could be watched."))
    if summary.lost:
        lost = f"{summary.lost} calls came too fast to be recorded, {summary.lost_refused} of them refused; they are not counted."
        parts.append(Paragraph(lost))
    parts += [Paragraph(f"A process ran unwatched: {reason}") for reason in summary.unwatched]
    refused = sum(each.refused for each in summary.maps)
    disagreements = sum(each.disagreements for each in summary.maps)
    title = f"{_count(summary.times, 'call')} in {_count(summary.processes, 'process', 'processes')}, {refused} refused"
    if disagreements:
        title += f", {_count(disagreements, 'DISAGREEMENT', 'DISAGREEMENTS')} between the driver and the rules"
    return Drawing(title, tuple(parts))


def map_line(verdict: Verdict) -> dict[str, Any]:
    """A call as one line of JSON: `tensor_map` is what check, diff and load take, or None where the call holds no map.

    It holds none where an array or the map itself could not be read.
    """
    call = verdict.call
    held: Mapping[str, Any] = {name: given for name, given in call.arguments.items() if given is not None}
    if verdict.readdressed is not None:
        held = verdict.readdressed.to_dict()
    held = {**held, "address": hex(call.address)}
    is_map = not MapArguments.of(held).misnamed()
    return {
        "tensor_map": held if is_map else None,
        **({} if is_map else {"arguments": held}),
        "function": call.function,
        "result": call.result,
        "state": verdict.state,
        "process": call.pid,
        "violations": [violation.to_dict() for violation in verdict.report.violations],
        "called_by": [frame._asdict() for frame in call.stack.native],
        "python": [frame._asdict() for frame in call.stack.python],
    }


def called_by(stack: Stack) -> Iterable[Part]:
    """The callers as tables: libraries with their functions, Python files with their lines."""
    native = [frame for frame in _until_python(stack.native) if not _STARTS_MAIN.match(Path(frame.file).name)]
    shown = tuple(native[:_FRAMES_SHOWN])
    if shown:
        sources: dict[tuple[str, int], str] = {}
        for file in dict.fromkeys(frame.file for frame in shown):
            sources |= _sources(file, tuple(frame.place for frame in shown if frame.file == file))
        yield Table(tuple((Path(frame.file).name, _function(frame, sources)) for frame in shown), title="Called by")
    if stack.python:
        rows = tuple((_python_place(frame), frame.function) for frame in stack.python)
        yield Table(rows[:_FRAMES_SHOWN], title="Python, innermost call first")


def _until_python(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames before the interpreter's own."""
    for number, frame in enumerate(frames):
        if _INTERPRETER.match(Path(frame.file).name):
            return frames[:number]
    return frames


def _python_place(frame: Frame) -> str:
    path = Path(frame.file)
    return f"{'/'.join(path.parts[-2:])}:{frame.place}"


def _function(frame: Frame, sources: Mapping[tuple[str, int], str]) -> str:
    """What a frame's function is called, and its line where there is debug information; else its offset."""
    symbol = readable_symbol(frame.function) if frame.function else f"+{frame.place:#x}"
    return sources.get((frame.file, frame.place)) or symbol


def _sources(file: str, places: tuple[int, ...]) -> dict[tuple[str, int], str]:
    """Function, file and line of places in a library by addr2line, where it is of moderate size and knows."""
    tool, path = shutil.which("addr2line"), Path(file)
    if tool is None or not path.is_file() or path.stat().st_size > _LARGEST_SYMBOLISED_BYTES:
        return {}
    command = [tool, "-f", "-C", "-e", file, *map(hex, places)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SYMBOLISE_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = done.stdout.decode("utf-8", errors="replace").splitlines()
    found = {}
    for place, function, position in zip(places, lines[::2], lines[1::2], strict=False):
        source, _, line = position.partition(" ")[0].rpartition(":")
        if line.isdecimal() and source != "??":
            found[file, place] = f"{function}, {Path(source).name}:{line}"
    return found


def readable_symbol(symbol: str) -> str:
    """A C++ symbol as its author wrote it, where the C++ library is there to say; other symbols as they are.

    >>> readable_symbol("cuInit")
    'cuInit'
    """
    if not symbol.startswith("_Z"):
        return symbol
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return symbol
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if status.value or not text:
        return symbol
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(text)


def _rows(call: Call) -> tuple[tuple[str, str], ...]:
    shown = {**call.arguments, "address": hex(call.address)}
    return tuple(
        (name, ", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
        for name, value in shown.items()
        if name != "kind" and value is not None
    )


def _by(extents: Iterable[int] | None) -> str:
    return " x ".join(map(str, extents or ()))


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
