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

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *data) {
    struct walk *walk = data;
    uintptr_t address = _Unwind_GetIP(context);
    if (!address) return _URC_END_OF_STACK;
    if (!walk->count) {
        int count = atomic_load_explicit(&ignored_count, memory_order_acquire);
        for (int i = 0; i < count; i++)
            if (address >= ignored[i].first && address < ignored[i].end) return _URC_NO_REASON;
    }
    walk->addresses[walk->count++] = address - 1; /* inside the call, not after it */
    return walk->count == walk->most ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Addresses of the calls that led here, the nearest first, from the first outside the ignored libraries on. */
size_t watch_callers(uintptr_t *addresses, size_t most) {
    struct walk walk = {addresses, 0, most};
    _Unwind_Backtrace(visit, &walk);
    return walk.count;
}

/* Append "native TAB library TAB offset TAB symbol"; looking for the symbol takes long in a large library. */
void watch_name_caller(struct watch_record *record, uintptr_t address, int with_symbol) {
    struct module found;
    Dl_info symbol;
    if (!find_module(&found, address)) return;
    const char *name = with_symbol && dladdr((void *)address, &symbol) && symbol.dli_sname ? symbol.dli_sname : "";
    watch_append(record, "native\t%s\t%lx\t%s\n", found.path, (unsigned long)(address - found.base), name);
}
