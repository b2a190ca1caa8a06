"""Triton's encodings against its own definition: which tensor index lies at each offset."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from tilescope import Layout, RuleError
from tilescope.notation import convert_layout, parse_layout, spell_layout


def swizzled_offsets(shape, vec, per_phase, max_phase, order):
    """Offset of each element: in its row, pieces of `vec` change places by XOR with the row's phase."""
    fast, slow = order
    index = np.indices(shape)
    row, column = index[slow], index[fast]
    phase = row // per_phase % max_phase
    return row * shape[fast] + (column ^ vec * phase % shape[fast])


def nvmma_offsets(shape, width, transposed, bits):
    """Offset of each element, from the bases of Triton's linear layout: what each bit of an offset adds to the index."""
    bases = []
    vec, per_phase, max_phase = (128 // bits, 128 // width, width // 16) if width else (1, 1, 1)
    box = [min(extent, 256) for extent in shape]
    if width:
        inner = 0 if transposed else 1
        box[inner] = 8 * width // bits
        rows, columns = (box[1], box[0]) if transposed else box
        flat = [(0, 1 << bit) for bit in range(columns.bit_length() - 1)]
        flat += [(1 << bit, vec * ((1 << bit) // per_phase % max_phase)) for bit in range(3)]
        flat += [(1 << bit, 0) for bit in range(3, rows.bit_length() - 1)]
        bases = [base[::-1] if transposed else base for base in flat]
        dims = (0, 1)
    else:
        bases = [(0, 1 << bit) for bit in range(box[1].bit_length() - 1)]
        bases += [(1 << bit, 0) for bit in range(box[0].bit_length() - 1)]
        dims = (1, 0)
    for dim in dims:
        reached = box[dim]
        while reached < shape[dim]:
            bases.append((reached, 0) if dim == 0 else (0, reached))
            reached *= 2
    offset = np.arange(shape[0] * shape[1])
    row, column = np.zeros_like(offset), np.zeros_like(offset)
    for bit, (row_base, column_base) in enumerate(bases):
        row ^= (offset >> bit & 1) * row_base
        column ^= (offset >> bit & 1) * column_base
    offsets = np.full(shape, -1, dtype=np.int64)
    offsets[row, column] = offset
    return offsets


@pytest.mark.thinned(3)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_swizzled_shared_puts_every_element_where_triton_does(order, bits):
    cases = itertools.product((1, 4, 8, 16), (1, 2, 4), (1, 2, 4, 8, 16), [(8, 64), (64, 16), (16, 16), (32, 8)])
    for vec, per_phase, max_phase, shape in cases:
        text = f"#ttg.swizzled_shared<{{vec = {vec}, perPhase = {per_phase}, maxPhase = {max_phase}, order = {list(order)}}}>"
        layout = parse_layout(text, element_bits=bits, shape=shape)
        wanted = swizzled_offsets(shape, vec, per_phase, max_phase, order) * bits // 8
        assert (layout.addresses() == wanted).all(), text
        again = spell_layout(layout, "triton")
        assert parse_layout(again, element_bits=bits, shape=shape).first_difference(layout) is None


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("width", [0, 32, 64, 128])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_nvmma_shared_puts_every_element_where_triton_does(width, transposed, bits):
    text = (
        f"#ttg.nvmma_shared<{{swizzlingByteWidth = {width}, transposed = {str(transposed).lower()}, "
        f"elementBitWidth = {bits}}}>"
    )
    if width == 0 and transposed:
        with pytest.raises(RuleError, match=r"3\.8 stores.*3\.9 \(triton-lang/triton#10453\)"):
            parse_layout(text, shape=(64, 64))
        return
    for shape in ((128, 128), (8, 128), (128, 8), (512, 256), (256, 512)):
        strided, contiguous = shape[::-1] if transposed else shape
        if width and (strided < 8 or contiguous * bits < width * 8):
            with pytest.raises(RuleError, match="at least 8 rows"):
                parse_layout(text, shape=shape)
            continue
        layout = parse_layout(text, shape=shape)
        assert (layout.addresses() == nvmma_offsets(shape, width, transposed, bits) * bits // 8).all(), (text, shape)
        assert spell_layout(layout, "triton") == text, shape
        gluon = spell_layout(layout, "gluon")
        assert parse_layout(gluon, shape=shape) == layout


@pytest.mark.parametrize(
    ("cluster", "splits"),
    [
        ("CGALayout = [[0, 0]]", (1, 1)),
        ("CGALayout = [[0, 0], [0, 0]]", (1, 1)),
        ("CGALayout = [[1, 0]]", (2, 1)),
        ("CGALayout = [[0, 0], [0, 1]]", (1, 2)),
        ("CTAsPerCGA = [2, 1], CTASplitNum = [1, 1]", (1, 1)),
        ("CTAsPerCGA = [2, 1], CTASplitNum = [2, 1]", (2, 1)),
        ("CGALayout = [[1, 0], [2, 0]]", (4, 1)),
    ],
)
def test_a_block_has_its_part_of_a_split_tile(cluster, splits):
    """A basis of zeros is a broadcast (LinearLayout of Triton): every block of the cluster has the whole tile."""
    text = f"#ttg.nvmma_shared<{{swizzlingByteWidth = 128, elementBitWidth = 16, {cluster}}}>"
    whole = (128, 128)
    block = tuple(extent // part for extent, part in zip(whole, splits, strict=True))
    assert parse_layout(text, shape=whole) == parse_layout("gl.NVMMASharedLayout(128, 16)", shape=block)
    assert parse_layout(text) == parse_layout("gl.NVMMASharedLayout(128, 16)")  # one pattern


def test_a_layout_without_a_contiguous_index_is_refused_in_plain_words():
    with pytest.raises(RuleError, match="tile mn or k"):
        spell_layout(parse_layout("(8,8):(4,32)", element_bits=16), "triton")


def test_the_shapes_of_the_smallest_tiles_are_known():
    assert parse_layout("gl.NVMMASharedLayout(64, 16, 2)").shape == (8, 32)
    assert parse_layout("gl.NVMMASharedLayout(swizzle_byte_width=64, element_bitwidth=16, transposed=True)").shape == (
        32,
        8,
    )
    assert parse_layout("SwizzledSharedLayout(8, 2, 4, [1, 0])", element_bits=16).shape == (8, 32)


@pytest.mark.parametrize(
    "text",
    [
        "!ttg.memdesc<64x128xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128, elementBitWidth = 16}>, #smem, mutable>",
        "#ttg.nvmma_shared<{swizzlingByteWidth = 128, CTAsPerCGA = [1, 1], CTASplitNum = [1, 1], CTAOrder = [1, 0]}>",
        "#ttg.nvmma_shared<{swizzlingByteWidth=128, transposed=false, elementBitWidth=16, CGALayout = []}>",
        "ttgl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2, transposed=False, cga_layout=None)",
    ],
)
def test_reads_a_buffer_type_and_the_encodings_of_one_block(text):
    wanted = parse_layout("gl.NVMMASharedLayout(128, 16)", shape=(64, 128))
    assert parse_layout(text, element_bits=16, shape=(64, 128)) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#ttg.swizzled_shared<{vec = 3, perPhase = 1, maxPhase = 8, order = [1, 0]}>", "a power of two"),
        ("#ttg.swizzled_shared<{vec = 8, perPhase = 1, order = [1, 0]}>", "maxPhase"),
        ("#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [0, 0]}>", "order"),
        (
            "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0], hasLeadingOffset = true}>",
            "nvmma",
        ),
        ("#ttg.swizzled_shared<{vec = 8, vec = 8}>", "vec once"),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 96, transposed = false, elementBitWidth = 16}>", "0, 32, 64 or 128"),
        (
            "#ttg.nvmma_shared<{swizzlingByteWidth = 64, transposed = false, elementBitWidth = 16, fp4Padded = true}>",
            "padding",
        ),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 64, elementBitWidth = 16, rank = 3}>", "has 3 indices"),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 64, elementBitWidth = 16, rank = 0}>", "has 1 to 5 indices"),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 64, CGALayout = [[0, 1, 0]]}>", "has 3 indices"),
        (
            "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0], CTASplitNum = [3, 1]}>",
            "equal part",
        ),
        (
            "#blocked = #ttg.blocked<{sizePerThread = [1, 8]}>",
            "in registers; .*swizzled_shared, nvmma",
        ),
        (
            "#ttg.amd_rotating_shared<{vec = 4}>",
            "swizzled_shared, nvmma_shared, padded_shared, shared_lin",
        ),
        ("#tmem = #ttng.tensor_memory_encoding<blockM = 128, blockN = 64>", "in tensor memory; known"),
        ("!ttg.memdesc<64x128xf16, #shared, #smem>", "#shared is not defined"),
        ("!ttg.memdesc<?x128xf16, #ttg.swizzled_shared<{vec = 8}>, #smem>", "only the running kernel knows"),
        ("#ttg.swizzled_shared<{vec = many}>", "number, true, false or"),
        ("#ttg.padded_shared<[256:+7] {order = [1, 0], shape = [64, 128]}>", "pairs of powers of two"),
        ("#ttg.nvmma_shared<{swizzlingByteWidth = 64, wide = 1, elementBitWidth = 16}>", "the field wide"),
        ("!ttg.memdesc<2x2x64x128xf16, #ttg.nvmma_shared<{swizzlingByteWidth = 128}>, #smem>", "2 indices"),
        ("gl.NVMMASharedLayout(128, 16, 2, False, False, 1)", "a field such as"),
    ],
)
def test_says_why_an_encoding_is_not_understood(text, reason):
    with pytest.raises(RuleError, match=reason):
        parse_layout(text, element_bits=16, shape=(64, 128))


