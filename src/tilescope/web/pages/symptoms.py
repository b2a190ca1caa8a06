"""The page of symptoms: what somebody sees in, causes in order out, each with the page that tests it."""

from __future__ import annotations

import shlex
from typing import Any

from tilescope.symptoms import SYMPTOM, Cause, Diagnosis, diagnose
from tilescope.web.call import Call
from tilescope.web.field import Field
from tilescope.web.page import Answer, Lead, Page, address, drawn
from tilescope.web.pages.banks import PAGE as BANKS
from tilescope.web.pages.load import PAGE as LOAD
from tilescope.web.pages.plan import PAGE as PLAN
from tilescope.web.pages.swizzle import PAGE as SWIZZLE
from tilescope.web.pages.tensor_core import PAGE as TENSOR_CORE
from tilescope.web.pages.tensor_map import PAGE as TENSOR_MAP

# What the commands of causes are called: the page, the fields of their words, and what else the page is told.
_PAGES: dict[str, tuple[Page, tuple[str, ...], dict[str, str]]] = {
    "check": (TENSOR_MAP, (), {"swizzle": "none"}),
    "load": (LOAD, (), {"swizzle": "none", "coords": "0,0"}),
    "swizzle": (SWIZZLE, ("mode",), {}),
    "plan": (PLAN, ("tile", "data_type"), {}),
    "banks": (BANKS, ("tile", "data_type"), {"other": ""}),
    "mma descriptors": (TENSOR_CORE, ("tile", "data_type"), {}),
    "decode": (TENSOR_CORE, ("word",), {"show": "word"}),
}
_SHOWN_ANYWAY = ("--fix", "--addresses")  # what the page shows unasked
# Causes that a run of the pipeline shows: their numbers go into its description.
_ON_PIPELINE = (
    "barrier-bytes", "barrier-arrivals", "multicast-receiver", "parity", "slot-index", "early-release", "barrier-init",
)  # fmt: skip


def _words(name: str, written: str) -> str:  # noqa: ARG001  the signature of a reader
    """What is seen, without the dashes at its start that a command would take for an option."""
    return written.strip().lstrip("- ")


def answer(_: str, asked: dict[str, Any]) -> Answer:
    """The causes of what is seen, in the order in which to try them."""
    seen = asked["seen"]
    call = Call(diagnose, (seen,), name="diagnosis", module="tilescope.symptoms")
    found: Diagnosis = call.run()
    leads = {f"{number}. {cause.name}": _leads(cause) for number, cause in enumerate(found.causes, 1)}
    leads |= {
        "It may also be": tuple(_to_symptom(symptom.name) for symptom in found.symptoms[1:4]),
        "Is it one of these?": tuple(_to_symptom(each.name) for each in found.suggested),
    }
    pages = {cause.name: lead.path for cause in found.causes for lead in _leads(cause)}
    return Answer(call, ("explain", seen), found, drawn(found), extra={"pages": pages} if pages else {}, leads=leads)


def _to_symptom(name: str) -> Lead:
    return Lead(address("symptoms", {"seen": name}), name)


def _leads(cause: Cause) -> tuple[Lead, ...]:
    """The page that tests a cause, filled as its command is; none where only the command, or nothing, can."""
    if cause.name in _ON_PIPELINE:
        return (Lead("/pipeline?given=text", "Test it on the page Pipeline"),)
    words = shlex.split(cause.command)[1:]
    known = next((name for name in _PAGES if words[: len(name.split())] == name.split()), None)
    if known is None:
        return ()
    page, names, query = _PAGES[known]
    by_option = {each.option: each.name for each in next(iter(page.forms.values())) if each.option} | {
        "--pattern": "pattern"
    }
    filled, rest, places = dict(query), words[len(known.split()) :], list(names)
    while rest:
        word = rest.pop(0)
        if word in by_option and rest:
            filled[by_option[word]] = rest.pop(0)
        elif places and not word.startswith("-"):
            filled[places.pop(0)] = word
        elif word not in _SHOWN_ANYWAY:
            return ()
    return (Lead(address(page.name, filled), f"Test it on the page {page.title}"),)


PAGE = Page(
    "symptoms",
    "Symptoms",
    "Type what you see, an error code or a few words: causes in order, how to tell them apart, the fix, and what tests each.",
    {
        "": (
            Field("seen", "What you see", "the kernel hangs in try_wait", _words,
                  'Such as 715, "wrong after the first stage", or an error\'s name.', tuple(SYMPTOM), "area", 2000),
        )
    },
    answer,
)  # fmt: skip
