"""The recording of a run, and the reason if it has no pipeline: it is incomplete, or an operation has no step."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.machine.proof.act import BY_THREADS, CannotSayError
from tilescope.machine.proof.acts import Acts
from tilescope.machine.proof.naming import SharedVariable
from tilescope.machine.proof.recorded_rows import Access
from tilescope.machine.proof.recorder import Recorder
from tilescope.ptx.syntax import Instruction
from tilescope.rule import ptx_example, rule
from tilescope.sentence import argument_said

NOT_RECORDED = rule(
    "run-not-recorded",
    "A pipeline is derived from a cluster that was recorded from its start to its end, or to the hang.",
    argument="{entry}",
    found="{what}",
    limit="a run that finished or hangs, recorded, with at most {most} events of its first cluster",
    fix="{fix}",
    source="tilescope, KernelRun.pipeline",
    passing=f"ts.Kernel({ptx_example('run-not-recorded.ptx')}).run(1, 64).pipeline()",
    failing=f"ts.Kernel({ptx_example('run-not-recorded.ptx')}).run(1, 64, record=False).pipeline()",
)
NOT_SAID = rule(
    "run-no-step",
    "A pipeline has a step for everything that the warps of a kernel pass to each other.",
    argument="{entry}",
    found="{where}: {what}",
    limit="a pipeline has no step for that",
    fix="Take it out of the launch, or write the pipeline by hand: docs/pipelines.md has its steps.",
    source="tilescope, the steps of a pipeline",
    passing=f"ts.Kernel({ptx_example('run-no-step.pass.ptx')}).run(1, 64).pipeline()",
    failing=f"ts.Kernel({ptx_example('run-no-step.fail.ptx')}).run(1, 64).pipeline()",
)

_ORDERED = ("acquire", "release", "acq_rel", "relaxed", "volatile")
_LOCKS = ("cas", "exch")
_BY_ADDRESS = ("ld", "st", "atom", "red")


class Recorded(NamedTuple):
    """What a run keeps to make a pipeline of."""

    entry: str
    outcome: str
    log: Recorder | None
    instructions: tuple[Instruction | None, ...]
    variables: tuple[SharedVariable, ...]

    def place(self, pc: int) -> str:
        """The source line of an instruction, or the line of the PTX text."""
        instruction = self.instructions[pc]
        return "" if instruction is None else instruction.line_name

    def words(self, pc: int) -> tuple[str, ...]:
        """The modifiers of an instruction."""
        instruction = self.instructions[pc]
        return () if instruction is None else instruction.modifiers


def not_said(recorded: Recorded, error: CannotSayError) -> RuleError:
    """The refusal of a run with an operation for which no step exists."""
    return NOT_SAID.error(entry=recorded.entry, where=recorded.place(error.pc), what=error.reason)


def find_problem(recorded: Recorded) -> tuple[str, str] | None:
    """Why the recording is incomplete, and the fix."""
    log = recorded.log
    if log is None:
        return "nothing was recorded", f"Run it with {argument_said('record', True)}."
    if recorded.outcome not in ("finished", "hang"):
        return f"the run ended otherwise: {recorded.outcome}", "Look at its findings first."
    if log.hangs_elsewhere:
        return "its threads wait for something else than barriers", "Look at its findings: they say what for."
    if log.is_cut:
        return "its first cluster did more than is kept", "Use fewer rounds: a smaller K shows the same ring."
    return None


def require_no_flags(recorded: Recorded, log: Recorder) -> None:
    """Refuse locks and flags in shared memory: what they order is not in a pipeline."""
    for pc in {row.pc for row in log.rows if isinstance(row, Access)}:
        instruction = recorded.instructions[pc]
        if instruction is None or instruction.name not in _BY_ADDRESS:
            continue
        words = instruction.modifiers
        if any(word in words for word in _ORDERED) or any(word in words for word in _LOCKS):
            raise CannotSayError("a flag or lock in shared memory", pc)


def require_releases(recorded: Recorded, acts: Acts) -> None:
    """Refuse relaxed arrivals at mbarriers after accesses of a warp that are not recorded: no step expresses them."""
    for warp_acts in acts.of_warp.values():
        has_touched = False
        for act in warp_acts:
            if act.op in ("arrive", "expect") and "relaxed" in recorded.words(act.pc) and has_touched:
                raise CannotSayError("an arrival that is .relaxed, behind accesses to shared memory", act.pc)
            if act.op in ("sync", "cluster"):
                has_touched = False
            elif act.op in ("read", *BY_THREADS):
                has_touched = True
