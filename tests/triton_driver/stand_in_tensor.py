"""A tensor as torch has it, over numpy: enough for Triton and for the driver, so that these tests need no torch."""

import numpy as np


class Storage:
    """The bytes that views of one tensor share."""

    device = "cpu"

    def __init__(self, content):
        self.content = content

    def data_ptr(self):
        return self.content.ctypes.data

    def nbytes(self):
        return self.content.nbytes


class StandIn:
    """A strided view of a storage."""

    device = "cpu"

    def __init__(self, array, storage=None):
        self.array = array
        self._storage = storage or Storage(array.reshape(-1).view(np.uint8))

    @property
    def dtype(self):
        return f"torch.{self.array.dtype.name}"

    @property
    def shape(self):
        return self.array.shape

    def data_ptr(self):
        return self.array.__array_interface__["data"][0]

    def stride(self, dimension=None):
        strides = tuple(stride // self.array.itemsize for stride in self.array.strides)
        return strides if dimension is None else strides[dimension]

    def untyped_storage(self):
        return self._storage

    def __getitem__(self, index):
        return StandIn(self.array[index], self._storage)

    def zero_(self):
        self.array[...] = 0


class OnCard(StandIn):
    """A tensor in the memory of a card, which nothing here can read."""

    device = "cuda:0"

    def untyped_storage(self):
        storage = Storage(self.array.reshape(-1).view(np.uint8))
        storage.device = "cuda:0"
        return storage
