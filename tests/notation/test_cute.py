"""CuTe's texts against CuTe: what its C++ printed and evaluated, pycute, and tensor-layouts."""

import ast
import re
from pathlib import Path

import numpy as np
import pycute
import pytest
import tensor_layouts
from hypothesis import given
from hypothesis import strategies as st

from tilescope import RuleError
from tilescope.layout import Layout
from tilescope.notation import parse_layout, spell_layout

# What tests/notation/cute_layouts.cpp prints: text, element bits, elements, sum of (i + 1) * address of element i.
PRINTED = [
    (text, *map(int, numbers))
    for text, *numbers in (
        line.split("\t") for line in (Path(__file__).parent / "cute_layouts.tsv").read_text("utf-8").splitlines()
    )
]

# As the Python DSL prints shared-memory layouts (in its own words and in its intermediate code).
FROM_PYTHON = [
    ("S<3,4,3> o 0 o (8,64):(64,1)", 16),
    ("S<2,4,3> o 0 o (8,32):(32,1)", 16),
    ("S<1,4,3> o 0 o (8,16):(16,1)", 16),
    ("S<0,4,3> o 0 o (8,8):(8,1)", 16),
    ("S<3,4,3> o 0 o ((128,16),1,4):((64,1),0,16)", 16),
    ("S<3,4,3> o 0 o ((128,8),1,4):((32,1),0,8)", 32),
    ("S<3,4,3> o 0 o ((128,16),1,4,6):((64,1),0,16,8192)", 16),
    ("S<3,4,3> o 0 o ((128,8),1,4,7):((32,1),0,8,4096)", 32),
    ("S<3,4,3> o 0 o ((64,1),(8,8),(1,4)):((1,0),(64,512),(0,4096))", 16),
    ("S<3,4,3> o 0 o ((8,8),(64,2)):((64,512),(1,4096))", 16),
    ("S<3,4,3> o 0 o ((8,8),(64,1)):((64,512),(1,0))", 16),
    ("S<2,4,3> o 0 o ((8,16),(32,1),(1,2)):((32,256),(1,0),(0,4096))", 16),
    ("S<2,5,2> o 0 o (32,4):(1,32)", 32),
    ("S<3,4,3> o 0 o 1024:1", 8),
    ("(8,64):(64,1)", 16),
    ("((1),1,1,1):((0),0,0,0)", 16),
]


def flat(layout):
    """Addresses in CuTe's order: the first index fastest."""
    return layout.addresses().ravel(order="F")


def test_there_are_two_hundred_texts_from_cute():
    assert len({text for text, *_ in PRINTED}) >= 200
    assert {8, 16, 32, 64, 4} == {bits for _, bits, *_ in PRINTED}


@pytest.mark.parametrize(("text", "bits", "elements", "weighted"), PRINTED)
def test_reads_what_cute_prints_as_cute_evaluates_it(text, bits, elements, weighted):
    layout = parse_layout(text, element_bits=bits)
    addresses = flat(layout)
    assert len(addresses) == elements
    assert int(addresses @ np.arange(1, elements + 1)) == weighted


STATIC_OF_POINTERS = [
    text for text, *_ in PRINTED if "ptr" in text and not re.search(r"[(,:]\d", text.rpartition(" o ")[2])
]


@pytest.mark.parametrize("text", STATIC_OF_POINTERS)
def test_prints_static_layouts_of_pointers_as_cute_does(text):
    assert spell_layout(parse_layout(text), "cute") == text


