"""Builds of the injection library and of the stand-ins for driver and CUPTI, and `tilescope watch` over them."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tilescope import cli
from tilescope.gpu.watch.watch_build import Cupti, build_library, find_cupti
from tilescope.tensor_map import Im2colMap, TensorMap

HERE = Path(__file__).parent
WARNINGS = ["-Wall", "-Wextra", "-Wshadow", "-Wvla", "-Werror"]
SANITIZERS = {
    "plain": [],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"],
    "thread": ["-fsanitize=thread"],
}
SANITIZER_FOUND = 99  # exit status
OPTIONS = {
    "ASAN_OPTIONS": f"exitcode={SANITIZER_FOUND}:detect_leaks=0",  # finding leaks needs ptrace, which sandboxes forbid
    "UBSAN_OPTIONS": f"exitcode={SANITIZER_FOUND}:print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={SANITIZER_FOUND}:halt_on_error=1",
}
TILED = TensorMap("bf16", (4096, 4096), (8192,), (64, 64), swizzle="128B", l2_promotion="128B", address=0x1000)
IM2COL = Im2colMap(
    *("f16", (64, 9, 14, 64), (128, 1152, 16128)),
    lower_corner=(-1, -1),
    upper_corner=(-1, -1),
    channels_per_pixel=8,
    pixels_per_column=64,
    address=0x2000,
)
# what the stand-in driver writes where it accepts: the driver's own bytes, of which recordings were kept
WRITTEN = {
    "STANDIN_cuTensorMapEncodeTiled": TILED.encode().hex(),
    "STANDIN_cuTensorMapEncodeIm2col": IM2COL.encode().hex(),
    "STANDIN_cuTensorMapReplaceAddress": TILED.replace(address=0x4000).encode().hex(),
}


@dataclass(frozen=True)
class Build:
    """A compiler's command, a toolkit whose CUPTI is the stand-in, and the program that makes calls."""

    sanitizer: str
    compiler: list[str]
    toolkit: Path
    program: Path
    cupti: Cupti

    @property
    def driver(self):
        return self.toolkit / "lib64" / "libcuda.so.1"

    @property
    def environment(self):
        return os.environ | OPTIONS | WRITTEN | {"CC": " ".join(self.compiler), "CUDA_HOME": str(self.toolkit)}

    def command(self, *words):
        """The program with these words; ThreadSanitizer wants addresses that are not random."""
        prefix = ["setarch", "-R"] if self.sanitizer == "thread" and can_keep_addresses() else []
        return [*prefix, str(self.program), *words]

    def preloaded(self):
        """What a program that is not instrumented has to load first."""
        if self.sanitizer == "plain":
            return {}
        name = {"address": "libasan.so", "thread": "libtsan.so"}[self.sanitizer]
        return {
            "LD_PRELOAD": subprocess.check_output([self.compiler[0], f"-print-file-name={name}"], text=True).strip()
        }


