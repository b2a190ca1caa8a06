"""Work in child processes with a time limit: what faults, hangs or dies there costs one case, never the caller.

    caller                          child: python -m tilescope.gpu.driver.child FOLDER PIPE
      │◀─ {"ready": facts} ─────────  the card is there ({"missing": why}: it is not)
      │── (suite, cases) ──────────▶  runs them on the card
      │◀─ {"results": [bytes …]} ───
      │◀─ {"error": 715} ───────────  CUDA failed: the child is spent and ends
      │   (nothing in time: it is killed)

Cases are sent in batches for speed. If a batch fails, it is halved, and its halves run again in other children, until a
single case that fails is left.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import Pipe
from pathlib import Path

from tilescope.errors import DeviceError
from tilescope.gpu.driver.child import Answer
from tilescope.gpu.driver.device import CardFacts
from tilescope.gpu.driver.nvrtc import compile_kernels
from tilescope.gpu.verify.suites import Case, Outcome
from tilescope.value import Value

Progress = Callable[[str, int, int], None]  # of a suite or topic: cases done, cases in all
START_SECONDS = 120.0  # a first context on a busy machine is slow
COMMAND = (sys.executable, "-m", "tilescope.gpu.driver.child")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOnCard(Value):
    """What a card gave, with its facts."""

    card: str
    arch: str
    driver: str
    cuda: str
    date: str  # UTC, when the cases ran
    seed: int

    @property
    def software(self) -> str:
        """Driver, CUDA and date in words."""
        return f"driver {self.driver}, CUDA {self.cuda}, {self.date}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOnCard(MadeOnCard):
    """What was timed on a card, with what its times depend on."""

    sms: int
    clock_mhz: int  # the highest of the SMs
    memory_clock_mhz: int
    l2_bytes: int


class DatedFacts(CardFacts):
    """The facts of a card, and the day on which they were read (UTC)."""

    date: str


class ChildEndedError(Exception):
    """A child gave no results; the text describes how it ended."""


class Child:
    """A process with the card; a DeviceError if there is no card. `facts` are those that the driver reports of it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the child
        self._connection, theirs = Pipe()
        searched = str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")  # a checkout need not be installed
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(  # noqa: S603  our own module
                [*command, str(number)],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=self._complaints,
                stderr=self._complaints,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, searched))},
            )
        try:
            greeting = self._answer(START_SECONDS)
            if "missing" in greeting:
                raise DeviceError(greeting["missing"])
        except BaseException as ended:
            self.close()
            if isinstance(ended, ChildEndedError):
                raise DeviceError(f"The process that should ask the card failed: {ended}.") from None
            raise
        self.facts = greeting["ready"]

    def results(self, suite: str, cases: Sequence[Case], seconds: float) -> list[bytes]:
        """The results from the card; a ChildEndedError if the child dies, fails, or takes longer than `seconds`."""
        with suppress(OSError):  # it has exited: its answer reports it
            self._connection.send((suite, cases))
        answer = self._answer(seconds)
        if "error" in answer:
            raise ChildEndedError(f"error {answer['error']}")
        return answer["results"]

    def _answer(self, seconds: float) -> Answer:
        try:
            if not self._connection.poll(seconds):
                raise ChildEndedError(f"no answer in {seconds:g} s")
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            status = self._process.wait()
            cause = f"signal {-status}" if status < 0 else f"status {status}"
            self._complaints.seek(0)
            lines = self._complaints.read().decode(errors="replace").strip().splitlines()
            last = f": {lines[-1][:200]}" if lines else ""
            raise ChildEndedError(f"the process died ({cause}){last}") from None
        return answer

    def close(self) -> None:
        """End the child in any state."""
        self._process.kill()
        self._process.wait()
        self._connection.close()
        self._complaints.close()


class CardInChildren:
    """The card of this machine, with a folder for the kernels that are compiled for it; this process stays free of CUDA."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = (*COMMAND, str(folder))
        with closing(Child(self._command)) as child:
            self.facts: DatedFacts = {**child.facts, "date": datetime.now(UTC).strftime("%Y-%m-%d")}

    def compile(self, kernels: Iterable[str]) -> None:
        """Compile files of kernels for the children, once."""
        for name in kernels:
            path = self._folder / f"{name}.cubin"
            if not path.exists():
                path.write_bytes(compile_kernels(name, f"{self.facts['arch']}a"))

    def outcomes(
        self, suite: str, cases: Sequence[Case], *, together: int, seconds: float = 120.0, children: int = 1
    ) -> Iterator[Outcome]:
        """The outcomes of cases, in order; `together` are sent at once, `children` run side by side."""
        batches = [cases[first : first + together] for first in range(0, len(cases), together)]
        spare: queue.SimpleQueue[Child] = queue.SimpleQueue()
        try:
            with ThreadPoolExecutor(children) as executor:
                for outcomes in executor.map(lambda batch: self._run(suite, batch, seconds, spare), batches):
                    yield from outcomes
        finally:
            while not spare.empty():
                spare.get().close()

    def _run(self, suite: str, cases: Sequence[Case], seconds: float, spare: queue.SimpleQueue[Child]) -> list[Outcome]:
        """The outcomes of one batch; a child that ended is not used again."""
        try:
            child = spare.get_nowait()
        except queue.Empty:
            child = Child(self._command)
        try:
            results = child.results(suite, cases, seconds)
        except BaseException as ended:
            child.close()
            if not isinstance(ended, ChildEndedError):
                raise
            if len(cases) == 1:
                return [Outcome(ended=str(ended))]
            half = len(cases) // 2
            first = self._run(suite, cases[:half], seconds, spare)
            return first + self._run(suite, cases[half:], seconds, spare)
        spare.put(child)
        return [Outcome(result) for result in results]


@contextmanager
def card_in_children() -> Iterator[CardInChildren]:
    """The card of this machine; a DeviceError if there is none."""
    if not sys.platform.startswith("linux"):
        raise DeviceError("This needs Linux: the card is asked in child processes that share a pipe with this one.")
    with tempfile.TemporaryDirectory() as folder:
        yield CardInChildren(Path(folder))
