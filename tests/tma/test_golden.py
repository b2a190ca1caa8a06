"""Every recorded copy of an H200, byte for byte: loads with their gaps and barrier counts, stores, reductions, refusals."""

from pathlib import Path

import numpy as np
import pytest

import tilescope as ts

GOLDEN = Path(__file__).parent.parent / "golden"
TYPES = (
    "uint8",
    "uint16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float32_ftz",
    "tfloat32",
    "tfloat32_ftz",
)
SWIZZLES = ("none", "32B", "64B", "128B")
INTERLEAVES = ("none", "16B", "32B")
UNTOUCHED = 0xEE
DEVICE_ADDRESS = 1 << 30  # any; the card's own was not recorded


def splitmix_bytes(seed, count):
    index = np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        word = (np.uint64(seed) << np.uint64(32)) + index * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (word ^ (word >> np.uint64(31))).view(np.uint8)[:count].copy()


def recorded(name):
    with np.load(GOLDEN / name) as file:
        return {key: file[key] for key in file.files}


def arguments(cases, i, address):
    rank = int(cases["rank"][i])
    common = {
        "data_type": TYPES[cases["data_type"][i]],
        "dims": cases["dims"][i][:rank].tolist(),
        "strides_bytes": cases["strides_bytes"][i][: rank - 1].tolist(),
        "element_strides": cases["element_strides"][i][:rank].tolist(),
        "interleave": INTERLEAVES[cases["interleave"][i]],
        "swizzle": SWIZZLES[cases["swizzle"][i]],
        "oob_fill": ("zero", "nan")[cases["oob_fill"][i]],
        "address": address,
    }
    if "box" in cases:
        return ts.TensorMap(**common, box=cases["box"][i][:rank].tolist())
    return ts.Im2colMap(
        **common,
        lower_corner=cases["lower_corner"][i][: rank - 2].tolist(),
        upper_corner=cases["upper_corner"][i][: rank - 2].tolist(),
        channels_per_pixel=int(cases["channels_per_pixel"][i]),
        pixels_per_column=int(cases["pixels_per_column"][i]),
    )


def first_difference(found, wanted):
    """None, or the first wrong byte with its line and chunk, both values, and how many differ."""
    wrong = np.flatnonzero(found != wanted)
    if not len(wrong):
        return None
    at = int(wrong[0])
    return (
        f"byte {at:#x} (line {at // 128}, chunk {at % 128 // 16}): {found[at]:#04x} instead of {wanted[at]:#04x}; "
        f"{len(wrong)} bytes differ"
    )


@pytest.mark.parametrize("name", ["tma_loads.npz", "tma_im2col_loads.npz", "tma_im2col_interleaved_loads.npz"])
def test_loads_leave_in_shared_memory_what_the_card_left(name):
    cases = recorded(name)
    source = splitmix_bytes(1, 1 << 20)
    ends = np.cumsum(cases["smem_bytes"].astype(np.int64))
    arrived = 0
    for i, (end, length) in enumerate(zip(ends.tolist(), cases["smem_bytes"].tolist(), strict=True)):
        offset, rank = int(cases["source_offset"][i]), int(cases["rank"][i])
        a = arguments(cases, i, DEVICE_ADDRESS + offset)
        options = {"smem_address": int(cases["smem_address"][i])}
        if "im2col_offsets" in cases:
            options["offsets"] = cases["im2col_offsets"][i][: rank - 2].tolist()
        coords = cases["coords"][i][:rank].tolist()
        smem = np.full(max(length, a.smem_bytes) + 1024, UNTOUCHED, np.uint8)
        if cases["status"][i] != 1:
            with pytest.raises(ts.IllegalInstructionError):
                ts.load(a, source[offset:], coords, smem=smem, **options)
            continue
        arrived += 1
        assert ts.load(a, source[offset:], coords, smem=smem, **options) is smem
        wanted = np.full_like(smem, UNTOUCHED)
        wanted[:length] = cases["smem"][end - length : end]
        assert first_difference(smem, wanted) is None, (i, a, coords)
        traced = ts.trace(a, coords, **options)
        assert a.transaction_bytes == cases["transaction_bytes"][i] == traced.transaction_bytes, (i, a)
    assert arrived > len(ends) // 2


def test_stores_and_reductions_leave_in_memory_what_the_card_left():
    cases = recorded("tma_stores.npz")
    names = cases.pop("operations").tolist()
    windows = cases["tensor_bytes"].astype(np.int64) + 256
    ends = np.cumsum(windows)
    longest = int((cases["memory_offset"] + windows).max())
    before = {seed: splitmix_bytes(seed, longest) for seed in set(cases["memory_seed"].tolist())}
    seen = set()
    for i, (end, length) in enumerate(zip(ends.tolist(), windows.tolist(), strict=True)):
        offset, rank = int(cases["memory_offset"][i]), int(cases["rank"][i])
        a = arguments(cases, i, DEVICE_ADDRESS + offset)
        operation = names[cases["operation"][i]]
        smem_address = int(cases["smem_address"][i])
        smem = splitmix_bytes(int(cases["smem_seed"][i]), int(cases["smem_bytes"][i]))[smem_address:]
        memory = before[int(cases["memory_seed"][i])][offset : offset + length].copy()
        wanted = memory ^ cases["memory_change"][end - length : end]
        coords = cases["coords"][i][:rank].tolist()
        reduce = None if operation == "store" else operation
        assert ts.store(a, smem, memory, coords, reduce=reduce, smem_address=smem_address) is memory
        assert first_difference(memory, wanted) is None, (i, operation, a, coords)
        seen.add(operation)
    assert seen == set(names)
