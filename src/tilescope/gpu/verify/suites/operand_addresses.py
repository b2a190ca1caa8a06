"""wgmma, tcgen05: the shared addresses that the tensor core reads for random 64-bit descriptors.

One operand is under test, the other is the unit matrix, so the product shows what was read. Shared memory holds
the four digits of every element's own number, one after the other: four products tell which element came from where.

    element 0x1a2f     passes 0 to 3 read the digits f, 2, a, 1     0x1a2f again, times the bytes of an element: its address
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import Array, Case, Piece, Suite
from tilescope.layout import Major
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.mma_instruction import K_STEP_BYTES
from tilescope.mma.operand_descriptor import Tcgen05Descriptor, WgmmaDescriptor
from tilescope.mma.tcgen05_kind import KINDS


class _Core(NamedTuple):
    """A tensor core that reads operands through descriptors."""

    descriptor: type[WgmmaDescriptor] | type[Tcgen05Descriptor]
    rows: dict[str, int]  # of an operand: m of A, n of B
    swizzles: tuple[str, ...]
    mn_types: tuple[str, ...]  # that it takes MN-major


_FLOAT_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2")
_TYPES = (*_FLOAT_TYPES, "s8", "u8")
_CORES = {
    "wgmma": _Core(WgmmaDescriptor, {"A": 64, "B": 64}, ("none", "32B", "64B", "128B"), ("bf16", "f16")),
    "tcgen05": _Core(Tcgen05Descriptor, {"A": 128, "B": 64}, ("none", "32B", "64B", "128B", "128B_ATOM_32B"), _TYPES),
}
_TCGEN05_KINDS = ("f16", "tf32", "f8f6f4", "i8")  # as kernels/tensor_memory.cu numbers them
_READ_BYTES = 1 << 16  # shared memory that a descriptor may point into
_PASSES = 4
_DIGITS = 16
_STRANGE = 0xFFFF  # where the card gave no digit at all


def _draw_descriptor(random: random.Random, arch: str) -> Case | None:
    card = Arch.named(arch)
    name = next(name for name in _CORES if card.has(name))
    core = _CORES[name]
    has_integers = not card.has("tcgen05") or card.has("tcgen05_i8")
    data_type = random.choice(_TYPES if has_integers else _FLOAT_TYPES)
    operand = random.choice("AB")
    major = random.choice(("K", "MN")) if data_type in core.mn_types else "K"
    swizzle = random.choice(core.swizzles)
    case: Case = {
        "core": name,
        "data_type": data_type,
        "operand": operand,
        "major": major,
        "swizzle": swizzle,
        "start_address": 16 * random.randrange(1 << random.randint(0, 12)),
        "leading_bytes": 16 * random.randrange(1 << random.randint(1, 11)),
        "stride_bytes": 16 * random.randrange(1 << random.randint(1, 10)),
        "base_offset": random.choice((0, 0, 0, random.randrange(8))) if swizzle != "none" else 0,
    }
    if (swizzle == "128B_ATOM_32B") != (data_type == "tf32" and major == "MN"):
        return None  # MN-major 32-bit elements are in atoms of 32 bytes, and nothing else is
    addresses = _addresses(case)
    return case if addresses.min() >= 0 and addresses.max() < _READ_BYTES else None


def _core(case: Case) -> _Core:
    return _CORES[case.get("core", "wgmma")]  # captures of Hopper cards may omit it


def _k(row: DataType) -> int:
    return K_STEP_BYTES * 8 // row.bits


def _descriptor(case: Case) -> WgmmaDescriptor | Tcgen05Descriptor:
    return _core(case).descriptor(
        case["start_address"],
        leading_bytes=case["leading_bytes"],
        stride_bytes=case["stride_bytes"],
        swizzle=case["swizzle"],
        base_offset=case["base_offset"],
    )


def _addresses(case: Case) -> npt.NDArray[np.int64]:
    row = DataType.named(case["data_type"])
    rows = _core(case).rows[case["operand"]]
    return _descriptor(case).addresses(major=case["major"], rows=rows, k=_k(row), element_bits=row.bits)


def _predict_addresses(case: Case) -> list[Piece]:
    addresses = _addresses(case).astype("<u2")
    row = "m" if case["operand"] == "A" else "n"
    words = f"address read at {row} = {{}}, k = {{}}"
    return [Piece(words, np.ascontiguousarray(addresses), addresses.shape[1])]


def _addresses_kernel(case: Case) -> str:
    is_mn_major = case["major"] == "MN"
    a_is_mn = int(is_mn_major and case["operand"] == "A")
    b_is_mn = int(is_mn_major and case["operand"] == "B")
    return f"addresses_{case['data_type']}_{a_is_mn}{b_is_mn}"


def _run_descriptors(device: Device, cases: list[Case]) -> Iterator[list[Array]]:
    """The address of every element that was read, from the digits in four products with the unit matrix."""
    core = _core(cases[0])
    row = DataType.named(cases[0]["data_type"])
    k = _k(row)
    digits = _digits(row)
    is_wgmma = core is _CORES["wgmma"]
    unit = core_matrices(np.eye(core.rows["A"], k).astype(row.numpy))
    descriptors = np.array([_descriptor(case).encode() for case in cases], np.uint64)
    of_b = np.array([case["operand"] == "B" for case in cases], np.int32)
    kernel = f"tensor_cores:{_addresses_kernel(cases[0])}" if is_wgmma else "tensor_memory:operand_addresses"
    instructions = () if is_wgmma else _instructions(row, cases)
    products = np.empty((len(cases), _PASSES, 128, 32 if is_wgmma else 64), "<f4" if row.is_float else "<i4")
    device.launch(
        kernel,
        descriptors,
        of_b,
        *instructions,
        digits,
        unit,
        unit.size,
        out=[products],
        blocks=len(cases),
        threads=128,
        smem_bytes=_READ_BYTES + unit.size,
    )
    if is_wgmma:  # whose accumulators are in registers
        accumulator = fragment(f"wgmma.m64n64k{k}", "D", "f32" if row.is_float else "s32")
        products = np.array([[accumulator.collect(words) for words in passes] for passes in products])
    for case, matrix in zip(cases, products, strict=True):
        read = matrix[:, :, :k] if case["operand"] == "A" else matrix[:, :k, :].transpose(0, 2, 1)
        digit = np.searchsorted(digits.astype(np.float64), read).clip(0, _DIGITS - 1)
        element = (digit << (4 * np.arange(_PASSES))[:, None, None]).sum(axis=0)
        strange = (digits.astype(np.float64)[digit] != read).any(axis=0)
        yield [np.ascontiguousarray(np.where(strange, _STRANGE, element * (row.bits // 8)).astype("<u2"))]


def _instructions(row: DataType, cases: list[Case]) -> tuple[Array, int, int]:
    """What tcgen05.mma is told beside descriptors: its instruction descriptors, its kind, and the bytes of an element."""
    kind = next(kind for kind in _TCGEN05_KINDS if row.name in KINDS[kind].codes)
    words = []
    for case in cases:
        a_major: Major = case["major"] if case["operand"] == "A" else "K"
        b_major: Major = case["major"] if case["operand"] == "B" else "K"
        described = InstructionDescriptor(kind, 128, 64, a_type=row.name, a_major=a_major, b_major=b_major)
        words.append(described.encode())
    return np.array(words, np.uint32), _TCGEN05_KINDS.index(kind), row.bits // 8


def _digits(row: DataType) -> Array:
    """Sixteen numbers that the type holds exactly, ascending: 0 to 15, or quarters for the type with two digits."""
    if row.name == "e5m2":
        return np.arange(0x3C, 0x3C + _DIGITS, dtype=np.uint8).view(row.numpy)  # 1, 1.25, 1.5, 1.75, 2, 2.5, …
    return np.arange(_DIGITS).astype(row.numpy)


def core_matrices(matrix: Array) -> npt.NDArray[np.uint8]:
    """Rows of 32 bytes as core matrices of 8 rows by 16 bytes, LBO 128, SBO 256: K-major without swizzle."""
    rows = np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, 8, 2, 16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(-1)


WGMMA = Suite(
    "wgmma",
    _draw_descriptor,
    _predict_addresses,
    _run_descriptors,
    kernels=("tensor_cores",),
    kind=_addresses_kernel,
    feature="wgmma",
)
TCGEN05 = replace(WGMMA, name="tcgen05", feature="tcgen05", kernels=("tensor_memory",), together=100)
