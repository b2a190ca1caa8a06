"""A 128 x 64 bf16 tile for wgmma: the plan, the tensor map, the descriptors of the K loop, and a proof by emulation.

$ python examples/tile_to_tensor_core.py
swizzle 128B, box (64, 128), the mbarrier expects 16384 bytes
shared address of element (r, c): (a = base + r * 128 + c * 2, a ^ ((a >> 3) & 0x70))
k step 0: 0x4000004000010040
k step 1: 0x4000004000010042
k step 2: 0x4000004000010044
k step 3: 0x4000004000010046
emulated product is right: True
"""

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
