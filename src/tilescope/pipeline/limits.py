"""What a verdict takes for granted: the limits of the model, said where a pipeline comes near them."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.parts import GROUPS, Role, Step, reference

_ARRIVING = ("arrive", "release", "expect", "commit")


def limits(pipeline: Pipeline) -> Iterator[str]:
    """Sentences about what the simulation of this pipeline takes for granted.

    >>> wait, read = {"wait": "full", "parity": 0}, {"read": ["a"]}
    >>> role = {"name": "consumer", "threads": 128, "steps": [wait, read]}
    >>> data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 64}}, "roles": [role]}
    >>> print(*limits(Pipeline.from_dict(data)))
    The warps of a role are taken to pass a wait together.
    """
    steps = [(role, step) for role in pipeline.roles for step in role.all_steps()]
    if any(role.warps > 1 and step.op in ("wait", "tail") for role, step in steps):
        yield "The warps of a role are taken to pass a wait together."
    if any(_goes_on_alone(role) for role in pipeline.roles):
        yield "The warps of a role are taken to arrive together: one that goes on alone is not taken to be ahead of the others."
    if any(_reads_own_writes(role) for role in pipeline.roles):
        yield "Threads of a role are taken to read only what they wrote themselves, or to meet before."
    if pipeline.blocks > 1 and any(step.op in _ARRIVING and "mask" in step.arguments for _, step in steps):
        yield "An arrival at the barriers of several blocks is taken to reach them at once."
    if any(not _slot_bytes(pipeline, step) for _, step in steps if step.op == "copy"):
        yield "Slots that state no bytes are taken to be filled whole by their copies."
    if any(step.arguments.get("unit") == "tcgen05" for _, step in steps):
        yield "tcgen05 follows the documents; it was not run on a card."


def _goes_on_alone(role: Role) -> bool:
    """Whether one thread of a role of several warps stores, copies or arrives after all of them have only arrived somewhere.

    What the other warps read or wrote before need not be over then: they may be on their way to that arrival.
    """
    if role.warps == 1:
        return False
    touched = are_apart = False
    for step in (*role.all_steps(), *role.all_steps()):  # the second time as in the next round of a loop
        if step.op in ("sync", "wait", "tail") or (step.op == "cluster" and step.target != "arrive"):
            touched, are_apart = touched and step.op in ("wait", "tail"), False
        elif step.op in ("read", "write") or step.arguments.get("unit") == "mma":
            touched = True
        elif _is_by_all_warps(role, step):
            are_apart = touched
        elif are_apart and _is_by_one_thread(step):
            return True
    return False


def _is_by_one_thread(step: Step) -> bool:
    """Whether one thread does a step that others see: cp.async and the groups of commits are each thread's own."""
    if step.op in ("copy", "commit"):
        return step.arguments.get("by") != "cp.async" and step.target not in GROUPS
    return step.op in ("store", "signal", *_ARRIVING)


def _is_by_all_warps(role: Role, step: Step) -> bool:
    """Whether all warps of a role arrive in a step, without waiting for each other; a count that varies is taken to be so."""
    if step.op in ("arrive", "release", "cp_arrive"):
        count = step.arguments.get("count", 1)
        return not isinstance(count, int) or count >= role.warps
    return step.op in ("bar_arrive", "cluster")


def _reads_own_writes(role: Role) -> bool:
    """Whether a role of several warps reads slots that it has written."""
    touched: dict[str, set[str]] = {"read": set(), "write": set()}
    for step in role.all_steps():
        if step.op in touched:
            touched[step.op] |= {reference(step.op, target)[0] for target in step.targets}
    return role.warps > 1 and bool(touched["read"] & touched["write"])


def _slot_bytes(pipeline: Pipeline, step: Step) -> int:
    name = reference("copy", step.target)[0]
    return next(slot.bytes for slot in pipeline.slots if slot.name == name)
