"""Run the kernels beside this file on a card and keep the bytes they leave: python record.py OUTPUT_FOLDER [NAME …]

Stands in a folder that build.py makes (cubins, launches.json, kernel_arrays.py); needs numpy, ml_dtypes and a driver.
Every kernel runs three times from the same arrays and must leave the same bytes. A kernel that hangs or faults ends its
process; the rest go on in another one. Writes OUTPUT_FOLDER/kernels_own.npz and report.txt.
"""

# ruff: noqa: T201  a report is printed

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from kernel_arrays import filled

HERE = Path(__file__).parent
SECONDS = 20  # for one kernel
RUNS = 3

DATA_TYPE_NAMES = (  # by the driver's number
    "uint8 uint16 uint32 int32 uint64 int64 float16 float32 float64 bfloat16 float32_ftz tfloat32 tfloat32_ftz"
)
DATA_TYPES = {name: number for number, name in enumerate(DATA_TYPE_NAMES.split())}
DATA_TYPES |= {"f16": 6, "f32": 7, "bf16": 9, "tf32": 11}
SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
FILLS = {"zero": 0, "nan": 1}
CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
MAX_DYNAMIC_SMEM = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
STACK_LIMIT = 0  # CU_LIMIT_STACK_SIZE


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("smem_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("attribute_count", ctypes.c_uint),
    ]


def three(extents):
    """x, y and z of one to three extents."""
    return (ctypes.c_uint * 3)(*[*extents, 1, 1][:3])


