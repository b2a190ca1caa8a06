"""Pipelines on a card: right ones end with the right data, wrong ones hang or fault as `ts.simulate` says.

Every case runs in a child process with a time limit: a fault takes its process with it, and a hang in bar.sync never ends.
"""

import copy
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pipeline_kernel
import pytest

import tilescope as ts
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline
from tilescope.sync.all_orders.search import Run
from tilescope.sync.role_events import SlotAccess

sys.path.insert(0, str(Path(__file__).parent.parent / "pipeline"))
from descriptions import RIGHT, ring

LIMIT_S = 60
JITTERS = (0, 1, 2)


def multiplies_with(data):
    program = UnrolledPipeline(Pipeline.from_dict(data))
    accesses = (action for agent in program.agents for action in program.actions(agent))
    return {action.how for action in accesses if isinstance(action, SlotAccess)}


ON_HOPPER = [name for name, make in RIGHT.items() if "tcgen05" not in multiplies_with(make())]


def changed(data, *path_and_value):
    """The description with one place changed; None as the value deletes it."""
    data = copy.deepcopy(data)
    *path, key, value = path_and_value
    place = data
    for step in path:
        place = place[step]
    if value is None:
        del place[key]
    else:
        place[key] = value
    return data


PRODUCER = ("roles", 0, "steps", 0, "steps")
CONSUMER = ("roles", 1, "steps", 0, "steps")


def twice_armed():
    data = ring()
    data["roles"][0]["steps"][0]["steps"][1:2] = [{"expect": "full[i % 2]", "bytes": 2560}] * 2
    return data


def far_beyond():
    data = ring()
    data["roles"][0]["steps"][0]["steps"][1:1] = [
        {"expect": "full[i % 2]", "bytes": (1 << 20) - 1, "arrive": False}
    ] * 3
    return data


def one_receiver():
    data = RIGHT["multicast"]()
    loop = next(step for step in data["roles"][0]["steps"] if "loop" in step)
    loop["steps"][1]["when"] = "rank == 0"
    return data


def without_noinc():
    data = RIGHT["cp.async"]()
    loop = next(step for step in data["roles"][0]["steps"] if "loop" in step)
    loop["steps"][-1]["noinc"] = False
    return data


def sync_for_more():
    data = RIGHT["planned"]()
    for role in data["roles"]:
        for step in role["steps"]:
            if "sync" in step:
                step["threads"] = 192
    return data


WRONG = {
    "16 bytes more expected": lambda: changed(ring(), *PRODUCER, 1, "bytes", 5136),
    "512 bytes less expected": lambda: changed(ring(), *PRODUCER, 1, "bytes", 4608),
    "a bulk copy whose size is cut": lambda: changed(
        changed(ring(), *PRODUCER, 1, "bytes", 5096), *PRODUCER, 3, "bytes", 1000
    ),
    "the producer starts with parity 0": lambda: changed(ring(), *PRODUCER, 0, "parity", "(i / 2) % 2"),
    "the full barrier counts 2": lambda: changed(ring(), "barriers", "full", "count", 2),
    "the empty barrier counts 2": lambda: changed(ring(), "barriers", "empty", "count", 2),
    "a release of 2": lambda: changed(ring(), *CONSUMER, 4, "count", 2),
    "nobody releases": lambda: changed(ring(), *CONSUMER, 4, None),
    "a barrier armed twice": twice_armed,
    "bytes far beyond 2^20": far_beyond,
    "only one receiver armed": one_receiver,
    "cp.async.mbarrier.arrive without noinc": without_noinc,
    "bar.sync for more threads than come": sync_for_more,
}


# A copy's bytes are counted piece by piece, so a phase that expects too few may end between two of them, or miss its zero:
# of 14 runs on an H200, 6 came through with what was left over counted in later phases, and 8 hung in a later phase.
EITHER_WAY = {"512 bytes less expected"}


def on_the_card(data, **options):
    """What the kernel reports; {"timeout": True} where it had to be killed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.json"
        path.write_text(json.dumps(data))
        try:
            done = subprocess.run(
                [sys.executable, pipeline_kernel.__file__, str(path), json.dumps(options)],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"timeout": True}
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def predicted(data):
    """What the simulation says the kernel will report."""
    simulation = ts.simulate(data)
    run = Run(UnrolledPipeline(Pipeline.from_dict(data)).role_program)
    run()
    state = run.state
    if simulation.verdict == "proven":
        return {"fault": 0, "outcome": [1] * state.agents}
    assert simulation.verdict == "mistake", simulation.sentence
    if simulation.mistake.outcome == "launch failure":
        return {"fault": 719}
    assert simulation.mistake.outcome == "hang", simulation.sentence
    if simulation.mistake.rule == "pipeline-sync":
        return {"timeout": True}
    words = [
        hex(
            ts.Mbarrier(
                state.expected[number],
                phase=state.phase[number] % 2,
                pending=state.pending[number],
                tx_bytes=state.tx[number],
            ).encode()
        )
        for number in range(state.mbarriers)
    ]
    return {"fault": 0, "outcome": [1 if exited else 2 for exited in state.exited], "words": words}


def agrees(reported, expected):
    return all(reported.get(name) == value for name, value in expected.items())


def test_the_kernel_compiles_and_every_case_has_a_prediction():
    assert b"carry_out" in bytes(pipeline_kernel.compiled().code)
    for name, make in WRONG.items():
        assert predicted(make()).get("outcome", [2]) != [1, 1], name
        pipeline_kernel.Encoding(Pipeline.from_dict(make()))
    assert [predicted(RIGHT[name]())["outcome"] for name in ON_HOPPER if 2 in predicted(RIGHT[name]())["outcome"]] == []


@pytest.mark.parametrize("jitter", JITTERS)
@pytest.mark.parametrize("name", ON_HOPPER)
@pytest.mark.usefixtures("card")
def test_right_pipelines_end_with_the_right_data(name, jitter):
    reported = on_the_card(RIGHT[name](), jitter=jitter)
    assert agrees(reported, predicted(RIGHT[name]())), reported
    assert not any(reported["wrong"])
    assert name != "stores" or reported["stored"] == 2


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.usefixtures("card")
def test_wrong_pipelines_hang_or_fault_as_predicted(name):
    reported, expected = on_the_card(WRONG[name]()), predicted(WRONG[name]())
    if name in EITHER_WAY and reported.get("outcome") == [1, 1]:
        expected = {"fault": 0}
    elif name in EITHER_WAY:
        del expected["words"]
    assert agrees(reported, expected), (reported, expected)
