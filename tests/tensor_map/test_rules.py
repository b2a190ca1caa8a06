"""Every rule: its examples run, its limit is where it says, and its change cures."""

import re
from pathlib import Path

import pytest

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.tensor_map import MapArguments
from tilescope.tensor_map.checking import MAPS
from tilescope.tensor_map.demonstration import demonstrate
from tilescope.tensor_map.rules import MAP_CHECKS
from tilescope.tensor_map.samples import BYTES, IMAGES, MATRIX, PADDED, SIX_BITS, SLICES, WIDE

ROOT = Path(__file__).parent.parent.parent
RULES = list(ts.RULES.values())
ABOUT_MAPS = [rule for rule in RULES if rule.subjects]
MAP_RULES = [rule for rule in ABOUT_MAPS if rule.subjects[0] in MAPS]
CHECKED_RULES = list(dict.fromkeys(check.rule for check in MAP_CHECKS))
FIVE = {"data_type": "u8", "dims": (16,) * 5, "strides_bytes": (16, 256, 4096, 65536), "box": (16, 2, 2, 2, 2)}
THREE = IMAGES | {"dims": (64, 32, 8), "strides_bytes": (128, 4096), "lower_corner": (0,), "upper_corner": (0,)}
DEEP = IMAGES | {
    "dims": (64, 32, 32, 8, 2),
    "strides_bytes": (128, 4096, 131072, 1 << 20),
    "lower_corner": (0, 0, 0),
    "upper_corner": (0, 0, 0),
}
HUGE = {"dims": (64, (1 << 32) - 1, 8), "strides_bytes": (128, 1 << 39)}


def named(rules):
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.name)


def broken(arguments):
    """Names of the errors of a map."""
    return {found.rule for found in MapArguments.of(arguments).check() if found.severity == "error"}


@named([rule for rule in RULES if rule.failing is not None])
def test_the_passing_example_keeps_the_rule_and_the_failing_one_breaks_it(rule):
    assert demonstrate(rule, rule.passing) == ()
    found = demonstrate(rule, rule.failing)
    assert found
    assert {each.severity for each in found} == {rule.severity}


def test_every_kernel_of_the_examples_belongs_to_a_rule_and_says_what_it_shows():
    expressions = [str(example) for rule in RULES for example in (rule.passing, rule.failing)]
    files = sorted((Path(ts.__file__).parent / "rule_examples").iterdir())
    assert files
    for file in files:
        text = file.read_text("utf-8")
        assert text.startswith("// "), file.name
        assert any(text in expression for expression in expressions), file.name


@named(MAP_RULES)
def test_the_passing_example_is_a_sound_map(rule):
    assert broken(rule.passing) == set()


@pytest.mark.parametrize(
    "missing", ["data_type", "dims", "strides_bytes", "box", "element_strides", "swizzle", "arch", "address"]
)
@named([rule for rule in MAP_RULES if "tiled" in rule.subjects])
def test_a_rule_that_needs_an_unreadable_argument_says_nothing_or_the_same(rule, missing):
    """Never anything else, and never an exception of Python's."""
    whole = demonstrate(rule, rule.failing)
    parts = demonstrate(rule, dict(rule.failing) | {missing: 0.5})
    assert set(parts) <= set(whole)


@named(RULES)
def test_a_rule_says_where_it_comes_from_and_where_it_holds(rule):
    assert rule.demand.endswith(".")
    assert rule.source
    assert rule.basis in {"measured", "documented"}
    assert rule.severity in {"error", "warning", "note"}
    assert set(rule.architectures) <= set(ARCH)
    assert rule.to_dict()["name"] == rule.name
    assert ts.Rule.from_dict(rule.to_dict()) is rule


@named(CHECKED_RULES)
def test_the_change_of_the_failing_example_cures_it(rule):
    for found in demonstrate(rule, rule.failing):
        if found.change is not None:
            assert demonstrate(rule, dict(rule.failing) | dict(found.change)) == ()


