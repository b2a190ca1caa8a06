// Encodes maps of every kind through the driver; with a number, times that many calls instead.
#include <cuda.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

static CUdeviceptr memory;

static CUresult tiled(cuuint64_t columns, cuuint64_t row_bytes, cuuint32_t box_columns, CUtensorMapSwizzle swizzle,
                      cuuint64_t offset = 0) {
    CUtensorMap map;
    cuuint64_t dims[] = {columns, 512}, strides[] = {row_bytes};
    cuuint32_t box[] = {box_columns, 64}, ones[] = {1, 1};
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(memory + offset), dims, strides,
                                  box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult im2col(CUtensorMap *map, cuuint32_t channels) {
    cuuint64_t dims[] = {64, 32, 32, 4}, strides[] = {128, 4096, 131072};
    cuuint32_t ones[] = {1, 1, 1, 1};
    int lower[] = {-1, -1}, upper[] = {-1, -1};
    return cuTensorMapEncodeIm2col(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)memory, dims, strides, lower, upper,
                                   channels, 64, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                   CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult im2col_wide() {
    CUtensorMap map;
    cuuint64_t dims[] = {64, 32, 32, 4}, strides[] = {128, 4096, 131072};
    cuuint32_t ones[] = {1, 1, 1, 1};
    return cuTensorMapEncodeIm2colWide(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)memory, dims, strides, -1, -1,
                                       64, 32, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
                                       CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void time_calls(int count) {
    for (const char *name : {"the same map", "another address each"}) {
        std::vector<double> microseconds;
        for (int round = 0; round < 7; round++) {
            auto begin = std::chrono::steady_clock::now();
            for (int i = 0; i < count; i++)
                tiled(512, 1024, 64, CU_TENSOR_MAP_SWIZZLE_128B, name[0] == 'a' ? i % 4096 * 128 : 0);
            std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - begin;
            microseconds.push_back(taken.count() / count);
        }
        std::sort(microseconds.begin(), microseconds.end());
        printf("%d calls, %s: %.2f us each (%.2f to %.2f)\n", count, name, microseconds[3], microseconds[0],
               microseconds[6]);
    }
}

int main(int count, char **words) {
    CUdevice device;
    CUcontext context;
    cuInit(0);
    cuDeviceGet(&device, 0);
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
    cuMemAlloc(&memory, 1 << 20);
    if (count > 1) {
        time_calls(atoi(words[1]));
        return 0;
    }
    CUtensorMap map;
    printf("tiled %d\n", tiled(512, 1024, 64, CU_TENSOR_MAP_SWIZZLE_128B));
    printf("rows overlap %d\n", tiled(512, 512, 64, CU_TENSOR_MAP_SWIZZLE_128B));
    printf("box too wide for the swizzle %d\n", tiled(512, 1024, 128, CU_TENSOR_MAP_SWIZZLE_128B));
    printf("im2col %d\n", im2col(&map, 64));
    printf("address replaced %d\n", cuTensorMapReplaceAddress(&map, (void *)(memory + 256)));
    printf("address replaced off 16 bytes %d\n", cuTensorMapReplaceAddress(&map, (void *)(memory + 8)));
    printf("im2col, too many channels %d\n", im2col(&map, 512));
    printf("im2col-wide %d\n", im2col_wide());
    cuCtxSetCurrent(nullptr);
    printf("no context %d\n", tiled(512, 1024, 64, CU_TENSOR_MAP_SWIZZLE_128B));
    return 4;
}
