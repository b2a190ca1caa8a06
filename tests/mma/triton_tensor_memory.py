"""Prints, as JSON, the bases of Triton's linear layouts for tensor memory and for the registers that load it.

Run it where Triton is installed (no GPU is needed): python triton_tensor_memory.py > triton_tensor_memory.json
"""

import json
import sys


def main():
    import triton
    import triton.language as tl
    from triton._C.libtriton import gluon_ir, ir
    from triton.experimental.gluon.language._semantic import _compute_tmem_reg_layout
    from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, TensorMemoryScalesLayout

    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)

    def bases(layout, shape):
        found = builder.to_linear_layout(layout._to_ir(builder), list(shape))
        return {"shape": list(shape), "rows": found.rows, "columns": found.cols}

    accumulators, scales, registers = {}, {}, {}
    for n in (16, 32, 64, 128, 256):
        accumulators[f"D {n}"] = bases(TensorMemoryLayout((128, n), 1), (128, n))
        accumulators[f"F {n}"] = bases(TensorMemoryLayout((64, n), 1), (64, n))
        pair = {"two_ctas": True, "cga_layout": [[1, 0]]}
        accumulators[f"A {n}"] = bases(TensorMemoryLayout((128, n), 1, **pair), (256, n))
        accumulators[f"B {n}"] = bases(TensorMemoryLayout((64, n), 1, **pair), (128, n))
    for rows, blocks in ((128, 4), (128, 16), (256, 8), (256, 32)):
        scales[f"{rows}x{blocks}"] = bases(TensorMemoryScalesLayout(), (rows, blocks))
    for form in ("32x32b", "16x64b", "16x128b", "16x256b"):
        for n in (16, 64, 128):
            found = _compute_tmem_reg_layout(tl.float32, [128, n], [128, n], TensorMemoryLayout((128, n), 1), 4, form)
            registers[f"{form} {n}"] = [found.reg_bases, found.lane_bases, found.warp_bases]
    printed = {"triton": triton.__version__, "accumulators": accumulators, "scales": scales, "registers": registers}
    sys.stdout.write(json.dumps(printed, separators=(",", ":")))
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
