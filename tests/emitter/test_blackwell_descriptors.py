"""The descriptors of emitted Blackwell programs are CuTe's: those of shared memory, and the one of types and shape."""

import pytest
from blackwell_programs import PROGRAMS

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
