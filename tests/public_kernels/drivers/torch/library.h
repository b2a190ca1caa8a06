// In place of torch's header, of which the host code of some kernels needs one macro.
#pragma once
#include <cuda_bf16.h>
#define TORCH_CHECK(...)
