/* A stand-in for libcuda.so.1: it loads the injection library as the driver does, and answers as it is told.
 *
 * What it writes into a map that it accepts is what STANDIN_cuTensorMapEncodeTiled, … hold, 256 hexadecimal digits.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <cupti.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local CUresult answer;
static _Thread_local int thinks;
static atomic_int is_thinking, may_go_on;
static void (*callback)(uint32_t, const char *, const void *, CUresult *, int);

void standin_answer(CUresult result) { answer = result; }
void standin_think(void) { thinks = 1; }
int standin_is_thinking(void) { return is_thinking; }
void standin_let_go(unsigned microseconds) {
    may_go_on = 1;
    usleep(microseconds);
}

CUresult CUDAAPI cuInit(unsigned flags) {
    const char *path = getenv("CUDA_INJECTION64_PATH");
    (void)flags;
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "InitializeInjection") : NULL;
    int (*initialize)(void);
    memcpy(&initialize, &symbol, sizeof symbol);
    if (symbol) initialize();
    void *cupti = dlopen(getenv("TILESCOPE_WATCH_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
    symbol = cupti ? dlsym(cupti, "standin_callback") : NULL;
    memcpy(&callback, &symbol, sizeof symbol);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (device) return CUDA_ERROR_INVALID_DEVICE;
    const char *major = getenv("STANDIN_MAJOR");
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (major ? atoi(major) : 9) : 0;
    return CUDA_SUCCESS;
}

static void write_map(const char *function, CUtensorMap *map) {
    char name[64];
    snprintf(name, sizeof name, "STANDIN_%s", function);
    const char *digits = getenv(name);
    for (size_t i = 0; digits && i < sizeof *map; i++) {
        char pair[3] = {digits[2 * i], digits[2 * i + 1]};
        ((unsigned char *)map)[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

static CUresult answered(uint32_t id, const char *name, const void *parameters, CUtensorMap *map) {
    CUresult result = answer;
    if (callback) callback(id, name, parameters, &result, 0);
    if (thinks) {
        is_thinking = 1;
        while (!may_go_on) usleep(100);
        thinks = 0;
    }
    if (!result) write_map(name, map);
    if (callback) callback(id, name, parameters, &result, 1);
    return result;
}

#define ANSWER(function, map, ...)                                \
    function##_params parameters = {__VA_ARGS__};                 \
    return answered(CUPTI_DRIVER_TRACE_CBID_##function, #function, &parameters, map)

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                        const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                        const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill) {
    ANSWER(cuTensorMapEncodeTiled, map, map, type, rank, address, dims, strides, box, element_strides, interleave,
           swizzle, promotion, fill);
}

CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                         const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                         const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                         const cuuint32_t *element_strides, CUtensorMapInterleave interleave,
                                         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                         CUtensorMapFloatOOBfill fill) {
    ANSWER(cuTensorMapEncodeIm2col, map, map, type, rank, address, dims, strides, lower, upper, channels, pixels,
           element_strides, interleave, swizzle, promotion, fill);
}

CUresult CUDAAPI cuTensorMapEncodeIm2colWide(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                             const cuuint64_t *dims, const cuuint64_t *strides, int lower, int upper,
                                             cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_strides,
                                             CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                             CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                             CUtensorMapFloatOOBfill fill) {
    ANSWER(cuTensorMapEncodeIm2colWide, map, map, type, rank, address, dims, strides, lower, upper, channels, pixels,
           element_strides, interleave, mode, swizzle, promotion, fill);
}

CUresult CUDAAPI cuTensorMapReplaceAddress(CUtensorMap *map, void *address) {
    ANSWER(cuTensorMapReplaceAddress, map, map, address);
}

/* ---- launches ---- */

static struct {
    uintptr_t start;
    size_t bytes;
} allocations[8];
static int allocation_count, is_capturing;
static CUresult fault;

void standin_allocation(const void *start, size_t bytes) {
    allocations[allocation_count].start = (uintptr_t)start;
    allocations[allocation_count++].bytes = bytes;
}

void standin_capture(int capturing) { is_capturing = capturing; }
void standin_fault(CUresult result) { fault = result; }

CUresult CUDAAPI cuCtxSynchronize(void) {
    CUresult result = fault;
    fault = CUDA_SUCCESS;
    return result;
}

CUresult CUDAAPI cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address) {
    for (int i = 0; i < allocation_count; i++)
        if (address - allocations[i].start < allocations[i].bytes) {
            *start = allocations[i].start;
            *bytes = allocations[i].bytes;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, size_t number, size_t *offset, size_t *bytes) {
    const struct standin_kernel *kernel = (const void *)function;
    if (number >= kernel->parameters) return CUDA_ERROR_INVALID_VALUE;
    *offset = kernel->offsets[number];
    *bytes = kernel->sizes[number];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    (void)stream;
    *status = is_capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult run_kernel(uint32_t id, const char *name, const void *call, CUfunction function, void **parameters) {
    CUresult result = answer;
    if (callback) callback(id, name, call, &result, 0);
    if (!result) ((const struct standin_kernel *)(const void *)function)->run(parameters);
    if (callback) callback(id, name, call, &result, 1);
    return result;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned smem_bytes, CUstream stream,
                                void **parameters, void **extra) {
    cuLaunchKernel_params call = {function, grid_x,     grid_y, grid_z,     block_x, block_y,
                                  block_z,  smem_bytes, stream, parameters, extra};
    return run_kernel(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", &call, function, parameters);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra) {
    cuLaunchKernelEx_params call = {config, function, parameters, extra};
    return run_kernel(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx", &call, function, parameters);
}
