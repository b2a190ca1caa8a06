"""Products by tcgen05: every kind, one block and a pair, scale factors, masked lanes, on index and random matrices."""

import ml_dtypes
import numpy as np
import pytest

from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.mma.emulation import emulate_mma
from tilescope.mma.tcgen05_product import tcgen05_product
from tilescope.mma.tmem_layout import tmem_layout

# One type of each kind that has no scale factors, and the kinds that have.
PLAIN = ["bf16", "f16", "tf32", "e4m3", "e5m2", "e2m3", "e3m2", "s8", "u8"]
KINDS = ["bf16", "tf32", "e4m3", "e2m3", "s8"]  # of each width, and padded
SCALED = [
    ("mxfp8", "e4m3"),
    ("mxfp8", "e5m2"),
    ("mxfp8", "e2m3"),
    ("mxfp8", "e3m2"),
    ("mxfp4", "e2m1"),
    ("nvfp4", "e2m1"),
    ("mxf4nvf4.2X", "e2m1"),
    ("mxf4nvf4.4X", "e2m1"),
]
SHAPES = [(1, 128, 64), (1, 256, 96), (2, 128, 64), (2, 256, 64), (2, 512, 128)]  # cta_group, m, n
SMALL = np.array([0, 0.5, 1, 1.5, 2, 3, -0.5, -1, -1.5, -2, -3, 4])  # all of them exact in e2m1 too


def elements(data_type, shape, random):
    row = DataType.named(data_type)
    if not row.is_float:
        low = 0 if row.name.startswith("u") else -7
        return random.integers(low, 8, shape).astype(row.numpy)
    return random.choice(SMALL, shape).astype(row.numpy)


def scale_bytes(kind, shape, random):
    if kind == "nvfp4":
        return random.choice([0.5, 1, 1.5, 2, 3, 448], shape).astype(ml_dtypes.float8_e4m3fn)
    return random.integers(120, 135, shape).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def plainly_scaled(a, b, a_scales, b_scales):
    """Block by block: the sum of the products of a block, times both scales."""
    blocks = a_scales.shape[1]
    d = np.zeros((a.shape[0], b.shape[1]))
    for number, (part_a, part_b) in enumerate(zip(np.split(a, blocks, axis=1), np.split(b, blocks), strict=True)):
        d += np.outer(a_scales[:, number], b_scales[:, number]) * (part_a @ part_b)
    return d


@pytest.mark.parametrize(("group", "m", "n"), SHAPES)
@pytest.mark.parametrize("data_type", PLAIN)
def test_products_of_all_kinds_are_right(data_type, group, m, n):
    random = np.random.default_rng(m + n)
    k = 256 // DataType.named(data_type).smem_bits * 4
    a, b = elements(data_type, (m, k), random), elements(data_type, (k, n), random)
    d = emulate_mma(a, b, data_type=data_type, consumer="tcgen05", swizzle="128B", cta_group=group)
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert d.dtype == (np.float32 if DataType.named(data_type).is_float else np.int32)
    assert (d == wanted).all()


