"""Why does cuTensorMapEncodeTiled answer CUDA_ERROR_INVALID_VALUE? Every broken rule, and the nearest map that works."""

import tilescope as ts

arguments = {
    "data_type": "bf16",
    "dims": (4096, 1000),  # innermost first
    "strides_bytes": (8200,),
    "box": (128, 64),
    "swizzle": "128B",
}
cures = {}
for violation in ts.TensorMap.check(**arguments):
    print(violation)
    cures |= violation.change or {}

mended = ts.TensorMap(**(arguments | cures))
print(f"\naccepted: box {mended.box}, strides {mended.strides_bytes}, {mended.transaction_bytes} bytes a copy")
