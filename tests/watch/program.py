"""A Python program for tests of watch: refused calls of the stand-in driver, with the GIL released, held, and taken.

python program.py libcuda.so.1 released held taken
"""

import ctypes
import sys
import threading
import time

INVALID_VALUE = 1
BFLOAT16, SWIZZLE_128B, L2_128B = 9, 3, 2


def encode(library, width):
    dims, strides = (ctypes.c_uint64 * 2)(4096, 4096), (ctypes.c_uint64 * 1)(8192)
    box, ones = (ctypes.c_uint32 * 2)(width, 64), (ctypes.c_uint32 * 2)(1, 1)
    made, address = ctypes.create_string_buffer(128), ctypes.c_void_p(0x1000)
    library.standin_answer(INVALID_VALUE)
    arguments = made, BFLOAT16, 2, address, dims, strides, box, ones, 0, SWIZZLE_128B, L2_128B, 0
    return library.cuTensorMapEncodeTiled(*arguments)


def released(path):
    encode(ctypes.CDLL(path), 128)


def held(path):
    encode(ctypes.PyDLL(path), 256)


def taken(path):
    """While the driver thinks, another thread takes the GIL for longer than anybody should wait."""

    def keep():
        while not library.standin_is_thinking():
            time.sleep(0.001)
        ctypes.PyDLL(path).standin_let_go(1_000_000)

    keeper, library = threading.Thread(target=keep), ctypes.CDLL(path)
    library.standin_think()
    keeper.start()
    encode(library, 512)
    keeper.join()


if __name__ == "__main__":
    _, driver, *names = sys.argv
    ctypes.CDLL(driver).cuInit(0)
    for name in names:
        globals()[name](driver)
    sys.stdout.write("done\n")
