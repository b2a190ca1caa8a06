"""Arithmetic of single threads: unguarded, under a guard, in a branch, in a loop, in chains with a carry."""

from __future__ import annotations

from typing import NamedTuple

from tilescope.gpu.verify.programs.instruction_forms import Form, forms_by_name
from tilescope.gpu.verify.programs.program_builder import ProgramBuilder, names
from tilescope.gpu.verify.programs.random_program import Register, in_braces
from tilescope.ptx.syntax import BITS_OF_TYPE

# Operands from this one on are amounts of bits
_FIRST_AMOUNT = {"shl": 1, "shr": 1, "bfe": 1, "bfi": 2, "bmsk": 0, "szext": 1, "shf": 2}
_OFTEN = ("cvt", "fma", "add", "mul", "sub", "setp", "mad")  # names with many forms, or that float kernels are made of
_FOLDED_IF_EQUAL = ("min", "max")  # of a register with itself: ptxas makes it a copy, which keeps a NaN as it is
# ptxas converts registers that a guarded set must not change
_NEVER_GUARDED = ("set",)
_AMOUNTS = 66  # of bits: a shift by more than the register has is one of them
_LOOP_TURNS = (2, 3, 5)
_CARRY_CHAINS = (
    ("add.cc.{}", "addc.cc.{}", "addc.{}"),
    ("sub.cc.{}", "subc.cc.{}", "subc.{}"),
    ("mad.lo.cc.{}", "madc.hi.cc.{}", "addc.{}"),
    ("mad.hi.cc.{}", "madc.lo.{}"),
)


