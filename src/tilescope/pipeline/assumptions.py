"""What a verdict assumes: the limits of the model that matter to a pipeline, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.pipeline.description import Pipeline
from tilescope.pipeline.expression import reference
from tilescope.pipeline.parts import Role, Step

_ARRIVING = ("arrive", "release", "expect", "commit")


def limits(pipeline: Pipeline) -> Iterator[str]:
    """What the simulation of this pipeline assumes, in sentences.

    >>> wait, read = {"wait": "full", "parity": 0}, {"read": ["a"]}
    >>> role = {"name": "consumer", "threads": 128, "steps": [wait, read]}
    >>> data = {"barriers": {"full": {"count": 1}}, "slots": {"a": {"bytes": 64}}, "roles": [role]}
    >>> print(*limits(Pipeline.from_dict(data)))
    The warps of a role are assumed to pass a wait together.
    """
    steps = [(role, step) for role in pipeline.roles for step in role.all_steps()]
    if any(role.warps > 1 and step.op in ("wait", "tail") for role, step in steps):
        yield "The warps of a role are assumed to pass a wait together."
    if any(_reads_own_writes(role) for role in pipeline.roles):
        yield "The threads of a role are assumed to read only what they wrote themselves, or to meet before they read."
    if pipeline.blocks > 1 and any(step.op in _ARRIVING and "mask" in step.arguments for _, step in steps):
        yield "An arrival at the barriers of several blocks is assumed to reach all of them at once."
    if any(not _slot_bytes(pipeline, step) for _, step in steps if step.op == "copy"):
        yield "Slots without `bytes` are assumed to be filled whole by their copies."
    if any(step.arguments.get("unit") == "tcgen05" for _, step in steps):
        yield "What tcgen05 does follows the documents; it was not measured on a card."


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
