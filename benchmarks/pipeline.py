"""How long it takes to prove a pipeline right in every order, or to name its mistake.

python benchmarks/pipeline.py
"""

from ratio import Work, print_ratios

import tilescope as ts

GOAL_SECONDS = 10


def planned(**options):
    return ts.plan_pipeline([ts.plan((64, 64), "bf16").best] * 2, consumers=2, **options)


def wrong():
    """The same with one K step that expects 16 bytes too many, late in the loop: nothing recurs, and all of it is run."""
    data = planned(stages=4, steps=2_000).to_dict()
    producer = next(step for step in data["roles"][0]["steps"] if "loop" in step)
    producer["steps"][1]["bytes"] = "16384 + 16 * (i == 1900)"
    return data


PIPELINES = {
    "1 block, 4 stages, 18 steps": planned(stages=4),
    "16 blocks, 12 stages, 10,000 steps": planned(stages=12, cluster=(4, 4), steps=10_000),
    "1 block, wrong in step 1,900 of 2,000": wrong(),
}

if __name__ == "__main__":
    works = [
        Work(name, lambda each=each: ts.simulate(each), goal_seconds=GOAL_SECONDS) for name, each in PIPELINES.items()
    ]
    print_ratios("simulate", *works, rounds=1)
