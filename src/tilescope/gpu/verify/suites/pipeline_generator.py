"""Random pipelines, as plain data: the shapes of real kernels, small, and half of them with something changed.

shape   ──▶  ring, chain, ping-pong, a handover by bar.sync, cp.async, stores, clusters with multicast or remote
             arrivals, or steps drawn along one order (feasible_pipeline.py)
change  ──▶  a count, bytes, a parity, a flag, a slot, a mask; a step left out, doubled, or moved
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from tilescope.arithmetic import ceil_div
from tilescope.gpu.verify.suites.feasible_pipeline import draw_feasible_pipeline
from tilescope.gpu.verify.suites.pipeline_changes import change
from tilescope.pipeline.operations import Written
from tilescope.sync.thread_limits import WARP_THREADS

Data: TypeAlias = dict[str, Any]
Random: TypeAlias = random.Random

_SLOT_BYTES = (16, 32, 48, 64, 128, 256, 512, 1024)
_CHANGED = 0.5  # share of pipelines in which something is changed
_ALL_BLOCKS = 15  # the bar of all threads of a block, in these pipelines


class Group(NamedTuple):
    """The threads of a role that reads or writes slots, and how they signal that they are done."""

    threads: int
    syncs: bool  # they synchronize at a bar and one thread arrives; otherwise every warp arrives

    @classmethod
    def drawn(cls, random: Random) -> Group:
        """A thread, a warp, or several warps."""
        return cls(random.choice((1, 32, 32, 64, 128)), random.random() < 0.5)

    @property
    def warps(self) -> int:
        """Its threads in whole warps."""
        return ceil_div(self.threads, WARP_THREADS)

    @property
    def arrivals(self) -> int:
        """What a barrier counts for one group."""
        return 1 if self.syncs else self.warps

    def done(self, step: str, barrier: str, bar: int | str, **arguments: Written) -> list[Data]:
        """Arrive at a barrier once all warps are done with what they read or wrote."""
        arrival: Data = {step: barrier}
        if self.arrivals != 1:
            arrival["count"] = self.arrivals
        return [*self.together(bar), arrival | arguments]

    def together(self, bar: int | str) -> list[Data]:
        """Meet at a bar, if there are several warps that do not arrive one by one."""
        return [{"sync": bar, "threads": WARP_THREADS * self.warps}] if self.syncs and self.warps > 1 else []


def draw_pipeline(random: Random) -> Data:
    """A pipeline of any shape; the grammar may refuse what was changed in it."""
    data = random.choice(_SHAPES)(random)
    if random.random() < _CHANGED:
        for _ in range(random.choice((1, 1, 1, 2))):
            change(random, data)
    return data


def _loop(count: int | str, steps: list[Data], counter: str = "i", start: int = 0) -> Data:
    begin = {"start": start} if start else {}
    return {"loop": counter, "count": count, **begin, "steps": steps}


def _filling(random: Random, slots: dict[str, int], full: str, place: str) -> list[Data]:
    """Expect and copy all slots of a stage: bytes expected before or after, at once or one by one, copies whole or in parts."""
    copies: list[Data] = []
    for name, size in slots.items():
        copy: Data = {"copy": f"{name}[{place}]", "bytes": size, "barrier": full, "tile": "i"}
        if random.random() >= 0.5:
            copy["by"] = "bulk"
        parts = [copy]
        if size >= 32 and random.random() < 0.25:
            first_bytes = random.randrange(16, size, 16)
            parts = [copy | {"bytes": first_bytes}, copy | {"bytes": size - first_bytes}]
            if random.random() < 0.5:
                parts = [parts[0] | {"offset": 0}, parts[1] | {"offset": first_bytes}]
        elif size % 512 == 0 and random.random() < 0.2:
            parts = [copy | {"bytes": size // 32, "lanes": 32}]
        copies += parts
    total = sum(slots.values())
    match random.choice(("before", "before", "after", "one by one")):
        case "before":
            return [{"expect": full, "bytes": total}, *copies]
        case "after":
            return [*copies, {"expect": full, "bytes": total}]
        case _:
            expected = [{"expect": full, "bytes": size, "arrive": False} for size in slots.values()]
            return [*expected, *copies, {"arrive": full}]


def _draw_slots(random: Random) -> dict[str, int]:
    return {name: random.choice(_SLOT_BYTES) for name in ("a", "b")[: random.choice((1, 1, 2))]}


def _ring(random: Random) -> Data:
    """A producer and consumers around some stages; the consumers share every tile, or take turns."""
    s = random.choice((1, 2, 2, 3, 4))
    count = random.randint(2, 10)
    consumers = random.choice((1, 1, 2, 3))
    slots = _draw_slots(random)
    group = Group.drawn(random)
    # a consumer must see every phase of a stage that it waits for, so a stage belongs to one of those that take turns
    takes_turns = s % consumers == 0 and random.random() < 0.5
    frees_first = random.random() < 0.2
    arrivals = group.arrivals * (1 if takes_turns else consumers)
    full = f"full[i % {s}]"
    empty = f"empty[i % {s}]"
    read: list[Data] = [{"read": [f"{name}[i % {s}]" for name in slots], "tile": "i"}]
    release = group.done("release", empty, bar="1 + instance")
    if group.threads == 128 and random.random() < 0.5:
        read = [
            {"multiply": [f"{name}[i % {s}]" for name in slots], "tile": "i"},
            {"commit": "wgmma"},
            {"wait_group": "wgmma"},
        ]
    start = 0 if frees_first else 1
    used = [{"wait": full, "parity": f"i / {s} % 2"}, *read, *release]
    if takes_turns:
        used = [step | {"when": f"i % {consumers} == instance"} for step in used]
    freed: list[Data] = []
    if frees_first:
        others = {"when": "instance == 0"} if takes_turns else {}
        freed = [_loop(s, [{"release": "empty[f]", "count": group.arrivals, **others}], "f")]
    filled = _filling(random, slots, full, f"i % {s}")
    producing: list[Data] = [_loop(count, [{"wait": empty, "parity": f"i / {s} % 2 ^ {start}"}, *filled])]
    if random.random() < 0.3 and not frees_first:
        producing.append(_loop(s, [{"tail": f"empty[j % {s}]", "parity": f"j / {s} % 2 ^ 1"}], "j", count))
    consuming = [*freed, _loop(count, used)]
    data: Data = {
        "barriers": {"full": {"count": 1, "stages": s}, "empty": {"count": arrivals, "stages": s}},
        "slots": {name: {"stages": s, "bytes": size} for name, size in slots.items()},
        "roles": [
            {"name": "producer", "threads": random.choice((1, 32)), "steps": producing},
            {"name": "consumer", "threads": group.threads, "instances": consumers, "steps": consuming},
        ],
    }
    return _with_init(random, data)


def _with_init(random: Random, data: Data) -> Data:
    """Sometimes the first role initialises the barriers, and all threads of the block synchronize before they are used."""
    if random.random() < 0.25:
        meeting: Data = {"sync": _ALL_BLOCKS}
        for role in data["roles"]:
            role["steps"].insert(0, dict(meeting))
        data["roles"][0]["steps"].insert(0, {"init": list(data["barriers"])})
    return data


def _chain(random: Random) -> Data:
    """Copies into a, a role that makes c out of a, and a role that reads c or stores it."""
    s = random.choice((1, 2, 3))
    r = random.choice((1, 2))
    count = random.randint(2, 8)
    size = random.choice(_SLOT_BYTES)
    worker = Group.drawn(random)
    taker = Group.drawn(random)
    stores = random.random() < 0.6
    worker_fences = random.random() < 0.5
    full = f"full[i % {s}]"
    empty = f"empty[i % {s}]"
    made = f"made[i % {r}]"
    free = f"free[i % {r}]"
    fence: Data = {"fence": "proxy.async"}
    working: list[Data] = [
        {"wait": full, "parity": f"i / {s} % 2"},
        {"read": [f"a[i % {s}]"], "tile": "i"},
        {"wait": free, "parity": f"i / {r} % 2 ^ 1"},
        {"write": [f"c[i % {r}]"], "tile": "i"},
        *([fence] if stores and worker_fences else []),
        *worker.done("arrive", made, 1),
        *worker.done("release", empty, 1),
    ]
    taking: list[Data] = [{"wait": made, "parity": f"i / {r} % 2"}]
    if stores:
        taker = Group(32, syncs=False)
        if not worker_fences:
            taking.append(fence)
        taking += [{"store": f"c[i % {r}]"}, {"commit": "bulk"}, {"wait_group": "bulk", "read": True}]
    else:
        taking += [{"read": [f"c[i % {r}]"], "tile": "i"}]
    taking += taker.done("release", free, 2)
    producing: list[Data] = [
        {"wait": empty, "parity": f"i / {s} % 2 ^ 1"},
        *_filling(random, {"a": size}, full, f"i % {s}"),
    ]
    data: Data = {
        "barriers": {
            "full": {"count": 1, "stages": s},
            "empty": {"count": worker.arrivals, "stages": s},
            "made": {"count": worker.arrivals, "stages": r},
            "free": {"count": taker.arrivals, "stages": r},
        },
        "slots": {"a": {"stages": s, "bytes": size}, "c": {"stages": r, "bytes": random.choice(_SLOT_BYTES)}},
        "roles": [
            {"name": "producer", "steps": [_loop(count, producing)]},
            {"name": "worker", "threads": worker.threads, "steps": [_loop(count, working)]},
            {"name": "taker", "threads": taker.threads, "steps": [_loop(count, taking)]},
        ],
    }
    return _with_init(random, data)


def _ping_pong(random: Random) -> Data:
    """Two workers take turns, each with an order barrier that the other ends; every second tile is a worker's own."""
    s = random.choice((2, 3, 4))
    rounds = random.randint(1, 4)
    size = random.choice(_SLOT_BYTES)
    group = Group.drawn(random)
    place = f"(2 * t + instance) % {s}"
    working: list[Data] = [
        {"wait": "order[instance]", "parity": "t % 2 ^ (instance == 0)"},
        {"wait": f"full[{place}]", "parity": f"(2 * t + instance) / {s} % 2"},
        {"read": [f"a[{place}]"], "tile": "2 * t + instance"},
        *group.done("release", f"empty[{place}]", "1 + instance"),
        *group.done("arrive", "order[1 - instance]", "1 + instance"),
    ]
    filled = _filling(random, {"a": size}, f"full[i % {s}]", f"i % {s}")
    producing: list[Data] = [{"wait": f"empty[i % {s}]", "parity": f"i / {s} % 2 ^ 1"}, *filled]
    data: Data = {
        "barriers": {
            "full": {"count": 1, "stages": s},
            "empty": {"count": group.arrivals, "stages": s},
            "order": {"count": group.arrivals, "stages": 2},
        },
        "slots": {"a": {"stages": s, "bytes": size}},
        "roles": [
            {"name": "producer", "steps": [_loop(2 * rounds, producing)]},
            {"name": "worker", "threads": group.threads, "instances": 2, "steps": [_loop(rounds, working, "t")]},
        ],
    }
    return _with_init(random, data)


