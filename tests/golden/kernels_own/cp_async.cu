// cp.async of 4, 8 and 16 bytes, partly or wholly zero-filled, in groups that are waited for one after another.
#include "device.cuh"

extern "C" __global__ void cp_async(const u32* in, u32* out, int n) {
  __shared__ alignas(16) u32 tile[4][128 * 4];
  const int thread = threadIdx.x;
  const u32 at = shared_address(&tile[0][thread * 4]);
  const u32* from = in + blockIdx.x * 512 + thread * 4;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at + 4), "l"(from + 3) : "memory");
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at + 8), "l"(from + 2) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + 2048), "l"(from) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  // Fewer bytes than the copy writes: the rest is zero. Of no byte at all, the address is never read.
  const u32 bytes = thread % 5 * 4;
  const u32* inside = bytes ? from : in + (1ull << 40);
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at + 4096), "l"(inside), "r"(bytes) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  asm volatile(
      "{ .reg .pred p; setp.ge.s32 p, %2, %3; cp.async.ca.shared.global [%0], [%1], 16, p; }" ::"r"(at + 6144), "l"(from), "r"(thread), "r"(n)
      : "memory");
  const auto sum = [&](int stage) {
    u32 result = 0;
    for (int i = 0; i < 4; ++i) result = result * 5 + tile[stage][(thread * 4 + i * 129) % 512];
    return result;
  };
  asm volatile("cp.async.wait_group 2;" ::: "memory");
  __syncthreads();
  const u32 first = sum(0);
  asm volatile("cp.async.wait_group 1;" ::: "memory");
  __syncthreads();
  const u32 second = sum(1);
  asm volatile("cp.async.wait_all;" ::: "memory");
  __syncthreads();
  u32* result = out + blockIdx.x * 512 + thread;
  result[0] = first;
  result[128] = second;
  result[256] = sum(2);
  result[384] = sum(3);
}
