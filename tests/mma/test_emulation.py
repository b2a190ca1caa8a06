"""The product that comes out of TMA, shared memory and tensor core equals numpy's, whatever the layout."""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope import emulate_mma
from tilescope.mma.consumer import WgmmaLoop

XOR_16 = ("none", "32B", "64B", "128B")
BOTH = ("K", "MN")
# (consumer, type): the layouts of A and B that exist
LAYOUTS = {
    **{("wgmma", name): {"K": XOR_16, "MN": XOR_16} for name in ("bf16", "f16")},
    **{("wgmma", name): {"K": XOR_16} for name in ("tf32", "e4m3", "e5m2", "s8", "u8")},
    **{("tcgen05", name): {"K": XOR_16, "MN": XOR_16} for name in ("bf16", "f16", "e4m3", "e5m2", "s8", "u8")},
    ("tcgen05", "tf32"): {"K": XOR_16, "MN": ("128B_ATOM_32B",)},
    ("tcgen05", "e2m1"): {"K": XOR_16},
    ("tcgen05", "e2m3"): {"K": ("128B",)},
    ("tcgen05", "e3m2"): {"K": ("128B",)},
    **{("ldmatrix", name): {"K": XOR_16, "MN": XOR_16} for name in ("bf16", "f16")},
    **{("ldmatrix", name): {"K": XOR_16} for name in ("tf32", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "e2m1")},
    ("ldmatrix", "e2m3"): {"K": ("128B",)},
    ("ldmatrix", "e3m2"): {"K": ("128B",)},
}
SMALLEST_M = {"wgmma": 64, "tcgen05": 64, "ldmatrix": 16}


def operand_layouts(key):
    return [(major, swizzle) for major, swizzles in LAYOUTS[key].items() for swizzle in swizzles]


def atom(data_type, major, swizzle):
    return ts.canonical_layout(major, swizzle, data_type).atom