@pytest.mark.parametrize(("text", "bits"), FROM_PYTHON)
def test_reads_what_the_python_dsl_prints(text, bits):
    swizzle = re.match(r"S<(\d),(\d),(\d)>", text)
    shape, stride = map(ast.literal_eval, text.rpartition(" o ")[2].split(":"))
    strides, swizzled = (
        pycute.Layout(shape, stride),
        pycute.Swizzle(*map(int, swizzle.groups() if swizzle else (0, 4, 3))),
    )
    layout = parse_layout(text, element_bits=bits)
    wanted = [swizzled(strides(index) * bits // 8) for index in range(pycute.size(strides))]
    assert flat(layout).tolist() == wanted
    if swizzle:
        assert spell_layout(layout, "cute-python") == text


@pytest.mark.parametrize(
    "text",
    [
        '!cute.composed_layout<"S<3,4,3> o 0 o (8,64):(64,1)">',
        '!cute.memref<bf16, smem, align<1024>, "S<3,4,3> o 0 o (8,64):(64,1)">',
        '!cute.memref<f16, smem, align<1024>, S<3,4,3>, "(8,64):(64,1)">',
        "Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)",
        "Sw<3,4,3> ∘ smem_ptr[16b](unset) ∘ (8,64):(64,1)",
        "Sw<3,3,3> o _0 o (_8,_64):(_64,_1)",
        "Swizzle<3,3,3> o (8,64):(64,1)",
        "Swizzle<3,3,3>{} o Layout<Shape<_8,_64>,Stride<_64,_1>>{}",
        "cute::Swizzle<3,3,3>{} o cute::make_layout(make_shape(Int<8>{}, C<64>{}), make_stride(_64{}, 1));",
        "composition(Swizzle<3,3,3>{}, Layout<Shape<_8,_64>,Stride<_64,_1>>{})",
        "ComposedLayout<Swizzle<3,4,3>, smem_ptr_flag_bits<16>, Layout<Shape<_8,_64>,Stride<_64,_1>>>",
        "ComposedLayout<Swizzle<3,3,3>, Int<0>, Layout<Shape<_8,_64>,Stride<_64,_1>>>{}",
        "cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout((8, 64), stride=(64, 1)))",
        "SW_3_3_3 o 0 o (8, 64):(64, 1)",
        "(Swizzle(3, 3, 3)) o ((8, 64) : (64, 1))",
        "GMMA::Layout_K_SW128_Atom<half_t>",
        "cute::SM90::GMMA::Layout_K_SW128_Atom<cutlass::bfloat16_t>{}",
        "UMMA::Layout_K_SW128_Atom<uint_bit_t<16>>",
        "GMMA::Layout_SW128_Atom<half_t, GMMA::Major::K>",
        "warpgroup.SmemLayoutAtomKind.K_SW128",
        "tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_8,_64>{})",
    ],
)
def test_reads_one_atom_in_all_of_its_spellings(text):
    atom = Layout((8, 64), 16, swizzle="128B")
    assert parse_layout(text, element_bits=16) == atom


def test_an_offset_counts_elements_however_it_is_written():
    for text in ("S<3,4,3> o {} o (8,64):(64,1)", '!cute.composed_layout<"S<3,4,3> o {} o (8,64):(64,1)">'):
        assert {parse_layout(text.format(offset), element_bits=16).start for offset in ("8", "0x8", "_8")} == {16}


def test_the_unit_of_a_swizzle_is_part_of_the_text():
    in_bytes = parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)")
    in_elements = parse_layout("Sw<3,4,3> o _0 o (_8,_64):(_64,_1)", element_bits=16)
    assert in_elements.swizzle.name == "xor:3,5,3"
    assert in_bytes.first_difference(in_elements) == (1, 0)
    python = "S<3,4,3> o 0 o (8,64):(64,1)"
    assert parse_layout(python, element_bits=16) == in_bytes
    assert parse_layout(python, element_bits=16, unit="elements") == in_elements
    with pytest.raises(RuleError, match="pointer is swizzled"):
        parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)", unit="elements")


extents = st.integers(1, 6)
trees = st.recursive(extents, lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple), max_leaves=6)


@st.composite
def pycute_layouts(draw):
    shape = draw(trees)
    stride = draw(st.just(shape).map(lambda tree: _strides_like(tree, draw)))
    return pycute.Layout(shape, stride)


def _strides_like(tree, draw):
    return tuple(_strides_like(each, draw) for each in tree) if isinstance(tree, tuple) else draw(st.integers(0, 300))


@given(
    layout=pycute_layouts(),
    triple=st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(3, 5)),
    below=st.booleans(),
    offset=st.integers(0, 500),
    bits=st.sampled_from([8, 16, 32, 64]),
)
def test_any_composed_layout_evaluates_as_in_pycute(layout, triple, below, offset, bits):
    count, base, shift = triple
    swizzle = pycute.Swizzle(count, base, -shift if below else shift)
    composed = pycute.ComposedLayout(swizzle, offset, layout)
    wanted = [composed(index) * bits // 8 for index in range(pycute.size(layout))]
    text = str(composed).replace(f"SW_{count}_{base}_{swizzle.shift}", f"Sw<{count},{base},{swizzle.shift}>")
    assert flat(parse_layout(text, element_bits=bits)).tolist() == wanted
    again = spell_layout(parse_layout(text, element_bits=bits), "cute-elements")
    assert flat(parse_layout(again, element_bits=bits)).tolist() == wanted


@given(layout=pycute_layouts(), triple=st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(3, 5)))
def test_reads_what_tensor_layouts_prints(layout, triple):
    composed = tensor_layouts.compose(
        tensor_layouts.Swizzle(*triple), tensor_layouts.Layout(layout.shape, layout.stride)
    )
    swizzle = pycute.Swizzle(*triple)
    wanted = [swizzle(layout(index)) for index in range(pycute.size(layout))]
    assert flat(parse_layout(str(composed), element_bits=8)).tolist() == wanted


