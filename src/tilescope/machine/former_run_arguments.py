"""Former arguments of `Kernel.run`: `advice` and `smem` each stand for two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from tilescope.former_arguments import Replacement, warn_about_former
from tilescope.machine.kernel_launch import LaunchRequest
from tilescope.machine.run_arguments import ADVICE
from tilescope.reading import flag

_REMEDIES = Replacement(("remedies",), 'advice="none", or "fixes" (the default)')
_ADVICE = Replacement(("advice=True", "advice=False"), 'advice="all", or "fixes" (the default)')
_PICTURE = Replacement(("smem_block", "smem_at"), "smem=block, or smem=(block, line)")


class FormerArguments(TypedDict, total=False):
    """Arguments that `advice` and `smem` replace."""

    remedies: bool
    smem_block: Sequence[int] | None
    smem_at: str | int | None


def replace_former(request: LaunchRequest, former: FormerArguments) -> LaunchRequest:
    """The request, parts of it in their former spelling, with a warning to the caller of `Kernel.run`."""
    passed: list[str] = [*former]
    if isinstance(request.advice, bool):
        passed.append(f"advice={request.advice}")
        request = request._replace(advice=ADVICE[True, request.advice])
    warn_about_former("Kernel.run", passed, (_REMEDIES, _ADVICE, _PICTURE))
    if "remedies" in former:
        looks_for_barriers = request.advice in ("barriers", "all")
        request = request._replace(advice=ADVICE[flag("remedies", former["remedies"]), looks_for_barriers])
    block = former.get("smem_block")
    at = former.get("smem_at")
    if block is None and at is None:
        return request
    if request.smem is not None:
        raise TypeError("Kernel.run() got smem, and smem_block or smem_at, which it replaces")
    return request._replace(smem=((0, 0, 0) if block is None else block, at))
