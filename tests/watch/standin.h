/* What the stand-ins for libcuda.so.1 and libcupti.so share. */
#ifndef STANDIN_H
#define STANDIN_H

#include <cuda.h>
#include <stdint.h>

/* of libcupti: what the real driver does around each call */
void standin_callback(uint32_t id, const char *name, const void *parameters, CUresult *result, int is_exit);

/* of libcuda: the driver's answer to the next call of this thread; 0 stays 0 */
void standin_answer(CUresult result);

/* of libcuda: the next call of this thread takes until somebody calls standin_let_go, which then sleeps */
void standin_think(void);
int standin_is_thinking(void);
void standin_let_go(unsigned microseconds);

/* What the stand-in driver takes for a CUfunction: a kernel that is run on the host, on memory of the host. */
struct standin_kernel {
    const char *name;
    unsigned parameters;
    size_t offsets[8], sizes[8];
    void (*run)(void **parameters);
};

/* of libcuda: memory that it takes for an allocation of the device's */
void standin_allocation(const void *start, size_t bytes);
/* of libcuda: whether streams are captured into a graph, and the answer to the next wait */
void standin_capture(int is_capturing);
void standin_fault(CUresult result);

#endif
