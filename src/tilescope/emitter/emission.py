"""`emit`: a plan as a program or a text, by target. `snippet`: a piece of code out of a plan or a tensor map, to paste."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Literal, Protocol, get_args

from tilescope.emitter.gemm_program import gemm_program
from tilescope.emitter.role_text import stage_facts
from tilescope.emitter.source import EMIT, Facts, rendered, told
from tilescope.emitter.tile_program import StoreFacts, TileCopy, TileFacts, TileProgram, map_facts, tile_program
from tilescope.emitter.tile_reader import DescriptorFacts, ThreadReader, WgmmaReader
from tilescope.errors import RuleError, argument_type
from tilescope.layout import IntTree, oriented
from tilescope.notation import spell_layout
from tilescope.planner.barrier_roles import plan_pipeline
from tilescope.planner.gemm_plan import GemmPlan
from tilescope.planner.plans import Plan
from tilescope.reading import known_name
from tilescope.sentence import by
from tilescope.swizzle import CHUNK_BYTES
from tilescope.tensor_map import Im2colWideMap
from tilescope.tensor_map.any_map import AnyMap

Target = Literal["cuda", "ptx", "cute", "triton", "python", "gluon"]
ALIASES: dict[str, Target] = {"gluon": "triton"}  # Triton's language for layouts, in which its text is written
TARGETS: tuple[Target, ...] = tuple(name for name in get_args(Target) if name not in ALIASES)

_PTX_VERSION = {"sm_80": "7.0", "sm_86": "7.1", "sm_89": "7.8", "sm_90": "8.0", "sm_90a": "8.0", "sm_120": "8.7"}
_DEFAULT_PTX_VERSION = "8.6"
_CUTE_ELEMENT = {
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
_CUTE_ATOM = {"none": "INTER", "32B": "SW32", "64B": "SW64", "128B": "SW128"}
SnippetName = Literal[
    "encode",
    "encode-bindings",
    "encode-core",
    "address",
    "address-python",
    "address-triton",
    "barriers",
    "descriptors",
    "fences",
]
SNIPPETS: tuple[SnippetName, ...] = get_args(SnippetName)
_FUNCTION = {"tensor_map": "Tiled", "im2col_map": "Im2col", "im2col_wide_map": "Im2colWide"}  # cuTensorMapEncode…

GEMM_NOT_SHOWN = EMIT.worded(
    argument="target",
    found="{target} of a GEMM",
    limit="{target} shows one tile",
    fix="Use cuda or python; or emit one tile: tilescope plan {tile:x} {data_type} --arch {arch} --emit {target}.",
)
SNIPPET_NEEDS_PLAN = EMIT.worded(
    argument="name",
    found='"{name}" of a tensor map',
    limit="a map alone has its encode call",
    fix='Use "encode", or a plan.',
)
IM2COL_NOT_IN_CORE = EMIT.worded(
    argument="name",
    found="encode-core of an im2col map",
    limit="cuda.core makes tiled maps",
    fix='Use "encode-bindings".',
)
NO_BARRIERS = EMIT.worded(
    argument="name",
    found="barriers for {copy} {direction}s",
    limit="TMA loads complete on mbarriers",
    fix='Use "fences".',
)
ELEMENT_NOT_IN_CUTE = EMIT.worded(
    argument="data_type",
    found="{data_type}",
    limit="CuTe elements: {known:, }",
    fix='Plan the same bytes as "u8".',
)
COPY_NOT_IN_GLUON = EMIT.worded(
    argument="copy",
    found="a {direction} by {copy}",
    limit="Gluon text shows loads by TMA",
    fix='Plan with copy="tma".',
)
STORE_NOT_IN_GLUON = COPY_NOT_IN_GLUON.worded(fix='Emit "cuda" for a store.')
TILE_NOT_IN_GLUON = EMIT.worded(
    argument="tile",
    found="a tile of {rows} x {columns}",
    limit="Triton's blocks are powers of two",
    fix="Plan with tile={powers}.",
)
ELEMENT_NOT_IN_GLUON = EMIT.worded(
    argument="data_type",
    found="{data_type}",
    limit="Gluon's tensor descriptors have elements of 8, 16 or 32 bits",
    fix="Plan the same bytes as uint8.",
)
LAYOUT_NOT_IN_GLUON = EMIT.worded(
    argument="layout",
    found="{reason}",
    limit="Gluon's shared layouts hold spans column by column",
    fix='Plan with swizzle="{span_bytes}B", atom_order="column".',
)
SWIZZLE_NOT_IN_GLUON = EMIT.worded(
    argument="swizzle",
    found="swizzle {swizzle}, {major}-major",
    limit="TMA takes Gluon's NVMMASharedLayout",
    fix='Plan with swizzle="{span_bytes}B".',
)


class SourceText(str):
    """Source code: a string that IPython and notebooks show line by line, without quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: _PrettyPrinter, cycle: bool) -> None:
        printer.text(str(self))


