"""Kernels for the driver, where Triton is installed, and a cache of compiled kernels for each test run."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
collect_ignore = ["driver_kernels.py"]  # imports Triton


@pytest.fixture(scope="session")
def kernels(require, tmp_path_factory):
    """The kernels of driver_kernels.py; compiled ones are kept for this run of the tests."""
    require("triton")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns where it is unset
        path = Path(__file__).parent / "driver_kernels.py"
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        yield module
