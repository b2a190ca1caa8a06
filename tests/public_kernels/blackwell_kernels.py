"""What public kernels for sm_100 give on the machine: whether the product is right, what is found, and what the proof says.

    python tests/public_kernels/blackwell_kernels.py --learn-cuda CHECKOUT --deepgemm CHECKOUT --cache FOLDER [NAME …]

Checkouts are given by path, and nothing is copied from them; CuTe's tutorials come from the nvidia-cutlass wheel. A row for each
kernel is printed. Gluon's tutorials are run by triton_tutorials.py, which needs Triton and torch.
"""

# ruff: noqa: T201  a table is printed

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cuda_launches import CUDA_LAUNCHES

import tilescope as ts


def proof_of(run):
    """The verdict about the pipeline of a run, or why there is none."""
    try:
        return ts.simulate(run.pipeline()).verdict
    except ts.RuleError as error:
        return f"refused: {error.violations[0].found}"


def row_of(launch, folders, cache):
    """Name, result, findings, proof and CPU seconds of one kernel."""
    start = time.process_time()
    try:
        outcome = launch.launch(folders, cache)
    except Exception as error:  # noqa: BLE001  a row of the table says so
        return launch.name, "failed", f"{type(error).__name__}: {error}"[:300], "", time.process_time() - start
    right = all(result.is_right for result in outcome.results)
    found = Counter(f"{finding.severity} {finding.rule}" for run in outcome.runs for finding in run.findings)
    said = ", ".join(f"{count} {what}" for what, count in found.items()) or "none"
    proofs = ", ".join(dict.fromkeys(proof_of(run) for run in outcome.runs))
    return launch.name, "right" if right else "wrong", said, proofs, time.process_time() - start


def main():
    """Print a row for every kernel of sm_100 whose source is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn-cuda", type=Path)
    parser.add_argument("--deepgemm", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "blackwell-kernels")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    folders = {"CUTLASS": None, "learn-cuda": asked.learn_cuda, "DeepGEMM": asked.deepgemm}
    folders = {name: folder for name, folder in folders.items() if name == "CUTLASS" or folder is not None}
    asked.cache.mkdir(parents=True, exist_ok=True)
    print("| kernel | product | findings | proof | CPU s |\n|---|---|---|---|---|")
    for launch in CUDA_LAUNCHES:
        is_named = not asked.names or any(name in launch.name for name in asked.names)
        if launch.arch == "sm_100a" and launch.source in folders and is_named:
            name, product, findings, proof, seconds = row_of(launch, folders, asked.cache)
            print(f"| {launch.source} {name} | {product} | {findings} | {proof} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
