"""Shared memory: threads write, synchronize at a barrier, and read what others wrote; atomics; ldmatrix and stmatrix."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.gpu.verify.programs.program_builder import ProgramBuilder, names
from tilescope.gpu.verify.programs.random_program import Register, in_braces
from tilescope.gpu.verify.programs.scalar_steps import one_nan

_MBARRIER_BYTES = 8
_MEETING_WORDS = 4  # where all threads synchronize
# Atomics of one thread's own word, and those that many threads may do in any order
_OWN_ATOMICS = (
    *(f"add.{name}" for name in ("u32", "s32", "u64", "f32", "f64", "noftz.f16x2", "noftz.bf16x2", "noftz.f16")),
    *(f"{name}.{type_name}" for name in ("min", "max") for type_name in ("u32", "s32", "u64", "s64")),
    *(f"{name}.{type_name}" for name in ("and", "or", "xor", "exch", "cas") for type_name in ("b32", "b64")),
    "inc.u32",
    "dec.u32",
    "cas.b16",
)
_MEETING_ATOMICS = (
    *(f"add.{name}" for name in ("u32", "s32", "u64")),
    *(f"{name}.{type_name}" for name in ("min", "max") for type_name in ("u32", "s32", "u64", "s64")),
    *(f"{name}.{type_name}" for name in ("and", "or", "xor") for type_name in ("b32", "b64")),
)


class Access(NamedTuple):
    """How a thread moves its registers: `.v2.b32` of two."""

    suffix: str
    types: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        """Of all its registers."""
        bits = int(self.types[0][1:])
        return bits // 8 * len(self.types)

    def operand(self, registers: list[Register]) -> str:
        """The registers as the instruction names them."""
        return registers[0].name if len(registers) == 1 else names(registers)


_ACCESSES = (
    Access("b16", ("u16",)),
    Access("b32", ("u32",)),
    Access("b64", ("u64",)),
    Access("v2.b32", ("u32",) * 2),
    Access("v4.b32", ("u32",) * 4),
    Access("v2.b64", ("u64",) * 2),
)


def own_address(register: str, base: int, size_bytes: int) -> list[str]:
    """Lines that compute the address of the thread's part, `base` bytes into the program's shared memory."""
    return [f"mad.lo.u32 {register}, %thread, {size_bytes}, %smem;", f"add.u32 {register}, {register}, {base};"]


def other_address(builder: ProgramBuilder, register: str, base: int, size_bytes: int) -> list[str]:
    """Lines that compute the address of another thread's part: every part has one reader."""
    factor = builder.random.randrange(1, 64, 2)
    shift = builder.random.randrange(builder.threads)
    return [
        f"mad.lo.u32 {register}, %thread, {factor}, {shift};",
        f"and.b32 {register}, {register}, {builder.threads - 1};",
        f"mad.lo.u32 {register}, {register}, {size_bytes}, %smem;",
        f"add.u32 {register}, {register}, {base};",
    ]


def synchronize_block(builder: ProgramBuilder) -> list[str]:
    """A barrier of the whole block."""
    return [
        builder.random.choice(
            (
                "bar.sync 0;",
                f"bar.sync 2, {builder.threads};",
                "barrier.sync 3;",
                "barrier.sync.aligned 1;",
                "barrier.cta.sync.aligned 4;",
            )
        )
    ]


def wait(address: str, parity: int, label: str) -> list[str]:
    """Wait until the phase of an mbarrier is over; %q0 is what a try says."""
    return [
        f"{label}:",
        f"mbarrier.try_wait.parity.shared::cta.b64 %q0, [{address}], {parity};",
        f"@!%q0 bra {label};",
    ]


def initialised_mbarrier(address: str, arrivals: int) -> list[str]:
    """Thread 0 makes an mbarrier; all threads, and the copy engine, see it. %q1 is whether the thread is thread 0."""
    return [
        "setp.eq.u32 %q1, %thread, 0;",
        f"@%q1 mbarrier.init.shared::cta.b64 [{address}], {arrivals};",
        "@%q1 fence.mbarrier_init.release.cluster;",
        "bar.sync 0;",
    ]


