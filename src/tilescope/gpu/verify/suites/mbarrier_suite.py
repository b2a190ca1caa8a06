"""mbarriers: random sequences of operations; the tokens, what waits pass, and the 64-bit word after mbarrier.inval.

faults: copies and barriers at the edge of what the chip executes; which CUDA error they end with.

    715 illegal instruction    a coordinate, or an operation of a type, that the engine does not take
    716 misaligned address     shared memory off 128 bytes, a barrier off 8, a map off 64, a bulk copy off 16
    719 launch failure         more arrivals than an mbarrier waits for, or far more bytes than it counts

A case of faults runs in a process of its own: a fault spends the process. More arrivals than pending are a fault where one
instruction brings them; its block must live on for a while, or it is not reported.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np

from tilescope.errors import MisalignedAddressError, RuleError
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Case, Piece, Result, Suite, copy_suite
from tilescope.gpu.verify.suites.map_suite import types_of
from tilescope.sync.mbarrier import TX_END_BYTES, Mbarrier
from tilescope.tensor_map import REDUCTIONS

# As kernels/barriers.cu numbers them; "init" comes first in every sequence
OPERATIONS = ("init", "arrive", "expect_tx", "complete_tx", "arrive_drop", "arrive_expect_tx")
_BYTES = (16, 128, 2048, 4096, 16384, 32768)
_STEP = np.dtype([("token", "<u4"), ("passes", "u1")])  # the token's upper half, and which parities pass


def _draw_sequence(random: random.Random, _arch: str) -> Case:
    """An init and fifteen operations that the barrier takes; now and then a copy's bytes come before they are expected."""
    count = random.choice((1, 1, 2, 3, random.randint(1, 1000)))
    steps: list[list[str | int]] = [["init", count]]
    state = Mbarrier(count)
    while len(steps) < 16:
        operation = random.choice(OPERATIONS[1:])
        argument = random.choice(_BYTES) if "tx" in operation else random.randint(1, max(1, state.pending))
        if operation == "complete_tx" and state.tx_bytes > 0 and random.random() < 0.6:
            argument = state.tx_bytes  # ends the phase, if no arrival is missing
        if operation == "arrive_drop" and argument >= state.count:
            continue  # a barrier that expects no arrival
        try:
            state = _after(state, operation, argument)
        except RuleError:
            continue
        steps.append([operation, argument])
    return {"steps": steps}


def _after(state: Mbarrier, operation: str, argument: int) -> Mbarrier:
    """The state of a barrier after an operation."""
    match operation:
        case "arrive":
            return state.arrive(argument)
        case "expect_tx":
            return state.expect_tx(argument)
        case "complete_tx":
            return state.complete_tx(argument)
        case "arrive_drop":
            return state.arrive_drop(argument)
        case "arrive_expect_tx":
            return state.arrive_expect_tx(argument)
    raise AssertionError(operation)


def _predict_sequence(case: Case) -> list[Piece]:
    """What a barrier goes through."""
    (_, count), *operations = case["steps"]
    state = Mbarrier(count)
    steps = np.zeros(len(case["steps"]), _STEP)
    steps[0] = 0, state.passes(0) | state.passes(1) << 1
    for number, (operation, argument) in enumerate(operations, 1):
        token = state.encode() >> 32 if operation.startswith("arrive") else 0
        state = _after(state, operation, argument)
        steps[number] = token, state.passes(0) | state.passes(1) << 1
    after = Piece("the word after inval", np.array([state.encode()], "<u8"))
    return [Piece("operation {}, upper half of its token and the parities that pass after it", steps), after]


def _run_sequences(device: Device, cases: list[Case]) -> Iterable[Result]:
    """What the card's barriers go through; the sequences of a call are of one length."""
    numbers = [[(OPERATIONS.index(name), argument) for name, argument in case["steps"]] for case in cases]
    operations, arguments = np.moveaxis(np.array(numbers, np.uint32), 2, 0)
    steps = np.empty(operations.shape, _STEP)
    words = np.empty(len(cases), "<u8")
    device.launch(
        "barriers:sequences",
        operations,
        arguments,
        operations.shape[1],
        out=(steps, words),
        blocks=len(cases),
        threads=1,
    )
    return zip(steps, words, strict=True)


MBARRIERS = Suite("mbarriers", _draw_sequence, _predict_sequence, _run_sequences, kernels=("barriers",))

_DONE = [Piece("byte {}", np.frombuffer(b"done", np.uint8))]
_ALIGNMENT_BYTES = {"barrier": 8, "map": 64}


def _draw_misuse(random: random.Random, arch: str) -> Case | None:
    """A copy with a coordinate, an address, an operation or an object where it may not be."""
    kind = random.choice((*("load", "store", "reduce") * 2, "im2col", "barrier", "map", "bulk", "arrivals", "bytes"))
    if kind == "bulk":
        place = random.choice(("smem", "global"))
        shift = random.choice((0, 4, 8, 12))
        copy = copy_suite.draw_bulk(random, arch)
        return copy | {"kind": kind, "size": copy["size"] + 16, place: copy[place] + shift}
    if kind in ("arrivals", "bytes"):
        return {"kind": kind, "steps": [list(step) for step in _steps(random, kind)]}
    reduce = random.choice(list(REDUCTIONS)) if kind == "reduce" else None
    case = copy_suite.draw_copy(
        random,
        arch,
        data_type=random.choice(types_of("sm_90")),
        stores=kind in ("store", "reduce"),
        im2col=1.0 if kind == "im2col" else 0.0,
        reduce=reduce,
    )
    if case is None:
        return None
    if kind in _ALIGNMENT_BYTES:
        shifts = (0, 4, 8) if kind == "barrier" else (0, 16, 32, 48, 64)
        return case | {"kind": kind, "shift": random.choice(shifts)}
    if random.random() < 0.4:
        case["smem"] = 16 * random.randint(0, 40)
    if random.random() < 0.5:
        case["coords"][random.choice((0, random.randrange(len(case["coords"]))))] += random.randint(-8, 8)
    return case | {"kind": kind}


def _steps(random: random.Random, kind: str) -> list[tuple[str, int]]:
    """Operations on one barrier, the last of which makes the missing arrivals, or more."""
    count = random.choice((1, 2, 7, random.randint(1, 200)))
    if kind == "arrivals":
        return [("init", count + 1), ("arrive", 1), ("arrive", max(1, count + random.choice((-1, 0, 1, 5))))]
    most = TX_END_BYTES - 1
    sizes = random.choice(((most, 0, 0), (most, most, most)))
    return [("init", count), *(("expect_tx", size) for size in sizes)]


def _predict_misuse(case: Case) -> list[Piece]:
    if "shift" in case and case["shift"] % _ALIGNMENT_BYTES[case["kind"]]:
        raise MisalignedAddressError([])
    if "steps" in case:
        _predict_sequence(case)
    else:
        copy_suite.predict_copy(case)
    return _DONE


def _run_misuse(device: Device, cases: list[Case]) -> Iterable[Result]:
    for case in cases:
        shifted = case | {f"{case['kind']}_shift": case.get("shift", 0)}
        if "steps" in case:
            _run_sequences(device, [shifted])
        else:
            copy_suite.run(device, [shifted])
        yield [piece.numbers for piece in _DONE]


FAULTS = Suite(
    "faults",
    _draw_misuse,
    _predict_misuse,
    _run_misuse,
    kernels=("copies", "barriers"),
    count=100,
    together=1,
    children=6,
    seconds_at_most=30.0,
)
