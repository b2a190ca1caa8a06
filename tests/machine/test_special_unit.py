"""The approximate functions have the card's bits: recorded samples, all 16-bit inputs, sums over all 2^32 inputs."""

import warnings
from functools import cache
from hashlib import blake2b
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel_arrays import filled

import tilescope as ts
from tilescope.errors import RuleError
from tilescope.gpu.verify.suites import Outcome
from tilescope.gpu.verify.suites.approx_suite import APPROX, EXPONENTS, FUNCTIONS, compute_sums, compute_words, sums
from tilescope.machine.arithmetic import approximate, operation, special_unit
from tilescope.machine.arithmetic.approximate import compiled_loop
from tilescope.machine.arithmetic.special_unit import FLUSHED, QUOTIENTS, SCALED, rows_of, truncated_square
from tilescope.machine.launch.cuda_compiler import find_nvcc, read_nvcc_version

GOLDEN = Path(__file__).parents[1] / "golden" / "approx"
SAMPLES = np.load(GOLDEN / "samples.npz")
RECORDED_QUOTIENTS = np.load(GOLDEN / "quotients.npz")
HALVES = np.load(GOLDEN / "half.npz")
CHECKSUMS = np.load(GOLDEN / "checksums.npz")
CONTRACTED = np.load(GOLDEN / "contracted_quotients.npz")
LIBRARY = np.load(GOLDEN / "library.npz")
FRACTION = (1 << 23) - 1


def compute(form, *sources):
    name, *modifiers = form.split(".")
    with np.errstate(all="ignore"):
        return operation(name, tuple(modifiers)).compute(*sources)


@pytest.mark.parametrize("form", [name for name in SAMPLES.files if name != "x"])
def test_samples_of_every_exponent_are_the_cards(form):
    np.testing.assert_array_equal(compute(form, SAMPLES["x"]), SAMPLES[form])


@pytest.mark.parametrize("form", [name for name in RECORDED_QUOTIENTS.files if name not in ("a", "b")])
def test_quotients_are_the_cards(form):
    found = compute(form, RECORDED_QUOTIENTS["a"], RECORDED_QUOTIENTS["b"])
    np.testing.assert_array_equal(found, RECORDED_QUOTIENTS[form])


@pytest.mark.parametrize("form", HALVES.files)
def test_all_16_bit_inputs_are_the_cards(form):
    words = np.arange(1 << 16, dtype=np.uint16)
    np.testing.assert_array_equal(compute(form, words), HALVES[form])
    pairs = words.view(np.uint32)
    np.testing.assert_array_equal(compute(f"{form}x2", pairs), HALVES[form].view(np.uint32))


def test_the_sums_of_the_package_are_those_of_the_card():
    """`tilescope verify approx` holds a card against these."""
    assert sorted(FUNCTIONS) == sorted(CHECKSUMS.files)
    for number, name in enumerate(FUNCTIONS):
        np.testing.assert_array_equal(sums()[number, :, 0], CHECKSUMS[name], err_msg=name)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", FUNCTIONS)
def test_all_fractions_between_one_and_two_have_the_cards_sum(form):
    np.testing.assert_array_equal(compute_sums(compute_words(form, 127)), sums()[FUNCTIONS.index(form), 127])


@pytest.mark.slow
@pytest.mark.sampled(23)  # odd, so that a sample has exponents of both parities: rsqrt and sqrt tell them apart
@pytest.mark.parametrize("exponent", range(EXPONENTS))
def test_all_fractions_of_an_exponent_have_the_cards_sums(exponent):
    for number, form in enumerate(FUNCTIONS):
        np.testing.assert_array_equal(
            compute_sums(compute_words(form, exponent)), sums()[number, exponent], err_msg=form
        )


def test_the_sums_see_what_the_weights_alone_do_not():
    words = compute_words("rcp.approx.ftz.f32", 127)
    other = words ^ np.uint32(1 << 31)
    assert compute_sums(words)[0] == compute_sums(other)[0]
    assert compute_sums(words)[1] != compute_sums(other)[1]


def naive_square(x):
    """x * x as a triangle of partial products, without the columns below 19."""
    total = 0
    for i in range(17):
        for j in range(i, 17):
            column = 2 * i if i == j else i + j + 1
            if column >= 19:
                total += (x >> i & 1) * (x >> j & 1) << column - 19
    return total