class Card:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuCtxSetLimit", STACK_LIMIT, ctypes.c_size_t(16384))

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        if code:
            raise RuntimeError(f"{name} answered {code}")

    def placed(self, data):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(256, data.nbytes)))
        self.call("cuMemcpyHtoD_v2", address, data.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(data.nbytes))
        return address.value

    def taken(self, address, size_bytes):
        data = np.empty(size_bytes, np.uint8)
        self.call(
            "cuMemcpyDtoH_v2",
            data.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(address),
            ctypes.c_size_t(size_bytes),
        )
        self.call("cuMemFree_v2", ctypes.c_uint64(address))
        return data

    def tensor_map(self, found, address):
        """The 128 bytes that the driver encodes."""
        rank = len(found["dims"])
        room = (ctypes.c_ubyte * 256)()
        at = -(-ctypes.addressof(room) // 64) * 64
        dims = (ctypes.c_uint64 * rank)(*found["dims"])
        strides = (ctypes.c_uint64 * max(1, rank - 1))(*found["strides_bytes"])
        ones = (ctypes.c_uint32 * rank)(*[1] * rank)
        start = (ctypes.c_void_p(at), DATA_TYPES[found["data_type"]], ctypes.c_uint32(rank), ctypes.c_uint64(address))
        end = (ones, 0, SWIZZLES[found["swizzle"]], 0, FILLS[found.get("oob_fill", "zero")])
        if found["kind"] == "map":
            box = (ctypes.c_uint32 * rank)(*found["box"])
            self.call("cuTensorMapEncodeTiled", *start, dims, strides, box, *end)
        else:
            lower = (ctypes.c_int * (rank - 2))(*found["lower_corner"])
            upper = (ctypes.c_int * (rank - 2))(*found["upper_corner"])
            counts = (ctypes.c_uint32(found["channels_per_pixel"]), ctypes.c_uint32(found["pixels_per_column"]))
            self.call("cuTensorMapEncodeIm2col", *start, dims, strides, lower, upper, *counts, *end)
        return ctypes.string_at(at, 128)

    def parameters(self, function, launch, addresses):
        """One buffer a parameter, of the size that the kernel declares."""
        for number, parameter in enumerate(launch["params"]):
            offset, size = ctypes.c_size_t(), ctypes.c_size_t()
            self.call("cuFuncGetParamInfo", function, ctypes.c_size_t(number), ctypes.byref(offset), ctypes.byref(size))
            if parameter["kind"] in {"map", "im2col"}:
                data = self.tensor_map(parameter, addresses[parameter["array"]])
            elif parameter["kind"] == "array":
                data = addresses[parameter["array"]].to_bytes(8, "little")
            elif parameter["kind"] == "float":
                data = np.float32(parameter["value"]).tobytes()
            else:
                data = parameter["value"].to_bytes(size.value, "little", signed=True)
            if len(data) != size.value:
                raise RuntimeError(f"parameter {number} has {size.value} bytes, not {len(data)}")
            yield ctypes.create_string_buffer(data, len(data))

    def prepare(self, module):
        """Nothing is done between loading a module and launching its kernel; others may set its variables."""

    def run(self, cubin, launch, before):
        """The bytes of every array after the kernel."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), cubin)
        self.call("cuModuleGetFunction", ctypes.byref(function), module, launch["entry"].encode())
        self.prepare(module)
        if launch["smem_bytes"] > 48 * 1024:
            self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SMEM, launch["smem_bytes"])
        addresses = [self.placed(data) for data in before]
        buffers = list(self.parameters(function, launch, addresses))
        pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[ctypes.addressof(buffer) for buffer in buffers])
        attribute = Attribute(CLUSTER_DIMENSION)
        attribute.value[:3] = three(launch.get("cluster", [1]))
        config = Config(three(launch["grid"]), three(launch["block"]), launch["smem_bytes"], None)
        config.attributes = ctypes.pointer(attribute)
        config.attribute_count = 1 if "cluster" in launch else 0
        self.call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)
        self.call("cuCtxSynchronize")
        after = [self.taken(address, data.nbytes) for address, data in zip(addresses, before, strict=True)]
        self.call("cuModuleUnload", module)
        return after


def printed_during(work):
    """What `work` returns, and what was written to standard output meanwhile, by the driver too."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            result = work()
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return result, file.read().decode()


def record(card, name, launch, folder):
    cubin = (HERE / f"{name}.cubin").read_bytes()
    before = [filled(array) for array in launch["arrays"]]
    runs = [printed_during(lambda: card.run(cubin, launch, before)) for _ in range(RUNS)]
    first, printed = runs[0]
    for other, _ in runs[1:]:
        for number, (a, b) in enumerate(zip(first, other, strict=True)):
            if not launch["arrays"][number].get("is_scratch") and not np.array_equal(a, b):
                raise RuntimeError(f"array {number} differs from run to run in {np.count_nonzero(a != b)} bytes")
    kept = [i for i, array in enumerate(launch["arrays"]) if not array.get("is_scratch")]
    changed = {f"after{i}": first[i] for i in kept if not np.array_equal(first[i], before[i])}
    np.savez(folder / f"{name}.npz", printed=np.array(printed), **changed)
    return f"{name}: {', '.join(f'{key} {data.size} bytes' for key, data in changed.items())}"


def child(folder, names):
    launches = json.loads((HERE / "launches.json").read_text())
    card = Card()
    for name in names:
        print("begin", name, flush=True)
        try:
            print("done", record(card, name, launches[name], folder), flush=True)
        except RuntimeError as reason:
            print("failed", f"{name}: {reason}", flush=True)
            if "differs" not in str(reason):
                return  # the context is gone


def main(output, *names):
    output = Path(output)
    output.mkdir(parents=True, exist_ok=True)
    names = list(names) or list(json.loads((HERE / "launches.json").read_text()))
    report = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        while names:
            report += [line for line in attempted(folder, names) if not line.startswith("begin")]
        found = {}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path) as archive:
                found |= {f"{path.stem}/{key}": archive[key] for key in archive.files}
    np.savez_compressed(output / "kernels_own.npz", **found)
    (output / "report.txt").write_text("\n".join(report) + "\n")
    print("\n".join(report))


def attempted(folder, names):
    """Run the kernels of `names` in one process, and take those it began off the list."""
    command = [sys.executable, __file__, "--child", str(folder), *names]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        size, since = 0, time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            if log.stat().st_size > size:
                size, since = log.stat().st_size, time.monotonic()
            if time.monotonic() - since > SECONDS:
                process.kill()
                process.wait()
                break
    lines = log.read_text().splitlines()
    begun = [line.split()[1] for line in lines if line.startswith("begin ")]
    ended = {line.split()[1].rstrip(":") for line in lines if line.startswith(("done ", "failed "))}
    lines += [f"failed {name}: hangs, or its process died" for name in begun if name not in ended]
    if not begun:
        lines.append("failed all: no kernel was begun")
        names.clear()
    names[:] = [name for name in names if name not in begun]
    return lines


if __name__ == "__main__":
    if sys.argv[1] == "--child":
        child(Path(sys.argv[2]), sys.argv[3:])
    else:
        main(*sys.argv[1:])
