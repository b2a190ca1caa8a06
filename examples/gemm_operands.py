"""Both operands of a GEMM tile: how A and B lie in shared memory, the descriptors that wgmma reads, and the product.

A is (m, k) and B is (n, k), both with k contiguous, as PyTorch stores a linear layer. The descriptors of a k step differ by
32 bytes, which are 2 in units of 16.

    $ python examples/gemm_operands.py
    C in tiles of 64 x 128, 8 stages of 64 elements of k
    a: 64 x 64, swizzle 128B, box (64, 64), stage 0 at 0x0
       k step 0: 0x4000004000010000
       k step 1: 0x4000004000010002
    b: 128 x 64, swizzle 128B, box (64, 128), stage 0 at 0x10000
       k step 0: 0x4000004000011000
       k step 1: 0x4000004000011002
    a tile of C equals numpy's: True
"""

import numpy as np

import tilescope as ts

gemm = ts.plan_gemm(1024, 1024, 512, "bf16")
print(f"C in tiles of {gemm.tile[0]} x {gemm.tile[1]}, {gemm.stages} stages of {gemm.tile[2]} elements of k")

operands = {"a": gemm.a, "b": gemm.b}
for name, plan in operands.items():
    stage_address = gemm.smem_offsets()[name][0]
    rows, depth = plan.problem.tile
    print(f"{name}: {rows} x {depth}, swizzle {plan.swizzle.name}, box {plan.box}, stage 0 at {stage_address:#x}")
    for step, descriptor in enumerate(plan.descriptors(smem_address=stage_address)[0][:2]):
        print(f"   k step {step}: {descriptor.encode():#018x}")

random = np.random.default_rng(0)
m, n, k = gemm.tile
a = random.integers(-4, 5, (m, k))
b = random.integers(-4, 5, (n, k))
product = ts.emulate_mma(a, b.T, data_type="bf16", swizzle=(gemm.a.swizzle.name, gemm.b.swizzle.name))
print("a tile of C equals numpy's:", bool((product == a @ b.T).all()))
