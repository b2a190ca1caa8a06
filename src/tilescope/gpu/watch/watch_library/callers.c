/* Who called the driver: return addresses off the stack, and the libraries and symbols they lie in.
 *
 *     watch.c  libcupti.so  libcuda.so │ cuda_utils.so  python3 …
 *         left out                     │ the caller, and its callers
 */
#define _GNU_SOURCE
#include "watch.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

enum { IGNORED = 4 };

struct range {
    uintptr_t first, end;
};

struct module {
    uintptr_t address; /* looked for */
    uintptr_t base;
    struct range range;
    char path[1024];
};

static struct range ignored[IGNORED];
static atomic_int ignored_count;

/* dl_iterate_phdr: 1 where the module holds the address. */
static int holds(struct dl_phdr_info *info, size_t size, void *data) {
    struct module *found = data;
    (void)size;
    uintptr_t first = UINTPTR_MAX, end = 0;
    int hit = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        hit |= found->address >= start && found->address < start + segment->p_memsz;
        if (start < first) first = start;
        if (start + segment->p_memsz > end) end = start + segment->p_memsz;
    }
    if (!hit) return 0;
    found->base = info->dlpi_addr;
    found->range = (struct range){first, end};
    strncpy(found->path, info->dlpi_name, sizeof found->path - 1);
    return 1;
}

static int find_module(struct module *found, uintptr_t address) {
    memset(found, 0, sizeof *found);
    found->address = address;
    if (!dl_iterate_phdr(holds, found)) return 0;
    if (!found->path[0] && readlink("/proc/self/exe", found->path, sizeof found->path - 1) < 0)
        strcpy(found->path, program_invocation_short_name);
    return 1;
}

/* Called while one thread initialises, before any callback. */
void watch_ignore_library_of(const void *address) {
    struct module found;
    int count = atomic_load(&ignored_count);
    if (!address || count == IGNORED || !find_module(&found, (uintptr_t)address)) return;
    ignored[count] = found.range;
    atomic_store(&ignored_count, count + 1);
}

struct walk {
    uintptr_t *addresses;
    size_t count, most;
};

