"""The sentences of the answer to a run: its first line, how it compares with a recording of the card, and what a proof says."""

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
    """What `simulate` says of the pipeline that a run was, or why there is none."""

    simulation: Simulation | None
    refusal: str = ""

    @property
    def verdict(self) -> str:
        """What came out, in a line."""
        if self.simulation is None:
            return f"Not proven: {self.refusal}"
        return f"{self.simulation.pipeline.name} as a pipeline: {self.simulation.sentence}"

    @property
    def is_proven(self) -> bool:
        """Whether the synchronization is proven. What the proof does not cover, the run has checked in its own order."""
        return self.simulation is not None and self.simulation.verdict in PROVEN

    def describe(self, *, is_verdict_said: bool) -> str:
        """The verdict, unless the first line has it, what it holds for, and the way into a mistake with its source lines."""
        mistake = self.simulation.mistake if self.simulation is not None else None
        lines = [] if is_verdict_said else [self.verdict]
        if self.is_proven:
            lines.append("The proof holds for the way that every warp of the first cluster took in this run.")
        if mistake is not None:
            lines += [f"{number:>3}. {step}" for number, step in enumerate(mistake.way, 1)]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, object]:
        """As --json has it."""
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
    """How a run came out, and the first thing that is wrong; otherwise the verdict, where a proof was asked for.

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
    return [one for one in done.memory if one.differing_bytes]


def describe_replay(done: LaunchOutcome) -> str:
    """How the memory of a recorded launch came out beside the card's."""
    compared = [one for one in done.memory if one.differing_bytes is not None]
    lines = []
    if compared and not find_differences(done):
        changed_bytes = sum(one.changed_bytes for one in compared)
        allocations = counted(len(compared), "recorded allocation")
        lines.append(f"{allocations}: all bytes equal the card's after the launch, {changed_bytes} of them changed.")
    for one in find_differences(done):
        assert one.first_difference is not None
        lines.append(
            f"{one.differing_bytes} of {one.size_bytes} bytes at {one.address:#x} differ from the card's, "
            f"the first at {one.first_difference:#x}."
        )
    if find_differences(done) and done.run.inexact:
        lines.append(
            f"The run used {', '.join((*done.run.inexact, *done.run.assumed))}, whose bits are not known: small differences are expected."
        )
    missing_bytes = sum(one.missing_bytes for one in done.memory)
    if missing_bytes:
        lines.append(f"The recording left out {missing_bytes} bytes of these allocations: what reads them faults here.")
    return "\n".join(lines)
