"""Asynchronous copies: cp.async, bulk copies, tensor copies with random maps, and reductions to global memory.

The data that a copy loads to shared memory is written to scratch memory, byte for byte. The data that it stores to
global memory is in scratch memory or in its tensor. Both are compared.
"""

from __future__ import annotations

from tilescope.arithmetic import rounded_up
from tilescope.gpu.verify.programs.program_builder import NoRoomError, ProgramBuilder
from tilescope.gpu.verify.programs.random_program import Tensor, in_braces
from tilescope.gpu.verify.programs.shared_steps import initialised_mbarrier, other_address, own_address, wait
from tilescope.gpu.verify.suites import Case, copy_suite
from tilescope.gpu.verify.suites.map_suite import reach_bytes
from tilescope.tensor_map import REDUCTIONS, TensorMap

ARCH = "sm_90"
_MOST_TENSOR_BYTES = 16384
_MOST_BOX_BYTES = 8192
_SWIZZLE_ALIGN_BYTES = 1024
_ALLOCATED_BYTES = 128  # a block gets shared memory in such pieces, and a box may end in the middle of 16 bytes
_MBARRIER_BYTES = 8
_UNTOUCHED = 0xEEEEEEEE
_TENSOR_REDUCTIONS = [(operation, name) for operation, types in REDUCTIONS.items() for name in types]
_BULK_REDUCTIONS = (
    *(f"add.{name}" for name in ("u32", "s32", "u64", "f32", "noftz.f16", "noftz.bf16")),
    *(f"{name}.{type_name}" for name in ("min", "max") for type_name in ("u32", "s32", "u64", "s64", "f16", "bf16")),
    *(f"{name}.{type_name}" for name in ("and", "or", "xor") for type_name in ("b32", "b64")),
    "inc.u32",
    "dec.u32",
)


def thread_copy(builder: ProgramBuilder) -> None:
    """cp.async of 4, 8 or 16 bytes a thread, some of them filled up with zeros."""
    random = builder.random
    size_bytes = random.choice((4, 8, 16))
    cache = "cg" if size_bytes == 16 and random.random() < 0.5 else "ca"
    taken = f", {random.randint(0, size_bytes)}" if random.random() < 0.4 else ""
    source = builder.scratch(size_bytes * builder.threads)
    base = builder.shared(size_bytes * builder.threads)
    result = builder.new("u32")
    lines = [
        *own_address("%t0", base, size_bytes),
        f"mul.wide.u32 %u0, %thread, {size_bytes};",
        "add.s64 %u0, %u0, %scratch;",
        f"cp.async.{cache}.shared.global [%t0], [%u0+{source.start}], {size_bytes}{taken};",
        "cp.async.commit_group;",
        random.choice(("cp.async.wait_group 0;", "cp.async.wait_all;")),
        "bar.sync 0;",
        *other_address(builder, "%t1", base, size_bytes),
        f"ld.shared.b32 {result.name}, [%t1+{random.randrange(0, size_bytes, 4)}];",
    ]
    builder.add(in_braces(lines, words=2, wides=1), writes=[result])


def bulk_load(builder: ProgramBuilder) -> None:
    """One bulk copy to shared memory; threads read some of its words."""
    size_bytes = 16 * builder.random.randint(1, 64)
    source = builder.scratch(size_bytes)
    base = builder.shared(size_bytes, 16)
    barrier = builder.shared(_MBARRIER_BYTES)
    result = builder.new("u32")
    lines = [
        f"add.u32 %t0, %smem, {barrier};",
        *initialised_mbarrier("%t0", 1),
        f"@%q1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t0], {size_bytes};",
        f"add.u32 %t1, %smem, {base};",
        f"add.s64 %u0, %scratch, {source.start};",
        f"@%q1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%t1], [%u0], {size_bytes}, [%t0];",
        *wait("%t0", 0, f"wait{builder.step_count}"),
        f"rem.u32 %t2, %thread, {size_bytes // 4};",
        "mad.lo.u32 %t2, %t2, 4, %t1;",
        f"ld.shared.b32 {result.name}, [%t2];",
    ]
    builder.add(in_braces(lines, words=3, wides=1, predicates=2), writes=[result])


def bulk_store(builder: ProgramBuilder) -> None:
    """Threads write shared memory, and one bulk copy or reduction takes it to scratch memory."""
    size_bytes = 4 * builder.threads
    target = builder.scratch(size_bytes)
    base = builder.shared(size_bytes, 16)
    reduction = builder.random.choice(("", *_BULK_REDUCTIONS)) if builder.random.random() < 0.7 else ""
    value = builder.pick("f16x2" if reduction.endswith("f16") else "f32" if reduction.endswith("f32") else "u32")
    opcode = "cp.async.bulk.global.shared::cta.bulk_group"
    if reduction:
        opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{reduction}"
    lines = [
        *own_address("%t0", base, 4),
        f"st.shared.b32 [%t0], {value.name};",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "setp.eq.u32 %q0, %thread, 0;",
        f"add.u32 %t1, %smem, {base};",
        f"add.s64 %u0, %scratch, {target.start};",
        f"@%q0 {opcode} [%u0], [%t1], {size_bytes};",
        "@%q0 cp.async.bulk.commit_group;",
        "@%q0 cp.async.bulk.wait_group 0;",
    ]
    builder.add(in_braces(lines, words=2, wides=1, predicates=1), reads=[value], scratch=target)


