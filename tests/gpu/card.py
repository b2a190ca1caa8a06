"""A real card for tests: the driver encodes maps, small kernels issue one copy each.

Everything is asked of the CUDA driver directly (ctypes), and compiled by NVRTC; no compiler is needed.
"""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np

SMEM_BYTES = 47104  # static limit less what the barrier takes
UNTOUCHED = 0xEE
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")

_PROLOGUE = r"""
typedef unsigned long long u64; typedef unsigned int u32; typedef unsigned char u8;
__device__ __forceinline__ u32 shared_address(const void* p) {
  u32 a; asm("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}" : "=r"(a) : "l"(p)); return a; }
extern __shared__ __align__(1024) u8 smem[];
struct alignas(64) Map { u64 words[16]; };
"""


def _registers(rank: int, first: int) -> tuple[str, str]:
    operands = ", ".join(f"%{first + axis}" for axis in range(rank))
    return operands, ", ".join(f'"r"(c{axis})' for axis in range(rank))


def _to_global(name: str, rank: int, opcode: str) -> str:
    operands, values = _registers(rank, 1)
    return f"""
extern "C" __global__ void {name}(const __grid_constant__ Map map, const u8* image, int n, int offset,
                                  int c0, int c1, int c2, int c3, int c4) {{
  for (int i = threadIdx.x; i < n; i += blockDim.x) smem[i] = image[i];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("{opcode} [%0, {{{operands}}}], [%{rank + 1}];" :: "l"(&map), {values},
                 "r"(shared_address(smem) + offset) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory"); }}
}}"""


def _to_shared(name: str, rank: int, mode: str, offsets: int) -> str:
    operands, values = _registers(rank, 2)
    extra = "".join(f', "h"((short)o{axis})' for axis in range(offsets))
    listed = ", {" + ", ".join(f"%{rank + 3 + axis}" for axis in range(offsets)) + "}" if offsets else ""
    return f"""
extern "C" __global__ void {name}(const __grid_constant__ Map map, u8* image, int n, int offset, int expected, int* done,
                                  int c0, int c1, int c2, int c3, int c4, int o0, int o1, int o2) {{
  __shared__ __align__(8) u64 barrier;
  for (int i = threadIdx.x; i < n; i += blockDim.x) smem[i] = {UNTOUCHED};
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(&barrier)));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared_address(&barrier)), "r"(expected) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {{{operands}}}], [%{rank + 2}]{listed};" :: "r"(shared_address(smem) + offset), "l"(&map), {values},
                 "r"(shared_address(&barrier)){extra} : "memory");
    int arrived = 0;
    for (int t = 0; t < 200000 && !arrived; t++)
      asm volatile("{{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}}"
                   : "=r"(arrived) : "r"(shared_address(&barrier)) : "memory");
    *done = arrived; }}
  __syncthreads(); for (int i = threadIdx.x; i < n; i += blockDim.x) image[i] = smem[i];
}}"""


# instruction: how it is written, bits of an element, accumulator, whether operands may be MN-major
WGMMA = {
    "bf16": ("m64n64k16.f32.bf16.bf16", 16, "float", True),
    "f16": ("m64n64k16.f32.f16.f16", 16, "float", True),
    "tf32": ("m64n64k8.f32.tf32.tf32", 32, "float", False),
    "e4m3": ("m64n64k32.f32.e4m3.e4m3", 8, "float", False),
    "s8": ("m64n64k32.s32.s8.s8", 8, "int", False),
}


def _product(data_type: str, a_is_mn: bool, b_is_mn: bool) -> str:
    """D = A B of one warpgroup: both tiles by TMA, as told by lists of (coordinates, offset), then wgmma by descriptors."""
    spelled, _, accumulator, may_transpose = WGMMA[data_type]
    register = "f" if accumulator == "float" else "r"
    registers = ", ".join(f"%{number}" for number in range(32))
    results = ", ".join(f'"+{register}"(d[{number}])' for number in range(32))
    flags = f", 1, 1, {int(a_is_mn)}, {int(b_is_mn)}" if may_transpose else ", 1, 1" if accumulator == "float" else ""
    return f"""
extern "C" __global__ void product_{data_type}_{int(a_is_mn)}{int(b_is_mn)}(
    const __grid_constant__ Map a, const __grid_constant__ Map b, const int* copies, int of_a, int of_b, int bytes,
    const u64* words_a, const u64* words_b, int steps, {accumulator}* out) {{
  __shared__ __align__(8) u64 barrier;
  u32 base = shared_address(smem), at = shared_address(&barrier);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(at));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); __syncthreads();
  if (threadIdx.x == 0) {{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
    for (int i = 0; i < of_a + of_b; i++)
      asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {{%2, %3}}], [%4];"
                   :: "r"(base + copies[3 * i + 2]), "l"(i < of_a ? &a : &b), "r"(copies[3 * i]), "r"(copies[3 * i + 1]),
                      "r"(at) : "memory"); }}
  int arrived = 0;
  for (int t = 0; t < 2000000 && !arrived; t++)
    asm volatile("{{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}}"
                 : "=r"(arrived) : "r"(at) : "memory");
  {accumulator} d[32] = {{}};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int k = 0; k < steps; k++) {{
    u64 from_a = words_a[k] + (base >> 4), from_b = words_b[k] + (base >> 4);
    asm volatile("{{.reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.{spelled} {{{registers}}}, %32, %33, p{flags};}}"
                 : {results} : "l"(from_a), "l"(from_b), "r"(k)); }}
  asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 32; i++) out[threadIdx.x * 32 + i] = arrived ? d[i] : ({accumulator})-12345;
}}"""