@pytest.mark.parametrize("major", ["K", "MN"])
@pytest.mark.parametrize("kind", ["INTER", "SW32", "SW64", "SW128", "SW128_32B"])
@pytest.mark.parametrize("element", ["uint8_t", "half_t", "float", "cute::int4b_t"])
def test_atoms_by_name_are_what_cute_prints_for_them(major, kind, element):
    space = "UMMA" if kind == "SW128_32B" else "GMMA"
    name = f"{space}::Layout_{major}_{kind}_Atom<{element}>"
    if (major, kind) == ("K", "SW128_32B"):
        with pytest.raises(RuleError, match="it exists MN-major"):
            parse_layout(name)
        return
    atom = parse_layout(name)
    assert spell_layout(atom, "cute") in {text for text, *_ in PRINTED}
    assert spell_layout(atom, "cute-atom").startswith(f"{space}::Layout_{major}_{kind}_Atom<")


# The program prints for each atom: the atom, it as indices, 4 x 2 of them, 2 x 2 by row, 2 x 1 of them three times.
FAMILIES = [
    (place, f"{'UMMA' if '32B' in kind else 'GMMA'}::Layout_{major}_{kind}_Atom<{element}>")
    for place, (element, (major, kind)) in enumerate(
        (element, atom)
        for element in ("uint8_t", "half_t", "float", "int4b_t")
        for atom in (
            *(("K", kind) for kind in ("INTER", "SW32", "SW64", "SW128")),
            *(("MN", kind) for kind in ("INTER", "SW32", "SW64", "SW128", "SW128_32B")),
        )
    )
]


@pytest.mark.parametrize(("place", "name"), FAMILIES)
def test_tiles_of_atoms_are_what_cute_makes_of_them(place, name):
    family = [parse_layout(text, element_bits=bits) for text, bits, *_ in PRINTED[5 * place : 5 * place + 5]]
    rows, columns = family[0].shape
    tiled = [
        name,
        name,
        f"tile_to_shape({name}{{}}, Shape<_{4 * rows},_{2 * columns}>{{}})",
        f"tile_to_shape({name}{{}}, make_shape({2 * rows}, {2 * columns}), Step<_2,_1>{{}})",
        f"tile_to_shape({name}{{}}, make_shape({2 * rows}, Int<{columns}>{{}}, Int<3>{{}}))",
    ]
    assert [parse_layout(text) for text in tiled] == family
    for text, layout in zip(tiled[2:4], family[2:4], strict=True):
        spelled = spell_layout(layout, "cute-atom")
        assert parse_layout(spelled) == layout
        assert ("Step" in spelled) == ("Step" in text)


def test_an_mma_operand_of_many_indices_names_its_tile():
    text = "Sw<3,4,3> o smem_ptr[16b](unset) o ((_128,_16),_1,_4,_2):((_64,_1),_0,_16,_8192)"
    with pytest.raises(RuleError, match=re.escape("tile: (128,64):(64,1)")):
        spell_layout(parse_layout(text), "tilescope")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(?,64):(64,1)", "only the running kernel knows"),
        ("(?{div=8},?):(1@1,1@0)", "only the running kernel knows"),
        ("(8,64):(1@0,1@1)", "counts coordinates"),
        ("(_8,_):(_64,_1)", "only the running kernel knows"),
        ("(8,64)", "a layout is both"),
        ("(8,64):(-64,1)", "at least 0"),
        ("(8,64):64", "with the same nesting"),
        ("(8,(64)):(64,1)", "with the same nesting"),
        ("(0,64):(64,1)", "extents are at least 1"),
        ("Sw<3,4,3>", "A swizzle alone moves nothing"),
        ("Sw<3,4> o 0 o (8,64):(64,1)", "three integers in a swizzle"),
        ("Sw<3,4,2> o 0 o (8,64):(64,1)", "must not overlap"),
        ("Sw<3,99,3> o 0 o (8,64):(64,1)", "bits 0 to 31 of an address"),
        ("smem_sparse<2>_ptr[16b](unset) o (8,64):(64,1)", "Sparse"),
        ("gmem_ptr[16b](0x400) o (8,64):(64,1)", "Only shared memory"),
        ("GMMA::Layout_K_SW128_SpAtom<half_t, 2>", "Sparse"),
        ("GMMA::Layout_MN_SW128_32B_Atom<float>", "Hopper has no 32-byte atoms"),
        ("GMMA::Layout_K_SW128_Atom<my_type>", "only its bits matter"),
        ("tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_12,_64>{})", "whole blocks"),
        (
            "tile_to_shape(GMMA::Layout_K_SW128_Atom<half_t>{}, Shape<_16,_64>{}, Step<_1,_1>{})",
            "every number from 1 to 2",
        ),
        ("Sw<3,4,3> o smem_ptr[32b](unset) o (8,32):(32,1)", "both must agree"),
        ("smem_ptr[16b](unset) o (8,64):(64,1) extra", "the end of the layout"),
    ],
)
def test_says_why_a_text_is_no_address_map(text, reason):
    with pytest.raises(RuleError, match=re.escape(reason)):
        parse_layout(text, element_bits=16)


