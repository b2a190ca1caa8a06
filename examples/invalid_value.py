"""Why does cuTensorMapEncodeTiled answer CUDA_ERROR_INVALID_VALUE? Every broken rule, and the nearest map that works.

$ python examples/invalid_value.py
stride-alignment: strides_bytes[0] = 8200 bytes; strides are multiples of 16 bytes
    Pad dimension 0 so that the next one steps 8208 bytes.
swizzle-span: box[0] = 128 elements x 2 bytes = 256 bytes; swizzle 128B takes a row of at most 128 bytes
    Use box[0] <= 64 and one box per span.
accepted: box (64, 64), strides (8208,), 8192 bytes a copy
"""

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
    print(f"{violation.rule}: {violation.found}; {violation.limit}")
    print(f"    {violation.fix}")
    cures |= violation.change or {}

mended = ts.TensorMap(**(arguments | cures))
print(f"accepted: box {mended.box}, strides {mended.strides_bytes}, {mended.transaction_bytes} bytes a copy")
