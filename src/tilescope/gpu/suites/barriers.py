"""mbarriers: random sequences of operations; the tokens, what waits pass, and the 64-bit word after mbarrier.inval."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.errors import RuleError
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.pipeline.mbarrier import Mbarrier

# As kernels/barriers.cu numbers them; "init" comes first in every sequence
OPERATIONS = ("init", "arrive", "expect_tx", "complete_tx", "arrive_drop", "arrive_expect_tx")
_LENGTH = 16
_BYTES = (16, 128, 2048, 4096, 16384, 32768)
_STEP_BYTES = 5  # of the result: the token's upper half, and which parities pass


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


def predicted_steps(case: Case) -> Outcome:
    """What a barrier goes through; one that faults is refused."""
    (_, count), *rest = case["steps"]
    state = Mbarrier(count)
    found = [_step(0, state)]
    for operation, argument in rest:
        before, state = state, getattr(state, operation)(argument)
        found.append(_step(before.encode() >> 32 if operation.startswith("arrive") else 0, state))
    return Outcome(b"".join(found) + state.encode().to_bytes(8, "little"))


def _step(token: int, state: Mbarrier) -> bytes:
    return token.to_bytes(4, "little") + bytes([state.passes(0) | state.passes(1) << 1])


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    tokens, passes, words = run_sequences(device, [case["steps"] for case in cases])
    return [
        b"".join(int(token >> 32).to_bytes(4, "little") + bytes([passed]) for token, passed in zip(*steps, strict=True))
        + int(word).to_bytes(8, "little")
        for *steps, word in zip(tokens.tolist(), passes.tolist(), words.tolist(), strict=True)
    ]


def run_sequences(device: Device, sequences: Sequence[Sequence[Sequence[int | str]]]) -> tuple[npt.NDArray[Any], ...]:
    """Tokens and passing parities after every operation, and the word after the last; sequences of one length."""
    operations = np.array([[OPERATIONS.index(str(name)) for name, _ in steps] for steps in sequences], np.int32)
    arguments = np.array([[argument for _, argument in steps] for steps in sequences], np.uint32)
    count, length = operations.shape
    tokens, passes, words = (
        device.allocate(8 * operations.size),
        device.allocate(operations.size),
        device.allocate(8 * count),
    )
    device.launch(
        "barriers:sequences", device.upload(operations), device.upload(arguments), np.int32(length), tokens, passes, words,
        blocks=count, threads=1,
    )  # fmt: skip
    return (
        device.download(tokens, (count, length), "<u8"),
        device.download(passes, (count, length)),
        device.download(words, (count,), "<u8"),
    )


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    for number, (operation, argument) in enumerate(case["steps"]):
        one, other = (each[_STEP_BYTES * number :][:_STEP_BYTES] for each in (found, expected))
        if one != other:
            return (
                f"operation {number}, {operation} {argument}: card {one.hex()}, ours {other.hex()} in {case['steps']}"
            )
    one, other = (each[-8:][::-1] for each in (found, expected))
    return f"the word after inval: card 0x{one.hex()}, ours 0x{other.hex()} after {case['steps']}"


MBARRIERS = Suite(
    "mbarriers", "tokens, waits and the word after sequences of operations", _draw, predicted_steps, _run, _differs, ("barriers",),
)  # fmt: skip
