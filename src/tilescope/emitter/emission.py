"""`emit`: a plan as a program or a text, by target. `snippet`: a piece of code out of a plan or a tensor map, to paste."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import PurePath
from typing import Any, Literal, get_args

from tilescope.emitter.gemm_program import gemm_facts
from tilescope.emitter.role_text import stage_facts
from tilescope.emitter.source import EMIT, rendered
from tilescope.emitter.tile_program import descriptor_facts, map_facts, plan_facts, tile_facts
from tilescope.errors import RuleError, argument_type
from tilescope.layout import oriented
from tilescope.notation import spell_layout
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map.any_map import AnyMap

Target = Literal["cuda", "ptx", "cute", "triton", "python", "gluon"]
ALIASES: dict[str, Target] = {"gluon": "triton"}  # Triton's language for layouts, in which its text is written
TARGETS: tuple[Target, ...] = tuple(name for name in get_args(Target) if name not in ALIASES)

_PTX_VERSION = {"sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "8.0", "sm_90a": "8.0", "sm_120": "8.7"}
_DEFAULT_PTX_VERSION = "8.6"
_CUTE_ELEMENT = {
    "bf16": "bfloat16_t", "f16": "half_t", "tf32": "tfloat32_t", "f32": "float", "f64": "double", "e4m3": "float_e4m3_t",
    "e5m2": "float_e5m2_t", "s8": "int8_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "s32": "int32_t",
    "u64": "uint64_t", "s64": "int64_t", "s16": "int16_t",
}  # fmt: skip
_CUTE_ATOM = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}
SnippetName = Literal[
    "encode", "encode-bindings", "encode-core", "address", "address-python", "address-triton", "barriers", "descriptors",
    "fences",
]  # fmt: skip
SNIPPETS: tuple[SnippetName, ...] = get_args(SnippetName)
_FUNCTION = {"tensor_map": "Tiled", "im2col_map": "Im2col", "im2col_wide_map": "Im2colWide"}  # cuTensorMapEncode…


def emit(plan: Plan | GemmPlan, target: Target) -> str:
    """The plan as source text.

    "cuda" is a whole program that checks itself; "python" the same from Python, compiled by NVRTC. "gluon" is "triton".

    >>> from tilescope.planner import plan
    >>> source = emit(plan((128, 64), "bf16", stages=4).best, "cuda")
    >>> [line for line in source.splitlines() if "STAGES =" in line]
    ['constexpr int STAGES = 4;']
    """
    return emit_file(plan, target, "")


def emit_file(plan: Plan | GemmPlan, target: Target, file: str) -> str:
    """The source text for a file of this name, which the line that builds a program says; "": tile.cu or gemm.cu.

    >>> from tilescope.planner import plan
    >>> source = emit_file(plan((128, 64), "bf16").best, "cuda", "loads.cu")
    >>> [line for line in source.splitlines() if "nvcc" in line]
    ['//     nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o loads loads.cu && ./loads']
    """
    asked = known_name("target", target, get_args(Target))
    target = ALIASES.get(asked, asked)
    if isinstance(plan, GemmPlan):
        facts, program, script = gemm_facts(plan), "gemm", "gemm"
        if target in _TEXTS:
            tile, a = "x".join(map(str, plan.a.problem.tile)), plan.a.problem
            shell = f"tilescope plan {tile} {a.data_type.ptx} --arch {a.arch.name} --emit {target}"
            fix = f"Use cuda or python; or emit one tile: {shell}."
            raise EMIT.error("target", f"{target} of a GEMM", f"{target} shows one tile", fix)
    elif isinstance(plan, Plan):
        facts, program, script = tile_facts(plan), plan.problem.direction, "tile"
        if target in _TEXTS:
            template, more = _TEXTS[target]
            return rendered(template, facts | more(plan, facts))
    else:
        raise RuleError([argument_type("plan", plan, "a plan", 'Use ts.plan((64, 64), "bf16").best, for example.')])
    build = ""  # a script builds its kernel itself
    if target == "cuda":
        named = file if file.isprintable() else ""  # a comment holds one line
        build = _build_line(named or f"{script}.cu", facts["target"])
    source = rendered(f"{program}.cu.jinja", facts | {"build": build})
    if target == "cuda":
        return source
    sample = re.sub(r"(0x[0-9A-F]+|\b\d+)", r"np.uint64(\1)", facts.get("data", {"bits": "h"})["bits"])
    return rendered(f"{script}.py.jinja", facts | {"kernel": device_half(source), "numpy_sample": sample})


def _build_line(file: str, target: str) -> str:
    """The shell's line that compiles a program and runs it.

    >>> _build_line("my gemm.cu", "sm_90a")
    "nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o 'my gemm' 'my gemm.cu' && './my gemm'"
    """
    path = PurePath(file)
    program = path.stem if path.suffix == ".cu" else f"{file}.out"
    language = "" if path.suffix == ".cu" else "-x cu "
    architecture = f"-gencode=arch=compute_{target.removeprefix('sm_')},code={target}"
    built, source, started = (shlex.quote(name) for name in (program, file, f"./{program}"))
    return f"nvcc -std=c++17 {architecture} -o {built} {language}{source} && {started}"


def device_half(source: str) -> str:
    r"""The part of a program that NVRTC compiles.

    >>> device_half("kernel\n#ifndef __CUDACC_RTC__\nhost\n#endif")
    'kernel'
    """
    return source.partition("#ifndef __CUDACC_RTC__")[0].rstrip()


def snippet(source: Plan | AnyMap, name: SnippetName) -> str:
    """A piece of code out of a plan, or the encode call of a tensor map.

    >>> from tilescope.planner import plan
    >>> print(snippet(plan((64, 64), "bf16").best, "address-python"))
    def element_address(base, mn, k):
        \"\"\"Shared address of element (mn, k) of a tile whose stage starts at `base`; integers or arrays.\"\"\"
        return (a := base + mn * 128 + k * 2) ^ ((a >> 3) & 0x70)
    <BLANKLINE>
    """
    known_name("name", name, SNIPPETS)
    if not isinstance(source, Plan | AnyMap):
        raise RuleError(
            [argument_type("source", source, "a plan or a tensor map", 'Use ts.plan((64, 64), "bf16").best.')]
        )
    if name.startswith("encode"):
        if isinstance(source, Plan):
            source = source.tensor_map(0, source.problem.global_shape or source.problem.tile)
        facts = _encode_facts(source, name)
    elif isinstance(source, Plan):
        facts = plan_facts(source) | _plan_facts(source, name)
    else:
        limit, fix = "a map alone has its encode call", 'Use "encode", or a plan.'
        raise EMIT.error("name", f'"{name}" of a tensor map', limit, fix)
    return rendered(f"snippet_{name.replace('-', '_')}.jinja", facts)


def _encode_facts(tensor_map: Any, name: str) -> dict[str, Any]:
    kind = tensor_map.kind
    if name == "encode-core" and kind != "tensor_map":
        found = "encode-core of an im2col map"
        raise EMIT.error("name", found, "cuda.core makes tiled maps", 'Use "encode-bindings".')
    mode = f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.mode}" if kind == "im2col_wide_map" else ""
    return {
        "title": f"{' x '.join(map(str, tensor_map.dims))} {tensor_map.data_type.name}, innermost first",
        "function": f"cuTensorMapEncode{_FUNCTION[kind]}",
        "map": map_facts(tensor_map) | {"mode": mode},
    }


def _plan_facts(plan: Plan, name: str) -> dict[str, Any]:
    problem = plan.problem
    if name == "descriptors":
        return descriptor_facts(plan)
    if name != "barriers":
        return {}
    if plan.boxes is None or problem.direction == "store":
        found = f"barriers for {problem.copy} {problem.direction}s"
        raise EMIT.error("name", found, "TMA loads complete on mbarriers", 'Use "fences".')
    return stage_facts(plan_pipeline(plan))


def _ptx_facts(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the PTX text says beside the facts of the program: the instructions of one copy and one consumer step."""
    direction = plan.problem.direction
    count = facts.get("stmatrix_count") or 1  # of a store
    kind = "b32" if facts.get("stmatrix_count") else f"b{max(plan.problem.data_type.bits, 16)}"
    if "wgmma" in facts:
        count, kind = facts["wgmma_registers"], "f32" if facts["accumulator"] == "float" else "s32"
    elif direction == "load":
        words = facts.get("vector_words", {"count": 4, "ptx": "b32"})
        count, kind = words["count"], "b16" if words["ptx"] == "b16" else "b32"
    starts = [int(word, 0) for word in facts["descriptors"][0]] if "descriptors" in facts else []
    said = stage_facts(plan_pipeline(plan)) if facts["tma"] and direction == "load" else {}
    problem = plan.problem
    strided, contiguous = oriented(problem.major, "mn", "k")
    return said | {
        "strided": f"%{strided}",  # registers of an element's indices in the tile, and of the tile's in the matrix
        "contiguous": f"%{contiguous}",
        "first_strided": f"%first_{strided}",
        "first_contiguous": f"%first_{contiguous}",
        "k_bytes": problem.tile[1] * problem.data_type.bits // 8,
        "row_vectors": problem.row_bytes // facts.get("vector_bytes", CHUNK_BYTES),
        "ptx_version": _PTX_VERSION.get(facts["target"], _DEFAULT_PTX_VERSION),
        "register_kind": kind,
        "d_registers": [f"%d{number}" for number in range(count)],
        "copies": [_ptx_copy(copy) for copy in facts["copies"]],
        "advances": ", ".join(str(after - before) for before, after in pairwise(starts)) or "nothing",
    }