@named(CHECKED_RULES)
def test_the_change_of_the_failing_example_breaks_no_other_rule(rule):
    for found in demonstrate(rule, rule.failing):
        if found.change is not None:
            assert broken(dict(rule.failing) | dict(found.change)) <= broken(rule.failing) - {rule.name}


# What a fix without a change tells people to do with the failing example, in its words and as arguments.
FOLLOWED = [
    ("store-overrun", "Use dims[0] = 104 ", {"dims": (104, 64)}),
    ("swizzle-96B", "Encode with swizzle 128B,", {"swizzle": "128B"}),
]


@pytest.mark.parametrize(("name", "words", "arguments"), FOLLOWED)
def test_who_does_what_a_fix_says_has_a_sound_map(name, words, arguments):
    rule = ts.RULES[name]
    (found,) = demonstrate(rule, rule.failing)
    assert found.fix.startswith(words)
    assert MapArguments.of(dict(rule.failing) | arguments).check() == ()


# The failing example of a rule, what its fix says, and the example that does so.
CURED = [
    ("address-window", "Use a start of", "ts.Layout((64, 64), 16, start=0xFFFF_E000)"),
    ("tile-atoms", "Use 64 x 64.", 'ts.canonical_layout("K", "128B", "bf16").tile((64, 64))'),
    ("tile-file", "Write all 256 bytes", 'ts.tma.array_file.tile_of(bytes(256), "tile.bin", "bf16", (8, 16))'),
]


@pytest.mark.parametrize(("name", "words", "cured"), CURED)
def test_who_does_what_a_fix_says_keeps_the_rule(name, words, cured):
    rule = ts.RULES[name]
    assert demonstrate(rule, rule.failing)[0].fix.startswith(words)
    assert demonstrate(rule, cured) == ()


@pytest.mark.parametrize(
    ("shape", "swizzle"), [((64, 32), "64B"), ((64, 48), "32B"), ((64, 8), "none"), ((60, 64), None)]
)
def test_torn_atoms_name_the_widest_swizzle_that_fits(shape, swizzle):
    with pytest.raises(ts.RuleError) as refused:
        ts.canonical_layout("K", "128B", "bf16").tile(shape)
    named = re.search('swizzle "(.*)"', refused.value.violations[0].fix)
    assert (named and named[1]) == swizzle
    if swizzle is not None:
        assert ts.canonical_layout("K", swizzle, "bf16").tile(shape).shape == shape


def test_bare_bytes_are_told_the_shape_that_they_have():
    tile_of = ts.tma.array_file.tile_of
    for size, type_name, words in ((240, "bf16", "Use --shape 8x15,"), (64, "e2m1", "Use --type u8 --shape 8x8:")):
        with pytest.raises(ts.RuleError, match="tile-file") as refused:
            tile_of(bytes(size), "tile.bin", type_name, (8, 16))
        assert refused.value.violations[0].fix.startswith(words)
    assert tile_of(bytes(240), "tile.bin", "bf16", (8, 15)).shape == (8, 15)
    assert tile_of(bytes(64), "tile.bin", "u8", (8, 8)).shape == (8, 8)


def test_a_map_of_rank_6_names_the_dimensions_that_merge(wording):
    dense = {"data_type": "u8", "dims": (16, 8, 8, 8, 8, 8), "strides_bytes": (16, 128, 1024, 8192, 65536)}
    (inner,) = (found for found in ts.TensorMap.check(**dense, box=(16, 8, 8, 8, 2, 2)) if found.rule == "rank")
    assert "Merge dims 3 and 4" in inner.fix
    assert "dims = (16, 8, 8, 64, 8)." in inner.fix
    wording("a map of rank 6 names the dimensions that merge", inner.fix)
    assert ts.TensorMap.check(**dense | {"box": (16, 8, 8, 8, 2, 2)} | dict(inner.change)) == ()
    (no_run,) = (found for found in ts.TensorMap.check(**dense, box=(16, 2, 2, 2, 2, 2)) if found.rule == "rank")
    assert no_run.change is None
    wording("a map of rank 6 of which no dimensions merge", no_run.fix)


