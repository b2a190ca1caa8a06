"""What a copy refuses, and that it says why: the rule, the value, the fix."""

import re

import numpy as np
import pytest

import tilescope as ts

MATRIX = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
TILED = ts.TensorMap.from_array(MATRIX, (8, 64), swizzle="128B", address=0)
IMAGES = ts.Im2colMap(
    "f16",
    (64, 8, 8, 2),
    (128, 1024, 8192),
    lower_corner=(-1, -1),
    upper_corner=(-1, -1),
    channels_per_pixel=64,
    pixels_per_column=32,
)
WIDE = ts.Im2colWideMap(
    "f16", (64, 8, 8, 2), (128, 1024, 8192), lower_width=0, upper_width=0, channels_per_pixel=64, pixels_per_column=32
)
ROWS4 = TILED.with_fields(box=(64, 1), arch="sm_100")
PLAIN_IMAGES = IMAGES.with_fields(lower_corner=(0, 0), upper_corner=(0, 0))
ATOMS = TILED.with_fields(swizzle="128B_ATOM_32B", arch="sm_120")
WIDE_120 = WIDE.with_fields(arch="sm_120")
SMEM = np.zeros(1024, np.uint8)


def only_readable(array):
    array = array.copy()
    array.flags.writeable = False
    return array


ILLEGAL = {
    "inner-coordinate": lambda: ts.load(TILED, MATRIX, (4, 0)),
    "store-coords": lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, -1)),
    "reduce-type": lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, 0), reduce="add"),
    "im2col-base": lambda: ts.load(IMAGES, MATRIX, (0, -2, 0, 0)),
    "im2col-store": lambda: ts.store(IMAGES, SMEM, MATRIX.copy(), (0, 0, 0, 0)),
    "gather-map": lambda: ts.gather4(TILED, MATRIX, 0, (0, 1, 2, 3)),
    "wide-base": lambda: ts.load(WIDE, MATRIX, (0, 8, 0, 0)),
}


@pytest.mark.parametrize("rule", ILLEGAL)
def test_what_the_chip_refuses_is_an_illegal_instruction(rule):
    with pytest.raises(ts.IllegalInstructionError, match=r"\nThe.*715") as refused:
        ILLEGAL[rule]()
    assert rule in [violation.rule for violation in refused.value.violations]
    assert refused.value.code == ts.RULES[rule].code == 715


def test_the_corners_of_a_store_are_values_by_their_names():
    with pytest.raises(ts.IllegalInstructionError) as refused:
        ILLEGAL["im2col-store"]()
    (found,) = [each for each in refused.value.violations if each.rule == "im2col-store"]
    assert dict(found.values)["lower_corner"] == IMAGES.lower_corner
    assert dict(found.values)["upper_corner"] == IMAGES.upper_corner


@pytest.mark.parametrize("offset", range(1, 128))
def test_a_shared_address_off_128_bytes_is_misaligned(offset):
    """An H200: offsets 1 to 112, loads and stores, swizzled or not, 360 random cases, all error 716."""
    for tensor_map in (TILED, TILED.with_fields(swizzle="128B")):
        for copy in (
            lambda a=tensor_map: ts.load(a, MATRIX, (0, 0), smem_address=offset),
            lambda a=tensor_map: ts.store(a, SMEM, MATRIX.copy(), (0, 0), smem_address=offset),
        ):
            with pytest.raises(ts.MisalignedAddressError, match="error 716, misaligned address") as refused:
                copy()
            assert refused.value.code == ts.RULES["smem-address"].code == 716


@pytest.mark.parametrize("rule", ["inner-coordinate", "store-coords", "reduce-type"])
def test_the_chip_answers_715_where_both_faults_apply(rule):
    """As an H200 does in the 360 random cases."""
    copy = {
        "inner-coordinate": lambda: ts.load(TILED, MATRIX, (4, 0), smem_address=64),
        "store-coords": lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, -1), smem_address=64),
        "reduce-type": lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, 0), reduce="add", smem_address=64),
    }[rule]
    with pytest.raises(ts.FaultError) as refused:
        copy()
    assert refused.value.code == 715
    assert {each.rule for each in refused.value.violations} == {rule, "smem-address"}


@pytest.mark.parametrize("direction", ["load", "store"])
@pytest.mark.parametrize("place", [1 << 31, (1 << 31) - 1, -(1 << 31) - 1, -4, -12, 4])
def test_every_coordinate_that_a_fix_names_works(place, direction):
    with pytest.raises(ts.RuleError) as refused:
        ts.trace(TILED, (place, 0), operation=direction)
    for found in refused.value.violations:
        for named in re.findall(r"-?\d+", found.fix):
            ts.trace(TILED, (int(named), 0), operation=direction)


