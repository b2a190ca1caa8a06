"""Assertions about runs: what passes, what fails, and what a failure says. The pytest plugin, on projects of one file."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import tilescope as ts
from tilescope import testing
from tilescope.machine.report.outcome import outcome_sentence
from tilescope.machine.report.run import InstructionCount

pytest_plugins = ["pytester"]

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
ADD_ONE = ts.Kernel(f"""{HEAD}
.visible .entry add_one(.param .u64 out, .param .u64 in, .param .u32 n)
{{
    .reg .b32 %r<4>; .reg .b64 %d<6>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [in];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d4, %d1, %d3;
    add.s64 %d5, %d2, %d3;
    ld.global.u32 %r2, [%d5];
    add.u32 %r3, %r2, 1;
    st.global.u32 [%d4], %r3;
    ret;
}}
""")
HANG = ts.Kernel(
    f"{HEAD}.entry k() {{ .shared .align 8 .b64 m; .reg .pred p; .reg .b32 t; mov.u32 t, %tid.x;"
    " setp.ne.u32 p, t, 0; @p bra A; mbarrier.init.shared.b64 [m], 1; A: bar.sync 0;"
    " B: mbarrier.try_wait.parity.shared.b64 p, [m], 0; @!p bra B; ret; }"
)


def added():
    """A run of ADD_ONE on 0 to 31, and its arrays."""
    out, numbers = np.zeros((4, 8), np.uint32), np.arange(32, dtype=np.uint32)
    return ADD_ONE.run(1, 32, [out, numbers, 7]), out, numbers


def test_a_run_that_finished_without_findings_is_clean():
    testing.assert_clean(added()[0])


def test_a_hang_is_not_clean_and_says_why():
    run = HANG.run(1, 32)
    with pytest.raises(AssertionError, match="k hangs") as failure:
        testing.assert_clean(run)
    assert "run-hang: PTX line 2: a thread cannot pass the mbarrier" in str(failure.value)
    assert run.findings[0].fix in str(failure.value)


def finding(severity):
    return ts.Violation("run-race", severity, "line 3", "two writes", "no order", "Use bar.sync.")


@pytest.mark.parametrize(("severity", "is_clean"), [("error", False), ("warning", True), ("note", True)])
def test_only_errors_among_findings_count(severity, is_clean):
    run = replace(added()[0], findings=(finding(severity),))
    if is_clean:
        testing.assert_clean(run)
    else:
        with pytest.raises(AssertionError, match=r"with 1 error:\n  run-race: Two writes"):
            testing.assert_clean(run)


@pytest.mark.parametrize(("severity", "is_clean"), [("error", False), ("warning", False), ("note", True)])
def test_warnings_count_if_somebody_asks_for_it(severity, is_clean):
    run = replace(added()[0], findings=(finding(severity),))
    if is_clean:
        testing.assert_clean(run, warnings=True)
    else:
        with pytest.raises(AssertionError, match=rf"with 1 {severity}:\n  run-race: Two writes"):
            testing.assert_clean(run, warnings=True)


PLACED = ts.Violation(
    "run-race",
    "error",
    "line 3",
    "two writes",
    "no order",
    "Use bar.sync.",
    values={"ptx_lines": (12, 40), "source_lines": ("kernels/mm.py:12",)},
)


@pytest.mark.parametrize("entry", ["run-race", "run-race@12", "run-race@40", "run-race@mm.py:12"])
def test_an_accepted_finding_does_not_count(entry):
    run = replace(added()[0], findings=(PLACED,))
    testing.assert_clean(run, allow=[entry])
    testing.assert_clean(run, warnings=True, allow=[entry])


@pytest.mark.parametrize("entry", ["run-hang", "run-race@1", "run-race@mm.py:1", "run-race@m.py:12"])
def test_an_entry_for_another_finding_accepts_nothing_and_is_reported(entry):
    run = replace(added()[0], findings=(PLACED,))
    with pytest.warns(UserWarning, match=entry), pytest.raises(AssertionError, match="with 1 error"):
        testing.assert_clean(run, allow=[entry])


def test_the_accepted_finding_is_left_out_of_the_message():
    run = replace(added()[0], findings=(PLACED, replace(PLACED, rule="run-refill")))
    with pytest.raises(AssertionError, match="with 1 error") as failure:
        testing.assert_clean(run, allow=["run-race"])
    assert "run-race:" not in str(failure.value)


def test_an_unknown_rule_is_refused_with_the_nearest_name():
    with pytest.raises(ts.RuleError, match=r"Did you mean run-race\?"):
        testing.assert_clean(added()[0], allow=["run-rase"])


def test_a_line_that_is_none_is_refused():
    with pytest.raises(ts.RuleError, match="the line 'twelve'"):
        testing.assert_clean(added()[0], allow=["run-race@twelve"])


def test_a_hang_stays_a_failure_if_its_finding_is_accepted():
    with pytest.raises(AssertionError, match="k hangs"):
        testing.assert_clean(HANG.run(1, 32), allow=["run-hang"])


@pytest.mark.parametrize(
    ("rule", "severity", "is_exact"),
    [
        ("run-race", "error", False),
        ("run-unwritten", "warning", False),
        ("run-bank-conflict", "warning", True),
        ("run-sectors", "note", True),
    ],
)
def test_a_result_is_exact_only_without_findings_about_it(rule, severity, is_exact):
    run = replace(added()[0], findings=(replace(PLACED, rule=rule, severity=severity),))
    assert run.exact == is_exact
    assert ("is not certain" in outcome_sentence(run)) != is_exact
    assert ("Every bit of the result is the card's" in outcome_sentence(run)) == is_exact


def row(line, source, text, wavefronts=None, least=None):
    """An instruction that one warp ran, as a run counts it."""
    return InstructionCount(
        ptx_line=line,
        source_line=source,
        ptx_text=text,
        threads=32,
        warps=1,
        wavefronts=wavefronts,
        least_wavefronts=least,
    )


def with_rows(*rows):
    return replace(added()[0], instructions=rows)


FREE = row(10, "mm.py:1", "ld.shared.b32 %r1, [%r2]", 4, 4)
CONFLICT = row(20, "mm.py:12", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}, [%r2]", 32, 4)
ELSEWHERE = row(30, "mm.py:3", "add.u32 %r1, %r1, 1")


@pytest.mark.parametrize("place", [10, "mm.py:1", "ld.shared"])
def test_a_place_without_conflicts_passes(place):
    testing.assert_conflict_free(with_rows(FREE, CONFLICT, ELSEWHERE), place)


@pytest.mark.parametrize("place", [None, 20, "mm.py:12", "ldmatrix"])
def test_a_conflict_says_where_and_how_many_wavefronts(place):
    with pytest.raises(AssertionError, match=r"mm\.py:12, PTX line 20 .*: 32 wavefronts, 4 "):
        testing.assert_conflict_free(with_rows(FREE, CONFLICT, ELSEWHERE), place)


@pytest.mark.parametrize("place", [30, 99, "mm.py:3", "stmatrix"])
def test_a_place_without_accesses_is_refused(place):
    with pytest.raises(AssertionError, match="no access of shared memory"):
        testing.assert_conflict_free(with_rows(FREE, CONFLICT, ELSEWHERE), place)


def test_equal_arrays_pass_by_number_and_by_array():
    run, out, numbers = added()
    expected = (numbers + 1).reshape(4, 8)
    testing.assert_equal_to(run, 0, expected)
    testing.assert_equal_to(run, out, expected)
    testing.assert_equal_to(run, out[1], expected[1])


def test_the_first_difference_is_named_by_index_and_values():
    run, out, numbers = added()
    expected = (numbers + 1).reshape(4, 8)
    expected[1, 2] = 99
    expected[3, 3] = 99
    words = r"args\[0\] .*2 of 32 .*\[1, 2\]: 11, not 99"
    with pytest.raises(AssertionError, match=words):
        testing.assert_equal_to(run, 0, expected)
    with pytest.raises(AssertionError, match=r"args\[0\] .*\[2\]: 11, not 99"):
        testing.assert_equal_to(run, out[1], expected[1])


def test_the_line_and_the_thread_that_wrote_it_last_are_named():
    run, _, numbers = added()
    expected = (numbers + 1).reshape(4, 8)
    expected[1, 2] = 99
    words = r"written last at PTX line 14 \(st\.global\.u32 \[%d4\], %r3\) by thread 10 of block \(0, 0, 0\)$"
    with pytest.raises(AssertionError, match=words):
        testing.assert_equal_to(run, 0, expected)


def test_an_element_that_nobody_wrote_names_no_line():
    run, _, numbers = added()
    with pytest.raises(AssertionError, match=r"first at \[0\]: 0, not 5$"):
        testing.assert_equal_to(run, numbers, np.concatenate([[5], numbers[1:]]))


def test_tolerances_and_nan():
    run, out, _ = added()
    floats = out.view(np.float32)
    floats[:] = 1
    floats[0, 0] = np.nan
    expected = np.full((4, 8), 1.001)
    expected[0, 0] = np.nan
    held = replace(run)
    testing_array = run.arrays[0]._replace(array=floats)
    object.__setattr__(held, "arrays", (testing_array,))
    testing.assert_equal_to(held, 0, expected, rtol=0.01)
    with pytest.raises(AssertionError, match=r"first at \[0, 1\]: 1\.0, not 1\.001"):
        testing.assert_equal_to(held, 0, expected)


@pytest.mark.parametrize(
    ("argument", "words"),
    [(2, r"args\[2\] is not an array"), (3, r"args\[3\] is not an array"), (np.zeros(3), "none of the arguments")],
)
def test_what_is_no_array_of_the_run_is_refused(argument, words):
    with pytest.raises(AssertionError, match=words):
        testing.assert_equal_to(added()[0], argument, np.zeros(3))


def test_another_shape_is_refused():
    with pytest.raises(AssertionError, match=r"args\[0\] .*\(4, 8\).* \(32,\)"):
        testing.assert_equal_to(added()[0], 0, np.zeros(32))


def test_a_run_that_hangs_equals_nothing():
    with pytest.raises(AssertionError, match="k hangs"):
        testing.assert_equal_to(HANG.run(1, 32), 0, np.zeros(1))


def test_addresses_and_maps_lead_to_their_arrays():
    memory = ts.Memory()
    out, numbers = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32)
    address = memory.place(out)
    run = ADD_ONE.run(1, 32, [address, memory.place(numbers) + 4, 7], memory=memory)
    assert run.arrays[0].array is out
    assert run.arrays[1:] == (None, None)  # an address inside an array, and a number
    box = memory.map(out, (16,))
    mapped = ts.Kernel(f"{HEAD}.entry k(.param .align 64 .b8 m[128]) {{ ret; }}").run(1, 32, [box], memory=memory)
    assert mapped.arrays[0].array is out


def test_plain_data_of_a_run_has_no_arrays():
    run, _, _ = added()
    assert "arrays" not in run.to_dict()
    assert type(run).from_dict(run.to_dict()) == run


PROJECT = """
import numpy as np
import tilescope as ts

