/* A program for tests of watch: makes the calls that its arguments name, through the stand-in driver.
 *
 *     calls init accepted refused im2col wide replace two-threads flood=10000 distinct=100 no-context null rank=6 fork …
 */
#define _GNU_SOURCE
#include "standin.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const cuuint64_t dims[5] = {4096, 4096}, strides[5] = {8192};
static const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
static const cuuint64_t image_dims[5] = {64, 9, 14, 64}, image_strides[5] = {128, 1152, 16128};
static const int corner[3] = {-1, -1};

static CUresult encode(cuuint32_t rank, const cuuint64_t *extents, const cuuint32_t *box, uintptr_t address) {
    CUtensorMap map = {0};
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)address, extents, strides, box,
                                  ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static CUresult accepted(uintptr_t address) {
    const cuuint32_t box[2] = {64, 64};
    return encode(2, dims, box, address);
}

static CUresult refused(void) {
    const cuuint32_t box[2] = {128, 64};
    standin_answer(CUDA_ERROR_INVALID_VALUE);
    CUresult result = encode(2, dims, box, 0x1008);
    standin_answer(CUDA_SUCCESS);
    return result;
}

static void *hundred(void *unused) {
    for (int i = 0; i < 100; i++) {
        accepted(0x1000);
        if (i % 10 == 0) refused();
    }
    return unused;
}

static void two_threads(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, hundred, NULL);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
}

static void flood(long count) {
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (long i = 0; i < count; i++) accepted(0x1000);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    printf("%ld calls, %.2f us each\n", count, 1e6 * seconds / (double)count);
}

/* Maps that differ in an extent: each is told, none is a repeat. */
static void distinct(long count) {
    const cuuint32_t box[2] = {64, 64};
    for (long i = 0; i < count; i++) {
        const cuuint64_t extents[2] = {4096, (cuuint64_t)i + 1};
        encode(2, extents, box, 0x1000);
    }
}

static void im2col(void) {
    CUtensorMap map = {0};
    cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)0x2000, image_dims, image_strides, corner,
                            corner, 8, 64, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void wide(void) {
    CUtensorMap map = {0};
    cuTensorMapEncodeIm2colWide(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, (void *)0x3000, image_dims, image_strides, -1,
                                -1, 64, 32, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
                                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

__attribute__((noinline)) static CUresult replace_address(CUtensorMap *map, uintptr_t address) {
    return cuTensorMapReplaceAddress(map, (void *)address);
}

static void replace(CUresult answer, uintptr_t address) {
    CUtensorMap map = {0};
    if (answer) replace_address(&map, 0x4000); /* makes it a map */
    standin_answer(answer);
    replace_address(&map, address);
    standin_answer(CUDA_SUCCESS);
}

static void unreadable(const cuuint64_t *extents, const cuuint32_t *box, cuuint32_t rank) {
    standin_answer(CUDA_ERROR_INVALID_VALUE);
    encode(rank, extents, box, 0x1000);
    standin_answer(CUDA_SUCCESS);
}

static void no_context(void) {
    standin_answer(CUDA_ERROR_INVALID_CONTEXT);
    accepted(0x1000);
    standin_answer(CUDA_SUCCESS);
}

/* Close every descriptor, and let a socket of the program's own have the number of ours. */
static void close_all(void) {
    int ends[2];
    char byte;
    for (int i = 3; i < 1024; i++) close(i);
    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends);
    for (int i = 3; i < 1024; i++)
        if (i != ends[0] && i != ends[1]) dup2(ends[1], i);
    accepted(0x1000);
    printf("%s\n", recv(ends[0], &byte, 1, MSG_DONTWAIT) < 0 ? "own socket untouched" : "OWN SOCKET WRITTEN TO");
}

static void fork_two(void) {
    for (int i = 0; i < 2; i++)
        if (!fork()) {
            accepted(0x1000);
            refused();
            _exit(0);
        }
    while (wait(NULL) > 0) {}
}

/* ---- launches: double_all(float *a, unsigned n) of tests/cli/double.ptx, its arrays reached in three ways ---- */

enum { LENGTH = 40 };
static float numbers[LENGTH];
static float *pointers[2]; /* memory that holds a pointer */

static void double_numbers(void **parameters) {
    unsigned count;
    memcpy(&count, parameters[1], sizeof count);
    for (unsigned i = 0; i < count && i < LENGTH; i++) numbers[i] *= 2;
}

static struct standin_kernel plain = {"double_all", 2, {0, 8}, {8, 4}, double_numbers};
static struct standin_kernel through = {"through_memory", 2, {0, 8}, {8, 4}, double_numbers};

static void place(void) {
    static int is_placed;
    if (is_placed) return;
    is_placed = 1;
    for (int i = 0; i < LENGTH; i++) numbers[i] = (float)i;
    pointers[1] = numbers;
    standin_allocation(numbers, sizeof numbers);
    standin_allocation(pointers, sizeof pointers);
}

static void launch(struct standin_kernel *kernel, const void *first) {
    unsigned count = LENGTH;
    void *parameters[] = {&first, &count};
    cuLaunchKernel((CUfunction)(void *)kernel, 2, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL);
}

static void launch_clustered(void) {
    const void *first = numbers;
    unsigned count = LENGTH;
    void *parameters[] = {&first, &count};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {2, 1, 1}};
    CUlaunchConfig config = {.gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
                             .blockDimZ = 1, .sharedMemBytes = 1024, .attrs = &attribute, .numAttrs = 1};
    cuLaunchKernelEx(&config, (CUfunction)(void *)&plain, parameters, NULL);
}

static void take(const char *word) {
    const char *value = strchr(word, '=');
    long number = value ? atol(value + 1) : 0;
    size_t length = value ? (size_t)(value - word) : strlen(word);
    const cuuint32_t box[5] = {64, 64};
#define IS(name) (length == strlen(name) && !strncmp(word, name, length))
    if (IS("init")) cuInit(0);
    else if (IS("accepted")) accepted(0x1000);
    else if (IS("refused")) refused();
    else if (IS("wrongly-accepted")) encode(2, dims, box, 0x1008);
    else if (IS("wrongly-refused")) unreadable(dims, box, 2);
    else if (IS("im2col")) im2col();
    else if (IS("wide")) wide();
    else if (IS("replace")) replace(CUDA_SUCCESS, 0x4000);
    else if (IS("replace-refused")) replace(CUDA_ERROR_INVALID_VALUE, 0x4008);
    else if (IS("two-threads")) two_threads();
    else if (IS("flood")) flood(number);
    else if (IS("distinct")) distinct(number);
    else if (IS("no-context")) no_context();
    else if (IS("null")) unreadable(NULL, box, 2);
    else if (IS("wild")) unreadable((const cuuint64_t *)16, box, 2);
    else if (IS("rank")) unreadable(dims, box, (cuuint32_t)number);
    else if (IS("launch")) place(), launch(&plain, numbers);
    else if (IS("launch-inside")) place(), launch(&plain, numbers + 2);
    else if (IS("launch-through")) place(), launch(&through, pointers);
    else if (IS("launch-clustered")) place(), launch_clustered();
    else if (IS("capture")) standin_capture((int)number);
    else if (IS("fault")) standin_fault((CUresult)number);
    else if (IS("close-all")) close_all();
    else if (IS("fork")) fork_two();
    else if (IS("sleep")) usleep((useconds_t)number * 1000);
    else if (IS("signal")) raise((int)number);
    else if (IS("exit")) exit((int)number);
    else fprintf(stderr, "calls: what is %s?\n", word), exit(2);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < count; i++) take(words[i]);
    return 0;
}
