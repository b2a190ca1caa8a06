"""Barriers of threads: bar.sync of a block, and the barrier of the cluster."""

from __future__ import annotations

from tilescope.pipeline.memory import Clock


class Meeting:
    """Threads that wait for each other, generation after generation; `threads` None: all that have not left."""

    __slots__ = ("arrived", "clock", "done", "generation", "name", "threads")

    def __init__(self, name: str, threads: int | None) -> None:
        self.name, self.threads = name, threads
        self.generation = 0
        self.arrived: tuple[int, ...] = ()
        self.clock: Clock | None = None  # what those who arrived know together
        self.done: Clock | None = None  # the same of the generation before

    def clone(self) -> Meeting:
        """An independent copy."""
        other = object.__new__(Meeting)
        for name in Meeting.__slots__:
            setattr(other, name, getattr(self, name))
        return other
