"""The question about a pipeline: is it right in every order, or what is the mistake and the way into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import Expression
from tilescope.pipeline.parts import Loop, Step
from tilescope.pipeline.pipeline_rules import PIPELINE_FENCE
from tilescope.pipeline.simulation import PROVEN, Simulation, simulate
from tilescope.pipeline.toml_text import template_names, template_text, toml_text
from tilescope.pipeline.unrolled_pipeline import UnrolledPipeline, agent_names, loop_values
from tilescope.planner import plan, plan_gemm
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.questions.call import Call
from tilescope.questions.first_line import FirstLine, make_line
from tilescope.questions.gemm_questions import SHAPE
from tilescope.questions.opened_file import fields_of_text
from tilescope.questions.page import Fixes, OpenedField, PageForm
from tilescope.questions.pipeline_samples import SAMPLES
from tilescope.questions.plan_questions import (
    ARCHITECTURE,
    CONSUMER_INPUT,
    COPIED_BY,
    DIRECTION,
    LARGEST_TILE_ELEMENTS,
    STAGES,
)
from tilescope.questions.question import PAGE_LIMIT, Answer, Asked, Input, Question, flag, refuse
from tilescope.questions.shared_inputs import ELEMENT_TYPE, TILE
from tilescope.sentence import fill_template
from tilescope.written import extents, number, tile

MAX_ROLES = 48  # on a page, in all blocks
MAX_STATES = 200  # that a page searches
# Steps of all roles, with every round of a loop. A planned pipeline of two tiles or of a GEMM is proven by one run, so
# it may be longer than one that needs other orders tried.
MAX_STEPS_DESCRIBED = 1000
MAX_STEPS_OF_TWO_TILES = 8000
MAX_STEPS_OF_GEMM = 10_000
TOO_MANY_STEPS = PAGE_LIMIT.worded(
    argument="steps",
    found="more than {most} steps",
    limit="a page takes at most {most}",
    fix="Describe fewer rounds or blocks, or a smaller k; the command line takes more.",
)

PROBLEM_OPTIONS = (ARCHITECTURE, CONSUMER_INPUT, COPIED_BY, DIRECTION)  # of a pipeline's tiles
STEPS = Input("steps", "--steps", "K steps", read=number, unsaid="4 x stages + 2")
PIPELINE_OPTIONS = (
    replace(STAGES, unsaid="those of the plan"),
    Input(
        "consumers", "--consumers", "Consumers", "warpgroups.", read=number, unsaid="1; a GEMM of 128 rows or more: 2"
    ),
    STEPS,
    Input("cluster", "--cluster", "Cluster", "blocks, x by y.", read=extents, unsaid="1x1"),
    Input(
        "arrivals",
        "--arrivals",
        "Arrivals",
        "a consumer arrives once per warpgroup, warp or thread.",
        unsaid="warpgroup; warp if threads read the tile",
        choices=("warpgroup", "warp", "thread"),
    ),
)
NO_MULTICAST = Input("no_multicast", "--no-multicast", "Every block loads its own tiles", read=flag)
CTA_GROUP = Input(
    "cta_group",
    "--cta-group",
    "Blocks that multiply together",
    "2 for a pair (tcgen05). A tile is then that of the pair, and each block loads half.",
    read=number,
)
PIPELINE_INPUTS = (*PIPELINE_OPTIONS, NO_MULTICAST, CTA_GROUP)
BLOCK = Input(
    "block", "--block", "The block whose timeline is drawn", "", read=number, unsaid="that of the mistake, or 0"
)
SEARCHED_STATES = Input("max_states", "--max-states", "States to search at most", read=number)


def answer(asked: Asked) -> Answer:
    """The verdict on a pipeline, planned for `shapes` and a `data_type`, or in the `description` that a file holds."""
    words: tuple[str, ...] = asked.get("words", ())
    template: str | None = asked.get("template")
    refuse(template is not None and words, "--template prints a file to start from; leave the words out.")
    refuse(
        template is None and not words,
        "name a FILE, tiles and their TYPE such as 128x64 bf16, or a --template.",
    )
    if template is not None or "description" in asked:
        _refuse_planning(asked)
    if template is not None:
        text = template_text(template)
        pipeline = Pipeline.from_text(text.encode(), f"{template}.toml")
        return Answer(pipeline, first=_summarize_description(pipeline), text=text.rstrip("\n"))
    described: object
    if "description" in asked:
        pipeline = Pipeline.from_text(asked["description"], asked["file_name"])
        described = pipeline.to_dict()
    else:
        described = _planning_call(asked)
        pipeline = described.run()
    if asked.get("describe"):
        for row in (BLOCK, SEARCHED_STATES):
            refuse(
                row.name in asked,
                f"{row.option} is for a run; --describe prints the pipeline, and does not run it.",
            )
        return Answer(pipeline, first=_summarize_description(pipeline), text=toml_text(pipeline).rstrip("\n"))
    _require_small(asked, pipeline)
    return _simulate(asked, pipeline, described)


def _refuse_planning(asked: Asked) -> None:
    """Refuse options of a pipeline that is planned, where a file describes it."""
    for row in (*PIPELINE_INPUTS, *PROBLEM_OPTIONS):
        refuse(
            row.name in asked,
            f"{row.option} is for a pipeline that is planned, such as 128x64 bf16; a description contains it.",
        )


def _simulate(asked: Asked, pipeline: Pipeline, described: object) -> Answer:
    """What the run of a pipeline gives; `described` is the call or the data that describes it."""
    block: int | None = asked.get("block")
    refuse(
        block is not None and not 0 <= block < pipeline.blocks,
        f"--block {block}: the cluster has blocks 0 to {pipeline.blocks - 1}.",
    )
    options = asked.options([SEARCHED_STATES])
    simulation = Call(simulate, (pipeline,), options).run()
    warnings = [
        warning.violation("note" if warning.rule == PIPELINE_FENCE.name else "warning")
        for warning in simulation.warnings
    ]
    return Answer(
        simulation,
        Call(simulate, (described,), options, "simulation"),
        first=_summarize_simulation(simulation),
        shown={"block": block},
        is_yes=simulation.verdict in PROVEN,
        violations=(*simulation.violations, *warnings),
        told_in="" if simulation.mistake is None else "sentence",
    )


def _summarize_simulation(simulation: Simulation) -> FirstLine:
    """Whether a pipeline is right in every order."""
    mistake = simulation.mistake
    if mistake is None:
        return FirstLine(simulation.sentence)
    sentence = fill_template(
        "{outcome}: {found}: {consequence}.",
        {"outcome": mistake.outcome.capitalize(), "found": mistake.found, "consequence": mistake.consequence},
    )
    return FirstLine(sentence, mistake.fix)


def _summarize_description(pipeline: Pipeline) -> FirstLine:
    """What a description holds."""
    return make_line(
        "{name}: {roles:role}, {barriers:barrier}, {slots:slot}.",
        name=pipeline.name,
        roles=len(pipeline.roles),
        barriers=len(pipeline.barriers),
        slots=len(pipeline.slots),
    )


def _planning_call(asked: Asked) -> Call[Pipeline]:
    """The call that plans the pipeline of one tile, of several that share a stage, or of a GEMM."""
    shapes: list[tuple[int, ...]] = asked["shapes"]
    data_type = asked["data_type"]
    problem = asked.options(PROBLEM_OPTIONS)
    options = asked.options((*PIPELINE_OPTIONS, CTA_GROUP)) | {"multicast": not asked.get("no_multicast")}
    if len(shapes) == 1 and len(shapes[0]) == 3:
        refuse("copy" in asked or "direction" in asked, "--copy and --direction are for tiles; a GEMM has both.")
        if options.get("cluster", 1) not in (1, (1, 1)):  # it shares tiles, not k
            problem |= {"split": 1, "parts": 1}
        gemm = Call(plan_gemm, (*shapes[0], data_type), problem, "gemm")
        return Call(plan_pipeline, (gemm,), options, "pipeline")
    for shape in shapes:
        if len(shape) == 2:
            fix = "Plan a smaller tile."
            asked.require_at_most("elements", shape[0] * shape[1], argument="tile", fix=fix)
    plans = [
        Call(plan, (shape, data_type), problem, name, attribute="best")
        for name, shape in zip(_tile_names(len(shapes)), shapes, strict=True)
    ]
    return Call(plan_pipeline, (plans,), options, "pipeline")


def _tile_names(count: int) -> list[str]:
    """The names of planned tiles in Python: a and b; tile_0, tile_1, … if there are more."""
    if count <= 2:
        return ["a", "b"][:count]
    return [f"tile_{number}" for number in range(count)]


def _require_small(asked: Asked, pipeline: Pipeline) -> None:
    """Refuse more roles or steps than a page can run, before any is run."""
    is_one_tile = len(asked.get("shapes", ())) == 1
    most = (asked.limit("steps of one tile") if is_one_tile else None) or asked.limit("steps")
    if most is None:
        return
    agents = UnrolledPipeline(pipeline).agents
    asked.require_at_most(
        "roles in all blocks", len(agents), argument="roles", fix="Describe fewer consumers or blocks."
    )
    steps = chain.from_iterable(_steps_run(agent.of.steps, agent_names(pipeline, agent)) for agent in agents)
    if any(islice(steps, most, None)):
        raise TOO_MANY_STEPS.error(most=most)


def _steps_run(steps: tuple[Step | Loop, ...], names: dict[str, int]) -> Iterator[bool]:
    """True for each step that a role runs, and for each round of a loop."""
    for step in steps:
        if not isinstance(step, Loop):
            if step.when is None or Expression.read("when", step.when, names).value(names):
                yield True
            continue
        for value in loop_values(step, names):
            yield True
            yield from _steps_run(step.steps, {**names, step.counter: value})


PIPELINE = Question(
    name="pipeline",
    help="""Search every interleaving of a pipeline: proven, or the mistake and the shortest path to it.

    FILE describes barriers, slots and roles as JSON or TOML (see docs/pipelines.md); - is stdin. Without a FILE, the
    pipeline of tiles or of a GEMM is planned and run:

    With --cta-group 2 a tile is that of both blocks, as m and n of tcgen05.mma are: each block loads half of A's rows
    and half of B's columns.

    \b
    Templates: producer-consumers, ping-pong, cooperative-store,
    flash-attention-3, multicast-cluster, two-block-tcgen05, split-k.
    """,
    inputs=(
        *PIPELINE_INPUTS,
        *PROBLEM_OPTIONS,
        BLOCK,
        SEARCHED_STATES,
        Input("describe", "--describe", "Print the description, as a FILE holds it, and do not run it", read=flag),
        Input("template", "--template", "Print a description with comments to start from", choices=template_names()),
        Input("words", read=str, is_many=True, is_required=False, shown_as="FILE | TILE… TYPE"),
    ),
    answer=answer,
    functions=(plan, plan_pipeline, simulate),
)


def _asking_tiles(asked: Asked) -> Asked:
    """The words of a command are the tiles and their type."""
    shapes = [asked[name] for name in ("tile", "other") if name in asked]
    words = (*map(TILE.written, shapes), asked["data_type"])
    return asked.saying(shapes=shapes, words=words, max_states=MAX_STATES)


def _asking_gemm(asked: Asked) -> Asked:
    """The words of a command are the product and its type."""
    words = (SHAPE.written(asked["shape"]), asked["data_type"])
    return asked.saying(shapes=[asked["shape"]], words=words, max_states=MAX_STATES)


def _asking_text(asked: Asked) -> Asked:
    """A command reads the same text from its input."""
    description = asked["text"].encode("utf-8", errors="replace")
    return asked.saying(words=("-",), description=description, file_name="stdin", max_states=MAX_STATES)


def _fix_text(_: Asked, found: Answer | None) -> Fixes:
    """The description with the fix that was tried, if it is short enough for the field."""
    simulation = None if found is None else found.value
    if not isinstance(simulation, Simulation) or simulation.mistake is None or simulation.mistake.fixed is None:
        return {}
    text = toml_text(simulation.mistake.fixed).rstrip("\n")
    return {"Apply the fix": {"text": text}} if len(text) <= _LONGEST_TEXT else {}


_LONGEST_TEXT = 6000  # characters of a description on a page
_OTHER = Input("other", "", "And", "a second tile in the same stage, such as 256x64.", read=tile)
_RARE = frozenset(["arrivals", "no_multicast", "cta_group", "consumer", "copy", "direction"])
_LIMITS = {"elements": LARGEST_TILE_ELEMENTS, "roles in all blocks": MAX_ROLES}
TILES_FORM = PageForm(
    PIPELINE,
    inputs=(TILE, _OTHER, ELEMENT_TYPE, *PIPELINE_INPUTS, *PROBLEM_OPTIONS),
    presets={"tile": "128x64", "data_type": "bf16", "stages": "4"},
    rare=_RARE,
    walks=True,
    pans=True,
    asking=_asking_tiles,
    limits=_LIMITS | {"steps": MAX_STEPS_OF_TWO_TILES, "steps of one tile": MAX_STEPS_DESCRIBED},
)
GEMM_FORM = PageForm(
    PIPELINE,
    inputs=(
        SHAPE,
        ELEMENT_TYPE,
        *(row for row in PIPELINE_INPUTS if row is not STEPS),
        ARCHITECTURE,
        CONSUMER_INPUT,
    ),
    presets={"shape": "4096x4096x4096", "data_type": "bf16"},
    rare=_RARE,
    walks=True,
    pans=True,
    asking=_asking_gemm,
    limits=_LIMITS | {"steps": MAX_STEPS_OF_GEMM},
)
TEXT_FORM = PageForm(
    PIPELINE,
    inputs=(
        Input(
            "text",
            "",
            "Description",
            "barriers, slots and roles as TOML or JSON; the command reads it from its input.",
            is_long=True,
        ),
    ),
    presets={"text": SAMPLES["barrier-bytes"].text},
    opens={"text": OpenedField(fields_of_text)},
    samples={"text": {cause: sample.text for cause, sample in SAMPLES.items()}},
    fixes=_fix_text,
    walks=True,
    pans=True,
    asking=_asking_text,
    limits=_LIMITS | {"steps": MAX_STEPS_DESCRIBED},
)
QUESTIONS = (PIPELINE,)
