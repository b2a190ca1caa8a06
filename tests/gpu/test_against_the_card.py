"""The driver's verdict and bytes, and the copies of a real card, against tilescope's."""

import inspect

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.rule import RULES
from tilescope.tensor_map import REDUCTIONS
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill

pytestmark = pytest.mark.gpu
TYPES = [row.name for row in ts.DATA_TYPE.values() if row.driver_code is not None and row.driver_code < 13]
MEMORY_BYTES = 1 << 18  # more than the largest tensor of `small_maps`
thorough = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def named_arguments(kind, given_arguments):
    """A map's arguments as rows, read without checking rules; None where they cannot be read."""
    if any(each.rule in ("argument-type", "argument-length", "unknown-name") for each in kind.check(**given_arguments)):
        return None
    rows = {
        "data_type": lambda name: ts.DataType.named(name).tma, "swizzle": ts.Swizzle.named,
        "interleave": Interleave.named,
        "l2_promotion": L2Promotion.named,
        "oob_fill": OobFill.named,
    }  # fmt: skip
    full = {
        "interleave": "none",
        "swizzle": "none",
        "l2_promotion": "none",
        "oob_fill": "zero",
        "address": 0,
        "arch": "sm_90",
    }
    full |= given_arguments
    full.setdefault("element_strides", (1,) * len(full["dims"]))
    return {name: rows[name](value) if name in rows else value for name, value in full.items() if name != "arch"}


def agrees(card, kind, arguments):
    read = named_arguments(kind, arguments)
    assert read is not None
    result, blob = card.encode(kind, read)
    refused = any(each.severity == "error" for each in kind.check(**arguments))
    assert refused == (result != 0), (arguments, result)
    if not refused:
        assert kind(**arguments).encode() == blob


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.subjects])
@pytest.mark.parametrize("side", ["passing", "failing"])
def test_the_driver_agrees_with_every_rules_example(card, name, side):
    rule = RULES[name]
    kind = ts.Im2colMap if "channels_per_pixel" in getattr(rule, side) else ts.TensorMap
    taken = inspect.signature(kind).parameters
    example = {key: value for key, value in getattr(rule, side).items() if key in taken}
    needed = {name for name, each in taken.items() if each.default is each.empty}
    if not needed <= example.keys() or "lower_width" in getattr(rule, side) or example.get("arch", "sm_90") != "sm_90":
        pytest.skip("not a map that an sm_90 driver is asked to encode")
    if named_arguments(kind, example) is None or (example.get("swizzle") or "none") not in (
        "none",
        "32B",
        "64B",
        "128B",
    ):
        pytest.skip("not expressible as a call of the driver")
    agrees(card, kind, example)


tiled = st.integers(1, 5).flatmap(
    lambda rank: st.fixed_dictionaries(
        {
            "data_type": st.sampled_from(TYPES),
            "dims": st.tuples(*[st.integers(0, 5000) | st.sampled_from([1, 1 << 32, (1 << 32) + 1])] * rank),
            "strides_bytes": st.tuples(
                *[st.integers(0, 100000).map(lambda n: n * 16) | st.integers(0, 1 << 41)] * (rank - 1)
            ),
            "box": st.tuples(*[st.integers(0, 300) | st.sampled_from([8, 16, 32, 64, 256])] * rank),
            "element_strides": st.tuples(*[st.integers(0, 9) | st.just(1)] * rank),
            "interleave": st.sampled_from(["none", "none", "16B", "32B"]),
            "swizzle": st.sampled_from(["none", "32B", "64B", "128B"]),
            "l2_promotion": st.sampled_from(["none", "64B", "128B", "256B"]),
            "oob_fill": st.sampled_from(["zero", "zero", "nan"]),
            "address": st.integers(0, 1 << 54).map(lambda n: n * 16) | st.integers(0, 1 << 58),
        }
    )
)


@given(arguments=tiled)
@thorough
def test_the_driver_agrees_on_any_tiled_map(card, arguments):
    agrees(card, ts.TensorMap, arguments)


