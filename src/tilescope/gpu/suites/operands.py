"""wgmma, tcgen05: the shared addresses that the tensor core reads for random 64-bit descriptors.

One operand is under test, the other is the unit matrix, so the product shows what was read. Shared memory holds the four
digits of each element's own number, one after the other: four products tell which element came from where.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch
from tilescope.data_type import DataType
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Outcome, Suite, in_groups
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.tcgen05 import Tcgen05Descriptor
from tilescope.mma.tcgen05_kind import KINDS
from tilescope.mma.wgmma import WgmmaDescriptor

_DESCRIPTOR: dict[str, type[WgmmaDescriptor] | type[Tcgen05Descriptor]] = {
    "wgmma": WgmmaDescriptor,
    "tcgen05": Tcgen05Descriptor,
}
_ROWS = {"wgmma": {"A": 64, "B": 64}, "tcgen05": {"A": 128, "B": 64}}  # of an operand: m of A, n of B
_SWIZZLES = {"wgmma": ("none", "32B", "64B", "128B"), "tcgen05": ("none", "32B", "64B", "128B", "128B_ATOM_32B")}
_TCGEN05_KINDS = ("f16", "tf32", "f8f6f4", "i8")  # as kernels/tensor_memory.cu numbers them
READ_BYTES = 1 << 16  # shared memory that a descriptor may point into
_K_BYTES = 32
_PASSES = 4
_DIGITS = 16
_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")
_STRANGE = 0xFFFF  # where the card gave no digit at all


def _draw(random: random.Random, arch: str) -> Case:
    core = "tcgen05" if Arch.named(arch).has("tcgen05") else "wgmma"
    types = _TYPES if core == "wgmma" or Arch.named(arch).has("tcgen05_i8") else _TYPES[:5]
    while True:
        data_type = random.choice(types)
        may_be_mn = core == "tcgen05" or data_type in ("bf16", "f16")
        case = {
            "core": core,
            "data_type": data_type,
            "operand": random.choice("AB"),
            "major": random.choice(("K", "MN")) if may_be_mn else "K",
            "swizzle": random.choice(_SWIZZLES[core]),
            "start_address": 16 * random.randrange(1 << random.randint(0, 12)),
            "leading_bytes": 16 * random.randrange(1 << random.randint(1, 11)),
            "stride_bytes": 16 * random.randrange(1 << random.randint(1, 10)),
            "base_offset": random.choice((0, 0, 0, random.randrange(8))),
        }
        if case["swizzle"] == "none":
            case["base_offset"] = 0
        if (case["swizzle"] == "128B_ATOM_32B") != (data_type == "tf32" and case["major"] == "MN"):
            continue  # MN-major 32-bit elements lie in atoms of 32 bytes, and nothing else does
        addresses = _addresses(case)
        if addresses.min() >= 0 and addresses.max() < READ_BYTES:
            return case


def _core(case: Case) -> str:
    return str(case.get("core", "wgmma"))  # captures of Hopper cards may not say


def _descriptor(case: Case) -> WgmmaDescriptor | Tcgen05Descriptor:
    names = ("leading_bytes", "stride_bytes", "swizzle", "base_offset")
    return _DESCRIPTOR[_core(case)](case["start_address"], **{name: case[name] for name in names})


def _addresses(case: Case) -> npt.NDArray[np.int64]:
    bits, rows = DataType.named(case["data_type"]).bits, _ROWS[_core(case)][case["operand"]]
    return _descriptor(case).addresses(major=case["major"], rows=rows, k=_K_BYTES * 8 // bits, element_bits=bits)


def _predict(case: Case) -> Outcome:
    return Outcome(_addresses(case).astype("<u2").tobytes())


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    kind, batch = (_kernel, _wgmma_batch) if _core(cases[0]) == "wgmma" else (_type_of, _tcgen05_batch)
    return in_groups(cases, kind, partial(batch, device))


def _kernel(case: Case) -> str:
    is_mn = [int(case["major"] == "MN" and case["operand"] == operand) for operand in "AB"]
    return "addresses_{}_{}{}".format(case["data_type"], *is_mn)


def _type_of(case: Case) -> str:
    return str(case["data_type"])


def _wgmma_batch(device: Device, kernel: str, cases: list[Case]) -> list[bytes]:
    name = cases[0]["data_type"]
    k = _K_BYTES * 8 // DataType.named(name).bits
    words = _multiplied(device, f"tensor_cores:{kernel}", cases, rows=64, words=(128, 32))
    held = fragment(f"wgmma.m64n64k{k}", "D", "s32" if name in ("s8", "u8") else "f32").indices()
    products = np.empty((len(cases), _PASSES, 64, 64))
    products[:, :, held[1], held[2]] = words
    return _read_elements(cases, products)


def _tcgen05_batch(device: Device, name: str, cases: list[Case]) -> list[bytes]:
    row = DataType.named(name)
    kind = next(each for each in _TCGEN05_KINDS if row.name in KINDS[each].codes)
    instructions = [
        InstructionDescriptor(
            kind, 128, 64, a_type=name, **{f"{case['operand'].lower()}_major": case["major"]}
        ).encode() for case in cases
    ]  # fmt: skip
    more = (
        device.upload(np.array(instructions, np.uint32)),
        np.int32(_TCGEN05_KINDS.index(kind)),
        np.int32(row.bits // 8),
    )
    return _read_elements(
        cases, _multiplied(device, "tensor_memory:operand_addresses", cases, *more, rows=128, words=(128, 64))
    )


def _multiplied(
    device: Device, place: str, cases: list[Case], *more: Any, rows: int, words: tuple[int, int]
) -> npt.NDArray[Any]:
    """(cases, passes, threads, words): the accumulators of every product."""
    row = DataType.named(cases[0]["data_type"])
    unit = core_matrices(np.eye(rows, _K_BYTES * 8 // row.bits).astype(row.numpy))
    shape = (len(cases), _PASSES, *words)
    out = device.allocate(4 * int(np.prod(shape)))
    device.launch(
        place, device.upload(np.array([_descriptor(case).encode() for case in cases], np.uint64)),
        device.upload(np.array([case["operand"] == "B" for case in cases], np.int32)), *more,
        device.upload(_digits(row).view(np.uint8)), device.upload(unit), np.int32(unit.size), out,
        blocks=len(cases), threads=128, smem_bytes=READ_BYTES + unit.size,
    )  # fmt: skip
    return device.download(out, shape, "<i4" if cases[0]["data_type"] in ("s8", "u8") else "<f4")


def _read_elements(cases: list[Case], products: npt.NDArray[Any]) -> list[bytes]:
    """The address of each element that was read, from the digits in four products with the unit matrix."""
    row = DataType.named(cases[0]["data_type"])
    k, known = _K_BYTES * 8 // row.bits, _digits(row).astype(np.float64)
    results = []
    for case, product in zip(cases, products, strict=True):
        read = product[:, :, :k] if case["operand"] == "A" else product[:, :k, :].transpose(0, 2, 1)
        digit = np.searchsorted(known, read).clip(0, _DIGITS - 1)
        element = (digit << (4 * np.arange(_PASSES))[:, None, None]).sum(axis=0)
        strange = (known[digit] != read).any(axis=0)
        results.append(np.where(strange, _STRANGE, element * (row.bits // 8)).astype("<u2").tobytes())
    return results


def _digits(row: DataType) -> npt.NDArray[Any]:
    """Sixteen numbers that the type holds exactly, ascending: 0 to 15, or quarters for the type with two digits."""
    if row.name == "e5m2":
        return np.arange(0x3C, 0x3C + _DIGITS, dtype=np.uint8).view(row.numpy)  # 1, 1.25, 1.5, 1.75, 2, 2.5, …
    return np.arange(_DIGITS).astype(row.numpy)


def core_matrices(matrix: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Rows of 32 bytes as core matrices of 8 rows by 16 bytes, LBO 128, SBO 256: K-major without swizzle."""
    rows = np.ascontiguousarray(matrix).view(np.uint8).reshape(-1, 8, 2, 16)
    return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(-1)


def _differs(case: Case, found: bytes, expected: bytes) -> str:
    k = _K_BYTES * 8 // DataType.named(case["data_type"]).bits
    one, other = (np.frombuffer(each, "<u2").reshape(-1, k) for each in (found, expected))
    row, column = np.argwhere(one != other)[0]
    place = f"({'m' if case['operand'] == 'A' else 'n'}, k) = ({row}, {column})"
    return f"{place}: card reads {one[row, column]:#x}, ours {other[row, column]:#x} for {case}"


WGMMA = Suite(
    "wgmma", "shared addresses that descriptors make wgmma read", _draw, _predict, _run, _differs, ("tensor_cores",),
    feature="wgmma",
)  # fmt: skip
TCGEN05 = Suite(
    "tcgen05", "shared addresses that descriptors make tcgen05.mma read", _draw, _predict, _run, _differs,
    ("tensor_memory",), feature="tcgen05", together=100,
)  # fmt: skip
