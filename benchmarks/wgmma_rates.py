"""Measure cycles of wgmma.m64nNk16 with both operands in shared memory, compared with the planner's model: max(n / 2, 16 + n / 4).

python benchmarks/wgmma_rates.py  # on a Hopper card, with nvcc and cupy
"""

import pathlib
import shutil
import subprocess
import tempfile

from ratio import end_for_want_of, needed, run, sized

LOOP, UNROLL = 256, 8


def kernel(n):
    count = n // 2
    regs = ", ".join(f"%{i}" for i in range(count))
    out = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    instruction = (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{regs}}}, %{count}, %{count + 1}, 1, 1, 1, 0, 0;"'
        f' : {out} : "l"(a), "l"(b));'
    )
    return f"""
extern "C" __global__ void wgmma_{n}(long long* cycles, float* sink) {{
    extern __shared__ __align__(1024) unsigned char smem[];
    for (int i = threadIdx.x; i < 65536 / 4; i += blockDim.x) ((int*)smem)[i] = 0;
    asm volatile("fence.proxy.async.shared::cta;");
    __syncthreads();
    unsigned base = (unsigned)__cvta_generic_to_shared(smem);
    unsigned group = threadIdx.x / 128;
    // 128B swizzle, stride 1024 bytes, K-major; every warpgroup its own 64 rows of A, all the same B
    unsigned long long word = (1ull << 62) | (64ull << 32) | (1ull << 16);
    unsigned long long a = word | (((base + group * 8192) & 0x3ffff) >> 4);
    unsigned long long b = word | (((base + 32768) & 0x3ffff) >> 4);
    float d[{count}];
    for (int i = 0; i < {count}; ++i) d[i] = 0;
    __syncthreads();
    long long start = clock64();
    for (int i = 0; i < {LOOP}; ++i) {{
        asm volatile("wgmma.fence.sync.aligned;");
        {instruction * UNROLL}
        asm volatile("wgmma.commit_group.sync.aligned;");
        asm volatile("wgmma.wait_group.sync.aligned 1;");
    }}
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    __syncthreads();
    long long end = clock64();
    float sum = 0;
    for (int i = 0; i < {count}; ++i) sum += d[i];
    sink[blockIdx.x * blockDim.x + threadIdx.x] = sum;
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - start;
}}
"""


def main():
    cupy = needed("cupy", "pip install cupy-cuda13x")
    if shutil.which("nvcc") is None:
        end_for_want_of("nvcc is missing: install the CUDA toolkit, or put its bin folder on the PATH")
    if not cupy.cuda.is_available() or cupy.cuda.Device().compute_capability != "90":
        end_for_want_of("a Hopper card is missing: wgmma is an instruction of sm_90a alone")
    sizes = sized((8, 16, 32, 64, 96, 128, 192, 256), tiny=(8,))
    folder = pathlib.Path(tempfile.mkdtemp())
    source = folder / "wgmma.cu"
    source.write_text("\n".join(map(kernel, sizes)))
    subprocess.run(
        ["nvcc", "-O3", "-cubin", "-arch=sm_90a", "-o", str(folder / "wgmma.cubin"), str(source)], check=True
    )
    module = cupy.RawModule(path=str(folder / "wgmma.cubin"))
    print("  n   sums  reads  measured with 1, 2 and 4 warpgroups, in cycles per instruction")
    for n in sizes:
        found = []
        for groups in (1, 2, 4):
            if groups * n > 512:
                found.append(float("nan"))
                continue
            launched = module.get_function(f"wgmma_{n}")
            launched.max_dynamic_shared_size_bytes = 98304
            cycles, sink = cupy.zeros(132, cupy.int64), cupy.zeros(132 * 128 * groups, cupy.float32)
            for _ in range(3):
                launched((132,), (128 * groups,), (cycles, sink), shared_mem=98304)
            cupy.cuda.Device().synchronize()
            found.append(float(cupy.median(cycles)) / (LOOP * UNROLL * groups))
        print(f"{n:3d}  {n / 2:5.0f}  {16 + n / 4:5.0f}  " + "  ".join(f"{each:6.1f}" for each in found))


if __name__ == "__main__":
    run(main)
