"""CUDA C++ or Triton as text: compiled to the PTX and the launch that the page of runs takes.

    SourceText("cuda", "__global__ void k(float* a) { … }")  ── compile_text ──▶  PTX, a launch file, who compiled it

A Triton text is imported, which executes it: only `web/source_compiler.py` calls this, in a separate process after a
click.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tilescope.errors import RuleError
from tilescope.machine.kernel import Kernel
from tilescope.machine.launch.launch_description import LaunchDescription
from tilescope.machine.launch.launch_file import format_launch, read_launch
from tilescope.machine.launch.launch_template import build_launch_template
from tilescope.machine.launch.triton_signature import infer_signature
from tilescope.questions.compiled_kernel import Compiled, cuda_kernel, triton_kernel
from tilescope.questions.question import MisuseError

CUDA = "cuda"
TRITON = "triton"
LANGUAGES = {CUDA: "CUDA C++", TRITON: "Triton or Gluon"}
FILE_NAMES = {CUDA: "kernel.cu", TRITON: "kernel_module.py"}


class SourceText(NamedTuple):
    """A text to compile; `function`, `signature` and `constants` are for Triton. `launch` is the launch file of the text."""

    language: str
    source: str
    function: str = ""
    signature: str = ""
    constants: str = ""  # "BLOCK=128, MORE=2"
    launch: str = ""


class CompiledText(NamedTuple):
    """The fields that a compiled text fills, and who compiled it."""

    ptx: str
    launch: str
    sentence: str


def compile_text(text: SourceText, folder: Path) -> CompiledText:
    """Compile a text with the compiler that is installed here; its file is written into a folder.

    DeviceError names what to install, RuleError the mistake.
    """
    launch = _read_launch(text.launch)
    path = folder / FILE_NAMES[text.language]
    path.write_text(text.source, "utf-8")
    compiled = _compile(text, path, launch)
    kernel = compiled.kernel
    return CompiledText(kernel.ptx, _fit_launch(kernel, launch), compiled.sentence)


def _compile(text: SourceText, path: Path, launch: LaunchDescription) -> Compiled:
    if text.language == CUDA:
        return cuda_kernel(str(path), None, (), launch.arch)
    place = f"{path}:{text.function}" if text.function else str(path)
    constants = [constant for constant in re.split(r"[,\n]\s*(?=\w+\s*=)", text.constants) if constant.strip()]
    if not text.signature and not launch.arguments:
        raise MisuseError(
            'A kernel of Triton is compiled for the types of its parameters: write "*fp16, i32", for example.'
        )
    signature = text.signature or infer_signature(launch.arguments)
    return triton_kernel(place, signature, constants, (), launch.arch)


def _read_launch(written: str) -> LaunchDescription:
    """The launch of a text; an empty one if it cannot be read: the page reports the reason when it runs."""
    try:
        return read_launch(written.encode("utf-8", errors="replace"), "launch")
    except RuleError:
        return LaunchDescription()


def _fit_launch(kernel: Kernel, launch: LaunchDescription) -> str:
    """The launch file of the compiled kernel: that of the text if its arguments fit, else one to start from."""
    template = build_launch_template(kernel_of_text(kernel), "").launch
    host = kernel.host
    parameter_count = len(kernel.parameters) if host is None else len(host.parameters)
    if host is not None:  # what Triton's host passes itself
        template = replace(template, block=(host.threads,), smem_bytes=host.smem_bytes, cluster=host.cluster)
    if len(launch.arguments) != parameter_count or (host is not None and host.descriptors):
        return format_launch(replace(template, grid=launch.grid or template.grid))
    fitted = replace(
        launch,
        entry=template.entry,
        arguments=(*launch.arguments, *template.arguments[parameter_count:]),
    )
    if host is not None:
        fitted = replace(fitted, block=template.block, smem_bytes=template.smem_bytes, cluster=template.cluster)
    return format_launch(fitted)


def kernel_of_text(kernel: Kernel) -> Kernel:
    """The kernel described only by its PTX, without Triton's host."""
    return Kernel(kernel.ptx, kernel.entry)
