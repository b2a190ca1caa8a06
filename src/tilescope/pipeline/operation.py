"""What a role can do: one table of steps, with their arguments and the instruction that each stands for.

A step is written as its name with what it acts on, and its arguments beside it:

    {wait = "full[i % 4]", parity = "(i / 4) % 2"}
    {copy = "a[i % 4]", bytes = 16384, barrier = "full[i % 4]"}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Target = Literal["barrier", "barriers", "slot", "slots", "group", "group or barrier", "fence", "number", "choice"]
ArgumentKind = Literal["number", "flag", "barrier", "slot", "choice"]

GROUPS = ("wgmma", "bulk", "cp.async")
FENCES = ("proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after")
COPIES = ("tma", "bulk", "cp.async")
UNITS = ("wgmma", "tcgen05", "mma")


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a step: what it may be, and its value where it is left out (None: it must be given)."""

    name: str
    kind: ArgumentKind
    default: int | str | bool | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """A kind of step."""

    name: str
    target: Target
    arguments: tuple[Argument, ...]
    instruction: str
    meaning: str
    choices: tuple[str, ...] = ()


_OWN = Argument("mask", "number", "own")  # bits of the ranks whose barrier or memory it acts on
_TILE = Argument("tile", "number", "any")  # which tile the slot then holds, or must hold
_COUNT = Argument("count", "number", 1)
_PARITY = Argument("parity", "number")

# fmt: off
OPERATIONS = {row.name: row for row in (
    Operation("init", "barriers", (), "mbarrier.init", "initialises barriers; without any such step they are ready at the start"),
    Operation("wait", "barrier", (_PARITY,), "mbarrier.try_wait.parity", "waits until the phase of this parity has ended"),
    Operation("tail", "barrier", (_PARITY,), "mbarrier.try_wait.parity", "the same, before the role leaves"),
    Operation("expect", "barrier", (Argument("bytes", "number"), Argument("arrive", "flag", True), _OWN),
              "mbarrier.arrive.expect_tx", "expects bytes in this phase, and arrives unless arrive = false"),
    Operation("arrive", "barrier", (_COUNT, _OWN, Argument("drop", "flag", False)), "mbarrier.arrive", "arrives `count` times"),
    Operation("release", "barrier", (_COUNT, _OWN), "mbarrier.arrive", "the same: the slot may be filled again"),
    Operation("copy", "slot",
              (Argument("bytes", "number"), Argument("barrier", "barrier", ""), Argument("by", "choice", "tma", COPIES), _OWN,
               Argument("barrier_rank", "number", "own"), _TILE),
              "cp.async.bulk.tensor", "fills a slot; its bytes count on a barrier"),
    Operation("cp_arrive", "barrier", (_COUNT, Argument("noinc", "flag", False)), "cp.async.mbarrier.arrive",
              "arrives when the role's cp.async have landed; without noinc it first adds as many arrivals"),
    Operation("read", "slots", (_TILE,), "ld.shared, tcgen05.ld", "threads read slots"),
    Operation("write", "slots", (_TILE,), "st.shared", "threads write slots"),
    Operation("multiply", "slots",
              (Argument("unit", "choice", "wgmma", UNITS), Argument("into", "slot", ""), _OWN, _TILE),
              "wgmma.mma_async, tcgen05.mma", "the tensor core reads slots until a group or a commit is waited for"),
    Operation("store", "slots", (Argument("bytes", "number", 0),), "cp.async.bulk.tensor.global", "TMA reads slots"),
    Operation("commit", "group or barrier", (_OWN,), "*.commit_group, tcgen05.commit",
              "closes a group; on a barrier: arrives when the role's tcgen05 work is done", GROUPS),
    Operation("wait_group", "group", (Argument("pending", "number", 0), Argument("read", "flag", False)), "*.wait_group",
              "waits until at most `pending` groups are open; read: until their sources were read", GROUPS),
    Operation("fence", "fence", (), "fence.*", "orders memory accesses of different kinds", FENCES),
    Operation("sync", "number", (Argument("threads", "number", 0),), "bar.sync", "meets `threads` threads (0: all of the block)"),
    Operation("bar_arrive", "number", (Argument("threads", "number", 0),), "bar.arrive", "arrives there without waiting"),
    Operation("cluster", "choice", (), "barrier.cluster", "the barrier of all threads of the cluster", ("sync", "arrive", "wait")),
    Operation("registers", "number", (), "setmaxnreg", "registers of each thread from here on"),
)}
# fmt: on
