// Sums, largest values and their places over rows: shuffles within a warp, shared memory between warps.
extern "C" __global__ void block_reduction(const float* in, float* sums, float* largest, int* places, int n) {
  __shared__ float warp_sums[8], warp_largest[8];
  __shared__ int warp_places[8];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float sum = 0, best = -INFINITY;
  int place = -1;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const float x = in[blockIdx.x * n + i];
    sum += x;
    if (x > best) {
      best = x;
      place = i;
    }
  }
  const auto merge = [&](float other, int other_place) {
    if (other > best || (other == best && other_place < place)) {
      best = other;
      place = other_place;
    }
  };
#pragma unroll
  for (int delta = 16; delta > 0; delta /= 2) {
    sum += __shfl_down_sync(~0u, sum, delta);
    merge(__shfl_down_sync(~0u, best, delta), __shfl_down_sync(~0u, place, delta));
  }
  if (lane == 0) {
    warp_sums[warp] = sum;
    warp_largest[warp] = best;
    warp_places[warp] = place;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 1; i < blockDim.x / 32; ++i) {
    sum += warp_sums[i];
    merge(warp_largest[i], warp_places[i]);
  }
  sums[blockIdx.x] = sum;
  largest[blockIdx.x] = best;
  places[blockIdx.x] = place;
}