@named([rule for rule in RULES if rule.subjects == ("instruction",)])
def test_the_change_of_a_copy_cures_it(rule):
    for found in demonstrate(rule, rule.failing):
        changed = {key: dict(value) if key == "copy" else value for key, value in rule.failing.items()}
        for name, value in (found.change or {}).items():
            (changed["copy"] if name in ("coords", "offsets", "smem_address") else changed)[name] = value
        if found.change is not None:
            assert demonstrate(rule, changed) == ()


NUMBER = re.compile(r"(?<![\w\[.^-])-?(?:0x[0-9a-f]+|\d+(?:\.\d+)?)(?![\w\]^-])")  # no index, no part of a name


def numbers_in(values):
    """All numbers in nested values."""
    return {number for value in values for number in (numbers_in(value) if isinstance(value, tuple) else (value,))}


@named([rule for rule in RULES if rule.failing and (rule.subjects or rule.name.startswith(("plan-", "gemm-")))])
def test_a_violation_holds_the_numbers_of_its_sentence(rule):
    for violation in demonstrate(rule, rule.failing):
        said = {int(text, 16) if "x" in text else float(text) for text in NUMBER.findall(violation.found)}
        assert said <= numbers_in(violation.values.values())


def test_a_sound_map_has_no_findings():
    assert ts.TensorMap.check(**MATRIX, swizzle="128B") == ()
    assert ts.Im2colMap.check(**IMAGES) == ()
    assert ts.Im2colWideMap.check(**WIDE) == ()