class _PrettyPrinter(Protocol):
    """What IPython hands to an object that prints itself."""

    def text(self, text: str) -> None: ...


def emit(plan: Plan | GemmPlan, target: Target) -> str:
    """The plan as source text.

    "cuda" is a whole program that checks itself; "python" the same from Python, compiled by NVRTC. "gluon" is "triton".

    >>> from tilescope.planner import plan
    >>> source = emit(plan((128, 64), "bf16", stages=4).best, "cuda")
    >>> [line for line in source.splitlines() if "STAGES =" in line]
    ['constexpr int STAGES = 4;']
    """
    return SourceText(emit_file(plan, target, ""))


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
        program = _gemm_program(plan, target)
    elif isinstance(plan, Plan):
        tile = tile_program(plan)
        if target not in ("cuda", "python"):
            return _tile_text(plan, tile, target)
        program = _tile_program(tile)
    else:
        raise RuleError([argument_type("plan", plan, "a plan", 'Use ts.plan((64, 64), "bf16").best, for example.')])
    build = ""  # a script builds its kernel itself
    if target == "cuda":
        named = file if file.isprintable() else ""  # a comment holds one line
        build = _build_line(named or f"{program.script}.cu", program.target)
    source = rendered(f"{program.kernel}.cu.jinja", program.facts | {"build": build})
    if target == "cuda":
        return source
    numpy_sample = re.sub(r"(0x[0-9A-F]+|\b\d+)", r"np.uint64(\1)", program.sample)
    return rendered(
        f"{program.script}.py.jinja",
        program.facts | {"kernel": device_half(source), "numpy_sample": numpy_sample},
    )


@dataclass(frozen=True, slots=True)
class _Program:
    """A whole program: its templates and what they are told."""

    kernel: str  # NAME.cu.jinja
    script: str  # NAME.py.jinja
    target: str  # the architecture that it is compiled for
    sample: str  # bits of test data, from a hash h
    facts: Facts


def _gemm_program(gemm: GemmPlan, target: Target) -> _Program:
    program = gemm_program(gemm)
    if target not in ("cuda", "python"):
        a = gemm.a.problem
        raise GEMM_NOT_SHOWN.error(target=target, tile=a.tile, data_type=a.data_type.ptx, arch=a.arch.name)
    return _Program("gemm", "gemm", program.work.target, "h", program.facts())


def _tile_program(program: TileProgram) -> _Program:
    sample = "h" if program.reader is None else program.reader.data.bits
    return _Program(program.tile.problem.direction, "tile", program.work.target, sample, program.facts())


def _tile_text(plan: Plan, program: TileProgram, target: Target) -> str:
    """One tile in a notation that is no whole program."""
    facts = program.facts()
    if target == "ptx":
        return rendered("ptx.jinja", facts | _ptx_facts(plan, program))
    if target == "cute":
        return rendered("cute.jinja", facts | _cute_facts(plan, program))
    return rendered("gluon.py.jinja", facts | _gluon_facts(plan))


def _build_line(file: str, target: str) -> str:
    """The shell's line that compiles a program and runs it.

    >>> _build_line("my gemm.cu", "sm_90a")
    "nvcc -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o 'my gemm' 'my gemm.cu' && './my gemm'"
    """
    path = PurePath(file)
    program = path.stem if path.suffix == ".cu" else f"{file}.out"
    language = "" if path.suffix == ".cu" else "-x cu "
    architecture = f"-gencode=arch=compute_{target.removeprefix('sm_')},code={target}"
    built = shlex.quote(program)
    source = shlex.quote(file)
    started = shlex.quote(f"./{program}")
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
        facts = told(TileFacts.of(source)) | _plan_facts(source, name)
    else:
        raise SNIPPET_NEEDS_PLAN.error(name=name)
    return SourceText(rendered(f"snippet_{name.replace('-', '_')}.jinja", facts))


