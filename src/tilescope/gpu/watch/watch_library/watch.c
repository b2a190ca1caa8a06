/* Tells tilescope of every tensor map that the process makes through the driver.
 *
 * The driver loads this library from cuInit (CUDA_INJECTION64_PATH) and calls InitializeInjection, which subscribes
 * to CUPTI's callbacks for the four functions that make or change a map. Each call becomes one record. Where a launch is to
 * be recorded, it subscribes to the functions that launch kernels too.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <cupti.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PROBES = 32, CONTEXTS = 64 };

static CUresult (*device_attribute)(int *, CUdevice_attribute, CUdevice);
static CUptiResult (*device_of_context)(CUcontext, uint32_t *);
static atomic_uint_least64_t known_sites[WATCH_SITES]; /* 0: free */
static atomic_uint_least64_t capability_of_context[CONTEXTS]; /* upper half: the context's number */

/* dlsym gives an object pointer; POSIX says that it holds a function's address. */
static void find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

/* ---- arguments ---- */

/* Copy what may be unreadable: the kernel reads it for us, and refuses instead of faulting. Where a sandbox forbids
 * the call that is made for this, a pipe serves. */
static int copied_safely(void *to, const void *from, size_t bytes) {
    int ends[2];
    struct iovec here = {to, bytes}, there = {(void *)(uintptr_t)from, bytes};
    if (!from) return 0;
    long copied = syscall(SYS_process_vm_readv, (long)getpid(), &here, 1UL, &there, 1UL, 0UL);
    if (copied >= 0 || errno == EFAULT) return copied == (long)bytes;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return 0;
    int whole = syscall(SYS_write, ends[1], from, bytes) == (long)bytes && read(ends[0], to, bytes) == (ssize_t)bytes;
    close(ends[0]);
    close(ends[1]);
    return whole;
}

/* The driver has read the arrays of a call that it accepted; of one that it refused, it may not have. */
static void take(struct watch_arguments *a, uint32_t bit, void *to, const void *from, size_t bytes) {
    if (!bytes) return;
    if (!a->result && from)
        memcpy(to, from, bytes);
    else if (!copied_safely(to, from, bytes))
        return;
    a->readable |= bit;
}

/* The members that all three encode calls have. Arrays of an impossible rank are as long as nobody knows. */
#define TAKE_COMMON(record, p)                                                                             \
    size_t rank = (p)->tensorRank <= WATCH_DIMS ? (p)->tensorRank : 0;                                     \
    (record)->address = (uintptr_t)(p)->globalAddress;                                                     \
    (record)->arguments.data_type = (p)->tensorDataType;                                                   \
    (record)->arguments.rank = (p)->tensorRank;                                                            \
    (record)->arguments.interleave = (p)->interleave;                                                      \
    (record)->arguments.swizzle = (p)->swizzle;                                                            \
    (record)->arguments.l2_promotion = (p)->l2Promotion;                                                   \
    (record)->arguments.oob_fill = (p)->oobFill;                                                           \
    take(a, WATCH_READ_DIMS, a->dims, (p)->globalDim, rank * sizeof(uint64_t));                            \
    take(a, WATCH_READ_STRIDES, a->strides_bytes, (p)->globalStrides, rank ? (rank - 1) * sizeof(uint64_t) : 0); \
    take(a, WATCH_READ_ELEMENT_STRIDES, a->element_strides, (p)->elementStrides, rank * sizeof(uint32_t));  \
    take(a, WATCH_READ_MAP, (record)->descriptor, (p)->tensorMap, sizeof (record)->descriptor)

static void take_tiled(struct watch_record *record, const cuTensorMapEncodeTiled_params *p) {
    struct watch_arguments *a = &record->arguments;
    TAKE_COMMON(record, p);
    take(a, WATCH_READ_BOX, a->box, p->boxDim, rank * sizeof(uint32_t));
}

static void take_im2col(struct watch_record *record, const cuTensorMapEncodeIm2col_params *p) {
    struct watch_arguments *a = &record->arguments;
    TAKE_COMMON(record, p);
    size_t corners = rank > 2 ? rank - 2 : 0;
    a->channels = p->channelsPerPixel;
    a->pixels = p->pixelsPerColumn;
    take(a, WATCH_READ_LOWER, a->lower, p->pixelBoxLowerCorner, corners * sizeof(int32_t));
    take(a, WATCH_READ_UPPER, a->upper, p->pixelBoxUpperCorner, corners * sizeof(int32_t));
}

