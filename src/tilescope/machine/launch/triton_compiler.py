"""Compile a Triton or Gluon kernel to PTX with the installed Triton; no card is needed.

    compile_triton(matmul, "*fp16, *fp16, *fp16, i32", {"BLOCK": 64})     PTX, and how Triton's host launches it

Only this module and the package `tilescope.triton` import Triton. Its compiler reads the source of the function and caches its results.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tilescope.arch import Arch
from tilescope.data_type import DATA_TYPE
from tilescope.errors import DeviceError, RuleError, unknown_name
from tilescope.machine.launch.triton_host import Scratch, TritonDescriptor, TritonHost
from tilescope.machine.launch.triton_parameter import TritonParameter
from tilescope.machine.launch.triton_signature import TritonSignature, read_signature
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import format_value, shorten

DEFAULT_ARCH = "sm_90"
INTERPRETED = "InterpretedFunction"  # Triton's class for functions that its interpreter runs
_SWIZZLES = ("none", "32B", "64B", "128B")  # by the driver's number
_LONGEST_REASON = 400

TRITON_COMPILE = rule(
    "triton-compile",
    "Triton compiles the kernel for the types and constants of the call.",
    argument="function",
    found="{function}[[ at {place}]]: {reason}",
    limit="Triton {version} refuses it",
    fix="[[Check `{line}`. ]]Change the kernel, its signature or its constexprs.",
    source="Triton, triton.compile",
)


class CompiledTriton(NamedTuple):
    """The PTX of a kernel, and how Triton's host launches it."""

    ptx: str
    entry: str
    host: TritonHost


def compile_triton(
    function: Any,
    signature: object,
    constexprs: Mapping[str, object] | None = None,
    *,
    arch: object = DEFAULT_ARCH,
    options: Mapping[str, object] | None = None,
) -> CompiledTriton:
    """Compile a kernel.

    A RuleError reports why Triton rejects the kernel, a DeviceError that Triton is not installed.
    """
    triton = import_triton()
    kernel = _find_jit_function(triton, function)
    _require_known_options(triton, options or {})
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    defaults = {parameter.name: parameter.default for parameter in kernel.params if parameter.has_default}
    parsed = read_signature(
        kernel.arg_names,
        signature,
        constexprs,
        defaults=defaults,
        always_constant=[name for name in kernel.arg_names if name in constants],
    )
    compiled = _compile(triton, kernel, parsed, _choose_target(triton, arch), dict(options or {}))
    host = describe_host(triton, compiled.metadata, parsed.parameters)
    return CompiledTriton(compiled.asm["ptx"], compiled.metadata.name, host)


def list_kernels(module: ModuleType) -> list[str]:
    """Names of the @triton.jit and @gluon.jit functions that a module defines, in source order."""
    triton = import_triton()
    names = []
    for name, value in vars(module).items():
        inner = _unwrap(triton, value)
        if isinstance(inner, triton.runtime.JITFunction) and inner.__module__ == module.__name__:
            names.append(name)
    return names


def import_triton() -> Any:
    """The installed Triton; a DeviceError if there is none."""
    try:
        import triton
    except ModuleNotFoundError as error:
        raise DeviceError(
            "Kernels of Triton are compiled by Triton, which is not installed: pip install 'tilescope[triton]'."
        ) from error
    return triton


def _find_jit_function(triton: Any, function: Any) -> Any:
    """The @triton.jit or @gluon.jit function inside autotuners and heuristics."""
    inner = _unwrap(triton, function)
    if type(inner).__name__ == INTERPRETED:
        raise ARGUMENT_TYPE.error(
            argument="function",
            found=f"{format_value(function)}, made for Triton's interpreter",
            limit="a function of @triton.jit or @gluon.jit",
            fix="Unset TRITON_INTERPRET before the module of the kernel is imported.",
        )
    if isinstance(inner, triton.runtime.JITFunction):
        return inner
    raise ARGUMENT_TYPE.error(
        argument="function",
        found=format_value(function),
        limit="a function of @triton.jit or @gluon.jit",
        fix="Put @triton.jit above the function.",
    )


def _unwrap(triton: Any, function: Any) -> Any:
    """The function that autotuners and heuristics wrap."""
    inner = function
    while not isinstance(inner, triton.runtime.JITFunction) and hasattr(inner, "fn"):
        if type(inner).__name__ == INTERPRETED:
            break
        inner = inner.fn
    return inner