def _encode_facts(tensor_map: AnyMap, name: str) -> Facts:
    if name == "encode-core" and tensor_map.kind != "tensor_map":
        raise IM2COL_NOT_IN_CORE.error()
    mode = ""
    if isinstance(tensor_map, Im2colWideMap):
        mode = f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{tensor_map.mode}"
    return {
        "title": f"{by(tensor_map.dims)} {tensor_map.data_type.name}, innermost first",
        "function": f"cuTensorMapEncode{_FUNCTION[tensor_map.kind]}",
        "map": map_facts(tensor_map) | {"mode": mode},
    }


def _plan_facts(plan: Plan, name: str) -> Facts:
    problem = plan.problem
    if name == "descriptors":
        return told(DescriptorFacts.of(plan))
    if name != "barriers":
        return {}
    if plan.boxes is None or problem.direction == "store":
        raise NO_BARRIERS.error(copy=problem.copy, direction=problem.direction)
    return told(stage_facts(plan_pipeline(plan)))


def _ptx_facts(plan: Plan, program: TileProgram) -> Facts:
    """What the PTX text says beside the facts of the program: the instructions of one copy and one consumer step."""
    problem = plan.problem
    reader = program.reader
    strided, contiguous = oriented(problem.major, "mn", "k")
    vector_bytes = reader.vector_bytes if isinstance(reader, ThreadReader) else CHUNK_BYTES
    starts = [int(word, 0) for word in reader.descriptors[0]] if isinstance(reader, WgmmaReader) else []
    kind, count = _result_registers(program)
    facts: Facts = {
        "strided": f"%{strided}",  # registers of an element's indices in the tile, and of the tile's in the matrix
        "contiguous": f"%{contiguous}",
        "first_strided": f"%first_{strided}",
        "first_contiguous": f"%first_{contiguous}",
        "k_bytes": problem.tile[1] * problem.data_type.bits // 8,
        "row_vectors": problem.row_bytes // vector_bytes,
        "ptx_version": _PTX_VERSION.get(program.work.target, _DEFAULT_PTX_VERSION),
        "register_kind": kind,
        "d_registers": [f"%d{number}" for number in range(count)],
        "copies": [_ptx_copy(copy) for copy in program.matrix.copies],
        "advances": ", ".join(str(after - before) for before, after in pairwise(starts)) or "nothing",
    }
    if program.roles is not None:
        facts |= told(stage_facts(plan_pipeline(plan)))
    return facts


def _result_registers(program: TileProgram) -> tuple[str, int]:
    """The kind of the registers that hold what is read, or written, and how many a lane has."""
    work = program.work
    reader = program.reader
    if isinstance(work, StoreFacts):
        if work.stmatrix_count:
            return "b32", work.stmatrix_count
        return f"b{max(program.tile.problem.data_type.bits, 16)}", 1
    if isinstance(reader, WgmmaReader):
        return reader.decode.accumulator, reader.wgmma_registers
    if isinstance(reader, ThreadReader):
        return "b16" if reader.vector_words.ptx == "b16" else "b32", reader.vector_words.count
    return "b32", 4  # of ldmatrix.x4


@dataclass(frozen=True, slots=True)
class _PtxCopy:
    """A copy's shared address in %a, and the registers that hold its coordinates."""

    lines: list[str]
    registers: list[str]


def _ptx_copy(copy: TileCopy) -> _PtxCopy:
    lines = [f"add.u32 %a, %base, {copy.offset};"]
    registers = []
    for axis, (index, offset, divisor) in enumerate(copy.coords):
        first = f"%first_{index}"
        computed = "%t" if axis % 2 else "%n"
        if not index:
            registers.append(str(offset))
        elif divisor > 1:
            lines.append(f"div.u32 {computed}, {first}, {divisor};")
            if offset:
                lines.append(f"add.u32 {computed}, {computed}, {offset};")
            registers.append(computed)
        elif offset:
            lines.append(f"add.u32 {computed}, {first}, {offset};")
            registers.append(computed)
        else:
            registers.append(first)
    return _PtxCopy(lines, registers)


