"""The page of pipelines: planned tiles or a description in, a timeline out, the mistake marked in it."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tilescope.arch import ARCH
from tilescope.data_type import DATA_TYPE
from tilescope.mma.consumer import CONSUMER
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop
from tilescope.pipeline.parts import Step as PipelineStep
from tilescope.pipeline.program import Program, agent_names, loop_values
from tilescope.pipeline.simulation import Simulation, simulate
from tilescope.planner import plan, plan_gemm
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.view.drawing import Drawing
from tilescope.view.parts import Paragraph
from tilescope.web.call import Call
from tilescope.web.field import (
    PAGE_LIMIT,
    Field,
    Optional,
    choice,
    integer,
    limited,
    option_words,
    pair,
    text,
    tick,
    triple,
)
from tilescope.web.page import Answer, Page, drawn
from tilescope.web.pages.plan import MOST_ELEMENTS

MOST_ROLES = 48  # in all blocks
MOST_STATES = 200
_STDIN = "stdin"  # how the command names what it reads there
_TILES, _GEMM, _TEXT = "tiles", "gemm", "text"
# Steps of all roles, loops run. One run proves two tiles or a GEMM; else other orders may have to be tried.
# A product for tcgen05 takes longest to plan.
_MOST_STEPS = {_TILES: 8000, _GEMM: 10_000, "tcgen05": 3000, _TEXT: 1000}
_planned_gemm = lru_cache(maxsize=16)(plan_gemm)  # the next change of a field plans the same product
_PLAN_OPTIONS = ("arch", "consumer", "copy", "direction")
_PIPELINE_OPTIONS = ("stages", "consumers", "cluster", "cta_group", "arrivals", "steps")


def answer(given: str, asked: dict[str, Any]) -> Answer:
    """The verdict on a pipeline, its timeline, and the way into the mistake."""
    made, command = _described(asked["text"]) if given == _TEXT else _planned(given, asked)
    pipeline = Pipeline.from_dict(made) if isinstance(made, dict) else made.run()
    in_tmem = any(slot.space == "tmem" for slot in pipeline.slots)
    size = _TEXT if given == _TILES and not asked["other"] else "tcgen05" if in_tmem and given == _GEMM else given
    _require_small(pipeline, _MOST_STEPS[size])
    call = Call(simulate, (made,), {"max_states": MOST_STATES}, "simulation")
    found: Simulation = simulate(pipeline, max_states=MOST_STATES)
    drawing = drawn(found)
    parts = [part for part in drawing.parts if found.mistake is None or part != Paragraph(found.sentence)]
    return Answer(
        call, (*command, "--max-states", str(MOST_STATES)), found, Drawing(drawing.title, tuple(parts)),
        violations=(*found.violations, *(warning.violation("warning") for warning in found.warnings)),
    )  # fmt: skip


def _planned(given: str, asked: dict[str, Any]) -> tuple[Call, list[str]]:
    """The call that plans the pipeline of one tile, of two that share a stage, or of a GEMM, and the command that does."""
    plan_options = {name: asked[name] for name in _PLAN_OPTIONS if asked.get(name) is not None}
    options = {name: asked[name] for name in _PIPELINE_OPTIONS if asked.get(name) is not None}
    if given == _GEMM:
        shapes = [asked["shape"]]
        planned: Any = Call(_planned_gemm, (*asked["shape"], asked["data_type"]), plan_options, "gemm")
    else:
        shapes = [asked[name] for name in ("tile", "other") if asked[name] is not None]
        for mn, k in shapes:
            limited("elements", "tile", abs(mn * k), MOST_ELEMENTS, "Plan a smaller tile.")
        planned = [
            Call(plan, (tile, asked["data_type"]), plan_options, name, attribute="best")
            for name, tile in zip("ab", shapes, strict=False)
        ]
    made = Call(plan_pipeline, (planned,), options | {"multicast": not asked["no_multicast"]}, "pipeline")
    command = ["pipeline", *("x".join(map(str, shape)) for shape in shapes), asked["data_type"]]
    return made, command + option_words(PAGE.forms[given], asked)


def _described(written: str) -> tuple[dict[str, Any], list[str]]:
    """The description as data; the command reads the same text from its input."""
    return Pipeline.from_text(written.encode("utf-8", errors="replace"), _STDIN).to_dict(), ["pipeline", "-"]


def _require_small(pipeline: Pipeline, most: int) -> None:
    """Refuse more roles or steps than a page can run, before any is run."""
    agents = Program(pipeline).agents
    limited("roles in all blocks", "roles", len(agents), MOST_ROLES, "Describe fewer consumers or blocks.")
    done = 0
    for agent in agents:
        done += _steps_run(agent.role.steps, agent_names(pipeline, agent), most - done)
        if done > most:
            fix = "Describe fewer rounds or blocks, or a smaller k; the command line takes more."
            raise PAGE_LIMIT.error("steps", f"more than {most} steps", f"a page takes at most {most}", fix)


def _steps_run(steps: tuple[PipelineStep | Loop, ...], names: dict[str, int], most: int) -> int:
    """How many steps a role runs, a round of a loop counted as one more; counting ends beyond `most`."""
    done = 0
    for step in steps:
        if not isinstance(step, Loop):
            done += 1
            continue
        for value in loop_values(step, names):
            if done > most:
                return done
            done += 1 + _steps_run(step.steps, {**names, step.counter: value}, most - done)
    return done


_SAMPLE = (files("tilescope.web") / "samples" / "pipeline.toml").read_text("utf-8").rstrip()

_NAME, _NUMBER = Optional(text), Optional(integer)
_TYPE = Field("data_type", "Element type", "bf16", choices=tuple(DATA_TYPE))
_CONSUMERS = Field("consumers", "Consumers", "", _NUMBER, "Warpgroups; empty: 1.", option="--consumers")
_SHAPED = (
    Field("cluster", "Cluster", "1x1", pair, "Blocks, x by y.", option="--cluster", unsaid="1,1"),
    Field("arrivals", "A consumer arrives", "", _NAME, "By warpgroup, warp or thread; empty: as what reads needs.",
          ("warpgroup", "warp", "thread"), option="--arrivals"),
    tick("no_multicast", "Every block loads its own tiles", option="--no-multicast"),
    Field("cta_group", "Blocks that multiply together", "1", integer, "2: pairs, with tcgen05.", option="--cta-group", unsaid="1"),
    Field("arch", "Architecture", "", _NAME, "Empty: sm_90.", tuple(ARCH), option="--arch"),
    Field("consumer", "Read by", "", _NAME, "Empty: the best tensor core.", tuple(CONSUMER), option="--consumer"),
)  # fmt: skip

PAGE = Page(
    "pipeline",
    "Pipeline",
    "Whether producers and consumers are right in every order: the timeline, what each barrier needs, the mistake marked.",
    {
        _TILES: (
            Field("tile", "Tile", "128x64", pair, "mn x k, in elements."),
            Field("other", "And", "", Optional(pair), "A second tile in the same stage, such as 256x64."),
            _TYPE,
            Field("stages", "Stages", "4", _NUMBER, option="--stages"),
            _CONSUMERS,
            Field("steps", "K steps", "", _NUMBER, "Empty: 4 x stages + 2.", option="--steps"),
            *_SHAPED,
            Field("copy", "Copied by", "", _NAME, "Empty: TMA where there is one.", ("tma", "cp.async", "ld.global"), option="--copy"),
            choice("direction", "Direction", ("load", "store"), option="--direction", unsaid="load"),
        ),
        _GEMM: (
            Field("shape", "Product", "4096x4096x4096", triple, "m x n x k, in elements."),
            _TYPE,
            Field("stages", "Stages", "", _NUMBER, "Empty: those of the plan.", option="--stages"),
            replace(_CONSUMERS, hint="Warpgroups; empty: those of the plan."),
            *_SHAPED,
        ),
        _TEXT: (
            Field("text", "Description", _SAMPLE, control="area", most_characters=6000,
                  hint="Barriers, slots and roles as TOML or JSON; the command reads it from its input."),
        ),
    },
    answer,
    choice("given", "Described by", (_TILES, _GEMM, _TEXT)),
)  # fmt: skip