@pytest.fixture(
    params=["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in SANITIZERS if name != "plain")]
)
def sanitizer(request):
    return request.param


def can_keep_addresses():
    tool = shutil.which("setarch")
    return tool is not None and not subprocess.run([tool, "-R", "true"], capture_output=True, check=False).returncode


@pytest.fixture(scope="session")
def build(require, tmp_path_factory):
    """`build("address")`: the stand-ins and the program, instrumented; made once."""
    require("gxx")  # Debian's g++ brings gcc and the sanitizers
    made = {}

    def make(sanitizer):
        if sanitizer not in made:
            made[sanitizer] = _build(sanitizer, tmp_path_factory.mktemp(sanitizer))
        return made[sanitizer]

    return make


def _build(sanitizer, folder):
    toolkit, headers = folder / "cuda", find_cupti().includes
    libraries = toolkit / "lib64"
    libraries.mkdir(parents=True)
    for number, path in enumerate(headers):
        (toolkit / "targets" / str(number)).mkdir(parents=True)
        (toolkit / "targets" / str(number) / "include").symlink_to(path)
    compiler = ["gcc", *WARNINGS, *SANITIZERS[sanitizer]]
    flags = ["-std=gnu11", "-g", "-O1", "-fPIC", "-pthread", *(f"-isystem{path}" for path in headers)]
    parts = {
        libraries / "libcupti.so": ["-shared", HERE / "standin_cupti.c"],
        libraries / "libcuda.so.1": ["-shared", "-Wl,-soname,libcuda.so.1", HERE / "standin_driver.c", "-ldl"],
        folder / "calls": [HERE / "calls.c", libraries / "libcuda.so.1", f"-Wl,-rpath,{libraries}"],
    }
    for path, words in parts.items():
        subprocess.run([*compiler, *flags, "-o", path, *words], check=True)
    cupti = Cupti(tuple(sorted((toolkit / "targets").glob("*/include"))), libraries / "libcupti.so")
    return Build(sanitizer, compiler, toolkit, folder / "calls", cupti)


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def library(build, cache, monkeypatch):
    """`library("thread")`: the injection library, built as tilescope builds it but for the compiler's options."""

    def make(sanitizer):
        made = build(sanitizer)
        monkeypatch.setenv("CC", " ".join(made.compiler))
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        return build_library(made.cupti)

    return make


@dataclass
class Watched:
    """What a program under watch did, and what was told of it."""

    status: int
    stdout: str
    stderr: str
    maps: list[dict]
    told: list[dict] = field(default_factory=list)

    @property
    def summary(self):
        return self.told[-1]

    @property
    def states(self):
        return [each["state"] for each in self.maps]

    def rules(self, number):
        return [each["rule"] for each in self.maps[number]["violations"]]

    def total(self, name):
        return sum(each[name] for each in self.summary["maps"])


@contextmanager
def streams_in(folder):
    """What this process and the programs that it starts write goes into the files `stdout` and `stderr` of a folder."""
    kept = [os.dup(number) for number in (1, 2)]
    with (
        (folder / "stdout").open("w") as stdout,
        (folder / "stderr").open("w") as stderr,
        redirect_stdout(stdout),
        redirect_stderr(stderr),
    ):
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        try:
            yield
        finally:
            for number, before in enumerate(kept, 1):
                os.dup2(before, number)
                os.close(before)


def ended_in_process(words, environment, folder):
    """Exit status and streams of `tilescope watch` in this process, which is sooner than a process of its own."""
    with pytest.MonkeyPatch.context() as patch, streams_in(folder):
        for name, value in environment.items():
            patch.setenv(name, value)
        status = cli.run(words)
    return status, (folder / "stdout").read_text(), (folder / "stderr").read_text()


def ended_alone(words, environment):
    """The same of a process of its own."""
    line = [sys.executable, "-m", "tilescope", *words]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=600, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def watch(build, cache, tmp_path):
    """Runs `tilescope watch --json` over the stand-ins, in this process unless `alone`; a sanitizer's finding fails."""

    def run(*words, sanitizer="plain", options=("--json",), command=None, alone=False, **environment):
        made, maps = build(sanitizer), tmp_path / "maps.jsonl"
        line = ["watch", *options, "--out", str(maps), "--", *(command(made) if command else made.command(*words))]
        around = made.environment | {"XDG_CACHE_HOME": str(cache)} | environment
        status, stdout, stderr = ended_alone(line, around) if alone else ended_in_process(line, around, tmp_path)
        assert "Sanitizer" not in stderr, stderr
        assert status != SANITIZER_FOUND, stderr
        lines = [json.loads(each) for each in maps.read_text().splitlines()] if maps.exists() else []
        told = [json.loads(each) for each in stderr.splitlines()] if "--json" in options else []
        return Watched(status, stdout, stderr, lines, told)

    return run