def _cute_facts(plan: Plan, program: TileProgram) -> Facts:
    """What the CuTe text says: layout, atom, copy and reader as types, with some of its addresses asserted."""
    problem = plan.problem
    layout = plan.layout
    element = _CUTE_ELEMENT.get(problem.data_type.ptx)
    if element is None:
        raise ELEMENT_NOT_IN_CUTE.error(data_type=problem.data_type.name, known=tuple(_CUTE_ELEMENT))
    modes = layout.modes
    assert modes is not None  # whole elements: the types above have no fraction of one
    mn, k = problem.tile
    corners = sorted({(0, 0), (1, 0), (0, k // 2), (mn // 2 + 1, k // 4), (mn - 1, k - 1)})
    atom = ""
    if plan.canonical is not None and problem.reads_by_descriptor:
        atom = f"GMMA::Layout_{problem.major}_{_CUTE_ATOM[plan.swizzle.name]}_Atom<Element>"
    return {
        "cute_element": element,
        "shape_type": _cute_type("Shape", modes.shape),
        "stride_type": _cute_type("Stride", modes.stride),
        "places": [(*corner, layout.address(*corner) * 8 // layout.element_bits) for corner in corners],
        "cute_atom": atom,
        "reader": _cute_reader(plan, program),
    }


def _cute_type(name: str, tree: IntTree) -> str:
    if isinstance(tree, int):
        return f"Int<{tree}>"
    return f"{name}<{', '.join(_cute_type(name, branch) for branch in tree)}>"


def _cute_reader(plan: Plan, program: TileProgram) -> str:
    """CuTe's name of what reads the tile, or writes it; empty where it has none."""
    work = program.work
    reader = program.reader
    transposed = program.matrix.transposed
    if isinstance(work, StoreFacts):
        return _cute_store(work.stmatrix_count, transposed=transposed)
    if isinstance(reader, WgmmaReader):
        return _cute_wgmma(plan, reader)
    if isinstance(reader, ThreadReader):
        return f"Copy_Atom<UniversalCopy<uint{8 * reader.vector_bytes}_t>, Element>"
    return f"Copy_Atom<SM75_U{'16x8_LDSM_T' if transposed else '32x4_LDSM_N'}, Element>"


def _cute_store(stmatrix_count: int, *, transposed: bool) -> str:
    if not stmatrix_count:
        return ""
    moved = f"U16x{2 * stmatrix_count}_STSM_T" if transposed else f"U32x{stmatrix_count}_STSM_N"
    return f"Copy_Atom<SM90_{moved}, Element>"


def _cute_wgmma(plan: Plan, reader: WgmmaReader) -> str:
    """The instruction with both operands in shared memory; of 16 bits, it says how each of them lies."""
    data_type = plan.problem.data_type
    is_b = reader.consumer == "wgmma_b"
    ptx = data_type.ptx.upper()
    sums = reader.decode.accumulator.upper()
    name = f"SM90_64x{reader.n if is_b else 64}x{reader.k_step}_{sums}{ptx}{ptx}_SS"
    if data_type.bits == 16:
        majors = ("K", plan.problem.major) if is_b else (plan.problem.major, "K")
        return f"MMA_Atom<{name}<GMMA::Major::{majors[0]}, GMMA::Major::{majors[1]}>>"
    return f"MMA_Atom<{name}_TN>" if sums == "S32" else f"MMA_Atom<{name}_TN<>>"


def _gluon_facts(plan: Plan) -> Facts:
    """What the Gluon text says: the shared layout, the tensor descriptor and a kernel that uses both."""
    problem = plan.problem
    layout = plan.layout
    rows, columns = layout.as_rows().shape
    _require_gluon(plan, rows, columns)
    span_bytes = next((span for span in (128, 64, 32) if problem.row_bytes % span == 0), 128)
    try:
        spelled = spell_layout(layout, "gluon")
    except RuleError as error:
        reason = error.violations[0].found
        raise LAYOUT_NOT_IN_GLUON.error(reason=reason, span_bytes=span_bytes) from error
    if "NVMMASharedLayout" not in spelled:
        raise SWIZZLE_NOT_IN_GLUON.error(swizzle=plan.swizzle.name, major=problem.major, span_bytes=span_bytes)
    return {
        "block": (rows, columns),
        "gluon_layout": spelled.replace("ttgl.", "gl.").replace("transposed=True", "transposed=False"),
    }


def _require_gluon(plan: Plan, rows: int, columns: int) -> None:
    """Refuse copies, tiles and elements that Gluon does not have."""
    problem = plan.problem
    bits = problem.data_type.bits
    if plan.boxes is None or problem.direction == "store":
        refused = STORE_NOT_IN_GLUON if problem.direction == "store" else COPY_NOT_IN_GLUON
        raise refused.error(direction=problem.direction, copy=problem.copy)
    if rows & (rows - 1) or columns & (columns - 1):
        powers = tuple(1 << (extent - 1).bit_length() for extent in problem.tile)
        raise TILE_NOT_IN_GLUON.error(rows=rows, columns=columns, powers=powers)
    if bits not in (8, 16, 32):
        raise ELEMENT_NOT_IN_GLUON.error(data_type=problem.data_type.name, bits=bits)
