"""Time planning a tile, a GEMM and a whole kernel, including candidates and proofs.

python benchmarks/plan.py
"""

from ratio import Work, print_ratios, run

import tilescope as ts

GOAL_SECONDS = 50e-3
GEMM_GOAL_SECONDS = 150e-3
KERNEL_GOAL_SECONDS = 300e-3
PROBLEMS = {
    "128 x 64 bf16": ((128, 64), "bf16", {}),
    "256 x 64 bf16, MN-major": ((256, 64), "bf16", {"major": "MN"}),
    "256 x 128 bf16": ((256, 128), "bf16", {}),
    "256 x 256 bf16": ((256, 256), "bf16", {}),
    "256 x 128 bf16, ldmatrix": ((256, 128), "bf16", {"consumer": "ldmatrix"}),
    "128 x 256 f32, stored": ((128, 256), "f32", {"direction": "store"}),
    "256 x 64 bf16, folded too": ((256, 64), "bf16", {"fold": True, "global_shape": (4096, 4096)}),
    "256 x 64 bf16, sm_100": ((256, 64), "bf16", {"arch": "sm_100", "consumer": "tcgen05"}),
    "128 x 64 bf16, cp.async": ((128, 64), "bf16", {"copy": "cp.async"}),
}


def work(name):
    tile, data_type, options = PROBLEMS[name]
    return Work(name, lambda: ts.plan(tile, data_type, **options), goal_seconds=GOAL_SECONDS)


def main():
    print_ratios("one plan", *map(work, PROBLEMS))
    print_ratios(
        "a GEMM",
        *(
            Work(
                f"4096 x 4096 x 8192 bf16, {card}",
                lambda card=card: ts.plan_gemm(4096, 4096, 8192, "bf16", card=card),
                goal_seconds=GEMM_GOAL_SECONDS,
            )
            for card in ("H200", "B200")
        ),
    )
    print_ratios(
        "a whole kernel",
        *(
            Work(name, lambda name=name: ts.plan_kernel(name), goal_seconds=KERNEL_GOAL_SECONDS)
            for name in ("gemm", "flash-attention-3-forward-128", "mamba2-ssd")
        ),
    )


if __name__ == "__main__":
    run(main)