REFUSED = {
    "too many coordinates": ("coords-rank", "coords", lambda: ts.load(TILED, MATRIX, (0, 0, 0))),
    "a far filter tap": (
        "offsets-range",
        "offsets[0]",
        lambda: ts.load(IMAGES, MATRIX, (0, 0, 0, 0), offsets=(256, 0)),
    ),
    "a map": ("argument-type", "tensor_map", lambda: ts.load("map", MATRIX, (0, 0))),
    "coordinates that are none": ("argument-type", "coords", lambda: ts.load(TILED, MATRIX, "00")),
    "a fraction": ("argument-type", "coords[1]", lambda: ts.load(TILED, MATRIX, (0, 0.5))),
    "a far coordinate": ("coords-range", "coords[1]", lambda: ts.load(TILED, MATRIX, (0, 1 << 31))),
    "a negative address": ("argument-range", "smem_address", lambda: ts.load(TILED, MATRIX, (0, 0), smem_address=-128)),
    "an unknown reduction": (
        "unknown-name",
        "reduce",
        lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, 0), reduce="sub"),
    ),
    "a reduction of no name": (
        "unknown-name",
        "reduce",
        lambda: ts.store(TILED, SMEM, MATRIX.copy(), (0, 0), reduce=["add"]),
    ),
    "a store through a wide map": (
        "wide-store",
        "tensor_map",
        lambda: ts.store(WIDE, SMEM, MATRIX.copy(), (0, 0, 0, 0)),
    ),
    "a list as memory": ("argument-type", "memory", lambda: ts.load(TILED, [1, 2, 3], (0, 0))),
    "objects as memory": ("argument-type", "memory", lambda: ts.load(TILED, np.array([None]), (0, 0))),
    "strided memory": ("argument-type", "memory", lambda: ts.load(TILED, MATRIX[:, ::2], (0, 0))),
    "strided target": ("argument-type", "memory", lambda: ts.store(TILED, SMEM, MATRIX.copy()[::2], (0, 0))),
    "a read-only target": ("argument-type", "memory", lambda: ts.store(TILED, SMEM, only_readable(MATRIX), (0, 0))),
    "bytes as target": ("argument-type", "smem", lambda: ts.load(TILED, MATRIX, (0, 0), smem=bytes(1024))),
    "a read-only smem": ("argument-type", "smem", lambda: ts.load(TILED, MATRIX, (0, 0), smem=only_readable(SMEM))),
    "a short smem": ("smem-extent", "smem", lambda: ts.load(TILED, MATRIX, (0, 0), smem=np.zeros(1023, np.uint8))),
    "a short smem to store": ("smem-extent", "smem", lambda: ts.store(TILED, SMEM[:-1], MATRIX.copy(), (0, 0))),
    "short memory": ("memory-extent", "memory", lambda: ts.load(TILED, MATRIX[:10], (0, 8))),
    "short memory left of the tensor": (
        "memory-extent",
        "memory",
        lambda: ts.load(ts.TensorMap("f16", (64,), (), (64,)), np.zeros(111, np.uint8), (-8,)),  # 112 are touched
    ),
    "short memory to store": ("memory-extent", "memory", lambda: ts.store(TILED, SMEM, MATRIX[:10].copy(), (0, 8))),
    "an empty mask": (
        "cta-mask",
        "cta_mask",
        lambda: ts.load_multicast(TILED, MATRIX, (0, 0), [SMEM.copy()], cta_mask=0),
    ),
    "three rows to gather": ("coords-rank", "rows", lambda: ts.gather4(ROWS4, MATRIX, 0, (0, 1, 2))),
    "a filter tap of a store": (
        "offsets-range",
        "offsets",
        lambda: ts.trace(PLAIN_IMAGES, (0, 0, 0, 0), offsets=(3, 2), operation="store"),
    ),
    "an atom to a cluster": (
        "cluster-copy",
        "swizzle",
        lambda: ts.load_multicast(ATOMS, MATRIX, (0, 0), [SMEM.copy()], cta_mask=1),
    ),
    "a wide column to a cluster": (
        "cluster-copy",
        "tensor_map",
        lambda: ts.load_multicast(WIDE_120, MATRIX, (0, 0, 0, 0), [SMEM.copy()], cta_mask=1),
    ),
    "a short block": (
        "smem-extent",
        "smems[1]",
        lambda: ts.load_multicast(TILED, MATRIX, (0, 0), [SMEM.copy(), SMEM[:-1].copy()], cta_mask=3),
    ),
    "a mask of others": (
        "cta-mask",
        "cta_mask",
        lambda: ts.load_multicast(TILED, MATRIX, (0, 0), [SMEM.copy()], cta_mask=2),
    ),
    "an operation": ("unknown-name", "operation", lambda: ts.trace(TILED, (0, 0), operation="loud")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_mistakes_are_named_with_rule_argument_and_fix(name):
    rule, argument, call = REFUSED[name]
    with pytest.raises(ts.RuleError) as refused:
        call()
    (violation,) = refused.value.violations
    assert (violation.rule, violation.argument) == (rule, argument)
    assert violation.fix


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ts.RuleError) as refused:
        ts.load(TILED, MATRIX, (0, 1 << 40), smem_address="x", offsets=1.5)
    assert [violation.argument for violation in refused.value.violations] == ["smem_address", "offsets", "coords[1]"]


