// Compaction and histogram of CUB.
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_select.cuh>

struct IsEven {
  __device__ bool operator()(int value) const { return value % 2 == 0; }
};

extern "C" int select_even(const int *values, int *selected, int *selected_count, void *storage, int count) {
  size_t size = 1 << 20;
  return cub::DeviceSelect::If(storage, size, values, selected, selected_count, count, IsEven{});
}

extern "C" int histogram(const float *samples, int *counts, void *storage, int bins, int count) {
  size_t size = 1 << 20;
  return cub::DeviceHistogram::HistogramEven(storage, size, samples, counts, bins + 1, 0.0f, 1.0f, count);
}
