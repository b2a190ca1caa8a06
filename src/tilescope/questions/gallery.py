"""Tiles of kernels that people know, each as the address of the page that shows it."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.questions.page import address


class Exhibit(NamedTuple):
    """A tile of a public kernel."""

    title: str
    sentence: str
    path: str


def _tile(tile: str, data_type: str, element: str, **options: str) -> str:
    return address("path", {"tile": tile, "data_type": data_type, "element": element, **options})


GALLERY = (
    Exhibit(
        "FlashAttention-3, Q",
        "128 queries of 128 features: operand A of Q times K, two boxes of 64 columns under 128B.",
        _tile("128x128", "f16", "37,85", operand="A"),
    ),
    Exhibit(
        "FlashAttention-3, K",
        "176 keys of 128 features: operand B, contiguous along the features that are summed.",
        _tile("176x128", "f16", "100,85", operand="B"),
    ),
    Exhibit(
        "FlashAttention-3, V",
        "The same rows as B of P times V: contiguous along the columns of the result, so MN-major.",
        _tile("128x176", "f16", "85,100", operand="B", major="MN"),
    ),
    Exhibit(
        "DeepGEMM, fp8",
        "A block of 128 x 128 e4m3: a row is one span of 128 bytes, and a K step takes 32 of them.",
        _tile("128x128", "e4m3", "37,100"),
    ),
    Exhibit(
        "A warp-specialised GEMM",
        "A producer warp and consumer warpgroups over a ring of stages, as CUTLASS has them, proven for every order.",
        address("pipeline", {"given": "gemm"}),
    ),
    Exhibit(
        "A Triton matmul",
        "tl.dot on 128 x 64 fp16 from a descriptor: the tile as Triton's NVMMASharedLayout stores it.",
        _tile("128x64", "f16", "37,21"),
    ),
    Exhibit(
        "A convolution by im2col",
        "Pixels become rows while they are copied: the box of an NHWC image, step by step.",
        address("load", {"kind": "im2col_map"}),
    ),
    Exhibit(
        "nvfp4",
        "4-bit values for Blackwell's tensor core, 128 x 256 of them, and the descriptors that read them.",
        _tile("128x256", "e2m1", "37,100", arch="sm_100"),
    ),
)
