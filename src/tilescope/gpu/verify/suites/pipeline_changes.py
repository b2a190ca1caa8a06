"""One random change of a pipeline that is plain data: what people get wrong in counts, bytes, parities and order."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from tilescope.pipeline.operations import OPERATIONS, Written
from tilescope.sync.thread_limits import WARP_THREADS

Data: TypeAlias = dict[str, Any]
Random: TypeAlias = random.Random


def change(random: Random, data: Data) -> None:
    """Change one thing of a pipeline, with any consequence."""
    lists = list(_step_lists(data))
    if random.random() < 0.4:
        steps = random.choice(lists)
        place = random.randrange(len(steps)) if steps else 0
        match random.choice(("out", "twice", "exchange")):
            case "out" if len(steps) > 1:
                del steps[place]
            case "twice" if steps:
                steps.insert(place, copy.deepcopy(steps[place]))
            case "exchange" if len(steps) > 1:
                place = random.randrange(len(steps) - 1)
                steps[place : place + 2] = reversed(steps[place : place + 2])
        return
    rows = [row for table in ("barriers", "slots") for row in data.get(table, {}).values()]
    for steps in lists:
        rows += steps
    fields = [(row, name) for row in rows for name in row]
    fields = [(row, name) for row, name in fields if name in _CHANGES]
    if fields:
        row, name = random.choice(fields)
        row[name] = _CHANGES[name](random, row[name])


def _step_lists(data: Data) -> Iterator[list[Data]]:
    for holder in data.get("roles", []):
        yield from _list_bodies(holder["steps"])


def _list_bodies(steps: list[Data]) -> Iterator[list[Data]]:
    yield steps
    for step in steps:
        if "loop" in step:
            yield from _list_bodies(step["steps"])


def _other_number(random: Random, value: Written) -> Written:
    if isinstance(value, str):
        return f"{value} + 1"
    return max(0, value + random.choice((-1, 1)))


def _other_bytes(random: Random, value: int) -> int:
    return max(0, random.choice((value - 16, value + 16, 2 * value, value // 32 * 16)))


def _other_parity(random: Random, value: Written) -> Written:
    return random.choice((f"({value}) ^ 1", 0, 1))


def _other_stage(random: Random, value: object) -> object:
    """The same barrier or slot, another stage; those without stages stay."""
    if isinstance(value, list) and value:
        return [_other_stage(random, value[0]), *value[1:]]
    if not isinstance(value, str) or "[" not in value:
        return value
    return random.choice((value.replace("[i ", "[(i + 1) "), value.partition("[")[0] + "[0]"))


def _other_arrive(_random: Random, value: object) -> object:
    """The flag of an expect; what a step arrives at stays."""
    return not value if isinstance(value, bool) else value


def _other_flag(_random: Random, value: bool) -> bool:
    return not value


def _other_read(random: Random, value: object) -> object:
    """The flag of a wait_group, or the slots of a read."""
    return not value if isinstance(value, bool) else _other_stage(random, value)


def _other_mask(random: Random, value: Written) -> Written:
    return random.choice((1, 2, 3, value))


def _other_threads(random: Random, value: Written) -> Written:
    return value + random.choice((-WARP_THREADS, WARP_THREADS)) if isinstance(value, int) else value


_CHANGES: dict[str, Callable[..., object]] = {  # of a value, by the name of its field
    "count": _other_number,
    "pending": _other_number,
    "stages": _other_number,
    "bytes": _other_bytes,
    "parity": _other_parity,
    "arrive": _other_arrive,
    "noinc": _other_flag,
    "read": _other_read,
    "mask": _other_mask,
    "threads": _other_threads,
    **{name: _other_stage for name in OPERATIONS if name not in ("arrive", "read", "cluster", "fence", "sync")},
}
