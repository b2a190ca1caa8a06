"""What an H200 did in the corners: all reductions by type, im2col stores, base pixels outside the box, multicast."""

import hashlib
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.tma.request import taken_offsets

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "further_copies.npz")
CASES = json.loads(GOLDEN["cases"].tobytes())
MEMORY_BYTES, SMEM_BYTES, TENSOR_OFFSET = 1 << 18, 47104, 4096
SPECIAL = {
    16: [
        0,
        0x8000,
        0x7C00,
        0xFC00,
        0x7E00,
        0x7FFF,
        0xFFFF,
        1,
        0x8001,
        0x7F80,
        0xFF80,
        0x7FC0,
        0x7F81,
        0x3C00,
        0xBC00,
        0x3F80,
        0x0400,
        0x7BFF,
        0x7F7F,
    ],
    32: [
        0,
        1 << 31,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x7FFFFFFF,
        0xFFFFFFFF,
        1,
        (1 << 31) + 1,
        0x7F800001,
        0x3F800000,
        0x00800000,
        0x007FFFFF,
        0x7F7FFFFF,
    ],
    64: [
        0,
        1 << 63,
        0x7FF0 << 48,
        0xFFF0 << 48,
        0x7FF8 << 48,
        (1 << 63) - 1,
        (1 << 64) - 1,
        1,
        (1 << 63) + 1,
        0x7FF0000000000001,
        0x3FF0 << 48,
    ],
}


def sample_bytes(seed, length, data_type):
    """SplitMix64 bytes; for floats, a third of the elements are zeros, infinities, NaNs, denormals and the like."""
    with np.errstate(over="ignore"):
        z = (np.uint64(seed) << np.uint64(32)) + np.arange(1, length // 8 + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        data = (z ^ (z >> np.uint64(31))).view(np.uint8)
    row = ts.DataType.named(data_type)
    if row.is_float:
        words = data.view(f"u{row.bits // 8}")
        generator = np.random.default_rng(seed)
        chosen = generator.random(words.size) < 0.35
        values = np.array(SPECIAL[row.bits], words.dtype)
        words[chosen] = values[generator.integers(0, len(values), chosen.sum())]
    return data


def map_of(case):
    common = ("data_type", "dims", "strides_bytes", "element_strides", "interleave", "swizzle")
    im2col = ("lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column")
    if "box" in case:
        return ts.TensorMap(**{name: case[name] for name in (*common, "box")}, address=TENSOR_OFFSET)
    return ts.Im2colMap(**{name: case[name] for name in (*common, *im2col)}, address=TENSOR_OFFSET)


def memory_after(case):
    """What the emulator leaves: global memory of stores, shared memory of loads."""
    tensor_map = map_of(case)
    memory = sample_bytes(case["seed"], MEMORY_BYTES, case["data_type"])
    start = case["smem_offset"]
    if case["operation"] in ("reduce", "im2col_store", "im2col_reduce"):
        smem = sample_bytes(case["seed"] + 5000, 65536, case["data_type"])[start:SMEM_BYTES]
        ts.store(tensor_map, smem, memory[TENSOR_OFFSET:], case["coords"], reduce=case["reduce"], smem_address=start)
        return memory
    if case["operation"] == "multicast":
        blocks = [np.full(SMEM_BYTES, 0xEE, np.uint8) for _ in range(2)]
        ts.load_multicast(tensor_map, memory[TENSOR_OFFSET:], case["coords"], blocks, cta_mask=case["cta_mask"])
        return np.concatenate(blocks)
    smem = np.full(SMEM_BYTES, 0xEE, np.uint8)
    ts.load(
        tensor_map,
        memory[TENSOR_OFFSET:],
        case["coords"],
        offsets=case["offsets"],
        smem=smem[start:],
        smem_address=start,
    )
    return smem


@pytest.mark.thinned(4)
@pytest.mark.parametrize("index", range(len(CASES)))
def test_equals_the_card(index):
    case = CASES[index]
    if not case["executed"]:
        with pytest.raises(ts.IllegalInstructionError):
            memory_after(case)
        return
    end = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}[len(case["dims"])] if "offsets" in case else None
    if end is not None and max(case["offsets"]) >= end:
        with pytest.raises(ts.RuleError, match="offsets-range") as refused:
            memory_after(case)
        assert not isinstance(refused.value, ts.IllegalInstructionError)  # the chip wraps them round instead
        return
    digest = hashlib.blake2b(memory_after(case).tobytes(), digest_size=16).digest()
    assert digest == GOLDEN["digest"][index].tobytes()


def has_wide_offset(case):
    ends = {3: 1 << 16, 4: 1 << 8, 5: 1 << 5}
    return case["executed"] and max(case.get("offsets", [0])) >= ends[len(case["dims"])]


@pytest.mark.parametrize(
    "index", [index for index, case in enumerate(CASES) if "offsets" in case and has_wide_offset(case)]
)
def test_offsets_that_are_too_large_are_taken_as_the_card_takes_them(index):
    case = CASES[index]
    taken = taken_offsets(len(case["dims"]), tuple(case["offsets"]))
    digest = hashlib.blake2b(memory_after(case | {"offsets": taken}).tobytes(), digest_size=16).digest()
    assert digest == GOLDEN["digest"][index].tobytes()


def test_all_pairs_of_reduction_and_type_were_tried():
    tried = Counter((case["reduce"], case["data_type"]) for case in CASES[:104])
    assert len(tried) == 8 * 13
    for operation, data_type in tried:
        executed = next(c["executed"] for c in CASES if (c["reduce"], c["data_type"]) == (operation, data_type))
        assert executed == (data_type in ts.tensor_map.REDUCTIONS[operation])
