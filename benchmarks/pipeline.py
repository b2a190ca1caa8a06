"""Time proving a pipeline for every interleaving, or finding its mistake.

python benchmarks/pipeline.py
"""

from ratio import Work, print_ratios, run, sized

import tilescope as ts

GOAL_SECONDS = 10
STEPS, CLUSTER = sized((10_000, (4, 4)), tiny=(20, (2, 1)))
WRONG_STEPS = sized(2_000, tiny=20)


def planned(**options):
    return ts.plan_pipeline([ts.plan((64, 64), "bf16").best] * 2, consumers=2, **options)


def wrong():
    """The same with one late K step that expects 16 bytes too many. No state recurs, so the whole loop is simulated."""
    data = planned(stages=4, steps=WRONG_STEPS).to_dict()
    producer = next(step for step in data["roles"][0]["steps"] if "loop" in step)
    producer["steps"][1]["bytes"] = f"16384 + 16 * (i == {WRONG_STEPS * 19 // 20})"
    return data


def main():
    blocks = CLUSTER[0] * CLUSTER[1]
    pipelines = {
        "1 block, 4 stages, 18 steps": planned(stages=4),
        f"{blocks} blocks, 12 stages, {STEPS:,} steps": planned(stages=12, cluster=CLUSTER, steps=STEPS),
        f"1 block, wrong late in {WRONG_STEPS:,} steps": wrong(),
    }
    works = [
        Work(name, lambda each=each: ts.simulate(each), goal_seconds=GOAL_SECONDS) for name, each in pipelines.items()
    ]
    print_ratios("simulate", *works, rounds=1)


if __name__ == "__main__":
    run(main)