def test_an_atom_holds_whole_elements():
    with pytest.raises(RuleError, match="spans hold whole elements"):
        parse_layout("GMMA::Layout_K_SW128_Atom<float_e3m2_t>")


@pytest.mark.parametrize("element", ["P0", "uint0_t", "uint_bit_t<0>", "f00"])
def test_an_element_has_bits(element):
    with pytest.raises(RuleError) as refused:
        parse_layout(f"GMMA::Layout_K_SW128_Atom<{element}>")
    assert {violation.rule for violation in refused.value.violations} == {"notation-text"}


def test_a_tile_with_an_address_has_no_atom():
    with pytest.raises(RuleError, match=r"start 0x480;.* cute\.") as raised:
        spell_layout(Layout((16, 64), 16, swizzle="128B", start=0x480), "cute-atom")
    assert dict(raised.value.violations[0].values) == {"start": 0x480}


def test_an_atom_that_leaves_its_majorness_unsaid_takes_the_argument():
    for text in ("SW128", "UMMA::Layout_SW128_Atom<half_t>"):
        for major in ("K", "MN"):
            named = f"GMMA::Layout_{major}_SW128_Atom<half_t>"
            assert parse_layout(text, element_bits=16, major=major) == parse_layout(named)
        with pytest.raises(RuleError, match=r"index is contiguous.* Add major"):
            parse_layout(text, element_bits=16)


def test_asks_for_what_the_text_leaves_unsaid():
    with pytest.raises(RuleError, match="element_bits"):
        parse_layout("(8,64):(64,1)")
    with pytest.raises(RuleError, match="both must agree"):
        parse_layout("(8,64):(64,1)", element_bits=16, shape=(8, 32))


ATOM = "Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)"
TYPE = (
    "cute::ComposedLayout<cute::Swizzle<{i}3, {i}4, {i}3>, cute::smem_ptr_flag_bits<{i}16>, cute::Layout<cute::tuple<"
    "cute::C<{i}8>, cute::C<{i}64> >, cute::tuple<cute::C<{i}64>, cute::C<{i}1> > > >"
)