def _handover(random: Random) -> Data:
    """A writer hands a slot to a reader through two barriers of threads."""
    writer = random.choice((32, 64, 128))
    reader = random.choice((32, 64, 128))
    meeting: Data = {"threads": writer + reader}
    count = random.randint(1, 6)
    size = random.choice(_SLOT_BYTES)
    writing: list[Data] = [{"write": ["a"], "tile": "i"}, {"bar_arrive": 1, **meeting}, {"sync": 2, **meeting}]
    reading: list[Data] = [{"sync": 1, **meeting}, {"read": ["a"], "tile": "i"}, {"bar_arrive": 2, **meeting}]
    return {
        "slots": {"a": {"bytes": size}},
        "roles": [
            {"name": "writer", "threads": writer, "steps": [_loop(count, writing)]},
            {"name": "reader", "threads": reader, "steps": [_loop(count, reading)]},
        ],
    }


def _cp_async_ring(random: Random) -> Data:
    """A producer whose threads copy by cp.async, and arrive when their copies have landed."""
    s = random.choice((1, 2, 3))
    count = random.randint(2, 8)
    group = Group.drawn(random)
    threads = random.choice((1, 32, 64))
    size = random.choice(_SLOT_BYTES)
    producing: list[Data] = [
        {"wait": f"empty[i % {s}]", "parity": f"i / {s} % 2 ^ 1"},
        {"copy": f"a[i % {s}]", "bytes": size, "by": "cp.async", "tile": "i"},
        {"cp_arrive": f"full[i % {s}]", "count": threads, "noinc": True},
    ]
    consuming: list[Data] = [
        {"wait": f"full[i % {s}]", "parity": f"i / {s} % 2"},
        {"read": [f"a[i % {s}]"], "tile": "i"},
        *group.done("release", f"empty[i % {s}]", 1),
    ]
    data: Data = {
        "barriers": {"full": {"count": threads, "stages": s}, "empty": {"count": group.arrivals, "stages": s}},
        "slots": {"a": {"stages": s, "bytes": size}},
        "roles": [
            {"name": "producer", "threads": threads, "steps": [_loop(count, producing)]},
            {"name": "consumer", "threads": group.threads, "steps": [_loop(count, consuming)]},
        ],
    }
    return _with_init(random, data)


