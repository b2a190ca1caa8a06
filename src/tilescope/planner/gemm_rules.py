"""The rules of a GEMM's plan: what product.py and gemm.py check."""

from __future__ import annotations

from tilescope.rule import rule

GEMM_CONSUMER = rule(
    "gemm-consumer",
    "The architecture has the consumer of the product: wgmma, tcgen05, or ldmatrix with mma.",
    source='PTX ISA, "Target ISA Notes" of the instructions',
    passing='ts.plan_gemm(256, 256, 256, "bf16", consumer="wgmma")',
    failing='ts.plan_gemm(256, 256, 256, "bf16", consumer="tcgen05")',
)
GEMM_TYPE = rule(
    "gemm-type",
    "The tensor core multiplies the type on this architecture, and the copies move it and the type of C.",
    source='PTX ISA, "mma", "tcgen05.mma"; cuda.h, CUtensorMapDataType',
    passing='ts.plan_gemm(256, 256, 256, "bf16", arch="sm_80")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", arch="sm_80")',
)
GEMM_MAJOR = rule(
    "gemm-major",
    "A and B are MN-major only if the tensor core reads MN-major elements of their width.",
    source='PTX ISA, "wgmma.mma_async", "tcgen05.mma", "ldmatrix"',
    passing='ts.plan_gemm(256, 256, 256, "bf16", b_major="MN")',
    failing='ts.plan_gemm(256, 256, 256, "e4m3", b_major="MN")',
)
GEMM_ROWS = rule(
    "gemm-rows",
    "Rows of A and B in global memory are multiples of 16 bytes, and rows of C where TMA stores them.",
    source="cuda.h, cuTensorMapEncodeTiled; measured on an H200",
    basis="measured",
    passing='ts.plan_gemm(256, 256, 264, "bf16")',
    failing='ts.plan_gemm(256, 256, 260, "bf16")',
)
GEMM_TILE = rule(
    "gemm-tile",
    "A tile is a whole number of the tensor core's instructions, and of the rows in which TMA moves its elements.",
    source='PTX ISA, "mma", "tcgen05.mma"; CUTLASS',
    passing='ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(16, 8, 64))',
    failing='ts.plan_gemm(256, 256, 256, "bf16", consumer="ldmatrix", tile=(12, 8, 64))',
)
GEMM_ACCUMULATORS = rule(
    "gemm-accumulators",
    "The accumulators of a tile fit into the registers of an SM, or into tensor memory.",
    source='CUDA programming guide, compute capabilities; PTX ISA, "tensor memory"',
    passing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 256, 64))',
    failing='ts.plan_gemm(512, 512, 512, "bf16", tile=(256, 256, 64))',
)
GEMM_SMEM = rule(
    "gemm-smem",
    "All stages, the epilogue and the barriers of a GEMM fit into the shared memory of a block.",
    source="CUDA programming guide, compute capabilities",
    passing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=6)',
    failing='ts.plan_gemm(512, 512, 512, "bf16", tile=(128, 128, 64), stages=8)',
)