extents = st.integers(1, 64) | st.sampled_from(
    [(1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 32) - 1, 1 << 32]
)
im2col = st.integers(3, 5).flatmap(
    lambda rank: st.fixed_dictionaries(
        {
            "data_type": st.sampled_from(TYPES),
            "dims": st.tuples(*[extents] * rank),
            "strides_bytes": st.tuples(*[st.integers(0, 100000).map(lambda n: n * 32)] * (rank - 1)),
            "lower_corner": st.tuples(*[st.integers(-18, 18) | st.sampled_from([-129, -128, 127, 128])] * (rank - 2)),
            "upper_corner": st.tuples(*[st.integers(-18, 18) | st.sampled_from([-129, -128, 127, 128])] * (rank - 2)),
            "channels_per_pixel": st.integers(0, 270) | st.sampled_from([16, 32, 64, 256]),
            "pixels_per_column": st.integers(0, 1030),
            "element_strides": st.tuples(*[st.integers(0, 9) | st.just(1)] * rank),
            "interleave": st.sampled_from(["none", "none", "16B", "32B"]),
            "swizzle": st.sampled_from(["none", "32B", "64B", "128B"]),
        }
    )
)


@given(arguments=im2col)
@thorough
def test_the_driver_agrees_on_any_im2col_map(card, arguments):
    agrees(card, ts.Im2colMap, arguments)


