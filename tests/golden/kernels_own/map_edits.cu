// A tensor map edited on the card: in shared memory with a fenced copy out, and in global memory, then used by other blocks' loads.
#include "device.cuh"

extern "C" __global__ void map_edits(const __grid_constant__ TensorMap pattern, TensorMap* maps, const float* other, u32* out) {
  __shared__ alignas(1024) u8 tile[1024];
  __shared__ alignas(128) TensorMap edited;
  __shared__ alignas(8) u64 barrier;
  const u32 lane = threadIdx.x, map = shared_address(&edited), full = shared_address(&barrier);
  TensorMap* mine = &maps[blockIdx.x];
  reinterpret_cast<u32*>(&edited)[lane] = reinterpret_cast<const u32*>(&pattern)[lane];
  if (lane == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  __syncwarp();
  if (lane == 0) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(other) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(5 + blockIdx.x) : "memory");
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(map), "l"(u64(128)) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map), "r"(8) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(map) : "memory");
    asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 1;" ::"r"(map) : "memory");
  }
  __syncwarp();
  asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(mine), "r"(map) : "memory");
  for (int pass = 0; pass < 2; ++pass) {
    if (lane == 0) {
      asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(mine) : "memory");
      mbarrier_expect(full, 1024);
      tma_load_2d(shared_address(tile), mine, full, 0, pass);
    }
    mbarrier_wait(full, pass);
    for (int i = 0; i < 8; ++i) out[(blockIdx.x * 2 + pass) * 256 + i * 32 + lane] = reinterpret_cast<const u32*>(tile)[i * 32 + lane];
    __syncwarp();
    if (lane == 0 && pass == 0) {  // in global memory: generic writes, released to the proxy of maps
      asm volatile("tensormap.replace.tile.global_address.global.b1024.b64 [%0], %1;" ::"l"(mine), "l"(other + 64) : "memory");
      asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
    }
    __syncwarp();
  }
  reinterpret_cast<u32*>(mine)[lane] = 0;  // addresses are nobody's business: the recording is the same wherever arrays lie
}
