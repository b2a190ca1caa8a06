"""What `explain` says of versions and targets of PTX is what NVIDIA's own tools say: ptxas and cuda.bindings."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from cuda.bindings.utils import get_minimal_required_cuda_ver_from_ptx_ver

from tilescope.symptoms.toolkits import FIRST_PTX, LAST_TOOLKIT, TOOLKIT_OF_PTX

VERSIONS = list(TOOLKIT_OF_PTX)
RENAMED = ("101", "101a", "101f")  # CUDA 13 calls them 110
EVERY_TIME = ("90", "90a", "100a", "103a", "110a", "120a", "121a")
TARGETS = [
    pytest.param(target, marks=[] if target in EVERY_TIME else [pytest.mark.slow])
    for target in FIRST_PTX
    if target not in RENAMED
]


def ptxas():
    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    return next(path for root in roots for path in root.glob("*/bin/ptxas"))


def assembles(version, target, folder):
    source = folder / f"{version}.ptx"
    source.write_text(f".version {version}\n.target sm_{target}\n.address_size 64\n.entry k() {{ ret; }}\n")
    command = [ptxas(), f"-arch=sm_{target}", "-o", folder / "out", source]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_of_ptx_came_with_the_toolkit_that_cuda_bindings_names(version):
    major, minor = map(int, TOOLKIT_OF_PTX[version].split("."))
    assert get_minimal_required_cuda_ver_from_ptx_ver(version) == 1000 * major + 10 * minor


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_a_target_from_its_first_version_of_ptx_on(target, tmp_path):
    first = VERSIONS.index(FIRST_PTX[target])
    assert assembles(VERSIONS[first], target, tmp_path)
    assert first == 0 or not assembles(VERSIONS[first - 1], target, tmp_path)


def test_targets_that_were_dropped_are_not_in_ptxas():
    options = subprocess.run([ptxas(), "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"'sm_(\d+)'", options))
    assert {"75", "90", "120"} <= known
    assert known.isdisjoint(LAST_TOOLKIT)
