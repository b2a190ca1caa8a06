"""The larger kernels of run.py in Triton, as its interpreter runs them: TRITON_INTERPRET=1, set before Triton is imported.

The interpreter computes with numpy, one program after another. It checks nothing and knows no warps, no shared memory and no copies.
`launches` returns None where Triton or torch is not installed.
"""

import os


def launches(rows, words, extent, arrays):
    """Launches of the interpreter by the kernel's name, on torch tensors of the arrays; None: not installed."""
    os.environ["TRITON_INTERPRET"] = "1"
    try:
        import torch
        import triton  # noqa: F401
    except ImportError:
        return None
    from interpreted_kernels import attention, elementwise, layer_norm, matmul, reduction, softmax

    held = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    out = {name: torch.zeros_like(held[name]) for name in ("rows", "words", "square", "queries")}
    tiles = extent // 128

    def reduce_words():
        reduction[(words // 4096,)](held["words"], torch.zeros(1), words, BLOCK=4096)

    return {
        "softmax": lambda: softmax[(rows,)](held["rows"], out["rows"], 4096, BLOCK=4096),
        "layer norm": lambda: layer_norm[(rows,)](
            held["rows"], out["rows"], held["weights"], held["weights"], 4096, 1e-5, BLOCK=4096
        ),
        "element-wise": lambda: elementwise[(words // 1024,)](
            held["words"], held["words"], out["words"], words, BLOCK=1024
        ),
        "reduction": reduce_words,
        "attention": lambda: attention[(2 * tiles,)](
            held["queries"], held["keys"], held["keys"], out["queries"], 0.18, extent, BM=128, BN=64, D=64
        ),
        "matmul": lambda: matmul[(tiles, tiles)](
            held["square"], held["square"], out["square"], extent, BM=128, BN=128, BK=64
        ),
    }
