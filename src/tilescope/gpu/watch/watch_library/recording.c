/* One launch of a kernel, written to a file: its shape, its parameters, and the memory that they reach, before and after.
 *
 *     launch entered   the device is waited for; parameters, then allocations by the pointers in them, are copied
 *     launch left      the device is waited for; the same allocations are copied again, and the file is written
 *
 * Any 8 bytes of the parameters that are an address of the device count as a pointer, and so do those in the first 4 KiB
 * behind a pointer: structs, tensor maps by value (which begin with the address of their tensor), arrays of pointers and
 * maps in global memory are all found so. What does not fit the limit is cut, and the file says how much.
 *
 * This part does block, and only for the launch that was asked for.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PARAMETERS = 4096,
    PARAMETER_BYTES = 32768,
    REGIONS = 256,
    LOOKED_AT_BYTES = 4096, /* behind a pointer, for further pointers */
    DEPTH = 3, /* pointers to pointers */
    CUT_ALIGNMENT_BYTES = 256,
    NAMES = 256,
    FILE_VERSION = 1,
};
static const uint64_t ADDRESS_BITS = ((uint64_t)1 << 57) - 1; /* of a tensor map's first word */
static const uint64_t LEAST_ADDRESS = 1 << 16;

/* What the file begins with; watch_recording.py unpacks it. */
struct launch_header {
    char magic[8];
    uint32_t version, capability;
    uint32_t grid[3], block[3], cluster[3]; /* cluster: zeros where the launch names none */
    uint32_t smem_bytes;
    int32_t result; /* CUresult of the launch, or of waiting for it */
    uint32_t parameters, parameter_bytes, regions, name_bytes;
    uint32_t has_after, unused;
};

struct parameter {
    uint32_t offset, bytes;
};

struct region {
    uint64_t allocation, allocation_bytes;
    uint64_t address, bytes; /* what is recorded of it */
    uint64_t first; /* the lowest pointer into it */
};

struct recording {
    struct launch_header header;
    struct parameter parameters[PARAMETERS];
    uint8_t parameter_bytes[PARAMETER_BYTES];
    struct region regions[REGIONS];
    uint8_t *before[REGIONS], *after[REGIONS];
    char name[4096];
};

static struct {
    CUresult (*synchronize)(void);
    CUresult (*copy)(void *, CUdeviceptr, size_t);
    CUresult (*range)(CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*function_parameter)(CUfunction, size_t, size_t *, size_t *);
    CUresult (*kernel_parameter)(CUkernel, size_t, size_t *, size_t *);
    CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *);
} driver;

static const char *wanted;
static const char *folder;
static unsigned long wanted_number, most_bytes;
static atomic_ulong matching;
static atomic_uint_least64_t told_names[NAMES];
static _Thread_local struct recording *current;

static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* Whether launches are looked at; called once, before any callback. */
int watch_records_launches(void *libcuda) {
    const char *number = getenv("TILESCOPE_WATCH_RECORD_NUMBER"), *bytes = getenv("TILESCOPE_WATCH_RECORD_BYTES");
    wanted = getenv("TILESCOPE_WATCH_RECORD");
    folder = getenv("TILESCOPE_WATCH_RECORD_FOLDER");
    if (!wanted || !folder || !libcuda) return 0;
    wanted_number = number ? strtoul(number, NULL, 10) : 1;
    most_bytes = bytes ? strtoul(bytes, NULL, 10) : 0;
    find(libcuda, "cuCtxSynchronize", &driver.synchronize);
    find(libcuda, "cuMemcpyDtoH_v2", &driver.copy);
    find(libcuda, "cuMemGetAddressRange_v2", &driver.range);
    find(libcuda, "cuFuncGetParamInfo", &driver.function_parameter);
    find(libcuda, "cuKernelGetParamInfo", &driver.kernel_parameter);
    find(libcuda, "cuStreamIsCapturing", &driver.is_capturing);
    return 1;
}

static void tell(const char *word, const char *text) {
    struct watch_record record;
    memset(&record, 0, offsetof(struct watch_record, text));
    record.kind = WATCH_LAUNCH;
    watch_append(&record, "%s\t%s\n", word, text);
    watch_send(&record);
}

