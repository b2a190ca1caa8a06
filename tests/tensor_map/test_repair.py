"""What `check --fix` prints: a map that the driver takes, without a warning that the user's own values do not cause."""

from itertools import permutations

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.tensor_map import MapArguments

BATCHES = {"data_type": "f16", "dims": (1023, 1024, 4), "box": (64, 128, 1), "swizzle": "128B"}
COPY_ARGUMENTS = ("box", "element_strides", "interleave", "swizzle", "channels_per_pixel", "pixels_per_column", "mode")


def fixed(**given):
    return dict(MapArguments.of(given).completed().repaired().given)


def warnings(found):
    return [each for each in found if each.severity == "warning"]


def row_bytes(mended):
    slice_bytes = {"none": 0, "16B": 16, "32B": 32}[mended.get("interleave", "none")]
    return mended["dims"][0] * slice_bytes or mended["dims"][0] * ts.DataType.named(mended["data_type"]).tma.bits // 8


def overlaps_by_windows_alone(own, mended, before):
    """Whether no bytes are shared once the dimensions are left out whose legal strides overlapped as they were given."""
    warned = {each.argument for each in before if each.rule == "stride-overlap"}
    reach = row_bytes(mended)
    for stride, axis in sorted((stride, axis) for axis, stride in enumerate(mended["strides_bytes"])):
        is_window = stride == own["strides_bytes"][axis] and (stride == 0 or f"strides_bytes[{axis}]" in warned)
        if mended["dims"][axis + 1] > 1 and not is_window:
            if stride < reach:
                return False
            reach += stride * (mended["dims"][axis + 1] - 1)
    return True


def can_be_dense(own, mended):
    """Whether dense strides exist, in any order of the dimensions, that leave the user's legal ones as they are."""
    kept = {
        axis: stride
        for axis, (stride, was) in enumerate(zip(mended["strides_bytes"], own["strides_bytes"], strict=True))
        if stride == was and mended["dims"][axis + 1] > 1
    }
    for order in permutations(range(len(mended["strides_bytes"]))):
        step, dense = row_bytes(mended), {}
        for axis in order:
            dense[axis] = step
            step *= mended["dims"][axis + 1]
        legal = all(stride % 16 == 0 for axis, stride in dense.items() if mended["dims"][axis + 1] > 1)
        if legal and all(dense[axis] == stride for axis, stride in kept.items()):
            return True
    return False


def is_excused(warning, own, mended, before):
    """Whether legal values of the user cause a warning of the mended map; `own` are those values, `before` what was said of them."""

    def kept(*names):
        return all(own.get(name) == mended.get(name) for name in names)

    was_there = (warning.rule, warning.argument) in {(each.rule, each.argument) for each in before}
    match warning.rule:
        case "stride-overlap":
            axis = int(warning.argument.removeprefix("strides_bytes[").removesuffix("]"))
            stride = mended["strides_bytes"][axis]
            if own["strides_bytes"][axis] == stride:
                return was_there or stride == 0
            return was_there and overlaps_by_windows_alone(own, mended, before)
        case "smem-capacity":
            return was_there and kept(*COPY_ARGUMENTS)
        case "interleave-swizzle":
            padded = ts.DataType.named(own["data_type"]).tma.name == "16u4_align16b"  # which takes no swizzle 32B
            return kept("swizzle", "interleave") or padded
        case "descriptor-size-flag":
            return was_there or not can_be_dense(own, mended)
        case "swizzle-96B" | "packed-store-only" | "packed-interleave-unknown":
            return was_there
    return False


def check_fix(kind, own):
    """Mend the arguments of a kind of map; whether there was a fix."""
    asked = MapArguments(kind, own)
    before = asked.check()
    try:
        mended = asked.repaired()
    except ts.TensorMapError:
        assert any(each.severity == "error" for each in before)
        return False
    after = mended.check()
    assert [each for each in after if each.severity == "error"] == []
    counted_anew = [each.change for each in before if each.rule in ("rank", "interleave-rank") and each.change]
    if counted_anew:  # the same tensor with dimensions merged or added
        legal = own | dict(counted_anew[0])
        before_fix = kind.check(**legal)
    else:
        legal, before_fix = own, before
    for warning in warnings(after):
        assert is_excused(warning, legal, mended.given, before_fix), (str(warning), own, dict(mended.given))
    for was, now in zip(legal["strides_bytes"], mended.given["strides_bytes"], strict=True):
        assert was != 0 or now == 0, "a stride of 0 is legal, and meant"
    if not any(each.severity == "error" for each in before):
        assert dict(mended.given) == own
    told = {change.argument: change.new for change in asked.changes_to(mended)}
    assert told == {name: value for name, value in mended.given.items() if name not in own or own[name] != value}
    return True


EXTENTS = [0, 1, 4, 7, 64, 100, 128, 1023, 1 << 31, (1 << 32) + 1]
SWIZZLES = ["none", "32B", "64B", "128B", "96B", "128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B"]
TYPES = ["u8", "bf16", "f32", "f64", "16u4_align8b", "16u4_align16b", "16u6_align16b"]


