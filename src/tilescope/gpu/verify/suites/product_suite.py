"""fragments: the registers in which mma.sync, and wgmma with A in registers, take their operands and leave the product.

Every instruction multiplies small integers, whose products and sums are exact in every type: an element in a wrong lane
or register gives another sum.

    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32     A 16 x 16 of -4 to 4, B 16 x 8 of -4 to 4, C 16 x 8 of -64 to 64
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Piece, Result, Suite, splitmix_bytes
from tilescope.gpu.verify.suites.operand_addresses import core_matrices
from tilescope.mma.fragment import fragment
from tilescope.mma.mma_instruction import INSTRUCTIONS, Instruction, Operand
from tilescope.tma.elements import pack_values

# Integers that a type holds exactly, and whose sums of products every accumulator holds
_SMALL = (-4, 4)
_SUMMANDS = (-64, 64)
_RANGE = {"b1": (0, 1), "u8": (0, 7), "u4": (0, 15), "s4": (-8, 7)}
_ORDERS = ("row.col", "row.row", "col.row", "col.col")
_WGMMA_N = (8, 24, 64, 256)  # the narrowest, an odd, a usual and the widest


class _Opcode(NamedTuple):
    """An instruction of PTX: its row, its name for `fragment`, m, n and k, and the types of its operands by their PTX names."""

    row: Instruction
    name: str
    mnk: tuple[int, int, int]
    types: dict[str, str]
    counted: str  # what is counted where the operands are bits

    def numbers(self, seed: int) -> list[npt.NDArray[np.int64]]:
        """A, B and C: random integers, four of each where quads of lanes multiply on their own."""
        m, n, k = self.mnk
        return [
            self._matrices(seed, (m, k), _RANGE.get(self.types["A"], _SMALL)),
            self._matrices(seed + 1, (k, n), _RANGE.get(self.types["B"], _SMALL)),
            self._matrices(seed + 2, (m, n), _SUMMANDS),
        ]

    def _matrices(self, seed: int, shape: tuple[int, int], limits: tuple[int, int]) -> npt.NDArray[np.int64]:
        """Random integers between two limits, both included."""
        count = 4 if self.row.quad_pairs else 1
        low, high = limits
        words = splitmix_bytes(seed, 2 * count * shape[0] * shape[1]).view("<u2").astype(np.int64)
        return (low + words % (high - low + 1)).reshape(count, *shape)

    def words(self, operand: Operand, matrices: npt.NDArray[np.int64]) -> Array:
        """(threads, registers) words of an operand."""
        fragment_layout = fragment(self.name, operand, self.types[operand])
        return _pack_integers(
            fragment_layout.distribute(matrices if fragment_layout.matrices > 1 else matrices[0]),
            fragment_layout.data_type,
        ).view("<u4")

    def b_operand(self, matrices: npt.NDArray[np.int64]) -> Array:
        """B: words of registers, or for wgmma the bytes of shared memory, rows of n with 32 bytes along k."""
        if self.row.warps == 1:
            return self.words("B", matrices)
        return core_matrices(_pack_integers(matrices[0].T, DataType.named(self.types["B"])))


def _pack_integers(numbers: Array, row: DataType) -> Array:
    """Integers as the bytes of a type; those of fewer than 8 bits are packed."""
    if row.bits < 8:
        return pack_values(numbers.astype(np.int8), row.bits)
    return np.ascontiguousarray(numbers.astype(row.numpy)).view(np.uint8)


@cache
def opcodes() -> dict[str, _Opcode]:
    """Every instruction of Hopper's mma.sync and wgmma: what kernels/tensor_cores.cu multiplies with.

    >>> "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in opcodes()
    True
    """
    entries = {}
    for row in INSTRUCTIONS:
        if not Arch.named("sm_90").has(row.feature):
            continue
        types = [DataType.named(name).ptx for name in row.types]
        sums = [DataType.named(name).ptx for name in row.accumulators]
        counts: tuple[str, ...] = ("xor.popc", "and.popc") if types == ["b1"] else ("",)
        ns: Sequence[int]
        orders: tuple[str, ...]
        if row.warps > 1:
            start = "wgmma.mma_async.sync.aligned"
            ns = _WGMMA_N
            orders = ("",)
            counts = counts[-1:]
        else:
            start = "mma.sync.aligned"
            ns = row.n
            orders = _ORDERS if row.quad_pairs else _ORDERS[:1]
        for n, order, d, a, b, count in product(ns, orders, sums, types, types, counts):
            shape = f"m{row.m}n{n}k{row.k}"
            c = "" if row.warps > 1 else d
            name = ".".join(filter(None, (row.family, shape, order)))
            opcode = ".".join(filter(None, (start, shape, order, d, a, b, c, count)))
            entries[opcode] = _Opcode(row, name, (row.m, n, row.k), {"A": a, "B": b, "D": d}, count)
    return entries


def _draw_opcode(random: random.Random, arch: str) -> Case:
    has = Arch.named(arch).has
    names = [name for name, opcode in opcodes().items() if opcode.row.warps == 1 or has(opcode.row.feature)]
    return {"opcode": random.choice(names), "seed": random.randrange(1 << 31)}


def _predict_sums(case: Case) -> list[Piece]:
    """D: the product of bits counts those that both have (and), or that differ (xor)."""
    opcode = opcodes()[case["opcode"]]
    a, b, c = opcode.numbers(case["seed"])
    products = (a[..., None] != b[:, None]).sum(axis=2) if opcode.counted == "xor.popc" else a @ b
    words = opcode.words("D", c + products)
    return [Piece("thread {}, register {}", words, words.shape[1])]


def _run_products(device: Device, cases: list[Case]) -> Iterable[Result]:
    opcode = opcodes()[cases[0]["opcode"]]
    numbers = (opcode.numbers(case["seed"]) for case in cases)
    operands = [(opcode.words("A", a), opcode.b_operand(b), opcode.words("D", c)) for a, b, c in numbers]
    a = np.stack([words for words, _, _ in operands])
    b = np.stack([words for _, words, _ in operands])
    d = np.stack([words for _, _, words in operands])
    kernel = cases[0]["opcode"].replace(".", "_")
    device.launch(
        f"tensor_cores:{kernel}",
        a,
        b,
        b[0].nbytes,
        out=[d],
        blocks=len(cases),
        threads=32 * opcode.row.warps,
        smem_bytes=b[0].nbytes,
    )
    return ([words] for words in d)


FRAGMENTS = Suite(
    "fragments",
    _draw_opcode,
    _predict_sums,
    _run_products,
    kernels=("tensor_cores",),
    kind=lambda case: str(case["opcode"]),
    feature="mma",
)
