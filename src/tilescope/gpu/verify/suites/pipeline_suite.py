"""pipelines: random pipelines on the card under random delays; what `ts.simulate` calls proven must never hang or read wrong.

A case is a pipeline as plain data. Its result has a byte for every seed of delays, and what went wrong first:

    seeds     24 bytes: 0 right; otherwise bits: 1 a wait gave up, 2 a reader saw wrong bytes, 4 a warp did not report
    details   6 integers: seed, step that gave up, step that saw wrong bytes, chunk, serial found there, serial expected

A pipeline with a mistake may do anything. The suite reports how often it did what the simulation predicts; no result
counts as a difference.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Outcome, Piece, Result, Suite
from tilescope.gpu.verify.suites.pipeline_actions import NotRunnableError
from tilescope.gpu.verify.suites.pipeline_generator import draw_pipeline
from tilescope.gpu.verify.suites.pipeline_steps import OPS, Encoded, Place, source_rows
from tilescope.pipeline.simulation import Simulation, simulate
from tilescope.sentence import counted

SEEDS = 24  # of delays, for every pipeline
_HUNG, _WRONG, _INCOMPLETE = 1, 2, 4
_WORDS = {_HUNG: "hung", _WRONG: "read wrong data", _INCOMPLETE: "did not report"}
_MAX_STATES = 1500  # of a search
# As kernels/pipelines.cu numbers them
_FIELDS = ("hung_warps", "hung_step", "wrong_chunks", "wrong_step", "wrong_chunk", "found", "expected", "warps_done")
_RESULT = np.dtype([(name, "<i4") for name in _FIELDS])
_DETAIL_FIELDS = ("seed", "hung_step", "wrong_step", "chunk", "found", "expected")
_DETAILS = np.dtype([(name, "<i4") for name in _DETAIL_FIELDS])


def draw(random: random.Random, _arch: str) -> Case | None:
    """A pipeline that the interpreter can run, and that does not fault in four orders: `faults` has those."""
    case: Case = {"pipeline": draw_pipeline(random)}
    try:
        Encoded(case["pipeline"])
    except NotRunnableError:
        return None
    return case


def _predict(_case: Case) -> list[Piece]:
    """What a right pipeline gives."""
    outcomes = Piece(
        f"delays of seed {{}} ({_describe_bit(_HUNG)}, {_describe_bit(_WRONG)}, {_describe_bit(_INCOMPLETE)})",
        np.zeros(SEEDS, np.uint8),
    )
    return [outcomes, Piece("details {}", np.zeros(len(_DETAIL_FIELDS), "<i4"))]


def _describe_bit(bit: int) -> str:
    return f"{bit}: {_WORDS[bit]}"


def _run(device: Device, cases: list[Case]) -> Iterable[Result]:
    """What pipelines with clusters of one size do on the card."""
    encoded = [Encoded(case["pipeline"]) for case in cases]
    blocks = encoded[0].blocks
    tables = launch_tables(encoded)
    target_bytes = max(each.target_bytes for each in encoded)
    targets = device.allocate(len(encoded) * SEEDS * target_bytes)
    results = np.zeros((len(encoded), SEEDS), _RESULT)
    device.launch(
        f"pipelines:clusters_of_{blocks}",
        *tables,
        SEEDS,
        target_bytes,
        targets,
        out=(results,),
        blocks=blocks * results.size,
        threads=max(32 * len(warps) for each in encoded for warps in each.warps),
        smem_bytes=max(each.smem_bytes for each in encoded),
    )
    firsts = np.cumsum([0, *(len(each.rows) for each in encoded)])
    return [summary(each, rows, first) for each, rows, first in zip(encoded, results, firsts[:-1], strict=True)]


def launch_tables(encoded: Sequence[Encoded]) -> tuple[Array, ...]:
    """The rows of pipelines, warps and steps, the serials that reads must see, counts of barriers, and what copies read."""
    pipelines: list[list[int]] = []
    warps: list[list[int]] = []
    steps: list[list[int]] = []
    serials: list[Array] = [np.zeros(1, np.uint32)]
    counts = [0]
    chunks = 1
    comparing = OPS.index("read"), OPS.index("store")
    for each in encoded:
        pipelines.append(
            [
                len(warps),
                each.warps_of_cluster,
                len(each.counts),
                len(counts),
                each.slots_at,
                each.smem_bytes,
                int(each.is_ready),
                each.target_bytes,
            ]
        )
        first = len(steps)
        warps += [[row[0] + first if row[0] >= 0 else -1, *row[1:]] for row in each.warp_table()]
        for op, *numbers in each.rows:
            if op in comparing:
                numbers[2] += chunks  # where its serials begin
            steps.append([op, *numbers])
        serials += each.expected
        chunks += each.expected_chunks
        counts += each.counts
    source = source_rows(max(len(each.serials) for each in encoded) + 4)
    return (
        np.array(pipelines, np.int32),
        np.array(warps, np.int32),
        np.array(steps, np.int32),
        np.concatenate(serials),
        np.array(counts, np.int32),
        source,
    )


def summary(encoded: Encoded, results: Array, first_row: int) -> tuple[bytes, bytes]:
    """A byte for every seed, and the details of the first that went wrong."""
    hung = results["hung_warps"] > 0
    wrong = results["wrong_chunks"] > 0
    incomplete = results["warps_done"] != encoded.warps_of_cluster
    outcomes = (_HUNG * hung + _WRONG * wrong + _INCOMPLETE * incomplete).astype(np.uint8)
    details = np.zeros((), _DETAILS)
    if outcomes.any():
        seed = int(np.flatnonzero(outcomes)[0])
        result = results[seed]
        hung_step = result["hung_step"] - first_row if hung[seed] else -1
        wrong_step = result["wrong_step"] - first_row if wrong[seed] else -1
        details[()] = (seed, hung_step, wrong_step, result["wrong_chunk"], result["found"], result["expected"])
    return outcomes.tobytes(), details.tobytes()


@lru_cache(maxsize=4096)
def _simulate(text: str) -> Simulation:
    return simulate(json.loads(text), max_states=_MAX_STATES)


def _simulation(case: Case) -> Simulation:
    return _simulate(json.dumps(case["pipeline"]))


def _judge(case: Case, measured: Outcome) -> str:
    """The errors of a proven pipeline; empty if it is not proven."""
    words = describe_outcome(case, measured)
    if not words or not _simulation(case):
        return ""
    return f"proven, but the card {words}; pipeline {json.dumps(case['pipeline'])}"


def describe_outcome(case: Case, measured: Outcome) -> str:
    """What went wrong on the card, in words; empty where nothing did."""
    if measured.ended:
        return f"ended with {measured.ended}"
    if measured.data is None or not any(measured.data):
        return ""
    outcomes = np.frombuffer(measured.data[:SEEDS], np.uint8)
    details = np.frombuffer(measured.data[SEEDS:], _DETAILS)[0]
    words = [
        f"{what} under {int((outcomes & bit > 0).sum())} of {SEEDS} seeds"
        for bit, what in _WORDS.items()
        if (outcomes & bit).any()
    ]
    places = Encoded(case["pipeline"]).places
    if details["hung_step"] >= 0:
        words.append(f"seed {details['seed']}: gave up at {_place(places[details['hung_step']])}")
    if details["wrong_step"] >= 0:
        serial = details["found"].view(np.uint32)
        expected = details["expected"].view(np.uint32)
        at = f"{_place(places[details['wrong_step']])}, chunk {details['chunk']}"
        words.append(f"seed {details['seed']}: {at} has serial {serial:#x} instead of {expected:#x}")
    return "; ".join(words)


def _place(place: Place) -> str:
    arguments = {name: value for name, value in place.action.arguments.items() if value is not None}
    return f"{place.agent}: {place.action.op} {list(place.action.targets)} {arguments}"


def _note(cases: Sequence[Case], outcomes: Sequence[Outcome]) -> str:
    """How the simulation's verdicts and the card's outcomes go together, and the smallest pipeline that was proven wrongly."""
    table: dict[str, Counter[str]] = {}
    failed = []
    for case, outcome in zip(cases, outcomes, strict=True):
        simulation = _simulation(case)
        verdict: str = simulation.verdict if simulation.mistake is None else simulation.mistake.outcome
        table.setdefault(verdict, Counter())[_kind(outcome)] += 1
        if _judge(case, outcome):
            failed.append((case, outcome))
    lines = [f"Simulated, and what the card did under at least one of {counted(SEEDS, 'seed')} of delays:"]
    for verdict, counts in sorted(table.items(), key=lambda row: -sum(row[1].values())):
        parts = ", ".join(f"{what} {count}" for what, count in counts.most_common())
        lines.append(f"  {verdict} {sum(counts.values())}: {parts}")
    if failed:
        smallest, outcome = min(failed, key=lambda each: len(json.dumps(each[0])))
        lines.append(f"The smallest of {len(failed)} that are proven and {describe_outcome(smallest, outcome)}:")
        lines.append(json.dumps(smallest["pipeline"]))
    return "\n".join(lines)


def _kind(outcome: Outcome) -> str:
    """An outcome in one word or two."""
    if outcome.ended:
        return outcome.ended
    outcomes = (outcome.data or bytes(SEEDS))[:SEEDS]
    bits = int(np.bitwise_or.reduce(np.frombuffer(outcomes, np.uint8)))
    return " and ".join(what for bit, what in _WORDS.items() if bits & bit) or "right"


PIPELINES = Suite(
    "pipelines",
    draw,
    _predict,
    _run,
    kernels=("pipelines",),
    kind=lambda case: str(case["pipeline"].get("cluster", [1, 1])),
    judge=_judge,
    note=_note,
    together=50,
    children=4,
    feature="multicast",
    seconds_at_most=60.0,
)