def up(number, *multiples):
    return -(-number // np.lcm.reduce(multiples)) * int(np.lcm.reduce(multiples))


def shapes(key, a, b, size):
    """m, n, k of about this size that the layouts and the instruction have."""
    consumer, data_type = key
    (a_mn, a_k), (b_mn, b_k) = atom(data_type, *a), atom(data_type, *b)
    m, n, k_bytes = size
    row = ts.DataType.named(data_type)
    smallest_m = 128 if key == ("tcgen05", "e2m1") else SMALLEST_M[consumer]
    padded = 128 if row.bits < row.smem_bits else 1
    return (
        up(m, smallest_m, a_mn),
        up(n, 8, b_mn),
        up(k_bytes * 8 // row.smem_bits, 256 // row.smem_bits, a_k, b_k, padded),
    )


def numbers(data_type, shape, seed):
    row = ts.DataType.named(data_type)
    span = {"e2m1": 1, "e2m3": 2, "e3m2": 2, "int4": 3, "uint4": 3}.get(row.name, 5)
    return np.random.default_rng(seed).integers(0 if row.name.startswith("u") else -span, span + 1, shape)


class Product(NamedTuple):
    key: tuple[str, str]  # consumer and type
    a: tuple[str, str]  # majorness and swizzle
    b: tuple[str, str]
    size: tuple[int, int, int]
    order: str
    address: int


def assert_equals_numpy(product, seed=0):
    consumer, data_type = product.key
    a_major, a_swizzle = product.a
    b_major, b_swizzle = product.b
    m, n, k = shapes(product.key, product.a, product.b, product.size)
    one = numbers(data_type, (m, k), seed)
    other = numbers(data_type, (k, n), seed + 1)
    found = emulate_mma(
        one,
        other,
        data_type=data_type,
        consumer=consumer,
        major=(a_major, b_major),
        swizzle=(a_swizzle, b_swizzle),
        atom_order=product.order,
        smem_address=product.address,
    )
    wrong = np.argwhere(found != one @ other)
    assert not wrong.size, f"{len(wrong)} of {found.size} differ, first {tuple(wrong[0])}"
    assert found.shape == (m, n)
    assert found.dtype == (np.float32 if ts.DataType.named(data_type).is_float else np.int32)


SIZES = ((16, 8, 32), (64, 24, 96), (192, 72, 256))
ALL = [
    Product(key, a, b, size, order, address)
    for key in LAYOUTS
    for a, b in itertools.product(operand_layouts(key), repeat=2)
    for size in SIZES
    for order in ("column", "row")
    for address in (0, 0x480)
]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("key", LAYOUTS, ids="-".join)
def test_the_product_is_numpys_in_every_combination(key):
    for product in ALL:
        if product.key == key:
            assert_equals_numpy(product)


@pytest.mark.parametrize("key", LAYOUTS, ids="-".join)
def test_the_product_is_numpys_in_every_layout(key):
    for number, layout in enumerate(operand_layouts(key)):
        other = operand_layouts(key)[-1 - number]
        order = ("column", "row")[number % 2]
        address = (0x480, 0, 0x3F80)[number % 3]
        assert_equals_numpy(Product(key, layout, other, SIZES[1], order, address), number)


@given(product=st.sampled_from(ALL), seed=st.integers(0, 99))
def test_the_product_is_numpys_in_a_sample_of_combinations(product, seed):
    assert_equals_numpy(product, seed)


def test_types_come_from_the_arrays():
    a = np.arange(64 * 64).reshape(64, 64) % 7 - 3
    for dtype in (np.float16, ts.DataType.named("bf16").numpy, ts.DataType.named("e4m3").numpy):
        swizzle = "64B" if np.dtype(dtype).itemsize == 1 else "128B"
        found = emulate_mma(a.astype(dtype), a.T.astype(dtype), swizzle=swizzle)
        assert (found == a @ a.T).all()


def test_tf32_rounds_as_tma_does():
    a = np.full((64, 32), 1 + 2.0**-11 + 2.0**-12, np.float32)  # rounds up to 1 + 2^-10
    identity = np.eye(32, 8, dtype=np.float32)
    assert (emulate_mma(a, identity, data_type="tf32") == np.float32(1 + 2.0**-10)).all()


def test_a_descriptor_that_reads_elsewhere_gives_another_product(monkeypatch):
    whole = WgmmaLoop.addresses
    monkeypatch.setattr(WgmmaLoop, "addresses", lambda loop: whole(loop) ^ (0x20 if loop.operand == "A" else 0))
    a = np.arange(64 * 64).reshape(64, 64) % 7
    assert (emulate_mma(a, a.T, data_type="bf16") != a @ a.T).any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"consumer": "wmma"}, "known: wgmma, tcgen05, ldmatrix"),
        ({"a": np.zeros((64, 32))}, "with one k"),
        ({"a": np.zeros(64)}, "two dimensions"),
        ({"a": "matrix"}, "numbers that bfloat16 can hold"),
        ({"a": [[1, 2], [3]], "data_type": None}, "rows of different lengths"),
        ({"a": np.zeros((0, 64))}, "two dimensions"),
        ({"a": np.zeros((60, 64))}, "whole number of them"),
        ({"a": np.zeros((8, 64))}, "multiples of 64"),
        ({"data_type": "f32"}, "wgmma multiplies"),
        ({"data_type": "tf32", "major": ("K", "MN")}, "MN-major 128B with elements of 16 bits"),
        ({"data_type": "b1"}, "no numpy or ml_dtypes type"),
        ({"smem_address": 64}, "multiples of 128"),
        ({"smem_address": None}, "smem_address is an integer"),
        ({"swizzle": "96B"}, "tensor cores read"),
        ({"swizzle": ("128B", "64B", "32B")}, "known: none"),
        ({"major": ("row", "K")}, "known: K, MN"),
        ({"atom_order": "diagonal"}, "column"),
        (
            {"consumer": "ldmatrix", "data_type": "s8", "major": ("K", "MN"), "swizzle": "64B"},
            "MN-major those of 16 bits alone",
        ),
        ({"consumer": "ldmatrix", "a": np.zeros((8, 64))}, "blocks of 16 x 16"),
    ],
)
def test_refuses_what_the_path_does_not_have(changed, message):
    sound = {"a": np.zeros((64, 64)), "b": np.zeros((64, 64)), "data_type": "bf16"}
    with pytest.raises(ts.RuleError, match=message):
        emulate_mma(**(sound | changed))


