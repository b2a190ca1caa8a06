"""mbarriers: random sequences of operations; the tokens, what waits pass, and the 64-bit word after mbarrier.inval."""

from __future__ import annotations

import random

import numpy as np

from tilescope.errors import RuleError
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Pieces, Suite
from tilescope.pipeline.mbarrier import Mbarrier

# As kernels/barriers.cu numbers them; "init" comes first in every sequence
OPERATIONS = ("init", "arrive", "expect_tx", "complete_tx", "arrive_drop", "arrive_expect_tx")
_LENGTH = 16
_BYTES = (16, 128, 2048, 4096, 16384, 32768)
_STEP = np.dtype([("token", "<u4"), ("passes", "u1")])  # the token's upper half, and which parities pass


def _draw(random: random.Random, _arch: str) -> Case:
    """An init and fifteen operations that the barrier takes; now and then a copy's bytes come before they are expected."""
    count = random.choice((1, 1, 2, 3, random.randint(1, 1000)))
    steps, state = [["init", count]], Mbarrier(count)
    while len(steps) < _LENGTH:
        operation = random.choice(OPERATIONS[1:])
        argument = random.choice(_BYTES) if "tx" in operation else random.randint(1, max(1, state.pending))
        if operation == "complete_tx" and state.tx_bytes > 0 and random.random() < 0.6:
            argument = state.tx_bytes  # ends the phase, if no arrival is missing
        if operation == "arrive_drop" and argument >= state.count:
            continue  # a barrier that waits for nobody
        try:
            state = getattr(state, operation)(argument)
        except RuleError:
            continue
        steps.append([operation, argument])
    return {"steps": steps}


def predicted(case: Case) -> bytes:
    """What a barrier goes through."""
    (_, count), *rest = case["steps"]
    state, steps = Mbarrier(count), np.zeros(len(case["steps"]), _STEP)
    steps[0] = 0, _passes(state)
    for number, (operation, argument) in enumerate(rest, 1):
        token = state.encode() >> 32 if operation.startswith("arrive") else 0
        state = getattr(state, operation)(argument)
        steps[number] = token, _passes(state)
    return steps.tobytes() + state.encode().to_bytes(8, "little")


def _passes(state: Mbarrier) -> int:
    return state.passes(0) | state.passes(1) << 1


def run(device: Device, cases: list[Case]) -> list[bytes]:
    """What the card's barriers go through; the sequences of a call are of one length."""
    operations = np.array([[OPERATIONS.index(name) for name, _ in case["steps"]] for case in cases], np.int32)
    arguments = np.array([[argument for _, argument in case["steps"]] for case in cases], np.uint32)
    count, length = operations.shape
    tokens, passes, words = (device.allocate(size) for size in (8 * operations.size, operations.size, 8 * count))
    device.launch(
        "barriers:sequences", device.upload(operations), device.upload(arguments), np.int32(length), tokens, passes, words,
        blocks=count, threads=1,
    )  # fmt: skip
    steps = np.empty((count, length), _STEP)
    steps["token"] = device.download(tokens, (count, length), "<u8") >> np.uint64(32)
    steps["passes"] = device.download(passes, (count, length))
    after = device.download(words, (count,), "<u8")
    return [step.tobytes() + word.tobytes() for step, word in zip(steps, after, strict=True)]


def _pieces(_case: Case, data: bytes) -> Pieces:
    steps = np.frombuffer(data[:-8], _STEP)
    return [
        ("operation {}, upper half of its token", steps["token"]),
        ("operation {}, parities that pass after it", steps["passes"]),
        ("the word after inval", np.frombuffer(data[-8:], "<u8")),
    ]


MBARRIERS = Suite("mbarriers", _draw, predicted, run, _pieces, ("barriers",))
