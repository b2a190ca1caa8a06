"""The cache of compiled PTX: what is found again, and what is compiled anew."""

import os
import subprocess
import sys

import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.launch import cuda_compiler, ptx_cache

SOURCE = """
#include "factor.h"
extern "C" __global__ void scale(float* a) { a[threadIdx.x] *= FACTOR; }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with scale.cu and include/factor.h, and an empty cache."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "factor.h").write_text("#define FACTOR 2\n")
    (tmp_path / "scale.cu").write_text(SOURCE)
    monkeypatch.setattr(ptx_cache, "find_cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv(ptx_cache.LIMIT_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def compiled(folder, require):
    """Compiles scale.cu: the factor of its kernel, and whether its PTX was cached."""
    require("gxx")
    require("nvcc")

    def compile_scale(*options, arch=None):
        made = cuda_compiler.compile_cuda(folder / "scale.cu", arch=arch, options=["-Iinclude", *options])
        numbers = np.ones(32, np.float32)
        ts.Kernel(made.ptx).run(1, 32, [numbers])
        return numbers[0], made.is_cached

    return compile_scale


@pytest.mark.slow
def test_a_second_compilation_is_found_and_a_changed_header_is_compiled_anew(folder, compiled):
    assert compiled() == (2, False)
    assert compiled() == (2, True)
    (folder / "include" / "factor.h").write_text("#define FACTOR 3\n")
    assert compiled() == (3, False)
    assert compiled() == (3, True)
    (folder / "include" / "factor.h").write_text("#define FACTOR 2\n")
    assert compiled() == (2, True)  # entries of both contents are kept


@pytest.mark.slow
def test_the_source_and_options_are_part_of_the_key(folder, compiled):
    assert compiled() == (2, False)
    assert compiled("-UFACTOR") == (2, False)
    assert compiled(arch="sm_80") == (2, False)
    (folder / "options.txt").write_text("-DADDED=1\n")
    assert compiled("--options-file", "options.txt") == (2, False)
    (folder / "options.txt").write_text("-DADDED=2\n")
    assert compiled("--options-file", "options.txt") == (2, False)
    (folder / "scale.cu").write_text(SOURCE.replace("*= FACTOR", "*= FACTOR + 1"))
    assert compiled() == (3, False)


@pytest.mark.slow
def test_a_header_that_comes_to_lie_before_another_one_is_compiled(folder, compiled):
    assert compiled() == (2, False)
    (folder / "factor.h").write_text("#define FACTOR 5\n")  # in the folder of the source, which is searched first
    assert compiled() == (5, False)
    (folder / "factor.h").unlink()
    assert compiled() == (2, True)
    (folder / "include" / "factor.h").unlink()
    with pytest.raises(ts.RuleError, match=r"factor\.h"):
        compiled()


@pytest.mark.slow
def test_the_variable_switches_the_cache_off(folder, compiled, monkeypatch):
    monkeypatch.setenv(ptx_cache.LIMIT_VARIABLE, "0")
    assert compiled() == (2, False)
    assert compiled() == (2, False)
    assert not (folder / "cache").exists()
    monkeypatch.setenv(ptx_cache.LIMIT_VARIABLE, "much")
    with pytest.raises(ts.RuleError, match=ptx_cache.LIMIT_VARIABLE):
        compiled()


@pytest.mark.slow
def test_options_that_write_files_are_not_cached(folder, compiled):
    for _ in range(2):
        assert compiled("-MD", "-MF", "scale.d") == (2, False)
        (folder / "scale.d").unlink()
    assert not (folder / "cache").exists()


def test_from_cuda_takes_the_cached_text(folder, compiled):
    assert compiled() == (2, False)
    (entry,) = (folder / "cache" / "cuda").iterdir()
    entry.write_text(entry.read_text().replace(".visible .entry scale", ".visible .entry cached"))
    assert ts.Kernel.from_cuda(folder / "scale.cu", options=["-Iinclude"]).entry == "cached"
    entry.write_text("{")  # not an entry: compiled anew
    assert compiled() == (2, False)
    assert compiled() == (2, True)


def compilation(folder, command="nvcc"):
    return ptx_cache.Compilation(source=folder / "scale.cu", compiler="nvcc V1", command=(command,))


LATER_NS = 1 << 62


def test_least_recently_used_entries_are_removed_beyond_the_limit(folder, monkeypatch):
    monkeypatch.setenv(ptx_cache.LIMIT_VARIABLE, "1")
    kept_bytes = 300_000
    names = ["first", "second", "third"]
    for number, name in enumerate(names):
        ptx_cache.cache_ptx(compilation(folder, name), name + " " * kept_bytes, [], LATER_NS)
        for path in (folder / "cache" / "cuda").glob(f"{compilation(folder, name).key}*"):
            os.utime(path, (1000 + number, 1000 + number))
    assert ptx_cache.find_cached_ptx(compilation(folder, "first")) is not None  # now used last
    ptx_cache.cache_ptx(compilation(folder, "fourth"), " " * kept_bytes, [], LATER_NS)
    found = [name for name in (*names, "fourth") if ptx_cache.find_cached_ptx(compilation(folder, name)) is not None]
    assert found == ["first", "third", "fourth"]
    ptx_cache.cache_ptx(compilation(folder, "large"), " " * (2 << 20), [], LATER_NS)  # beyond the limit alone
    assert ptx_cache.find_cached_ptx(compilation(folder, "large")) is None
    assert ptx_cache.find_cached_ptx(compilation(folder, "fourth")) is not None


def test_a_header_written_during_the_compilation_is_not_cached(folder):
    header = folder / "include" / "factor.h"
    ptx_cache.cache_ptx(compilation(folder), "text", [header], header.stat().st_mtime_ns)
    assert ptx_cache.find_cached_ptx(compilation(folder)) is None
    ptx_cache.cache_ptx(compilation(folder), "text", [header], LATER_NS)
    assert ptx_cache.find_cached_ptx(compilation(folder)) == "text"


@pytest.mark.slow
def test_without_a_folder_that_can_be_written_everything_is_compiled(folder, compiled):
    (folder / "cache").write_text("a file where the folder would be")
    assert compiled() == (2, False)
    assert compiled() == (2, False)


WRITER = """
import sys
from pathlib import Path
from tilescope.machine.launch import ptx_cache
folder = Path(sys.argv[1])
ptx_cache.find_cache_folder = lambda: folder / "cache"
for turn in range(60):
    one = ptx_cache.Compilation(source=folder / "scale.cu", compiler="nvcc V1", command=(f"turn {turn % 7}",))
    found = ptx_cache.find_cached_ptx(one)
    assert found in (None, f"{turn % 7}" * 200_000), (turn, len(found))
    ptx_cache.cache_ptx(one, f"{turn % 7}" * 200_000, [], 1 << 62)
"""


def test_several_processes_write_and_remove_at_once(folder):
    environment = os.environ | {ptx_cache.LIMIT_VARIABLE: "1"}  # five of the seven entries fit
    command = [sys.executable, "-c", WRITER, str(folder)]
    writers = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [writer.communicate()[1] for writer in writers] == ["", "", ""]
    assert not [path for path in (folder / "cache" / "cuda").iterdir() if path.suffix != ".json"]
