"""What stands beside a value in JSON, under the key `extra`: the same from a command's --json and from a page's .json.

fragment_facts(held, lane=5)   {"inverse": "…", "lane": 5, "holds": [[1, 2], …], "matrices": [0, …]}

Everything here is plain data that people ask for with the value, and that is computed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilescope.layout import Layout
    from tilescope.mma.descriptor_loop import DescriptorLoop
    from tilescope.mma.fragment import Fragment
    from tilescope.planner import PlanReport
    from tilescope.swizzle import Swizzle
    from tilescope.value import Value


def swizzle_facts(mode: Swizzle, address: int) -> dict[str, Any]:
    """The base offset of a buffer at a shared address; nothing at address 0, where the pattern begins.

    >>> from tilescope.swizzle import Swizzle
    >>> swizzle_facts(Swizzle.named("128B"), 0x480)
    {'address': '0x480', 'base_offset': 1}
    """
    return {"address": hex(address), "base_offset": mode.base_offset(address)} if address else {}


def plan_facts(report: PlanReport) -> dict[str, Any]:
    """What a kernel needs of the best plan; nothing where there is none."""
    return {"best": report.best.kernel_facts()} if report.candidates else {}


def comparison_facts(layout: Layout, other: Layout) -> dict[str, Any]:
    """A second layout of the same tile, and the first element that it places elsewhere."""
    from tilescope.layout.comparison import require_one_tile  # which the other questions start without

    require_one_tile(layout, other)
    first = layout.first_difference(other)
    return {"other": other.to_dict(), "first_difference": None if first is None else list(first)}


def operand_facts(operand: Layout, element: tuple[int, int] | None) -> dict[str, Any]:
    """Where one element lies; nothing if nobody asks for one."""
    return {} if element is None else {"element": list(element), "address": hex(operand.address(*element))}


def fragment_facts(held: Fragment, lane: int | None = None, element: tuple[int, int] | None = None) -> dict[str, Any]:
    """CuTe's inverse layout; what one thread holds, and which thread holds an element, if that is asked for."""
    facts: dict[str, Any] = {"inverse": str(held.inverse)}
    if lane is not None:
        facts |= {"lane": lane, "holds": [list(coord) for coord in held.held_by(lane)]}
        facts["matrices"] = [held.matrix_of(lane, value) for value in range(held.values)]
    if element is not None:
        thread, value = held.holder(*element)
        facts |= {"element": list(element), "holder": {"thread": thread, "value": value}}
    return facts


def loop_facts(loop: DescriptorLoop) -> dict[str, Any]:
    """The descriptors of a K loop as words, what their numbers mean, and what the rules say about them."""
    return {
        "descriptors": [[hex(step.encode()) for step in steps] for steps in loop],
        "explanation": list(loop.explanation),
        "findings": [finding.to_dict() for finding in loop.findings],
    }


def barrier_facts(barriers: Mapping[str, Value]) -> dict[str, Any]:
    """What a word says as an mbarrier, or as the token of an arrival."""
    return {name.replace(" ", "_"): barrier.to_dict() for name, barrier in barriers.items()}
