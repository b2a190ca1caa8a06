"""bulk: one-dimensional copies, cp.async.bulk, of any size; shared memory and the barrier after a load, memory after a store."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from tilescope.gpu.device import Device
from tilescope.gpu.samples import pool
from tilescope.gpu.suite import Case, Outcome, Suite, bytes_differ, in_groups
from tilescope.gpu.suites.copies import IMAGE_BYTES, UNTOUCHED, WORD_AFTER, Tables, drawn_place, loaded, result_of_load
from tilescope.gpu.suites.storing import MEMORY_BYTES, changed_span, memory_before, restored, stored
from tilescope.tma import bulk_load, bulk_store
from tilescope.tma.bulk import bulk_bytes

_LARGEST_BYTES = 16400  # one chunk more than is drawn here: faults are drawn from these cases


def _draw(random: random.Random, _arch: str) -> Case:
    """Sizes that are no multiple of 16 among them: the chip cuts them down without a word."""
    size = random.randint(0, 1 << random.randint(0, 14))
    return {
        "direction": random.choice(("load", "store")),
        "size": size if random.random() < 0.4 else size // 16 * 16,
        "smem": 16 * random.randint(0, (IMAGE_BYTES - _LARGEST_BYTES) // 16 - 1),
        "global": 16 * random.randint(0, (MEMORY_BYTES - _LARGEST_BYTES) // 16 - 1),
        "memory": drawn_place(random),
        "image": drawn_place(random),
    }


def _predict(case: Case) -> Outcome:
    """What the emulator says of a bulk copy; a misaligned one is refused."""
    start, memory = case["smem"], memory_before(case)
    if case["direction"] == "load":
        smem = np.full(IMAGE_BYTES, UNTOUCHED, np.uint8)
        bulk_load(memory, case["global"], case["size"], smem=smem[start:], smem_address=start)
        return Outcome(result_of_load(WORD_AFTER, smem))
    after, smem = memory.copy(), pool()[case["image"] + start :]
    bulk_store(smem, after, case["global"], case["size"], smem_address=start)
    return Outcome(changed_span(memory, after))


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    """What the card does."""
    return in_groups(cases, lambda case: str(case["direction"]), partial(_batch, device))


def _batch(device: Device, direction: str, cases: list[Case]) -> list[bytes]:
    tables = Tables(device)
    if direction == "load":
        for case in cases:
            copy = {"coords": [case["memory"] + case["global"]], "smem": case["smem"], "size": case["size"]}
            tables.add_bulk(copy, bulk_bytes(case["size"]))
        return [
            result_of_load(*each)
            for each in zip(*loaded(device, tables, device.upload(pool()), len(cases)), strict=True)
        ]
    before = np.stack([memory_before(case) for case in cases])
    memory = device.upload(before)
    for case in cases:
        tables.add_bulk({"coords": [case["global"]], "smem": case["smem"], "size": case["size"], "mask": case["image"]})
    stored(device, tables, memory, len(cases))
    return [changed_span(*each) for each in zip(before, device.download(memory, before.shape), strict=True)]


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    what = f"a {case['direction']} of {case['size']} bytes"
    if case["direction"] == "store":
        return f"{what}: {bytes_differ(restored(case, found), restored(case, expected), 'global memory')}"
    words = [int.from_bytes(each[:8], "little") for each in (found, expected)]
    if words[0] != words[1]:
        return f"{what}: the barrier's word is {words[0]:#018x}, ours {words[1]:#018x}"
    return f"{what}: {bytes_differ(found[8:], expected[8:])}"


BULK = Suite(
    "bulk", "memory and barrier after 1-D bulk copies of any size", _draw, _predict, _run, _differs, ("copies",)
)