@given(st.integers(0, (1 << 17) - 1))
def test_the_squarer_is_the_triangle_without_its_low_columns(x):
    assert truncated_square(np.array([x], np.int32)).item() == naive_square(x)


@pytest.mark.parametrize("function", approximate._ORDINARY, ids=lambda function: function.__name__)
def test_ordinary_words_have_the_bits_of_all_words(function):
    """Every exponent, both signs, the ends of each binade; the dividends of quotients are anything."""
    ordinary = approximate._ORDINARY[function]
    rng = np.random.default_rng(4)
    any_words = rng.integers(0, 1 << 32, 1 << 19, np.uint64).astype(np.uint32)
    binades = np.arange(512, dtype=np.uint32) << np.uint32(23)
    words = np.concatenate([any_words, binades, binades + np.uint32(1), binades - np.uint32(1)])
    magnitudes = words & np.uint32(0x7FFFFFFF)
    is_ordinary = (magnitudes >= ordinary.least) & (magnitudes < ordinary.end)
    assert [ordinary.takes(words[place : place + 1]) for place in range(2000)] == is_ordinary[:2000].tolist()
    words = words[is_ordinary]
    is_quotient = function in QUOTIENTS.values()
    sources = [any_words[: len(words)], words] if is_quotient else [words]
    rows = rows_of("ex2" if "ex2" in function.__name__ else "rcp")
    with np.errstate(all="ignore"):
        expected = function(*[source.astype(np.int64) for source in sources], rows)
        found = ordinary.compute(*sources)
    np.testing.assert_array_equal(found, expected.astype(np.uint32))


def test_a_word_that_is_not_ordinary_takes_the_whole_way(monkeypatch):
    monkeypatch.setattr(approximate, "compiled_loop", lambda _: None)
    one, infinity, tiny = 0x3F800000, 0x7F800000, 1
    words = np.array([one, infinity, tiny], np.uint32)
    assert compute("ex2.approx.f32", words).tolist() == [0x40000000, infinity, one]
    assert compute("div.full.f32", words, words).tolist() == [one, special_unit.NAN, one]
    assert compute("rcp.approx.ftz.f32", words).tolist() == [one, 0, infinity]


@pytest.mark.parametrize("name", [*FLUSHED, *QUOTIENTS], ids=str)
def test_compiled_loops_have_numpys_bits(name, require):
    require("numba")
    rng = np.random.default_rng(3)
    words = rng.integers(0, 1 << 32, 50_000, np.uint64).astype(np.uint32)
    words[:512] = np.arange(512, dtype=np.uint32) << np.uint32(23)
    others = rng.permutation(words)
    functions = [QUOTIENTS[name]] if isinstance(name, tuple) else [FLUSHED[name], SCALED[name]]
    sources = [words, others] if isinstance(name, tuple) else [words]
    rows = rows_of("rcp" if isinstance(name, tuple) else name)
    for function in functions:
        results = np.empty_like(words)
        compiled_loop(function)(*sources, rows, results)
        with np.errstate(all="ignore"):
            expected = function(*[source.astype(np.int64) for source in sources], rows)
        np.testing.assert_array_equal(results, expected.astype(np.uint32))


def test_numpy_computes_alone(monkeypatch):
    import tilescope.machine.arithmetic.approximate as module

    monkeypatch.setattr(module, "compiled_loop", lambda _function: None)
    np.testing.assert_array_equal(compute("ex2.approx.f32", SAMPLES["x"]), SAMPLES["ex2.approx.f32"])


@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_upper_words_of_doubles_have_the_units_fraction(name):
    """20 bits of fraction, as the f32 function gives them; the lower word is neither read nor written."""
    rng = np.random.default_rng(4)
    upper = rng.integers(0, 1 << 20, 4096) | (1023 << 20)
    source = (upper.astype(np.uint64) << np.uint64(32)) | rng.integers(0, 1 << 32, 4096).astype(np.uint64)
    found = compute(f"{name}.approx.ftz.f64", source)
    assert not (found & np.uint64(0xFFFFFFFF)).any()
    singles = ((upper & 0xFFFFF) << 3 | 127 << 23).astype(np.uint32)
    expected = compute(f"{name}.approx.ftz.f32", singles)
    ours = (found >> np.uint64(32)).astype(np.int64)
    np.testing.assert_array_equal(ours & 0xFFFFF, (expected & FRACTION) >> 3)


