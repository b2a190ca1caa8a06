"""The pages of plans and of pipelines: ranked plans with their code; a timeline with its mistake marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from itertools import chain, islice
from typing import Any

from tilescope.emitter.emission import TARGETS, emit
from tilescope.errors import PlanError, RuleError
from tilescope.inputs import Input, chosen, command_words, defaults, in_words
from tilescope.inputs.beside import plan_facts
from tilescope.inputs.plans import ARCHITECTURE, CONSUMER_INPUT, GEMM, PIPELINE, PLAN, PROBLEM
from tilescope.inputs.tiles import ELEMENT_TYPE, TILE
from tilescope.mma.consumer import CONSUMER
from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import Loop
from tilescope.pipeline.parts import Step as PipelineStep
from tilescope.pipeline.program import Program, agent_names, loop_values
from tilescope.pipeline.simulation import Simulation, simulate
from tilescope.planner import Plan, PlanReport, Unplanned, plan, plan_gemm
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.sentence import by
from tilescope.view.drawing import Drawing, Part
from tilescope.web.call import Call
from tilescope.web.page import PAGE_LIMIT, Answer, Code, Field, Page, address, drawn, form, limited
from tilescope.written import tile as written_tile

MAX_ELEMENTS = 1 << 17  # of a tile
_MAX_COUNTED = 1 << 15  # elements of a tile whose reads are counted instruction by instruction
MAX_ROLES = 48  # in all blocks
MAX_STATES = 200
_TILES, _GEMM, _TEXT = "tiles", "gemm", "text"
# Steps of all roles, with every round of a loop. A planned pipeline of two tiles or of a GEMM is proven by one run, so it
# may be longer than one that needs other orders tried.
_MAX_STEPS = {_TILES: 8000, _GEMM: 10_000, _TEXT: 1000}


def plan_answer(_: str, asked: dict[str, Any]) -> Answer:
    """Every candidate, ranked, with the reasons of those that were refused."""
    mn, k = asked["tile"]
    most = MAX_ELEMENTS if asked.get("consumer", "") in ("", *CONSUMER) else _MAX_COUNTED
    limited("elements", "tile", mn * k, most, "Plan a smaller tile.")
    call = Call(plan, (asked["tile"], asked["data_type"]), chosen(PLAN[2:], asked), "report")
    try:
        report: PlanReport = call.run()
    except PlanError as error:  # an answer too: there is no plan, and why
        unplanned = Unplanned(f"{by(asked['tile'])} {asked['data_type']}", error.violations)
        return Answer(call, unplanned, Drawing(drawn(unplanned).title, ()), violations=error.violations)
    drawing = drawn(report, why=True)
    code, sentences = _code(call, report, asked.get("target", "none"), _plan_words(asked))
    return Answer(
        call,
        report,
        Drawing(drawing.title, (*drawing.parts, *sentences)),
        extra=plan_facts(report),
        code=code,
        leads={"The plan": _leads(report.best)} if report.candidates else {},
    )


def plan_command(_: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    return [*_plan_words(asked), "--why"]


def _plan_words(asked: dict[str, Any]) -> list[str]:
    return ["plan", *command_words(PLAN, asked, defaults(plan))]


def _leads(best: Plan) -> dict[str, str]:
    """The pages on which the plan goes on, by what they show: one of its copies, its descriptors, its stages."""
    problem = best.problem
    said = {"tile": "x".join(map(str, problem.tile)), "data_type": problem.data_type.name}
    leads = {}
    if best.boxes is not None and problem.direction == "load":
        tensor_map = best.tensor_map(0)
        copied = {
            name: in_words(getattr(tensor_map, name))
            for name in ("data_type", "dims", "strides_bytes", "box", "swizzle")
        }
        leads["See its first copy"] = address("load", copied | {"coords": in_words(best.copies[0].coords)})
    if problem.reads_by_descriptor:
        layout = {"major": problem.major, "swizzle": best.swizzle.name, "atom_order": best.atom_order}
        operand = {"operand": problem.operand or "A", "reader": str(problem.consumer)}
        leads["See its descriptors"] = address("tensor-core", said | layout | operand)
    if problem.reads_by_descriptor and problem.direction == "load":
        planned = {"arch": problem.arch.name, "stages": str(max(2, problem.stages))}
        leads["Run its stages"] = address("pipeline", said | planned)
    return leads


def _code(call: Call, report: PlanReport, target: str, command: list[str]) -> tuple[Code | None, list[Part]]:
    """The best plan as source text, or the sentences that say why there is none."""
    if target == "none" or not report.candidates:
        return None, []
    written = Call(emit, (replace(call, name="", attribute="best"), target), name="source")
    try:
        source = emit(report.best, target)  # type: ignore[arg-type]
    except RuleError as error:
        return None, [f"No {target} code: {violation}" for violation in error.violations]
    return Code(f"The best plan as {_TARGET_NAMES[target]}", source, written, (*command, "--emit", target)), []


def pipeline_answer(form: str, asked: dict[str, Any]) -> Answer:
    """The verdict on a pipeline, its timeline, and the way into the mistake."""
    described: Any
    if form == _TEXT:
        pipeline = Pipeline.from_text(asked["text"].encode("utf-8", errors="replace"), "stdin")
        described = pipeline.to_dict()
    else:
        described = _planning(form, asked)
        pipeline = described.run()
    _require_small(pipeline, _MAX_STEPS[_TEXT if form == _TILES and "other" not in asked else form])
    simulation: Simulation = simulate(pipeline, max_states=MAX_STATES)
    drawing = drawn(simulation)
    repeated = [] if simulation.mistake is None else [simulation.sentence]  # the page lists mistakes itself
    return Answer(
        Call(simulate, (described,), {"max_states": MAX_STATES}, "simulation"),
        simulation,
        Drawing(drawing.title, tuple(part for part in drawing.parts if part not in repeated)),
        violations=(*simulation.violations, *(warning.violation("warning") for warning in simulation.warnings)),
    )


def pipeline_command(form: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    if form == _TEXT:
        words = ["-"]  # it reads the same text from its input
    else:
        taken = defaults(plan_gemm if form == _GEMM else plan) | defaults(plan_pipeline)
        words = command_words(PIPELINE_PAGE.forms[form], asked, taken)
    return ["pipeline", *words, "--max-states", str(MAX_STATES)]


def _planning(form: str, asked: dict[str, Any]) -> Call:
    """The call that plans the pipeline of one tile, of two that share a stage, or of a GEMM."""
    problem, options = chosen(PROBLEM, asked), chosen(PIPELINE, asked)
    options["multicast"] = not options.pop("no_multicast", False)
    if form == _GEMM:
        gemm = Call(plan_gemm, (*asked["shape"], asked["data_type"]), problem, "gemm")
        return Call(plan_pipeline, (gemm,), options, "pipeline")
    tiles = [asked[name] for name in ("tile", "other") if name in asked]
    for mn, k in tiles:
        limited("elements", "tile", mn * k, MAX_ELEMENTS, "Plan a smaller tile.")
    plans = [
        Call(plan, (tile, asked["data_type"]), problem, name, attribute="best")
        for name, tile in zip("ab", tiles, strict=False)
    ]
    return Call(plan_pipeline, (plans,), options, "pipeline")


def _require_small(pipeline: Pipeline, most: int) -> None:
    """Refuse more roles or steps than a page can run, before any is run."""
    agents = Program(pipeline).agents
    limited("roles in all blocks", "roles", len(agents), MAX_ROLES, "Describe fewer consumers or blocks.")
    steps = chain.from_iterable(_steps_run(agent.of.steps, agent_names(pipeline, agent)) for agent in agents)
    if any(islice(steps, most, None)):
        fix = "Describe fewer rounds or blocks, or a smaller k; the command line takes more."
        raise PAGE_LIMIT.error("steps", f"more than {most} steps", f"a page takes at most {most}", fix, most=most)


def _steps_run(steps: tuple[PipelineStep | Loop, ...], names: dict[str, int]) -> Iterator[bool]:
    """True for each step that a role runs, and for each round of a loop."""
    for step in steps:
        if not isinstance(step, Loop):
            yield True
            continue
        for value in loop_values(step, names):
            yield True
            yield from _steps_run(step.steps, {**names, step.counter: value})


_TARGET_NAMES = {
    "cuda": "a CUDA program", "ptx": "PTX", "cute": "CuTe C++", "triton": "Triton (Gluon)", "python": "a Python script",
}  # fmt: skip
_TARGET = Input("target", "--emit", "Code to copy", "of the best plan, below the drawing.", choices=("none", *TARGETS))
_OTHER = Input("other", "", "And", "a second tile in the same stage, such as 256x64.", written_tile)
_GEMM_ROWS = (*GEMM[:2], *(row for row in PIPELINE if row.name != "steps"), ARCHITECTURE, CONSUMER_INPUT)
_SAMPLE = (files("tilescope.web") / "samples" / "pipeline.toml").read_text("utf-8").rstrip()

PLAN_PAGE = Page(
    "plan",
    "Plan",
    "What to do with a tile: swizzle, boxes, copies and descriptors, ranked, with the reasons, and code to copy.",
    {"": form((*PLAN, _TARGET), tile="128x64", data_type="bf16", target="cuda")},
    plan_answer,
    plan_command,
)
PIPELINE_PAGE = Page(
    "pipeline",
    "Pipeline",
    "Whether producers and consumers are right in every order: the timeline, what each barrier needs, the mistake marked.",
    {
        _TILES: form((TILE, _OTHER, ELEMENT_TYPE, *PIPELINE, *PROBLEM), tile="128x64", data_type="bf16", stages="4"),
        _GEMM: form(_GEMM_ROWS, shape="4096x4096x4096", data_type="bf16"),
        _TEXT: (
            Field(
                "text", label="Description", preset=_SAMPLE, is_long=True,
                hint="barriers, slots and roles as TOML or JSON; the command reads it from its input.",
            ),
        ),
    },
    pipeline_answer,
    pipeline_command,
    ("given", "Described by"),
)  # fmt: skip