# The last that is accepted, the first that is refused, and the rule that refuses it.
LIMITS = [
    (FIVE, FIVE | {"dims": (16,) * 6, "strides_bytes": (16,) * 5, "box": (16,) * 6}, "rank"),
    (
        MATRIX | {"dims": (64,), "strides_bytes": (), "box": (64,)},
        MATRIX | {"dims": (), "box": (), "strides_bytes": ()},
        "rank",
    ),
    (THREE, IMAGES | {"dims": (64, 32), "strides_bytes": (128,), "lower_corner": (), "upper_corner": ()}, "rank"),
    (SLICES, SLICES | {"dims": (8, 8), "strides_bytes": (256,), "box": (8, 8)}, "interleave-rank"),
    (MATRIX | {"address": 16}, MATRIX | {"address": 8}, "address-alignment"),
    (SLICES | {"interleave": "32B", "address": 32}, SLICES | {"interleave": "32B", "address": 16}, "address-alignment"),
    (PADDED | {"address": 32}, PADDED | {"address": 16}, "address-alignment"),
    (MATRIX | {"address": (1 << 57) - 16}, MATRIX | {"address": 1 << 57}, "address-range"),
    (MATRIX | {"address": 0}, MATRIX | {"address": -16}, "address-range"),
    (MATRIX | {"dims": (1, 1)}, MATRIX | {"dims": (0, 1)}, "dim-range"),
    (MATRIX | {"dims": (1 << 32, 1 << 32)}, MATRIX | {"dims": (64, (1 << 32) + 1)}, "dim-range"),
    (MATRIX | {"strides_bytes": (16,)}, MATRIX | {"strides_bytes": (8,)}, "stride-alignment"),
    (SLICES | {"interleave": "32B"}, SLICES | {"interleave": "32B", "strides_bytes": (272, 2048)}, "stride-alignment"),
    (PADDED, PADDED | {"strides_bytes": (2064,)}, "stride-alignment"),
    (MATRIX | {"strides_bytes": (0,)}, MATRIX | {"strides_bytes": (-16,)}, "stride-range"),
    (MATRIX | {"strides_bytes": ((1 << 40) - 16,)}, MATRIX | {"strides_bytes": (1 << 40,)}, "stride-range"),
    (MATRIX | {"box": (64, 256)}, MATRIX | {"box": (64, 257)}, "box-range"),
    (MATRIX | {"box": (64, 1)}, MATRIX | {"box": (64, 0)}, "box-range"),
    (MATRIX | {"box": (8, 64)}, MATRIX | {"box": (7, 64)}, "inner-multiple"),
    (SLICES, SLICES | {"box": (7, 1, 8)}, "inner-multiple"),
    (IMAGES | {"channels_per_pixel": 8}, IMAGES | {"channels_per_pixel": 9}, "inner-multiple"),
    (MATRIX | {"swizzle": "128B"}, MATRIX | {"swizzle": "128B", "box": (72, 64)}, "swizzle-span"),
    (MATRIX | {"swizzle": "64B", "box": (32, 64)}, MATRIX | {"swizzle": "64B", "box": (40, 64)}, "swizzle-span"),
    (MATRIX | {"swizzle": "32B", "box": (16, 64)}, MATRIX | {"swizzle": "32B", "box": (24, 64)}, "swizzle-span"),
    (SLICES | {"swizzle": "32B", "box": (64, 1, 8)}, MATRIX | {"swizzle": "32B"}, "swizzle-span"),
    (
        MATRIX | {"swizzle": "96B", "box": (48, 64), "arch": "sm_103"},
        MATRIX | {"swizzle": "96B", "box": (56, 64), "arch": "sm_103"},
        "swizzle-span",
    ),
    (MATRIX | {"element_strides": (8, 8)}, MATRIX | {"element_strides": (9, 1)}, "element-stride-range"),
    (MATRIX | {"element_strides": (1, 1)}, MATRIX | {"element_strides": (1, 0)}, "element-stride-range"),
    (BYTES | {"box": (256, 114, 8)}, BYTES | {"box": (256, 115, 8)}, "box-bytes"),
    (  # the floor of box / element stride …
        BYTES | {"box": (256, 229, 8), "element_strides": (1, 2, 1)},
        BYTES | {"box": (256, 230, 8), "element_strides": (1, 2, 1)},
        "box-bytes",
    ),
    (  # … in dim 0 too
        BYTES | {"box": (256, 228, 8), "element_strides": (2, 1, 1)},
        BYTES | {"box": (256, 229, 8), "element_strides": (2, 1, 1)},
        "box-bytes",
    ),
    (
        IMAGES | {"channels_per_pixel": 224, "pixels_per_column": 521},
        IMAGES | {"channels_per_pixel": 224, "pixels_per_column": 522},
        "box-bytes",
    ),
    (MATRIX | {"oob_fill": "nan"}, MATRIX | {"oob_fill": "nan", "data_type": "u16"}, "nan-fill"),
    (MATRIX | {"data_type": "tf32", "oob_fill": "nan", "box": (32, 64)}, PADDED | {"oob_fill": "nan"}, "nan-fill"),
    (THREE | {"lower_corner": (-32768,)}, THREE | {"lower_corner": (-32769,)}, "corner-range"),
    (
        THREE | HUGE | {"dims": (64, 1 << 20, 8), "lower_corner": (32767,)},
        THREE | {"lower_corner": (32768,)},
        "corner-range",
    ),
    (IMAGES | {"upper_corner": (127, 127)}, IMAGES | {"upper_corner": (128, 0)}, "corner-range"),
    (IMAGES | {"lower_corner": (-128, -128)}, IMAGES | {"lower_corner": (0, -129)}, "corner-range"),
    (DEEP | {"upper_corner": (15, 15, 15)}, DEEP | {"upper_corner": (0, 0, 16)}, "corner-range"),
    (DEEP | {"lower_corner": (-16, -16, -16)}, DEEP | {"lower_corner": (-17, 0, 0)}, "corner-range"),
    (THREE | {"upper_corner": (-31,)}, THREE | {"upper_corner": (-32,)}, "bounding-box"),
    (IMAGES | {"lower_corner": (0, 31), "upper_corner": (0, 0)}, IMAGES | {"lower_corner": (0, 32)}, "bounding-box"),
    (  # interleaved dims start with W
        IMAGES | {"dims": (4, 4, 64, 64), "interleave": "16B", "lower_corner": (0, 0), "upper_corner": (-3, -3)},
        IMAGES | {"dims": (4, 4, 64, 64), "interleave": "16B", "lower_corner": (0, 0), "upper_corner": (-4, 0)},
        "bounding-box",
    ),
    (THREE | HUGE | {"dims": (64, (1 << 31) - 1, 8)}, THREE | HUGE, "bounding-box"),  # 2^32 - 1 counts as -1
    (THREE | HUGE | {"upper_corner": (2,)}, THREE | HUGE | {"upper_corner": (1,)}, "bounding-box"),
    (IMAGES | {"channels_per_pixel": 256}, IMAGES | {"channels_per_pixel": 264}, "channels-range"),
    (IMAGES | {"channels_per_pixel": 8}, IMAGES | {"channels_per_pixel": 0}, "channels-range"),
    (IMAGES | {"pixels_per_column": 1024}, IMAGES | {"pixels_per_column": 1025}, "pixels-range"),
    (IMAGES | {"pixels_per_column": 1}, IMAGES | {"pixels_per_column": 0}, "pixels-range"),
    (WIDE | {"lower_width": -32768}, WIDE | {"lower_width": -32769}, "wide-corner"),
    (WIDE | {"upper_width": 32767}, WIDE | {"upper_width": 32768}, "wide-corner"),
    (WIDE | {"lower_width": 31, "upper_width": 0}, WIDE | {"lower_width": 32, "upper_width": 0}, "wide-bounding-box"),
    (
        WIDE | {"swizzle": "64B", "channels_per_pixel": 32},
        WIDE | {"swizzle": "32B", "channels_per_pixel": 16},
        "wide-swizzle",
    ),
    (
        WIDE | {"swizzle": "96B", "channels_per_pixel": 48, "arch": "sm_103"},
        WIDE | {"swizzle": "96B", "channels_per_pixel": 48, "arch": "sm_103", "mode": "W128"},
        "wide-swizzle",
    ),
    (WIDE, WIDE | {"interleave": "16B"}, "wide-interleave"),
    (WIDE | {"mode": "W128"}, WIDE | {"mode": "W128", "arch": "sm_120"}, "wide-mode"),
    (WIDE, WIDE | {"arch": "sm_90"}, "arch-tma"),
    (MATRIX, MATRIX | {"arch": "sm_89"}, "arch-tma"),
    (PADDED, PADDED | {"arch": "sm_90"}, "arch-data-type"),
    (PADDED | {"dims": (256, 64)}, PADDED | {"dims": (192, 64)}, "packed-dim"),
    (
        PADDED | {"data_type": "16u4_align8b", "dims": (4094, 64)},
        PADDED | {"data_type": "16u4_align8b", "dims": (4095, 64)},
        "packed-dim",
    ),
    (PADDED, PADDED | {"box": (64, 8)}, "packed-row"),
    (PADDED | {"swizzle": "128B_ATOM_32B"}, PADDED | {"swizzle": "128B_ATOM_32B_FLIP_8B"}, "packed-swizzle"),
    (SIX_BITS | {"swizzle": "128B_ATOM_64B"}, PADDED | {"swizzle": "128B_ATOM_64B"}, "packed-swizzle"),
]
HALF_ROWS = SIX_BITS | {"dims": (64, 64), "strides_bytes": (48,), "box": (64, 8), "swizzle": "64B", "address": 16}