def exchange(builder: ProgramBuilder) -> None:
    """Each thread writes, all meet, each reads what another wrote."""
    access = builder.random.choice(_ACCESSES)
    base = builder.shared(access.size_bytes * builder.threads)
    values = [builder.pick(name) for name in access.types]
    results = [builder.new(name) for name in access.types]
    lines = [
        *own_address("%t0", base, access.size_bytes),
        f"st.shared.{access.suffix} [%t0], {access.operand(values)};",
        *synchronize_block(builder),
        *other_address(builder, "%t1", base, access.size_bytes),
        f"ld.shared.{access.suffix} {access.operand(results)}, [%t1];",
    ]
    builder.add(in_braces(lines, words=2), reads=values, writes=results)


def exchange_by_mbarrier(builder: ProgramBuilder) -> None:
    """The same, where threads meet by arriving on an mbarrier; twice, once for either parity."""
    barrier = builder.shared(_MBARRIER_BYTES)
    base = builder.shared(4 * builder.threads)
    number = builder.step_count
    first, second = builder.picks("u32", 2)
    results = [builder.new("u32"), builder.new("u32")]
    arrive = "mbarrier.arrive.shared::cta.b64 _, [%t2];"
    lines = [
        f"add.u32 %t2, %smem, {barrier};",
        *initialised_mbarrier("%t2", builder.threads),
        *own_address("%t0", base, 4),
        f"st.shared.b32 [%t0], {first.name};",
        arrive,
        *wait("%t2", 0, f"wait{number}a"),
        *other_address(builder, "%t1", base, 4),
        f"ld.shared.b32 {results[0].name}, [%t1];",
        arrive,
        *wait("%t2", 1, f"wait{number}b"),
        f"st.shared.b32 [%t0], {second.name};",
        "bar.sync 0;",
        f"ld.shared.b32 {results[1].name}, [%t1];",
    ]
    builder.add(in_braces(lines, words=3, predicates=2), reads=(first, second), writes=results)


def barrier_reduction(builder: ProgramBuilder) -> None:
    """bar.red: the threads of the block count or combine predicates."""
    predicate = builder.pick("pred")
    form = builder.random.choice(("popc.u32", "and.pred", "or.pred"))
    result = builder.new("u32" if form == "popc.u32" else "pred")
    sign = builder.random.choice(("", "!"))
    lines = [f"bar.red.{form} {result.name}, 5, {sign}{predicate.name};"]
    if result.bits > 1:
        lines.append(f"xor.b32 {result.name}, {result.name}, %lane;")
    builder.add(lines, reads=[predicate], writes=[result])


def _type_of(atomic: str) -> str:
    return atomic.rpartition(".")[2]


def _word_bytes(type_name: str) -> int:
    if type_name.endswith("x2"):
        return 4
    return int("".join(filter(str.isdigit, type_name))) // 8


def _operands(builder: ProgramBuilder, atomic: str) -> list[Register]:
    return builder.picks(_type_of(atomic), 2 if atomic.startswith("cas") else 1)


def _join_names(registers: list[Register]) -> str:
    return ", ".join(register.name for register in registers)


def own_shared_atomic(builder: ProgramBuilder) -> None:
    """An atomic on a word of shared memory that no other thread has: what it found, and what it left."""
    atomic = builder.random.choice(_OWN_ATOMICS)
    type_name = _type_of(atomic)
    size_bytes = _word_bytes(type_name)
    base = builder.shared(size_bytes * builder.threads)
    before = builder.pick(type_name)
    operands = _operands(builder, atomic)
    results = [builder.new(type_name), builder.new(type_name)]
    lines = [
        *own_address("%t0", base, size_bytes),
        f"st.shared.b{8 * size_bytes} [%t0], {before.name};",
        f"atom.shared.{atomic} {results[0].name}, [%t0], {_join_names(operands)};",
        f"ld.shared.b{8 * size_bytes} {results[1].name}, [%t0];",
        *one_nan(results[1]),
    ]
    builder.add(in_braces(lines, words=1, predicates=1), reads=(before, *operands), writes=results)


