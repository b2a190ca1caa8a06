"""cuBLAS, compared with our kernels: cublasGemmEx, and the algorithms of cublasLt's heuristic, called through ctypes.

C (m x n), A (m x k) and B (n x k) are row-major. cuBLAS is column-major, so it computes the transpose:

    C^T (n x m)  =  B (n x k)  x  A^T (k x m)      operands "T" and "N", leading extents k, k and n
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tilescope.data_type import DataType
from tilescope.emitter.cublas_names import CUDA_TYPE, compute_type
from tilescope.errors import DeviceError

WORKSPACE_BYTES = 64 << 20
_NOT_SUPPORTED = 15  # cublasStatus_t
MOST_ALGORITHMS = 8  # of cublasLt's heuristic that are timed
_NO_TRANSPOSE = 0
_TRANSPOSE = 1
_DEFAULT_ALGORITHM = -1
_DESC_TRANSA = 3  # cublasLtMatmulDescAttributes_t
_DESC_TRANSB = 4
_DESC_SCALES_OF_A = 17  # pointers, in cublasLt's order of operands: its A is our B
_DESC_SCALES_OF_B = 18
_DESC_SCALE_MODE_OF_A = 31
_DESC_SCALE_MODE_OF_B = 32
_SCALES_OF_1_X_128 = 4  # cublasLtMatmulMatrixScale_t
_SCALES_OF_128_X_128 = 5
_PREFERENCE_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
_Scalar: TypeAlias = c_int | ctypes.c_float
_GEMM_EX_TYPES = ("bf16", "f16", "tf32", "s8")


class Matrices(NamedTuple):
    """The product of the matrices at these addresses."""

    shape: tuple[int, int, int]
    data_type: DataType
    output_type: DataType
    a: int
    b: int
    c: int
    scales: tuple[int, int] | None = None  # of 1 x 128 of A and 128 x 128 of B; None: the product has none


class Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", c_uint64 * 8),
        ("workspace_bytes", c_size_t),
        ("state", c_int),
        ("waves", ctypes.c_float),
        ("reserved", c_int * 4),
    )


def _library(name: str) -> ctypes.CDLL:
    """A library of CUDA's toolkit: installed for the system, or by pip (nvidia-cublas, torch)."""
    candidates = [*_in_wheels(name), f"lib{name}.so.13", f"lib{name}.so.12", f"lib{name}.so"]
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    raise DeviceError(f"This needs lib{name}: pip install nvidia-cublas, or install the CUDA toolkit.")


def _in_wheels(name: str) -> Iterator[str]:
    spec = importlib.util.find_spec("nvidia")
    roots = [] if spec is None else spec.submodule_search_locations or []
    for root in roots:
        yield from (str(path) for path in sorted(Path(root).glob(f"*/lib/lib{name}.so.*")))


def _require_success(status: int, call: str) -> None:
    if status:
        raise DeviceError(f"{call} answered {status}.")


class Blas:
    """Handles of cuBLAS and cublasLt on a stream, with one workspace on the card."""

    def __init__(self, stream: int, workspace: int) -> None:
        self._stream = c_void_p(stream)
        self._workspace = c_void_p(workspace)
        self._lt = _library("cublasLt")
        self._blas = _library("cublas")
        self._handle = c_void_p()
        self._lt_handle = c_void_p()
        _require_success(self._blas.cublasCreate_v2(byref(self._handle)), "cublasCreate")
        _require_success(self._blas.cublasSetStream_v2(self._handle, self._stream), "cublasSetStream")
        setting = self._blas.cublasSetWorkspace_v2(self._handle, self._workspace, c_size_t(WORKSPACE_BYTES))
        _require_success(setting, "cublasSetWorkspace")
        _require_success(self._lt.cublasLtCreate(byref(self._lt_handle)), "cublasLtCreate")
        version = c_int()
        _require_success(self._blas.cublasGetVersion_v2(self._handle, byref(version)), "cublasGetVersion")
        self.version = f"{version.value // 10000}.{version.value // 100 % 100}.{version.value % 100}"

    def takes(self, data_type: DataType) -> bool:
        """Whether cublasGemmEx supports a type; only cublasLt supports 8-bit floats."""
        return data_type.ptx in _GEMM_EX_TYPES

    def gemm_ex(self, matrices: Matrices) -> None:
        """cublasGemmEx, in the stream."""
        m, n, k = matrices.shape
        operand = CUDA_TYPE[matrices.data_type.ptx].number
        one, zero = _scalars(matrices.data_type)
        status = self._blas.cublasGemmEx(
            self._handle,
            _TRANSPOSE,
            _NO_TRANSPOSE,
            n,
            m,
            k,
            byref(one),
            c_void_p(matrices.b),
            operand,
            k,
            c_void_p(matrices.a),
            operand,
            k,
            byref(zero),
            c_void_p(matrices.c),
            CUDA_TYPE[matrices.output_type.ptx].number,
            n,
            compute_type(matrices.data_type).number,
            _DEFAULT_ALGORITHM,
        )
        _require_success(status, "cublasGemmEx")

    def lt(self, matrices: Matrices) -> LtProduct:
        """The product as cublasLt describes it, with the algorithms of its heuristic."""
        return LtProduct(self._lt, self._lt_handle, self._workspace, self._stream, matrices)


