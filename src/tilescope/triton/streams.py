"""Streams, events and devices that do nothing: a launch is finished when it returns.

`DeviceInterface` is the interface that Triton's benchmarks use, with the objects that torch.cuda returns.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

UNMEASURED = float("inf")  # milliseconds between two events: tilescope does not predict time


class Stream:
    """A stream that is always idle."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, _stream: object) -> None:
        """Nothing is pending."""

    def wait_event(self, _event: object) -> None:
        """Nothing is pending."""

    def record_event(self, event: Event | None = None) -> Event:
        """An event that has happened."""
        return Event() if event is None else event

    def query(self) -> bool:
        """Whether all work is done."""
        return True


class Event:
    """A completed event; the time between two is infinite, since time is not measured."""

    cuda_event = 0

    def __init__(self, *_arguments: object, **_options: object) -> None:
        pass

    def record(self, _stream: object = None) -> None:
        """Nothing is pending."""

    def wait(self, _stream: object = None) -> None:
        """Nothing is pending."""

    def synchronize(self) -> None:
        """Nothing is pending."""

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def elapsed_time(self, _end: object) -> float:
        """Milliseconds, which are not known."""
        return UNMEASURED


class DeviceInterface:
    """The part of torch.cuda that Triton uses."""

    Event = Event
    Stream = Stream
    ExternalStream = Stream

    @staticmethod
    def synchronize(_device: object = None) -> None:
        """Nothing is pending."""

    @staticmethod
    def current_stream(_device: object = None) -> object:
        """The one stream."""
        return Stream()

    default_stream = current_stream

    @staticmethod
    def stream(_stream: object = None) -> AbstractContextManager[None]:
        """A context in which nothing changes."""
        return nullcontext()

    @staticmethod
    def current_device() -> int:
        """The only device."""
        return 0
