"""The descriptors of emitted Blackwell programs are CuTe's: those of shared memory, and the one of types and shape.

So are those of programs with scale factors, and where the factors lie in global memory and in a stage.
"""

import numpy as np
import pytest
from blackwell_programs import PROGRAMS, scaled_programs

import tilescope as ts
from tilescope.emitter.gemm_program import gemm_program

CUTE_TYPE = {
    "bf16": "bfloat16_t",
    "f16": "half_t",
    "tf32": "tfloat32_t",
    "e4m3": "float_e4m3_t",
    "e5m2": "float_e5m2_t",
    "s8": "int8_t",
    "u8": "uint8_t",
}
ATOM = {"128B": "SW128", "64B": "SW64", "32B": "SW32", "none": "INTER", "128B_ATOM_32B": "SW128_32B"}
HEADER = """
#include <cute/tensor.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cstdio>
using namespace cute;

template <UMMA::Major major, class T, class Atom, int MN, int K>
void operand() {
  using Order = conditional_t<major == UMMA::Major::K, Step<_1, _2>, Step<_2, _1>>;  // as TMA's boxes lie: k below each other
  auto layout = tile_to_shape(Atom{}, Shape<Int<MN>, Int<K>>{}, Order{});
  auto tensor = make_tensor(make_smem_ptr(static_cast<T*>(nullptr)), layout);
  auto word = static_cast<unsigned long long>(UMMA::make_umma_desc<major>(tensor));
  const bool is_one_atom = major == UMMA::Major::MN && MN == size<0>(Atom{});
  if (is_one_atom) word &= ~(0x3FFFull << 16);  // the leading offset is not used
  std::printf("%#llx\\n", word);
}

template <class T, class D, int M, int N, UMMA::Major a, UMMA::Major b>
void instruction() {
  std::printf("%#x\\n", static_cast<unsigned>(UMMA::make_instr_desc<T, T, D, M, N, a, b>()));
}

int main() {
"""


def by_tcgen05():
    """Plans that multiply by tcgen05 without scale factors, each kind of operand and instruction once."""
    plans = [program.plan() for program in PROGRAMS.values()]
    return [plan for plan in plans if plan.accumulators and plan.scales is None]


def compared():
    """(line of C++, word that the emitted program holds), each once."""
    found = {}
    for gemm in by_tcgen05():
        work = gemm_program(gemm).work
        element = CUTE_TYPE[gemm.data_type.ptx]
        for plan in gemm.operands:
            mn, k = plan.problem.tile
            mn = min(mn, plan.descriptors().block_mn)
            major = plan.problem.major
            atom = f"UMMA::Layout_{major}_{ATOM[plan.swizzle.name]}_Atom<{element}>"
            line = f"operand<UMMA::Major::{major}, {element}, {atom}, {mn}, {k}>();"
            word = plan.descriptors()[0][0].encode()
            if major == "MN" and mn * plan.problem.data_type.bits // 8 == plan.swizzle.span_bytes:
                word &= ~(0x3FFF << 16)  # one atom along mn: the leading offset is not used
            found[line] = f"{word:#x}"
        rows, columns = gemm.operands
        m = rows.descriptors().block_mn * gemm.schedule.cta_group
        sums = "int32_t" if gemm.data_type.ptx in ("s8", "u8") else "float"
        majors = f"UMMA::Major::{rows.problem.major}, UMMA::Major::{columns.problem.major}"
        found[f"instruction<{element}, {sums}, {m}, {gemm.sums[1]}, {majors}>();"] = work.instruction
    return found


@pytest.mark.slow
def test_descriptors_are_those_of_cute(printed_by_cute, tmp_path):
    words = compared()
    assert len(words) > 40
    source = tmp_path / "descriptors.cpp"
    source.write_text(HEADER + "\n".join(words) + "\n}\n")
    printed = [
        line for line in printed_by_cute(source) if line.startswith("0x")
    ]  # the address on the host is 0, and CuTe says so
    assert dict(zip(words, printed, strict=True)) == words