@st.composite
def map_arguments(draw, kind):
    """Arguments of a kind of map: most of them sound, strides dense more often than not."""

    def one_of(*values):
        return draw(st.sampled_from(values))

    rank = draw(st.integers(1 if kind is ts.TensorMap else 3, 6 if kind is ts.TensorMap else 5))
    own = {"data_type": one_of(*TYPES), "dims": tuple(one_of(*EXTENTS) for _ in range(rank))}
    own["interleave"] = one_of("none", "none", "none", "16B", "32B")
    slice_bytes = {"none": 0, "16B": 16, "32B": 32}[own["interleave"]]
    dense = own["dims"][0] * (slice_bytes or ts.DataType.named(own["data_type"]).tma.bits / 8)
    strides = []
    for extent in own["dims"][1:]:
        step = int(dense)
        other = one_of(0, 16, 24, -step, step + 8, step + 16, step + 32, step // 2, 1 << 40)
        strides.append(one_of(step, step, step, other))
        dense *= max(1, extent)
    own["strides_bytes"] = tuple(strides)
    own["element_strides"] = one_of(None, tuple(one_of(1, 1, 1, 0, 8, 9) for _ in range(rank)))
    own["swizzle"] = one_of(*SWIZZLES)
    own["oob_fill"] = one_of("zero", "nan")
    own["arch"] = one_of("sm_80", "sm_90", "sm_100", "sm_103", "sm_120")
    own["address"] = one_of(0, 8, 16, 48, 1 << 57)
    if kind is ts.TensorMap:
        return own | {"box": tuple(one_of(0, 1, 9, 16, 64, 128, 255, 256, 300) for _ in range(rank))}
    own["channels_per_pixel"] = one_of(0, 8, 9, 64, 128, 256)
    own["pixels_per_column"] = one_of(0, 1, 64, 1000, 1024, 2000)
    if kind is ts.Im2colMap:
        corners = [tuple(one_of(-1, 0, 1, -40, 300) for _ in range(rank - 2)) for _ in range(2)]
        return own | {"lower_corner": corners[0], "upper_corner": corners[1]}
    return own | {
        "lower_width": one_of(-1, 0, -40000),
        "upper_width": one_of(-1, 0, 40000),
        "mode": one_of("W", "W128"),
    }


@pytest.mark.parametrize("kind", [ts.TensorMap, ts.Im2colMap, ts.Im2colWideMap], ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_a_fix_adds_nothing_that_the_users_own_legal_values_do_not_cause(kind, data):
    event("fixed" if check_fix(kind, data.draw(map_arguments(kind))) else "no fix")


@pytest.mark.parametrize(
    "strides_bytes",
    [
        (2046, 2095104),
        (2046, 0),
        (0, 2046),
        (2000, 2095104),
        (2040, 2040),
        (-2048, 2097152),
        (2097152, 2046),
        (2047, 2048),
    ],
)
def test_a_fix_of_strides_adds_nothing(strides_bytes):
    assert check_fix(ts.TensorMap, BATCHES | {"strides_bytes": strides_bytes})


def test_padding_a_row_moves_what_lies_behind_it():
    wanted = (2048, 2097152)
    assert fixed(**BATCHES)["strides_bytes"] == wanted
    assert fixed(**BATCHES, strides_bytes=(2046, 2095104))["strides_bytes"] == wanted
    assert (
        MapArguments.of(BATCHES | {"strides_bytes": wanted}).check()[0].rule == "store-overrun"
    )  # a note, nothing else


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ((2046, 0), (2048, 0)),  # a broadcast
        ((2046, 1024), (2048, 1024)),  # a sliding window
        ((1000, 2097152), (2048, 2097152)),  # 1008 would be a window that nobody asked for
        ((-2048, 2097152), (2048, 2097152)),  # the dimension flipped in a copy
        ((2046, 4194304), (2048, 4194304)),  # room enough
    ],
)
def test_legal_strides_stay_and_others_do_not_overlap(given, mended):
    assert fixed(**BATCHES, strides_bytes=given)["strides_bytes"] == mended


def test_strides_that_nobody_gave_follow_the_dims():
    assert fixed(data_type="f16", dims=(0, 64, 4), box=(8, 8, 1))["strides_bytes"] == (16, 1024)
    packed = fixed(data_type="16u4_align16b", dims=(4000, 64), box=(128, 8), swizzle="128B", arch="sm_100")
    assert (packed["dims"], packed["strides_bytes"]) == ((4096, 64), (2048,))


def test_a_row_that_grows_takes_its_stride_along():
    """2016 bytes hold 4000 values of 4 bits, not the 4096 that the type asks for."""
    given = {
        "data_type": "16u4_align16b",
        "dims": (4000, 64),
        "strides_bytes": (2016,),
        "box": (128, 8),
        "arch": "sm_100",
    }
    assert fixed(**given)["strides_bytes"] == (2048,)


def test_a_box_that_is_changed_fits_a_block():
    """The driver counts 16 bytes a row, shared memory has a span of 128."""
    box = fixed(data_type="u8", dims=(16, 1024, 8), box=(9, 256, 8), swizzle="128B")["box"]
    assert box == (16, 256, 4)


def test_an_interleaved_map_of_two_dimensions_keeps_its_tensor():
    mended = fixed(data_type="f16", dims=(8, 8), strides_bytes=(128,), box=(8, 8), interleave="16B", arch="sm_100")
    assert (mended["dims"], mended["strides_bytes"], mended["interleave"]) == ((8, 8, 1), (128, 1024), "16B")


def test_strides_that_no_map_has_are_refused():
    """The batches would overlap below 2^40 bytes, whatever the stride."""
    with pytest.raises(ts.TensorMapError, match="stride-range"):
        fixed(data_type="f16", dims=(64, 8, 4), strides_bytes=(1 << 39, 1 << 42), box=(64, 8, 1))


def test_a_sequence_of_the_wrong_length_is_named(wording):
    (found,) = ts.TensorMap.check("f16", (64, 64), (128,), (64,))
    wording("a sequence of the wrong length is named", str(found))
