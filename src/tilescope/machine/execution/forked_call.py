"""A function that runs in a fork of this process, which sends its result back.

    here     ForkedCall(call) ─────────────── own work ──────────── result()
    fork               └── call() on a copy of everything ── pickled ──┘

The fork shares memory with this process until one of them writes. Forks are made on Linux, by a process that is no worker of another and
has no Python thread besides tilescope's own, which wait for work: a lock that a thread holds would stay locked in the fork.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Generic, TypeVar

CORES_VARIABLE = "TILESCOPE_CORES"
_OWN_THREADS = "tilescope-"  # how the names of our workers begin
_MOST_PROCESSES = 16
_LEAST_PATIENCE_SECONDS = 30.0
_PATIENCE = 20  # limit, as a multiple of the time that the fork has run when its result is requested
Result = TypeVar("Result")


def count_processes() -> int:
    """How many processes may work at once: the cores that this process may use, or TILESCOPE_CORES; 1 where it may not fork."""
    if sys.platform != "linux" or multiprocessing.parent_process() is not None or _has_other_threads():
        return 1
    cores = len(os.sched_getaffinity(0))
    requested = os.environ.get(CORES_VARIABLE, "").strip()
    return max(1, min(int(requested) if requested.isdecimal() else cores, _MOST_PROCESSES))


def _has_other_threads() -> bool:
    current = threading.current_thread()
    return any(thread is not current and not thread.name.startswith(_OWN_THREADS) for thread in threading.enumerate())


class ForkedCall(Generic[Result]):
    """A call that has begun in a fork."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._begun = time.monotonic()
        self._receiver, sender = multiprocessing.Pipe(duplex=False)
        self._process = multiprocessing.get_context("fork").Process(
            target=_send_result, args=(call, sender), daemon=True
        )
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # threads of BLAS are no Python threads: they hold no lock of ours
            self._process.start()
        sender.close()

    def result(self) -> Result | None:
        """The result of the call; None if the fork failed, or takes far longer than its limit."""
        patience = max(_LEAST_PATIENCE_SECONDS, _PATIENCE * (time.monotonic() - self._begun))
        try:
            return self._receiver.recv() if self._receiver.poll(patience) else None
        except EOFError:
            return None

    def end(self) -> None:
        """End the fork, whether it has answered or not."""
        self._receiver.close()
        self._process.kill()
        self._process.join()


def _send_result(call: Callable[[], object], sender: Connection) -> None:
    """Send what a call returns, in the fork. An exception sends nothing: the caller repeats the call and gets the exception."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(Exception):
        sender.send(call())
    sender.close()