#if CUPTI_API_VERSION >= 27 /* CUDA 12.9 */
static void take_im2col_wide(struct watch_record *record, const cuTensorMapEncodeIm2colWide_params *p) {
    struct watch_arguments *a = &record->arguments;
    TAKE_COMMON(record, p);
    a->channels = p->channelsPerPixel;
    a->pixels = p->pixelsPerColumn;
    a->lower[0] = p->pixelBoxLowerCornerWidth;
    a->upper[0] = p->pixelBoxUpperCornerWidth;
    a->wide_mode = p->mode;
}
#endif

static void take_replace_address(struct watch_record *record, const cuTensorMapReplaceAddress_params *p) {
    record->address = (uintptr_t)p->globalAddress;
    take(&record->arguments, WATCH_READ_MAP, record->descriptor, p->tensorMap, sizeof record->descriptor);
}

/* ---- where and by whom ---- */

/* Compute capability of the call's device: 90 for 9.0; 0 where it cannot be known. */
static uint32_t capability(const CUpti_CallbackData *data) {
    if (!data->context || !device_attribute || !device_of_context) return 0;
    atomic_uint_least64_t *slot = &capability_of_context[data->contextUid % CONTEXTS];
    uint64_t known = atomic_load(slot);
    if (known && known >> 32 == data->contextUid) return (uint32_t)known;
    uint32_t device;
    int major, minor;
    if (device_of_context(data->context, &device) ||
        device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, (CUdevice)device) ||
        device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, (CUdevice)device))
        return 0;
    uint32_t found = (uint32_t)(major * 10 + minor);
    atomic_store(slot, (uint64_t)data->contextUid << 32 | found);
    return found;
}

/* FNV-1a over the 8-byte words of the arguments and the caller; never 0. */
static uint64_t call_site(const struct watch_arguments *a, uintptr_t caller) {
    _Static_assert(sizeof *a % sizeof(uint64_t) == 0, "hashed as words");
    uint64_t hash = 0xcbf29ce484222325 ^ caller, word;
    for (size_t i = 0; i < sizeof *a; i += sizeof word) {
        memcpy(&word, (const char *)a + i, sizeof word);
        hash = (hash ^ word) * 0x100000001b3;
        hash ^= hash >> 29;
    }
    return hash | 1;
}

/* The place of a call site in `known_sites`, taken for it if it is not there; WATCH_SITES where there is no room. */
static size_t place_of(uint64_t site, int *is_known) {
    for (size_t i = 0; i < PROBES; i++) {
        size_t place = (site / 2 + i) % WATCH_SITES;
        uint64_t found = 0;
        *is_known = !atomic_compare_exchange_strong(&known_sites[place], &found, site);
        if (!*is_known || found == site) return place;
    }
    *is_known = 0;
    return WATCH_SITES;
}

/* Whether a multiple of 16 and of 32 bytes, and below 2^57: a map at another address of the kind is the same to the rules. */
static uint32_t address_class(uint64_t address) { return (uint32_t)(address % 32) | (address >> 57 ? 32u : 0u); }

/* Send a call that differs from all before it, with those who made it; count one that does not. */
static void tell(struct watch_record *record) {
    uintptr_t callers[WATCH_FRAMES] = {watch_nearest_caller()};
    int is_known, is_refused = record->arguments.result != 0;
    size_t count = callers[0] != 0;
    record->arguments.address_class = address_class(record->address);
    size_t place = place_of(call_site(&record->arguments, callers[0]), &is_known);
    if (is_known) {
        atomic_fetch_add(&watch_counts->repeats[place], 1);
        return;
    }
    record->site = (uint32_t)place;
    if (place < WATCH_SITES) {
        if (is_refused) count = watch_callers(callers, WATCH_FRAMES);
        for (size_t i = 0; i < count; i++) watch_name_caller(record, callers[i], is_refused);
        watch_name_python_frames(record, is_refused);
    }
    if (watch_send(record) || place == WATCH_SITES) return;
    uint64_t repeats = atomic_exchange(&watch_counts->repeats[place], 0);
    atomic_fetch_add(&watch_counts->lost, repeats);
    if (is_refused) atomic_fetch_add(&watch_counts->lost_refused, repeats);
    atomic_store(&known_sites[place], 0); /* the next call of the kind tries again */
}

/* ---- launches ---- */

