"""A transpose in CuTe DSL, run without a GPU, with and without the barrier between its store and its load.

cute_dsl_transpose.ptx is what CuTe DSL 4.8.1 makes of `transpose`. `python run_cute_dsl.py compile` makes it anew, also without a GPU:
it needs pip install nvidia-cutlass-dsl.

    $ python examples/run_cute_dsl.py
    as it is: finished, equal to numpy: True
    without sync_threads: finished, equal to numpy: True
      error: run-race at run_cute_dsl.py:43, PTX line 59 (ld.shared.b32 %r19, [%r18])
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import tilescope as ts

ROWS, COLUMNS, TILE = 64, 96, 32
RECORDED = Path(__file__).with_name("cute_dsl_transpose.ptx")


def compile_transpose() -> str:
    """The kernel's PTX: `__ptx__` of what cute.compile returns, where CUTE_DSL_KEEP asks for it."""
    folder = tempfile.TemporaryDirectory()  # where it writes the PTX too
    settings = {"ARCH": "sm_90a", "KEEP": "ptx", "DUMP_DIR": folder.name, "LINEINFO": "1"}
    os.environ |= {f"CUTE_DSL_{name}": value for name, value in settings.items()}
    import cutlass
    from cutlass import cute
    from cutlass.cute.runtime import from_dlpack
    from cutlass.memory import SmemAllocator

    @cute.kernel
    def transpose_kernel(a: cute.Tensor, b: cute.Tensor):
        x, y, _ = cute.arch.thread_idx()
        column, row, _ = cute.arch.block_idx()
        padded = cute.make_layout((TILE, TILE), stride=(TILE + 1, 1))  # a column of it lies in 32 banks
        tile = SmemAllocator().allocate_tensor(cutlass.Float32, padded, 16)
        tile[y, x] = a[row * TILE + y, column * TILE + x]
        cute.arch.sync_threads()
        b[column * TILE + y, row * TILE + x] = tile[x, y]

    @cute.jit
    def transpose(a: cute.Tensor, b: cute.Tensor):
        transpose_kernel(a, b).launch(grid=[COLUMNS // TILE, ROWS // TILE, 1], block=[TILE, TILE, 1])

    arrays = [np.zeros((ROWS, COLUMNS), np.float32), np.zeros((COLUMNS, ROWS), np.float32)]
    made = cute.compile(transpose, *map(from_dlpack, arrays))
    return made.__ptx__.replace(str(Path(__file__).resolve()), Path(__file__).name)


def main() -> None:
    text = compile_transpose() if "compile" in sys.argv else RECORDED.read_text("utf-8")
    unsynchronized = "\n".join(line for line in text.splitlines() if "bar.sync" not in line)
    for title, ptx in (("as it is", text), ("without sync_threads", unsynchronized)):
        a = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype(np.float32)
        b = np.zeros((COLUMNS, ROWS), np.float32)
        memory = ts.Memory()
        arguments = [
            ts.pack(memory, data=array) for array in (a, b)
        ]  # a tensor of static shape is a struct of one pointer
        run = ts.Kernel(ptx).run(
            grid=(COLUMNS // TILE, ROWS // TILE), args=arguments, smem_bytes=TILE * (TILE + 1) * 4, memory=memory
        )
        print(f"{title}: {run.outcome}, equal to numpy: {np.array_equal(b, a.T)}")
        for finding in run.findings:
            print(f"  {finding.severity}: {finding.rule} at {finding.argument}")


if __name__ == "__main__":
    main()