NVMMA = "#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>"
SWIZZLED = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"


@pytest.mark.parametrize(
    "lines",
    [
        f"#shared = {NVMMA}",
        f"#shared1 = {NVMMA} loc(unknown)",
        f"#blocked = #ttg.blocked<{{sizePerThread = [1, 8], order = [1, 0]}}>\n#shared = {NVMMA}\n#smem = #ttg.shared_memory",
        f'#shared = {NVMMA}\nmodule attributes {{"ttg.num-ctas" = 1 : i32, ttg.target = "cuda:90"}} {{',
        f"#a = {SWIZZLED}\n#shared = {NVMMA}\n%0 = ttg.local_alloc : () -> !ttg.memdesc<8x64xbf16, #shared, #smem, mutable>",
        NVMMA.replace("16}", "16 : i32}"),
        f"#shared = {NVMMA}\n#tmem = #ttng.tensor_memory_encoding<blockM = 128>\n!ttg.memdesc<128x64xf32, #tmem, #smem>",
    ],
)
def test_reads_the_lines_of_a_ttgir_file(lines):
    assert parse_layout(lines) == parse_layout(NVMMA)


def test_an_encoding_of_two_indices_in_a_buffer_of_three_is_repeated():
    found = parse_layout(f"#shared = {SWIZZLED}\n!ttg.memdesc<3x16x64xf16, #shared, #smem, mutable>")
    one = parse_layout(SWIZZLED, element_bits=16, shape=(16, 64))
    assert found.shape == (3, 16, 64)
    for buffer in range(3):
        assert (found.addresses()[buffer] == one.addresses() + buffer * 2048).all()