def _source() -> str:
    kernels = [_PROLOGUE]
    for data_type, (*_, may_transpose) in WGMMA.items():
        majors = product((False, True), repeat=2) if may_transpose else [(False, False)]
        kernels += [_product(data_type, *each) for each in majors]
    for rank in range(1, 6):
        kernels.append(_to_shared(f"load_{rank}", rank, "tile", 0))
        kernels.append(
            _to_global(f"store_{rank}", rank, f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group")
        )
        kernels += [
            _to_global(
                f"{op}_{rank}", rank, f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}.tile.bulk_group"
            )
            for op in REDUCTIONS
        ]
    for rank in (3, 4, 5):
        kernels.append(_to_shared(f"im2col_{rank}", rank, "im2col", rank - 2))
        opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.im2col_no_offs.bulk_group"
        kernels.append(_to_global(f"im2col_store_{rank}", rank, opcode))
    return "".join(kernels)


def compiled(arch: str):
    """All kernels as a cubin; NVRTC needs no card for that."""
    from cuda.core import Program, ProgramOptions

    return Program(_source(), "c++", ProgramOptions(arch=arch)).compile("cubin")


class Card:
    """The first GPU of this machine."""

    def __init__(self) -> None:
        from cuda.core import Device

        self.device = Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        capability = self.device.compute_capability
        self.is_hopper = (capability.major, capability.minor) == (9, 0)
        self.kernels = {}
        self.driver = ctypes.CDLL("libcuda.so.1")

    def compile(self):
        """Make the kernels; a mistake in their source is an error, whatever the card."""
        self.code = compiled("sm_90a")

    def encode(self, tensor_map_class, arguments):
        """What the driver makes of a map's arguments: its result code, and the 128 bytes."""
        storage = ctypes.create_string_buffer(192)
        place = (ctypes.addressof(storage) + 63) // 64 * 64
        rank = len(arguments["dims"])
        spread = {
            name: (kind * 5)(*arguments.get(name, ())[:5])
            for name, kind in (
                ("dims", ctypes.c_uint64), ("strides_bytes", ctypes.c_uint64), ("box", ctypes.c_uint32),
                ("element_strides", ctypes.c_uint32), ("lower_corner", ctypes.c_int32), ("upper_corner", ctypes.c_int32),
            )
        }  # fmt: skip
        head = (
            ctypes.c_void_p(place), arguments["data_type"].driver_code, rank, ctypes.c_void_p(arguments["address"]),
            spread["dims"], spread["strides_bytes"],
        )  # fmt: skip
        tail = (
            spread["element_strides"], arguments["interleave"].driver_code, arguments["swizzle"].driver_code,
            arguments["l2_promotion"].driver_code, arguments["oob_fill"].driver_code,
        )  # fmt: skip
        if tensor_map_class.__name__ == "TensorMap":
            result = self.driver.cuTensorMapEncodeTiled(*head, spread["box"], *tail)
        else:
            middle = (
                spread["lower_corner"],
                spread["upper_corner"],
                arguments["channels_per_pixel"],
                arguments["pixels_per_column"],
            )
            result = self.driver.cuTensorMapEncodeIm2col(*head, *middle, *tail)
        return result, ctypes.string_at(place, 128)

    def load(self, name, tensor_map, memory, coords, *, offsets=(), smem_offset=0, tensor_offset=0):
        """Shared memory after one load: `memory` on the card, the tensor `tensor_offset` bytes into it."""
        source, image, done = (
            self._upload(memory),
            self._upload(np.zeros(SMEM_BYTES, np.uint8)),
            self._upload(np.zeros(1, np.int32)),
        )
        blob = self._blob(tensor_map, source + tensor_offset)
        places = [*coords, *[0] * (5 - len(coords)), *offsets, *[0] * (3 - len(offsets))]
        self._launch(
            f"{name}_{tensor_map.rank}", blob, np.uint64(image), np.int32(SMEM_BYTES), np.int32(smem_offset),
            np.int32(tensor_map.transaction_bytes), np.uint64(done), *map(np.int32, places),
        )  # fmt: skip
        arrived = self._download(done, 4).view(np.int32)[0]
        result = self._download(image, SMEM_BYTES)
        self._free(source, image, done)
        return result, bool(arrived)

    def store(self, name, tensor_map, smem, memory, coords, *, smem_offset=0, tensor_offset=0):
        """Global memory after one store or reduction of `smem`."""
        target, image = self._upload(memory), self._upload(smem)
        blob = self._blob(tensor_map, target + tensor_offset)
        self._launch(
            f"{name}_{tensor_map.rank}", blob, np.uint64(image), np.int32(smem.nbytes), np.int32(smem_offset),
            *map(np.int32, [*coords, *[0] * (5 - len(coords))]),
        )  # fmt: skip
        result = self._download(target, memory.nbytes)
        self._free(target, image)
        return result

    def product(self, a, b, maps, words):
        """(128, 32) accumulators of a warpgroup that multiplies two planned tiles; plans, maps, descriptor words of A and B.

        Tile A lies at shared offset 0, tile B behind it; `maps` hold the matrices, whose first tile is taken.
        """
        start_b = -(-a.stage_bytes // 1024) * 1024
        copies = [
            (*plan.copy_coords(copy, 0, 0), start + copy.smem_offset_bytes)
            for plan, start in ((a, 0), (b, start_b))
            for copy in plan.copies
        ]
        data_type, majors = a.problem.data_type, [int(plan.problem.major == "MN") for plan in (a, b)]
        sources = [self._upload(memory) for _, memory in maps]
        blobs = [self._blob(found, source) for (found, _), source in zip(maps, sources, strict=True)]
        listed = self._upload(np.array(copies, np.int32))
        held = [self._upload(np.array(each, np.uint64)) for each in words]
        out = self._upload(np.zeros(128 * 32, np.float32))
        self._launch(
            f"product_{data_type.ptx}_{majors[0]}{majors[1]}", *blobs, np.uint64(listed), np.int32(len(a.copies)),
            np.int32(len(b.copies)), np.int32(a.transaction_bytes + b.transaction_bytes), np.uint64(held[0]),
            np.uint64(held[1]), np.int32(len(words[0])), np.uint64(out), threads=128,
        )  # fmt: skip
        found = self._download(out, 128 * 32 * 4)
        self._free(*sources, listed, *held, out)
        return found.reshape(128, 128).view(np.int32 if data_type.ptx == "s8" else np.float32), start_b

    def _blob(self, tensor_map, address):
        placed = tensor_map.with_fields(address=address)
        arguments = {name: getattr(placed, name) for name in placed.to_dict() if name != "kind"}
        result, blob = self.encode(type(placed), arguments)
        assert result == 0, (result, placed)
        return np.frombuffer(blob, np.uint64)

    def _launch(self, name, *values, threads=256):
        from cuda.bindings import driver

        if name not in self.kernels:
            self.kernels[name] = self.code.get_kernel(name)
        held = [np.atleast_1d(value).copy() for value in values]
        pointers = np.array([each.ctypes.data for each in held], np.uint64)
        handle = driver.CUkernel(int(self.kernels[name].handle))
        (result, function) = driver.cuKernelGetFunction(handle)
        _check(result)
        (result,) = driver.cuLaunchKernel(
            function, 1, 1, 1, threads, 1, 1, SMEM_BYTES, int(self.stream.handle), pointers.ctypes.data, 0
        )
        _check(result)
        self.stream.sync()

    def _upload(self, array):
        from cuda.bindings import driver

        result, pointer = driver.cuMemAlloc(max(array.nbytes, 16))
        _check(result)
        (result,) = driver.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes)
        _check(result)
        return int(pointer)

    def _download(self, pointer, length):
        from cuda.bindings import driver

        array = np.empty(length, np.uint8)
        (result,) = driver.cuMemcpyDtoH(array.ctypes.data, pointer, length)
        _check(result)
        return array

    def _free(self, *pointers):
        from cuda.bindings import driver

        for pointer in pointers:
            driver.cuMemFree(pointer)


def _check(result):
    assert int(result) == 0, result
