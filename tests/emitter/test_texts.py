"""CuTe's and Triton's own compilers take the emitted texts, and CuTe's asserts hold."""

import importlib.util
import subprocess
from functools import cache
from pathlib import Path

import pytest
from emitter_sample import PLANS

import tilescope as ts

CUTE_TEXTS, TRITON_TEXTS = 98, 37  # of the plans that have one


@cache
def emitted(target):
    """The text of every plan that has one."""
    found = []
    for plan in PLANS.values():
        try:
            found.append(ts.emit(plan, target))
        except ts.RuleError as error:
            assert error.violations[0].rule == "emit"  # noqa: PT017  a reason, not an accident
    return found


def headers():
    """Folders of CuTe (nvidia-cutlass), the CUDA runtime's headers and CCCL."""
    cutlass, nvidia = (importlib.util.find_spec(name) for name in ("cutlass_library", "nvidia"))
    found = [Path(cutlass.origin).parent / "source" / "include"]
    for root in map(Path, nvidia.submodule_search_locations):
        found += [path.parent for path in sorted(root.glob("*/include/cuda_runtime.h"))]
        found += [path.parent.parent for path in sorted(root.glob("*/include/cccl/cuda/version"))]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, CUTE_TEXTS, 12))
def test_cute_compiles_the_text_and_agrees_with_its_addresses(number, require, tmp_path):
    source, text = tmp_path / "tile.cpp", emitted("cute")[number]
    reader = "tile::Reader" if "using Reader" in text else "int"
    source.write_text(f"{text}\nint main() {{ using Reader = {reader}; }}\n")
    includes = [f"-I{folder}" for folder in headers()]
    subprocess.run([require("gxx"), "-std=c++17", "-w", "-fsyntax-only", *includes, source], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, TRITON_TEXTS, 9))
def test_triton_compiles_the_text_to_the_planned_copies(number, tmp_path, monkeypatch, require):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # unset, Triton 3.9 warns of what 3.10 will do
    require("triton")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.experimental.gluon._runtime import GluonASTSource

    path = tmp_path / "tile.py"
    path.write_text(emitted("triton")[number])
    spec = importlib.util.spec_from_file_location("tile", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    element = {8: "i8", 16: "bf16", 32: "fp32"}[module.SHARED.element_bitwidth]
    block = ",".join(map(str, module.BLOCK))
    signature = {
        "source": f"tensordesc<{element}[{block}],{module.SHARED!r}>",
        "target": f"*{element}",
        "pitch": "i32",
        "columns": "i32",
        "STAGES": "constexpr",
        "BYTES": "constexpr",
        "REGISTERS": "constexpr",
    }
    constants = {"STAGES": module.STAGES, "BYTES": module.BYTES, "REGISTERS": module.REGISTERS}
    source = GluonASTSource(module.copy_tiles, signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert compiled.asm["ptx"].count("cp.async.bulk.tensor") >= module.STAGES + 1


def test_texts_exist_for_most_plans():
    assert len(emitted("cute")) == CUTE_TEXTS
    assert len(emitted("triton")) == TRITON_TEXTS
