"""verify --environment: versions, cards and extras, told without a card and without starting anything on one."""

import ctypes.util
import json
import subprocess
import sys

import pytest

from tilescope import __version__
from tilescope.cli import run
from tilescope.extras import EXTRAS
from tilescope.gpu.driver import environment as environment_module
from tilescope.gpu.driver.environment import Environment, environment
from tilescope.gpu.driver.nvml import NvmlCard, NvmlFacts, nvml_facts
from tilescope.value import Value

STAND_IN = r"""
#include <string.h>
typedef void *device;
static int started = 0;
int nvmlInit_v2(void) { started = 1; return INIT_RESULT; }
int nvmlShutdown(void) { started = 0; return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned room) { strncpy(text, "580.159.04", room); return !started; }
int nvmlSystemGetCudaDriverVersion_v2(int *number) { *number = 13020; return !started; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return !started; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *card) { *card = (device)(long)(index + 1); return index > 1; }
int nvmlDeviceGetName(device card, char *text, unsigned room) {
    strncpy(text, card == (device)1 ? "NVIDIA H200" : "NVIDIA B200", room);
    return 0;
}
int nvmlDeviceGetCudaComputeCapability(device card, int *major, int *minor) {
    *major = card == (device)1 ? 9 : 10;
    *minor = 0;
    return 0;
}
"""
TWO_CARDS = NvmlFacts("580.159.04", "13.2", (NvmlCard("NVIDIA H200", "sm_90"), NvmlCard("NVIDIA B200", "sm_100")))


def stand_in_library(folder, init_result):
    source = folder / "nvml.c"
    library = folder / "libnvml-stand-in.so"
    source.write_text(STAND_IN.replace("INIT_RESULT", str(init_result)))
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def test_the_driver_is_asked_by_its_management_library(require, tmp_path):
    require("gxx")
    assert nvml_facts(stand_in_library(tmp_path, init_result=0)) == TWO_CARDS


def test_a_driver_that_does_not_start_is_no_driver(require, tmp_path):
    require("gxx")
    assert nvml_facts(stand_in_library(tmp_path, init_result=9)) is None


def test_a_library_of_another_kind_is_no_driver():
    assert nvml_facts("no-such-library.so") is None
    assert nvml_facts(ctypes.util.find_library("c") or "libc.so.6") is None


@pytest.fixture
def without_card(monkeypatch):
    monkeypatch.setattr(environment_module, "nvml_facts", lambda: None)
    monkeypatch.setattr(environment_module, "find_nvcc", lambda: None)


@pytest.mark.usefixtures("without_card")
def test_a_machine_without_card_and_compiler_is_told_and_is_no_failure(capsys):
    assert run(["verify", "--environment"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert f"tilescope {__version__} on Python {sys.version.split()[0]}" in shown.out.splitlines()[0]
    assert "no NVIDIA card" in shown.out.splitlines()[0]
    for name in ("NVIDIA driver", "CUDA of the driver", "CUDA toolkit", "nvcc"):
        assert f"\n{name} " in shown.out
    assert shown.out.count("not found") >= 4


def test_cards_and_driver_are_told(monkeypatch, capsys):
    monkeypatch.setattr(environment_module, "nvml_facts", lambda: TWO_CARDS)
    assert run(["verify", "--environment", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(card["name"], card["arch"]) for card in told["cards"]] == list(TWO_CARDS.cards)
    assert "NVIDIA H200 and NVIDIA B200" in told["answer"]
    found = Value.from_dict(told)
    assert isinstance(found, Environment)
    releases = {each.name: each.release for each in found.software}
    assert (releases["NVIDIA driver"], releases["CUDA of the driver"]) == ("580.159.04", "13.2")


def test_installed_and_missing_packages_of_extras_are_told_apart(monkeypatch, capsys):
    real = environment_module.package_version
    monkeypatch.setattr(
        environment_module, "package_version", lambda name: None if name == "uvicorn" else real(name) or "1.0"
    )
    found = environment()
    assert [extra.name for extra in found.extras] == [extra.name for extra in EXTRAS]
    assert [extra.name for extra in found.extras if not extra.is_installed] == ["web"]
    assert run(["verify", "--environment", "-q"]) == 0
    assert "extras missing: web." in capsys.readouterr().out


def test_a_toolkit_says_its_version_and_its_nvrtc(monkeypatch, tmp_path):
    monkeypatch.setattr(environment_module, "package_version", lambda _: None)
    monkeypatch.setattr(environment_module, "find_nvcc", lambda: tmp_path / "bin" / "nvcc")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n")
    (tmp_path / "bin" / "nvcc").chmod(0o755)
    (tmp_path / "version.json").write_text('{"cuda": {"name": "CUDA SDK", "version": "13.0.2"}}')
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.13.0.88").touch()
    releases = {each.name: each.release for each in environment().software}
    assert (releases["CUDA toolkit"], releases["nvcc"], releases["NVRTC"]) == ("13.0.2", "V13.0.88", "13.0.88")
    (tmp_path / "version.json").write_text("[]")  # not a toolkit's
    assert {each.name: each.release for each in environment().software}["CUDA toolkit"] is None


def test_no_suite_runs_beside_it(capsys):
    for others in (["loads"], ["--count", "3"], ["--save", "a.npz"]):
        assert run(["verify", "--environment", *others]) == 2
        assert "--environment runs nothing" in capsys.readouterr().err


def test_nothing_heavy_is_loaded():
    names = ["cuda", "numba", "triton", "torch", "starlette"]
    program = "import sys\nfrom tilescope.gpu.driver.environment import environment\nenvironment()\n"
    program += f"print([name for name in {names} if name in sys.modules])"
    said = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert said == "[]\n"