def tensor_load(builder: ProgramBuilder) -> None:
    """One box of a random map to shared memory, all bytes of which go to scratch memory."""
    case = _draw_case(builder, stores=False)
    tensor_map = TensorMap.from_dict(case["map"])
    image_bytes = rounded_up(case["smem"] + tensor_map.smem_bytes, _ALLOCATED_BYTES)
    base = builder.shared(image_bytes, _SWIZZLE_ALIGN_BYTES)
    barrier = builder.shared(_MBARRIER_BYTES)
    target = builder.scratch(image_bytes)
    number = builder.tensor(Tensor(tensor_map, case["source"], _tensor_bytes(tensor_map), is_stored_to=False))
    step = builder.step_count
    opcode = f"cp.async.bulk.tensor.{tensor_map.rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    lines = [
        f"add.u32 %t0, %smem, {barrier};",
        f"add.u32 %t1, %smem, {base};",
        *_over_words(builder, image_bytes, f"fill{step}", [f"st.shared.b32 [%t4], {_UNTOUCHED};"]),
        "fence.proxy.async.shared::cta;",
        *initialised_mbarrier("%t0", 1),
        f"@%q1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t0], {tensor_map.transaction_bytes};",
        f"mov.b64 %u0, map{number};",
        "cvta.param.u64 %u0, %u0;",
        f"add.u32 %t2, %t1, {case['smem']};",
        f"@%q1 {opcode} [%t2], [%u0, {_coordinates(case)}], [%t0];",
        *wait("%t0", 0, f"wait{step}"),
        *_over_words(builder, image_bytes, f"copy{step}", _word_to_scratch(target)),
    ]
    builder.add(in_braces(lines, words=6, wides=2, predicates=3), scratch=target, tensor=number)


def tensor_store(builder: ProgramBuilder) -> None:
    """One box of shared memory, stored to a random map or added to its contents."""
    reduce, data_type = None, None
    if builder.random.random() < 0.6:
        reduce, data_type = builder.random.choice(_TENSOR_REDUCTIONS)
    case = _draw_case(builder, stores=True, reduce=reduce, data_type=data_type)
    tensor_map = TensorMap.from_dict(case["map"])
    image_bytes = rounded_up(case["smem"] + tensor_map.smem_bytes, _ALLOCATED_BYTES)
    base = builder.shared(image_bytes, _SWIZZLE_ALIGN_BYTES)
    source = builder.scratch(image_bytes)
    number = builder.tensor(Tensor(tensor_map, case["memory"], _tensor_bytes(tensor_map), is_stored_to=True))
    step = builder.step_count
    opcode = f"cp.async.bulk.tensor.{tensor_map.rank}d.global.shared::cta.tile.bulk_group"
    if reduce:
        opcode = f"cp.reduce.async.bulk.tensor.{tensor_map.rank}d.global.shared::cta.{reduce}.tile.bulk_group"
    lines = [
        f"add.u32 %t1, %smem, {base};",
        *_over_words(builder, image_bytes, f"fill{step}", _word_from_scratch(source)),
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
        "setp.eq.u32 %q1, %thread, 0;",
        f"mov.b64 %u0, map{number};",
        "cvta.param.u64 %u0, %u0;",
        f"add.u32 %t2, %t1, {case['smem']};",
        f"@%q1 {opcode} [%u0, {_coordinates(case)}], [%t2];",
        "@%q1 cp.async.bulk.commit_group;",
        "@%q1 cp.async.bulk.wait_group 0;",
    ]
    builder.add(in_braces(lines, words=6, wides=2, predicates=3), tensor=number)


def _draw_case(
    builder: ProgramBuilder, *, stores: bool, reduce: str | None = None, data_type: str | None = None
) -> Case:
    """A small copy of the suites of copies that the card should execute without a fault."""
    case = copy_suite.draw_copy(builder.random, ARCH, stores=stores, reduce=reduce, data_type=data_type)
    if case is None:
        raise NoRoomError
    tensor_map = TensorMap.from_dict(case["map"])
    if _tensor_bytes(tensor_map) > _MOST_TENSOR_BYTES or tensor_map.smem_bytes > _MOST_BOX_BYTES:
        raise NoRoomError
    copy_suite.predict_copy(case)
    return case


def _tensor_bytes(tensor_map: TensorMap) -> int:
    """What a tensor spans, and some more: strides need not end with it."""
    return reach_bytes(tensor_map) + 1024


def _coordinates(case: Case) -> str:
    return f"{{{', '.join(map(str, case['coords']))}}}"


def _over_words(builder: ProgramBuilder, size_bytes: int, label: str, body: list[str]) -> list[str]:
    """A loop in which threads take turns at the words from %t1 on: %t3 is the word's offset, %t4 its address."""
    return [
        "shl.b32 %t3, %thread, 2;",
        f"{label}:",
        f"setp.lt.u32 %q2, %t3, {size_bytes};",
        f"@!%q2 bra {label}_end;",
        "add.u32 %t4, %t1, %t3;",
        *body,
        f"add.u32 %t3, %t3, {4 * builder.threads};",
        f"bra {label};",
        f"{label}_end:",
    ]


def _word_to_scratch(place: range) -> list[str]:
    return [
        "ld.shared.b32 %t5, [%t4];",
        "cvt.u64.u32 %u1, %t3;",
        "add.s64 %u1, %u1, %scratch;",
        f"st.global.b32 [%u1+{place.start}], %t5;",
    ]


def _word_from_scratch(place: range) -> list[str]:
    return [
        "cvt.u64.u32 %u1, %t3;",
        "add.s64 %u1, %u1, %scratch;",
        f"ld.global.b32 %t5, [%u1+{place.start}];",
        "st.shared.b32 [%t4], %t5;",
    ]
