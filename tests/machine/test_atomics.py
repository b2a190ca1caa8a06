"""atom and red, against one thread after another in plain Python."""

import ml_dtypes
import numpy as np
import pytest
from ptx_texts import kernel

from tilescope.errors import RuleError

MASK = {32: (1 << 32) - 1, 64: (1 << 64) - 1}

ADDRESSES = """
    mov.u32 %r10, %tid.x;
    ld.param.u64 %d1, [memory];
    ld.param.u64 %d2, [index];
    mul.wide.u32 %d3, %r10, 4;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r11, [%d2];
    mul.wide.u32 %d4, %r11, SIZE;
    add.s64 %d4, %d1, %d4;
    ld.param.u64 %d5, [operand];
    mul.wide.u32 %d6, %r10, SIZE;
    add.s64 %d5, %d5, %d6;
    ld.param.u64 %d7, [out];
    add.s64 %d7, %d7, %d6;
"""
PARAMETERS = ".param .u64 memory, .param .u64 index, .param .u64 operand, .param .u64 out"


def changed(instruction, memory, index, operand, threads=None):
    """(memory, what every thread got) after an atomic of %r1, %d10 or %h1 at [%d4], with results in %r2, %d11, %h2."""
    size = operand.dtype.itemsize
    register, result = {2: ("%h1", "%h2"), 4: ("%r1", "%r2"), 8: ("%d10", "%d11")}[size]
    body = f"""
        {ADDRESSES.replace("SIZE", str(size))}
        ld.global.b{size * 8} {register}, [%d5];
        {instruction}
        st.global.b{size * 8} [%d7], {result};
    """
    memory, out = memory.copy(), np.zeros_like(operand)
    run = kernel(body, PARAMETERS).run(1, threads or len(index), [memory, index, operand, out])
    assert run.outcome == "finished", run.findings
    return memory, out, run


def signed(value, bits):
    return value - (1 << bits) if value >> (bits - 1) else value


def integers(name, type_name, old, operand):
    bits = int(type_name[1:])
    if type_name[0] == "s":
        old, operand = signed(old, bits), signed(operand, bits)
    result = {
        "add": lambda: old + operand,
        "min": lambda: min(old, operand),
        "max": lambda: max(old, operand),
        "inc": lambda: 0 if old >= operand else old + 1,
        "dec": lambda: operand if old == 0 or old > operand else old - 1,
        "and": lambda: old & operand,
        "or": lambda: old | operand,
        "xor": lambda: old ^ operand,
        "exch": lambda: operand,
    }[name]()
    return result & MASK[bits]


INTEGER_FORMS = [
    *[f"add.{name}" for name in ("u32", "s32", "u64", "s64")],
    *[f"{name}.{kind}" for name in ("min", "max") for kind in ("u32", "s32", "u64", "s64")],
    *[f"{name}.{kind}" for name in ("and", "or", "xor", "exch") for kind in ("b32", "b64")],
    "inc.u32",
    "dec.u32",
]
PLACES = {"apart": 128, "few": 3, "pairs": 64, "one": 1}  # how many words 96 threads meet at


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("form", INTEGER_FORMS)
def test_threads_that_meet_come_in_the_order_of_their_numbers(form, places):
    name, type_name = form.split(".")
    bits = int(type_name[1:])
    random = np.random.default_rng(1)
    limit = 20 if name in ("inc", "dec") else MASK[bits]
    memory = random.integers(0, limit, 128, dtype=np.uint64, endpoint=True).astype(f"u{bits // 8}")
    operand = random.integers(0, limit, 96, dtype=np.uint64, endpoint=True).astype(f"u{bits // 8}")
    if places == "apart":
        index = random.permutation(128)[:96].astype(np.uint32)
    else:
        index = random.integers(0, PLACES[places], 96).astype(np.uint32)
    register, result = ("%r1", "%r2") if bits == 32 else ("%d10", "%d11")
    after, found, run = changed(f"atom.global.{form} {result}, [%d4], {register};", memory, index, operand)
    expected = [int(word) for word in memory]
    for thread in range(96):
        place = int(index[thread])
        assert int(found[thread]) == expected[place], thread
        expected[place] = integers(name, type_name, expected[place], int(operand[thread]))
    assert [int(word) for word in after] == expected
    assert run.exact == (places == "apart")  # else the card may take them in another order


