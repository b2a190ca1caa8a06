"""What all tests share: how hypothesis draws, which cases run, `require`, `wording`, and a folder for `cards`."""

import collections
import difflib
import faulthandler
import gc
import importlib.util
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A commit has one verdict: no case depends on chance, on the clock or on what an earlier run found. fuzz.py asks for others.
FIXED = settings(
    derandomize=True, deadline=None, database=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("fixed", FIXED)
settings.register_profile("thinned", FIXED, max_examples=15)
settings.register_profile("thorough", FIXED, max_examples=200)
settings.register_profile(
    "fuzz", deadline=None, database=None, suppress_health_check=list(HealthCheck), max_examples=300, print_blob=True
)
settings.load_profile("fixed")

FUZZ_UNTIL = "TILESCOPE_FUZZ_UNTIL"  # set by fuzz.py

# What some tests need beside the environment of ./test: the programs or the module that serve, and what brings them.
PIECES = {
    "browser": (("chromium", "chromium-browser", "google-chrome"), "apt-get install -y chromium"),
    "cutlass": (("cutlass_library",), "pip install nvidia-cutlass"),
    "gxx": (("g++",), "apt-get install -y g++"),
    "jupyter": (("nbclient",), "pip install nbclient ipykernel"),
    "mkdocs": (("mkdocs",), "pip install mkdocs-material"),
    "numba": (("numba",), "pip install numba"),
    "nvcc": (("nvcc",), "pip install nvidia-cuda-nvcc nvidia-cuda-cccl"),
    "nvrtc": (("cuda.bindings.nvrtc",), "pip install cuda-bindings nvidia-cuda-nvrtc"),
    "triton": (("triton",), "pip install triton"),
}
REQUIRED = set(filter(None, os.environ.get("TILESCOPE_REQUIRE", "").split(",")))


SECONDS_OF_A_FILE = float(os.environ.get("TILESCOPE_SECONDS_OF_A_FILE", "600"))  # a test sets it
OWN_STDERR = pytest.StashKey[int]()  # the run's own, which pytest keeps while a test is captured


def pytest_configure(config):
    config.stash[OWN_STDERR] = os.dup(sys.__stderr__.fileno())
    for extent in ("thinned", "thorough"):
        if config.getoption(f"--{extent}"):
            settings.load_profile(extent)
    if unknown := REQUIRED - PIECES.keys():
        raise pytest.UsageError(f"TILESCOPE_REQUIRE names {', '.join(sorted(unknown))}; known: {', '.join(PIECES)}")
    if config.getoption("--update-wording") and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-wording writes files: add -n 0, so that one process does")


gc.disable()  # nothing that is made while tests are collected goes away again


def pytest_collection_finish():
    gc.freeze()  # so that no later round of the garbage collector walks through thousands of tests
    gc.enable()
    gc.set_threshold(
        200_000
    )  # objects between two rounds: what a test makes goes with it, and rounds cost a fourteenth of the run


def pytest_addoption(parser):
    parser.addoption(
        "--thinned",
        action="store_true",
        help=f"every eighth case of {MANY_CASES} and more, every nth of `thinned` tests; few cases of the property tests",
    )
    parser.addoption("--thorough", action="store_true", help="more cases of the property tests; of `sampled` ones some")
    parser.addoption("--update-wording", action="store_true", help="write what messages say into tests/wording")
    parser.addoption("--every-case", action="store_true", help="with --thorough: every case of the `sampled` tests too")


# Under --thinned a test with so many cases runs with every eighth of them; recordings of the card are whole. A test of
# cases that take long, recorded or not, is marked `thinned(n)`: it runs with the first of every n.
MANY_CASES = 16
THINNED_TO = 8


def is_sampled_out(config, item, slow_number):
    """Whether a slow case is not run: of a test marked `sampled(n)` --thorough alone runs every nth of them."""
    mark = item.get_closest_marker("sampled")
    is_sample = config.getoption("--thorough") and not config.getoption("--every-case")
    return mark and is_sample and slow_number % mark.args[0]


def one_case_of(item, count):
    """Of how many cases of a test, which has `count` of them, --thinned runs one."""
    mark = item.get_closest_marker("thinned")
    is_many = count >= MANY_CASES and "recordings" not in item.path.name
    return max(mark.args[0] if mark else 1, THINNED_TO if is_many else 1)


def is_left_out(config, item, number, count):
    """Whether case `number` of the `count` cases of a test is not run."""
    return config.getoption("--thinned") and number % one_case_of(item, count)


def thin_out(config, items):
    """Leave the cases out that this run does not need."""
    cases = collections.defaultdict(list)
    for item in items:
        cases[item.nodeid.partition("[")[0]].append(item)
    left_out = {
        item
        for same in cases.values()
        for number, item in enumerate(same)
        if is_left_out(config, item, number, len(same))
    }
    for same in cases.values():
        slow = [item for item in same if item.get_closest_marker("slow")]
        left_out |= {item for number, item in enumerate(slow) if is_sampled_out(config, item, number)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))


