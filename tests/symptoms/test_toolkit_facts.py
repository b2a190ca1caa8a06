"""What `explain` says of versions and targets of PTX is what NVIDIA's own tools say: ptxas and cuda.bindings."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest
from cuda.bindings.utils import get_minimal_required_cuda_ver_from_ptx_ver

from tilescope.symptoms import diagnose
from tilescope.symptoms.toolkits import FIRST_PTX, LAST_TOOLKIT, TOOLKIT_OF_PTX

VERSIONS = list(TOOLKIT_OF_PTX)
RENAMED = ("101", "101a", "101f")  # CUDA 13 calls them 110
EVERY_TIME = ("90", "90a", "100a", "103a", "110a", "120a", "121a")
TARGETS = [
    pytest.param(target, marks=[] if target in EVERY_TIME else [pytest.mark.slow])
    for target in FIRST_PTX
    if target not in RENAMED
]

REGISTERS = (
    ".reg .b64 %d<2>; .reg .b32 %r<2>; .shared .align 128 .b8 tile[512]; ld.param.u64 %d1, [map]; mov.u32 %r1, tile;"
)
ROWS = "{%r1, %r1, %r1, %r1, %r1}"
INSTRUCTIONS = {
    "scatter4": f"cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d1, {ROWS}], [%r1];",
    "gather4 to .shared::cluster": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes "
        f"[%r1], [%d1, {ROWS}], [%r1];"
    ),
    "tensormap.replace": "tensormap.replace.tile.global_address.global.b1024.b64 [%d1], %d1;",
    "wgmma": "wgmma.fence.sync.aligned;",
    "tcgen05": "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
    "cta_group": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 "
        "[%r1], [%d1, {%r1, %r1}], [%r1];"
    ),
}


def ptxas():
    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    return next(path for root in roots for path in root.glob("*/bin/ptxas"))


def refusal(version, target, folder, instruction=""):
    """What ptxas says of a kernel with this instruction; nothing where it assembles."""
    source = folder / "kernel.ptx"
    source.write_text(
        f".version {version}\n.target sm_{target}\n.address_size 64\n"
        f".entry k(.param .u64 map) {{\n{REGISTERS}\n{instruction}\nret; }}\n"
    )
    command = [ptxas(), f"-arch=sm_{target}", "-o", folder / "out", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_of_ptx_came_with_the_toolkit_that_cuda_bindings_names(version):
    major, minor = map(int, TOOLKIT_OF_PTX[version].split("."))
    assert get_minimal_required_cuda_ver_from_ptx_ver(version) == 1000 * major + 10 * minor


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_takes_a_target_from_its_first_version_of_ptx_on(target, tmp_path):
    first = VERSIONS.index(FIRST_PTX[target])
    assert not refusal(VERSIONS[first], target, tmp_path)
    assert first == 0 or refusal(VERSIONS[first - 1], target, tmp_path)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("feature", INSTRUCTIONS)
def test_what_ptxas_refuses_is_explained_with_a_target_that_ptxas_takes(feature, tmp_path):
    """The line itself goes to explain, and what is then told to compile for does assemble."""
    for number in ("90", "100", "120", "121"):
        line = refusal("9.0", number, tmp_path, INSTRUCTIONS[feature]).splitlines()[0]
        (said,) = (sentence for sentence in diagnose(line).arithmetic if sentence.startswith(f"{feature} exists for"))
        advised = re.search(r"compile for sm_(\w+)\.", said)
        exact = f"{number}a"
        assert bool(advised) is not bool(refusal("9.0", exact, tmp_path, INSTRUCTIONS[feature])), said
        assert not advised or advised[1] == exact


def test_targets_that_were_dropped_are_not_in_ptxas():
    options = subprocess.run([ptxas(), "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"'sm_(\d+)'", options))
    assert {"75", "90", "120"} <= known
    assert known.isdisjoint(LAST_TOOLKIT)
