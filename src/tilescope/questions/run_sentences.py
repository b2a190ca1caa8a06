"""The sentences of the answer to a run: its first line, the comparison with a recording of the card, and the verdict of a proof."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.machine.launch.described_launch import LaunchOutcome
from tilescope.machine.launch.recorded_memory import MemoryOutcome
from tilescope.machine.report.outcome import error_sentence, outcome_sentence, warning_sentence
from tilescope.machine.report.run import KernelRun
from tilescope.machine.report.verdict import Verdict
from tilescope.pipeline.simulation import PROVEN, Simulation, simulate
from tilescope.questions.first_line import FirstLine
from tilescope.sentence import counted


class RunProof(NamedTuple):
    """The verdict of `simulate` on the pipeline of a run, or why there is none."""

    simulation: Simulation | None
    refusal: str = ""

    @property
    def verdict(self) -> str:
        """The verdict, in a line."""
        if self.simulation is None:
            return f"Not proven: {self.refusal}"
        return f"{self.simulation.pipeline.name} as a pipeline: {self.simulation.sentence}"

    @property
    def is_proven(self) -> bool:
        """Whether the synchronization is proven. What the proof does not cover, the run has checked in its own order."""
        return self.simulation is not None and self.simulation.verdict in PROVEN

    def describe(self, *, is_verdict_said: bool) -> str:
        """The verdict, unless the first line has it, its scope, and the steps to a mistake with its source lines."""
        mistake = self.simulation.mistake if self.simulation is not None else None
        lines = [] if is_verdict_said else [self.verdict]
        if self.is_proven:
            lines.append("The proof holds for the way that every warp of the first cluster took in this run.")
        if mistake is not None:
            lines += [f"{number:>3}. {step}" for number, step in enumerate(mistake.way, 1)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """The data for --json."""
        if self.simulation is None:
            return {"verdict": "refused", "refusal": self.refusal}
        return self.simulation.to_dict()


def prove_run(run: KernelRun) -> RunProof:
    """Search all orders of the pipeline that a run was."""
    try:
        return RunProof(simulate(run.pipeline()))
    except RuleError as error:
        return RunProof(None, str(error))


def make_first_line(
    run: KernelRun, seconds: float | None, verdict: Verdict, proof: RunProof | None, *, strict: bool = False
) -> FirstLine:
    """The outcome of a run, and its first mistake; otherwise the verdict, if a proof was requested.

    For a `strict` reader warnings are wrong too.
    """
    accepted = verdict.accepted_findings
    if verdict.errors:
        return FirstLine(error_sentence(run, verdict.errors, accepted), verdict.errors[0].fix)
    if strict and verdict.is_finished and verdict.warnings:
        return FirstLine(warning_sentence(run, verdict.warnings, accepted), verdict.warnings[0].fix)
    outcome = outcome_sentence(run, seconds, accepted)
    if proof is None:
        return FirstLine(outcome)
    mistake = proof.simulation.mistake if proof.simulation is not None else None
    return FirstLine(f"{outcome} {proof.verdict}", mistake.fix if mistake is not None else "")


def find_differences(done: LaunchOutcome) -> list[MemoryOutcome]:
    """Recorded memory that holds something else here than on the card."""
    return [outcome for outcome in done.memory if outcome.differing_bytes]


def describe_replay(done: LaunchOutcome) -> str:
    """The memory of a recorded launch compared with the card's."""
    compared = [outcome for outcome in done.memory if outcome.differing_bytes is not None]
    lines = []
    if compared and not find_differences(done):
        changed_bytes = sum(outcome.changed_bytes for outcome in compared)
        allocations = counted(len(compared), "recorded allocation")
        lines.append(f"{allocations}: all bytes equal the card's after the launch, {changed_bytes} of them changed.")
    for outcome in find_differences(done):
        assert outcome.first_difference is not None
        lines.append(
            f"{outcome.differing_bytes} of {outcome.size_bytes} bytes at {outcome.address:#x} differ from the card's, "
            f"the first at {outcome.first_difference:#x}."
        )
    if find_differences(done) and done.run.inexact:
        lines.append(
            f"The run used {', '.join((*done.run.inexact, *done.run.assumed))}, whose bits are not known: small differences are expected."
        )
    missing_bytes = sum(outcome.missing_bytes for outcome in done.memory)
    if missing_bytes:
        lines.append(f"The recording left out {missing_bytes} bytes of these allocations: what reads them faults here.")
    return "\n".join(lines)
