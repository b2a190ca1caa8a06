"""The facts of a tile for the template of the CuTe text: layout, atom, copy and reader as types of CuTe.

plan((64, 64), "bf16") for wgmma     GMMA::Layout_K_SW128_Atom<Element>
                                     MMA_Atom<SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>>
"""

from __future__ import annotations

from tilescope.emitter.source_template import EMIT, Facts
from tilescope.emitter.tile_program import StoreFacts, TileProgram
from tilescope.emitter.tile_reader import ThreadReader, WgmmaReader
from tilescope.layout import IntTree
from tilescope.planner.plans import Plan

_ELEMENT = {
    "bf16": "bfloat16_t",
    "f16": "half_t",
    "tf32": "tfloat32_t",
    "f32": "float",
    "f64": "double",
    "e4m3": "float_e4m3_t",
    "e5m2": "float_e5m2_t",
    "s8": "int8_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "s32": "int32_t",
    "u64": "uint64_t",
    "s64": "int64_t",
    "s16": "int16_t",
}
_ATOM = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}
ELEMENT_NOT_IN_CUTE = EMIT.worded(
    argument="data_type",
    found="{data_type}",
    limit="CuTe elements: {known:, }",
    fix='Plan the same bytes as "u8".',
)


def cute_facts(plan: Plan, program: TileProgram) -> Facts:
    """The facts of the CuTe text: layout, atom, copy and reader as types, with some of its addresses asserted."""
    problem = plan.problem
    layout = plan.layout
    element = _ELEMENT.get(problem.data_type.ptx)
    if element is None:
        raise ELEMENT_NOT_IN_CUTE.error(data_type=problem.data_type.name, known=tuple(_ELEMENT))
    modes = layout.modes
    assert modes is not None  # whole elements: the types above have no fraction of one
    mn, k = problem.tile
    corners = sorted({(0, 0), (1, 0), (0, k // 2), (mn // 2 + 1, k // 4), (mn - 1, k - 1)})
    atom = ""
    if plan.canonical is not None and problem.reads_by_descriptor:
        atom = f"GMMA::Layout_{problem.major}_{_ATOM[plan.swizzle.name]}_Atom<Element>"
    return {
        "cute_element": element,
        "shape_type": _type("Shape", modes.shape),
        "stride_type": _type("Stride", modes.stride),
        "places": [(*corner, layout.address(*corner) * 8 // layout.element_bits) for corner in corners],
        "cute_atom": atom,
        "reader": _reader(plan, program),
    }


def _type(name: str, tree: IntTree) -> str:
    if isinstance(tree, int):
        return f"Int<{tree}>"
    return f"{name}<{', '.join(_type(name, branch) for branch in tree)}>"


def _reader(plan: Plan, program: TileProgram) -> str:
    """CuTe's name of what reads the tile, or writes it; empty where it has none."""
    work = program.work
    reader = program.reader
    transposed = program.matrix.transposed
    if isinstance(work, StoreFacts):
        return _store(work.stmatrix_count, transposed=transposed)
    if isinstance(reader, WgmmaReader):
        return _wgmma(plan, reader)
    if isinstance(reader, ThreadReader):
        return f"Copy_Atom<UniversalCopy<uint{8 * reader.vector_bytes}_t>, Element>"
    return f"Copy_Atom<SM75_U{'16x8_LDSM_T' if transposed else '32x4_LDSM_N'}, Element>"


def _store(stmatrix_count: int, *, transposed: bool) -> str:
    if not stmatrix_count:
        return ""
    moved = f"U16x{2 * stmatrix_count}_STSM_T" if transposed else f"U32x{stmatrix_count}_STSM_N"
    return f"Copy_Atom<SM90_{moved}, Element>"


def _wgmma(plan: Plan, reader: WgmmaReader) -> str:
    """The instruction with both operands in shared memory; for 16 bits, with the majorness of each."""
    data_type = plan.problem.data_type
    is_b = reader.consumer == "wgmma_b"
    ptx = data_type.ptx.upper()
    sums = reader.decode.accumulator.upper()
    name = f"SM90_64x{reader.n if is_b else 64}x{reader.k_step}_{sums}{ptx}{ptx}_SS"
    if data_type.bits == 16:
        majors = ("K", plan.problem.major) if is_b else (plan.problem.major, "K")
        return f"MMA_Atom<{name}<GMMA::Major::{majors[0]}, GMMA::Major::{majors[1]}>>"
    return f"MMA_Atom<{name}_TN>" if sums == "S32" else f"MMA_Atom<{name}_TN<>>"