def test_missing_memory_names_the_byte_its_coordinates_and_the_bytes_needed():
    message = re.escape("byte 0x500 of the tensor (coordinates (0")
    with pytest.raises(ts.RuleError, match=message) as refused:
        ts.load(TILED, MATRIX[:10], (0, 8))
    assert "at least 2048 bytes" in refused.value.violations[0].fix
    assert np.array_equal(ts.load(TILED, MATRIX[:16], (0, 8)), ts.load(TILED, MATRIX, (0, 8)))


def test_filled_elements_need_no_memory():
    assert not ts.load(TILED, np.zeros(0, np.uint8), (0, 64)).any()
    assert not ts.load(TILED, np.zeros(0, np.uint8), (-64, 0)).any()


def test_a_huge_tensor_needs_only_the_bytes_that_are_touched():
    huge = ts.TensorMap("u8", (1 << 20, 1 << 31), (1 << 20,), (64, 2))
    memory = np.arange(1 << 21, dtype=np.uint32).view(np.uint8)
    found = ts.load(huge, memory, (128, 5))
    assert np.array_equal(found[:64], memory[(5 << 20) + 128 :][:64])
    with pytest.raises(ts.RuleError, match=re.escape("(coordinates (0, 2147483646))")):
        ts.load(huge, memory, (0, (1 << 31) - 2))
    beyond = ts.TensorMap("u64", (1 << 32, 1 << 32, 1 << 32), ((1 << 40) - 16, (1 << 40) - 16), (2, 1, 1))
    with pytest.raises(ts.RuleError, match=f"byte {2 * ((1 << 31) - 1) * ((1 << 40) - 16):#x}"):
        ts.load(beyond, memory, (0, (1 << 31) - 1, (1 << 31) - 1))


def test_a_store_refuses_to_overrun_the_array():
    tensor = np.zeros(20, np.uint8)  # one row of 20 bytes: the store would write 32
    a = ts.TensorMap("u8", (20,), (), (32,))
    with pytest.raises(ts.RuleError, match="behind the row's end") as refused:
        ts.store(a, SMEM, tensor, (0,))
    assert "at least 32 bytes" in refused.value.violations[0].fix
    padded = np.zeros(32, np.uint8)
    assert ts.store(a, np.full(32, 7, np.uint8), padded, (0,)).tolist() == [7] * 32


@pytest.mark.parametrize(
    "second", [only_readable(SMEM), SMEM[:-1].copy(), SMEM[:0].copy(), np.zeros(4096, np.uint8)[::2], None]
)
def test_a_refused_multicast_writes_nothing_and_names_the_block(second):
    blocks = [np.zeros(1024, np.uint8), second]
    with pytest.raises(ts.RuleError) as refused:
        ts.load_multicast(TILED, MATRIX, (0, 8), blocks, cta_mask=3)
    assert refused.value.violations[0].argument == "smems[1]"
    assert not blocks[0].any()
    assert ts.load_multicast(TILED, MATRIX, (0, 8), blocks, cta_mask=1)[
        0
    ].any()  # a block that receives nothing may be anything


def test_a_multicast_leaves_the_box_at_the_same_place_of_each_named_block():
    blocks = [np.full(2048, 0xEE, np.uint8) for _ in range(4)]
    found = ts.load_multicast(TILED, MATRIX, (0, 8), blocks, cta_mask=0b1010, smem_address=0x80)
    wanted = ts.load(TILED, MATRIX, (0, 8), smem=np.full(2048, 0xEE, np.uint8), smem_address=0x80)
    assert all(one is other for one, other in zip(found, blocks, strict=True))
    assert [np.array_equal(block, wanted) for block in blocks] == [False, True, False, True]
    assert (blocks[0] == 0xEE).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64, "V3"])
def test_any_contiguous_array_is_memory(dtype):
    size = np.dtype(dtype).itemsize
    raw = MATRIX.view(np.uint8).reshape(-1)
    memory = raw[: len(raw) // size * size].view(dtype)
    smem = np.zeros(1024 // size * size + 2 * size, np.uint8).view(dtype)
    assert ts.load(TILED, memory, (0, 8), smem=smem) is smem
    assert np.array_equal(smem.view(np.uint8)[:1024], ts.load(TILED, MATRIX, (0, 8)))
    assert np.array_equal(ts.load(TILED, raw.tobytes(), (0, 8)), ts.load(TILED, MATRIX, (0, 8)))
    shifted = np.zeros(len(raw) + 1, np.uint8)[1:]
    shifted[:] = raw
    assert np.array_equal(ts.load(TILED, shifted, (0, 8)), ts.load(TILED, MATRIX, (0, 8)))
