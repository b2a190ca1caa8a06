"""Roles and kernels have one vocabulary: an event of a role is named as the event of a run is, and so are its fields."""

from dataclasses import fields

import pytest

from tilescope.pipeline.step_reading import _EVENTS
from tilescope.sync import events, role_events
from tilescope.sync.all_orders.interpreter import _HANDLERS
from tilescope.sync.role_events import Action, Fence, SlotAccess, ThreadBarrier

FAMILIES = (Action, SlotAccess, Fence, ThreadBarrier)  # what several events have in common
CLASSES = [
    made
    for made in vars(role_events).values()
    if isinstance(made, type) and issubclass(made, Action) and made not in FAMILIES
]
# a run sees a wait as tests, a flag as loads and atomics, a store as a copy without a barrier, and no other grid
WITHOUT_EVENT = {"MbarrierWait", "BulkStoreIssued", "FlagAdd", "FlagPoll", "GridDependency", "RegisterRequest"}
# where a role acts, and what a description knows beside the event: which tile, which bytes of a slot, the words of a choice
OF_ROLES = {"barriers", "slots", "mask_beyond", "step", "into", "tile", "sources", "offset_bytes", "scope", "how"}
# `waits` of a cluster's arrival puts its wait behind it; cp.async arrives once for each of its lanes; a copy's record has its bytes
ALSO = {
    "ClusterArrive": {"waits"},
    "ClusterWait": {"waits"},
    "CpAsyncArriveIssued": {"arrivals"},
    "CopyIssued": {"size_bytes"},
}


def names(made):
    return {field.name for field in fields(made)}


def test_all_but_a_few_events_of_roles_are_events_of_a_run():
    assert {made.__name__ for made in CLASSES if not hasattr(events, made.__name__)} == WITHOUT_EVENT


@pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)
def test_fields_have_the_names_that_the_event_of_a_run_gives_them(made):
    if made.__name__ not in WITHOUT_EVENT:
        own = names(made) - OF_ROLES - ALSO.get(made.__name__, set())
        assert own <= names(getattr(events, made.__name__))


def test_every_event_comes_from_a_step_and_is_carried_out():
    made_of_steps = {form.event for form in _EVENTS.values()}
    carried_out = set(_HANDLERS) | {made for made in CLASSES if issubclass(made, ThreadBarrier)}
    assert made_of_steps == set(CLASSES) == carried_out
