"""The kernel does what the plan's pipeline says: emitted text is taken apart and held against `ts.plan_pipeline`'s steps."""

import re
from dataclasses import replace

import pytest
from emitter_sample import GEMMS, PLANS, has_epilogue, is_copied_by_tma, is_load
from emitter_toolchain import nvrtc

import tilescope as ts
from tilescope.emitter import gemm_roles, tile_program
from tilescope.emitter.emission import device_half
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop

TILES = [name for name in PLANS if is_copied_by_tma(name) and is_load(name)]
WITH_EPILOGUE = [name for name in GEMMS if has_epilogue(name)]


def pipeline_of(plan):
    """The pipeline that the program prints: tiles are read by four warps, each of which arrives."""
    return ts.plan_pipeline(plan, arrivals="warp") if hasattr(plan, "box") else ts.plan_pipeline(plan)


def code(text):
    return re.sub(r"//[^\n]*", "", text)


def calls(text):
    """The calls that synchronise, in order, with their arguments."""
    names = r"mbarrier_wait|mbarrier_arrive_expect|mbarrier_arrive|fence_proxy_async|bar_sync<.*?>|\w+_commit|\w+_wait<.>|bulk_wait_read<.>"
    found = re.findall(rf"({names})\((.*)\);", code(text))
    return [(name, arguments.replace("slot", "@")) for name, arguments in found]


def place_of(step, counter):
    """A step's barrier: loops count their stages in `slot`, here @, and reach the one of the step before from there."""
    name, _, index = str(step.target).partition("[")
    if "- 1" in index and counter in ("k_tile", "run"):
        return f"{name} + 8 * ((@ == 0 ? STAGES : @) - 1)"
    return f"{name} + 8 * @" if "j" not in index and "- 1" not in index else f"{name} + 8 * ({index[:-1]})"


def parity_of(step):
    """A step's parity: in a loop over stages the phase of its own one."""
    number = str(step.target).partition("[")[2].removesuffix(" % STAGES]")
    own = f"{number} / STAGES % 2"
    return str(step.arguments["parity"]).replace(own, "phase") if step.op == "wait" else step.arguments["parity"]


def expected_calls(steps, inside=(), counter=None):
    """The same from a role's steps, written here from what a step means."""
    for step in steps:
        if isinstance(step, Loop):
            yield from expected_calls(step.steps, inside, step.counter)
            continue
        at = place_of(step, counter)
        match step.op:
            case "wait" | "tail":
                yield "mbarrier_wait", f"{at}, {parity_of(step)}"
            case "expect":
                yield "mbarrier_arrive_expect", f"{at}, {step.arguments['bytes']}"
            case "release":
                yield "mbarrier_arrive", at
            case "fence":
                yield "fence_proxy_async", ""
            case "commit" if step.target not in inside:
                yield f"{step.target}_commit", ""
            case "wait_group" if step.target not in inside:
                read = "_read" if step.arguments.get("read") else ""
                yield f"{step.target}_wait{read}<{step.arguments.get('pending', 0)}>", ""
            case "sync":
                yield f"bar_sync<{step.target}, {step.arguments['threads']}>", ""


def kernel_parts(source):
    """The kernel's text before the roles part, the producer's and the consumer's."""
    kernel = device_half(source).partition("_kernel(\n")[2].partition("\n}\n")[0]
    before, _, rest = kernel.partition("{  // the producer")
    producer, _, consumer = rest.partition("    return;\n")
    return before, producer, consumer


def first_loop(role):
    """What a role does behind the meeting of the block."""
    return role.steps[next(number for number, step in enumerate(role.steps) if isinstance(step, Loop)) :]


