"""What a memory instruction means to happens-before, decoded once from its modifiers."""

from __future__ import annotations

from typing import Literal, NamedTuple

AccessKind = Literal["read", "write", "atomic"]


class AccessSemantics(NamedTuple):
    """A load, store or atomic: whether it is strong, what it acquires and releases, and at which scope.

    Two strong accesses of one word never race; a plain access races with any unordered conflicting one.
    """

    kind: AccessKind
    is_strong: bool
    acquires: bool
    releases: bool
    scope: int
    is_flag: (
        bool  # threads may synchronize through it; a plain load whose value atom.cas checks is strong, and not a flag
    )
    is_noncoherent: bool = False  # ld.global.nc, ldu

    @property
    def is_flag_load(self) -> bool:
        """Whether it loads a word through which other threads may synchronize with this one."""
        return self.kind == "read" and self.is_flag


class MbarrierSemantics(NamedTuple):
    """What an arrival at an mbarrier releases, or a wait acquires, and at which scope."""

    is_relaxed: bool
    scope: int
    names_scope: bool  # False: the scope is the default, .cta
