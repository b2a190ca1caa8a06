"""A matrix product of JAX Pallas (Mosaic GPU), run without a GPU: copies by TMA, wgmma, and a store by TMA.

pallas_product.ptx is what JAX 0.10.2 makes of `product_kernel`. `python run_pallas.py compile` makes it anew, also without a GPU: it needs
pip install jax jax-cuda13-plugin jax-cuda13-pjrt absl-py, and ptxas from nvidia-cuda-nvcc or a CUDA toolkit.

    $ python examples/run_pallas.py
    product_kernel_mosaic_gpu_kernel: 189 instructions
    finished, 3 copies by TMA
    findings: []
    equal to numpy: True
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import tilescope as ts

M, N, K = 64, 64, 128
RECORDED = Path(__file__).with_name("pallas_product.ptx")
H100 = """
platform_name: "CUDA" runtime_version { major: 13 } dnn_version_info { major: 9 minor: 10 }
gpu_device_info {
  cuda_compute_capability { major: 9 } core_count: 132 threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 fpus_per_core: 128 clock_rate_ghz: 1.98
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 device_memory_size: 84942979072
}"""


def compile_product() -> str:
    """The kernel's PTX: JAX compiles ahead of time for a described card, and Mosaic GPU writes its PTX to a folder."""
    folder = tempfile.TemporaryDirectory()
    os.environ |= {
        "MOSAIC_GPU_DUMP_PTX": "1",
        "MOSAIC_GPU_DUMP_TO": folder.name,
        "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    }
    import jax
    import jax.numpy as jnp
    from jax.experimental import topologies
    from jax.experimental.pallas import mosaic_gpu as plgpu

    def product_kernel(a, b, c, a_tile, b_tile, c_tile, total, barrier):
        plgpu.copy_gmem_to_smem(a, a_tile, barrier)
        plgpu.copy_gmem_to_smem(b, b_tile, barrier)
        plgpu.barrier_wait(barrier)
        plgpu.wgmma(total, a_tile, b_tile)
        plgpu.wgmma_wait(0)
        c_tile[...] = total[...].astype(jnp.float16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(c_tile, c)
        plgpu.wait_smem_to_gmem(0)

    swizzled = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    product = plgpu.kernel(
        product_kernel,
        out_type=jax.ShapeDtypeStruct((M, N), jnp.float16),
        scratch_types=[
            plgpu.SMEM((M, K), jnp.float16, transforms=swizzled),
            plgpu.SMEM((K, N), jnp.float16, transforms=swizzled),
            plgpu.SMEM((M, N), jnp.float16, transforms=swizzled),
            plgpu.ACC((M, N), jnp.float32),
            plgpu.Barrier(num_arrivals=2),
        ],
    )
    card = topologies.get_topology_desc(platform="cuda", topology_name="H100", topology="1x1x1", target_config=H100)
    place = jax.sharding.SingleDeviceSharding(card.devices[0])
    matrices = [jax.ShapeDtypeStruct(shape, jnp.float16, sharding=place) for shape in ((M, K), (K, N))]
    jax.jit(product).lower(*matrices).compile()
    (written,) = Path(folder.name).glob("*.ptx")
    return written.read_text("utf-8").replace(str(Path(__file__).resolve()), Path(__file__).name)


def tiled_map(memory: ts.Memory, matrix: np.ndarray) -> ts.TensorMap:
    """The map that Mosaic GPU's host makes of TilingTransform((8, 64)): boxes of 8 x 64, one after another, as further dimensions."""
    rows, columns = matrix.shape
    dims, strides_bytes = [64, 8], [2 * columns]
    if columns > 64:
        dims.append(columns // 64)
        strides_bytes.append(2 * 64)
    return ts.TensorMap(
        address=memory.place(matrix),
        data_type="f16",
        dims=(*dims, rows // 8),
        strides_bytes=(*strides_bytes, 2 * 8 * columns),
        box=(*dims, rows // 8),
        swizzle="128B",
    )


def main() -> None:
    text = compile_product() if "compile" in sys.argv else RECORDED.read_text("utf-8")
    kernel = ts.Kernel(text)
    print(f"{kernel.entry}: {len(kernel.instructions)} instructions")
    random = np.random.default_rng(0)
    a = random.integers(-2, 3, (M, K)).astype(np.float16)
    b = random.integers(-2, 3, (K, N)).astype(np.float16)
    c = np.zeros((M, N), np.float16)
    memory = ts.Memory()
    maps = ts.pack(
        a=tiled_map(memory, a), b=tiled_map(memory, b), c=tiled_map(memory, c)
    )  # one parameter holds all three
    smem_bytes = a.nbytes + b.nbytes + c.nbytes + 8  # and an mbarrier
    run = kernel.run(grid=1, block=128, args=[maps], smem_bytes=smem_bytes, memory=memory)
    print(f"{run.outcome}, {len(run.copies)} copies by TMA")
    print("findings:", [f"{finding.severity} {finding.rule}" for finding in run.findings])
    print("equal to numpy:", np.array_equal(c, a.astype(np.float32) @ b.astype(np.float32)))


if __name__ == "__main__":
    main()
