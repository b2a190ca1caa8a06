"""A 128 x 64 bf16 tile for wgmma: the plan, the tensor map, the descriptors of the K loop, and a proof by emulation."""

import numpy as np

import tilescope as ts

plan = ts.plan((128, 64), "bf16").best
print(f"swizzle {plan.swizzle.name}, box {plan.box}, the mbarrier expects {plan.transaction_bytes} bytes")
print("shared address of element (r, c):", plan.c_expression)
for step, descriptor in enumerate(plan.descriptors(smem_address=0x400)[0]):
    print(f"k step {step}: {descriptor.encode():#018x}")

rng = np.random.default_rng(0)
a, b = rng.integers(-4, 5, (128, 64)), rng.integers(-4, 5, (64, 64))
product = ts.emulate_mma(a, b, data_type="bf16", swizzle=plan.swizzle.name)
print("emulated product is right:", bool((product == a @ b).all()))
