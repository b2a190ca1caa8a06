"""Delivers events to subscribers, and two questions to the one that answers them.

An instruction emits, whoever listens. Two answers flow back, each through one method:

    load     a load may be handed a stale value: the word as it was before a write that nothing orders before the load
    test     a test of an mbarrier may fail once although the phase has completed, so that its retry loop is exercised
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from tilescope.sync.events import Event, Flags, Load, MbarrierTest, Store

Handler: TypeAlias = Callable[[Any], None]
StaleValues: TypeAlias = dict[int, bytes]
"""By the index of a lane in a load: the bytes that it gets instead of what memory holds."""
_NO_STALE_VALUES: StaleValues = {}
_NOBODY: tuple[Handler, ...] = ()


class Answers(Protocol):
    """What decides on stale values and on tests that fail."""

    def stale_values(self, load: Load) -> StaleValues:
        """The lanes of a load that get an older value."""

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """For each lane whether its test passes."""


class Immediate:
    """Memory as it is: no stale value, and a test passes as soon as the phase has completed."""

    def stale_values(self, load: Load) -> StaleValues:
        """None."""
        return _NO_STALE_VALUES

    def passing_lanes(self, test: MbarrierTest) -> Flags:
        """Use the mbarrier's own answer."""
        return test.passes


class Bus:
    """The observers of one cluster."""

    __slots__ = ("_answers", "_handlers", "is_heard")

    def __init__(self) -> None:
        self._handlers: dict[type, tuple[Handler, ...]] = {}
        self._answers: Answers = Immediate()
        self.is_heard = False  # whether somebody listens to loads and stores; if not, events need not be made

    def subscribe(self, handlers: Mapping[type, Handler]) -> None:
        """Call a handler for each event of its class."""
        for event_class, handler in handlers.items():
            self._handlers[event_class] = (*self._handlers.get(event_class, _NOBODY), handler)
        self.is_heard = self.is_heard or Load in handlers or Store in handlers

    def answer_by(self, answers: Answers) -> None:
        """Set the answerer; it sees loads and tests by being called for them."""
        self._answers = answers
        self.is_heard = True

    def emit(self, event: Event) -> None:
        """Tell everybody who listens to events of this class."""
        for handler in self._handlers.get(type(event), _NOBODY):
            handler(event)

    def load(self, event: Load) -> StaleValues:
        """A load: who gets a stale value."""
        stale = self._answers.stale_values(event)
        self.emit(event)
        return stale

    def test(self, event: MbarrierTest) -> Flags:
        """A test of an mbarrier: for each lane whether it passes."""
        event.passes = self._answers.passing_lanes(event)
        self.emit(event)
        return event.passes
