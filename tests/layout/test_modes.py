"""Hierarchical layouts against NVIDIA's pycute."""

import numpy as np
import pycute
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.layout import Modes

LEAF = st.tuples(st.integers(1, 6), st.sampled_from([0, 1, 2, 3, 4, 6, 8, 12, 24, 64]))
TREE = st.recursive(
    LEAF.map(lambda leaf: ("leaf", *leaf)), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6
)


def unzipped(tree):
    """The shape and the stride of a drawn tree of (extent, stride) leaves."""
    if isinstance(tree, tuple):
        return tree[1], tree[2]
    shapes, strides = zip(*map(unzipped, tree), strict=True)
    return shapes, strides


LAYOUTS = TREE.map(lambda tree: Modes(*unzipped(tree)))


def values(layout):
    return [layout.evaluate(index) for index in range(layout.size)]


def twin(layout):
    return pycute.Layout(layout.shape, layout.stride)


@given(LAYOUTS)
def test_evaluates_as_pycute(layout):
    other = twin(layout)
    assert layout.size == pycute.size(other)
    assert layout.cosize == pycute.cosize(other)
    assert values(layout) == [other(index) for index in range(layout.size)]
    assert layout.evaluate(np.arange(layout.size)).tolist() == values(layout)


@given(LAYOUTS)
def test_right_inverse_is_pycutes(layout):
    inverse, other = layout.right_inverse(), pycute.right_inverse(twin(layout))
    assert inverse.size == pycute.size(other)
    assert values(inverse) == [other(index) for index in range(inverse.size)]
    assert all(layout.evaluate(inverse.evaluate(offset)) == offset for offset in range(inverse.size))


@given(LAYOUTS)
def test_coalesced_is_the_same_function(layout):
    assert values(layout.coalesced()) == values(layout)
    assert len(layout.coalesced().pairs) <= len(layout.pairs)


@given(
    st.permutations([(2, "a"), (4, "b"), (8, "c"), (2, "d")]), st.sampled_from([(16, 8), (2, 64), (4, 2, 16), (128,)])
)
def test_grouping_keeps_the_function(order, extents):
    shape = tuple(extent for extent, _ in order)
    layout = Modes(shape, tuple(3**place for place, _ in enumerate(shape)))
    grouped = layout.grouped(*extents)
    assert values(grouped) == values(layout)
    assert tuple(part.size for part in grouped.parts) == extents


def test_at_takes_one_index_per_outermost_mode():
    layout = Modes(((4, 8), (2, 2)), ((32, 1), (16, 8)))
    other = twin(layout)
    for lane in range(32):
        for value in range(4):
            assert layout.at(lane, value) == other(lane, value) == layout.evaluate(lane + 32 * value)


@given(LAYOUTS)
def test_survives_plain_data(layout):
    assert ts.Value.from_dict(layout.to_dict()) == layout


@pytest.mark.parametrize(
    ("shape", "stride"),
    [((4, 8), (1,)), ((4, (8, 2)), (1, 4)), (0, 1), ((4, -1), (1, 4)), ("4", 1), ((), ()), (True, 1), (4.0, 1)],
)
def test_refuses_what_is_no_layout(shape, stride):
    with pytest.raises(ts.RuleError, match="with the same nesting"):
        Modes(shape, stride)


def test_refuses_what_does_not_fit():
    layout = Modes((4, 6), (1, 4))
    with pytest.raises(ts.RuleError, match="2 outermost modes"):
        layout.at(1)
    with pytest.raises(ts.RuleError, match="product of the modes"):
        layout.grouped(5, 5)
    with pytest.raises(ts.RuleError, match="product of the modes"):
        layout.grouped(24, 2)