@pytest.mark.parametrize("name", [*TILES, *(f"gemm {name}" for name in WITH_EPILOGUE)])
def test_counts_bytes_parities_and_order_are_the_pipelines(name):
    plan = GEMMS[name[5:]] if name.startswith("gemm ") else PLANS[name]
    pipeline, source = pipeline_of(plan), ts.emit(plan, "cuda")
    setup, producer, consumer = kernel_parts(source)
    counts = dict(re.findall(r"mbarrier_init\((\w+) \+ 8 \* stage, (\d+)\)", setup))
    assert counts == {barrier.name: str(barrier.count) for barrier in pipeline.barriers}
    assert "fence.mbarrier_init" in setup
    roles = {role.name: role for role in pipeline.roles}
    assert calls(producer) == list(expected_calls(first_loop(roles["producer"])))
    inside = ("wgmma",) if name in TILES else ()
    assert calls(consumer) == list(expected_calls(first_loop(roles["consumer"]), inside))
    assert ts.simulate(pipeline).verdict == "proven"


def changed(pipeline, *path_and_value):
    data = pipeline.to_dict()
    *path, key, value = path_and_value
    place = data
    for each in path:
        place = place[each]
    place[key] = value
    return Pipeline.from_dict(data)


PRODUCER, CONSUMER = ("roles", 0, "steps", 3, "steps"), ("roles", 1, "steps", 1, "steps")


@pytest.mark.parametrize(
    ("path", "printed"),
    [
        (("barriers", "empty", "count", 7), "mbarrier_init(empty + 8 * stage, 7);"),
        ((*PRODUCER, 1, "bytes", 4711), "mbarrier_arrive_expect(full + 8 * slot, 4711);"),
        ((*PRODUCER, 0, "parity", "i / STAGES % 2"), "mbarrier_wait(empty + 8 * slot, phase);"),
        ((*CONSUMER, 0, "parity", 1), "mbarrier_wait(full + 8 * slot, 1);"),
        ((*CONSUMER, 4, "count", 128), "    mbarrier_arrive(empty + 8 * slot);"),
        ((*CONSUMER, 3, "pending", 2), "wgmma_wait<2>();"),
    ],
)
def test_another_pipeline_is_another_text(path, printed, monkeypatch):
    plan = ts.plan((64, 64), "bf16", stages=2).best
    assert printed not in ts.emit(plan, "cuda")
    other = changed(ts.plan_pipeline(plan, arrivals="warp"), *path)
    monkeypatch.setattr(tile_program, "plan_pipeline", lambda *_, **__: other)
    assert printed in ts.emit(plan, "cuda")


def test_steps_in_another_order_are_printed_in_it(monkeypatch):
    plan = ts.plan_gemm(512, 512, 512, "bf16")
    pipeline = ts.plan_pipeline(plan)
    data = pipeline.to_dict()
    steps = data["roles"][0]["steps"][3]["steps"][0]["steps"]
    steps[1:3] = steps[2:0:-1]
    monkeypatch.setattr(gemm_roles, "plan_pipeline", lambda *_, **__: Pipeline.from_dict(data))
    _, producer, _ = kernel_parts(ts.emit(plan, "cuda"))
    assert re.search(r"tma_load\(a.*arrive_expect.*tma_load\(b", producer, re.DOTALL)


def test_the_only_stage_is_released_before_it_is_waited_for_again():
    """With one stage no product can stay behind: the program waits for all of them, and compiles."""
    plan = ts.plan_gemm(512, 512, 512, "bf16", stages=1)
    source = ts.emit(plan, "cuda")
    assert "wgmma_wait<0>();" in source
    assert "wgmma_wait<1>();" not in source
    assert ts.simulate(ts.plan_pipeline(plan)).verdict == "proven"
    held = replace(
        ts.plan_pipeline(ts.plan_gemm(512, 512, 512, "bf16", stages=2)),
        constants={"STAGES": 1, "K_TILES": 8, "tiles": 2},
    )
    assert ts.simulate(held).verdict == "mistake"  # a product that stays behind holds the only stage
    on_ampere = ts.emit(ts.plan_gemm(512, 512, 512, "bf16", arch="sm_80", stages=1), "cuda")
    assert nvrtc(source, "sm_90a")
    assert nvrtc(on_ampere, "sm_80")
