"""Triton's own tutorials under tilescope's driver: their checks, without a GPU.

    python tests/public_kernels/triton_tutorials.py path/to/triton/python/tutorials [01-vector-add …]

The tutorials are given by path, and not copied into this repository. Each runs in a temporary folder with the sizes below in
place of its own, since a machine without a card is slower; everything else is as it is, except for one wait (WAIT_BEFORE_REFILL).
A row of the table that is printed has the time, the launches, the findings, and whether the tutorial's own checks passed. Triton
(3.6 to 3.9) and torch's CPU build are needed; the texts of the patches are those of Triton 3.7, of the tutorials from gluon/12 on
those of 3.9.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

SECONDS = 3600


@dataclass(frozen=True)
class Patch:
    """A size of a tutorial, and the one that it is run with."""

    before: str
    after: str


@dataclass(frozen=True)
class Tutorial:
    """A file of the tutorials, how it is run, and its patches."""

    file: str
    patches: tuple[Patch, ...] = ()
    is_pytest: bool = False  # its checks are test functions
    arch: str = "sm_90"
    allow: tuple[str, ...] = ()  # findings that docs/running.md and docs/blackwell.md argue one by one
    fails_with: str = "❌"  # what a failed check prints, where it does not raise

    @property
    def name(self) -> str:
        return self.file.removesuffix(".py")


GLUON_ADD = (
    Patch('"xnumel, ynumel", [(1000, 2000), (4000, 120)]', '"xnumel, ynumel", [(100, 200), (150, 120)]'),
    Patch('"num_buffers", [1, 2, 3]', '"num_buffers", [1, 3]'),
)
# 13 has one buffer of A and of B, and fills it again before the products of the round before have ended: run-refill, and on the
# machine a wrong convolution. So this one text is mended, not only its sizes.
WAIT_BEFORE_REFILL = Patch(
    "        ci_block, rs_idx = k_iter % ci_num_blocks",
    "        mma = mma.wait_num_outstanding(0)\n        ci_block, rs_idx = k_iter % ci_num_blocks",
)
TUTORIALS = (
    Tutorial("01-vector-add.py"),
    Tutorial("02-fused-softmax.py", (Patch("torch.randn(1823, 781", "torch.randn(37, 781"),)),
    Tutorial("03-matrix-multiplication.py", (Patch("(512, 512)", "(256, 256)"),)),
    Tutorial(
        "05-layer-norm.py",
        (
            Patch("test_layer_norm(1151, 8192, torch.float16)", "test_layer_norm(151, 512, torch.float16)"),
            Patch("torch.nn.functional.layer_norm(x, w_shape, weight, bias, eps).to(dtype)\n    # backward",
                  "torch.nn.functional.layer_norm(x.float(), w_shape, weight.float(), bias.float(), eps).to(dtype)\n    # backward"),
        ),
        allow=("run-race@05-layer-norm.py:182",),
    ),
    Tutorial(
        "06-fused-attention.py",
        (
            Patch('parametrize("Z", [1, 4])', 'parametrize("Z", [1])'),
            Patch('parametrize("H", [2, 48])', 'parametrize("H", [2])'),
            Patch('parametrize("N_CTX", [128, 1024, (2 if is_hip() else 4) * 1024])', 'parametrize("N_CTX", [256])'),
            Patch('parametrize("HEAD_DIM", [64, 128])', 'parametrize("HEAD_DIM", [64])'),
        ),
        is_pytest=True,
        allow=("run-accumulators@06-fused-attention.py:305",),
    ),
    Tutorial(
        "08-grouped-gemm.py",
        tuple(Patch(f"group_{axis} = [1024, 512, 256, 128]", f"group_{axis} = [256, 128, 384, 128]") for axis in "mnk"),
    ),
    Tutorial(
        "09-persistent-matmul.py",
        (
            Patch("validate(8192, 8192, args.K_range[0], dtype)", "validate(256, 384, 128, dtype)"),
            Patch("reps=10000, warmup_reps=10000", "reps=1, warmup_reps=0"),
            Patch("    M = 8192\n    N = 8192\n", "    M = 128\n    N = 256\n"),
            Patch('"-K", type=int, required=False, default=512', '"-K", type=int, required=False, default=128'),
        ),
        allow=("run-barrier-lifetime@09-persistent-matmul.py:495",),
    ),
    Tutorial("11-programmatic-dependent-launch.py"),
    Tutorial("gluon/01-intro.py", is_pytest=True),
    Tutorial("gluon/02-layouts.py", (
        Patch('"xnumel, ynumel", [(100, 2000), (1000, 200)]', '"xnumel, ynumel", [(100, 300), (300, 100)]'),
    ), is_pytest=True),
    Tutorial("gluon/03-async-copy.py", (
        Patch('"xnumel, ynumel", [(1000, 2000)]', '"xnumel, ynumel", [(100, 200)]'), *GLUON_ADD,
    ), is_pytest=True),
    Tutorial("gluon/04-tma.py", GLUON_ADD, is_pytest=True),
    Tutorial("gluon/05-wgmma.py", (
        Patch("[(208, 416, 304), (2000, 1000, 2000)]", "[(136, 152, 304)]"),
    ), is_pytest=True),
    Tutorial("gluon/07-persistence.py", (
        Patch('"M, N, K", [(2000, 1000, 2000)]', '"M, N, K", [(200, 304, 200)]'),
        Patch("[(208, 416, 304), (2000, 1000, 2000)]", "[(136, 152, 304)]"),
    ), is_pytest=True),
    Tutorial("gluon/08-warp-specialization.py", (
        Patch('"xnumel, ynumel", [(1000, 2000), (4000, 120)]', '"xnumel, ynumel", [(100, 200), (150, 120)]'),
    ), is_pytest=True),
    Tutorial("gluon/08-warp-specialization.py", (
        Patch('"xnumel, ynumel", [(1000, 2000), (4000, 120)]', '"xnumel, ynumel", [(100, 200), (150, 120)]'),
        Patch("[(208, 416, 304), (2000, 1000, 2000)]", "[(200, 304, 200)]"),
    ), is_pytest=True, arch="sm_100"),
    Tutorial("gluon/06-tcgen05.py", (
        Patch('parametrize("M", [64, 128, 256])', 'parametrize("M", [64, 128])'),
        Patch('parametrize("N", [64, 128])', 'parametrize("N", [64])'),
        Patch("[(128, 128, 128), (64, 128, 128), (64, 256, 256), (256, 64, 64)]", "[(128, 128, 128), (64, 128, 128)]"),
        Patch("[(208, 416, 304), (2000, 1000, 2000)]", "[(136, 152, 304)]"),
    ), is_pytest=True, arch="sm_100"),
    Tutorial("gluon/10-tcgen05-copy.py", (
        Patch("[1, 2, 4, 8, 16, 32, 64, 128, 256]:", "[2, 32, 128]:"),
        Patch("[(1024, 1024, 2048), (4096, 4096, 4096)]", "[(256, 128, 512)]"),
    ), is_pytest=True, arch="sm_100"),
    Tutorial("gluon/11-tcgen05-mma-scaled.py", (
        Patch("[(2048, 2048, 4096)]", "[(128, 256, 512)]"),
        Patch('parametrize("BLOCK_N", [32, 64, 128, 256])', 'parametrize("BLOCK_N", [64, 256])'),
        Patch('parametrize("BLOCK_K", [32, 64, 128, 256, 512])', 'parametrize("BLOCK_K", [256])'),
        Patch('parametrize("BLOCK_N", [128, 256])', 'parametrize("BLOCK_N", [128])'),
        Patch('parametrize("BLOCK_K", [128, 256, 512])', 'parametrize("BLOCK_K", [128])'),
        Patch('parametrize("K", [128, 640, 704, 1152, 4096])', 'parametrize("K", [704])'),
        Patch("[(2048, 2048), (500, 600), (128, 128), (8192, 8192)]", "[(152, 304)]"),
    ), is_pytest=True, arch="sm_100", allow=(
        "run-tmem-order@11-tcgen05-mma-scaled.py:1206",
        "run-block-end@11-tcgen05-mma-scaled.py:1312",
    )),
    Tutorial("gluon/12-cluster-launch-control.py", (
        Patch("[(8192, 8192, 8192), (1000, 1000, 1000)]", "[(296, 296, 200)]"),  # square: the kernel reads its M and N exchanged
    ), is_pytest=True, arch="sm_100"),
    Tutorial("gluon/13-conv-im2col.py", (
        Patch('parametrize("N", [1, 4])', 'parametrize("N", [1])'),
        Patch('parametrize("Ci,Co", [(64, 64), (96, 96)])', 'parametrize("Ci,Co", [(64, 64)])'),
        # torch's own convolution adds float16 in float16 on a CPU
        Patch("conv2d(x_nchw, w_oihw, stride=stride, padding=padding)",
              "conv2d(x_nchw.float(), w_oihw.float(), stride=stride, padding=padding).half()"),
        WAIT_BEFORE_REFILL,
    ), is_pytest=True, arch="sm_100"),
    Tutorial("gluon/14-multicta.py", (
        Patch('"M, N", [(64, 64), (64, 256), (16, 2**16)]', '"M, N", [(64, 64), (16, 2**12)]'),
    ), is_pytest=True, arch="sm_100"),
)  # fmt: skip


def apply_patches(text: str, tutorial: Tutorial) -> str:
    """The text of a tutorial with its sizes replaced; a patch that fits nowhere is an error."""
    for patch in tutorial.patches:
        if patch.before not in text:
            raise SystemExit(f"{tutorial.file} has no {patch.before!r}: its patches are for Triton 3.7")
        text = text.replace(patch.before, patch.after)
    return text


def run_tutorial(folder: Path, tutorial: Tutorial) -> dict[str, object]:
    """Run one tutorial in a copy of its folder, and return a row of the table."""
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "tutorials"
        shutil.copytree(folder, copy)
        file = copy / tutorial.file
        file.write_text(apply_patches(file.read_text(), tutorial))
        command = [sys.executable, "-m", "tilescope", "run", "--json", "--arch", tutorial.arch]
        command += [word for entry in tutorial.allow for word in ("--allow", entry)]
        if tutorial.is_pytest:
            command += ["-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider", "-x", file.name]
        else:
            command += [file.name]
        start = time.perf_counter()
        done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=SECONDS, check=False)
        seconds = time.perf_counter() - start
    try:
        report = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"name": tutorial.name, "failed": done.stderr[-3000:] + done.stdout[-1000:]}
    findings = Counter(
        f"{finding['severity']} {finding['rule']}" for kernel in report["kernels"] for finding in kernel["findings"]
    )
    is_failed = done.returncode != 0 or tutorial.fails_with in done.stderr
    return {
        "name": tutorial.name,
        "arch": tutorial.arch,
        "launches": report["launches"],
        "warp instructions": report["warp_instructions"],
        "kernel seconds": round(report["seconds"], 1),
        "seconds": round(seconds, 1),
        "findings": dict(findings),
        "passed": not is_failed,
        "output": done.stderr[-6000:] if is_failed else done.stderr[-300:],
        "details": [
            {
                "kernel": kernel["name"],
                "rule": finding["rule"],
                "severity": finding["severity"],
                "found": finding["found"],
            }
            for kernel in report["kernels"]
            for finding in kernel["findings"]
            if finding["severity"] != "note"
        ],
    }


def main() -> None:
    """Run the tutorials that are named, or all, and print a row for each."""
    folder = Path(sys.argv[1])
    wanted = sys.argv[2:]
    for tutorial in TUTORIALS:
        if not wanted or any(name in tutorial.name for name in wanted):
            sys.stdout.write(json.dumps(run_tutorial(folder, tutorial), indent=1) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
