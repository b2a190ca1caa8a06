"""wgmma, tcgen05: the shared addresses that the tensor core reads for random 64-bit descriptors. fragments: its registers.

Addresses: one operand is under test, the other is the unit matrix, so the product shows what was read. Shared memory holds
the four digits of every element's own number, one after the other: four products tell which element came from where.

Registers: every mma.sync, and every wgmma with A in registers, multiplies small integers.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Array, Case, Pieces, Suite, splitmix_bytes
from tilescope.mma.descriptor import Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.fragment import Fragment, fragment
from tilescope.mma.instruction import INSTRUCTIONS, Instruction
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.tcgen05_kind import KINDS


@dataclass(frozen=True, slots=True)
class _Core:
    """A tensor core that reads operands through descriptors."""

    descriptor: type[WgmmaDescriptor] | type[Tcgen05Descriptor]
    rows: dict[str, int]  # of an operand: m of A, n of B
    swizzles: tuple[str, ...]
    mn_types: tuple[str, ...]  # that it takes MN-major


_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")
_CORES = {
    "wgmma": _Core(WgmmaDescriptor, {"A": 64, "B": 64}, ("none", "32B", "64B", "128B"), ("bf16", "f16")),
    "tcgen05": _Core(Tcgen05Descriptor, {"A": 128, "B": 64}, ("none", "32B", "64B", "128B", "128B_ATOM_32B"), _TYPES),
}
_TCGEN05_KINDS = ("f16", "tf32", "f8f6f4", "i8")  # as kernels/tensor_memory.cu numbers them
_READ_BYTES = 1 << 16  # shared memory that a descriptor may point into
_K_BYTES = 32
_PASSES = 4
_DIGITS = 16
_STRANGE = 0xFFFF  # where the card gave no digit at all


def _draw_descriptor(random: random.Random, arch: str) -> Case | None:
    card = Arch.named(arch)
    name = next(name for name in _CORES if card.has(name))
    core, types = _CORES[name], _TYPES if not card.has("tcgen05") or card.has("tcgen05_i8") else _TYPES[:5]
    data_type = random.choice(types)
    case = {
        "core": name,
        "data_type": data_type,
        "operand": random.choice("AB"),
        "major": random.choice(("K", "MN")) if data_type in core.mn_types else "K",
        "swizzle": random.choice(core.swizzles),
        "start_address": 16 * random.randrange(1 << random.randint(0, 12)),
        "leading_bytes": 16 * random.randrange(1 << random.randint(1, 11)),
        "stride_bytes": 16 * random.randrange(1 << random.randint(1, 10)),
        "base_offset": random.choice((0, 0, 0, random.randrange(8))),
    }
    if case["swizzle"] == "none":
        case["base_offset"] = 0
    if (case["swizzle"] == "128B_ATOM_32B") != (data_type == "tf32" and case["major"] == "MN"):
        return None  # MN-major 32-bit elements lie in atoms of 32 bytes, and nothing else does
    addresses = _addresses(case)
    return case if addresses.min() >= 0 and addresses.max() < _READ_BYTES else None


def _core(case: Case) -> _Core:
    return _CORES[case.get("core", "wgmma")]  # captures of Hopper cards may not say


def _k(row: DataType) -> int:
    return _K_BYTES * 8 // row.bits


def _descriptor(case: Case) -> WgmmaDescriptor | Tcgen05Descriptor:
    names = ("leading_bytes", "stride_bytes", "swizzle", "base_offset")
    return _core(case).descriptor(case["start_address"], **{name: case[name] for name in names})


def _addresses(case: Case) -> npt.NDArray[np.int64]:
    row, rows = DataType.named(case["data_type"]), _core(case).rows[case["operand"]]
    return _descriptor(case).addresses(major=case["major"], rows=rows, k=_k(row), element_bits=row.bits)


def _predict_addresses(case: Case) -> bytes:
    return _addresses(case).astype("<u2").tobytes()


def _addresses_kernel(case: Case) -> str:
    is_mn = [int(case["major"] == "MN" and case["operand"] == operand) for operand in "AB"]
    return "addresses_{}_{}{}".format(case["data_type"], *is_mn)


def _run_wgmma(device: Device, cases: list[Case]) -> list[bytes]:
    words = _multiplied(device, f"tensor_cores:{_addresses_kernel(cases[0])}", cases, words=(128, 32))
    accumulator = "s32" if words.dtype.kind == "i" else "f32"
    held = fragment(f"wgmma.m64n64k{_k(DataType.named(cases[0]['data_type']))}", "D", accumulator).indices()
    products = np.empty((len(cases), _PASSES, 64, 64))
    products[:, :, held[1], held[2]] = words
    return _read_elements(cases, products)


def _run_tcgen05(device: Device, cases: list[Case]) -> list[bytes]:
    row = DataType.named(cases[0]["data_type"])
    kind = next(kind for kind in _TCGEN05_KINDS if row.name in KINDS[kind].codes)
    instructions = [
        InstructionDescriptor(kind, 128, 64, a_type=row.name, **{f"{case['operand'].lower()}_major": case["major"]})
        for case in cases
    ]
    words = device.upload(np.array([instruction.encode() for instruction in instructions], np.uint32))
    more = words, np.int32(_TCGEN05_KINDS.index(kind)), np.int32(row.bits // 8)
    return _read_elements(cases, _multiplied(device, "tensor_memory:operand_addresses", cases, *more, words=(128, 64)))


def _multiplied(device: Device, place: str, cases: list[Case], *more: Any, words: tuple[int, int]) -> Array:
    """(cases, passes, threads, words): the accumulators of every product."""
    row = DataType.named(cases[0]["data_type"])
    unit = _core_matrices(np.eye(_core(cases[0]).rows["A"], _k(row)).astype(row.numpy))
    shape = (len(cases), _PASSES, *words)
    out = device.allocate(4 * int(np.prod(shape)))
    device.launch(
        place, device.upload(np.array([_descriptor(case).encode() for case in cases], np.uint64)),
        device.upload(np.array([case["operand"] == "B" for case in cases], np.int32)), *more,
        device.upload(_digits(row).view(np.uint8)), device.upload(unit), np.int32(unit.size), out,
        blocks=len(cases), threads=128, smem_bytes=_READ_BYTES + unit.size,
    )  # fmt: skip
    return device.download(out, shape, "<f4" if row.is_float else "<i4")


def _read_elements(cases: list[Case], products: Array) -> list[bytes]:
    """The address of every element that was read, from the digits in four products with the unit matrix."""
    row = DataType.named(cases[0]["data_type"])
    k, known = _k(row), _digits(row).astype(np.float64)
    results = []
    for case, matrix in zip(cases, products, strict=True):
        read = matrix[:, :, :k] if case["operand"] == "A" else matrix[:, :k, :].transpose(0, 2, 1)
        digit = np.searchsorted(known, read).clip(0, _DIGITS - 1)
        element = (digit << (4 * np.arange(_PASSES))[:, None, None]).sum(axis=0)
        strange = (known[digit] != read).any(axis=0)
        results.append(np.where(strange, _STRANGE, element * (row.bits // 8)).astype("<u2").tobytes())
    return results


def _digits(row: DataType) -> Array:
    """Sixteen numbers that the type holds exactly, ascending: 0 to 15, or quarters for the type with two digits."""
    if row.name == "e5m2":
        return np.arange(0x3C, 0x3C + _DIGITS, dtype=np.uint8).view(row.numpy)  # 1, 1.25, 1.5, 1.75, 2, 2.5, …
    return np.arange(_DIGITS).astype(row.numpy)


def _core_matrices(matrix: Array) -> npt.NDArray[np.uint8]:
    """Rows of 32 bytes as core matrices of 8 rows by 16 bytes, LBO 128, SBO 256: K-major without swizzle."""
    rows = np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, 8, 2, 16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(-1)


def _addresses_read(case: Case, data: bytes) -> Pieces:
    read = np.frombuffer(data, "<u2").reshape(-1, _k(DataType.named(case["data_type"])))
    return [(f"address read at {'m' if case['operand'] == 'A' else 'n'} = {{}}, k = {{}}", read)]


def _of_descriptors(name: str, run: Any, kernels: str, **options: Any) -> Suite:
    parts = _draw_descriptor, _predict_addresses, run, _addresses_read, (kernels,), _addresses_kernel
    return Suite(name, *parts, feature=name, **options)


WGMMA = _of_descriptors("wgmma", _run_wgmma, "tensor_cores")
TCGEN05 = _of_descriptors("tcgen05", _run_tcgen05, "tensor_memory", together=100)


class _Opcode(NamedTuple):
    """An instruction of PTX: its row, its name for `fragment`, m, n and k, and the types of its operands by their PTX names."""

    row: Instruction
    name: str
    mnk: tuple[int, int, int]
    types: dict[str, str]
    counted: str  # what is counted where the operands are bits


# Integers that a type holds exactly, and whose sums of products every accumulator holds
_SMALL, _SUMMANDS = (-4, 4), (-64, 64)
_RANGE = {"b1": (0, 1), "u8": (0, 7), "u4": (0, 15), "s4": (-8, 7)}
_ORDERS = ("row.col", "row.row", "col.row", "col.col")
_WGMMA_N = (8, 24, 64, 256)  # the narrowest, an odd, a usual and the widest


@cache
def opcodes() -> dict[str, _Opcode]:
    """Every instruction of Hopper's mma.sync and wgmma: what kernels/tensor_cores.cu multiplies with.

    >>> "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32" in opcodes()
    True
    """
    made = {}
    for row in INSTRUCTIONS:
        if not Arch.named("sm_90").has(row.feature):
            continue
        types, sums = ([DataType.named(name).ptx for name in names] for names in (row.types, row.accumulators))
        counts: tuple[str, ...] = ("xor.popc", "and.popc") if types == ["b1"] else ("",)
        start, ns, orders = "mma.sync.aligned", row.n, _ORDERS if row.quad_pairs else _ORDERS[:1]
        if row.warps > 1:
            start, ns, orders, counts = "wgmma.mma_async.sync.aligned", _WGMMA_N, ("",), counts[-1:]
        for n, order, d, a, b, count in product(ns, orders, sums, types, types, counts):
            shape, c = f"m{row.m}n{n}k{row.k}", "" if row.warps > 1 else d
            name = ".".join(filter(None, (row.family, shape, order)))
            opcode = ".".join(filter(None, (start, shape, order, d, a, b, c, count)))
            made[opcode] = _Opcode(row, name, (row.m, n, row.k), {"A": a, "B": b, "D": d}, count)
    return made


def _draw_opcode(random: random.Random, arch: str) -> Case:
    card = Arch.named(arch)
    known = [name for name, opcode in opcodes().items() if opcode.row.warps == 1 or card.has(opcode.row.feature)]
    return {"opcode": random.choice(known), "seed": random.randrange(1 << 31)}


def _held(case: Case, operand: Any) -> Fragment:
    opcode = opcodes()[case["opcode"]]
    return fragment(opcode.name, operand, opcode.types[operand])


def _numbers(case: Case) -> tuple[npt.NDArray[np.int64], ...]:
    """A, B and C: random integers."""
    opcode, count = opcodes()[case["opcode"]], _held(case, "A").matrices
    m, n, k = opcode.mnk
    ranges = *(_RANGE.get(opcode.types[operand], _SMALL) for operand in "AB"), _SUMMANDS
    matrices = []
    for number, ((low, high), shape) in enumerate(zip(ranges, ((m, k), (k, n), (m, n)), strict=True)):
        words = splitmix_bytes(case["seed"] + number, 2 * count * shape[0] * shape[1]).view("<u2").astype(np.int64)
        matrices.append((low + words % (high - low + 1)).reshape(count, *shape))
    return tuple(matrices)


def _words(case: Case, operand: str, matrices: npt.NDArray[np.int64]) -> Array:
    """(threads, registers) words of an operand."""
    held = _held(case, operand)
    values, row = held.distribute(matrices if held.matrices > 1 else matrices[0]), held.data_type
    if row.bits >= 8:
        return np.ascontiguousarray(values.astype(row.numpy)).view("<u4")
    bits = (values & (1 << row.bits) - 1).reshape(held.threads, held.registers, -1)
    words: Array = (bits << row.bits * np.arange(32 // row.bits)).sum(axis=2)
    return words.astype("<u4")


def _predict_sums(case: Case) -> bytes:
    """D: the product of bits counts those that both have (and), or that differ (xor)."""
    a, b, c = _numbers(case)
    is_xor = opcodes()[case["opcode"]].counted == "xor.popc"
    return _words(case, "D", c + ((a[..., None] != b[:, None]).sum(axis=2) if is_xor else a @ b)).tobytes()


def _run_products(device: Device, cases: list[Case]) -> list[bytes]:
    opcode = opcodes()[cases[0]["opcode"]]
    numbers = [_numbers(case) for case in cases]
    a, d = (
        np.stack([_words(case, name, matrices[place]) for case, matrices in zip(cases, numbers, strict=True)])
        for name, place in (("A", 0), ("D", 2))
    )
    out, kernel = device.upload(d), f"tensor_cores:{cases[0]['opcode'].replace('.', '_')}"
    if opcode.row.warps > 1:  # B is read from shared memory
        b = np.stack([_b_bytes(opcode, matrices[1]) for matrices in numbers])
        size = b.shape[1]
        values = device.upload(a), device.upload(b), out, np.int32(size)
        device.launch(kernel, *values, blocks=len(cases), threads=128, smem_bytes=size)
    else:
        b = np.stack([_words(case, "B", matrices[1]) for case, matrices in zip(cases, numbers, strict=True)])
        device.launch(kernel, device.upload(a), device.upload(b), out, blocks=len(cases), threads=32)
    return [words.tobytes() for words in device.download(out, d.shape, "<u4")]


def _b_bytes(opcode: _Opcode, matrices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """B of wgmma as it lies in shared memory: rows of n, 32 bytes along k."""
    rows = matrices[0].T
    if opcode.types["B"] == "b1":
        return _core_matrices(np.packbits(rows.astype(np.uint8), axis=1, bitorder="little"))
    return _core_matrices(rows.astype(DataType.named(opcode.types["B"]).numpy))


def _registers(case: Case, data: bytes) -> Pieces:
    return [("thread {}, register {}", np.frombuffer(data, "<u4").reshape(_held(case, "D").threads, -1))]


FRAGMENTS = Suite(
    "fragments", _draw_opcode, _predict_sums, _run_products, _registers, ("tensor_cores",),
    lambda case: str(case["opcode"]), feature="mma",
)  # fmt: skip