@pytest.mark.parametrize(("accepted", "refused", "rule"), LIMITS)
def test_both_sides_of_each_limit(accepted, refused, rule):
    assert broken(accepted) == set()
    assert rule in broken(refused)


def test_every_error_of_a_map_has_both_sides_of_its_limit_tested():
    by_example = {"arch-swizzle", "swizzle-96B-interleave", "packed-interleave"}  # modes, which have no neighbours
    errors = {rule.name for rule in CHECKED_RULES if rule.severity == "error"}
    assert {rule for _, _, rule in LIMITS} == errors - by_example


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_103", "sm_110", "sm_120"])
def test_each_architecture_has_its_swizzles_types_and_kinds(arch):
    newer = arch != "sm_90"
    atoms = ("128B_ATOM_32B", "128B_ATOM_32B_FLIP_8B", "128B_ATOM_64B")
    allowed = {
        mode: broken(MATRIX | {"box": (8, 64), "swizzle": mode, "arch": arch}) == set()
        for mode in ("none", "32B", "64B", "128B", "96B", *atoms)
    }
    wanted = (
        dict.fromkeys(("none", "32B", "64B", "128B"), True) | dict.fromkeys(atoms, newer) | {"96B": arch == "sm_103"}
    )
    assert allowed == wanted
    assert (broken(PADDED | {"arch": arch}) == set()) == newer
    assert (broken(WIDE | {"arch": arch}) == set()) == newer
    assert (broken(HALF_ROWS | {"arch": arch}) == set()) == (arch == "sm_103")


