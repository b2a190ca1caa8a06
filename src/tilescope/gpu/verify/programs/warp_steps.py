"""What the lanes of a warp tell each other; all lanes take part."""

from __future__ import annotations

from tilescope.gpu.verify.programs.program_builder import ProgramBuilder
from tilescope.gpu.verify.programs.random_program import Register, in_braces

_ALL = "0xffffffff"
_CLAMPS = (
    0x1F,
    0x0,
    0x181F,
    0x1C1F,
    0x1800,
    0x1C03,
    0x101F,
    0x1E1F,
)  # of shfl: the last lane, and segments from bit 8 on


def _by_lane(result: Register) -> str:
    """A line that makes what all lanes have alike differ from lane to lane.

    ptxas 13.0 gives every lane the result of one lane where it computes with numbers that it knows to be equal in all of
    them (a bfe of a ballot), and with the predicate of elect.sync (a vote of its opposite).
    """
    return f"xor.b32 {result.name}, {result.name}, %lane;"


def shuffle(builder: ProgramBuilder) -> None:
    """shfl.sync, with a lane or distance that is the same for all or not."""
    random = builder.random
    value = builder.pick(random.choice(("u32", "f32", "f16x2")))
    reads = [value]
    distance = str(random.randrange(32))
    if random.random() < 0.5:
        register = builder.pick_amount()
        reads.append(register)
        distance = register.name
    result = builder.new(value.type)
    in_range = builder.new("pred")
    mode = random.choice(("up", "down", "bfly", "idx"))
    clamp = random.choice(_CLAMPS)
    text = f"shfl.sync.{mode}.b32 {result.name}|{in_range.name}, {value.name}, {distance}, {clamp:#x}, {_ALL};"
    builder.add([text], reads=reads, writes=[result, in_range])


def vote(builder: ProgramBuilder) -> None:
    """vote.sync: what all lanes, any lane or every lane says."""
    predicate = builder.pick("pred")
    mode = builder.random.choice(("all", "any", "uni", "ballot"))
    sign = builder.random.choice(("", "!"))
    type_name = "b32" if mode == "ballot" else "pred"
    result = builder.new(type_name)
    lines = [f"vote.sync.{mode}.{type_name} {result.name}, {sign}{predicate.name}, {_ALL};"]
    if mode == "ballot":
        lines.append(_by_lane(result))
    builder.add(lines, reads=[predicate], writes=[result])


def match(builder: ProgramBuilder) -> None:
    """match.sync: who has the same; masked to a few bits, so that some have."""
    bits = builder.random.choice((32, 64))
    value = builder.pick(f"u{bits}")
    masked = builder.new(f"u{bits}")
    result = builder.new("u32")
    writes = [masked, result]
    lines = [f"and.b{bits} {masked.name}, {value.name}, {builder.random.choice((1, 3, 0x80))};"]
    if builder.random.random() < 0.5:
        lines.append(f"match.any.sync.b{bits} {result.name}, {masked.name}, {_ALL};")
    else:
        are_equal = builder.new("pred")
        lines.append(f"match.all.sync.b{bits} {result.name}|{are_equal.name}, {masked.name}, {_ALL};")
        writes.append(are_equal)
    builder.add(lines, reads=[value], writes=writes)


def reduction(builder: ProgramBuilder) -> None:
    """redux.sync: one number of 32."""
    value = builder.pick("u32")
    result = builder.new("u32")
    form = builder.random.choice(
        ("add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32")
    )
    lines = [f"redux.sync.{form} {result.name}, {value.name}, {_ALL};", _by_lane(result)]
    builder.add(lines, reads=[value], writes=[result])


def election(builder: ProgramBuilder) -> None:
    """elect.sync: which lane was chosen, and whether it is this one."""
    leader = builder.new("u32")
    is_leader = builder.new("u32")
    lines = [
        f"elect.sync {leader.name}|%q0, {_ALL};",
        _by_lane(leader),
        f"selp.b32 {is_leader.name}, %thread, %lane, %q0;",
    ]
    builder.add(in_braces(lines, predicates=1), writes=[leader, is_leader])


def parted_shuffle(builder: ProgramBuilder) -> None:
    """The halves of a warp go different ways, and shuffle or vote among themselves."""
    value = builder.pick("u32")
    predicate = builder.pick("pred")
    result = builder.new("u32")
    number = builder.step_count
    distance = builder.random.randrange(1, 16)
    builder.add(
        [
            "{",
            "  .reg .pred %low;",
            "  setp.lt.u32 %low, %lane, 16;",
            f"  @%low bra low{number};",
            f"  shfl.sync.bfly.b32 {result.name}, {value.name}, {distance}, 0x1f, 0xffff0000;",
            f"  bra met{number};",
            f"low{number}:",
            f"  vote.sync.ballot.b32 {result.name}, {predicate.name}, 0xffff;",
            f"met{number}:",
            "  bar.warp.sync 0xffffffff;",
            "}",
        ],
        reads=[value, predicate],
        writes=[result],
    )
