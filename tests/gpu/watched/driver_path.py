"""Prints where the driver library is: what programs link where the toolkit has no stub of it."""

import ctypes
from pathlib import Path

ctypes.CDLL("libcuda.so.1")
print(next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcuda.so" in line))
