"""Signals that are the program's: held while it runs, and handed on.

A signal for the process goes to any thread that does not block it. numpy starts threads when it is imported, and they
inherit what is blocked then: so this module imports nothing, and signals are held before anything else is imported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_SI_KERNEL = 0x80  # a signal from the terminal, which the program got too
# By name: Windows has few of them, and this module can be imported there.
_HANDED_ON = ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")


@dataclass(frozen=True, slots=True)
class HeldSignals:
    """The signals to pass on, and those that were blocked before."""

    numbers: frozenset[signal.Signals]
    blocked_before: frozenset[int]

    def spawn(self, command: list[str], environment: dict[str, str]) -> int:
        """Start a program with signals as they were before Python; its process id."""
        numbers = [signal.Signals[name] for name in _IGNORED_BY_PYTHON]
        ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
        return os.posix_spawnp(command[0], command, environment, setsigmask=self.blocked_before, setsigdef=ignored)

    def hand_on(self, pid: int) -> None:
        """Send what arrived to the program, unless the terminal did."""
        while (received := signal.sigtimedwait(self.numbers, 0)) is not None:
            if received.si_code != _SI_KERNEL:
                os.kill(pid, received.si_signo)


@contextmanager
def hold_signals() -> Iterator[HeldSignals]:
    """Block signals until they are passed on to the program; those that arrive after its end are dropped."""
    handed_on = [signal.Signals[name] for name in _HANDED_ON]
    numbers = frozenset(number for number in handed_on if signal.getsignal(number) is not signal.SIG_IGN)
    before = frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, numbers))
    try:
        yield HeldSignals(numbers, before)
    finally:
        while signal.sigtimedwait(numbers, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