def test_red_changes_what_atom_changes():
    random = np.random.default_rng(2)
    memory = random.integers(0, 1 << 32, 4, dtype=np.uint64).astype(np.uint32)
    index = random.integers(0, 4, 64).astype(np.uint32)
    operand = random.integers(0, 1 << 32, 64, dtype=np.uint64).astype(np.uint32)
    by_atom, _, _ = changed("atom.global.max.s32 %r2, [%d4], %r1;", memory, index, operand)
    by_red, _, _ = changed("red.release.gpu.global.max.s32 [%d4], %r1;", memory, index, operand)
    np.testing.assert_array_equal(by_atom, by_red)


def test_one_thread_wins_a_compare_and_swap():
    """All see 7 in turn: the first one writes its number, and the others get that."""
    operand = np.arange(100, 132, dtype=np.uint32)
    after, found, _ = changed(
        "atom.acq_rel.gpu.global.cas.b32 %r2, [%d4], 7, %r1;",
        np.array([7], np.uint32),
        np.zeros(32, np.uint32),
        operand,
    )
    assert after[0] == 100
    np.testing.assert_array_equal(found, [7] + [100] * 31)


def test_a_compare_and_swap_of_16_bits():
    operand = np.arange(32, dtype=np.uint16)
    memory = np.array([1, 5], np.uint16)
    after, found, _ = changed("atom.global.cas.b16 %h2, [%d4], 5, %h1;", memory, np.ones(32, np.uint32), operand)
    np.testing.assert_array_equal(after, [1, 0])
    np.testing.assert_array_equal(found, [5] + [0] * 31)


WIDE = """
    .reg .b128 %q<4>;
    ld.param.u64 %d1, [memory];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %d2, %r1;
    mov.b128 %q1, {%d2, 1000};
"""


def test_128_bits_are_exchanged_as_one():
    body = f"{WIDE} atom.global.exch.b128 %q2, [%d1], %q1; mul.wide.u32 %d3, %r1, 16; add.s64 %d3, %d1, %d3;"
    memory = np.zeros((5, 2), np.uint64)
    memory[0] = (77, 88)
    run = kernel(f"{body} st.global.b128 [%d3+16], %q2;", ".param .u64 memory").run(1, 4, [memory])
    assert run.outcome == "finished", run.findings
    np.testing.assert_array_equal(memory, [(3, 1000), (77, 88), (0, 1000), (1, 1000), (2, 1000)])


def test_128_bits_are_compared_as_one():
    """The lower halves are equal; the upper ones are not, so that nothing is written."""
    body = f"{WIDE} mov.b128 %q3, {{5, 6}}; atom.global.cas.b128 %q2, [%d1], %q3, %q1;"
    for upper, expected in ((7, (5, 7)), (6, (0, 1000))):
        memory = np.array([5, upper], np.uint64)
        kernel(body, ".param .u64 memory").run(1, 1, [memory])
        np.testing.assert_array_equal(memory, expected)