class LtProduct:
    """A product of cublasLt; `algorithms` are at most MOST_ALGORITHMS, the heuristic's first choice first."""

    def __init__(
        self, library: ctypes.CDLL, handle: c_void_p, workspace: c_void_p, stream: c_void_p, matrices: Matrices
    ) -> None:
        self._library = library
        self._handle = handle
        self._workspace = workspace
        self._stream = stream
        m, n, k = matrices.shape
        operand = CUDA_TYPE[matrices.data_type.ptx].number
        scale = CUDA_TYPE["s32" if matrices.data_type.ptx == "s8" else "f32"].number
        self._one, self._zero = _scalars(matrices.data_type)
        self._description = self._create("MatmulDescCreate", compute_type(matrices.data_type).number, scale)
        self._set("MatmulDescSetAttribute", self._description, _DESC_TRANSA, c_int(_TRANSPOSE))
        self._set("MatmulDescSetAttribute", self._description, _DESC_TRANSB, c_int(_NO_TRANSPOSE))
        if matrices.scales is not None:
            self._set_scales(*matrices.scales)
        self._b = self._layout(operand, k, n)
        self._a = self._layout(operand, k, m)
        self._c = self._layout(CUDA_TYPE[matrices.output_type.ptx].number, n, m)
        self.algorithms = self._heuristic()

    def _set_scales(self, of_a: int, of_b: int) -> None:
        """Scales of blocks; the first operand of cublasLt is our B. Every launch takes the same ones."""
        for attribute, value in (
            (_DESC_SCALE_MODE_OF_A, c_int(_SCALES_OF_128_X_128)),
            (_DESC_SCALE_MODE_OF_B, c_int(_SCALES_OF_1_X_128)),
            (_DESC_SCALES_OF_A, c_size_t(of_b)),
            (_DESC_SCALES_OF_B, c_size_t(of_a)),
        ):
            self._set("MatmulDescSetAttribute", self._description, attribute, value)

    def _create(self, call: str, *values: int) -> c_void_p:
        handle = c_void_p()
        _require_success(getattr(self._library, f"cublasLt{call}")(byref(handle), *values), f"cublasLt{call}")
        return handle

    def _layout(self, kind: int, rows: int, columns: int) -> c_void_p:
        layout = c_void_p()
        call = self._library.cublasLtMatrixLayoutCreate
        status = call(byref(layout), kind, c_uint64(rows), c_uint64(columns), ctypes.c_int64(rows))
        _require_success(status, "cublasLtMatrixLayoutCreate")
        return layout

    def _set(self, call: str, of: c_void_p, attribute: int, value: c_int | c_size_t) -> None:
        status = getattr(self._library, f"cublasLt{call}")(of, attribute, byref(value), c_size_t(ctypes.sizeof(value)))
        _require_success(status, f"cublasLt{call}")

    def _heuristic(self) -> list[Heuristic]:
        preference = self._create("MatmulPreferenceCreate")
        self._set("MatmulPreferenceSetAttribute", preference, _PREFERENCE_WORKSPACE, c_size_t(WORKSPACE_BYTES))
        results = (Heuristic * MOST_ALGORITHMS)()
        result_count = c_int()
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle,
            self._description,
            self._b,
            self._a,
            self._c,
            self._c,
            preference,
            MOST_ALGORITHMS,
            results,
            byref(result_count),
        )
        if status == _NOT_SUPPORTED:
            return []
        _require_success(status, "cublasLtMatmulAlgoGetHeuristic")
        return [results[number] for number in range(result_count.value) if results[number].state == 0]

    def multiply(self, matrices: Matrices, algorithm: Heuristic) -> None:
        """CublasLtMatmul with one of the algorithms, in the stream."""
        status = self._library.cublasLtMatmul(
            self._handle,
            self._description,
            byref(self._one),
            c_void_p(matrices.b),
            self._b,
            c_void_p(matrices.a),
            self._a,
            byref(self._zero),
            c_void_p(matrices.c),
            self._c,
            c_void_p(matrices.c),
            self._c,
            byref(algorithm),
            self._workspace,
            c_size_t(WORKSPACE_BYTES),
            self._stream,
        )
        _require_success(status, "cublasLtMatmul")


def _scalars(data_type: DataType) -> tuple[_Scalar, _Scalar]:
    """1 and 0, as cuBLAS takes the factors of this type's products."""
    if data_type.ptx == "s8":
        return c_int(1), c_int(0)
    return ctypes.c_float(1), ctypes.c_float(0)
