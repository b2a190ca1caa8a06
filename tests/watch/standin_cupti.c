/* A stand-in for libcupti.so: one subscriber, callbacks that can be enabled, and the stand-in driver as their source. */
#include "standin.h"

#include <cupti.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Atomic(CUpti_CallbackFunc) subscriber;
static atomic_int enabled[CUPTI_DRIVER_TRACE_CBID_SIZE];

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *handle, CUpti_CallbackFunc callback, void *userdata) {
    (void)userdata;
    if (getenv("STANDIN_TAKEN")) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    *handle = (CUpti_SubscriberHandle)&subscriber;
    subscriber = callback;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle, CUpti_CallbackDomain domain,
                                         CUpti_CallbackId id) {
    if (handle != (CUpti_SubscriberHandle)&subscriber || domain != CUPTI_CB_DOMAIN_DRIVER_API)
        return CUPTI_ERROR_INVALID_PARAMETER;
    enabled[id] = (int)enable;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text) {
    (void)result;
    *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext context, uint32_t *device) {
    *device = context ? 0 : 99;
    return context ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_CONTEXT;
}

/* The name of the kernel that a call launches. */
static const char *symbol_of(uint32_t id, const void *parameters) {
    const struct standin_kernel *kernel = NULL;
    if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel) kernel = (void *)((const cuLaunchKernel_params *)parameters)->f;
    if (id == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx) kernel = (void *)((const cuLaunchKernelEx_params *)parameters)->f;
    return kernel ? kernel->name : NULL;
}

void standin_callback(uint32_t id, const char *name, const void *parameters, CUresult *result, int is_exit) {
    CUpti_CallbackFunc callback = subscriber;
    if (!callback || !enabled[id]) return;
    uint64_t correlation = 0;
    CUpti_CallbackData data = {.callbackSite = is_exit ? CUPTI_API_EXIT : CUPTI_API_ENTER,
                               .functionName = name,
                               .functionParams = parameters,
                               .symbolName = symbol_of(id, parameters),
                               .functionReturnValue = result,
                               .context = *result == CUDA_ERROR_INVALID_CONTEXT ? NULL : (CUcontext)&subscriber,
                               .contextUid = 1,
                               .correlationData = &correlation};
    callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}
