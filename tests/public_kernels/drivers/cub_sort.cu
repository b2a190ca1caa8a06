// Radix sort of CUB.
#include <cub/device/device_radix_sort.cuh>

extern "C" int sort_pairs(const unsigned *keys, unsigned *sorted_keys, const int *values, int *sorted_values,
                          void *storage, int count) {
  size_t size = 1 << 24;
  return cub::DeviceRadixSort::SortPairs(storage, size, keys, sorted_keys, values, sorted_values, count);
}
