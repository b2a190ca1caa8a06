"""fragments: registers that tensor cores fill from registers, for every mma.sync and every wgmma with A in registers."""

from __future__ import annotations

import random
import re
from functools import cache

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.compiling import source
from tilescope.gpu.device import Device
from tilescope.gpu.samples import splitmix_bytes
from tilescope.gpu.suite import Case, Pieces, Suite
from tilescope.gpu.suites.operands import core_matrices
from tilescope.mma.fragment import Fragment, fragment
from tilescope.mma.instruction import Operand

# Integers that a type holds exactly, and whose sums of products every accumulator holds
_SMALL = (-4, 4)
_RANGE = {"b1": (0, 1), "u8": (0, 7), "u4": (0, 15), "s4": (-8, 7)}
_SUMMANDS = (-64, 64)
Words = npt.NDArray[np.uint32]
_OPCODE = re.compile(
    r"(?P<family>mma|wgmma)\.\S*?m(?P<m>\d+)n(?P<n>\d+)k(?P<k>\d+)\.(?:(?P<orders>\w{3}\.\w{3})\.)?"
    r"(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)(?:\.(?:s32|f16|f32|f64))?(?:\.(?P<bits>xor|and)\.popc)?$"
)


@cache
def opcodes() -> tuple[str, ...]:
    """Every instruction that kernels/tensor_cores.cu multiplies with.

    >>> "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in opcodes()
    True
    """
    return tuple(re.findall(r'"(mma\.sync\.\S+|wgmma\.mma_async\.\S+k\d+\.\S+)"\)', source("tensor_cores")))


def _draw(random: random.Random, arch: str) -> Case:
    has_wgmma = Arch.named(arch).has("wgmma")
    known = [opcode for opcode in opcodes() if has_wgmma or not opcode.startswith("wgmma")]
    return {"opcode": random.choice(known), "seed": random.randrange(1 << 31)}


class _Product:
    """A B + C of one case, and where its numbers lie in registers."""

    def __init__(self, case: Case) -> None:
        self.opcode = case["opcode"]
        found = _OPCODE.match(self.opcode)
        assert found is not None, self.opcode
        self.is_wgmma = found["family"] == "wgmma"
        self.m, self.n, self.k = (int(found[name]) for name in "mnk")
        self.bitwise = found["bits"]
        self.types = {"A": found["a"], "B": found["b"], "D": found["d"]}
        name = f"{found['family']}.m{self.m}n{self.n}k{self.k}"
        name += f".{found['orders']}" if found["orders"] else ""
        operands: tuple[Operand, ...] = ("A", "D") if self.is_wgmma else ("A", "B", "D")
        self.fragments: dict[str, Fragment] = {
            operand: fragment(name, operand, self.types[operand]) for operand in operands
        }
        count = self.fragments["A"].matrices
        self.a = _numbers(case["seed"], *_RANGE.get(self.types["A"], _SMALL), (count, self.m, self.k))
        self.b = _numbers(case["seed"] + 1, *_RANGE.get(self.types["B"], _SMALL), (count, self.k, self.n))
        self.c = _numbers(case["seed"] + 2, *_SUMMANDS, (count, self.m, self.n))

    def sums(self) -> npt.NDArray[np.int64]:
        """D: the product of bits counts those that both have (and), or that differ (xor)."""
        if self.bitwise == "xor":
            differ: npt.NDArray[np.int64] = (self.a[..., None] != self.b[:, None]).sum(axis=2)
            return differ + self.c
        product: npt.NDArray[np.int64] = self.a @ self.b
        return product + self.c

    def words(self, operand: str, matrices: npt.NDArray[np.int64]) -> Words:
        """(threads, registers) words of an operand."""
        held = self.fragments[operand]
        values = held.distribute(matrices if held.matrices > 1 else matrices[0])
        row = held.data_type
        if row.bits >= 8:
            filled: Words = np.ascontiguousarray(values.astype(row.numpy)).view("<u4")
            return filled
        words = np.zeros((held.threads, held.registers), np.uint32)
        bits = (values & (1 << row.bits) - 1).astype(np.uint32)
        for value in range(held.values):
            register, lowest = held.register_of(value)
            words[:, register] |= bits[:, value] << np.uint32(lowest)
        return words

    def b_bytes(self) -> npt.NDArray[np.uint8]:
        """B of wgmma as it lies in shared memory: rows of n, 32 bytes along k each."""
        rows = self.b[0].T
        if self.types["B"] == "b1":
            return core_matrices(np.packbits(rows.astype(np.uint8), axis=1, bitorder="little"))
        return core_matrices(rows.astype(DataType.named(self.types["B"]).numpy))


def _numbers(seed: int, low: int, high: int, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Random integers from low to high."""
    count = int(np.prod(shape))
    words = splitmix_bytes(seed, 2 * count).view("<u2").astype(np.int64)
    return (low + words % (high - low + 1)).reshape(shape)


def _predict(case: Case) -> bytes:
    product = _Product(case)
    return product.words("D", product.sums()).tobytes()


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    products = [_Product(case) for case in cases]
    d = np.stack([product.words("D", product.c) for product in products])
    a, out = device.upload(np.stack([product.words("A", product.a) for product in products])), device.upload(d)
    kernel = f"tensor_cores:{cases[0]['opcode'].replace('.', '_')}"
    if products[0].is_wgmma:
        b = np.stack([product.b_bytes() for product in products])
        size = b.shape[1]
        device.launch(kernel, a, device.upload(b), out, np.int32(size), blocks=len(b), threads=128, smem_bytes=size)
    else:
        b = np.stack([product.words("B", product.b) for product in products])
        device.launch(kernel, a, device.upload(b), out, blocks=len(b), threads=32)
    return [words.tobytes() for words in device.download(out, d.shape, "<u4")]


def _pieces(case: Case, data: bytes) -> Pieces:
    threads = _Product(case).fragments["D"].threads
    return [("thread {}, register {}", np.frombuffer(data, "<u4").reshape(threads, -1))]


FRAGMENTS = Suite(
    "fragments", _draw, _predict, _run, _pieces, ("tensor_cores",), lambda case: str(case["opcode"]), feature="mma"
)