# What kernels and compilers print, by where the pointer lies: pointer.hpp, pointer_swizzle.hpp, layout_composed.hpp,
# tensor_impl.hpp of CUTLASS; cute.printf, print_tensor and the errors of its Python DSL; nvcc, gcc and MSVC.
@pytest.mark.parametrize(
    ("start", "text"),
    [
        (0x7F8800000400, "Sw<3,4,3>_smem_ptr[16b](0x7f8800000400) o (_8,_64):(_64,_1)"),
        (0x7F8800000400, "smem_ptr[16b](0x7f8800000400) o Sw<3,3,3> o _0 o (8,_64):(_64,1)"),
        (0xC00, "smem_ptr[16b](0xc00) o Sw<3,3,3> o 0 o (_8,_64):(_64,_1)"),
        (0x400, "[rank 3] tCsA : Sw<3,4,3>_smem_ptr[16b](0x400) o (_8,_64):(_64,_1)\n"),
        (0x400, "thread (0,0,0) sA: Sw<3,4,3>_smem_ptr[16b](0x400) o (_8,_64):(_64,_1):\n  0.00e+00  1.00e+00"),
        (0, "sA.layout() = Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1);"),
        (0, "tensor<ptr<f16, smem, align<1024>, S<3,4,3>> o (8,64):(64,1)>"),
        (0, "NotImplementedError: load & store of tensor<ptr<bf16, smem, align<1024>, S<3,4,3>> o (8,64):(64,1)>"),
        (
            0x400,
            "tensor(raw_ptr(0x0000000000000400: f16, smem, align<1024>, S<3,4,3>) o (8,64):(64,1), data=\n   [[ 0.0, 1.0",
        ),
        (
            0x400,
            "sA raw_ptr(0x0000000000000400: f16, smem, align<1024>, S<3,4,3>) o (8,64):(64,1) =\n ( 2.2, -0.9, [...] )",
        ),
        (0, '!cute.memref<f16, smem, align<128>, S<3,4,3>, "(8,64):(64,1)">'),
        (0, TYPE.format(i="(int)")),
        (0, TYPE.format(i="")),
        (0, "struct " + TYPE.format(i="").replace("cute::", "struct cute::")),
        (0, f"error: no instance of f [with L={TYPE.format(i='(int)')}, T=float]"),
        (
            0,
            TYPE.format(i="")
            .replace("cute::C<8>", "cute::_8")
            .replace("cute::C<64>", "std::integral_constant<int, 64>"),
        ),
        (0, TYPE.format(i="").replace("cute::C<1>", "cute::constant<int, 1>").replace("cute::C<8>", "cute::Int<8u>")),
        (0, TYPE.format(i="").replace("smem_ptr_flag_bits<16>", "C<0>").replace("<3, 4, 3>", "<3, 3, 3>")),
        (
            0,
            (
                "cute::Tensor<cute::ViewEngine<cute::swizzle_ptr<cute::Swizzle<3,4,3>, cute::smem_ptr<cutlass::half_t*> > >, "
                "cute::Layout<cute::tuple<cute::C<8>, cute::C<64> >, cute::tuple<cute::C<64>, cute::C<1> > > >"
            ),
        ),
        (0, "auto atom = GMMA::Layout_K_SW128_Atom<cutlass::bfloat16_t>{};"),
        (0, "using SmemLayoutAtom = decltype(composition(Swizzle<3,3,3>{}, Layout<Shape<_8,_64>, Stride<_64,_1>>{}));"),
    ],
)
def test_reads_what_kernels_and_compilers_print(start, text):
    bits = None if any(said in text for said in ("16b", "f16", "flag_bits", "half_t", "float16")) else 16
    assert parse_layout(text, element_bits=bits) == parse_layout(ATOM).with_start(start)


def test_a_tensor_of_stages_keeps_its_modes_and_its_generic_pointer():
    text = "Sw<3,4,3>_smem_ptr[16b](0x7f8800000400) o ((_64,(_8,_2)),_2,_4,_3):((_1,(_64,_1024)),_512,_2048,_8192)"
    found = parse_layout(text)
    assert found.shape == (1024, 2, 4, 3)
    assert found.swizzle.name == "128B"
    assert spell_layout(found, "cute") == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(8,?):(?,1)", "only the running kernel knows"),
        ("tensor<ptr<f16, smem, align<16>> o (?,?{div=8}):(?{i64},1)>", "only the running kernel knows"),
        ("raw_ptr(0x00007f1f44200400: f32, gmem, align<16>) o (8,8):(8,1)", "a pointer to shared memory"),
        ("cute::Layout<cute::tuple<cute::C<8>, int>, cute::tuple<int, cute::C<1>>>", "only the running kernel knows"),
        ("tmem_[32b](0x0000.0000) o (128,64):(65536,1)", "a pointer to shared memory"),
        ("counting_iter(0) o (8,8):(8,1)", "a pointer to shared memory"),
        ("smem_ptr[16b](0xc10) o Sw<3,3,3> o _0 o (_8,_64):(_64,_1)", "every 1024 bytes"),
        ("Sw<3,4,3> o Sw<2,4,3> o (8,64):(64,1)", "one swizzle"),
        ("Swizzle<(int)2, (int)4, (int)3>", "A swizzle alone moves nothing"),
        ("GMMA::Layout_K_SW128_Atom<nv_float4_t<float_e2m1_t>>", "a format of two tensors"),
        ("GMMA::Layout_K_SW128_Atom<something_t>", "the element type something_t"),
    ],
)
def test_says_why_a_print_has_no_address_map(text, reason):
    with pytest.raises(RuleError, match=reason):
        parse_layout(text)


@pytest.mark.parametrize(
    ("type_name", "bits"),
    [
        ("cutlass::detail::float_e2m1_unpacksmem_t", 8),
        ("float_e3m2_unpacksmem_t", 8),
        ("cutlass::float_e2m1_t", 4),
        ("unsigned char", 8),
        ("cutlass::uint4b_t", 4),
        ("cute::uint128_t", 128),
        ("__nv_fp8_e4m3", 8),
        ("tfloat32_t", 32),
    ],
)
def test_atoms_take_the_types_of_cutlass_and_cuda(type_name, bits):
    atom = parse_layout(f"UMMA::Layout_K_SW128_Atom<{type_name}>")
    assert (atom.element_bits, atom.shape) == (bits, (8, 1024 // bits))