@st.composite
def small_maps(draw):
    """A sound tiled map over a small tensor, with coordinates around it."""
    data_type = ts.DataType.named(draw(st.sampled_from(TYPES)))
    swizzle = ts.Swizzle.named(draw(st.sampled_from(["none", "32B", "64B", "128B"])))
    rank = draw(st.integers(1, 4))
    size = data_type.bits // 8
    quantum = max(1, 16 // size)
    widest = min(256, (swizzle.span_bytes or 256) // size) // quantum
    box = (quantum * draw(st.integers(1, widest)), *(draw(st.integers(1, 6)) for _ in range(rank - 1)))
    dims = (draw(st.integers(1, 64)), *(draw(st.integers(1, 6)) for _ in range(rank - 1)))
    strides, step = [], -(-dims[0] * size // 16) * 16
    for extent in dims[1:]:
        strides.append(step)
        step *= extent
    nan = data_type.is_float and draw(st.booleans())
    tensor_map = ts.TensorMap(
        data_type, dims, tuple(strides), box, swizzle=swizzle, oob_fill="nan" if nan else "zero",
        element_strides=tuple(draw(st.integers(1, 3)) for _ in dims), address=1 << 30,
    )  # fmt: skip
    coords = (quantum * draw(st.integers(-2, 4)), *(draw(st.integers(-2, extent)) for extent in dims[1:]))
    return tensor_map, coords, 128 * draw(st.integers(0, 8))


def noise(seed, length):
    return np.random.default_rng(seed).integers(0, 256, length, np.uint8)


@given(case=small_maps(), seed=st.integers(0, 1000))
@thorough
def test_loads_leave_the_same_bytes(card, case, seed):
    tensor_map, coords, start = case
    memory = noise(seed, MEMORY_BYTES)
    found, arrived = card.load("load", tensor_map, memory, coords, smem_offset=start)
    smem = np.full(found.size, 0xEE, np.uint8)
    ts.load(tensor_map, memory, coords, smem=smem[start:], smem_address=start)
    assert arrived, "the barrier counts other bytes than transaction_bytes"
    assert np.array_equal(found, smem), first_difference(found, smem)


@given(case=small_maps(), seed=st.integers(0, 1000))
@thorough
def test_stores_leave_the_same_bytes(card, case, seed):
    tensor_map, coords, start = case
    coords = tuple(max(0, place) for place in coords)
    memory, smem = noise(seed, MEMORY_BYTES), noise(seed + 1, 40960)
    found = card.store("store", tensor_map, smem, memory, coords, smem_offset=start)
    ts.store(tensor_map, smem[start:], memory, coords, smem_address=start)
    assert np.array_equal(found, memory), first_difference(found, memory)


reductions = [(op, row) for op in REDUCTIONS for row in TYPES if row in REDUCTIONS[op]]


@given(case=small_maps(), reduction=st.sampled_from(reductions), seed=st.integers(0, 1000))
@thorough
def test_reductions_leave_the_same_bytes(card, case, reduction, seed):
    tensor_map, coords, start = case
    op, name = reduction
    assume(ts.DataType.named(name).bits == tensor_map.data_type.bits)
    tensor_map = tensor_map.with_fields(data_type=name, oob_fill="zero")
    coords = tuple(max(0, place) for place in coords)
    memory, smem = noise(seed, MEMORY_BYTES), noise(seed + 1, 40960)
    found = card.store(op, tensor_map, smem, memory, coords, smem_offset=start)
    ts.store(tensor_map, smem[start:], memory, coords, reduce=op, smem_address=start)
    assert np.array_equal(found, memory), (op, name, first_difference(found, memory))


@st.composite
def small_columns(draw):
    """A sound im2col map over small images, with a base pixel in its bounding box and a filter tap."""
    interleave = Interleave.named(draw(st.sampled_from(["none", "none", "none", "16B", "32B"])))
    sliced = interleave.slice_bytes or 0
    data_type = ts.DataType.named(draw(st.sampled_from(TYPES)))
    size = data_type.bits // 8
    swizzle = "32B" if sliced == 32 else draw(st.sampled_from(["none", "32B", "64B", "128B"]))
    spatial = draw(st.integers(1, 3))
    extents = [draw(st.integers(1, 9)) for _ in range(spatial)]
    quantum = max(1, 16 // size)
    channels = quantum * draw(st.integers(1, 64 // quantum or 1))
    span = ts.Swizzle.named(swizzle).span_bytes or 256
    channels_per_pixel = sliced // size if sliced else min(channels, span // size)
    dims = (*extents, 3, draw(st.integers(1, 3))) if sliced else (channels, *extents, draw(st.integers(1, 3)))
    if len(dims) > 5:
        dims = (*dims[:2], *dims[-2:]) if sliced else (*dims[:3], dims[-1])
    spatial = len(dims) - 2
    strides, step = [], sliced or -(-channels * size // 16) * 16
    for extent in dims[0 if sliced else 1 :][: len(dims) - 1]:
        strides.append(step)
        step *= extent
    first = 0 if sliced else 1
    lower = tuple(draw(st.integers(-3, 2)) for _ in range(spatial))
    upper = tuple(draw(st.integers(-3, 2)) for _ in range(spatial))
    arguments = {
        "data_type": data_type, "dims": dims, "strides_bytes": tuple(strides), "lower_corner": lower, "upper_corner": upper,
        "channels_per_pixel": channels_per_pixel, "pixels_per_column": draw(st.integers(1, 90)), "interleave": interleave,
        "swizzle": swizzle, "element_strides": tuple(draw(st.integers(1, 3)) for _ in dims), "address": 1 << 30,
    }  # fmt: skip
    assume(not any(each.severity == "error" for each in ts.Im2colMap.check(**arguments)))
    base = []
    for axis in range(spatial):
        highest = dims[first + axis] - 1 + upper[axis]
        assume(lower[axis] <= highest)
        base.append(draw(st.integers(lower[axis], highest)))
    image = draw(st.integers(-1, dims[-1]))
    coords = (*base, draw(st.integers(0, 3)), image) if sliced else (draw(st.integers(-1, 2)) * quantum, *base, image)
    offsets = tuple(draw(st.integers(0, 4)) for _ in range(spatial))
    return ts.Im2colMap(**arguments), coords, offsets, 128 * draw(st.integers(0, 8))


@given(case=small_columns(), seed=st.integers(0, 1000))
@thorough
def test_im2col_loads_leave_the_same_bytes(card, case, seed):
    tensor_map, coords, offsets, start = case
    memory = noise(seed, MEMORY_BYTES)
    found, arrived = card.load("im2col", tensor_map, memory, coords, offsets=offsets, smem_offset=start)
    smem = np.full(found.size, 0xEE, np.uint8)
    ts.load(tensor_map, memory, coords, offsets=offsets, smem=smem[start:], smem_address=start)
    assert arrived, "the barrier counts other bytes than transaction_bytes"
    assert np.array_equal(found, smem), first_difference(found, smem)


def test_every_plan_lands_on_the_card_as_it_was_proven(card):
    matrix = noise(3, 256 * 512)
    for tile, data_type in (((64, 64), "bf16"), ((64, 48), "f16"), ((32, 128), "e4m3"), ((64, 32), "f32")):
        size = ts.DataType.named(data_type).bits // 8
        shape = (128, 512 // size)
        for plan in ts.plan(tile, data_type, consumer="ldmatrix", fold=True, global_shape=shape).candidates:
            tensor_map = plan.tensor_map(1 << 30, shape)
            for copy in plan.copies[:4]:
                coords, start = plan.copy_coords(copy, 32, 0), copy.smem_offset_bytes
                found, arrived = card.load("load", tensor_map, matrix, coords, smem_offset=start)
                smem = np.full(found.size, 0xEE, np.uint8)
                ts.load(tensor_map, matrix, coords, smem=smem[start:], smem_address=start)
                assert arrived
                assert np.array_equal(found, smem), (plan.swizzle.name, plan.atom_order, first_difference(found, smem))


def integers_as(data_type, rows, columns, seed):
    """A matrix of small integers and its bytes; every sum of their products is exact in 32 bits."""
    numbers = np.random.default_rng(seed).integers(-4, 5, (rows, columns))
    return numbers, numbers.astype(ts.DataType.named(data_type).numpy).view(np.uint8).reshape(-1)


@pytest.mark.parametrize(
    ("data_type", "majors"),
    [(name, majors) for name in ("bf16", "f16") for majors in ("KK", "KM", "MK", "MM")]
    + [(name, "KK") for name in ("tf32", "e4m3", "s8")],
)
def test_wgmma_multiplies_what_every_plan_brings(card, data_type, majors):
    """Every swizzle, atom order and box split of A and B: TMA brings them as planned, wgmma reads them by our descriptors."""
    k = 2048 // ts.DataType.named(data_type).bits  # two atoms of the widest swizzle
    reports = [
        ts.plan((64, k), data_type, operand=operand, major="MN" if major == "M" else "K").candidates
        for operand, major in zip("AB", majors, strict=True)
    ]
    spelled = {"bf16": "k16", "f16": "k16", "tf32": "k8"}.get(data_type, "k32")
    held = ts.fragment(f"wgmma.m64n64{spelled}", "D", "s32" if data_type == "s8" else "f32").indices()
    for number in range(max(map(len, reports))):
        a, b = (plans[number % len(plans)] for plans in reports)
        numbers, maps = [], []
        for seed, plan in enumerate((a, b)):
            shape = (64, k) if plan.problem.major == "K" else (k, 64)
            values, memory = integers_as(data_type, *shape, 2 * number + seed)
            numbers.append(values if plan.problem.major == "K" else values.T)
            maps.append((plan.tensor_map(1 << 30, (64, k)), memory))
        start_b = -(-a.stage_bytes // 1024) * 1024
        words = [[step.encode() for step in plan.descriptors(start)[0]] for plan, start in ((a, 0), (b, start_b))]
        found, _ = card.product(a, b, maps, words)
        product = np.zeros((64, 64))
        product[held[1], held[2]] = found
        expected = numbers[0] @ numbers[1].T
        assert np.array_equal(product, expected), (a.swizzle.name, a.atom_order, b.swizzle.name, b.atom_order, number)


def first_difference(found, expected):
    wrong = np.flatnonzero(found != expected)
    if not wrong.size:
        return "none"
    place = int(wrong[0])
    where = f"{place:#x} (line {place // 128}, chunk {place // 16 % 8})"
    return f"{wrong.size} bytes differ, first at {where}: card {found[place]:#x}, ours {expected[place]:#x}"
