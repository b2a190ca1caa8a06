/* What the parts of the injection library share: the record that goes to tilescope, and the functions of each part.
 *
 *     driver ── CUPTI ──▶ watch.c ── callers.c, python_frames.c ──▶ one record ── channel.c ──▶ tilescope
 *                            ├── a call like one that was sent ──▶ counted in shared memory ──▶
 *                            └── a launch that is to be recorded ── recording.c ──▶ a file
 *
 * The rule for all of it: the program under watch must not notice. Nothing here blocks, nothing is fatal, and
 * what cannot be told is left out.
 */
#ifndef TILESCOPE_WATCH_H
#define TILESCOPE_WATCH_H

#include <stddef.h>
#include <stdint.h>

enum { WATCH_DIMS = 5, WATCH_CORNERS = 3, WATCH_TEXT_BYTES = 8192, WATCH_FRAMES = 24, WATCH_SITES = 16384 };

enum watch_kind { WATCH_HELLO = 1, WATCH_CALL = 2, WATCH_LAUNCH = 3 };
enum watch_function { WATCH_TILED, WATCH_IM2COL, WATCH_IM2COL_WIDE, WATCH_REPLACE_ADDRESS };

/* Bits of `readable`: the pointers of the call that could be read. */
enum watch_array {
    WATCH_READ_DIMS = 1,
    WATCH_READ_STRIDES = 2,
    WATCH_READ_BOX = 4,
    WATCH_READ_ELEMENT_STRIDES = 8,
    WATCH_READ_LOWER = 16,
    WATCH_READ_UPPER = 32,
    WATCH_READ_MAP = 64,
};

/* What makes two maps the same wherever they lie; the driver's numbers, innermost dimension first. */
struct watch_arguments {
    uint32_t function;
    int32_t result; /* CUresult */
    uint32_t capability; /* 90 for compute capability 9.0; 0: not known */
    uint32_t readable;
    uint32_t data_type, rank, interleave, swizzle, l2_promotion, oob_fill, wide_mode;
    uint32_t channels, pixels;
    int32_t lower[WATCH_CORNERS], upper[WATCH_CORNERS];
    uint32_t box[WATCH_DIMS], element_strides[WATCH_DIMS];
    uint32_t address_class; /* what the rules ask of the address: its low bits, and whether it is too large */
    uint64_t dims[WATCH_DIMS], strides_bytes[WATCH_DIMS];
};

/* One message. watch_record.py unpacks it; a test holds the two layouts together. */
struct watch_record {
    uint32_t kind;
    uint32_t pid;
    uint32_t site; /* where in `repeats` further calls like this one are counted; WATCH_SITES: nowhere */
    uint32_t unused;
    struct watch_arguments arguments;
    uint64_t address;
    uint8_t descriptor[128];
    uint32_t text_bytes; /* of `text` that are sent */
    uint32_t also_unused;
    char text[WATCH_TEXT_BYTES]; /* lines of fields separated by tabs */
};

/* Memory shared with tilescope: what is counted outlives the process, however it ends. */
struct watch_counts {
    _Atomic uint64_t lost, lost_refused; /* records that found no room in the socket */
    _Atomic uint64_t repeats[WATCH_SITES]; /* calls of a site after the one that was sent */
};

/* A launch as the driver was asked for it, whichever of its functions was called. */
struct watch_launch {
    const char *name; /* of the kernel, mangled */
    void *function, *stream;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t smem_bytes, capability;
    void **parameters, **extra;
};

/* channel.c */
extern struct watch_counts *watch_counts; /* never NULL while watch_is_quiet() is 0 */
void watch_connect(void);
int watch_is_quiet(void);
int watch_send_hello(struct watch_record *record);
int watch_send(struct watch_record *record); /* 1: sent */
void watch_append(struct watch_record *record, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* callers.c */
void watch_ignore_library_of(const void *address);
uintptr_t watch_nearest_caller(void);
size_t watch_callers(uintptr_t *addresses, size_t most);
void watch_name_caller(struct watch_record *record, uintptr_t address, int with_symbol);

/* python_frames.c */
void watch_name_python_frames(struct watch_record *record, int may_wait);

/* recording.c */
int watch_records_launches(void *libcuda);
void watch_launch_entered(const struct watch_launch *launch);
void watch_launch_left(int32_t result);

#endif
