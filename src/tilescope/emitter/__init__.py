"""A plan as source code: whole programs, the instructions of one copy, and pieces to paste."""

from tilescope.emitter.emission import emit
from tilescope.emitter.snippets import snippet

__all__ = ["emit", "snippet"]
