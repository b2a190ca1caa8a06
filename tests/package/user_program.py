"""A user's program that uses every public name: it runs, and type checkers in their strictest mode accept it.

`test_typing.py` runs it and checks it. Where a result has a type, the program says it: a checker that sees less complains.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

import tilescope as ts
from tilescope.types import GemmPlan, KernelRun, PlanReport, Simulation

PTX = """
.version 8.0 .target sm_90 .address_size 64
.entry fill(.param .u64 out) {
    .reg .b32 %r;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r, %tid.x;
    mul.wide.u32 %rd2, %r, 4;
    add.s64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r;
    ret;
}"""


def tables() -> list[str]:
    """Every table gives rows of its own type."""
    arch: ts.Arch = ts.ARCH["sm_90"]
    card: ts.Card = ts.CARD["H200"]
    data_type: ts.DataType = ts.DATA_TYPE["bfloat16"]
    op: ts.SmemOp = ts.SMEM_OP["ld.b128"]
    swizzle: ts.Swizzle = ts.SWIZZLE["128B"]
    rule: ts.Rule = ts.RULES["swizzle-span"]
    notations: list[str] = list(ts.NOTATION)
    names: list[str] = [row.name for row in (arch, card, data_type, op, swizzle, rule)]
    return names + notations


def errors() -> list[str]:
    """What is refused is caught by its type, and told by its violations."""
    caught: list[str] = []
    try:
        ts.TensorMap("bf16", (4096, 1000), (8200,), (128, 64), swizzle="128B")
    except ts.TensorMapError as error:
        first: ts.Violation = error.violations[0]
        caught.append(first.rule)
    for failure in (ts.PlanError, ts.FaultError, ts.IllegalInstructionError, ts.LaunchFailureError):
        kind: type[ts.RuleError] = failure
        caught.append(kind.__name__)
    misaligned: type[ts.FaultError] = ts.MisalignedAddressError
    missing: type[ts.TilescopeError] = ts.DeviceError
    return [*caught, misaligned.__name__, missing.__name__]


def maps() -> int:
    """Tensor maps of every kind, their bytes and what bytes say."""
    tiled = ts.TensorMap("bf16", (4096, 1000), (8208,), (64, 64), swizzle="128B")
    blob: bytes = tiled.encode()
    again: ts.TensorMap | ts.Im2colMap = ts.decode_tensor_map(blob)
    inspected = ts.inspect_tensor_map(blob)
    violations: tuple[ts.Violation, ...] = inspected.violations
    columns = ts.Im2colMap(
        "f16",
        (64, 32, 32, 1),
        (128, 4096, 131072),
        lower_corner=(-1, -1),
        upper_corner=(-1, -1),
        channels_per_pixel=64,
        pixels_per_column=32,
    )
    wide = ts.Im2colWideMap(
        "f16",
        (64, 32, 32, 1),
        (128, 4096, 131072),
        lower_width=-1,
        upper_width=-1,
        channels_per_pixel=64,
        pixels_per_column=32,
        arch="sm_100",
    )
    sizes: list[int] = [again.smem_bytes, columns.smem_bytes, wide.smem_bytes, len(violations)]
    return sum(sizes)


def copies() -> int:
    """Copies by TMA, and what they do."""
    matrix: npt.NDArray[np.uint16] = np.arange(128 * 192, dtype=np.uint16).reshape(128, 192)
    tiled = ts.TensorMap.from_array(matrix, (64, 64), swizzle="128B", address=0)
    smem: npt.NDArray[np.uint8] = ts.load(tiled, matrix, (0, 0))
    tiles: npt.NDArray[np.uint8] = ts.load_tiles(tiled, matrix)
    ts.store(tiled, smem, matrix, (0, 0))
    steps = ts.trace(tiled, (0, 0))
    rows = ts.TensorMap.from_array(matrix[:, :8].copy(), (1, 8), address=0, arch="sm_100")
    few: npt.NDArray[np.uint16] = matrix[:, :8].copy()
    gathered: npt.NDArray[np.uint8] = ts.gather4(rows, few, 0, (5, 3, 60, 3))
    ts.scatter4(rows, gathered, few, 0, (7, 0, 2, 9))
    line = ts.TensorMap("u8", (64,), (), (16,))
    blocks = [np.zeros(16, np.uint8) for _ in range(4)]
    ts.load_multicast(line, np.full(64, 7, np.uint8), (0,), blocks, cta_mask=0b1010)
    moved: npt.NDArray[np.uint8] = ts.bulk_load(np.arange(64, dtype=np.uint8), 16, 32)
    ts.bulk_store(moved, np.zeros(64, np.uint8), 16, 32)
    found = ts.identify(ts.Swizzle.named("128B").swizzle(matrix[:64, :64].copy()), matrix[:64, :64].copy())
    explained: bool = found.explained
    return (steps.transaction_bytes or 0) + len(tiles) + int(explained)


def layouts() -> list[str]:
    """Layouts, their notations, and what a warp's access to one costs."""
    layout: ts.Layout = ts.parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)")
    texts: list[str] = [
        ts.spell_layout(layout, "triton"),
        ts.convert_layout("(8,64):(64,1)", "cute", element_bits=16).result,
    ]
    patterns: list[ts.Access] = [ts.Access.rows((64, 64), 16, "st.b128"), ts.Access.ldmatrix((64, 64), 16)]
    cost = ts.tile_report(patterns, ts.Layout((64, 64), 16)).costs[0]
    lanes = np.arange(32) * 4
    counted = ts.bank_report("ld.b32", lanes).wavefronts + int(ts.wavefronts("ld.b32", lanes))
    best = ts.find_layouts(patterns, tile=(64, 64), element_bits=16).best
    return [*texts, best.label, cost.name, str(counted)]


