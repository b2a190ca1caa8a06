"""Work in child processes with a time limit: what faults, hangs or dies there costs one case, never the caller.

    caller                                  child: python -m tilescope.gpu.child
      │── {"suite": …, "cases": […]} ──────▶  runs them on the card
      │◀─ {"results": ["base64", …]} ───────
      │── {"about": "card"} ───────────────▶  how many SMs, which clock
      │◀─ {"error": 715} ───────────────────  CUDA failed: the child is spent and ends
      │   (nothing in time: it is killed)

Cases travel together for speed. When such a batch fails it is halved, and its halves run again in other children,
until the one case that does it is alone.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tilescope.errors import DeviceError
from tilescope.gpu.suite import Case, Outcome

START_SECONDS = 120.0  # a first context on a busy machine is slow
COMMAND = (sys.executable, "-m", "tilescope.gpu.child")


class ChildEndedError(Exception):
    """A child gave no results; the text says how it ended."""


class Child:
    """A process that answers lines of JSON with lines of JSON."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        self._process = subprocess.Popen(  # noqa: S603  our own module
            [*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._complaints, env=_environment()
        )
        self._answers: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The child's answer; ChildEndedError where it dies, fails, or takes longer than `seconds`."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: its answer tells
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        return self.answer(seconds)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that the child writes."""
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise ChildEndedError(f"no answer in {seconds:g} s") from None
        if not line.endswith(b"\n"):
            status = self._process.wait()
            raise ChildEndedError(f"the process died ({_cause(status)}){self._last_complaint()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.close()
            raise ChildEndedError(f"error {answer['error']}")
        return answer

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._complaints):
            if stream is not None and not stream.closed:
                with suppress(OSError):  # unwritten bytes to a process that is gone
                    stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        with stream:
            for line in stream:
                self._answers.put(line)
        self._answers.put(b"")

    def _last_complaint(self) -> str:
        if self._complaints.closed:
            return ""
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""


class Workers:
    """Children that run cases of a suite, started when they are needed and again after each that ended."""

    def __init__(self, suite: str, cubins: Path, command: Sequence[str] = COMMAND) -> None:
        self._suite = suite
        self._command = (*command, str(cubins))

    def outcomes(self, batches: Iterable[Sequence[Case]], seconds: float, children: int = 1) -> Iterator[list[Outcome]]:
        """The outcomes of every batch, in order; `children` batches run at a time."""
        spare: queue.SimpleQueue[Child] = queue.SimpleQueue()
        try:
            with ThreadPoolExecutor(children) as executor:
                yield from executor.map(lambda batch: self._run(list(batch), seconds, spare), batches)
        finally:
            while not spare.empty():
                spare.get().close()

    def _run(self, cases: list[Case], seconds: float, spare: queue.SimpleQueue[Child]) -> list[Outcome]:
        if not cases:
            return []
        child = self._taken(spare)
        try:
            answer = child.ask({"suite": self._suite, "cases": cases}, seconds)
        except ChildEndedError as ended:
            child.close()
            if len(cases) == 1:
                return [Outcome(ended=str(ended))]
            middle = len(cases) // 2
            return self._run(cases[:middle], seconds, spare) + self._run(cases[middle:], seconds, spare)
        except BaseException:
            child.close()
            raise
        spare.put(child)
        return [Outcome(base64.b64decode(result)) for result in answer["results"]]

    def _taken(self, spare: queue.SimpleQueue[Child]) -> Child:
        try:
            return spare.get_nowait()
        except queue.Empty:
            child = Child(self._command)
            greeted(child)
            return child


def greeted(child: Child) -> dict[str, str]:
    """What a fresh child says of its card; DeviceError where it has none."""
    try:
        greeting = child.answer(START_SECONDS)
    except ChildEndedError as ended:
        child.close()
        raise DeviceError(f"The process that should ask the card failed: {ended}.") from None
    if "missing" in greeting:
        child.close()
        raise DeviceError(greeting["missing"])
    facts: dict[str, str] = greeting["ready"]
    return facts


def _environment() -> dict[str, str]:
    """The caller's environment, in which the child finds this very tilescope: a checkout need not be installed."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _cause(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"
