// Arithmetic on pairs of halves and bfloats, comparisons, and conversions between the small types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "device.cuh"

extern "C" __global__ void halves(const __half2* in, const __nv_bfloat162* brain, u32* out) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
  const __half2 a = in[i], b = in[threads + i], c = in[2 * threads + i];
  const __nv_bfloat162 x = brain[i], y = brain[threads + i], z = brain[2 * threads + i];
  u32 row = 0;
  const auto store = [&](const auto& value) { out[row++ * threads + i] = *reinterpret_cast<const u32*>(&value); };
  store(__hadd2_rn(a, b));
  store(__hsub2_sat(a, b));
  store(__hmul2_rn(a, b));
  store(__hfma2(a, b, c));
  store(__hfma2_relu(a, b, c));
  store(__hfma2_sat(a, b, c));
  store(__hmin2(a, b));
  store(__hmax2_nan(a, b));
  store(__habs2(a));
  store(__hneg2(a));
  store(__hgt2(a, b));
  store(__hltu2(a, b));
  store(h2rint(a));
  store(h2floor(b));
  store(__hadd2_rn(x, y));
  store(__hmul2_rn(x, y));
  store(__hfma2(x, y, z));
  store(__hfma2_relu(x, y, z));
  store(__hmax2(x, y));
  store(__hmin2_nan(x, z));
  store(__floats2half2_rn(__bfloat162float(x.x), __low2float(b)));
  store(__floats2bfloat162_rn(__half2float(a.x), __half2float(a.y)));
  store(__half22float2(a).y);
  store(__float22half2_rn(make_float2(__half2float(a.x) * 3.0f, 1e-7f)));
  const u32 bytes = __nv_cvt_halfraw2_to_fp8x2(a, __NV_SATFINITE, __NV_E4M3) | __nv_cvt_float2_to_fp8x2(__half22float2(b), __NV_SATFINITE, __NV_E5M2) << 16;
  store(bytes);
  const __half2_raw back = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(bytes), __NV_E4M3);
  store(back);
  const int whole = __half2int_rn(a.x) * 1000 + __half2ushort_rz(b.y) + __bfloat162int_rd(x.y);
  store(whole);
  const __half2 made = __halves2half2(__int2half_rn(i * 77), __ushort2half_rn(static_cast<u16>(i * 991)));
  store(made);
  store(__hne2_mask(a, b));
  const u32 flags = __hbeq2(a, a) | __hblt2(x, y) << 1 | __hisnan(c.x) << 2 | static_cast<u32>(__hgt(a.x, b.x)) << 3;
  store(flags);
}