def test_a_row_of_packed_values_may_end_in_the_middle_of_a_byte():
    found = ts.TensorMap.check("16u4_align8b", (64, 64), (32,), (9, 64), arch="sm_100")
    assert [(each.rule, each.values["row_bytes"]) for each in found] == [("inner-multiple", 4.5)]


def test_sm_103_stores_half_rows_of_six_bit_values_and_cannot_load_them():
    half = ts.TensorMap(**HALF_ROWS | {"arch": "sm_103"})
    assert [found.rule for found in half.findings] == ["packed-store-only", "address-128"]
    copies = ts.tensor_map.Copy(half, "store", (64, 0)), ts.tensor_map.Copy(half, "load", (64, 0))
    assert [[found.rule for found in ts.tensor_map.broken_by(copy)] for copy in copies] == [
        [],
        ["inner-coordinate", "packed-load"],
    ]


def test_unordered_strides_are_no_overlap_but_sliding_windows_and_broadcasts_are():
    def overlaps(dims, strides_bytes):
        found = ts.TensorMap.check("f16", dims, strides_bytes, (8,) * len(dims))
        return [each.argument for each in found if each.rule == "stride-overlap"]

    assert overlaps((64, 32, 16), (2048, 128)) == []  # a transposed view
    assert overlaps((64, 32, 1), (128, 0)) == []  # a single index takes no step
    assert overlaps((64, 32), (16,)) == ["strides_bytes[0]"]
    assert overlaps((64, 32, 16), (128, 0)) == ["strides_bytes[1]"]


def test_shared_memory_that_the_driver_does_not_count_is_a_warning(wording):
    """The driver floors box / element stride and ignores the swizzle's span; the copy does neither."""
    found = ts.TensorMap.check(
        "u8", (16, 1024, 8), (16, 16384), (16, 256, 8), swizzle="128B", element_strides=(1, 1, 1)
    )
    assert [each.rule for each in found] == ["smem-capacity"]
    assert "copy of 262144 shared bytes (2048" in found[0].found
    assert "rows of 128)" in found[0].found
    wording("shared memory that the driver does not count is a warning", found[0].found)


def test_all_broken_rules_come_at_once():
    found = ts.TensorMap.check("u8", (0, 64), (8,), (300, 0), element_strides=(1, 9), oob_fill="nan", address=8)
    assert {each.rule for each in found if each.severity == "error"} == {
        "address-alignment",
        "dim-range",
        "stride-alignment",
        "box-range",
        "inner-multiple",
        "element-stride-range",
        "nan-fill",
    }


def test_an_unreadable_argument_silences_only_the_rules_that_need_it():
    found = ts.TensorMap.check("u8", "64x64", (8,), (300, 64), oob_fill="nan", swizzle="256B")
    assert [each.rule for each in found] == [
        "argument-type",
        "unknown-name",
        "box-range",
        "inner-multiple",
        "nan-fill",
    ]


