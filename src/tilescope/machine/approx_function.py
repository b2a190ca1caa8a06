"""ts.approx: an approximate function of PTX on a numpy array, with the bits of an H200."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilescope.arch import Arch, ArchName
from tilescope.errors import RuleError, argument_range, argument_type, unknown_name
from tilescope.machine.arithmetic import operation, special_unit
from tilescope.machine.arithmetic.compute import Array
from tilescope.reading import as_array
from tilescope.rule import rule

APPROX_ARCH = rule(
    "approx-arch",
    "The architecture has this approximate function.",
    argument="arch",
    found="{function} on {arch}",
    limit="PTX has it from {least} on",
    fix="Use {least}, or convert to float32 and use the f32 form.",
    source="PTX ISA, ex2 and tanh: target ISA notes",
    passing='ts.approx("tanh.approx.f32", np.ones(4, np.float32), arch="sm_90")',
    failing='ts.approx("tanh.approx.bf16", np.ones(4, "bfloat16"), arch="sm_80")',
)
_SCALED = ("rcp", "rsqrt", "sqrt", "lg2", "ex2", "sin", "cos")  # have a form without .ftz
_FORMS = (
    *(f"{name}.approx{ftz}.f32" for name in _SCALED for ftz in (".ftz", "")),
    "tanh.approx.f32",
    "ex2.approx.f16",
    "ex2.approx.ftz.bf16",
    "tanh.approx.f16",
    "tanh.approx.bf16",
    "rcp.approx.ftz.f64",
    "rsqrt.approx.ftz.f64",
    *(f"div.{kind}{ftz}.f32" for kind in ("approx", "full") for ftz in (".ftz", "")),
)


class _Type(NamedTuple):
    dtype: np.dtype[Any]
    word: np.dtype[Any]


_TYPES = {
    "f32": _Type(np.dtype(np.float32), np.dtype(np.uint32)),
    "f16": _Type(np.dtype(np.float16), np.dtype(np.uint16)),
    "bf16": _Type(np.dtype(ml_dtypes.bfloat16), np.dtype(np.uint16)),
    "f64": _Type(np.dtype(np.float64), np.dtype(np.uint64)),
}
_LEAST_ARCH = {"bf16": "sm_90"}


def approx(
    name: str, array: npt.ArrayLike, divisor: npt.ArrayLike | None = None, *, arch: ArchName | None = None
) -> Array:
    """An approximate function of each element, bit for bit as an H200 computes it.

    `name` is the instruction: "ex2.approx.ftz.f32", "tanh.approx.bf16", "div.full.f32" (which takes `divisor`). A name
    without a type takes the array's: float32, float16, bfloat16, or float64 for the two functions that have it. The result
    has the shape and type of the array. Only sm_90 was compared bit for bit; other architectures give a warning.

    >>> import numpy as np
    >>> exact = np.exp2(np.float32(0.3))
    >>> ours = approx("ex2.approx.ftz.f32", np.array([0.3, -200.0], np.float32))
    >>> ours, int(ours.view(np.int32)[0] - exact.view(np.int32))
    (array([1.2311444, 0.       ], dtype=float32), 0)
    >>> approx("div.full", np.float32([1]), np.float32([3]))
    array([0.33333334], dtype=float32)
    """
    elements = as_array("array", array)
    form = _find_form(name, elements.dtype)
    type_name = form.rpartition(".")[2]
    sources = [_words("array", elements, type_name)]
    is_quotient = form.startswith("div")
    if is_quotient != (divisor is not None):
        limit = "a quotient takes two arrays" if is_quotient else f"{form} takes one array"
        raise RuleError([argument_range("divisor", divisor, limit, "Pass it for div.full and div.approx alone.")])
    if divisor is not None:
        sources.append(_words("divisor", as_array("divisor", divisor), type_name))
    if arch is not None:
        _check_arch(form, type_name, Arch.named(arch).name)
    opcode, *modifiers = form.split(".")
    try:
        shaped = np.broadcast_arrays(*sources)
    except ValueError:
        limit = f"array has the shape {sources[0].shape}"
        raise RuleError([argument_range("divisor", sources[1].shape, limit, "Use arrays of one shape.")]) from None
    with np.errstate(all="ignore"):
        words = operation(opcode, tuple(modifiers)).compute(*[source.ravel() for source in shaped])
    return np.asarray(words.reshape(shaped[0].shape).view(_TYPES[type_name].dtype))


def _find_form(name: object, dtype: np.dtype[np.generic]) -> str:
    """The instruction with its type; an error if PTX has no such function."""
    if isinstance(name, str):
        form = name.strip().removesuffix("x2")
        if form in _FORMS:
            return form
        for type_name, row in _TYPES.items():
            if row.dtype == dtype and f"{form}.{type_name}" in _FORMS:
                return f"{form}.{type_name}"
    raise RuleError([unknown_name("function", "name", name, _FORMS)])


def _words(argument: str, elements: Array, type_name: str) -> Array:
    """The bits of an array, which must have the type of the function."""
    row = _TYPES[type_name]
    if elements.dtype != row.dtype:
        expected = f"an array of {row.dtype.name}, the type of .{type_name}"
        raise RuleError(
            [argument_type(argument, elements.dtype, expected, f"Use {argument}.astype({row.dtype.name}).")]
        )
    return np.ascontiguousarray(elements).view(row.word)


def _check_arch(form: str, type_name: str, arch: str) -> None:
    least = _LEAST_ARCH.get(type_name)
    if least is not None and Arch.named(arch).compute_capability < Arch.named(least).compute_capability:
        raise RuleError([APPROX_ARCH.violation(function=form, arch=arch, least=least)])
    if arch != special_unit.ARCH:
        warnings.warn(f"{form} as measured on an H200 (sm_90); its bits on {arch} are assumed.", stacklevel=3)