TEXT = '''.version 8.0 .target sm_90 .address_size 64
.entry k(.param .u64 a) {
    .reg .b64 %d; .reg .b32 %r;
    ld.param.u64 %d, [a];
    ld.global.u32 %r, [%d+OFFSET];
    st.global.u32 [%d], 7;
    ret;
}'''

def test_seven(tilescope_run):
    a = np.zeros(1, np.uint32)
    run = tilescope_run(ts.Kernel(TEXT), grid=1, block=1, args=[a])
    assert a.tolist() == [7]
"""


@pytest.fixture
def project(pytester, monkeypatch):
    """Runs a test file of another project, with the plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(source, *options):
        pytester.makepyfile(source)
        return pytester.runpytest_inprocess("-p", "tilescope.pytest_plugin", *options)

    return run


def test_the_fixture_passes_on_a_clean_kernel(project):
    project(PROJECT.replace("OFFSET", "0")).assert_outcomes(passed=1)


def test_the_fixture_fails_on_a_fault_and_says_why(project):
    result = project(PROJECT.replace("OFFSET", "4"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * k ends with a fault*", "*run-out-of-bounds: *"])


UNWRITTEN = PROJECT.replace("ld.global.u32 %r, [%d+OFFSET];", ".shared .b32 s; ld.shared.u32 %r, [s];")


def test_the_fixture_fails_on_a_warning_about_the_result(project):
    result = project(UNWRITTEN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*with 1 warning:", "*run-unwritten: *"])


def test_warnings_pass_where_the_project_or_the_command_line_says_so(project, pytester):
    project(UNWRITTEN, "--tilescope-lenient").assert_outcomes(passed=1)
    pytester.makeini("[pytest]\ntilescope_strict = false")
    project(UNWRITTEN).assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["warnings=False", "allow=['run-unwritten']", "allow=['run-unwritten@5']"])
def test_a_warning_passes_where_the_test_says_so(project, option):
    project(UNWRITTEN.replace("args=[a]", f"args=[a], {option}")).assert_outcomes(passed=1)


CONFLICT_PROJECT = PROJECT.replace(
    "ld.global.u32 %r, [%d+OFFSET];",
    ".shared .b32 s[1024]; mov.u32 %r, %tid.x; mul.lo.u32 %r, %r, 128; st.shared.u32 [%r+1024], %r;",
).replace("block=1", "block=32")


def test_bank_conflicts_pass_unless_the_test_asks_for_every_warning(project):
    project(CONFLICT_PROJECT).assert_outcomes(passed=1)
    project(CONFLICT_PROJECT.replace("args=[a]", "args=[a], warnings=True")).assert_outcomes(failed=1)


def test_seeds_run_a_test_again(project):
    result = project(PROJECT.replace("OFFSET", "0"), "--tilescope-seeds", "2", "-v")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["*test_seven?late? PASSED*", "*test_seven?seed0? PASSED*", "*test_seven?seed1? PASSED*"]
    )


def test_tests_without_a_kernel_run_once(project):
    project("def test_one(): pass", "--tilescope-seeds", "5").assert_outcomes(passed=1)


def test_the_seed_reaches_the_kernel(project):
    source = """
    class Kernel:
        def run(self, grid, block, args, *, seed, max_steps=1):
            raise RuntimeError(f"grid {grid}, seed {seed}, max_steps {max_steps}")

    def test_k(tilescope_run):
        tilescope_run(Kernel(), 3, 32, max_steps=5)
    """
    result = project(source, "--tilescope-seeds", "1")
    result.stdout.fnmatch_lines(["E *grid 3, seed None, max_steps 5", "E *grid 3, seed 0, max_steps 5"])


def test_loading_the_plugin_loads_nothing_else():
    loaded = (
        "import sys, pytest, tilescope.pytest_plugin;"
        " print(sorted(name for name in sys.modules if name.split('.')[0] in ('tilescope', 'numpy')))"
    )
    printed = subprocess.check_output([sys.executable, "-c", loaded], text=True)
    assert printed == "['tilescope', 'tilescope.late_names', 'tilescope.pytest_plugin']\n"
