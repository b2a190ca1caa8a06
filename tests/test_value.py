"""Results are values: they compare, hash, and travel through JSON and pickle; strange data is refused."""

import contextlib
import copy
import importlib
import json
import pickle
import pkgutil
import subprocess
import sys
from dataclasses import dataclass, field, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope
import tilescope as ts
from tilescope.arch import ARCH, Arch
from tilescope.data_type import DATA_TYPE, DataType
from tilescope.errors import RuleError, Violation
from tilescope.layout import Layout
from tilescope.mma.readings import descriptor_readings
from tilescope.reading import plain_int
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.value import Row, Value, array_field, hex_field, read_only, row_field


@dataclass(frozen=True, slots=True)
class SamplePart(Value):
    """A value inside another."""

    words: tuple[int, ...] = hex_field()


@dataclass(frozen=True, slots=True, eq=False)
class Sample(Value):
    """One field of each sort that results have."""

    count: int
    start: int = hex_field()
    table: np.ndarray = array_field("int64")
    swizzle: Swizzle = row_field(Swizzle.named)
    part: SamplePart
    parts: tuple[SamplePart, ...] = ()
    findings: tuple[Violation, ...] = ()
    names: dict[str, int] = field(default_factory=dict)
    maybe: np.ndarray | None = array_field("float32", default=None)


OWN_KINDS = {kind: Value._kinds.pop(kind) for kind in ("sample", "sample_part")}  # other tests list all kinds


@pytest.fixture(autouse=True)
def _own_kinds(monkeypatch):
    for kind, own in OWN_KINDS.items():
        monkeypatch.setitem(Value._kinds, kind, own)


def sample(**changes):
    given_fields = {
        "count": 3,
        "start": 2**63 + 1024,
        "table": read_only(np.arange(6).reshape(2, 3)),
        "swizzle": Swizzle.named("64B"),
        "part": SamplePart((1, 2**64 - 1)),
        "parts": (SamplePart(()), SamplePart((7,))),
        "findings": (Violation("l2", "note", "l2", "none", "128B", "Use 128B.", {"l2": "128B"}),),
        "names": {"a": 1, "b": 2},
    }
    return Sample(**(given_fields | changes))


CORE_VALUES = [
    *SWIZZLE.values(),
    Swizzle.xor(5, 2, 5),
    Swizzle.xor(2, 4, -3),
    *DATA_TYPE.values(),
    *ARCH.values(),
    Layout((64, 64), 16, swizzle="128B", start=0x400),
    Layout((64, 64), 4, atom=(8, 32), atom_order="row", padding_bytes=16, swizzle="xor:5,2,5"),
    SamplePart((0, 1)),
    sample(),
    sample(maybe=read_only(np.array([0.5, 2.0], np.float32))),
]
ids = lambda value: f"{value.kind}-{getattr(value, 'name', '')}"  # noqa: E731


@pytest.mark.parametrize("value", CORE_VALUES, ids=ids)
def test_plain_data_leads_back_through_json(value):
    text = json.dumps(value.to_dict(), allow_nan=False)
    assert json.loads(text)["kind"] == value.kind
    for back in (Value.from_dict(json.loads(text)), type(value).from_dict(json.loads(text))):
        assert type(back) is type(value)
        assert back == value
        assert hash(back) == hash(value)
        assert back.to_dict() == value.to_dict()


@pytest.mark.parametrize("value", CORE_VALUES, ids=ids)
def test_pickles_and_copies_are_equal(value):
    for back in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert back == value
        assert hash(back) == hash(value)


@pytest.mark.parametrize("row", [*SWIZZLE.values(), *DATA_TYPE.values(), *ARCH.values()], ids=ids)
def test_pickled_row_is_the_row_of_the_table(row):
    assert pickle.loads(pickle.dumps(row)) is row
    assert copy.deepcopy(row) is row


def test_plain_data_says_what_its_fields_are():
    data = sample().to_dict()
    assert data["kind"] == "sample"
    assert data["start"] == "0x8000000000000400"  # JavaScript rounds integers above 2^53
    assert data["part"] == {"kind": "sample_part", "words": ["0x1", "0xffffffffffffffff"]}
    assert data["table"] == [[0, 1, 2], [3, 4, 5]]
    assert data["swizzle"] == "64B"
    assert data["findings"][0]["change"] == {"l2": "128B"}
    assert data["maybe"] is None


def test_numpy_scalars_become_plain():
    data = sample(count=np.int64(3), start=np.uint64(16), names={"a": np.float32(0.5), "b": np.bool_(True)}).to_dict()
    assert (data["count"], data["start"], data["names"]) == (3, "0x10", {"a": 0.5, "b": True})
    assert json.loads(json.dumps(data)) == data


