"""A plan as source code: whole programs, the instructions of one copy, and pieces to paste."""

from tilescope.emitter.emission import emit, snippet

__all__ = ["emit", "snippet"]