/* Tell the name of a kernel once, so that one that was never launched can be answered with those that were. */
static void tell_name(const char *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const char *at = name; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
    hash |= 1;
    uint64_t found = 0;
    if (atomic_compare_exchange_strong(&told_names[hash % NAMES], &found, hash)) tell("kernel", name);
}

/* ---- parameters ---- */

static CUresult parameter_at(const struct watch_launch *launch, size_t number, size_t *offset, size_t *bytes) {
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (driver.function_parameter) result = driver.function_parameter((CUfunction)launch->function, number, offset, bytes);
    if (result && driver.kernel_parameter) result = driver.kernel_parameter((CUkernel)launch->function, number, offset, bytes);
    return result;
}

/* Where `extra` keeps the bytes of all parameters; NULL where there is none. */
static const uint8_t *buffer_of(void **extra) {
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) return extra[1];
    return NULL;
}

static const char *take_parameters(struct recording *it, const struct watch_launch *launch) {
    const uint8_t *buffer = buffer_of(launch->extra);
    if (!driver.function_parameter) return "the driver does not say what parameters a kernel has: CUDA 12.4 or newer is needed";
    for (size_t number = 0, offset, bytes; !parameter_at(launch, number, &offset, &bytes); number++) {
        const uint8_t *from = buffer ? buffer + offset : launch->parameters ? launch->parameters[number] : NULL;
        if (number == PARAMETERS || offset + bytes > PARAMETER_BYTES) return "the kernel has more parameters than are recorded";
        if (!from) return "the launch has no parameters, and the kernel wants some";
        memcpy(it->parameter_bytes + offset, from, bytes);
        it->parameters[number] = (struct parameter){(uint32_t)offset, (uint32_t)bytes};
        it->header.parameters = (uint32_t)number + 1;
        if (offset + bytes > it->header.parameter_bytes) it->header.parameter_bytes = (uint32_t)(offset + bytes);
    }
    return NULL;
}

/* ---- memory ---- */

/* The allocation of an address, entered if it is new; NULL where the address is none of the device's. */
static struct region *region_of(struct recording *it, uint64_t address, int *is_new) {
    *is_new = 0;
    for (uint32_t i = 0; i < it->header.regions; i++) {
        struct region *known = &it->regions[i];
        if (address - known->allocation < known->allocation_bytes) return known;
    }
    CUdeviceptr start;
    size_t bytes;
    if (it->header.regions == REGIONS || driver.range(&start, &bytes, address) || address - start >= bytes) return NULL;
    struct region *made = &it->regions[it->header.regions++];
    *made = (struct region){start, bytes, start, bytes, address};
    *is_new = 1;
    return made;
}

static void follow_words(struct recording *it, const uint8_t *bytes, size_t count, int depth);

static void follow(struct recording *it, uint64_t word, int depth) {
    uint64_t address = word & ADDRESS_BITS;
    if (address < LEAST_ADDRESS) return;
    int is_new;
    struct region *region = region_of(it, address, &is_new);
    if (!region) return;
    int is_lower = address < region->first;
    if (is_lower) region->first = address;
    if (depth == DEPTH || !(is_new || is_lower)) return;
    uint64_t left = region->allocation + region->allocation_bytes - address;
    size_t looked_at = left < LOOKED_AT_BYTES ? (size_t)left : LOOKED_AT_BYTES;
    uint8_t bytes[LOOKED_AT_BYTES];
    if (address % sizeof word || driver.copy(bytes, address, looked_at)) return;
    follow_words(it, bytes, looked_at, depth + 1);
}

static void follow_words(struct recording *it, const uint8_t *bytes, size_t count, int depth) {
    uint64_t word;
    for (size_t at = 0; at + sizeof word <= count; at += sizeof word) {
        memcpy(&word, bytes + at, sizeof word);
        follow(it, word, depth);
    }
}