def test_buffers_are_drawn_as_rows_of_their_contiguous_index():
    found = parse_layout(f"#shared = {SWIZZLED}\n!ttg.memdesc<3x16x64xf16, #shared, #smem, mutable>")
    assert found.as_rows().shape == (48, 64)
    assert found.stage() == parse_layout(SWIZZLED, element_bits=16, shape=(16, 64))


def test_a_view_of_a_buffer_is_one_with_it():
    whole = "!ttg.memdesc<2x16x64xf16, #shared, #smem, mutable>"
    view = "!ttg.memdesc<16x64xf16, #shared, #smem, mutable, 2x16x64>"
    text = f"#shared = {SWIZZLED}\n%1 = ttg.memdesc_index %0, %c0 : {whole} -> {view}"
    assert parse_layout(text) == parse_layout(f"#shared = {SWIZZLED}\n{whole}")
    with pytest.raises(RuleError, match="2 encodings: 2x16x64"):
        parse_layout(text.replace("<16x64", "<8x64"))


def test_two_encodings_are_named_and_not_guessed():
    with pytest.raises(RuleError, match=r"2 encodings: #ttg.nvmma_shared.*swizzled_shared.*one"):
        parse_layout(f"#shared = {NVMMA}\n#shared1 = {SWIZZLED}", element_bits=16)


def test_padding_follows_every_interval():
    """The second example of Triton's PaddedSharedLayout, offsets read off its drawing."""
    bases = "[[0, 1], [0, 2], [2, 0], [4, 0], [1, 0]]"
    found = parse_layout(f"#ttg.padded_shared<[8:+1] {{offset = {bases}, block = []}}>", element_bits=8)
    drawn = [(0, 0), (2, 4), (4, 9), (6, 13), (1, 18), (3, 22), (5, 27), (7, 31)]
    assert [(row, found.address(row, 0)) for row, _ in drawn] == drawn
    assert found.address(6, 3) == 16
    wide = parse_layout("#ttg.padded_shared<[2:+1, 4:+2] {order = [0], shape = [8]}>", element_bits=8)
    assert wide.addresses().tolist() == [0, 1, 3, 4, 8, 9, 11, 12]


