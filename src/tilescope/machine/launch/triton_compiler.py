"""A kernel of Triton or Gluon as PTX, compiled by the Triton that is installed; no card is needed.

    compile_triton(matmul, "*fp16, *fp16, *fp16, i32", {"BLOCK": 64})     PTX, and what Triton's host would do to launch it

Triton is imported here alone. Its compiler reads the source of the function, and keeps what it made in its cache.
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
from tilescope.machine.launch.triton_signature import TritonSignature, read_signature
from tilescope.rule import ARGUMENT_TYPE, rule
from tilescope.sentence import printed, shortened

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
    """The PTX of a kernel, and what launches it."""

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
    """Compile a kernel; a RuleError says what is wrong with it, a DeviceError that there is no Triton."""
    triton = _triton()
    kernel = _jit_function(triton, function)
    chosen = dict(options or {})
    _require_known(triton, chosen)
    constants = {one.name for one in kernel.params if one.is_constexpr}
    read = read_signature(
        kernel.arg_names,
        signature,
        constexprs,
        defaults={one.name: one.default for one in kernel.params if one.has_default},
        always_constant=[name for name in kernel.arg_names if name in constants],
    )
    made = _compiled(triton, kernel, read, _target(triton, arch), chosen)
    return CompiledTriton(made.asm["ptx"], made.metadata.name, _host(triton, made, read))


def kernel_names(module: ModuleType) -> list[str]:
    """The functions of @triton.jit or @gluon.jit that a module defines, in its order."""
    triton = _triton()
    names = []
    for name, value in vars(module).items():
        found = _unwrapped(triton, value)
        if isinstance(found, triton.runtime.JITFunction) and found.__module__ == module.__name__:
            names.append(name)
    return names


def _triton() -> Any:
    """The installed Triton, or one sentence."""
    try:
        import triton
    except ModuleNotFoundError as error:
        raise DeviceError(
            "Kernels of Triton are compiled by Triton, which is not installed: pip install triton."
        ) from error
    return triton


def _jit_function(triton: Any, function: Any) -> Any:
    """The function that @triton.jit or @gluon.jit made, without autotuners and heuristics around it."""
    found = _unwrapped(triton, function)
    if type(found).__name__ == INTERPRETED:
        raise ARGUMENT_TYPE.error(
            argument="function",
            found=f"{printed(function)}, made for Triton's interpreter",
            limit="a function of @triton.jit or @gluon.jit",
            fix="Unset TRITON_INTERPRET before the module of the kernel is imported.",
        )
    if isinstance(found, triton.runtime.JITFunction):
        return found
    raise ARGUMENT_TYPE.error(
        argument="function",
        found=printed(function),
        limit="a function of @triton.jit or @gluon.jit",
        fix="Put @triton.jit above the function.",
    )


def _unwrapped(triton: Any, function: Any) -> Any:
    """The function that autotuners and heuristics wrap."""
    found = function
    while not isinstance(found, triton.runtime.JITFunction) and hasattr(found, "fn"):
        if type(found).__name__ == INTERPRETED:
            break
        found = found.fn
    return found


def _require_known(triton: Any, options: Mapping[str, object]) -> None:
    """Refuse options that Triton would pass over in silence."""
    from triton.backends.nvidia.compiler import CUDAOptions

    known = tuple(CUDAOptions.__dataclass_fields__)
    strange = [name for name in options if name not in known]
    if strange:
        raise RuleError(
            [unknown_name(f"option of Triton {triton.__version__}", "options", name, known) for name in strange]
        )


def _target(triton: Any, arch: object) -> Any:
    major, minor = Arch.named(arch).compute_capability
    return triton.backends.compiler.GPUTarget("cuda", 10 * major + minor, 32)


def _compiled(triton: Any, kernel: Any, read: TritonSignature, target: Any, options: dict[str, object]) -> Any:
    source_class = triton.compiler.ASTSource
    if kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource

        source_class = GluonASTSource
    places = {name: number for number, name in enumerate(kernel.arg_names)}
    values = {(places[name],): value for name, value in read.values().items()}
    counted_on = {
        (places[one.name],): [["tt.divisibility", one.multiple_of]] for one in read.parameters if one.multiple_of > 1
    }
    source = source_class(kernel, read.types(), values, counted_on)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 3.9 says on every first use that products and sums are still fused
            return triton.compile(source, target=target, options=options)
    except Exception as error:  # noqa: BLE001  whatever a compiler raises about the source
        refusal = _refusal(triton, kernel, error)
    raise refusal  # after the handler: the frames of the compiler's error would keep its objects past the end of Python


def _refusal(triton: Any, kernel: Any, error: Exception) -> RuleError:
    """What Triton says of the kernel, with the line of the source where it says one."""
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
            place = _place(kernel, innermost.src, number)
        reason = innermost.error_message or str(innermost.__cause__ or "")
    return TRITON_COMPILE.error(
        function=kernel.__name__,
        place=place,
        reason=shortened(reason, _LONGEST_REASON) or type(error).__name__,
        version=triton.__version__,
        line=line,
    )


def _place(kernel: Any, source: str, number: int) -> str | None:
    """The file and line of a line of the kernel's source; None for one of a function that it calls."""
    if source != kernel.src:
        return None
    file = Path(kernel.fn.__code__.co_filename).name
    return f"{file}:{kernel.def_file_line_number + number - 1}"


def _host(triton: Any, made: Any, read: TritonSignature) -> TritonHost:
    metadata = made.metadata
    by_code = {row.ptx_code: row for row in DATA_TYPE.values() if row.ptx_code is not None}
    descriptors = [
        TritonDescriptor(
            data_type=by_code[told["elem_type"]].name,
            block=tuple(told["block_size"][::-1]),
            swizzle=_SWIZZLES[told["swizzle"]],
            element_bytes=told["elem_size"],
            is_im2col=bool(told.get("is_im2col", False)),
            is_padded=bool(told["fp4_padded"]),
        )
        for told in getattr(metadata, "tensordesc_meta", None) or ()
    ]
    return TritonHost(
        version=triton.__version__,
        arch=f"sm_{metadata.target.arch}",
        parameters=read.parameters,
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
    """Whether descriptors of this Triton's host say that they round to tf32."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return "round_f32_to_tf32" in TensorDescriptor.__dataclass_fields__
