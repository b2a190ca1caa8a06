"""A pipeline of four stages, proven; then with a consumer that waits for the wrong parity."""

import tilescope as ts

pipeline = ts.plan_pipeline(ts.plan((128, 64), "bf16").best, stages=4)
print(ts.simulate(pipeline).verdict)

described = pipeline.to_dict()
loop = described["roles"][1]["steps"][-1]  # the consumer's
loop["steps"][0]["parity"] = "i / STAGES % 2 ^ 1"  # the producer's parity: the first wait passes at once
print(ts.simulate(described).mistake)
