"""What explain says of the fields of a tensor map: where they stand, and in which order an edit is published."""

import pytest

from tilescope.tensor_map import field_topics
from tilescope.tensor_map.replacement import PUBLISHING

TOPICS = field_topics.topics()


def test_the_steps_that_publish_an_edit_are_numbered_from_one():
    told = [fact for fact in TOPICS["tensormap.replace"].facts if fact[0].startswith("publish")]
    assert told == [(f"publish, {number + 1}", said) for number, said in enumerate(PUBLISHING)]


@pytest.mark.parametrize("name", [name for name in TOPICS if name.startswith("field ")])
def test_a_rank_is_named_where_the_place_depends_on_it(name):
    """The corners of im2col maps share two words, whatever the rank; every other field has one place in all maps."""
    for entry, place in TOPICS[name].facts:
        assert ("(rank " in place) == ("corner" in entry), place
    entries = [entry for entry, _ in TOPICS[name].facts]
    if "corner" in name:
        corner = name.removeprefix("field ").removesuffix("[i]")
        of_ranks = [f"{corner}[{axis}] {rank}" for rank in (3, 4, 5) for axis in range(rank - 2)]
        found = [f"{entry} {place.partition('(rank ')[2].rstrip(')')}" for entry, place in TOPICS[name].facts]
        assert sorted(found) == sorted(of_ranks)
    if "corner" not in name:
        assert len(entries) == len(set(entries))
