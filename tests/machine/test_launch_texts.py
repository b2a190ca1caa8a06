"""Arguments and launches as text: what is read, what is made of it, and what is refused, all at once."""

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.data_type import DataType
from tilescope.machine.launch.argument_builder import build_arguments, fill_array
from tilescope.machine.launch.argument_text import format_arguments, parse_argument, parse_arguments
from tilescope.machine.launch.described_launch import run_launch, select_blocks
from tilescope.machine.launch.launch_description import (
    ArrayArgument,
    BytesArgument,
    LaunchDescription,
    MapArgument,
    NumberArgument,
    PointerArgument,
)
from tilescope.machine.launch.launch_file import format_launch, read_launch

COPY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 out, .param .u64 in) {
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mov.u32 %r1, %ctaid.x;
    mad.lo.s32 %r1, %r1, 32, 0;
    mov.u32 %r2, %tid.x;
    add.s32 %r1, %r1, %r2;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.b32 %r3, [%rd5];
    st.global.b32 [%rd4], %r3;
    ret;
}
"""


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("f16:256x192", ArrayArgument(data_type="f16", shape=(256, 192))),
        ("f32:7:zeros", ArrayArgument(data_type="f32", shape=(7,), fill="zeros")),
        ("u8:4:arange", ArrayArgument(data_type="u8", shape=(4,), fill="arange")),
        ("e4m3:2x3x4:ones", ArrayArgument(data_type="e4m3", shape=(2, 3, 4), fill="ones")),
        ("f16:8x8@a.npy", ArrayArgument(data_type="f16", shape=(8, 8), file="a.npy")),
        ("bf16@folder/a.npy", ArrayArgument(data_type="bf16", file="folder/a.npy")),
        ("@a:b@c.npy", ArrayArgument(file="a:b@c.npy")),
        ("map:0,box=64x128,swizzle=128B", MapArgument(array=0, options={"box": (64, 128), "swizzle": "128B"})),
        ("map:2", MapArgument(array=2)),
        (
            "map:0,lower_corner=-1x-1,upper_corner=-1x-1,channels_per_pixel=64,pixels_per_column=32",
            MapArgument(
                array=0,
                options={
                    "lower_corner": (-1, -1),
                    "upper_corner": (-1, -1),
                    "channels_per_pixel": 64,
                    "pixels_per_column": 32,
                },
            ),
        ),
        (
            "map:f16:64x64:zeros,box=64",
            MapArgument(array=ArrayArgument(data_type="f16", shape=(64, 64), fill="zeros"), options={"box": (64,)}),
        ),
        ("ptr:0+0x400", PointerArgument(array=0, offset_bytes=1024)),
        ("ptr:3", PointerArgument(array=3)),
        ("7", NumberArgument(value=7)),
        ("-0x10", NumberArgument(value=-16)),
        ("1_000", NumberArgument(value=1000)),
        ("-1.5e-3", NumberArgument(value=-0.0015)),
        ("inf", NumberArgument(value=float("inf"))),
        ("bytes:00 FF", BytesArgument(content="00ff")),
    ],
)
def test_an_argument_is_read(text, described):
    assert parse_argument(text) == described
    assert type(getattr(parse_argument(text), "value", 0)) is type(getattr(described, "value", 0))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "argument 3: nothing"),
        ("seven", "argument 3: seven"),
        ("f17:8", "argument 3: data type f17"),
        ("f16:", "has the shape ''"),
        ("f16:0x8", "has the shape '0x8'"),
        ("f16:8y8", "has the shape '8y8'"),
        ("f16:8:zeroes", "Did you mean zeros?"),
        ("ones:f32:64x8", "Write f32:64x8:ones."),
        ("zeros:64", "Write f32:64:zeros."),
        ("map:", "map: names no array"),
        ("map:0,box", "argument 3: 'box' in map:0,box"),
        ("ptr:a", "ptr:a names no array"),
        ("ptr:0+x", "Write ptr:0+1024, for example."),
        ("bytes:0", "whole bytes in hexadecimal"),
        ("f16:" + "9" * 5000, "has the shape"),
        ("@", "argument 3: @; one of"),
    ],
)
def test_a_text_that_says_no_argument_is_refused(text, said):
    with pytest.raises(ts.RuleError) as refused:
        parse_argument(text, 3)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 800


def test_all_wrong_arguments_are_told_at_once():
    with pytest.raises(ts.RuleError) as refused:
        parse_arguments(["seven", "f32:8", "map:0,box=8", "map:9,box=8", "bytes:x"])
    assert [violation.argument for violation in refused.value.violations] == ["argument 0", "argument 4", "argument 3"]
    assert refused.value.violations[2].limit == "arguments with arrays: 1"  # argument 0 may have been one


def test_random_numbers_depend_on_the_place_of_the_argument_alone():
    first, again = (build_arguments(parse_arguments(["f32:100", "f32:100"]), ts.Memory()).arrays for _ in range(2))
    assert (first[0] == again[0]).all()
    assert (first[0] != first[1]).any()
    assert np.abs(first[0]).max() < 10


@pytest.mark.parametrize("name", ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"])
def test_random_integers_are_small(name):
    array = fill_array(DataType.named(name), (1000,), "random", 0)
    assert array.dtype == DataType.named(name).numpy
    assert array.max() == 16
    assert array.min() == (-16 if name.startswith("s") else 0)


@pytest.mark.parametrize(
    ("name", "begins_again_at"), [("f16", 2049), ("bf16", 257), ("e4m3", 17), ("e5m2", 9), ("u8", 256), ("s8", 128)]
)
def test_counted_numbers_are_exact(name, begins_again_at):
    array = fill_array(DataType.named(name), (4000,), "arange", 0).astype(np.float64)
    assert array[:begins_again_at].tolist() == list(range(begins_again_at))
    assert array[begins_again_at] != begins_again_at


def test_a_map_lies_on_the_array_of_the_argument_it_names():
    memory = ts.Memory()
    made = build_arguments(parse_arguments(["map:1,box=64x8,swizzle=128B", "bf16:32x128"]), memory)
    tensor_map, array = made.arguments
    assert tensor_map == ts.TensorMap("bf16", (128, 32), (256,), (64, 8), swizzle="128B", address=memory.place(array))


def test_a_map_may_have_an_array_of_its_own_which_others_share():
    memory = ts.Memory()
    made = build_arguments(parse_arguments(["map:f16:64x64,box=64x64", "map:0,box=32x8", "ptr:0+128"]), memory)
    first, second, address = made.arguments
    assert first.address == second.address == address - 128 == memory.place(made.arrays[0])
    assert list(made.arrays) == [0]


def test_an_im2col_map_is_made_of_its_fields():
    text = "map:0,lower_corner=-1x-1,upper_corner=-1x-1,channels_per_pixel=64,pixels_per_column=64"
    made = build_arguments(parse_arguments(["f16:8x14x14x64", text]), ts.Memory())
    assert isinstance(made.arguments[1], ts.Im2colMap)
    assert made.arguments[1].dims == (64, 14, 14, 8)


def test_what_a_map_breaks_is_told_with_its_argument(wording):
    with pytest.raises(ts.RuleError) as refused:
        build_arguments(parse_arguments(["f16:64x64", "map:0,box=512x64", "map:0", "map:0,bx=8"]), ts.Memory())
    said = [str(violation) for violation in refused.value.violations]
    (box_range,) = [violation for violation in refused.value.violations if violation.rule == "box-range"]
    assert (box_range.argument, box_range.change) == ("argument 1: box[0]", {"box": (256, 64)})
    wording("a map of an argument", box_range)
    assert any("argument-missing: argument 2: no box" in sentence for sentence in said)
    assert any("unknown-name: argument 3: argument bx" in sentence for sentence in said)


def test_arrays_come_from_files(tmp_path):
    np.save(tmp_path / "plain.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
    np.save(tmp_path / "narrow.npy", np.arange(6).astype(ml_dtypes.bfloat16))
    texts = [f"@{tmp_path}/plain.npy", f"bf16@{tmp_path}/narrow.npy", f"f16:2x3@{tmp_path}/plain.npy"]
    plain, narrow, described = build_arguments(parse_arguments(texts), ts.Memory()).arguments
    assert plain.tolist() == described.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert narrow.dtype == ml_dtypes.bfloat16
    assert narrow.astype(int).tolist() == [0, 1, 2, 3, 4, 5]
    assert plain.flags.writeable
    plain[0, 0] = 7
    assert np.load(tmp_path / "plain.npy")[0, 0] == 0  # the file itself is left alone


@pytest.mark.parametrize("elements", [np.zeros(2, np.complex128), np.array(["a", "b"]), np.zeros(2, "M8[s]")])
def test_a_file_of_anything_but_integers_and_floats_is_refused(elements, tmp_path):
    np.save(tmp_path / "a.npy", elements)
    with pytest.raises(ts.RuleError) as refused:
        build_arguments(parse_arguments([f"@{tmp_path}/a.npy"]), ts.Memory())
    assert refused.value.violations[0].rule == "launch-argument"
    assert refused.value.violations[0].values["held_type"] == str(elements.dtype)


def test_a_single_number_in_a_file_is_an_array_of_one_element(tmp_path):
    np.save(tmp_path / "a.npy", np.float32(7))
    (array,) = build_arguments(parse_arguments([f"@{tmp_path}/a.npy"]), ts.Memory()).arguments
    assert array.shape == (1,)


def test_files_that_do_not_fit_are_told_with_what_would(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float16))
    np.save(tmp_path / "bare.npy", np.zeros(4, ml_dtypes.bfloat16))
    (tmp_path / "text.npy").write_text("no array")
    texts = [
        f"@{tmp_path}/none.npy",
        f"f16:3x2@{tmp_path}/a.npy",
        f"f32@{tmp_path}/a.npy",
        f"@{tmp_path}/bare.npy",
        f"@{tmp_path}/text.npy",
    ]
    with pytest.raises(ts.RuleError) as refused:
        build_arguments(parse_arguments(texts), ts.Memory())
    said = [str(violation) for violation in refused.value.violations]
    assert "No such file" in said[0]
    assert f"Write float16:2x3@{tmp_path}/a.npy" in said[1]
    assert f"Write float16:2x3@{tmp_path}/a.npy" in said[2]
    assert f"Write bf16@{tmp_path}/bare.npy" in said[3]
    assert said[4].startswith("npy-file: argument 4: no array")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("f32:100000x100000", "at most 1073741824 bytes"),
        ("e2m1:64x64", "Use u8"),
        ("b1:64", "Use u8"),
    ],
)
def test_arrays_that_cannot_be_made_are_refused(text, said):
    with pytest.raises(ts.RuleError, match=said):
        build_arguments(parse_arguments([text]), ts.Memory())


def test_an_address_outside_its_array_is_refused(wording):
    with pytest.raises(ts.RuleError) as refused:
        build_arguments(parse_arguments(["f32:2", "ptr:0+9"]), ts.Memory())
    assert refused.value.violations[0].values == {"index": 1, "offset": 9, "reference": 0, "size_bytes": 8}
    wording("an address outside its array", refused.value)


LAUNCHES = [
    LaunchDescription(),
    LaunchDescription(grid=(2, 2), block=(256,), cluster=(2,), smem_bytes=98328, arch="sm_90", seed=3, max_steps=1000),
    LaunchDescription(ptx="a.ptx", entry='odd "name"', blocks="corners"),
    LaunchDescription(blocks=((0, 0), (1, 2))),
    LaunchDescription(
        arguments=(
            ArrayArgument(name="a", data_type="f16", shape=(256, 192)),
            ArrayArgument(data_type="bf16", file="w.npy"),
            ArrayArgument(file="b.npy"),
            MapArgument(array="a", options={"box": (64, 128), "swizzle": "128B", "oob_fill": "nan"}),
            MapArgument(array=1, options={"box": (64,), "element_strides": (1,)}),
            MapArgument(
                name="m", array=ArrayArgument(data_type="u8", shape=(64,), fill="arange"), options={"box": (16,)}
            ),
            NumberArgument(value=-7),
            NumberArgument(value=1.5),
            NumberArgument(value=float("inf")),
            BytesArgument(content="00ff"),
            PointerArgument(array="a", offset_bytes=64),
        )
    ),
]


@pytest.mark.parametrize("launch", LAUNCHES, ids=range(len(LAUNCHES)))
def test_a_launch_file_leads_back(launch):
    assert read_launch(format_launch(launch).encode(), "launch.toml") == launch
    assert LaunchDescription.from_dict(launch.to_dict()) == launch


def test_everything_that_is_wrong_with_a_launch_file_is_told_at_once():
    text = b"""
    surplus = 1
    [launch]
    grid = "2x2"
    smem = 4
    blocks = "some"
    entry = 7
    [[argument]]
    kind = "arry"
    [[argument]]
    kind = "array"
    type = "f32"
    [[argument]]
    kind = "int"
    value = 1.5
    [[argument]]
    kind = "map"
    array = 1
    bx = [8]
    [[argument]]
    kind = "bytes"
    value = "xyz"
    [[argument]]
    kind = "float"
    value = "one"
    [[argument]]
    kind = "array"
    type = "f32"
    shape = [0]
    fill = "none"
    """
    with pytest.raises(ts.RuleError) as refused:
        read_launch(text, "launch.toml")
    told = [violation.argument for violation in refused.value.violations]
    assert sorted(told) == sorted(
        [
            "launch file",
            "launch",
            "launch.grid",
            "launch.blocks",
            "launch.entry",
            "argument[0].kind",
            "argument 1",
            "argument[2].value",
            "argument[3]",
            "argument[4].value",
            "argument[5].value",
            "argument[6].shape[0]",
            "argument[6].fill",
        ]
    )


@pytest.mark.parametrize("content", [b"[launch", b"\xff\xfe", b"argument = 7", b"launch = 7"])
def test_what_is_no_launch_file_is_refused(content):
    with pytest.raises(ts.RuleError):
        read_launch(content, "launch.toml")


@pytest.mark.parametrize(
    ("blocks", "grid", "chosen"),
    [
        ("all", (3, 2), None),
        ("corners", (1,), {(0, 0, 0)}),
        ("corners", (4,), {(0, 0, 0), (3, 0, 0)}),
        ("corners", (3, 1, 2), {(0, 0, 0), (2, 0, 0), (0, 0, 1), (2, 0, 1)}),
        (((1, 0),), (3, 2), {(1, 0)}),
    ],
)
def test_blocks_are_chosen(blocks, grid, chosen):
    found = select_blocks(blocks, grid)
    assert (None if found is None else set(found)) == chosen


def test_a_described_launch_says_which_arrays_changed():
    launch = LaunchDescription(grid=(2,), block=(32,), arguments=parse_arguments(["s32:64:zeros", "s32:64:arange"]))
    done = run_launch(ts.Kernel(COPY), launch)
    assert done.run.outcome == "finished"
    assert done.arrays[0].tolist() == list(range(64))
    (output,) = done.outputs
    assert (output.argument, output.name, output.data_type, output.shape) == (0, "out", "s32", (64,))
    assert (output.changed, output.first, output.least, output.most) == (63, (1, 2, 3, 4), 0, 63)  # 0 was 0 before


def test_only_the_chosen_blocks_run():
    launch = LaunchDescription(
        grid=(3,), block=(32,), blocks="corners", arguments=parse_arguments(["s32:96:zeros", "s32:96:ones"])
    )
    done = run_launch(ts.Kernel(COPY), launch)
    assert done.arrays[0].tolist() == [1] * 32 + [0] * 32 + [1] * 32


def test_infinities_and_nan_are_words_in_an_output(tmp_path):
    np.save(tmp_path / "a.npy", np.array([np.nan, np.inf, -np.inf, *range(29)], np.float32))
    arguments = parse_arguments(["f32:32:zeros", f"@{tmp_path}/a.npy"])
    (output,) = run_launch(ts.Kernel(COPY), LaunchDescription(grid=(1,), block=(32,), arguments=arguments)).outputs
    assert (output.first, output.least, output.most, output.nans) == (("nan", "inf", "-inf", 1.0), "-inf", "inf", 1)


def test_the_blocks_of_a_kernel_that_requires_them_need_not_be_said():
    kernel = ts.Kernel(COPY.replace(".param .u64 in) {", ".param .u64 in) .reqntid 32 {"))
    arguments = parse_arguments(["s32:32:zeros", "s32:32:ones"])
    assert run_launch(kernel, LaunchDescription(grid=(1,), arguments=arguments)).run.outcome == "finished"
    with pytest.raises(ts.RuleError, match="launch-missing: no grid"):
        run_launch(kernel, LaunchDescription(arguments=arguments))


@pytest.mark.parametrize("arguments", [[1e9, 1.0], [1.0, 1e300], [1.0, 10**400], [1.0, 1j], [1.0, "1.0"]])
def test_a_number_that_a_float_parameter_cannot_hold_is_refused(arguments):
    kernel = ts.Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k(.param .f16 h, .param .f32 f) { ret; }")
    assert kernel.run(1, 32, [1.0, 1]).outcome == "finished"
    with pytest.raises(ts.RuleError, match="kernel-argument: "):
        kernel.run(1, 32, arguments)


@pytest.mark.parametrize(
    "words",
    [
        ("f16:256x192", "map:0,box=64x128,swizzle=128B", "ptr:0+1024", "7", "-1.5", "bytes:00ff"),
        ("map:u8:64x64:zeros,box=64x8,element_strides=1x2", "e4m3:16:arange"),
        ("map:1,box=16x1x1x8,lower_corner=-1x-1", "f32:8x8x8x16", "18446744073709551615"),
        ("f32:4@a.npy", "bf16@b.npy", "f32:1:ones"),
    ],
)
def test_arguments_are_written_as_they_are_read(words):
    assert format_arguments(parse_arguments(words)) == words


def test_a_name_is_written_as_the_number_of_its_argument():
    named = (PointerArgument(array="a", offset_bytes=4), ArrayArgument(name="a", data_type="f32", shape=(8,)))
    assert format_arguments(named) == ("ptr:1+4", "f32:8")