@pytest.mark.parametrize(
    ("bases", "named"),
    [
        ("[[0, 1], [0, 2], [1, 3], [2, 0]]", r"basis \[1, 3\] of offset bit 2"),
        ("[[0, 1], [0, 2], [1, 1], [2, 1]]", r"basis \[2, 1\] of offset bit 3"),
        ("[[0, 1], [0, 2], [1, 2], [2, 0], [4, 1]]", r"basis \[4, 1\] of offset bit 4"),
        ("[[0, 1], [0, 1], [1, 0]]", r"basis \[0, 1\] of offset bit 1"),
    ],
)
def test_the_first_basis_that_is_no_stride_and_no_xor_is_named(bases, named):
    with pytest.raises(RuleError, match=named):
        parse_layout(f"#ttg.shared_linear<{{offset = {bases}}}, alignment = 16>", element_bits=16)


@pytest.mark.parametrize("order", [[1, 0], [0, 1]])
@pytest.mark.parametrize(("vec", "bits"), [(2, 64), (4, 32), (8, 16), (16, 8), (1, 16)])
@pytest.mark.parametrize("phases", [(1, 1), (1, 8), (2, 4), (4, 2)])
def test_convert_assumes_a_width_and_a_shape_that_fit_swizzled_shared_and_says_so(vec, bits, phases, order):
    """16 bytes make a piece; the tile has every phase, and so the whole pattern."""
    per_phase, max_phase = phases
    text = (
        f"#s = #ttg.swizzled_shared<{{vec = {vec}, perPhase = {per_phase}, maxPhase = {max_phase}, order = {order}}}>"
    )
    found = convert_layout(text, "cute")
    assert found.assumed == ("element_bits", "shape")
    assert found.layout.element_bits == bits
    shape = found.layout.shape
    assert shape[order[0]] >= vec * max_phase
    assert shape[order[1]] >= per_phase * max_phase
    assert found.layout == parse_layout(text, element_bits=bits, shape=shape)
    assert found.read_again() == found.layout
    tile = f"{shape[0]} x {shape[1]}"
    assert found.assumption.startswith("The text does not say")
    assert f"elements of {bits} bits" in found.assumption
    assert f"tile of {tile}." in found.assumption


def test_convert_assumes_what_is_left_unsaid_and_nothing_else():
    assert convert_layout(SWIZZLED, "cute").layout == parse_layout(SWIZZLED, element_bits=16, shape=(8, 64))
    assert convert_layout(SWIZZLED, "cute", element_bits=8).assumed == ("shape",)
    assert convert_layout(SWIZZLED, "cute", shape=(64, 64)).assumed == ("element_bits",)
    whole = convert_layout(SWIZZLED, "cute", element_bits=16, shape=(64, 64))
    assert (whole.assumed, whole.assumption) == ((), "")
    assert convert_layout(NVMMA, "cute").assumed == ("shape",)
    assert convert_layout("!ttg.memdesc<64x128xf16, " + SWIZZLED + ", #smem>", "cute").assumed == ()
    assert convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "cute").assumed == ()
    split = SWIZZLED.replace("}>", ", CTASplitNum = [2, 1]}>")
    assert convert_layout(split, "cute").layout == convert_layout(SWIZZLED, "cute").layout
    with pytest.raises(RuleError, match="how wide an element is"):
        parse_layout(SWIZZLED)


PADDED = [
    "#ttg.padded_shared<[128:+8] {order = [1, 0], shape = [64, 128]}>",
    "#ttg.padded_shared<[64:+4] {order = [0, 1], shape = [64, 128]}>",
    "#ttg.padded_shared<[32:+8] {order = [1, 0], shape = [64, 128]}>",
    "#ttg.padded_shared<[256:+16] {order = [1, 0], shape = [64, 128]}>",
    "#ttg.padded_shared<[1:+1] {order = [0, 1], shape = [8, 8]}>",
    "#ttg.padded_shared<[2:+1, 4:+2] {order = [0], shape = [8]}>",
    "#ttg.padded_shared<[64:+8, 1024:+32] {order = [2, 0, 1], shape = [4, 8, 64]}>",
    "#ttg.padded_shared<[8:+1] {offset = [[0, 1], [0, 2], [2, 0], [4, 0], [1, 0]], block = []}>",
]


@pytest.mark.parametrize("text", PADDED)
def test_padded_shared_comes_back_as_it_was(text):
    found = convert_layout(text, "triton")
    assert (found.result, found.assumed) == (text, ("element_bits",))
    assert found.unsaid == ("element_bits", "start")
    assert found.read_again() == found.layout
    in_gluon = convert_layout(text, "gluon")
    assert in_gluon.read_again() == found.layout
    assert convert_layout(in_gluon.result, "triton").result == text
    assert convert_layout(text, "triton", element_bits=32).result == text