def pytest_collection_modifyitems(config, items):
    thin_out(config, items)
    if FUZZ_UNTIL in os.environ:  # a round may end early: its seed decides which tests come first
        random.Random(config.getoption("--hypothesis-seed")).shuffle(items)


@pytest.fixture(scope="module", autouse=True)
def hangs_are_shown(pytestconfig):
    """A file that takes ten minutes says where it is. pytest's own option starts a thread for every single test."""
    faulthandler.dump_traceback_later(SECONDS_OF_A_FILE, file=pytestconfig.stash[OWN_STDERR])
    yield
    faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup():
    if time.time() > float(os.environ.get(FUZZ_UNTIL, "inf")):
        pytest.skip("the time of this run is over")


def module_path(name):
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the package that it would lie in
        return None
    return spec and spec.origin


def of_nvidia(name):
    """A program that one of NVIDIA's packages brings."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(root) for root in spec.submodule_search_locations] if spec else []
    return next((str(path) for place in places for path in place.glob(f"*/bin/{name}")), None)


@pytest.fixture(scope="session")
def require():
    """`require("browser")` is the path of the program or module that serves; where there is none, the test is
    skipped, or fails if TILESCOPE_REQUIRE names the piece.
    """

    def program(piece):
        names, command = PIECES[piece]
        path = next(filter(None, (shutil.which(name) or module_path(name) or of_nvidia(name) for name in names)), None)
        if path is None:
            (pytest.fail if piece in REQUIRED else pytest.skip)(f"{piece} is missing: {command}")
        return path

    return program


@pytest.fixture(scope="session")
def golden():
    """The module that reads and writes tests/wording."""
    spec = importlib.util.spec_from_file_location("wording_golden", Path(__file__).parent / "wording" / "golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def wording(request, golden):
    """`wording(name, text)` compares a text with the entry `name` of the package's golden file in tests/wording; the
    package is the folder of the test. --update-wording writes the entry instead.
    """
    parts = request.path.relative_to(Path(__file__).parent).parts
    folder = parts[0] if len(parts) > 1 else "tilescope"

    def compare(name, text, package=folder):
        told = golden.stored(str(text))
        texts = golden.golden_texts(package)
        if request.config.getoption("--update-wording"):
            if texts.get(name) != told:
                golden.write_golden_texts(package, texts | {name: told})
        elif name not in texts:
            pytest.fail(f"tests/wording/{package}.txt has no {name}: add it with --update-wording", pytrace=False)
        elif texts[name] != told:
            lines = difflib.ndiff(texts[name].splitlines(), told.splitlines())
            pytest.fail(f"{name} of tests/wording/{package}.txt:\n" + "\n".join(lines), pytrace=False)

    return compare


def cute_headers():
    """Folders of CuTe (nvidia-cutlass), the CUDA runtime's headers and CCCL (nvidia-cuda-runtime, nvidia-cuda-cccl)."""
    cutlass, nvidia = (importlib.util.find_spec(name) for name in ("cutlass_library", "nvidia"))
    found = [Path(cutlass.origin).parent / "source" / "include"] if cutlass else []
    for root in map(Path, nvidia.submodule_search_locations if nvidia else []):
        found += [path.parent for path in sorted(root.glob("*/include/cuda_runtime.h"))]
        found += [path.parent.parent for path in sorted(root.glob("*/include/cccl/cuda/version"))]
    return found


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """An empty folder for the user's own cards."""
    from tilescope.card import saved

    monkeypatch.setattr(saved, "cards_folder", lambda: tmp_path / "cards")
    return tmp_path / "cards"


@pytest.fixture
def printed_by_cute(require, tmp_path):
    """`printed_by_cute(source)`: the lines that a C++ file prints, built with g++ and NVIDIA's CuTe headers."""

    def lines(source):
        compiler, folders = require("gxx"), cute_headers()
        assert len(folders) >= 3, (
            "CuTe's headers are missing: ./test installs nvidia-cutlass, nvidia-cuda-runtime, -cccl and -crt"
        )
        program = tmp_path / source.stem
        includes = [f"-I{folder}" for folder in folders]
        subprocess.run([compiler, "-std=c++17", "-w", *includes, source, "-o", program], check=True)
        return subprocess.check_output([program], text=True).splitlines()

    return lines