def _ptx_copy(copy: dict[str, Any]) -> dict[str, Any]:
    """A copy's shared address in %a, and the registers that hold its coordinates."""
    lines, registers = [f"add.u32 %a, %base, {copy['offset']};"], []
    for axis, (index, offset, divisor) in enumerate(copy["coords"]):
        register = f"%first_{index}" if index else str(offset)
        if index and (offset or divisor > 1):
            register = "%t" if axis % 2 else "%n"
            if divisor > 1:
                lines.append(f"div.u32 {register}, %first_{index}, {divisor};")
            if offset:
                lines.append(f"add.u32 {register}, {register if divisor > 1 else f'%first_{index}'}, {offset};")
        registers.append(register)
    return {"lines": lines, "registers": registers}


def _cute_facts(plan: Plan, facts: dict[str, Any]) -> dict[str, Any]:
    """What the CuTe text says: layout, atom, copy and reader as types, with some of its addresses asserted."""
    problem, layout = plan.problem, plan.layout
    element = _CUTE_ELEMENT.get(problem.data_type.ptx)
    if element is None:
        limit = f"CuTe elements: {', '.join(_CUTE_ELEMENT)}"
        raise EMIT.error("data_type", problem.data_type.name, limit, 'Plan the same bytes as "u8".')
    modes, (mn, k) = layout.modes, problem.tile
    assert modes is not None  # whole elements: the types above have no fraction of one
    corners = sorted({(0, 0), (1, 0), (0, k // 2), (mn // 2 + 1, k // 4), (mn - 1, k - 1)})
    is_atom = plan.canonical is not None and problem.reads_by_descriptor
    return {
        "cute_element": element,
        "shape_type": _cute_type("Shape", modes.shape),
        "stride_type": _cute_type("Stride", modes.stride),
        "places": [(*corner, layout.address(*corner) * 8 // layout.element_bits) for corner in corners],
        "cute_atom": f"GMMA::Layout_{problem.major}_{_CUTE_ATOM[plan.swizzle.name]}_Atom<Element>" if is_atom else "",
        "reader": _cute_reader(plan, facts),
    }


def _cute_type(name: str, tree: Any) -> str:
    if isinstance(tree, int):
        return f"Int<{tree}>"
    return f"{name}<{', '.join(_cute_type(name, branch) for branch in tree)}>"


def _cute_reader(plan: Plan, facts: dict[str, Any]) -> str:
    """CuTe's name of what reads the tile, or writes it; empty where it has none."""
    problem = plan.problem
    if problem.direction == "store":
        count = facts["stmatrix_count"]
        moved = f"U16x{2 * count}_STSM_T" if facts["transposed"] else f"U32x{count}_STSM_N"
        return f"Copy_Atom<SM90_{moved}, Element>" if count else ""
    if "wgmma" in facts:
        operand, ptx = facts["consumer"][-1], problem.data_type.ptx.upper()
        n = facts["n"] if operand == "b" else 64
        sums = "F32" if facts["accumulator"] == "float" else "S32"
        name = f"SM90_64x{n}x{facts['k_step']}_{sums}{ptx}{ptx}_SS"
        if problem.data_type.bits == 16:
            majors = (f"GMMA::Major::{problem.major if operand == name else 'K'}" for name in "ab")
            return f"MMA_Atom<{name}<{', '.join(majors)}>>"
        return f"MMA_Atom<{name}_TN{'' if sums == 'S32' else '<>'}>"
    if facts["consumer"] == "mma":
        return f"Copy_Atom<SM75_U{'16x8_LDSM_T' if facts['transposed'] else '32x4_LDSM_N'}, Element>"
    return f"Copy_Atom<UniversalCopy<uint{8 * facts['vector_bytes']}_t>, Element>"


def _gluon_facts(plan: Plan, _: dict[str, Any]) -> dict[str, Any]:
    """What the Gluon text says: the shared layout, the tensor descriptor and a kernel that uses both."""
    problem, layout, bits = plan.problem, plan.layout, plan.problem.data_type.bits
    if plan.boxes is None or problem.direction == "store":
        fix = 'Emit "cuda" for a store.' if problem.direction == "store" else 'Plan with copy="tma".'
        found = f"a {problem.direction} by {problem.copy}"
        raise EMIT.error("copy", found, "Gluon text shows loads by TMA", fix)
    rows, columns = layout.as_rows().shape
    if rows & (rows - 1) or columns & (columns - 1):
        found, limit = f"a tile of {rows} x {columns}", "Triton's blocks are powers of two"
        powers = tuple(1 << (extent - 1).bit_length() for extent in problem.tile)
        raise EMIT.error("tile", found, limit, f"Plan with tile={powers}.", rows=rows, columns=columns)
    if bits not in (8, 16, 32):
        limit = "Gluon's tensor descriptors have elements of 8, 16 or 32 bits"
        raise EMIT.error("data_type", problem.data_type.name, limit, "Plan the same bytes as uint8.", bits=bits)
    span_bytes = next((span for span in (128, 64, 32) if problem.row_bytes % span == 0), 128)
    swizzle = f'Plan with swizzle="{span_bytes}B"'
    try:
        spelled = spell_layout(layout, "gluon")
    except RuleError as error:
        found, limit = error.violations[0].found, "Gluon's shared layouts hold spans column by column"
        raise EMIT.error("layout", found, limit, f'{swizzle}, atom_order="column".') from error
    if "NVMMASharedLayout" not in spelled:
        found, limit = f"swizzle {plan.swizzle.name}, {problem.major}-major", "TMA takes Gluon's NVMMASharedLayout"
        raise EMIT.error("swizzle", found, limit, f"{swizzle}.")
    return {
        "block": (rows, columns),
        "gluon_layout": spelled.replace("ttgl.", "gl.").replace("transposed=True", "transposed=False"),
    }


_TEXTS = {  # of one tile, in other notations
    "ptx": ("ptx.jinja", _ptx_facts),
    "cute": ("cute.jinja", _cute_facts),
    "triton": ("gluon.py.jinja", _gluon_facts),
}