FLOATS = {
    "f32": np.float32,
    "f64": np.float64,
    "noftz.f16": np.float16,
    "noftz.bf16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("places", [64, 2])
def test_every_addition_of_floats_rounds_once(kind, places):
    dtype = FLOATS[kind]
    random = np.random.default_rng(3)
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    memory = random.standard_normal(64).astype(dtype)
    operand = (random.standard_normal(64) * 10.0 ** random.integers(-2, 3, 64)).astype(dtype)
    index = np.arange(64, dtype=np.uint32) % places
    register, result = {2: ("%h1", "%h2"), 4: ("%r1", "%r2"), 8: ("%d10", "%d11")}[bits.itemsize]
    instruction = f"atom.global.add.{kind} {result}, [%d4], {register};"
    after, found, _ = changed(instruction, memory.view(bits), index, operand.view(bits))
    expected = memory.copy()
    for thread in range(64):
        place = index[thread]
        assert found[thread] == expected[place : place + 1].view(bits)[0], thread
        expected[place] = dtype(expected[place] + operand[thread])
    np.testing.assert_array_equal(after, expected.view(bits))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("special", [0x7FC12345, 0xFF800000, 0x00000005, 0x80000000])
def test_one_strange_float_among_many_that_meet(special):
    """A NaN, an infinity, a denormal, -0: what 64 threads add to one word, and what each found there."""
    random = np.random.default_rng(5)
    operand = random.standard_normal(64).astype(np.float32).view(np.uint32)
    operand[40] = special
    memory = np.array([0x80000000], np.uint32)
    together, found, _ = changed("atom.global.add.f32 %r2, [%d4], %r1;", memory, np.zeros(64, np.uint32), operand)
    one_by_one = memory.copy()
    for thread in range(64):
        assert found[thread] == one_by_one[0], thread
        one_by_one, _, _ = changed(
            "atom.global.add.f32 %r2, [%d4], %r1;", one_by_one, np.zeros(1, np.uint32), operand[thread : thread + 1]
        )
    assert together[0] == one_by_one[0]


DENORMAL = 0x00000003


@pytest.mark.parametrize(("space", "expected"), [("global", 0), ("shared", 2 * DENORMAL)])
def test_additions_of_f32_flush_denormals_in_global_memory_alone(space, expected):
    body = f"""
        .shared .align 4 .b32 word;
        ld.param.u64 %d1, [memory];
        {"cvta.to.global.u64 %d2, %d1;" if space == "global" else "mov.u64 %d2, word;"}
        st.{space}.u32 [%d2], {DENORMAL};
        mov.b32 %r1, {DENORMAL};
        atom.{space}.add.f32 %r2, [%d2], %r1;
        ld.{space}.u32 %r3, [%d2];
        st.global.u32 [%d1], %r3;
    """
    memory = np.zeros(1, np.uint32)
    kernel(body, ".param .u64 memory").run(1, 1, [memory])
    assert memory[0] == expected


def test_a_generic_address_is_of_the_space_it_lies_in():
    """Even threads add to shared memory, odd ones to global memory, by one instruction."""
    body = """
        .shared .align 4 .b32 word;
        mov.u32 %r1, %tid.x;
        ld.param.u64 %d1, [memory];
        st.shared.u32 [word], 1000;
        bar.sync 0;
        mov.u64 %d2, word;
        cvta.shared.u64 %d2, %d2;
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p1, %r2, 0;
        selp.b64 %d3, %d2, %d1, %p1;
        atom.add.u32 %r3, [%d3], %r1;
        bar.sync 0;
        ld.shared.u32 %r4, [word];
        st.global.u32 [%d1+4], %r4;
        mul.wide.u32 %d4, %r1, 4;
        add.s64 %d4, %d1, %d4;
        st.global.u32 [%d4+8], %r3;
    """
    memory = np.zeros(10, np.uint32)
    kernel(body, ".param .u64 memory").run(1, 8, [memory])
    np.testing.assert_array_equal(memory, [1 + 3 + 5 + 7, 1000 + 0 + 2 + 4 + 6, 1000, 0, 1000, 1, 1002, 4, 1006, 9])


VECTORS = {
    "v2.f32": (np.float32, 2, 1),
    "v4.f32": (np.float32, 4, 1),
    "v8.f16": (np.float16, 8, 1),
    "v2.bf16": (ml_dtypes.bfloat16, 2, 1),
    "v4.f16x2": (np.float16, 4, 2),
}


@pytest.mark.parametrize("form", VECTORS)
def test_a_vector_adds_each_of_its_elements(form):
    """Threads meet in pairs at a vector."""
    dtype, count, packed = VECTORS[form]
    noftz = "" if form.endswith("f32") else "noftz."
    vector, type_name = form.split(".")
    bits = np.dtype(dtype).itemsize * packed * 8
    prefix = {16: "%h", 32: "%r2"}[bits]
    registers = [f"{prefix}{number}" for number in range(count)]
    size = count * bits // 8
    loads = "\n".join(f"ld.global.b{bits} {name}, [%d5+{i * bits // 8}];" for i, name in enumerate(registers))
    body = f"""
        mov.u32 %r10, %tid.x;
        ld.param.u64 %d1, [memory];
        shr.u32 %r11, %r10, 1;
        mul.wide.u32 %d2, %r11, {size};
        add.s64 %d2, %d1, %d2;
        ld.param.u64 %d5, [operand];
        mul.wide.u32 %d6, %r10, {size};
        add.s64 %d5, %d5, %d6;
        {loads}
        red.global.add.{noftz}{vector}.{type_name} [%d2], {{{", ".join(registers)}}};
    """
    random = np.random.default_rng(4)
    memory = random.standard_normal((16, count * packed)).astype(dtype)
    operand = random.standard_normal((32, count * packed)).astype(dtype)
    expected = memory.copy()
    for thread in range(32):
        expected[thread // 2] = (expected[thread // 2] + operand[thread]).astype(dtype)
    kernel(body, ".param .u64 memory, .param .u64 operand").run(1, 32, [memory, operand])
    np.testing.assert_array_equal(memory.view(np.uint8), expected.view(np.uint8))


def test_a_vector_keeps_the_greater_elements():
    body = """
        ld.param.u64 %d1, [memory];
        mov.b16 %h1, 0x4400;
        mov.b16 %h2, 0xC400;
        atom.global.max.noftz.v2.f16 {%h3, %h4}, [%d1], {%h1, %h2};
        st.global.b16 [%d1+4], %h3;
        st.global.b16 [%d1+6], %h4;
    """
    memory = np.array([1, 2, 0, 0], np.float16)
    kernel(body, ".param .u64 memory").run(1, 1, [memory])
    np.testing.assert_array_equal(memory, np.array([4, 2, 1, 2], np.float16))


ADD_ONE = "ld.param.u64 %d1, [memory]; mov.b32 %r1, 0f3F800000; red.global.add.f32 [%d1], %r1;"
OWN_WORD = """
    ld.param.u64 %d1, [memory];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d2, %r2, 4;
    add.s64 %d1, %d1, %d2;
    mov.b32 %r1, 0f3F800000;
    red.global.add.f32 [%d1], %r1;
    red.global.add.f32 [%d1], %r1;
"""


@pytest.mark.parametrize(
    ("body", "blocks", "threads", "is_exact"),
    [
        (ADD_ONE, 1, 1, True),
        (ADD_ONE, 1, 2, False),
        (ADD_ONE, 2, 1, False),
        (OWN_WORD, 1, 64, True),
        (OWN_WORD, 2, 64, False),
    ],
)
def test_sums_of_floats_by_several_threads_have_no_order(body, blocks, threads, is_exact):
    run = kernel(body, ".param .u64 memory").run(blocks, threads, [np.zeros(64, np.float32)])
    assert run.exact == is_exact
    assert run.inexact == (() if is_exact else ("red.global.add.f32",))


TICKET = """
    ld.param.u64 %d1, [memory]; mov.u32 %r3, %tid.x;
    atom.global.add.u32 %r1, [%d1], 1; {use}
"""
AS_A_PLACE = "mul.wide.u32 %d2, %r1, 4; add.s64 %d1, %d1, %d2; st.global.u32 [%d1+4], %r3;"
AS_A_VALUE = "mad.lo.u32 %r2, %r1, 2, 1; st.global.u32 [%d1+4], %r2;"
TO_DECIDE = "setp.eq.u32 %p1, %r1, 1; @%p1 st.global.u32 [%d1+4], 7;"


@pytest.mark.parametrize(
    ("use", "threads", "is_exact"),
    [
        (AS_A_PLACE, 1, True),
        (AS_A_PLACE, 2, False),
        (AS_A_VALUE, 1, True),
        (TO_DECIDE, 2, True),
        ("", 2, True),
    ],
)
def test_a_returned_value_that_is_stored_or_chooses_a_place_depends_on_the_order(use, threads, is_exact):
    run = kernel(TICKET.format(use=use), ".param .u64 memory").run(1, threads, [np.zeros(64, np.uint32)])
    assert run.exact == is_exact
    assert run.inexact == (() if is_exact else ("atom.global.add.u32",))


@pytest.mark.parametrize(
    ("value", "threads", "is_exact"),
    [("mov.u32 %r1, %tid.x;", 2, False), ("mov.u32 %r1, %tid.x;", 1, True), ("mov.u32 %r1, 0;", 2, True)],
)
def test_which_of_several_values_remains_after_exchanges_depends_on_the_order(value, threads, is_exact):
    body = f"ld.param.u64 %d1, [memory]; {value} atom.global.exch.b32 %r2, [%d1], %r1;"
    run = kernel(body, ".param .u64 memory").run(1, threads, [np.zeros(1, np.uint32)])
    assert run.exact == is_exact


@pytest.mark.parametrize(
    ("use", "inexact"),
    [
        ("st.global.u32 [%d1], %r1;", ("%clock",)),
        ("setp.gt.u32 %p1, %r1, 7; @%p1 st.global.u32 [%d1], 7;", ()),  # a time limit
    ],
)
def test_a_clock_that_is_stored_is_the_cards_own(use, inexact):
    body = f"ld.param.u64 %d1, [memory]; mov.u32 %r1, %clock; {use}"
    run = kernel(body, ".param .u64 memory").run(1, 1, [np.zeros(1, np.uint32)])
    assert (run.exact, run.inexact) == (not inexact, inexact)


def test_the_number_of_a_multiprocessor_is_the_cards_own():
    body = "ld.param.u64 %d1, [memory]; mov.u32 %r1, %smid; add.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1;"
    assert kernel(body, ".param .u64 memory").run(1, 1, [np.zeros(1, np.uint32)]).inexact == ("%smid",)


ADD_BY_SWAPS = """
    ld.param.u64 %d1, [memory]; ld.global.b32 %r1, [%d1];
    AGAIN: mov.b32 %r2, %r1; {next} atom.global.cas.b32 %r1, [%d1], %r2, %r3; setp.ne.u32 %p1, %r1, %r2; @%p1 bra AGAIN;
"""


@pytest.mark.parametrize(
    ("made", "threads", "is_exact"),
    [
        ("add.f32 %r3, %r2, 0f3F800000;", 1, True),
        ("add.f32 %r3, %r2, 0f3F800000;", 2, False),
        ("add.u32 %r3, %r2, 1;", 2, True),
    ],
)
def test_sums_of_floats_by_swaps_have_no_order_either(made, threads, is_exact):
    run = kernel(ADD_BY_SWAPS.format(next=made), ".param .u64 memory").run(1, threads, [np.zeros(1, np.float32)])
    assert run.exact == is_exact
    assert run.findings == ()


def test_sums_of_floats_in_shared_memory_have_no_order_either():
    body = ".shared .align 4 .b32 sum; mov.b32 %r1, 0f3F800000; red.shared.add.f32 [sum], %r1;"
    assert kernel(body, "").run(1, 2).inexact
    assert not kernel(body, "").run(2, 1).inexact  # every block has its own


@pytest.mark.parametrize("instruction", ["atom.global.add.u32 %r1, [%d1+2], 1;", "red.global.add.u64 [%d1+4], 1;"])
def test_a_misaligned_atomic_is_a_fault(instruction):
    run = kernel(f"ld.param.u64 %d1, [out]; {instruction}").run(1, 1, [np.zeros(4, np.uint64)])
    assert run.outcome == "fault"


def test_blocks_take_a_lock_in_turn():
    """A spin on compare-and-swap, as a semaphore is written: eight blocks add to a word that is not atomic."""
    body = """
        ld.param.u64 %d1, [out];
    TAKE:
        atom.acquire.gpu.global.cas.b32 %r1, [%d1], 0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra TAKE;
        ld.global.u32 %r2, [%d1+4];
        add.u32 %r2, %r2, 1;
        st.global.u32 [%d1+4], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%d1], 0;
    """
    memory = np.zeros(2, np.uint32)
    assert kernel(body).run(8, 1, [memory]).outcome == "finished"
    np.testing.assert_array_equal(memory, [0, 8])


@pytest.mark.parametrize(
    "poll",
    [
        "atom.global.cas.b32 %r1, [%d1], 0, 1;",
        "atom.global.exch.b32 %r1, [%d1], 1;",
        "atom.global.or.b32 %r1, [%d1], 1;",
    ],
)
def test_a_lock_that_nobody_gives_back_is_a_hang(poll):
    """What a thread writes over and over, and is there already, is no change."""
    body = f"ld.param.u64 %d1, [out]; TAKE: {poll} setp.ne.u32 %p1, %r1, 0; @%p1 bra TAKE;"
    run = kernel(body).run(1, 32, [np.array([1], np.uint32)], max_steps=100_000)
    assert run.outcome == "hang"


@pytest.mark.parametrize(
    "instruction",
    [
        "atom.global.min.f32 %r1, [%d1], %r2;",
        "red.global.cas.b32 [%d1], %r2, %r3;",
        "atom.shared.inc.s32 %r1, [%d1], %r2;",
        "red.global.add.v2.u32 [%d1], {%r1, %r2};",
        "multimem.red.global.add.u32 [%d1], %r1;",
    ],
)
def test_forms_that_ptx_does_not_have_are_refused(instruction):
    with pytest.raises(RuleError, match="ptx-unsupported"):
        kernel(instruction)