def _cp_async_alone(random: Random) -> Data:
    """One role that loads ahead of itself by cp.async, some groups in flight."""
    s = random.choice((2, 3, 4))
    count = random.randint(3, 8)
    size = random.choice(_SLOT_BYTES)
    threads = random.choice((32, 32, 64, 128))
    meet: list[Data] = [{"sync": 1, "threads": threads}] if threads > WARP_THREADS else []

    def load(tile: str, **when: str) -> Data:
        return {"copy": f"a[({tile}) % {s}]", "bytes": size, "by": "cp.async", "tile": tile, **when}

    steps = [
        _loop(s - 1, [load("p"), {"commit": "cp.async"}], "p"),
        _loop(
            count,
            [
                {"wait_group": "cp.async", "pending": s - 2},
                *meet,
                {"read": [f"a[i % {s}]"], "tile": "i"},
                *meet,
                load(f"i + {s - 1}", when=f"i + {s - 1} < {count}"),
                {"commit": "cp.async"},
            ],
        ),
        {"wait_group": "cp.async"},
    ]
    return {
        "slots": {"a": {"stages": s, "bytes": size}},
        "roles": [{"name": "all", "threads": threads, "steps": steps}],
    }


def _stores(random: Random) -> Data:
    """Threads write a tile and a bulk copy stores it, some stores in flight."""
    s = random.choice((1, 2, 3))
    count = random.randint(2, 8)
    threads = random.choice((32, 64, 128))
    meet: list[Data] = [{"sync": 1, "threads": threads}] if threads > WARP_THREADS else []
    steps = [
        _loop(
            count,
            [
                {"wait_group": "bulk", "pending": s - 1, "read": True},
                *meet,
                {"write": [f"c[i % {s}]"], "tile": "i"},
                {"fence": "proxy.async"},
                *meet,
                {"store": f"c[i % {s}]"},
                {"commit": "bulk"},
            ],
        ),
        {"wait_group": "bulk", "read": random.random() < 0.5},
    ]
    slots = {"c": {"stages": s, "bytes": random.choice(_SLOT_BYTES)}}
    return {"slots": slots, "roles": [{"name": "epilogue", "threads": threads, "steps": steps}]}