PRINTED = "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"  # as CuTe prints a K-major 128B tile


@pytest.mark.parametrize("consumer", ["wgmma", "tcgen05", "ldmatrix"])
def test_operands_lie_where_layouts_say(consumer):
    """Parsed, planned, canonical and constructed layouts, staged ones too; every one brings the same product."""
    random = np.random.default_rng(3)
    a, b = random.integers(-4, 5, (64, 64)), random.integers(-4, 5, (64, 64))
    staged = ts.Layout.from_modes(((64, 64, 3), (64, 1, 4096)), 16, swizzle="128B")
    planned = ts.plan((64, 64), "bf16", consumer=consumer, arch="sm_100" if consumer == "tcgen05" else "sm_90").best
    tiles = [
        ts.parse_layout(PRINTED),
        planned.layout,
        ts.canonical_layout("MN", "64B", "bf16").tile((64, 64), atom_order="row", start=0x1200),
        staged,
    ]
    for one, other in itertools.product(tiles, repeat=2):
        d = emulate_mma(a, b, data_type="bf16", consumer=consumer, layout=(one, other))
        assert (d == a @ b).all(), (one, other)


def test_ldmatrix_reads_tiles_that_threads_padded():
    a, b = np.random.default_rng(4).integers(-4, 5, (2, 32, 32))
    padded = ts.Layout((32, 32), 16, padding_bytes=16)
    assert (emulate_mma(a, b, data_type="bf16", consumer="ldmatrix", layout=padded) == a @ b).all()
    with pytest.raises(ts.RuleError, match="descriptor-layout"):
        emulate_mma(np.eye(64), np.eye(64), data_type="bf16", layout=(ts.Layout((64, 64), 16), None))


@pytest.mark.parametrize("wrong", [ts.Layout((64, 32), 16), ts.Layout((64, 64), 8), "128B"])
def test_a_layout_of_another_shape_is_refused(wrong):
    with pytest.raises(ts.RuleError):
        emulate_mma(np.eye(64), np.eye(64), data_type="bf16", layout=(wrong, None))


def test_former_majors_and_layouts_work_and_warn():
    a, b = np.random.default_rng(5).integers(-4, 5, (2, 64, 64))
    tile = ts.Layout((64, 64), 16, swizzle="128B")
    with pytest.warns(DeprecationWarning, match=r"b_major of emulate_mma .* use major=\(a_major, b_major\)") as warned:
        d = emulate_mma(a, b, data_type="bf16", b_major="MN")
    assert warned[0].filename == __file__
    assert (d == emulate_mma(a, b, data_type="bf16", major=("K", "MN"))).all()
    with pytest.warns(DeprecationWarning, match=r"a_layout of emulate_mma .* use layout=\(a_layout, b_layout\)"):
        d = emulate_mma(a, b, data_type="bf16", a_layout=tile)
    assert (d == a @ b).all()


@pytest.mark.parametrize(
    "both",
    [
        {"major": "MN", "a_major": "K"},
        {"layout": ts.Layout((64, 64), 16), "b_layout": ts.Layout((64, 64), 16)},
    ],
)
def test_an_argument_in_both_spellings_is_refused(both):
    with (
        pytest.warns(DeprecationWarning, match="of emulate_mma will be removed"),
        pytest.raises(TypeError, match="which it replaces"),
    ):
        emulate_mma(np.eye(64), np.eye(64), data_type="bf16", **both)


def test_a_wrong_former_layout_is_refused_as_the_layout_of_its_operand():
    a = b = np.eye(64)
    wrong = ts.Layout((64, 32), 16)
    for name, argument in (("a_layout", "layout[0]"), ("b_layout", "layout[1]")):
        with pytest.warns(DeprecationWarning, match="use layout"), pytest.raises(ts.RuleError) as refused:
            emulate_mma(a, b, data_type="bf16", **{name: wrong})
        assert refused.value.violations[0].argument == argument