def own_global_atomic(builder: ProgramBuilder) -> None:
    """An atomic on a word of scratch memory that no other thread has."""
    atomic = builder.random.choice(_OWN_ATOMICS)
    type_name = _type_of(atomic)
    size_bytes = _word_bytes(type_name)
    place = builder.scratch(size_bytes * builder.threads)
    operands = _operands(builder, atomic)
    result = builder.new(type_name)
    lines = [
        f"mul.wide.u32 %u0, %thread, {size_bytes};",
        "add.s64 %u0, %u0, %scratch;",
        f"atom.global.{atomic} {result.name}, [%u0+{place.start}], {_join_names(operands)};",
    ]
    builder.add(in_braces(lines, wides=1), reads=operands, writes=[result], scratch=place)


def meeting_global_atomic(builder: ProgramBuilder) -> None:
    """Threads meet at a few words of scratch memory, with an operation that any order gives the same."""
    atomic = builder.random.choice(_MEETING_ATOMICS)
    size_bytes = _word_bytes(_type_of(atomic))
    place = builder.scratch(size_bytes * _MEETING_WORDS)
    operands = _operands(builder, atomic)
    lines = [
        f"and.b32 %t0, %thread, {_MEETING_WORDS - 1};",
        f"mul.wide.u32 %u0, %t0, {size_bytes};",
        "add.s64 %u0, %u0, %scratch;",
        f"red.global.{atomic} [%u0+{place.start}], {_join_names(operands)};",
    ]
    builder.add(in_braces(lines, words=1, wides=1), reads=operands, scratch=place)


def meeting_shared_atomic(builder: ProgramBuilder) -> None:
    """The same in shared memory, and all threads read what came of it."""
    atomic = builder.random.choice(_MEETING_ATOMICS)
    type_name = _type_of(atomic)
    size_bytes = _word_bytes(type_name)
    base = builder.shared(size_bytes * _MEETING_WORDS)
    before = builder.pick(type_name)
    operands = _operands(builder, atomic)
    result = builder.new(type_name)
    width = f"b{8 * size_bytes}"
    lines = [
        *own_address("%t0", base, size_bytes),
        f"setp.lt.u32 %q0, %thread, {_MEETING_WORDS};",
        f"@%q0 st.shared.{width} [%t0], {before.name};",
        "bar.sync 0;",
        f"and.b32 %t1, %thread, {_MEETING_WORDS - 1};",
        f"mad.lo.u32 %t1, %t1, {size_bytes}, %smem;",
        f"red.shared.{atomic} [%t1+{base}], {_join_names(operands)};",
        "bar.sync 0;",
        f"ld.shared.{width} {result.name}, [%t1+{base}];",
    ]
    builder.add(in_braces(lines, words=2, predicates=1), reads=(before, *operands), writes=[result])


def load_matrices(builder: ProgramBuilder) -> None:
    """Ldmatrix of rows that threads wrote."""
    count = builder.random.choice((1, 2, 4))
    transposed = builder.random.choice(("", ".trans"))
    base = builder.shared(16 * builder.threads)
    values = [builder.pick(builder.random.choice(("u32", "f16x2", "bf16x2"))) for _ in range(4)]
    results = [builder.new("u32") for _ in range(count)]
    lines = [
        *own_address("%t0", base, 16),
        f"st.shared.v4.b32 [%t0], {names(values)};",
        *synchronize_block(builder),
        *other_address(builder, "%t1", base, 16),
        f"ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {names(results)}, [%t1];",
    ]
    builder.add(in_braces(lines, words=2), reads=values, writes=results)


def store_matrices(builder: ProgramBuilder) -> None:
    """Stmatrix over words that threads wrote, and what threads read afterwards."""
    count = builder.random.choice((1, 2, 4))
    transposed = builder.random.choice(("", ".trans"))
    base = builder.shared(16 * builder.threads)
    before = builder.picks("u32", 4)
    values = builder.picks("u32", count)
    results = [builder.new("u32") for _ in range(4)]
    lines = [
        *own_address("%t0", base, 16),
        f"st.shared.v4.b32 [%t0], {names(before)};",
        *synchronize_block(builder),
        *other_address(builder, "%t1", base, 16),
        f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%t1], {names(values)};",
        *synchronize_block(builder),
        f"ld.shared.v4.b32 {names(results)}, [%t0];",
    ]
    builder.add(in_braces(lines, words=2), reads=(*before, *values), writes=results)