def _multicast(random: Random) -> Data:
    """A cluster: one block copies a tile into all, or every block its part of it; consumers release the slot everywhere."""
    blocks = random.choice((2, 2, 4))
    s = random.choice((1, 2, 3))
    count = random.randint(2, 6)
    group = Group.drawn(random)
    consumers = random.choice((1, 1, 2))
    size = random.choice(_SLOT_BYTES[:6])
    everyone = (1 << blocks) - 1
    full = f"full[i % {s}]"
    empty = f"empty[i % {s}]"
    shape = random.choice(("one arms all", "one copies", "parts"))
    copied: Data = {"bytes": size, "barrier": full, "tile": "i", "mask": everyone}
    wait: Data = {"wait": empty, "parity": f"i / {s} % 2 ^ 1"}
    slots = {"a": {"stages": s, "bytes": size}}
    reads = [f"a[i % {s}]"]
    releases = everyone
    first: Data = {"when": "rank == 0"}
    if shape == "one arms all":
        releases = 1
        producing = [wait | first, {"expect": full, "bytes": size, "mask": everyone} | first]
        producing.append({"copy": f"a[i % {s}]", **copied} | first)
    elif shape == "one copies":
        producing = [wait, {"expect": full, "bytes": size}, {"copy": f"a[i % {s}]", **copied} | first]
    else:
        slots = {"a": {"stages": s * blocks, "bytes": size}}
        reads = [f"a[i % {s} * {blocks} + {part}]" for part in range(blocks)]
        producing = [wait, {"expect": full, "bytes": blocks * size}]
        producing.append({"copy": f"a[i % {s} * {blocks} + rank]", **copied})
    consuming: list[Data] = [
        {"wait": full, "parity": f"i / {s} % 2"},
        {"read": reads, "tile": "i"},
        *group.done("release", empty, "1 + instance", mask=releases),
    ]
    begin: list[Data] = [{"init": ["full", "empty"]}, {"fence": "mbarrier_init"}]
    return {
        "cluster": [blocks, 1],
        "barriers": {
            "full": {"count": 1, "stages": s},
            "empty": {"count": group.arrivals * consumers * blocks, "stages": s},
        },
        "slots": slots,
        "roles": [
            {"name": "producer", "steps": [*begin, *_meeting(random), _loop(count, producing), {"cluster": "sync"}]},
            {
                "name": "consumer",
                "threads": group.threads,
                "instances": consumers,
                "steps": [*_meeting(random), _loop(count, consuming), {"cluster": "sync"}],
            },
        ],
    }


