"""The question about whole kernels, for `tilescope plan FILE` and the page of kernels."""

from __future__ import annotations

from math import prod

from tilescope.errors import PlanError
from tilescope.kernel_plan import KernelPlan, plan_kernel
from tilescope.kernel_plan.handovers import derive_rings
from tilescope.kernel_plan.kernel_file import KernelDescription, kernel_data, read_kernel
from tilescope.kernel_plan.known_kernels import known_kernel_names, known_kernel_text
from tilescope.pipeline.simulation import PROVEN, simulate
from tilescope.planner import Unplanned
from tilescope.questions.call import Call
from tilescope.questions.emitted_program import launch_files_of, program_of
from tilescope.questions.first_line import FirstLine, make_line, refusal_line
from tilescope.questions.question import Answer, Asked, Input, refuse
from tilescope.written import number

SET = Input("set", "--set", "A size of the kernel", is_many=True, shown_as="NAME=N")
BLOCKS_PER_SM = Input("blocks_per_sm", "--blocks-per-sm", "Blocks on an SM", read=number, unsaid="the kernel's, or 1")
CLUSTER = Input("kernel_cluster", "--cluster", "Cluster", "blocks.", read=number, argument="cluster")
KERNEL_OPTIONS = (SET, BLOCKS_PER_SM, CLUSTER)
TEMPLATE = Input("template", "--template", "Print a known kernel to start from", choices=known_kernel_names())
KNOWN_KERNEL = Input("known", "", "Known kernel", choices=known_kernel_names())
_SIZE_NAMES = ("M", "N", "K", "D", "DV", "GROUPS", "LEAST", "STAGES")
KERNEL_FIELDS = tuple(
    Input(f"size_{name}", "", name, "as the kernel has it, if empty.", read=number) for name in _SIZE_NAMES
)
KERNEL_TEXT = Input(
    "text",
    "",
    "Description",
    "roles, tiles, loops and steps as TOML or JSON; the command reads it from its input.",
    is_long=True,
)
KERNEL_SAMPLE = known_kernel_text("gemm")
KERNEL_LIMITS = {
    "tiles": 18,
    "stages to choose": 32,
    "rounds of steps": 2000,
}  # of a description that a page plans and proves


def kernel_answer(asked: Asked) -> Answer:
    """The plan of a kernel, with the verdict on its pipeline; or the text of a known one."""
    template: str | None = asked.get("template")
    if template is not None:
        refuse("tile" in asked, "--template prints a file to start from; leave the words out.")
        text = known_kernel_text(template)
        kernel = read_kernel(kernel_data(text, f"{template}.toml"))
        return Answer(kernel, first=make_line("{name}.", name=kernel.name), text=text.rstrip("\n"))
    sizes = _read_sizes(asked.get("set", ()))
    options = asked.options([row for row in (BLOCKS_PER_SM, CLUSTER) if row.name in asked])
    for name in ("arch", "card"):
        if name in asked:
            options[name] = asked[name]
    if sizes:
        options["sizes"] = sizes
    described: str | dict[str, object] = asked["tile"]
    title = str(asked["tile"])
    if "description" in asked:
        described = kernel_data(asked["description"], asked["file_name"])
        kernel = read_kernel(described, sizes)
        title = str(described.get("name", asked["file_name"]))
        _require_small(asked, kernel)
    call = Call(plan_kernel, (described,), options, "kernel_plan")
    try:
        planned = call.run()
    except PlanError as error:
        unplanned = Unplanned(title, error.violations)
        return Answer(
            unplanned,
            call,
            first=refusal_line(f"No plan for {title}", error.violations),
            is_yes=False,
            violations=error.violations,
            told_in="reasons",
        )
    if "emit" in asked:
        return Answer(
            planned,
            first=_summarize_kernel(planned),
            program=program_of(planned, asked),
            files=launch_files_of(planned, asked) if planned.kernel.program is not None else (),
        )
    proof = simulate(planned.pipeline)
    return Answer(
        planned,
        call,
        first=_summarize_kernel(planned),
        shown={"proof": proof.sentence},
        extra={"proof": proof.sentence},
        is_yes=proof.verdict in PROVEN,
    )


def _require_small(asked: Asked, kernel: KernelDescription) -> None:
    """Refuse a kernel that a page would plan or prove for too long."""
    asked.require_at_most("tiles", len(kernel.tiles), argument="tiles", fix="Plan it on the command line.")
    ringed = [kernel.tile(ring.tiles[0]) for ring in derive_rings(kernel)]
    choices = sum(tile.most_stages - tile.least_stages for tile in ringed)
    asked.require_at_most("stages to choose", choices, argument="stages", fix="Use smaller ranges of stages.")
    counts = {loop.name: loop.count for loop in kernel.loops}
    rounds = sum(
        kernel.role(step.role).instances * prod(counts[loop] for loop in kernel.path(step.loop))
        for step in kernel.steps
    )
    asked.require_at_most("rounds of steps", rounds, argument="loops", fix="Use smaller counts of loops.")


def _read_sizes(said: tuple[str, ...]) -> dict[str, int]:
    """The sizes that --set names."""
    sizes = {}
    for entry in said:
        name, equals, value = entry.partition("=")
        refuse(not equals, f"--set {entry}: write NAME=N, such as M=128.")
        try:
            sizes[name.strip()] = number(value)
        except ValueError:
            refuse(True, f"--set {entry}: {value!r} is not a number.")
    return sizes


def ask_as_command(asked: Asked) -> Asked:
    """The fields of the page as options of the command: the kernel's name, and sizes by --set."""
    settings = tuple(f"{name}={asked[f'size_{name}']}" for name in _SIZE_NAMES if f"size_{name}" in asked)
    return asked.saying(tile=asked["known"], set=settings or None)


def ask_about_text(asked: Asked) -> Asked:
    """A command reads the same text from its input."""
    description = asked["text"].encode("utf-8", errors="replace")
    return asked.saying(tile="-", description=description, file_name="stdin")


def _summarize_kernel(planned: KernelPlan) -> FirstLine:
    """What a kernel needs."""
    stages = [f"{name} {count}" for name, count in planned.alternatives[0].stages if count > 1]
    return make_line(
        "{name}: {used} of {most} bytes of shared memory[[, {columns} of {all_columns} columns]]"
        "[[, stages {stages:, }]], {barriers:barrier}[[, {overlays:overlay}]].",
        name=planned.kernel.name,
        used=planned.smem_bytes,
        most=planned.smem_limit_bytes,
        columns=planned.tmem_columns or None,
        all_columns=planned.tmem_limit_columns,
        stages=stages or None,
        barriers=sum(row.stages for row in planned.barriers),
        overlays=len(planned.overlays) or None,
    )