@pytest.mark.parametrize(("group", "m", "n"), SHAPES)
@pytest.mark.parametrize(("kind", "data_type"), SCALED)
def test_scaled_products_are_right(kind, data_type, group, m, n):
    random = np.random.default_rng(m + n)
    block = 16 if kind in ("nvfp4", "mxf4nvf4.4X") else 32
    k = 256
    a, b = elements(data_type, (m, k), random), elements(data_type, (k, n), random)
    a_scales, b_scales = (scale_bytes(kind, (extent, k // block), random) for extent in (m, n))
    d = emulate_mma(
        a,
        b,
        data_type=data_type,
        consumer="tcgen05",
        swizzle="128B",
        cta_group=group,
        scales=(kind, a_scales, b_scales),
        exact_sum=True,
    )
    wanted = plainly_scaled(*(each.astype(np.float64) for each in (a, b, a_scales, b_scales)))
    assert (d == wanted.astype(np.float32)).all()


FIXED = {"mxf4nvf4.2X", "mxf4nvf4.4X", "mxfp4", "nvfp4"}  # the formats of the kinds that have k = 96


@pytest.mark.parametrize(("group", "m", "n"), [(1, 128, 16), (1, 128, 8), (2, 128, 64), (2, 256, 32)])
@pytest.mark.parametrize("kind", sorted(FIXED))
def test_products_of_k_96_are_right(kind, group, m, n):
    """3 or 6 scales of a row to an instruction, which run on into the next word; every third step crosses an atom."""
    random, k, block = np.random.default_rng(n), 768, 16 if kind in ("nvfp4", "mxf4nvf4.4X") else 32
    a, b = elements("e2m1", (m, k), random), elements("e2m1", (k, n), random)
    a_scales, b_scales = (scale_bytes(kind, (extent, k // block), random) for extent in (m, n))
    d = emulate_mma(
        a,
        b,
        data_type="e2m1",
        consumer="tcgen05",
        cta_group=group,
        scales=(kind, a_scales, b_scales),
        exact_sum=True,
        instruction_k=96,
    )
    wanted = plainly_scaled(*(each.astype(np.float64) for each in (a, b, a_scales, b_scales)))
    assert (d == wanted.astype(np.float32)).all()


def pruned(a, data_type, random):
    """Zeros in all but half of every group: 2 of 4, 1 of 2 for tf32, 2 pairs of 4 for 4 bits."""
    of, piece = {"tf32": (2, 1), "e2m1": (4, 2)}.get(data_type, (4, 1))
    groups = a.reshape(len(a), -1, of, piece)
    drop = np.argsort(random.random(groups.shape[:3]), axis=-1)[..., : of // 2]
    np.put_along_axis(groups, drop[..., None], np.zeros(1, a.dtype), axis=2)
    return groups.reshape(a.shape)


@pytest.mark.parametrize(("group", "m", "n"), [(1, 128, 64), (1, 256, 8), (2, 256, 64)])
@pytest.mark.parametrize("data_type", KINDS)
def test_sparse_products_are_right(data_type, group, m, n):
    random = np.random.default_rng(m + n)
    k = 256 // DataType.named(data_type).smem_bits * 8
    a, b = pruned(elements(data_type, (m, k), random), data_type, random), elements(data_type, (k, n), random)
    d = emulate_mma(a, b, data_type=data_type, consumer="tcgen05", cta_group=group, sparse=True)
    assert (d == a.astype(np.float64) @ b.astype(np.float64)).all()


@pytest.mark.parametrize(("group", "m"), [(1, 128), (2, 256)])
@pytest.mark.parametrize(("kind", "data_type"), SCALED)
def test_sparse_scaled_products_are_right(kind, data_type, group, m):
    """Twice the k under as many scales."""
    random, n, k = np.random.default_rng(m), 64, 512
    block = 32 if kind in ("nvfp4", "mxf4nvf4.4X") else 64
    a, b = pruned(elements(data_type, (m, k), random), data_type, random), elements(data_type, (k, n), random)
    a_scales, b_scales = (scale_bytes(kind, (extent, k // block), random) for extent in (m, n))
    d = emulate_mma(
        a,
        b,
        data_type=data_type,
        consumer="tcgen05",
        cta_group=group,
        scales=(kind, a_scales, b_scales),
        exact_sum=True,
        sparse=True,
    )
    wanted = plainly_scaled(*(each.astype(np.float64) for each in (a, b, a_scales, b_scales)))
    assert (d == wanted.astype(np.float32)).all()


@pytest.mark.parametrize(("m", "n"), [(32, 64), (64, 128), (128, 64), (96, 64)])
@pytest.mark.parametrize("data_type", KINDS)
def test_products_of_ws_are_right(data_type, m, n):
    random = np.random.default_rng(m + n)
    k = 256 // DataType.named(data_type).smem_bits * 4
    a, b = elements(data_type, (m, k), random), elements(data_type, (k, n), random)
    d = emulate_mma(a, b, data_type=data_type, consumer="tcgen05", ws=True)
    assert (d == a.astype(np.float64) @ b.astype(np.float64)).all()


@pytest.mark.parametrize(("m", "n"), [(32, 64), (32, 128), (64, 64), (64, 128), (128, 64), (96, 64)])
@pytest.mark.parametrize("data_type", KINDS)
def test_sparse_products_of_ws_are_right(data_type, m, n):
    """With m 64 and 32 every part of n reads a copy of the metadata of its own."""
    random = np.random.default_rng(m + n)
    k = 256 // DataType.named(data_type).smem_bits * 8
    a, b = pruned(elements(data_type, (m, k), random), data_type, random), elements(data_type, (k, n), random)
    d = emulate_mma(a, b, data_type=data_type, consumer="tcgen05", ws=True, sparse=True)
    assert (d == a.astype(np.float64) @ b.astype(np.float64)).all()


@pytest.mark.parametrize(
    ("options", "m"),
    [
        ({}, 64),
        ({}, 128),
        ({"cta_group": 2}, 128),
        ({"cta_group": 2}, 256),
        ({"ws": True}, 64),
        ({"sparse": True}, 128),
        ({"ws": True, "sparse": True}, 64),
    ],
)
@pytest.mark.parametrize("data_type", KINDS)
def test_products_with_a_in_tensor_memory_are_right(data_type, options, m):
    random = np.random.default_rng(m)
    n, k = 64, 256 // DataType.named(data_type).smem_bits * 4
    a, b = elements(data_type, (m, k), random), elements(data_type, (k, n), random)
    a = pruned(a, data_type, random) if options.get("sparse") else a
    d = emulate_mma(a, b, data_type=data_type, consumer="tcgen05", a_in_tensor_memory=True, **options)
    assert (d == a.astype(np.float64) @ b.astype(np.float64)).all()


@pytest.mark.parametrize("group", [1, 2])
def test_scaled_products_with_a_in_tensor_memory_are_right(group):
    random = np.random.default_rng(group)
    a, b = elements("e2m1", (256, 256), random), elements("e2m1", (256, 64), random)
    scales = [scale_bytes("nvfp4", (extent, 16), random) for extent in (256, 64)]
    d = emulate_mma(
        a,
        b,
        data_type="e2m1",
        consumer="tcgen05",
        cta_group=group,
        a_in_tensor_memory=True,
        scales=("nvfp4", scales[0], scales[1]),
        exact_sum=True,
    )
    assert (d == plainly_scaled(*(each.astype(np.float64) for each in (a, b, *scales))).astype(np.float32)).all()


@pytest.mark.parametrize("cluster", [(2, 1), (2, 2), (4, 1), (4, 2), (2, 4)])
@pytest.mark.parametrize("m", [128, 256])
def test_products_of_a_cluster_with_multicast_are_right(cluster, m):
    wide, high = cluster
    random = np.random.default_rng(wide + high)
    whole, n, k = m * wide // 2, 32 * high, 128
    a, b, c = elements("bf16", (whole, k), random), elements("bf16", (k, n), random), random.integers(0, 9, (whole, n))
    d = emulate_mma(a, b, data_type="bf16", consumer="tcgen05", cta_group=2, cluster=cluster, c=c)
    assert (d == a.astype(np.float64) @ b.astype(np.float64) + c).all()
    scales = [scale_bytes("mxfp8", (extent, k // 32), random) for extent in (whole, n)]
    if m == 256:  # scales of B in a pair with m 128 come in halves of 32 columns
        one, other = a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn)
        d = emulate_mma(
            one,
            other,
            data_type="e4m3",
            consumer="tcgen05",
            cta_group=2,
            cluster=cluster,
            scales=("mxfp8", scales[0], scales[1]),
            exact_sum=True,
        )
        wanted = plainly_scaled(*(each.astype(np.float64) for each in (one, other, *scales)))
        assert (d == wanted.astype(np.float32)).all()


@pytest.mark.parametrize(("m", "group"), [(64, 1), (128, 1), (256, 1), (128, 2), (256, 2)])
def test_an_index_matrix_comes_out_where_it_went_in(m, group):
    index = np.arange(m * 64).reshape(m, 64).astype(np.float32)  # times the identity: every element says where it was
    index %= 2048
    d = emulate_mma(index, np.eye(64, dtype=np.float32), data_type="f16", consumer="tcgen05", cta_group=group)
    assert (d == index).all()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("group", [1, 2])
def test_every_scale_reaches_its_own_row_and_block(operand, group):
    """Ones everywhere but in one block; its scale alone decides what comes out."""
    m, n, k, block = 256, 256, 128, 16
    random = np.random.default_rng(7)
    changed = random.integers(0, (m, k // block), (8, 2))
    for row, number in changed.tolist():
        a, b = np.ones((m, k)), np.ones((k, n))
        scales = {"A": np.full((m, k // block), 1.0), "B": np.full((n, k // block), 1.0)}
        scales[operand][row, number] = 448
        d = emulate_mma(
            a,
            b,
            data_type="e2m1",
            consumer="tcgen05",
            swizzle="64B",
            cta_group=group,
            scales=("nvfp4", scales["A"].astype(ml_dtypes.float8_e4m3fn), scales["B"].astype(ml_dtypes.float8_e4m3fn)),
        )
        wanted = np.full((m, n), float(k))
        line = (row, slice(None)) if operand == "A" else (slice(None), row)
        wanted[line] += block * 447
        assert (d == wanted).all(), (row, number)


def test_d_is_added_to_what_was_there():
    a, b, c = np.ones((128, 64)), np.ones((64, 32)), np.arange(128 * 32).reshape(128, 32)
    assert (emulate_mma(a, b, data_type="bf16", consumer="tcgen05", c=c) == 64 + c).all()
    assert (emulate_mma(a, b, data_type="bf16", consumer="wgmma", c=c) == 64 + c).all()


@pytest.mark.parametrize(("m", "group"), [(64, 1), (128, 1), (128, 2), (256, 2)])
def test_disabled_lanes_keep_their_accumulator(m, group):
    n, masks = 64, (0x0000FFFF, 0, 1, 0x80000000) if group == 1 else (1, 0, 0, 0, 0, 0xFFFFFFFF, 2, 0)
    a, b, c = np.ones((m, 64)), np.ones((64, n)), -np.ones((m, n))
    d = emulate_mma(a, b, data_type="bf16", consumer="tcgen05", cta_group=group, c=c, disable_output_lane=masks)
    layout = tmem_layout((m, n), cta_group=group)
    for row in range(m):
        for column in range(0, n, 7):
            place = layout.place(row, column)
            masked = masks[4 * place.cta + place.lanes[0] // 32] >> place.lanes[0] % 32 & 1
            assert d[row, column] == (-1 if masked else 63), (row, column)


def test_a_pair_shares_rows_and_columns_out():
    product = tcgen05_product((512, 128, 64), DataType.named("bf16"), cta_group=2)
    assert (product.m, product.n) == (256, 128)
    assert (product.ws, product.sparse, product.a_in_tensor_memory) == (False, False, False)
    rows = [product.share(cta, 512, product.m) for cta in (0, 1)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(512))
    assert rows[0][[0, 127, 128]].tolist() == [0, 127, 256]
    assert rows[1][[0, 127, 128]].tolist() == [128, 255, 384]
    assert product.share(1, 128, product.n).tolist() == list(range(64, 128))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"disable_output_lane": (1, 2)}, "Use disable_output_lane=(1, 2, 0, 0)."),
        ({"consumer": "wgmma", "ws": True, "cta_group": 2}, "wgmma with ws, cta_group = 2"),
        ({"consumer": "wgmma", "scales": ("mxfp8", 1, 1)}, "only tcgen05"),
    ],
)
def test_a_refusal_names_what_was_asked_for(options, sentence):
    a, b = np.ones((128, 64)), np.ones((64, 64))
    with pytest.raises(RuleError) as caught:
        emulate_mma(a, b, **{"data_type": "e4m3", "consumer": "tcgen05", "swizzle": "64B"} | options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"cta_group": 3}, "mma-group"),
        ({"cta_group": 2, "consumer": "wgmma"}, "mma-group"),
        ({"scales": "nvfp4"}, "mma-scales"),
        ({"scales": ("nvfp4", None, None)}, "mma-scales"),
        ({"scales": ("mxfp9", 1, 1)}, "unknown-name"),
        ({"scales": ("mxfp8", np.ones((128, 3), np.uint8), np.ones((64, 2), np.uint8))}, "mma-scales"),
        ({"disable_output_lane": (1, 2)}, "mma-lanes"),
        ({"disable_output_lane": (1 << 32, 0, 0, 0)}, "mma-lanes"),
        ({"c": np.zeros((3, 3))}, "argument-range"),
        ({"instruction_k": 96}, "tcgen05-shape"),
        ({"ws": True, "cta_group": 2}, "mma-group"),
        ({"ws": 1}, "argument-type"),
        ({"sparse": True}, "mma-sparse"),
        ({"consumer": "wgmma", "sparse": True}, "mma-sparse"),
        ({"cluster": (2, 1)}, "pair-cluster"),
        ({"cluster": (2, 3), "cta_group": 2}, "pair-cluster"),
    ],
)
def test_what_no_instruction_does_is_refused(options, rule):
    a, b = np.ones((128, 64)), np.ones((64, 64))
    with pytest.raises(RuleError) as caught:
        emulate_mma(a, b, **{"data_type": "e4m3", "consumer": "tcgen05", "swizzle": "64B"} | options)
    assert caught.value.violations[0].rule == rule


def test_a_that_does_not_fit_beside_d_is_refused():
    a, b = np.ones((128, 832)), np.ones((832, 128))
    with pytest.raises(RuleError, match=r"416 columns.*128 taken"):
        emulate_mma(a, b, data_type="bf16", consumer="tcgen05", a_in_tensor_memory=True)


def test_scales_with_a_sign_are_refused():
    scales = np.full((128, 4), 0x80, np.uint8)
    with pytest.raises(RuleError, match="sign"):
        emulate_mma(
            np.ones((128, 64)),
            np.ones((64, 128)),
            data_type="e2m1",
            consumer="tcgen05",
            swizzle="32B",
            scales=("nvfp4", scales, scales),
        )


def test_the_former_scales_work_and_warn():
    a, b = np.eye(128), np.arange(128 * 64).reshape(128, 64) % 5
    ones = np.full((128, 4), 127, np.uint8)
    options = {"data_type": "e4m3", "consumer": "tcgen05"}
    with pytest.warns(DeprecationWarning, match=r"use scales=\(kind, a_scales, b_scales\)") as warned:
        d = emulate_mma(a, b, scale_kind="mxfp8", a_scales=ones + 1, b_scales=ones[:64], **options)
    assert warned[0].filename == __file__
    assert (d == emulate_mma(a, b, scales=("mxfp8", ones + 1, ones[:64]), **options)).all()
    with pytest.warns(DeprecationWarning, match="use scales"), pytest.raises(RuleError, match="scale_kind"):
        emulate_mma(a, b, scale_kind="mxfp8", **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
        emulate_mma(a, b, scale="mxfp8", **options)