def _meeting(random: Random) -> list[Data]:
    """The cluster's barrier, in one step or two."""
    if random.random() < 0.6:
        return [{"cluster": "sync"}]
    return [{"cluster": "arrive"}, {"cluster": "wait"}]


def _token(random: Random) -> Data:
    """A token is passed around the blocks of a cluster; the block that has it fills its slot and reads it."""
    blocks = random.choice((2, 4))
    count = random.randint(1, 5)
    group = Group.drawn(random)
    size = random.choice(_SLOT_BYTES)
    turn: list[Data] = [
        {"wait": "token", "parity": "i % 2 ^ (rank == 0)"},
        {"write": ["a"], "tile": "i"},
        *([{"sync": 1, "threads": WARP_THREADS * group.warps}] if group.warps > 1 else []),
        {"read": ["a"], "tile": "i"},
        *group.done("release", "token", 1, mask="1 << (rank + 1) % blocks"),
    ]
    begin = [{"init": ["token"]}, {"fence": "mbarrier_init"}, *_meeting(random)]
    steps = [*begin, _loop(count, turn), {"cluster": "sync"}]
    return {
        "cluster": [blocks, 1],
        "barriers": {"token": {"count": group.arrivals}},
        "slots": {"a": {"bytes": size}},
        "roles": [{"name": "holder", "threads": group.threads, "steps": steps}],
    }


# the likely ones several times
_SHAPES: tuple[Callable[[Random], Data], ...] = (
    _ring,
    _ring,
    _ring,
    _chain,
    _chain,
    _ping_pong,
    _handover,
    _cp_async_ring,
    _cp_async_alone,
    _stores,
    _multicast,
    _multicast,
    _token,
    draw_feasible_pipeline,
    draw_feasible_pipeline,
    draw_feasible_pipeline,
)