@pytest.mark.parametrize(
    ("dims", "strides_bytes", "rule"),
    [
        ((128, 1, 8), (2, 256), "stride-alignment"),  # flashinfer#2150
        ((128, 1, 8), (1 << 40, 256), "stride-range"),  # flashinfer#2232
        ((128, 1, 8), (-16, 256), "stride-range"),
    ],
)
def test_the_stride_of_a_dimension_of_extent_1_may_be_any_multiple(dims, strides_bytes, rule):
    """flashinfer#2150, flashinfer#2232: such a stride is never taken, so nothing has to be padded or split."""
    (found,) = ts.TensorMap.check("bf16", dims, strides_bytes, (64, 1, 8), swizzle="128B")
    assert (found.rule, found.argument) == (rule, "strides_bytes[0]")
    assert found.fix.startswith("dims[1] is 1, ")
    assert found.fix.endswith("16.")
    cured = ts.TensorMap("bf16", dims, found.change["strides_bytes"], (64, 1, 8), swizzle="128B")
    also = ts.TensorMap("bf16", dims, (16, 256), (64, 1, 8), swizzle="128B")
    memory = bytes(range(256)) * 8
    assert (ts.load(cured, memory, (0, 0, 0)) == ts.load(also, memory, (0, 0, 0))).all()


@pytest.mark.parametrize("wrong", [{"address": True}, {"dims": (64, True)}, {"box": (64.0, 64)}, {"box": 64}])
def test_truth_values_and_floats_are_no_integers(wrong):
    assert broken(MATRIX | wrong) == {"argument-type"}


def test_the_exception_carries_warnings_and_notes_too():
    with pytest.raises(ts.TensorMapError) as raised:
        ts.TensorMap("bf16", (100, 64), (208,), (9, 64))
    assert [each.rule for each in raised.value.violations] == ["inner-multiple", "store-overrun"]


def test_rule_names_in_the_documentation_exist():
    """Whatever a page prints as a violation is a rule."""
    said = re.compile(r"^(?:error|warning|note): ([a-z0-9B-]+):", re.MULTILINE)
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert set(said.findall(page.read_text("utf-8"))) <= set(ts.RULES), page


def test_the_documentation_lists_every_rule_as_it_is():
    text = (ROOT / "docs" / "tensor-maps.md").read_text("utf-8")
    listed = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.*) \|$", text, re.MULTILINE)
    assert sorted(listed) == sorted((rule.name, rule.severity, rule.demand) for rule in ABOUT_MAPS)


@pytest.mark.parametrize(("mode", "is_taken"), [("W", True), ("W128", False)])
def test_the_96b_swizzle_goes_with_mode_w_alone(mode, is_taken):
    asked = WIDE | {"mode": mode, "swizzle": "96B", "channels_per_pixel": 48, "arch": "sm_103"}
    found = {violation.rule for violation in ts.Im2colWideMap.check(**asked)}
    assert ("wide-swizzle" in found) != is_taken


@pytest.mark.parametrize(("arch", "is_noted"), [("sm_100", False), ("sm_120", True)])
def test_only_on_sm_120_packed_types_are_kept_from_clusters(arch, is_noted):
    found = {violation.rule for violation in ts.TensorMap(**SIX_BITS | {"arch": arch}).findings}
    assert ("cluster-load" in found) == is_noted


def test_the_length_of_a_sequence_is_told_with_what_its_entries_are_of():
    """Strides leave out the innermost dimension, corners the channels and the images."""
    tiled = ts.TensorMap.check("bf16", (64, 8, 4), (128,), (64, 8))
    said = {found.argument: found.limit for found in tiled if found.rule == "argument-length"}
    assert said == {
        "strides_bytes": "2 entries: one for each dimension but the innermost",
        "box": "3 entries: one for each dimension",
    }
    corners = {"lower_corner": (0,), "upper_corner": (0, 0, 0)}
    im2col = ts.Im2colMap.check(
        "bf16", (64, 8, 8, 2), (128, 1024, 8192), channels_per_pixel=64, pixels_per_column=32, **corners
    )
    said = {found.argument: found.limit for found in im2col if found.rule == "argument-length"}
    assert said == dict.fromkeys(corners, "2 entries: one for each of W, H, D")
