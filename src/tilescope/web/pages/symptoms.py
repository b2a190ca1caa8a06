"""The page of symptoms: what somebody sees in, causes in order out, each with the page that tests it."""

from __future__ import annotations

import shlex
from typing import Any

from tilescope.rule import ARGUMENT_TYPE
from tilescope.symptoms import SYMPTOM, Cause, Diagnosis, diagnose
from tilescope.web.call import Call
from tilescope.web.page import Answer, Field, Page, address, answered
from tilescope.web.pages.layouts import BANKS_PAGE, SWIZZLE_PAGE
from tilescope.web.pages.maps import COPY_PAGE, MAP_PAGE
from tilescope.web.pages.planning import PLAN_PAGE
from tilescope.web.pages.tensor_core import PAGE as TENSOR_CORE

# The commands of causes: the page that answers the same, its form, and what else the page is told.
_PAGES: dict[str, tuple[Page, str, dict[str, str]]] = {
    "check": (MAP_PAGE, "tensor_map", {"swizzle": "none"}),
    "load": (COPY_PAGE, "tensor_map", {"swizzle": "none", "coords": "0,0"}),
    "swizzle": (SWIZZLE_PAGE, "", {}),
    "plan": (PLAN_PAGE, "", {}),
    "banks": (BANKS_PAGE, "tile", {"other": ""}),
    "mma descriptors": (TENSOR_CORE, "descriptors", {}),
    "decode": (TENSOR_CORE, "word", {"show": "word"}),
}
_SHOWN_ANYWAY = ("--fix", "--addresses")  # what the page shows unasked
# Causes that a run of the pipeline shows: their numbers go into its description.
_ON_PIPELINE = (
    "barrier-bytes", "barrier-arrivals", "multicast-receiver", "parity", "slot-index", "early-release", "barrier-init",
)  # fmt: skip


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """The causes of what is seen, in the order in which to try them."""
    call = Call(diagnose, (_seen(asked),), name="diagnosis", module="tilescope.symptoms")
    diagnosis: Diagnosis = call.run()
    leads = {f"{number}. {cause.name}": _leads(cause) for number, cause in enumerate(diagnosis.causes, 1)}
    others = {"It may also be": diagnosis.symptoms[1:4], "Is it one of these?": diagnosis.suggested}
    for title, symptoms in others.items():
        leads[title] = {symptom.name: address("symptoms", {"seen": symptom.name}) for symptom in symptoms}
    return answered(call, leads=leads)


def command(_: str, asked: dict[str, Any]) -> list[str]:
    """The command that asks the same."""
    return ["explain", _seen(asked)]


def _seen(asked: dict[str, Any]) -> str:
    """What is seen, without dashes before it, which a command would take for an option."""
    seen: str = asked["seen"].lstrip("- ")
    if not seen:
        raise ARGUMENT_TYPE.error(
            "seen", "no words", "seen is a code, a name or a few words", "Write 715, for example."
        )
    return seen


def _leads(cause: Cause) -> dict[str, str]:
    """The page that tests a cause, filled as its command is; none where only the command, or nothing, can."""
    if cause.name in _ON_PIPELINE:
        return {"Test it on the page Pipeline": "/pipeline?given=text"}
    words = shlex.split(cause.command)[1:]
    known = next((name for name in _PAGES if words[: len(name.split())] == name.split()), None)
    if known is None:
        return {}
    page, form, query = _PAGES[known]
    fields = page.forms[form]
    by_option = {field.option.split()[0]: field.name for field in fields if field.option} | {"--pattern": "pattern"}
    places = [field.name for field in fields if not field.option]
    filled, rest = dict(query), words[len(known.split()) :]
    while rest:
        word = rest.pop(0)
        if word in by_option and rest:
            filled[by_option[word]] = rest.pop(0)
        elif places and not word.startswith("-"):
            filled[places.pop(0)] = word
        elif word not in _SHOWN_ANYWAY:
            return {}
    return {f"Test it on the page {page.title}": address(page.name, filled)}


PAGE = Page(
    "symptoms",
    "Symptoms",
    "Type what you see, an error code or a few words: causes in order, how to tell them apart, the fix, and what tests each.",
    {
        "": (
            Field(
                "seen", label="What you see", preset="the kernel hangs in try_wait", choices=tuple(SYMPTOM), is_open=True,
                hint='such as 715, "wrong after the first stage", or an error\'s name.', is_long=True,
            ),
        )
    },
    answer,
    command,
)  # fmt: skip