static void take_config(struct watch_launch *launch, const CUlaunchConfig *config) {
    launch->grid[0] = config->gridDimX, launch->grid[1] = config->gridDimY, launch->grid[2] = config->gridDimZ;
    launch->block[0] = config->blockDimX, launch->block[1] = config->blockDimY, launch->block[2] = config->blockDimZ;
    launch->smem_bytes = config->sharedMemBytes;
    launch->stream = config->hStream;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];
        if (attribute->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
        launch->cluster[0] = attribute->value.clusterDim.x;
        launch->cluster[1] = attribute->value.clusterDim.y;
        launch->cluster[2] = attribute->value.clusterDim.z;
    }
}

/* Whether it is a launch: the functions that begin one differ in how they pass the same things. */
static int take_launch(struct watch_launch *launch, CUpti_CallbackId id, const CUpti_CallbackData *data) {
    const cuLaunchKernel_params *plain = data->functionParams;
    const cuLaunchKernelEx_params *extended = data->functionParams;
    const cuLaunchCooperativeKernel_params *cooperative = data->functionParams;
    launch->name = data->symbolName;
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
        launch->extra = plain->extra;
        break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
        break;
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
        launch->function = extended->f;
        launch->parameters = extended->kernelParams;
        launch->extra = extended->extra;
        take_config(launch, extended->config);
        return 1;
    default:
        return 0;
    }
    /* both functions begin with the same members */
    _Static_assert(offsetof(cuLaunchKernel_params, kernelParams) == offsetof(cuLaunchCooperativeKernel_params, kernelParams), "");
    launch->function = cooperative->f;
    launch->grid[0] = cooperative->gridDimX, launch->grid[1] = cooperative->gridDimY, launch->grid[2] = cooperative->gridDimZ;
    launch->block[0] = cooperative->blockDimX, launch->block[1] = cooperative->blockDimY;
    launch->block[2] = cooperative->blockDimZ;
    launch->smem_bytes = cooperative->sharedMemBytes;
    launch->stream = cooperative->hStream;
    launch->parameters = cooperative->kernelParams;
    return 1;
}

/* Whether the call is a launch, which then is looked at as it begins and as it ends. */
static int launched(CUpti_CallbackId id, const CUpti_CallbackData *data) {
    struct watch_launch launch = {0};
    if (!take_launch(&launch, id, data)) return 0;
    int error = errno;
    if (data->callbackSite == CUPTI_API_ENTER) {
        launch.capability = capability(data);
        watch_launch_entered(&launch);
    } else {
        watch_launch_left((int32_t)*(const CUresult *)data->functionReturnValue);
    }
    errno = error;
    return 1;
}

static void CUPTIAPI called(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *callback) {
    const CUpti_CallbackData *data = callback;
    (void)userdata;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || watch_is_quiet()) return;
    if (launched(id, data) || data->callbackSite != CUPTI_API_EXIT) return;
    int error = errno, cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* send and read are points of cancellation */
    struct watch_record record;
    memset(&record, 0, offsetof(struct watch_record, text));
    record.kind = WATCH_CALL;
    record.arguments.result = *(const CUresult *)data->functionReturnValue;
    record.arguments.capability = capability(data);
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeTiled:
        record.arguments.function = WATCH_TILED;
        take_tiled(&record, data->functionParams);
        break;
    case CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2col:
        record.arguments.function = WATCH_IM2COL;
        take_im2col(&record, data->functionParams);
        break;
#if CUPTI_API_VERSION >= 27 /* CUDA 12.9 */
    case CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2colWide:
        record.arguments.function = WATCH_IM2COL_WIDE;
        take_im2col_wide(&record, data->functionParams);
        break;
#endif
    default:
        record.arguments.function = WATCH_REPLACE_ADDRESS;
        take_replace_address(&record, data->functionParams);
    }
    tell(&record);
    pthread_setcancelstate(cancel, NULL);
    errno = error;
}

/* ---- subscription ---- */

/* dl_iterate_phdr: the path of a CUPTI that the program has loaded itself. */
static int is_cupti(struct dl_phdr_info *info, size_t size, void *path) {
    (void)size;
    const char *name = strrchr(info->dlpi_name, '/');
    if (strncmp(name ? name + 1 : info->dlpi_name, "libcupti.so", 11)) return 0;
    strncpy(path, info->dlpi_name, 1023);
    return 1;
}