static int is_ignored(uintptr_t address) {
    int count = atomic_load_explicit(&ignored_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (address >= ignored[i].first && address < ignored[i].end) return 1;
    return 0;
}

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;
    uintptr_t address = _Unwind_GetIP(context);
    if (!address) return _URC_END_OF_STACK;
    if (!walk->count && is_ignored(address)) return _URC_NO_REASON;
    walk->addresses[walk->count++] = address - 1; /* inside the call, not after it */
    return walk->count == walk->most ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Addresses of the calls that led here, the nearest first, from the first outside the ignored libraries on. */
size_t watch_callers(uintptr_t *addresses, size_t most) {
    struct walk walk = {addresses, 0, most};
    _Unwind_Backtrace(visit, &walk);
    return walk.count;
}

/* ---- the nearest caller, without unwinding again ----
 *
 * Unwinding takes microseconds. The way from a driver call to here is always the same few frames, so where their
 * return addresses lie on the stack is remembered: if those inside the ignored libraries stand where they stood, the
 * next one is the caller's.
 *
 *     stack    here ─ … ─ [into watch.c] ─ … ─ [into libcupti] ─ … ─ [into libcuda] ─ … ─ [into the caller]
 *                          \______________ compared with the path ______________/          \__ read __/
 */
enum { PATHS = 16, PATH_FRAMES = 20 };

struct path {
    atomic_int is_ready;
    size_t count; /* of return addresses; the last is the caller's */
    size_t offset_words[PATH_FRAMES]; /* from our own frame */
    uintptr_t address[PATH_FRAMES];
};

static struct path paths[PATHS];
static atomic_int path_count;

struct trace {
    const uintptr_t *frame; /* of watch_nearest_caller */
    const uintptr_t *reached; /* frames below are done */
    const uintptr_t *record; /* aarch64: the next frame record */
    struct path path;
};

/* Where the frame that ends here keeps its return address; NULL where that cannot be told. A copy that the frame left
 * behind will not do: it would go on naming the first caller.
 */
__attribute__((no_sanitize("address", "thread"))) static const uintptr_t *return_slot(struct trace *trace, const uintptr_t *end) {
#if defined(__x86_64__)
    (void)trace;
    return end - 1; /* the call pushed it */
#elif defined(__aarch64__)
    const uintptr_t *record = trace->record; /* the caller's record, the return address */
    if (record < trace->reached || record + 2 > end || (uintptr_t)record % sizeof *record) return NULL;
    trace->record = (const uintptr_t *)record[0];
    return record + 1;
#else
    (void)trace, (void)end;
    return NULL;
#endif
}

/* Note where the return address of each frame lies; give up where it is not on the stack as it is. */
__attribute__((no_sanitize("address", "thread"))) static _Unwind_Reason_Code note(struct _Unwind_Context *context, void *data) {
    struct trace *trace = data;
    struct path *path = &trace->path;
    uintptr_t address = _Unwind_GetIP(context);
    const uintptr_t *end = (const uintptr_t *)_Unwind_GetCFA(context);
    if (end <= trace->frame) return _URC_NO_REASON; /* our own frame */
    if (!address || path->count == PATH_FRAMES) return _URC_END_OF_STACK;
    const uintptr_t *slot = return_slot(trace, end);
    if (!slot || *slot != address) return _URC_END_OF_STACK;
    trace->reached = end;
    path->offset_words[path->count] = (size_t)(slot - trace->frame);
    path->address[path->count++] = address;
    if (is_ignored(address)) return _URC_NO_REASON;
    path->is_ready = 1;
    return _URC_END_OF_STACK;
}

__attribute__((no_sanitize("address", "thread"))) static int matches(const struct path *path, const uintptr_t *frame) {
    for (size_t i = 0; i + 1 < path->count; i++)
        if (frame[path->offset_words[i]] != path->address[i]) return 0;
    return 1;
}

static void remember(const struct path *found) {
    int place = atomic_load(&path_count);
    if (place >= PATHS || !atomic_compare_exchange_strong(&path_count, &place, place + 1)) return;
    paths[place].count = found->count;
    memcpy(paths[place].offset_words, found->offset_words, sizeof found->offset_words);
    memcpy(paths[place].address, found->address, sizeof found->address);
    atomic_store_explicit(&paths[place].is_ready, 1, memory_order_release);
}

/* The first address of watch_callers; 0 where there is none. */
__attribute__((noinline, no_sanitize("address", "thread"))) uintptr_t watch_nearest_caller(void) {
    const uintptr_t *frame = __builtin_frame_address(0);
    int count = atomic_load_explicit(&path_count, memory_order_acquire);
    for (int i = 0; i < count; i++) {
        const struct path *path = &paths[i];
        if (!atomic_load_explicit(&path->is_ready, memory_order_acquire) || !matches(path, frame)) continue;
        return frame[path->offset_words[path->count - 1]] - 1;
    }
    struct trace trace = {.frame = frame, .reached = frame, .record = frame};
    _Unwind_Backtrace(note, &trace);
    if (trace.path.is_ready) {
        remember(&trace.path);
        return trace.path.address[trace.path.count - 1] - 1;
    }
    uintptr_t address = 0;
    watch_callers(&address, 1);
    return address;
}

/* The exported symbol that spans the address; the nearest one before it may be another function's. */
static const char *symbol_at(uintptr_t address) {
    Dl_info found;
    const ElfW(Sym) *symbol = NULL;
    if (!dladdr1((void *)address, &found, (void **)&symbol, RTLD_DL_SYMENT) || !found.dli_sname || !symbol) return "";
    return address < (uintptr_t)found.dli_saddr + symbol->st_size ? found.dli_sname : "";
}

/* Append "native TAB library TAB offset TAB symbol"; looking for the symbol takes long in a large library. */
void watch_name_caller(struct watch_record *record, uintptr_t address, int with_symbol) {
    struct module found;
    if (!find_module(&found, address)) return;
    const char *name = with_symbol ? symbol_at(address) : "";
    watch_append(record, "native\t%s\t%lx\t%s\n", found.path, (unsigned long)(address - found.base), name);
}