SCALED_HEADER = """
#include <cutlass/detail/sm100_blockscaled_layout.hpp>
"""
SCALED_FUNCTIONS = """
// The word of an instruction that begins with one of the four scale factors of a word.
template <class T, class Scale, int M, int N>
void scaled_instruction(unsigned id) {
  auto word = UMMA::make_runtime_instr_desc_block_scaled<T, T, float, Scale, M, N, UMMA::Major::K, UMMA::Major::K>(id << 30, id << 30);
  std::printf("%#x\\n", static_cast<unsigned>(word >> 32));
}

// Where the scale factors of a matrix lie, row after row.
template <int Block>
void scale_places(int rows, int k) {
  auto layout = cutlass::detail::Sm1xxBlockScaledConfig<Block>::tile_atom_to_shape_SFA(make_shape(rows, 1, k));
  std::printf("0x");
  for (int row = 0; row < rows; ++row) {
    for (int block = 0; block < k / Block; ++block) std::printf(" %d", static_cast<int>(layout(row, block * Block, 0)));
  }
  std::printf("\\n");
}

// The descriptor of tcgen05.cp for an atom at address 0: 32 rows of 16 bytes. One column of them needs no leading offset.
void scale_copy() {
  auto atom = Layout<Shape<Shape<Shape<_32, _16>, _1>>, Stride<Stride<Stride<_16, _1>, _0>>>{};
  auto tensor = make_tensor(make_smem_ptr(static_cast<uint8_t*>(nullptr)), atom);
  auto word = get_utccp_smem_desc_tensor<SM100_UTCCP_4x32dp128bit_1cta>(tensor).data();
  std::printf("%#llx\\n", static_cast<unsigned long long>(UMMA::SmemDescriptor(*word).desc_) & ~(0x3FFFull << 16));
}
"""
SCALE_TYPE = {"ue8m0": "float_ue8m0_t", "ue4m3": "float_ue4m3_t"}


def scaled():
    """(line of C++, word of the emitted program) of the operands, the instructions and the copies of scale factors."""
    found = {}
    for program in scaled_programs():
        gemm = program.plan()
        facts = gemm_program(gemm).work.scales
        element = {"e4m3": "float_e4m3_t", "e5m2": "float_e5m2_t", "e2m1": "float_e2m1_t"}[gemm.data_type.ptx]
        for plan in gemm.operands:
            mn, k = plan.problem.tile
            row_bytes = k * plan.problem.data_type.bits // 8
            atom = f"UMMA::Layout_K_{ATOM[plan.swizzle.name]}_Atom<uint8_t>"
            mn = min(mn, plan.descriptors().block_mn)
            word = plan.descriptors()[0][0].encode()
            found[f"operand<UMMA::Major::K, uint8_t, {atom}, {mn}, {row_bytes}>();"] = f"{word:#x}"
        m = gemm.operands[0].descriptors().block_mn * gemm.schedule.cta_group
        types = f"cutlass::{element}, cutlass::{SCALE_TYPE[gemm.scales.scale_type]}, {m}, {gemm.sums[1]}"
        for step, word in zip(gemm.scale_plans[0].steps, facts.instructions, strict=True):
            found[f"scaled_instruction<{types}>({step.scale_id});"] = word
    return found


def scale_copies():
    """The tcgen05.cp descriptors of all programs, without their start addresses and the leading offset."""
    copies = (copy for program in scaled_programs() for plan in program.plan().scale_plans for copy in plan.copies)
    return {copy.descriptor.encode() & ~0x3FFF & ~(0x3FFF << 16) for copy in copies}


@pytest.mark.slow
def test_descriptors_of_scaled_programs_are_those_of_cute(printed_by_cute, tmp_path):
    words = scaled()
    assert len(words) > 12
    [copied] = scale_copies()
    words["scale_copy();"] = f"{copied:#x}"
    source = tmp_path / "scaled.cpp"
    source.write_text(_scaled_source(words))
    printed = [line for line in printed_by_cute(source) if line.startswith("0x")]
    assert dict(zip(words, printed, strict=True)) == words


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "k"), [(128, 256), (384, 512)])
def test_scale_factors_lie_as_cute_has_them(rows, k, printed_by_cute, tmp_path):
    """In global memory, and so in a stage, which holds whole atoms of them."""
    blocks = sorted({program.plan().scales.block for program in scaled_programs()})
    assert blocks == [16, 32]
    source = tmp_path / "places.cpp"
    source.write_text(_scaled_source([f"scale_places<{block}>({rows}, {k});" for block in blocks]))
    printed = [line for line in printed_by_cute(source) if line.startswith("0x")]
    for block, places in zip(blocks, printed, strict=True):
        values = np.random.default_rng(1).integers(0, 256, (rows, k // block)).astype(np.uint8)
        expected = np.zeros(values.size, np.uint8)
        expected[np.array(places.split()[1:], int)] = values.reshape(-1)
        assert (np.asarray(ts.pack_scales(values)).reshape(-1) == expected).all()


def _scaled_source(lines):
    top, main = HEADER.split("int main() {")
    return f"{top}{SCALED_HEADER}{SCALED_FUNCTIONS}int main() {{{main}" + "\n".join(lines) + "\n}\n"