def _require_known_options(triton: Any, options: Mapping[str, object]) -> None:
    """Refuse options that Triton would ignore silently."""
    from triton.backends.nvidia.compiler import CUDAOptions

    option_names = tuple(CUDAOptions.__dataclass_fields__)
    unknown = [name for name in options if name not in option_names]
    if unknown:
        raise RuleError(
            [unknown_name(f"option of Triton {triton.__version__}", "options", name, option_names) for name in unknown]
        )


def _choose_target(triton: Any, arch: object) -> Any:
    major, minor = Arch.named(arch).compute_capability
    return triton.backends.compiler.GPUTarget("cuda", 10 * major + minor, 32)


def _compile(triton: Any, kernel: Any, signature: TritonSignature, target: Any, options: dict[str, object]) -> Any:
    source_class = triton.compiler.ASTSource
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        source_class = GluonASTSource
    numbers = {name: number for number, name in enumerate(kernel.arg_names)}
    constants = {(numbers[name],): value for name, value in signature.values().items()}
    assumptions = {
        (numbers[parameter.name],): [["tt.divisibility", parameter.multiple_of]]
        for parameter in signature.parameters
        if parameter.multiple_of > 1
    }
    source = source_class(kernel, signature.types(), constants, assumptions)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Triton 3.9 warns once per process that products and sums are still fused
            return triton.compile(source, target=target, options=options)
    except Exception as error:  # noqa: BLE001  a compiler raises many kinds of errors about a source
        refusal = _describe_refusal(triton, kernel, error)
    raise refusal  # after the handler: the frames of the compiler's error would keep its objects past the end of Python


def _describe_refusal(triton: Any, kernel: Any, error: Exception) -> RuleError:
    """The error that reports Triton's message, with the source line if Triton names it."""
    innermost: Any = error
    while isinstance(innermost.__cause__, triton.compiler.CompilationError):
        innermost = innermost.__cause__
    place = None
    line = None
    reason = str(error)
    if isinstance(innermost, triton.compiler.CompilationError):
        number = getattr(innermost.node, "lineno", None)
        lines = (innermost.src or "").splitlines()
        if number is not None and 0 < number <= len(lines):
            line = lines[number - 1].strip()
            place = _locate_line(kernel, innermost.src, number)
        reason = innermost.error_message or str(innermost.__cause__ or "")
    return TRITON_COMPILE.error(
        function=kernel.__name__,
        place=place,
        reason=shorten(reason, _LONGEST_REASON) or type(error).__name__,
        version=triton.__version__,
        line=line,
    )


def _locate_line(kernel: Any, source: str, number: int) -> str | None:
    """File and line number of a line in the kernel's source; None for a line of a function that the kernel calls."""
    if source != kernel.src:
        return None
    file = Path(kernel.fn.__code__.co_filename).name
    return f"{file}:{kernel.def_file_line_number + number - 1}"


def describe_host(triton: Any, metadata: Any, parameters: tuple[TritonParameter, ...]) -> TritonHost:
    """How Triton's host launches a kernel with these parameters, by the metadata of its compilation."""
    types = {data_type.ptx_code: data_type for data_type in DATA_TYPE.values() if data_type.ptx_code is not None}
    descriptors = [
        TritonDescriptor(
            data_type=types[row["elem_type"]].name,
            block=tuple(row["block_size"][::-1]),
            swizzle=_SWIZZLES[row["swizzle"]],
            element_bytes=row["elem_size"],
            is_im2col=bool(row.get("is_im2col", False)),
            is_padded=bool(row["fp4_padded"]),
        )
        for row in getattr(metadata, "tensordesc_meta", None) or ()
    ]
    return TritonHost(
        version=triton.__version__,
        arch=f"sm_{metadata.target.arch}",
        parameters=parameters,
        threads=metadata.num_warps * metadata.target.warp_size,
        smem_bytes=metadata.shared,
        cluster_blocks=metadata.num_ctas,
        descriptors=tuple(descriptors),
        scratch=(
            Scratch(metadata.global_scratch_size, metadata.global_scratch_align),
            Scratch(getattr(metadata, "profile_scratch_size", 0), getattr(metadata, "profile_scratch_align", 1)),
        ),
        knows_rounding=_knows_rounding(),
    )


def _knows_rounding() -> bool:
    """Whether descriptors of this Triton version have a flag for rounding to tf32."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
