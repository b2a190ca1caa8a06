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