def test_kind_is_the_class_in_small_letters():
    assert [each.kind for each in (Layout, DataType, Arch, SamplePart)] == [
        "layout",
        "data_type",
        "arch",
        "sample_part",
    ]


def test_kind_may_be_left_out_where_the_class_is_known():
    data = Layout((8, 64), 16).to_dict()
    del data["kind"]
    assert Layout.from_dict(data) == Layout((8, 64), 16)
    with pytest.raises(RuleError, match="unknown-name: kind is missing"):
        Value.from_dict(data)


def test_optional_fields_may_be_left_out():
    assert Layout.from_dict({"shape": [8, 64], "element_bits": 16}) == Layout((8, 64), 16)


def test_revived_arrays_are_read_only():
    assert not Value.from_dict(sample().to_dict()).table.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        sample().table[0, 0] = 1


@pytest.mark.parametrize(
    "change",
    [
        {"count": 4},
        {"start": 0},
        {"table": np.arange(6)},
        {"table": np.arange(1, 7).reshape(2, 3)},
        {"swizzle": SWIZZLE["32B"]},
        {"part": SamplePart((1,))},
        {"parts": ()},
        {"findings": ()},
        {"names": {"a": 1}},
        {"maybe": np.zeros(2, np.float32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_values_differ_where_one_field_does(change):
    assert sample() != sample(**change)
    assert sample(**change) == sample(**change)


def test_equal_values_hash_alike_whatever_their_dtype_and_order():
    one = sample(table=np.arange(6, dtype=np.int32).reshape(2, 3), names={"b": 2, "a": 1})
    assert one == sample()
    assert hash(one) == hash(sample())
    assert len({one, sample()}) == 1


def test_values_of_other_kinds_are_not_equal():
    assert Layout((8, 64), 16) != SamplePart(())
    assert sample() != SamplePart(())
    assert sample() != 3
    assert (sample() == None) is False  # noqa: E711


def test_values_are_frozen():
    for value in (sample(), Layout((8, 64), 16), SWIZZLE["128B"]):
        for each in fields(value):
            with pytest.raises(AttributeError):
                setattr(value, each.name, 1)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"kind": "layuot"}, "Did you mean layout?"),
        ({"kind": 3}, "kind 3 (int)"),
        ({"kind": ["layout"]}, "unknown-name: kind"),
        ({}, "unknown-name: kind"),
        (None, "unknown-name: kind"),
        ("layout", "unknown-name: kind"),
        ([], "unknown-name: kind"),
        ({"kind": "layout"}, "a layout without shape, element_bits"),
        ({"kind": "layout", "shape": [8, 8]}, "a layout without element_bits"),
        ({"kind": "layout", "shape": [8, 8], "element_bits": 8, "sart": 1, "x": 1}, "Did you mean start?"),
        ({"kind": "layout", "shape": [8, 8], "element_bits": 8, "start": "here"}, "is an integer. Use 0x400"),
        ({"kind": "layout", "shape": [8, 8], "element_bits": 8, "swizzle": "129B"}, "Did you mean 128B?"),
        ({"kind": "layout", "shape": "big", "element_bits": 8}, "a sequence of integers"),
        ({"kind": "layout", "shape": [8, 8], "element_bits": 8, 3: 4}, "field of layout 3 (int)"),
    ],
)
def test_strange_data_is_refused(data, says):
    with pytest.raises(RuleError) as caught:
        Value.from_dict(data)
    assert says in str(caught.value)


@pytest.mark.parametrize("strange", [[[1], [2, 3]], "text", [2**80], {"a": 1}])
def test_strange_array_is_refused(strange):
    with pytest.raises(RuleError, match="nested lists of int64") as caught:
        Value.from_dict(sample().to_dict() | {"table": strange})
    assert caught.value.violations[0].argument == "table"


def test_all_unknown_fields_are_named():
    with pytest.raises(RuleError) as caught:
        Layout.from_dict({"shape": [8, 8], "element_bits": 8, "sart": 1, "swizle": "none"})
    assert len(caught.value.violations) == 2


def test_a_class_takes_its_own_kind_only():
    with pytest.raises(RuleError, match="known: layout"):
        Layout.from_dict(SWIZZLE["128B"].to_dict())
    assert Row.from_dict(SWIZZLE["128B"].to_dict()) == SWIZZLE["128B"]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)


@given(
    PLAIN,
    st.dictionaries(st.sampled_from(["shape", "element_bits", "atom", "start", "swizzle", "padding_bytes"]), PLAIN),
)
def test_any_plain_data_is_a_value_or_a_rule_error(anything, fields):
    for data in (anything, {"kind": "layout"} | fields, Layout((8, 8), 8).to_dict() | fields):
        try:
            Value.from_dict(data)
        except RuleError as error:
            if not error.violations:
                pytest.fail("a RuleError without violations")