KERNEL = """.version 8.4
.target {target}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 out)
{{
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    .reg .f32 %f<10>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r1, %r1, 256, %r2;
    mul.wide.u32 %rd5, %r1, 4;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c];
    ld.param.u64 %rd4, [out];
    add.s64 %rd1, %rd1, %rd5;
    add.s64 %rd2, %rd2, %rd5;
    add.s64 %rd3, %rd3, %rd5;
    add.s64 %rd4, %rd4, %rd5;
    ld.global.f32 %f1, [%rd1];
    ld.global.f32 %f2, [%rd2];
    ld.global.f32 %f3, [%rd3];
    {body}
    st.global.f32 [%rd4], %f9;
    ret;
}}
"""


def run_body(body, a, b, c, target="sm_90a"):
    out = np.zeros(len(a), np.uint32)
    kernel = ts.Kernel(KERNEL.format(body=body, target=target))
    return kernel.run(len(a) // 256, 256, [a.copy(), b.copy(), c.copy(), out]), out


@pytest.mark.parametrize("name", [name for name in CONTRACTED.files if name not in ("a", "b", "c", "bodies")])
def test_a_quotient_that_is_added_is_not_rounded_first(name):
    import json

    bodies = json.loads(str(CONTRACTED["bodies"]))
    run, out = run_body(bodies[name], *(CONTRACTED[operand] for operand in "abc"))
    np.testing.assert_array_equal(out, CONTRACTED[name])
    assert run.exact


def test_runs_with_approximate_functions_are_exact_on_the_measured_architecture_alone():
    a = np.ones(256, np.float32)
    body = "ex2.approx.f32 %f9, %f1;"
    here, out = run_body(body, a, a, a)
    assert (here.exact, here.inexact, here.assumed) == (True, (), ())
    elsewhere, same = run_body(body, a, a, a, "sm_100a")
    assert (elsewhere.exact, elsewhere.inexact, elsewhere.assumed) == (False, (), ("ex2.approx.f32",))
    np.testing.assert_array_equal(out, same)


def test_rsqrt_of_doubles_stays_inexact():
    a = np.ones(256, np.float32)
    run, _ = run_body("{.reg .f64 d; cvt.f64.f32 d, %f1; rsqrt.approx.f64 d, d; cvt.rn.f32.f64 %f9, d;}", a, a, a)
    assert (run.exact, run.inexact) == (False, ("rsqrt.approx.f64",))


@pytest.mark.parametrize("number", range(len(LIBRARY["names"])), ids=LIBRARY["names"].tolist())
@pytest.mark.parametrize("text", ["recorded", "compiled"])
def test_the_math_library_is_the_cards_on_100_000_inputs(number, text, require):
    """expf, tanhf, sinf and the others are PTX around the unit. The text is nvcc 13.4's, or compiled here."""
    if text == "compiled":
        require("nvcc")
        if LIBRARY["names"][number] == "erff" and not read_nvcc_version(find_nvcc()).startswith("V13.4"):
            pytest.skip("the erff of another version of the library")
    inputs = library_inputs()
    results = library_results(text)[number]
    assert [block_digest(results, block) for block in range(len(inputs) // 256)] == LIBRARY["digests"][number].tolist()
    np.testing.assert_array_equal(results[:256], LIBRARY["first"][number])


def library_inputs():
    near = {"type": "float32", "shape": [60160], "fill": {"kind": "floats", "seed": 1001, "exponents": [-27, 12]}}
    anywhere = {"type": "float32", "shape": [39936], "fill": {"kind": "bits", "seed": 1002}}
    return np.concatenate([filled(array).view(np.uint32) for array in (near, anywhere)])


@cache
def library_results(text):
    inputs = library_inputs()
    out = np.zeros(len(LIBRARY["names"]) * len(inputs), np.uint32)
    source = GOLDEN.parent / "kernels_own" / "library_maths.cu"
    is_recorded = text == "recorded"
    kernel = (
        ts.Kernel(source.with_suffix(".ptx").read_text()) if is_recorded else ts.Kernel.from_cuda(source, arch="sm_90a")
    )
    run = kernel.run(len(inputs) // 256, 256, [inputs, out, len(inputs)], findings=False)
    assert run.exact
    return out.reshape(-1, len(inputs))


def block_digest(results, block):
    data = results[256 * block : 256 * (block + 1)].tobytes()
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


def test_approx_takes_names_with_and_without_type():
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    words = compute("tanh.approx.f32", x.ravel().view(np.uint32)).view(np.float32).reshape(3, 4)
    np.testing.assert_array_equal(ts.approx("tanh.approx.f32", x), words)
    np.testing.assert_array_equal(ts.approx("tanh.approx", x), words)
    halves = ts.approx("tanh.approx", x.astype(ml_dtypes.bfloat16))
    assert halves.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(halves, ts.approx("tanh.approx.bf16x2", x.astype(ml_dtypes.bfloat16)))
    assert ts.approx("rcp.approx.ftz", np.float64(4)).item() == 0.25
    np.testing.assert_array_equal(ts.approx("div.full.f32", x, np.float32(2)), x / 2)


@pytest.mark.parametrize(
    ("arguments", "options", "rule"),
    [
        (("exp2.approx.f32", np.ones(2, np.float32)), {}, "unknown-name"),
        (("ex2.approx.f32", np.ones(2)), {}, "argument-type"),
        (("ex2.approx", np.ones(2, np.int32)), {}, "unknown-name"),
        ((7, np.ones(2, np.float32)), {}, "unknown-name"),
        (("div.full.f32", np.ones(2, np.float32)), {}, "argument-range"),
        (("ex2.approx.f32", np.ones(2, np.float32), np.ones(2, np.float32)), {}, "argument-range"),
        (("div.full.f32", np.ones(2, np.float32), np.ones(3, np.float32)), {}, "argument-range"),
        (("tanh.approx.bf16", np.ones(2, ml_dtypes.bfloat16)), {"arch": "sm_80"}, "approx-arch"),
        (("tanh.approx.f32", np.ones(2, np.float32)), {"arch": "sm_9"}, "unknown-name"),
    ],
)
def test_approx_refuses_what_ptx_does_not_have(arguments, options, rule):
    with pytest.raises(RuleError) as error:
        ts.approx(*arguments, **options)
    assert [violation.rule for violation in error.value.violations] == [rule]


def test_approx_warns_on_an_architecture_that_was_not_measured():
    x = np.ones(4, np.float32)
    with pytest.warns(UserWarning, match="sm_100"):
        ts.approx("ex2.approx.f32", x, arch="sm_100")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.approx("ex2.approx.f32", x, arch="H200")


def test_the_table_has_627_rows():
    counts = {name: len(rows_of(name).base) for name in FLUSHED if name != "cos"}
    assert counts == {"rcp": 128, "rsqrt": 128, "sqrt": 128, "lg2": 64, "ex2": 64, "sin": 64, "tanh": 51}
    assert special_unit.ARCH == "sm_90"


class OtherCard:
    """A card whose reciprocals differ from an H200's in some fractions of one exponent."""

    def __init__(self, exponent, fractions):
        self.exponent = exponent
        self.fractions = fractions

    def launch(self, place, *values, out, **_sizes):
        if place == "approx:words":
            number, exponent = values
            out[0][:] = self.words(FUNCTIONS[number], exponent)
            return
        for row, (number, exponent) in enumerate(zip(*values, strict=True)):
            out[0][row] = compute_sums(self.words(FUNCTIONS[number], int(exponent)))

    def words(self, function, exponent):
        words = compute_words(function, exponent)
        if exponent == self.exponent:
            words[self.fractions] ^= 1
        return words

    def free(self):
        pass


def test_a_card_with_another_unit_is_narrowed_down_to_inputs():
    cases = [{"function": "rcp.approx.ftz.f32", "exponent": exponent} for exponent in (126, 127)]
    right, wrong = [Outcome(data) for data in APPROX.results(OtherCard(127, [5, 600_000]), cases)]
    assert APPROX.difference(cases[0], right) == ""
    words = APPROX.difference(cases[1], wrong)
    assert "2 results" in words
    assert "0x3f800005" in words
    assert "0x3f8927c0" in words
    assert len(wrong.data) == 16 + 8 + 2 * 12 + 4 * (1 << 15)  # sums, counts, two inputs, every 256th result
    assert "rcp.approx.ftz.f32" in APPROX.note(cases, [right, wrong])
    assert APPROX.note(cases[:1], [right]).endswith("the unit of an H200.")


def test_verify_lists_every_case_once_and_draws_by_seed():
    every = APPROX.cases(APPROX.count, 1, "sm_90")
    assert len({(case["function"], case["exponent"]) for case in every}) == len(FUNCTIONS) * EXPONENTS
    assert APPROX.cases(5, 1, "sm_90") == APPROX.cases(9, 1, "sm_90")[:5] != APPROX.cases(5, 2, "sm_90")