def tensor_cores() -> list[str]:
    """Operands, descriptors, fragments, tensor memory and scale factors."""
    atom = ts.canonical_layout("K", "128B", "bf16")
    descriptor = ts.WgmmaDescriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    word: int = descriptor.encode()
    other = ts.Tcgen05Descriptor(0x400, leading_bytes=16, stride_bytes=1024, swizzle="128B")
    readings = ts.descriptor_readings(word)
    fields = ts.inspect_descriptor(word).fields
    instruction: int = ts.InstructionDescriptor("f16", 128, 256, a_type="bf16").encode()
    loop = ts.wgmma_descriptors((64, 64), "bf16")
    second = ts.tcgen05_descriptors((128, 64), "bf16")
    held: tuple[tuple[int, int], ...] = ts.fragment("mma.m16n8k8", operand="A", data_type="bf16").held_by(22)
    smem = np.arange(64, dtype=np.uint16)
    registers: npt.NDArray[np.uint32] = ts.ldmatrix(smem, np.arange(32) % 8 * 16, count=1)
    ts.stmatrix(registers, smem, np.arange(32) % 8 * 16)
    powers = ts.approx("ex2.approx.ftz.f32", np.ones(4, np.float32))
    product = ts.emulate_mma(np.eye(64), np.ones((64, 16)), data_type="bf16")
    compressed = ts.compress(np.eye(16, 32), "bf16")
    whole = ts.decompress(compressed.values, compressed.metadata, "bf16")
    agrees = bool(ts.compatible(ts.plan((128, 64), "bf16").best))
    memory: ts.TensorMemory = ts.TensorMemory().alloc(64)
    place = ts.tmem_layout((128, 64))
    scales = ts.scale_layout(128, 256, "nvfp4")
    factors = np.zeros((128, 16), np.uint8)
    equal = bool((ts.unpack_scales(ts.pack_scales(factors), (128, 16)) == factors).all())
    told: list[object] = [
        atom,
        other,
        readings,
        fields,
        loop,
        second,
        held,
        powers,
        product,
        whole,
        memory,
        place,
        scales,
    ]
    return [type(one).__name__ for one in told] + [str(instruction), str(agrees), str(equal)]


def plans() -> list[str]:
    """Plans, what they cost, and the code of one."""
    report: PlanReport = ts.plan((128, 64), "bf16")
    best = report.best
    code: str = ts.emit(best, "cuda")
    piece: str = ts.snippet(best, "descriptors")
    gemm: GemmPlan = ts.plan_gemm(512, 512, 512, "bf16")
    stages: int = gemm.stages
    whole_bytes: int = ts.plan_kernel("gemm").smem_bytes
    pipeline = ts.plan_pipeline(best, stages=2)
    proof: Simulation = ts.simulate(pipeline)
    verdict: str = proof.verdict
    table = ts.sweep([ts.Problem((64, 64), "bf16")])
    asked: list[str] = [row.asked for row in table.rows]
    return [code[:10], piece[:10], str(stages), str(whole_bytes), verdict, *asked]


def kernels() -> str:
    """A kernel, its memory and its parameters; and a barrier."""
    memory = ts.Memory()
    out = np.zeros(4, np.int32)
    kernel = ts.Kernel(PTX)
    run: KernelRun = kernel.run(grid=1, block=4, args=[out], memory=memory)
    outcome: str = run.outcome
    packed = ts.pack(m=256, n=192)
    barrier: ts.Mbarrier = ts.Mbarrier(1).arrive_expect_tx(64).complete_tx(64)
    return f"{outcome} {out.tolist()} {packed.layout} {barrier.phase}"


def values() -> bool:
    """Results are plain data, and come back from it."""
    value: ts.Value = ts.Layout((8, 64), 16)
    return ts.Value.from_dict(value.to_dict()) == value


if __name__ == "__main__":
    for told in (tables(), errors(), maps(), copies(), layouts(), tensor_cores(), plans(), kernels(), values()):
        sys.stdout.write(f"{told}\n")
