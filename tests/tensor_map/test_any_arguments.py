"""Whatever the arguments: violations or a map, never another exception; and what holds of every map."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.data_type import DATA_TYPE
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import MapArguments
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.samples import IMAGES, MATRIX
from tilescope.value import Value

MEASURED_TYPES = [row.name for row in DATA_TYPE.values() if row.driver_code is not None and not row.is_packed]
REQUIRED = {"data_type", "dims", "strides_bytes", "box", "lower_corner", "upper_corner", "lower_width", "upper_width"}
REQUIRED |= {"channels_per_pixel", "pixels_per_column"}


def near(*edges):
    """Integers around each edge, and anywhere between and beyond."""
    around = st.sampled_from(edges).flatmap(lambda edge: st.integers(edge - 2, edge + 2))
    return around | st.integers(-3, 2 * max(edges))


def names(table):
    return st.sampled_from([*table])


extents = near(0, 8, 64, 128, 256, 1 << 31, 1 << 32)
OPTIONS = {
    "interleave": names(INTERLEAVE),
    "swizzle": names(SWIZZLE),
    "l2_promotion": names(L2_PROMOTION),
    "oob_fill": names(OOB_FILL),
    "address": near(0, 16, 1 << 57).map(lambda place: place * 8) | near(0, 1 << 57),
    "arch": names(ARCH),
}


@st.composite
def arguments(draw, kind):
    """Arguments of the right types, of whatever soundness."""
    rank = draw(st.integers(0, 6))

    def each(strategy, fewer=0):
        length = max(0, rank - fewer)
        return draw(st.lists(strategy, min_size=length, max_size=length).map(tuple))

    given = {
        "data_type": draw(st.sampled_from([*DATA_TYPE])),
        "dims": each(extents),
        "strides_bytes": each(st.integers(-1, 1 << 20).map(lambda step: step * 16) | near(0, 1 << 40), 1),
        "element_strides": draw(st.just(None) | st.just((1,) * rank) | st.just(each(st.integers(-1, 9)))),
    }
    given |= {name: draw(strategy) for name, strategy in OPTIONS.items()}
    column = {"channels_per_pixel": draw(near(0, 32, 64, 128, 256)), "pixels_per_column": draw(near(0, 64, 1024))}
    if kind is ts.TensorMap:
        return given | {"box": each(near(0, 8, 64, 128, 256))}
    if kind is ts.Im2colMap:
        corners = near(-128, -16, 0, 15, 127) | near(-32768, 32767)
        return given | {"lower_corner": each(corners, 2), "upper_corner": each(corners, 2)} | column
    width = near(-32768, 0, 32767)
    return (
        given
        | {"lower_width": draw(width), "upper_width": draw(width), "mode": draw(st.sampled_from(["W", "W128"]))}
        | column
    )


@st.composite
def sound_arguments(draw, kind):
    """Arguments of a sound map of sm_90."""
    interleaved = draw(st.booleans())
    im2col = kind is ts.Im2colMap
    rank = draw(st.integers(3 if interleaved or im2col else 1, 5))
    interleave = draw(st.sampled_from(["16B", "32B"])) if interleaved else "none"
    row = DATA_TYPE[draw(st.sampled_from(MEASURED_TYPES))]
    swizzle = SWIZZLE[draw(st.sampled_from(["none", "32B", "64B", "128B"]))]
    step = 128 // row.bits
    widest = 256 if interleaved or swizzle.span_bytes is None else min(256, swizzle.span_bytes * 8 // row.bits)
    inner = draw(st.integers(1, widest // step)) * step
    alignment = 32 if interleave == "32B" else 16
    given = {
        "data_type": row.name,
        "dims": tuple(draw(st.integers(1, 1 << 32) | st.integers(1, 300)) for _ in range(rank)),
        "strides_bytes": tuple(draw(st.integers(0, (1 << 40) // alignment - 1)) * alignment for _ in range(rank - 1)),
        "element_strides": tuple(draw(st.integers(1, 8)) for _ in range(rank)),
        "interleave": interleave,
        "swizzle": swizzle.name,
        "l2_promotion": draw(names(L2_PROMOTION)),
        "oob_fill": draw(names(OOB_FILL)) if row.is_float else "zero",
        "address": draw(st.integers(0, (1 << 57) // alignment - 1)) * alignment,
    }
    if im2col:
        bits = {3: 16, 4: 8, 5: 5}[rank]
        ends = -(1 << bits - 1), (1 << bits - 1) - 1
        dims, corners = list(given["dims"]), []
        for axis in range(0 if interleaved else 1, rank - 1 if not interleaved else rank - 2):
            counted = dims[axis] - (dims[axis] >> 31 << 32) if dims[axis] < 1 << 32 else 0  # as a signed 32-bit number
            if counted <= ends[0] - ends[1]:  # no corners leave a pixel
                dims[axis] = counted = (1 << 31) - 1
            lower = draw(st.integers(ends[0], min(ends[1], ends[1] + counted - 1)))
            most = min(ends[1], (1 << 31) - 1 - counted)  # the end of the box is kept in signed 32 bits
            corners.append((lower, draw(st.integers(max(ends[0], 1 - counted + lower), most))))
        given["dims"] = tuple(dims)
        given["lower_corner"], given["upper_corner"] = (tuple(each) for each in zip(*corners, strict=True))
        most = min(1024, 233_472 * 8 // (inner * row.bits))
        return given | {"channels_per_pixel": inner, "pixels_per_column": draw(st.integers(1, most))}
    box = [inner, *(draw(st.integers(1, 256)) for _ in range(rank - 1))]
    for axis in range(rank - 1, 0, -1):
        floors = [extent // stride for extent, stride in zip(box, given["element_strides"], strict=True)]
        if int(np.prod(floors, dtype=object)) * row.bits // 8 > 233_472:
            box[axis] = 1
    return given | {"box": tuple(box)}


def endless():
    while True:
        yield 1


anything_flat = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 5000), 1 << 5000)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([object(), int, np.int64(64), np.float16(1), np.array([64, 64]), np.array(5), "none", "bf16"])
    | st.builds(endless)
)


def nested(inner):
    return (
        st.lists(inner, max_size=6) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    )


anything = st.recursive(anything_flat, nested, max_leaves=6)

KINDS = [ts.TensorMap, ts.Im2colMap, ts.Im2colWideMap]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@each_kind
@given(data=st.data())
def test_any_values_whatever_give_violations_or_a_map(kind, data):
    wanted = [name for name in kind.readers if name in REQUIRED]
    optional = [name for name in kind.readers if name not in REQUIRED]
    given = data.draw(
        st.fixed_dictionaries(dict.fromkeys(wanted, anything), optional=dict.fromkeys(optional, anything))
    )
    given = {name: data.draw(st.just(value) | anything) for name, value in given.items()}
    found = kind.check(**given)
    assert all(isinstance(each, ts.Violation) for each in found)
    if any(each.severity == "error" for each in found):
        with pytest.raises(ts.TensorMapError):
            kind(**given)
    else:
        kind(**given)


@each_kind
@pytest.mark.parametrize(
    "unordered",
    [{64, 8}, frozenset({64}), {64: 8}, {}, {}.keys(), "64", b"64", bytearray(b"64")],
    ids=lambda given: type(given).__name__,
)
def test_what_has_no_order_is_no_sequence(kind, unordered):
    for name in set(kind.readers) & {"dims", "strides_bytes", "box", "element_strides", "lower_corner", "upper_corner"}:
        given = dict.fromkeys(REQUIRED & set(kind.readers), ()) | {name: unordered}
        found = [each for each in kind.check(**given) if each.argument == name]
        assert [(each.rule, each.limit) for each in found] == [("argument-type", f"{name} is a sequence of integers")]


@pytest.mark.parametrize(
    ("kind", "given", "argument", "owner"),
    [
        (ts.Im2colMap, IMAGES, "box", "tiled"),
        (ts.TensorMap, MATRIX, "upper_corner", "im2col"),
        (ts.TensorMap, MATRIX, "mode", "wide"),
        (ts.TensorMap, MATRIX, "corner", None),
    ],
)
def test_an_argument_of_another_kind_of_map_names_that_kind(kind, given, argument, owner):
    (found,) = MapArguments(kind, given | {argument: 0}).check()
    assert found.rule == "unknown-name"
    if owner is None:
        assert set(found.limit.removeprefix("known: ").split(", ")) == set(kind.readers)
    else:
        assert found.limit.startswith(f"{owner} maps have it, ")


@each_kind
@given(data=st.data())
def test_a_change_cures_the_rule_that_names_it(kind, data):
    given = data.draw(arguments(kind))
    for found in kind.check(**given):
        assert found.rule in ts.RULES
        if found.change is not None:
            assert set(found.change) <= set(kind.readers)
            again = kind.check(**given | dict(found.change))
            assert found.rule not in {each.rule for each in again}, (found, given)


@each_kind
@given(data=st.data())
def test_a_map_survives_plain_data_and_its_own_repr(kind, data):
    given = data.draw(sound_arguments(ts.TensorMap if kind is ts.Im2colWideMap else kind))
    if kind is ts.Im2colWideMap:
        given = {name: given[name] for name in ("data_type", "strides_bytes", "oob_fill")} | {"dims": given["dims"]}
        given |= {
            "lower_width": -1,
            "upper_width": 1,
            "channels_per_pixel": 16,
            "pixels_per_column": 8,
            "arch": "sm_100",
        }
        if len(given["dims"]) < 3 or kind.check(**given):
            return
    tensor_map = kind(**given)
    assert Value.from_dict(tensor_map.to_dict()) == tensor_map
    assert kind.from_dict(tensor_map.to_dict()).findings == tensor_map.findings
    assert eval(repr(tensor_map), vars(ts.tensor_map)) == tensor_map
    assert hash(kind.from_dict(tensor_map.to_dict())) == hash(tensor_map)


@pytest.mark.parametrize("kind", [ts.TensorMap, ts.Im2colMap], ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_decoding_is_the_inverse_of_encoding(kind, data):
    tensor_map = kind(**data.draw(sound_arguments(kind)))
    encoded = tensor_map.encode()
    assert len(encoded) == 128
    assert ts.decode_tensor_map(encoded) == tensor_map
    assert ts.inspect_tensor_map(encoded).unknown_bits == ()


@given(st.binary(min_size=128, max_size=128))
@example(bytes(128))
@example(bytes([255]) * 128)
def test_any_128_bytes_can_be_inspected(blob):
    found = ts.inspect_tensor_map(blob)
    assert Value.from_dict(found.to_dict()) == found
    if found.tensor_map is None:
        with pytest.raises(ts.TensorMapError):
            ts.decode_tensor_map(blob)
    else:
        assert ts.decode_tensor_map(blob) == found.tensor_map


@pytest.mark.parametrize("kind", [ts.TensorMap, ts.Im2colMap], ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_map_with_flipped_bits_is_another_map_or_none(kind, data):
    words = list(struct.unpack("<16Q", kind(**data.draw(sound_arguments(kind))).encode()))
    for _ in range(data.draw(st.integers(1, 3))):
        words[data.draw(st.integers(0, 15))] ^= 1 << data.draw(st.integers(0, 63))
    found = ts.inspect_tensor_map(struct.pack("<16Q", *words))
    if found.tensor_map is None:
        assert any(each.severity == "error" for each in found.violations)
    else:
        again = struct.unpack("<16Q", found.tensor_map.encode())
        flag = 1 << 21  # of word 1, which is ignored
        pairs = enumerate(zip(words, again, strict=True))
        differs = any(word != other and (place, word ^ other) != (1, flag) for place, (word, other) in pairs)
        warned = any(each.rule == "descriptor-derived" for each in found.violations)
        assert differs == warned  # words that no copy looks at


@given(anything)
def test_what_is_no_descriptor_is_refused(blob):
    try:
        bytes(memoryview(blob))
    except TypeError:
        with pytest.raises(ts.TensorMapError, match="descriptor-length"):
            ts.inspect_tensor_map(blob)