/* Cut what does not fit: a region begins with the lowest pointer into it, if not all of it is recorded. */
static void cut(struct recording *it) {
    uint64_t left = most_bytes;
    for (uint32_t i = 0; i < it->header.regions; i++) {
        struct region *region = &it->regions[i];
        if (region->bytes > left) {
            uint64_t start = region->first / CUT_ALIGNMENT_BYTES * CUT_ALIGNMENT_BYTES;
            if (start < region->allocation) start = region->allocation;
            uint64_t rest = region->allocation + region->allocation_bytes - start;
            region->address = start;
            region->bytes = rest < left ? rest : left;
        }
        left -= region->bytes;
    }
}

static const char *copy_all(struct recording *it, uint8_t **contents) {
    for (uint32_t i = 0; i < it->header.regions; i++) {
        struct region *region = &it->regions[i];
        contents[i] = malloc(region->bytes ? region->bytes : 1);
        if (!contents[i]) return "there is not enough memory for the copy";
        if (region->bytes && driver.copy(contents[i], region->address, region->bytes))
            return "the driver did not copy an allocation";
    }
    return NULL;
}

/* ---- the launch ---- */

static void drop(void) {
    if (!current) return;
    for (uint32_t i = 0; i < REGIONS; i++) {
        free(current->before[i]);
        free(current->after[i]);
    }
    free(current);
    current = NULL;
}

static const char *begin(const struct watch_launch *launch) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!driver.synchronize || !driver.copy || !driver.range) return "the driver lacks functions that copy memory";
    if (driver.is_capturing && driver.is_capturing(launch->stream, &status) == CUDA_SUCCESS && status)
        return "it is captured into a graph, and does not run now";
    current = calloc(1, sizeof *current);
    if (!current) return "there is not enough memory";
    struct launch_header *header = &current->header;
    memcpy(header->magic, "TSLAUNCH", sizeof header->magic);
    header->version = FILE_VERSION;
    header->capability = launch->capability;
    memcpy(header->grid, launch->grid, sizeof header->grid);
    memcpy(header->block, launch->block, sizeof header->block);
    memcpy(header->cluster, launch->cluster, sizeof header->cluster);
    header->smem_bytes = launch->smem_bytes;
    strncpy(current->name, launch->name, sizeof current->name - 1);
    header->name_bytes = (uint32_t)strlen(current->name);
    if (driver.synchronize()) return "the device answers with an error before the launch";
    const char *reason = take_parameters(current, launch);
    if (reason) return reason;
    follow_words(current, current->parameter_bytes, header->parameter_bytes, 0);
    cut(current);
    return copy_all(current, current->before);
}

void watch_launch_entered(const struct watch_launch *launch) {
    if (!launch->name) return;
    tell_name(launch->name);
    if (!strstr(launch->name, wanted) || atomic_fetch_add(&matching, 1) + 1 != wanted_number) return;
    drop();
    const char *reason = begin(launch);
    if (!reason) return;
    tell("unrecorded", reason);
    drop();
}

static int written(FILE *file, const void *bytes, size_t count) { return !count || fwrite(bytes, count, 1, file) == 1; }

static int write_all(FILE *file) {
    const struct launch_header *header = &current->header;
    int whole = written(file, header, sizeof *header) && written(file, current->name, header->name_bytes) &&
                written(file, current->parameters, header->parameters * sizeof *current->parameters) &&
                written(file, current->parameter_bytes, header->parameter_bytes) &&
                written(file, current->regions, header->regions * sizeof *current->regions);
    for (uint32_t i = 0; whole && i < header->regions; i++) whole = written(file, current->before[i], current->regions[i].bytes);
    for (uint32_t i = 0; whole && header->has_after && i < header->regions; i++)
        whole = written(file, current->after[i], current->regions[i].bytes);
    return whole;
}

void watch_launch_left(int32_t result) {
    if (!current) return;
    struct launch_header *header = &current->header;
    header->result = result;
    if (!result) header->result = driver.synchronize();
    header->has_after = !header->result && !copy_all(current, current->after);
    char path[1024];
    snprintf(path, sizeof path, "%s/launch-%d.bin", folder, (int)getpid());
    FILE *file = fopen(path, "wb");
    int whole = file && write_all(file);
    if (file && fclose(file)) whole = 0;
    tell(whole ? "recorded" : "unrecorded", whole ? path : "the file could not be written");
    drop();
}
