"""A recording that takes longer than a page may: it runs in a thread, reports its progress, and stops when the client disconnects.

POST /run/record ──▶ data: {"doing": "running", "steps": 40960}
                     data: {"doing": "recording", "steps": 8192}
                     data: {"done": true}                     the page is answered from now on

Who closes the connection cancels it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from threading import Event

from anyio import CapacityLimiter, to_thread

from tilescope.errors import RuleError
from tilescope.web.form import Form

EVENT_SECONDS = 0.25  # between two events


class CancelledRecordingError(Exception):
    """The client no longer waits for the recording."""


class Recording:
    """The recording for a form."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._doing = "waiting"
        self._steps = 0
        self._is_cancelled = Event()

    async def events(self, limiter: CapacityLimiter) -> AsyncIterator[str]:
        """The progress as server-sent events; the last one has the result."""
        work = asyncio.ensure_future(to_thread.run_sync(self._record, limiter=limiter))
        try:
            while not work.done():
                yield _event(doing=self._doing, steps=self._steps)
                await asyncio.wait({work}, timeout=EVENT_SECONDS)
            yield _event(**work.result())
        finally:
            self._is_cancelled.set()  # the thread ends at its next step that reports

    def _record(self) -> dict[str, object]:
        """Record, and return the content of the last event."""
        record = self._form.description.record
        assert record is not None, self._form.page.name
        try:
            record(self._form.asked(), self._progress)
        except CancelledRecordingError:
            return {"refused": "Cancelled."}
        except RuleError as error:
            return {"refused": "\n".join(map(str, error.violations))}
        except Exception as error:  # noqa: BLE001  after any exception, the next request is answered
            return {"refused": f"A mistake in tilescope ({type(error).__name__}). Please report the text."}
        return {"done": True}

    def _progress(self, doing: str, steps: int) -> None:
        if self._is_cancelled.is_set():
            raise CancelledRecordingError
        self._doing = doing
        self._steps = steps


def _event(**values: object) -> str:
    return f"data: {json.dumps(values)}\n\n"
