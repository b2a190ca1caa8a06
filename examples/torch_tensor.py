"""Tensor maps from the metadata of torch tensors: a whole tensor, a view that works, and two that do not.

A map needs no copy of the data: shape, stride, dtype and data_ptr are enough. dims and strides of a map are innermost
first, the innermost stride is one element, and the address is a multiple of 16. Without torch a stand-in is described.

    $ python examples/torch_tensor.py
    x           dims (512, 256), strides (1024,), 8192 bytes a copy
    x[:, 8:]    dims (504, 256), strides (1024,), 8192 bytes a copy
    x[:, 1:]    refused: address-alignment, addresses are multiples of 16 bytes
    x.t()       the innermost stride is 512 elements: describe x itself, and read the tile as MN-major
"""

import numpy as np

import tilescope as ts


class StandIn:
    """What torch says of a bfloat16 tensor, said of a numpy array of 16-bit integers."""

    dtype = "bfloat16"

    def __init__(self, array):
        self.array = array
        self.shape = array.shape

    def stride(self):
        return tuple(step // 2 for step in self.array.strides)

    def data_ptr(self):
        return self.array.ctypes.data

    def element_size(self):
        return 2

    def t(self):
        return StandIn(self.array.T)

    def __getitem__(self, index):
        return StandIn(self.array[index])


def map_arguments(tensor, box):
    """The arguments of cuTensorMapEncodeTiled for a tensor: innermost first, strides in bytes."""
    outer_strides = tensor.stride()[:-1]
    return {
        "data_type": tensor.dtype,
        "dims": tuple(tensor.shape)[::-1],
        "strides_bytes": tuple(step * tensor.element_size() for step in outer_strides)[::-1],
        "box": box,
        "swizzle": "128B",
        "address": tensor.data_ptr(),
    }


def described(tensor):
    if tensor.stride()[-1] != 1:
        return (
            f"the innermost stride is {tensor.stride()[-1]} elements: describe x itself, and read the tile as MN-major"
        )
    arguments = map_arguments(tensor, box=(64, 64))
    for violation in ts.TensorMap.check(**arguments):
        if violation.severity == "error":
            return f"refused: {violation.rule}, {violation.limit}"
    made = ts.TensorMap(**arguments)
    return f"dims {made.dims}, strides {made.strides_bytes}, {made.transaction_bytes} bytes a copy"


try:
    import torch

    x = torch.empty(256, 512, dtype=torch.bfloat16)
except ImportError:
    memory = np.empty(256 * 512 + 32, np.uint16)
    start = -memory.ctypes.data % 64 // 2  # as torch aligns its memory
    x = StandIn(memory[start : start + 256 * 512].reshape(256, 512))

for name, tensor in {"x": x, "x[:, 8:]": x[:, 8:], "x[:, 1:]": x[:, 1:], "x.t()": x.t()}.items():
    print(f"{name:12}{described(tensor)}")
