"""A plan in CuTe C++: layout, atom, copy and reader as types, with some of its addresses asserted."""

from __future__ import annotations

from typing import Any

from tilescope.emitter.tile_program import refused
from tilescope.planner.plans import Plan

_ELEMENT = {
    "bf16": "bfloat16_t", "f16": "half_t", "tf32": "tfloat32_t", "f32": "float", "f64": "double", "e4m3": "float_e4m3_t",
    "e5m2": "float_e5m2_t", "s8": "int8_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "s32": "int32_t",
    "u64": "uint64_t", "s64": "int64_t", "s16": "int16_t",
}  # fmt: skip
_WGMMA = {  # what CuTe's atom names spell for types of operands and sums
    "bf16": "F32BF16BF16", "f16": "F32F16F16", "tf32": "F32TF32TF32", "e4m3": "F32E4M3E4M3", "e5m2": "F32E5M2E5M2",
    "s8": "S32S8S8", "u8": "S32U8U8",
}  # fmt: skip


def cute_facts(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the CuTe text says beside the facts of the program."""
    problem, layout = plan.problem, plan.layout
    element = _ELEMENT.get(problem.data_type.ptx)
    if element is None:
        raise refused(
            "data_type", problem.data_type.name, f"CuTe elements: {', '.join(_ELEMENT)}", "Plan the same bytes as u8."
        )
    modes, bits = layout.modes, layout.element_bits
    assert modes is not None  # whole elements: the types above have no fraction of one
    swizzle = layout.swizzle
    return {
        "cute_element": element,
        "swizzle": f"Swizzle<{swizzle.bits}, {swizzle.base}, {swizzle.shift}>" if swizzle.bits else "Swizzle<0, 4, 3>",
        "shape_type": _type("Shape", modes.shape),
        "stride_type": _type("Stride", modes.stride),
        "places": [(mn, k, layout.address(mn, k) * 8 // bits) for mn, k in _corners(problem.tile)],
        "headers": _headers(plan),
        "cute_atom": _atom(plan),
        "order": "Step<_1, _2>" if (layout.atom_order == "column") == (problem.major == "K") else "Step<_2, _1>",
        "order_comment": "down the strided index first"
        if layout.atom_order == "column"
        else "along the contiguous index first",
        "reader": _reader(plan, facts),
    }


def _corners(tile: tuple[int, int]) -> list[tuple[int, int]]:
    mn, k = tile
    return sorted({(0, 0), (1, 0), (0, k // 2), (mn // 2 + 1, k // 4), (mn - 1, k - 1)})


def _type(name: str, tree: Any) -> str:
    if isinstance(tree, int):
        return f"Int<{tree}>"
    return f"{name}<{', '.join(_type(name, branch) for branch in tree)}>"


def _atom(plan: Plan) -> str:
    """The canonical atom by CuTe's name; empty where the tile is made of none."""
    if plan.canonical is None or plan.problem.consumer != "wgmma":
        return ""
    mode = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}[plan.swizzle.name]
    return f"GMMA::Layout_{plan.problem.major}_{mode}_Atom<Element>"


def _headers(plan: Plan) -> list[str]:
    named = ["cute/atom/copy_traits_sm90_tma.hpp" if plan.boxes is not None else "cute/atom/copy_traits_sm80.hpp"]
    named += ["cute/atom/copy_atom.hpp", "cute/atom/mma_traits_sm90_gmma.hpp", "cute/atom/copy_traits_sm75.hpp"]
    return [*named, "cute/atom/copy_traits_sm90.hpp"]


def _reader(plan: Plan, facts: dict[str, Any]) -> str:
    problem = plan.problem
    if problem.direction == "store":
        count = facts["stmatrix_count"]
        moved = f"U16x{2 * count}_STSM_T" if facts["transposed"] else f"U32x{count}_STSM_N"
        return f"Copy_Atom<SM90_{moved}, Element>" if count else ""
    if facts["consumer"].startswith("wgmma"):
        n = facts["n"] if facts["consumer"] == "wgmma_b" else 64
        k_step, spelled = facts["k_step"], _WGMMA[problem.data_type.ptx]
        major = [f"GMMA::Major::{problem.major if facts['consumer'][-1] == operand else 'K'}" for operand in "ab"]
        if problem.data_type.bits != 16:
            return f"MMA_Atom<SM90_64x{n}x{k_step}_{spelled}_SS_TN{'' if facts['accumulator'] == 'int' else '<>'}>"
        return f"MMA_Atom<SM90_64x{n}x{k_step}_{spelled}_SS<{', '.join(major)}>>"
    if facts["consumer"] == "mma":
        return f"Copy_Atom<SM75_U{'16x8_LDSM_T' if facts['transposed'] else '32x4_LDSM_N'}, Element>"
    return f"Copy_Atom<UniversalCopy<uint{8 * facts['vector_bytes']}_t>, Element>"
