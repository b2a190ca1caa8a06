"""./test draws the same cases every time; fuzz.py draws others, says its seed and takes it back."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("fuzz", HERE / "fuzz.py")
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)
LAW = """
from pathlib import Path
from hypothesis import given, strategies as st

@given(st.integers(0, 10**9))
def test_law(number):
    with Path(__file__).with_suffix(".drawn").open("a") as drawn:
        drawn.write(f"{number} ")
    assert number < LIMIT
"""


def test_no_case_depends_on_chance_on_the_clock_or_on_an_earlier_run():
    assert settings.default.derandomize
    assert settings.default.deadline is None
    assert settings.default.database is None


@pytest.fixture
def law(tmp_path):
    """`law(limit)`: a file with a law that numbers below the limit keep, beside the settings of all tests."""
    shutil.copy(HERE / "conftest.py", tmp_path)

    def written(limit):
        path = tmp_path / "test_law.py"
        path.write_text(LAW.replace("LIMIT", str(limit)))
        return path

    return written


def ran(*command, **environment):
    line = [sys.executable, *map(str, command)]
    return subprocess.run(line, capture_output=True, text=True, env=os.environ | environment, check=False)


def drawn(path):
    numbers = path.with_suffix(".drawn")
    found = numbers.read_text()
    numbers.unlink()
    return found


@pytest.mark.slow
def test_the_same_cases_are_drawn_every_time(law):
    path = law(10**10)
    rounds = []
    for options in ((), (), ("--thorough",)):
        assert ran("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path, *options).returncode == 0
        rounds.append(drawn(path).split())
    assert rounds[0] == rounds[1]
    assert len(rounds[2]) > len(rounds[0])  # --thorough draws more


def test_thinned_takes_every_eighth_of_many_cases_every_nth_of_marked_ones_and_all_of_recordings(law):
    path = law(10**10).with_name("test_cases.py")
    cases = "import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test(n): assert {claim}\n"
    path.write_text(cases.format(count=16, claim="n % 8 == 0"))
    path.with_name("test_few.py").write_text(cases.format(count=15, claim="True"))
    path.with_name("test_recordings.py").write_text(cases.format(count=16, claim="True"))
    marked = cases.replace("def", "@pytest.mark.thinned(3)\ndef").format(count=5, claim="n % 3 == 0")
    path.with_name("test_marked.py").write_text(marked)
    found = ran("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path.parent, "--thinned")
    assert re.search(rf"{1 + 2 + 15 + 16 + 2} passed, {14 + 3} deselected", found.stdout)


@pytest.mark.slow
def test_sampled_takes_every_nth_of_the_slow_cases(law):
    path = law(10**10).with_name("test_cases.py")
    path.write_text(
        "import pytest\nSLOW = [pytest.param(n, marks=pytest.mark.slow) for n in range(6)]\n"
        "@pytest.mark.sampled(3)\n@pytest.mark.parametrize('n', [10, 11, *SLOW])\n"
        "def test(n, pytestconfig): assert n in (10, 11, 0, 3) or pytestconfig.getoption('--every-case')\n"
    )
    found = ran("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path, "--thorough")
    assert "4 passed, 4 deselected" in found.stdout
    found = ran("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path, "--thorough", "--every-case")
    assert "8 passed" in found.stdout


@pytest.mark.slow
def test_a_file_that_hangs_says_where(law):
    path = law(10**10).with_name("test_hangs.py")
    path.write_text("import time\ndef test_that_hangs(): time.sleep(1.5)\n")
    found = ran("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", path, TILESCOPE_SECONDS_OF_A_FILE="0.5")
    assert re.search("Timeout.*test_that_hangs", found.stderr, re.DOTALL)


@pytest.mark.slow
def test_what_a_seed_found_is_found_again(law):
    path = law(10**6)
    options = ["-n", "0", "-p", "no:cacheprovider"]
    first = ran(HERE / "fuzz.py", "600", "--seed", "4711", path, *options)
    assert first.returncode == 1
    assert first.stdout.startswith("== seed 4711\n")
    assert f"tests/fuzz.py --seed 4711 {path}" in first.stdout
    numbers = drawn(path)
    again = ran(HERE / "fuzz.py", "--seed", "4711", path, *options)
    assert again.returncode == 1
    assert drawn(path) == numbers


def test_rounds_go_on_with_other_seeds_until_the_time_is_over(monkeypatch, capsys):
    seeds, clock = [], iter(range(1000, 2000, 25))
    monkeypatch.setattr(fuzz, "time", SimpleNamespace(time=lambda: next(clock)))
    monkeypatch.setattr(fuzz, "one_round", lambda seed, _, until: seeds.append((seed, until)) or 0)
    assert fuzz.main(["60", "--seed", "7"]) == 0
    assert seeds == [(7, 1060), (8, 1060), (9, 1060)]
    assert fuzz.main(["--seed", "7"]) == 0  # one round, whole
    assert seeds[3:] == [(7, None)]
    assert re.findall(r"seed (\d+)", capsys.readouterr().out) == ["7", "8", "9", "7"]
    assert "takes a number" in fuzz.main(["--seed", "x"])


@pytest.mark.slow
def test_processes_that_share_a_run_run_every_test_once(law, tmp_path):
    law(10**10).unlink()
    line = (
        "from pathlib import Path\ndef test_{name}(): Path(__file__).with_suffix('.ran').open('a').write('{name} ')\n"
    )
    for number in range(6):
        folder = tmp_path / f"folder_{number // 2}"  # what is set up for a folder is torn down behind it
        folder.mkdir(exist_ok=True)
        tests = "".join(line.format(name=name) for name in "ab")
        (folder / f"test_{number}.py").write_text(tests + ("def test_c(): assert 0\n" if number == 4 else ""))
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", tmp_path]
    shared = ran("-c", "import sys, share; sys.exit(share.main(sys.argv[1:], 3))", *options, PYTHONPATH=str(HERE))
    assert shared.returncode == 1
    assert [path.read_text() for path in sorted(tmp_path.rglob("*.ran"))] == ["a b "] * 6
    passed, failed = (re.findall(rf"(\d+) {word}", shared.stdout) for word in ("passed", "failed"))
    assert sum(map(int, passed)) == 12
    assert failed == ["1"]


def test_the_tests_that_draw_are_found():
    names = {Path(path).name for path in fuzz.property_tests()}
    assert {"test_any_arguments.py", "test_hostile.py", "test_naive.py"} <= names
    assert "test_launchers.py" not in names
