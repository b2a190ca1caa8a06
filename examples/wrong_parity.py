"""A pipeline of four stages, proven; then with a consumer that waits for the wrong parity.

$ python examples/wrong_parity.py
as planned: proven
consumer reads a[0] before anything has filled it: it reads garbage. Fill a[0], and let consumer
wait for the barrier that says so; a barrier's first phase has parity 0.
"""

import textwrap

import tilescope as ts

pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=4)
print("as planned:", ts.simulate(pipeline).verdict)

described = pipeline.to_dict()
loop = described["roles"][1]["steps"][-1]  # the consumer's
loop["steps"][0]["parity"] = "i / STAGES % 2 ^ 1"  # the producer's parity: the first wait passes at once
print(textwrap.fill(str(ts.simulate(described).mistake), 100))
