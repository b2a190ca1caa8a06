"""Compile the kernels of this folder: PTX to be kept beside them, and a folder that records them on a card.

    python build.py FOLDER      needs nvcc (the nvidia-cuda-nvcc wheel) and tilescope; no card

NAME.ptx is written here, without debug sections and without paths. FOLDER gets NAME.cubin, launches.json and the recorder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import launches

HERE = Path(__file__).parent
MACHINE_TESTS = HERE.parents[1] / "machine"


def cuda_root():
    import importlib.util

    roots = map(Path, importlib.util.find_spec("nvidia").submodule_search_locations)
    return next(path.parent.parent for root in roots for path in root.glob("*/bin/nvcc"))


def compiled(kind, source, target, output):
    """Compile one source; paths are relative, so that none of this machine gets into the text."""
    root = cuda_root()
    flags = ["-std=c++17", f"-arch={target}", "-lineinfo", f"-I{root / 'include' / 'cccl'}"]
    flags += launches.FLAGS.get(source.stem, [])
    environment = os.environ | {"PATH": f"{root / 'bin'}:{os.environ['PATH']}"}
    command = [root / "bin" / "nvcc", *flags, kind, "-o", output, source.name]
    done = subprocess.run(command, cwd=source.parent, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{source.name}: {done.stdout}{done.stderr}")


def assembled(source, target, output):
    """Assemble a PTX text."""
    subprocess.run([cuda_root() / "bin" / "ptxas", f"-arch={target}", "-o", output, source], check=True)


def plain(text):
    """PTX without debug sections, with the last part of every path."""
    text = re.sub(r"^\s*\.section\s+\S+\s*\{.*?^\s*\}\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", text)
    text = re.sub(r'(\.file\s+\d+\s+"[^"]*"),[^\n]*', r"\1", text)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def made(name, source, launch, folder):
    is_sm_80 = launch.get("arch") == "sm_90"
    ptx = folder / f"{name}.ptx"
    compiled("-ptx", source, "sm_80" if is_sm_80 else "sm_90a", ptx)
    (HERE / f"{name}.ptx").write_text(plain(ptx.read_text()))
    ptx.unlink()
    compiled("-cubin", source, "sm_90" if is_sm_80 else "sm_90a", folder / f"{name}.cubin")


def main(folder):
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    found = {name: (HERE / f"{name}.cu", launch) for name, launch in launches.LAUNCHES.items()}
    for name, (text, launch) in launches.emitted().items():
        source = folder / f"{name}.cu"  # written anew, from the plan
        source.write_text(text)
        found[name] = (source, launch)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda item: made(item[0], *item[1], folder), found.items()))
    (folder / "launches.json").write_text(json.dumps({name: launch for name, (_, launch) in found.items()}, indent=1))
    shutil.copy(HERE / "record.py", folder)
    shutil.copy(MACHINE_TESTS / "kernel_arrays.py", folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
