"""wgmma: the shared addresses that the tensor core reads for random 64-bit descriptors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.gpu.device import Device
from tilescope.gpu.suite import Case, Outcome, Suite
from tilescope.mma.fragment import fragment
from tilescope.mma.wgmma import WgmmaDescriptor

ROWS = 64  # of A; columns of B
READ_BYTES = 1 << 16  # shared memory that a descriptor may point into
_K_BYTES = 32
_UNIT_BYTES = ROWS * _K_BYTES
_PASSES = 4
_DIGITS = 16
_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")
_STRANGE = 0xFFFF  # where the card gave no digit at all


def _draw(random: random.Random, _arch: str) -> Case:
    while True:
        data_type = random.choice(_TYPES)
        case = {
            "data_type": data_type,
            "operand": random.choice("AB"),
            "major": random.choice(("K", "MN")) if data_type in ("bf16", "f16") else "K",
            "swizzle": random.choice(("none", "32B", "64B", "128B")),
            "start_address": 16 * random.randrange(1 << random.randint(0, 12)),
            "leading_bytes": 16 * random.randrange(1 << random.randint(1, 11)),
            "stride_bytes": 16 * random.randrange(1 << random.randint(1, 10)),
            "base_offset": random.choice((0, 0, 0, random.randrange(8))),
        }
        if case["swizzle"] == "none":
            case["base_offset"] = 0
        addresses = _addresses(case)
        if addresses.min() >= 0 and addresses.max() < READ_BYTES:
            return case


def _descriptor(case: Case) -> WgmmaDescriptor:
    names = ("leading_bytes", "stride_bytes", "swizzle", "base_offset")
    return WgmmaDescriptor(case["start_address"], **{name: case[name] for name in names})


def _addresses(case: Case) -> npt.NDArray[np.int64]:
    bits = DataType.named(case["data_type"]).bits
    return _descriptor(case).addresses(major=case["major"], rows=ROWS, k=_K_BYTES * 8 // bits, element_bits=bits)


def _predict(case: Case) -> Outcome:
    return Outcome(_addresses(case).astype("<u2").tobytes())


def _run(device: Device, cases: list[Case]) -> list[bytes]:
    results: dict[int, bytes] = {}
    kernels: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        is_mn = [int(case["major"] == "MN" and case["operand"] == operand) for operand in "AB"]
        kernels.setdefault("addresses_{}_{}{}".format(case["data_type"], *is_mn), []).append(number)
    for kernel, numbers in kernels.items():
        found = _batch(device, kernel, [cases[number] for number in numbers])
        results |= dict(zip(numbers, found, strict=True))
    return [results[number] for number in range(len(cases))]


def _batch(device: Device, kernel: str, cases: list[Case]) -> list[bytes]:
    name = cases[0]["data_type"]
    row = DataType.named(name)
    k = _K_BYTES * 8 // row.bits
    digits = _digits(row)
    out = device.allocate(len(cases) * _PASSES * 128 * 32 * 4)
    device.launch(
        f"tensor_cores:{kernel}",
        device.upload(np.array([_descriptor(case).encode() for case in cases], np.uint64)),
        device.upload(np.array([case["operand"] == "B" for case in cases], np.int32)),
        device.upload(digits.view(np.uint8)), device.upload(core_matrices(np.eye(ROWS, k).astype(row.numpy))),
        np.int32(_UNIT_BYTES), out, blocks=len(cases), threads=128, smem_bytes=READ_BYTES + _UNIT_BYTES,
    )  # fmt: skip
    is_integer = name in ("s8", "u8")
    words = device.download(out, (len(cases), _PASSES, 128, 32), "<i4" if is_integer else "<f4")
    held = fragment(f"wgmma.m64n64k{k}", "D", "s32" if is_integer else "f32").indices()
    known = digits.astype(np.float64)
    results = []
    for case, found in zip(cases, words, strict=True):
        product = np.empty((_PASSES, ROWS, ROWS))
        product[:, held[1], held[2]] = found
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
    one, other = (np.frombuffer(each, "<u2").reshape(ROWS, -1) for each in (found, expected))
    row, k = np.argwhere(one != other)[0]
    place = f"({'m' if case['operand'] == 'A' else 'n'}, k) = ({row}, {k})"
    return f"{place}: card reads {one[row, k]:#x}, ours {other[row, k]:#x} for {case}"


WGMMA = Suite(
    "wgmma", "shared addresses that descriptors make wgmma read", _draw, _predict, _run, _differs, ("tensor_cores",),
    feature="wgmma",
)  # fmt: skip
