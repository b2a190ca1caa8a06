// Reductions of CUB.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>

extern "C" int sum(const int *values, int *total, void *storage, int count) {
  size_t size = 1 << 20;
  return cub::DeviceReduce::Sum(storage, size, values, total, count);
}

extern "C" int segmented_sum(const float *values, float *sums, const int *offsets, void *storage, int segments) {
  size_t size = 1 << 20;
  return cub::DeviceSegmentedReduce::Sum(storage, size, values, sums, segments, offsets, offsets + 1);
}