@pytest.mark.parametrize(
    ("given_value", "plain"),
    [
        (3, 3),
        (-(2**70), -(2**70)),
        (np.int8(-3), -3),
        (np.array(7), 7),
        (True, None),
        (np.bool_(True), None),
        (1.0, None),
        ("1", None),
        (None, None),
        (np.array([1]), None),
        (np.float64(1), None),
    ],
)
def test_plain_int_takes_integers_alone(given_value, plain):
    found = plain_int(given_value)
    assert found == plain
    assert type(found) is type(plain)


EVERY_KIND = """
import json
from tilescope.value import Value, _kind_called

_kind_called("no such kind")
print(json.dumps(sorted(Value._kinds)))
"""
AS_SOON_AS_KNOWN = """
import importlib, json
import tilescope
from tilescope.errors import RuleError
from tilescope.value import _DEFINING_MODULES, Value

tried = set()
for module in _DEFINING_MODULES:  # a fresh process imports them one by one until one defines the kind
    importlib.import_module(f"tilescope.{module}")
    for kind in sorted(set(Value._kinds) - tried):
        tried.add(kind)
        try:
            Value.from_dict({"kind": kind, "no such field": 1})
        except RuleError as error:
            by_name = f"{kind} is missing" in str(error)  # rows of tables are found by their name
            assert "no such field" in str(error) or "without" in str(error) or by_name, (kind, str(error))
print(json.dumps(sorted(tried)))
"""


def program(source, given=""):
    return subprocess.run(
        [sys.executable, "-c", source], input=given, text=True, capture_output=True, check=True
    ).stdout


def kinds_in_their_modules():
    """The kinds that the modules of the package define."""
    for module in pkgutil.walk_packages(tilescope.__path__, "tilescope.", onerror=lambda _: None):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):  # an extra that is not installed; such modules define no kinds
                importlib.import_module(module.name)
    return sorted(kind for kind, made in Value._kinds.items() if made.__module__.startswith("tilescope."))


def test_a_fresh_process_knows_every_kind():
    every = kinds_in_their_modules()
    assert json.loads(program(EVERY_KIND)) == every
    assert not {"row", "value", "option", "any_map", "geometry", "operand_descriptor", "descriptor_loop"} & set(every)


@pytest.mark.slow
def test_a_kind_is_read_as_soon_as_its_module_is_imported():
    assert json.loads(program(AS_SOON_AS_KNOWN)) == json.loads(program(EVERY_KIND))


def test_a_fresh_process_reads_what_another_wrote():
    plans = ts.plan((128, 64), "bf16").to_dict()
    back = "import sys, json, tilescope as ts; print(ts.Value.from_dict(json.load(sys.stdin)).best.swizzle.name)"
    assert program(back, json.dumps(plans)) == "128B\n"


def test_a_violation_is_read_by_its_kind_too():
    found = ts.TensorMap.check("bf16", (64, 64), (128,), (64, 512))
    assert tuple(Value.from_dict(json.loads(json.dumps(each.to_dict()))) for each in found) == found


def test_what_stands_beside_a_value_is_passed_over():
    layout = Layout((8, 64), 16)
    assert Value.from_dict(layout.to_dict() | {"extra": {"anything": 1}}) == layout


@pytest.mark.parametrize("rule", ts.RULES.values(), ids=lambda rule: rule.name)
def test_rules_travel(rule):
    for back in (pickle.loads(pickle.dumps(rule)), copy.copy(rule), copy.deepcopy(rule)):
        assert back is rule
    assert Value.from_dict(json.loads(json.dumps(rule.to_dict()))) is rule
    assert {rule: 1}[rule] == 1


MAP = ts.TensorMap("bf16", (256, 256), (512,), (64, 64), swizzle="128B")
LDMATRIX = ts.Access.named("ldmatrix.x4", (64, 64), 16)
GEMM = ts.plan_gemm(4096, 4096, 4096, "bf16")
RESULTS = [
    GEMM,
    GEMM.a,
    GEMM.a.problem,
    GEMM.a.boxes,
    GEMM.a.costs,
    GEMM.a.canonical,
    MAP,
    ts.plan((128, 64), "bf16"),
    ts.plan((128, 64), "bf16", swizzle="96B"),
    ts.trace(MAP, (224, 0)),
    ts.trace(MAP, (224, 0)).runs[0],
    ts.inspect_tensor_map(MAP.encode()),
    ts.inspect_tensor_map(bytes(range(128))),
    ts.inspect_descriptor(0x4000004000010040),
    descriptor_readings(0x8400010),
    descriptor_readings(0x4000004000010040),
    LDMATRIX,
    ts.tile_report(LDMATRIX, Layout((64, 64), 16)),
    ts.find_layouts(LDMATRIX, tile=(64, 64), element_bits=16),
    ts.bank_report("ld.b32", np.arange(32) * 128),
    ts.fragment("mma.m16n8k16", "A", "bf16"),
    ts.fragment("wgmma.m64n256k16", "D", "f32"),
    ts.wgmma_descriptors((128, 64), "bf16", swizzle="128B"),
    ts.tcgen05_descriptors((128, 64), "bf16", swizzle="128B"),
    ts.canonical_layout("K", "128B", "bf16").tile((128, 64)),
    ts.convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "triton"),
    ts.compatible(
        MAP, ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B"), smem_address=0x800
    ),
    *ts.RULES.values(),
    *ts.SMEM_OP.values(),
]