def test_padding_that_triton_cannot_say_has_no_text():
    for layout in (Layout((64, 64), 16, padding_bytes=24), Layout((64, 64), 16, swizzle="128B", padding_bytes=16)):
        with pytest.raises(RuleError, match="no-equivalent"):
            spell_layout(layout, "triton")


PRINTER = """
import json, sys, tempfile
from triton._C.libtriton import ir
context = ir.context()
ir.load_dialects(context)
for line in sys.stdin:
    encoding, tile = json.loads(line)
    with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
        file.write(f'''#shared = {encoding}
#smem = #ttg.shared_memory
module attributes {{"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32}} {{
  tt.func @tile() {{
    %0 = ttg.local_alloc : () -> !ttg.memdesc<{tile}xf16, #shared, #smem, mutable>
    tt.return
  }}
}}
''')
        file.flush()
        print(str(ir.parse_mlir_module(file.name, context)).splitlines()[0], flush=True)
"""


@pytest.mark.slow
def test_triton_reads_our_padded_shared_and_prints_it_alike(require):
    require("triton")
    found = [convert_layout(text, "triton") for text in PADDED]
    lines = "".join(json.dumps([each.result, "x".join(map(str, each.layout.shape))]) + "\n" for each in found)
    ran = subprocess.run([sys.executable, "-c", PRINTER], input=lines, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [f"#shared = {text}" for text in PADDED]


ORACLE = """
import json, sys
from triton._C.libtriton import gluon_ir, ir
from triton.experimental.gluon.language import _layouts
context = ir.context()
ir.load_dialects(context)
builder = gluon_ir.GluonOpBuilder(context)
for line in sys.stdin:
    name, arguments, shape = json.loads(line)
    layout = getattr(_layouts, name)(**arguments)
    print(json.dumps(builder.to_linear_layout(layout._to_ir(builder), shape).offset_bases), flush=True)
"""


def gluon_cases():
    swizzled = {"vec": 8, "per_phase": 1, "max_phase": 8}
    for order, shape in (
        ([0], [64]),
        ([2, 1, 0], [2, 16, 64]),
        ([0, 2, 1], [64, 4, 16]),
        ([1, 0], [4, 64]),
        ([0, 1], [64, 2]),
    ):
        yield "SwizzledSharedLayout", swizzled | {"order": order}, shape
        yield "SwizzledSharedLayout", {"vec": 4, "per_phase": 2, "max_phase": 4, "order": order}, shape
    for width in (0, 32, 64, 128):
        nvmma = {"swizzle_byte_width": width, "element_bitwidth": 16}
        for shape in ([64, 128], [512, 512], [2, 16, 64], [2, 512, 64], [512, 8, 64], [16, 2, 64], [2, 4, 8, 64]):
            yield "NVMMASharedLayout", nvmma | {"rank": len(shape)}, shape
        if width:
            yield "NVMMASharedLayout", nvmma | {"transposed": True}, [64, 512]
        yield "NVMMASharedLayout", nvmma | {"cga_layout": [[0, 1], [1, 0]]}, [128, 128]
    padded = {"swizzle_byte_width": 128, "element_bitwidth": 8, "fp4_padded": True}
    for transposed, shape in ((False, [16, 128]), (True, [128, 16]), (False, [2, 16, 128])):
        yield "NVMMASharedLayout", padded | {"rank": len(shape), "transposed": transposed}, shape


@pytest.mark.slow
def test_every_encoding_is_the_linear_layout_that_triton_computes(require):
    require("triton")
    cases = list(gluon_cases())
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    ran = subprocess.run([sys.executable, "-c", ORACLE], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(answers) == len(cases)
    for (name, arguments, shape), bases in zip(cases, answers, strict=True):
        said = ", ".join(f"{key}={value}" for key, value in arguments.items())
        layout = parse_layout(
            f"gl.{name}({said})", element_bits=arguments.get("element_bitwidth", 16), shape=tuple(shape)
        )
        addresses = layout.addresses()
        offset = np.arange(1 << len(bases))
        index = [
            np.bitwise_xor.reduce([(offset >> bit & 1) * basis[d] for bit, basis in enumerate(bases)])
            for d in range(len(shape))
        ]
        real = np.ones(len(offset), bool)  # of two offsets with one index, the lower is the element's
        for bit, basis in enumerate(bases):
            real &= (offset >> bit & 1 == 0) | any(basis)
        wanted = offset[real] * layout.element_bits // 8
        assert (addresses[tuple(each[real] for each in index)] == wanted).all(), (name, arguments, shape)
        assert addresses.size == real.sum()
