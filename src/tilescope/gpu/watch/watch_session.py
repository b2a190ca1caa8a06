"""Running a program under watch: its environment, the socket on which it tells of its maps, its end.

    tilescope watch ── starts ──▶ COMMAND ── its children, ranks …
          ▲                          │ cuInit loads watch_library (CUDA_INJECTION64_PATH)
          └───── unix socket ────────┘ one packet a call, each with the process it is from

The program keeps its terminal, its signals and its exit status. tilescope prints to stderr.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ctypes import sizeof
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tilescope.errors import DeviceError
from tilescope.gpu.watch import watch_text
from tilescope.gpu.watch.watch_build import build_library, find_cupti
from tilescope.gpu.watch.watch_call import (
    CALL,
    HELLO,
    LARGEST_PACKET_BYTES,
    LAUNCH,
    SITES,
    Call,
    Counts,
    Verdict,
    judge_call,
)
from tilescope.gpu.watch.watch_recording import Recording, parse_launch, write_recording
from tilescope.gpu.watch.watch_signals import HeldSignals
from tilescope.view.drawing import Drawing
from tilescope.view.table import Table
from tilescope.view.text_lines import lines_of, plain_line

INJECTION = "CUDA_INJECTION64_PATH"
SOCKET = "TILESCOPE_WATCH_SOCKET"
CUPTI = "TILESCOPE_WATCH_CUPTI"
_TICK_SECONDS = 0.01  # how late we may notice a signal, or that the program ended
_REST_SECONDS = 2  # for what was sent before the program ended; what it left running may go on sending
_PACKETS_AT_ONCE = 256
_NARROWEST = 60  # columns
_WIDEST = 120
_LONGEST_SOCKET_FOLDER = 70  # the kernel takes paths of 107 characters


def watch(
    command: Sequence[str],
    signals: HeldSignals,
    *,
    out: IO[str] | None,
    verbose: bool = False,
    as_json: bool = False,
    is_quiet: bool = False,
    recording: Recording | None = None,
) -> int:
    """Run a program, tell of its tensor maps on stderr, and return its exit status; a signal that ended it ends us.

    With `recording`, one launch of a kernel is written to a file.
    """
    if INJECTION in os.environ:
        raise DeviceError(f"{INJECTION} is set already, and the driver loads one library: unset it to watch.")
    cupti = find_cupti()
    library = build_library(cupti)
    short = None if len(tempfile.gettempdir()) < _LONGEST_SOCKET_FOLDER else "/tmp"  # noqa: S108  the name is random
    with (
        tempfile.TemporaryDirectory(prefix="tilescope-watch-", dir=short) as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        path = str(Path(folder, "socket"))
        listener.bind(path)
        listener.listen(socket.SOMAXCONN)
        teller = Teller(verbose, as_json, out, is_quiet)
        if not is_quiet:
            teller.say(watch_text.LIMITS)
        environment = os.environ | {INJECTION: str(library), SOCKET: path, CUPTI: str(cupti.library)}
        if recording is not None:
            environment |= recording.environment(folder)
        pid = signals.spawn(list(command), environment)
        status = _follow(pid, signals, Reader(listener), teller)
        if recording is not None:
            teller.tell_recording(recording)
    teller.end()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _end_by(-code)


def _follow(pid: int, signals: HeldSignals, reader: Reader, teller: Teller) -> int:
    """Read and hand signals on until the program ends; its wait status."""
    while (status := _poll_exit(pid)) is None:
        with teller.going_on(reader):
            reader.take(0 if reader.waiting else _TICK_SECONDS)
            if reader.waiting:
                teller.hear(*reader.waiting.popleft())
        signals.hand_on(pid)
    until = time.monotonic() + _REST_SECONDS
    with teller.going_on(reader):
        while reader.take(0) and time.monotonic() < until:
            pass
    while reader.waiting:
        with teller.going_on(reader):
            teller.hear(*reader.waiting.popleft())
    return status


def _poll_exit(pid: int) -> int | None:
    """Poll the program: its wait status once it has exited, else None. If it is stopped, stop too, so that the shell sees it."""
    changed, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    if changed and os.WIFSTOPPED(status):
        os.kill(os.getpid(), signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        return None
    return status if changed else None


def _end_by(number: int) -> int:
    """End by the signal that ended the program, without a second core dump."""
    import resource  # only on Unix; this module can be imported everywhere

    sys.stdout.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    return 128 + number


class Reader:
    """The packets of all processes; they are taken off the sockets first and looked at later, so that none is lost."""

    def __init__(self, listener: socket.socket) -> None:
        self.waiting: deque[tuple[Process, bytes]] = deque()
        self.sockets: dict[socket.socket, Process | None] = {listener: None}

    def take(self, seconds: float) -> bool:
        """Read what is in the sockets, or arrives within this time; whether there was anything."""
        ready = select.select(self.sockets, [], [], seconds)[0]
        for connection in ready:
            process = self.sockets[connection]
            if process is None:
                accepted, _ = connection.accept()
                accepted.setblocking(False)
                self.sockets[accepted] = Process()
            else:
                self._take(connection, process)
        return bool(ready)

    def close(self) -> None:
        """Listen no more: the processes notice, and go quiet."""
        for connection in self.sockets:
            connection.close()
        self.sockets.clear()

    def _take(self, connection: socket.socket, process: Process) -> None:
        """The packets of one connection, in turn with the others; at its end it is closed."""
        for _ in range(_PACKETS_AT_ONCE):
            try:
                data, files, *_ = socket.recv_fds(connection, LARGEST_PACKET_BYTES, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
                files = []
            for file in files:
                process.share(file)
            if not data:
                del self.sockets[connection]
                connection.close()
                return
            self.waiting.append((process, data))


@dataclass(slots=True, eq=False)
class Process:
    """One process that initialised CUDA, and what it counts."""

    name: str = "?"  # "process 4711 (train.py)"
    memory: mmap.mmap | None = None

    def share(self, file: int) -> None:
        """Map the counts that the process sent."""
        with suppress(OSError, ValueError):
            self.memory = mmap.mmap(file, sizeof(Counts), prot=mmap.PROT_READ)
        os.close(file)

    def counts(self) -> Counts:
        """What it has counted by now."""
        return Counts() if self.memory is None else Counts.from_buffer_copy(self.memory)


@dataclass(slots=True)
class Teller:
    """What the program reported so far, and what was printed about it."""

    verbose: bool
    as_json: bool
    out: IO[str] | None
    is_quiet: bool = False  # only one line at the end
    heard: list[tuple[Verdict, Process]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    unwatched: list[str] = field(default_factory=list)
    told: dict[tuple[Hashable, ...], int] = field(default_factory=dict)  # the process that was reported
    failures: set[str] = field(default_factory=set)
    kernels: list[str] = field(default_factory=list)  # launched, where a launch is to be recorded
    recorded: list[str] = field(default_factory=list)  # files of the library
    unrecorded: list[str] = field(default_factory=list)  # why a launch was not

    @contextmanager
    def going_on(self, reader: Reader) -> Iterator[None]:
        """An error of our own is printed once; the program is still waited for."""
        try:
            yield
        except Exception as error:  # noqa: BLE001
            if isinstance(error, OSError):
                reader.close()
            what = f"{type(error).__name__}: {error}"
            if what not in self.failures:
                self.failures.add(what)
                self.say(f"this is a mistake of tilescope, please report it: {what}. The program runs on.")

    def hear(self, process: Process, data: bytes) -> None:
        """Take in one packet, and print what is worth knowing."""
        call = Call(data)
        if call.record.kind == HELLO:
            process.name = f"process {call.record.pid} ({call.told('program') or '?'})"
            self.processes.append(process)
            reason = call.told("failed")
            if reason:
                self.unwatched.append(f"{process.name}: {reason}")
                self.say(f"cannot watch {self.unwatched[-1]}. The program runs on.")
        elif call.record.kind == LAUNCH:
            lists = {"kernel": self.kernels, "recorded": self.recorded, "unrecorded": self.unrecorded}
            for word, listed in lists.items():
                text = call.told(word)
                if text:
                    listed.append(text)
        elif call.record.kind == CALL:
            verdict = judge_call(call)
            self.heard.append((verdict, process))
            self._write_out(verdict)
            if not self.is_quiet:
                self._tell(verdict, process.name)

    def _tell(self, verdict: Verdict, process: str) -> None:
        """Explain what was refused and remark on what was accepted, once a map, and a line for every other process."""
        call = verdict.call
        is_accepted = verdict.state == "accepted"
        is_worth_telling = not is_accepted or bool(verdict.rules)
        arguments = [(name, value) for name, value in call.arguments.items() if name != "address"]
        distinct = (call.function, call.result, call.caller, str(arguments), *verdict.rules)
        reported_by = self.told.get(distinct)
        if is_worth_telling:
            self.told[distinct] = call.record.pid
        if is_worth_telling and reported_by is None:
            self._show(watch_text.map_line(verdict), lambda: watch_text.draw_verdict(verdict, process))
        elif not is_accepted and reported_by != call.record.pid:
            self.say(watch_text.repeated_line(call, process))
        elif is_accepted and self.verbose:
            self._show(watch_text.map_line(verdict), lambda: Drawing(watch_text.accepted_line(call, process), {}))

    def _show(self, plain: Mapping[str, object], drawn: Callable[[], Drawing]) -> None:
        """One object of JSON, or lines of at most the terminal's width."""
        if self.as_json:
            self._write(json.dumps(plain))
            return
        width = min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((_WIDEST, 24)).columns))
        drawing = drawn()
        lines = [f"tilescope: {drawing.title}"]
        for part in drawing.parts:
            indent = 2
            for line in map(plain_line, lines_of(part, width - 4)):
                lines.append(f"{' ' * indent}{line}".rstrip())
                indent = 4 if isinstance(part, Table) and part.title else 2
        self._write("\n".join(lines))

    def _write_out(self, verdict: Verdict) -> None:
        """One line into the file of maps; if the disk is full, no more are written."""
        if self.out is None:
            return
        try:
            self.out.write(json.dumps(watch_text.map_line(verdict)) + "\n")
            self.out.flush()
        except OSError as error:
            self.say(f"no more maps are written to {self.out.name}: {error.strerror}.")
            with suppress(OSError):
                self.out.close()
            self.out = None

    def tell_recording(self, recording: Recording) -> None:
        """Write the recorded launch, or report why there is none."""
        for reason in self.unrecorded:
            self.say(f"the launch was not recorded: {reason}.")
        if not self.recorded:
            if not self.unrecorded:
                self.say(recording.missed(list(dict.fromkeys(self.kernels))))
            return
        try:
            recorded_launch = parse_launch(Path(self.recorded[0]).read_bytes())
            write_recording(recorded_launch, recording.path)
        except (OSError, DeviceError) as error:
            self.say(f"the launch was not recorded: {error}.")
            return
        if self.as_json:
            self._write(json.dumps({"recording": str(recording.path), "launch": recorded_launch.launch.to_dict()}))
        self.say(f"recorded {recorded_launch.sentence}. Run it here with the program's PTX:")
        self.say(f"  tilescope run KERNEL.ptx --launch {recording.path}")
        if len(self.recorded) > 1:
            self.say(f"{len(self.recorded)} processes launched it; this is the first of them.")

    def end(self) -> None:
        """Print the summary of what was seen, the repeats that were only counted included."""
        heard_of = [process for _, process in self.heard]
        counts = {process: process.counts() for process in (*self.processes, *heard_of)}
        calls = []
        for verdict, process in self.heard:
            site = verdict.call.record.site
            repeats = counts[process].repeats[site] if site < SITES else 0
            calls.append((verdict, 1 + repeats))
        summary = watch_text.WatchSummary(
            maps=watch_text.watched_maps(calls),
            processes=len(self.processes),
            unwatched=tuple(self.unwatched),
            lost=sum(count.lost for count in counts.values()),
            lost_refused=sum(count.lost_refused for count in counts.values()),
        )
        if self.is_quiet:
            self.say(f"{watch_text.draw_summary(summary).title}.")
        else:
            self._show(summary.to_dict(), lambda: watch_text.draw_summary(summary))

    def say(self, text: str) -> None:
        """One line of our own."""
        if not self.as_json:
            self._write(f"tilescope: {text}")

    def _write(self, text: str) -> None:
        """Write whole lines at once, among what the program writes; a closed stderr is no reason to end."""
        remaining = f"{text}\n".encode("utf-8", errors="replace")
        with suppress(OSError):
            while remaining:
                try:
                    remaining = remaining[os.write(2, remaining) :]
                except BlockingIOError:  # the program made the terminal so
                    if not select.select([], [2], [], _REST_SECONDS)[1]:
                        return