class Line(NamedTuple):
    """An instruction without its results: what it reads."""

    opcode: str
    sources: tuple[str, ...]
    reads: tuple[Register, ...]
    result_types: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of the instruction, without its modifiers."""
        return self.opcode.partition(".")[0]

    def text(self, *results: Register) -> str:
        """With the registers that take the results."""
        target = "|".join(register.name for register in results)
        return f"{self.opcode} {', '.join((target, *self.sources))};"


def one_nan(result: Register) -> list[str]:
    """Lines that make all NaNs of f64 the same, for a step in braces with %q0.

    An instruction with two NaNs hands one of them on. Which one depends on the order of its operands, and ptxas exchanges
    them where the sum stays the same.
    """
    if result.type != "f64":
        return []
    return [
        f"setp.nan.f64 %q0, {result.name}, {result.name};",
        f"@%q0 mov.b64 {result.name}, 0x7ff8000000000000;",
    ]


def draw_line(builder: ProgramBuilder) -> Line:
    """A scalar instruction with its operands."""
    forms = forms_by_name()
    name = builder.random.choice(_OFTEN if builder.random.random() < 0.4 else tuple(forms))
    line = _with_operands(builder, builder.random.choice(forms[name]))
    while name in _FOLDED_IF_EQUAL and len(set(line.sources)) < len(line.sources):
        line = _with_operands(builder, builder.random.choice(forms[name]))
    return line


def _with_operands(builder: ProgramBuilder, form: Form) -> Line:
    random = builder.random
    name = form.opcode.split(".")[0]
    operation = form.operation
    types = operation.source_types
    immediate_at = None
    if len(types) > 1 and name != "cvt" and "x2" not in form.opcode and random.random() < 0.15:
        immediate_at = random.randrange(1, len(types))
    sources: list[str] = []
    reads: list[Register] = []
    for position, type_name in enumerate(types):
        is_amount = position >= _FIRST_AMOUNT.get(name, len(types))
        constant = _constant(builder, name, position)
        if constant is None and position == immediate_at:
            constant = str(random.randrange(_AMOUNTS)) if is_amount else _immediate(builder, type_name)
        if constant is None:
            register = builder.pick_amount() if is_amount and type_name == "u32" else builder.pick(type_name)
            reads.append(register)
            constant = register.name
        sources.append(constant)
    result_types = (operation.result_type, "pred") if operation.result_count > 1 else (operation.result_type,)
    return Line(form.opcode, tuple(sources), tuple(reads), result_types)


def _constant(builder: ProgramBuilder, name: str, position: int) -> str | None:
    """Operands that must be immediate, or that accept only some numbers."""
    if name == "lop3" and position == 3:
        return str(builder.random.randrange(256))
    if name == "fns" and position == 1:
        return str(builder.random.randrange(32))
    if name == "fns" and position == 2:
        return str(builder.random.randint(-8, 8))
    return None


def _immediate(builder: ProgramBuilder, type_name: str) -> str | None:
    """A number in the text, for the types whose immediates have all their bits."""
    random = builder.random
    if type_name == "f32":
        return f"0f{random.choice((0x40000000, 0xBF000000, 0x40490FDB, 0x7F7FFFFF, random.getrandbits(32))):08X}"
    if type_name == "f64":
        return f"0d{random.choice((0x3FF0000000000000, 0xC000000000000000, random.getrandbits(64))):016X}"
    if type_name in ("u32", "b32"):
        return str(random.choice((0, 1, 7, 31, 0xFF, random.getrandbits(32))))
    if type_name == "s32":
        return str(random.choice((0, 1, -1, 7, -128, random.getrandbits(32) - (1 << 31))))
    return None


def alone(builder: ProgramBuilder) -> None:
    """One instruction."""
    line = draw_line(builder)
    results = [builder.new(name) for name in line.result_types]
    lines = [line.text(*results), *one_nan(results[0])]
    if len(lines) > 1:
        lines = in_braces(lines, predicates=1)
    builder.add(lines, reads=line.reads, writes=results)


def _single(builder: ProgramBuilder) -> Line:
    """An instruction with one result that is no predicate, and that ptxas compiles soundly under a guard."""
    while True:
        line = draw_line(builder)
        if len(line.result_types) == 1 and line.result_types[0] != "pred" and line.name not in _NEVER_GUARDED:
            return line


def add_guarded_step(builder: ProgramBuilder) -> None:
    """An instruction that some threads execute; the others keep the old value."""
    line = _single(builder)
    result = builder.new(line.result_types[0])
    before = builder.pick(line.result_types[0])
    guard = builder.pick("pred")
    sign = builder.random.choice(("", "!"))
    lines = [
        f"mov.b{result.bits} {result.name}, {before.name};",
        f"@{sign}{guard.name} {line.text(result)}",
        *one_nan(result),
    ]
    builder.add(in_braces(lines, predicates=1), reads=(before, guard, *line.reads), writes=[result])


def _fit_one_register(one: str, other: str) -> bool:
    """Whether results of two types may be in one register; only f64 has NaNs that are made the same."""
    return BITS_OF_TYPE[one] == BITS_OF_TYPE[other] and (one == "f64") == (other == "f64")


def branch(builder: ProgramBuilder) -> None:
    """Threads diverge for a few instructions, and reconverge."""
    line = _single(builder)
    other = _single(builder)
    while not _fit_one_register(line.result_types[0], other.result_types[0]):
        other = _single(builder)
    result = builder.new(line.result_types[0])
    guard = builder.pick("pred")
    number = builder.step_count
    lines = [
        f"@{guard.name} bra else{number};",
        line.text(result),
        f"bra end{number};",
        f"else{number}:",
        other.text(result),
        f"end{number}:",
        *one_nan(result),
    ]
    builder.add(in_braces(lines, predicates=1), reads=(guard, *line.reads, *other.reads), writes=[result])


def loop(builder: ProgramBuilder) -> None:
    """An instruction some times over, its result as its first source."""
    line = _single(builder)
    while not line.reads or BITS_OF_TYPE[line.result_types[0]] != line.reads[0].bits:
        line = _single(builder)
    first, *rest = line.sources
    if first != line.reads[0].name:
        return
    result = builder.new(line.result_types[0])
    repeated = line._replace(sources=(result.name, *rest))
    number = builder.step_count
    lines = [
        f"mov.b{result.bits} {result.name}, {first};",
        "mov.u32 %t0, 0;",
        f"loop{number}:",
        repeated.text(result),
        "add.u32 %t0, %t0, 1;",
        f"setp.lt.u32 %q0, %t0, {builder.random.choice(_LOOP_TURNS)};",
        f"@%q0 bra loop{number};",
        *one_nan(result),
    ]
    builder.add(in_braces(lines, words=1, predicates=1), reads=line.reads, writes=[result])


def carries(builder: ProgramBuilder) -> None:
    """A chain of additions or subtractions through the carry flag."""
    type_name = builder.random.choice(("u32", "s32", "u64", "s64"))
    lines = []
    reads: list[Register] = []
    writes = []
    for pattern in builder.random.choice(_CARRY_CHAINS):
        opcode = pattern.format(type_name)
        sources = builder.picks(type_name, 3 if opcode.startswith("mad") else 2)
        result = builder.new(type_name)
        lines.append(f"{opcode} {', '.join(register.name for register in (result, *sources))};")
        reads += sources
        writes.append(result)
    builder.add(lines, reads=reads, writes=writes)


def add_repacking(builder: ProgramBuilder) -> None:
    """Halves of registers, put together or taken apart."""
    half, whole = builder.random.choice(((16, 32), (32, 64)))
    if builder.random.random() < 0.5:
        halves = builder.picks(f"u{half}", 2)
        result = builder.new(f"u{whole}")
        builder.add([f"mov.b{whole} {result.name}, {names(halves)};"], reads=halves, writes=[result])
    else:
        source = builder.pick(f"u{whole}")
        results = [builder.new(f"u{half}"), builder.new(f"u{half}")]
        builder.add([f"mov.b{whole} {names(results)}, {source.name};"], reads=[source], writes=results)