def all_within(value):
    """The value and every value in its fields."""
    yield value
    for each in fields(value):
        inner = getattr(value, each.name)
        for item in inner if isinstance(inner, tuple) else (inner,):
            if isinstance(item, Value):
                yield from all_within(item)


@pytest.mark.parametrize("value", [*RESULTS, *CORE_VALUES], ids=ids)
def test_reprs_are_short_and_begin_with_the_class(value):
    for each in all_within(value):
        assert repr(each).startswith((f"{type(each).__name__}(", f"{type(each).__name__}.named("))
        assert len(repr(each)) < 600
        assert "\n" not in repr(each)
        assert each._repr_mimebundle_()["text/plain"] == repr(each)


def test_reprs_are_calls_where_they_are_short():
    names = {
        "Layout": Layout,
        "Swizzle": Swizzle,
        **{name: getattr(ts, name) for name in ("WgmmaDescriptor", "TensorMap", "Arch")},
    }
    for value in (
        Layout((64, 64), 16, swizzle="128B", start=0x400),
        ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B"),
        MAP,
        SWIZZLE["64B"],
        Swizzle.xor(5, 2, 5),
        ARCH["sm_90"],
    ):
        assert eval(repr(value), names) == value


def test_what_is_long_is_cut():
    assert repr(Layout((64, 64), 16, swizzle="128B", start=0x400)) == (
        'Layout((64, 64), 16, swizzle="128B", start=0x400)'
    )
    shown = repr(sample(table=read_only(np.arange(600).reshape(2, 300)), parts=100 * (SamplePart((7,)),)))
    assert "table=<2 x 300 int64: 0, 1, 2, 3, …>" in shown
    assert "swizzle='64B'" in shown
    assert "start=0x8000000000000400" in shown
    assert ", … 96 more)" in shown
    assert "candidates=(Plan(…), Plan(…), Plan(…), Plan(…), … 7 more)" in repr(ts.plan((128, 64), "bf16"))


def test_str_is_the_drawing_where_there_is_one():
    report = ts.plan((128, 64), "bf16")
    assert str(report) == report.text() != repr(report)
    assert str(ts.RULES["box-range"]) == ts.RULES["box-range"].text()
    assert str(ARCH["sm_90"]) == repr(ARCH["sm_90"]) == "Arch.named('sm_90')"
    assert str(SWIZZLE["128B"]) == "128B"  # has a __str__ of its own


ARRAYS = (np.zeros(2), np.arange(3), np.zeros((2, 2), "U3"), [np.zeros(2), np.zeros(2)])
HOLDERS = (
    ts.TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B"),
    ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B"),
    ts.InstructionDescriptor("f16", 128, 256, a_type="f16"),
    ts.inspect_descriptor(0x4000004000010040),
    ts.Violation("rank", "error", "dims", "0", "1 to 5", "Give 1."),
    ts.SWIZZLE["128B"],
)


@pytest.mark.parametrize("value", HOLDERS, ids=lambda value: value.kind)
def test_an_array_in_place_of_a_field_is_taken_or_refused(value):
    """Never numpy's ValueError about the truth of an array."""
    plain = value.to_dict()
    for name in plain:
        for array in ARRAYS:
            for kind in (Value, type(value)):
                with contextlib.suppress(ts.RuleError):
                    kind.from_dict(plain | {name: array})


@pytest.mark.parametrize("name", HOLDERS[0].readers)
def test_an_array_as_a_field_to_replace_is_taken_or_refused(name):
    for array in ARRAYS:
        for change in (HOLDERS[0].replace, HOLDERS[0].with_fields):
            with contextlib.suppress(ts.RuleError):
                change(**{name: array})


def test_a_row_of_a_table_equals_its_own_name():
    tensor_map = HOLDERS[0].with_fields(swizzle="none")
    assert tensor_map.swizzle == "none"
    assert tensor_map.swizzle != "128B"
    assert "bfloat16" == tensor_map.data_type  # noqa: SIM300  either way round
    assert hash(tensor_map.arch) == hash("sm_90")
    assert {"sm_90": 1}[tensor_map.arch] == 1
    assert ts.SWIZZLE["none"] != ts.Swizzle.xor(3, 4, 3)