static void *load_cupti(void) {
    char loaded[1024] = "";
    if (dl_iterate_phdr(is_cupti, loaded)) return dlopen(loaded, RTLD_NOW | RTLD_NOLOAD);
    const char *path = getenv("TILESCOPE_WATCH_CUPTI");
    return path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* Subscribe beside others where this CUPTI can, else alone. `other` becomes the name of who was first. */
static CUptiResult subscribe(void *cupti, CUpti_SubscriberHandle *subscriber, char *other, size_t other_bytes) {
    CUptiResult (*alone)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
    find(cupti, "cuptiSubscribe", &alone);
#ifdef CUpti_SubscriberParams_STRUCT_SIZE
    CUptiResult (*with_name)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *, CUpti_SubscriberParams *);
    find(cupti, "cuptiSubscribe_v2", &with_name);
    CUpti_SubscriberParams params = {.structSize = CUpti_SubscriberParams_STRUCT_SIZE,
                                     .subscriberName = "tilescope",
                                     .oldSubscriberName = other,
                                     .oldSubscriberSize = other_bytes};
#if CUPTI_API_VERSION >= 130200 /* CUDA 13.2 */
    params.allowMultipleSubscribers = 1;
    if (with_name && with_name(subscriber, called, NULL, &params) == CUPTI_SUCCESS) return CUPTI_SUCCESS;
    params.allowMultipleSubscribers = 0;
#endif
    if (with_name && with_name(subscriber, called, NULL, &params) == CUPTI_SUCCESS) return CUPTI_SUCCESS;
#else
    (void)other_bytes;
#endif
    return alone ? alone(subscriber, called, NULL) : CUPTI_ERROR_NOT_INITIALIZED;
}

static const CUpti_CallbackId WATCHED[] = {
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeTiled,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2col,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapReplaceAddress,
    /* From here on, what an older CUPTI that the program loaded may not know. */
#if CUPTI_API_VERSION >= 27 /* CUDA 12.9 */
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeIm2colWide,
#endif
};
enum { ALWAYS_KNOWN = 3 };

static const CUpti_CallbackId LAUNCHES[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
};

/* Start the callbacks; what fails is told to tilescope in the record, as "failed TAB reason". */
static void start(struct watch_record *record) {
    char other[128];
    CUpti_SubscriberHandle subscriber;
    const char *reason = "";
    CUptiResult (*enable)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
    CUptiResult (*describe)(CUptiResult, const char **);
    void *cupti = load_cupti();
    if (!cupti) {
        const char *error = dlerror();
        watch_append(record, "failed\tCUPTI could not be loaded: %s\n", error ? error : "no path was given");
        return;
    }
    find(cupti, "cuptiEnableCallback", &enable);
    find(cupti, "cuptiGetResultString", &describe);
    find(cupti, "cuptiGetDeviceId", &device_of_context);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver) find(driver, "cuDeviceGetAttribute", &device_attribute);
    watch_ignore_library_of(WATCHED);
    watch_ignore_library_of(dlsym(cupti, "cuptiSubscribe"));
    if (driver) watch_ignore_library_of(dlsym(driver, "cuInit"));
    uintptr_t warm;
    watch_callers(&warm, 1); /* the unwinder loads what it needs now, not in a callback */
    *other = 0;
    CUptiResult result = enable ? subscribe(cupti, &subscriber, other, sizeof other) : CUPTI_ERROR_NOT_INITIALIZED;
    for (size_t i = 0; result == CUPTI_SUCCESS && i < sizeof WATCHED / sizeof *WATCHED; i++) {
        CUptiResult enabled = enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, WATCHED[i]);
        if (i < ALWAYS_KNOWN) result = enabled;
    }
    int is_recording = watch_records_launches(driver);
    for (size_t i = 0; result == CUPTI_SUCCESS && is_recording && i < sizeof LAUNCHES / sizeof *LAUNCHES; i++)
        enable(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, LAUNCHES[i]);
    if (result == CUPTI_SUCCESS) return;
    if (describe) describe(result, &reason);
    watch_append(record, "failed\t%s (%d)%s%s\n", reason, (int)result, *other ? "; already there: " : "", other);
}

__attribute__((visibility("default"))) int InitializeInjection(void) {
    static atomic_flag once = ATOMIC_FLAG_INIT;
    struct watch_record record;
    int error = errno;
    if (atomic_flag_test_and_set(&once)) return 1;
    watch_connect();
    if (!watch_is_quiet()) {
        memset(&record, 0, offsetof(struct watch_record, text));
        record.kind = WATCH_HELLO;
        watch_append(&record, "program\t%s\n", program_invocation_short_name);
        start(&record);
        watch_send_hello(&record);
    }
    errno = error;
    return 1;
}
