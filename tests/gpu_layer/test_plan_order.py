"""The planner's order is scored by what was measured."""

from tilescope.gpu.bench.plan_order import Where, plan_order


def test_the_planners_order_is_scored_by_what_was_measured():
    """Where the first candidate is the slowest of all, no first choice is good and no differing pair is in order."""

    def backwards(_topic, cases):
        rates, seen = [], []
        for case in cases:
            if case["tile"] != seen:  # another tile, or another type of it
                seen, rank = case["tile"], 0
            rank += 1
            rates.append(1000.0 * rank)
        return rates

    order = plan_order(backwards, 8, 3, Where(arch="sm_90"))
    assert (order.first_choice_good, order.pairs_in_order) == (0, 0)
    assert order.pairs > 0
    assert len(order.misses) == 8
    assert len(order.misjudged) == order.predicted - order.predicted_good
    assert "1000 GB/s, but" in order.misses[0]
