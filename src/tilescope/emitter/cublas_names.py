"""What cuBLAS calls element types and the sums of a product: names for C++, numbers for callers through ctypes."""

from typing import NamedTuple

from tilescope.data_type import DataType


class CudaName(NamedTuple):
    """A value of an enumeration of CUDA's headers."""

    name: str
    number: int


CUDA_TYPE = {  # cudaDataType, by the PTX names of types
    "bf16": CudaName("CUDA_R_16BF", 14),
    "f16": CudaName("CUDA_R_16F", 2),
    "tf32": CudaName("CUDA_R_32F", 0),
    "f32": CudaName("CUDA_R_32F", 0),
    "e4m3": CudaName("CUDA_R_8F_E4M3", 28),
    "e5m2": CudaName("CUDA_R_8F_E5M2", 29),
    "e2m1": CudaName("CUDA_R_4F_E2M1", 33),
    "s8": CudaName("CUDA_R_8I", 3),
    "u8": CudaName("CUDA_R_8U", 8),
    "s32": CudaName("CUDA_R_32I", 10),
}
_COMPUTE_F32 = CudaName("CUBLAS_COMPUTE_32F", 68)
_COMPUTE_TF32 = CudaName("CUBLAS_COMPUTE_32F_FAST_TF32", 77)
_COMPUTE_S32 = CudaName("CUBLAS_COMPUTE_32I", 72)


def compute_type(data_type: DataType) -> CudaName:
    """How products of a type are added: a value of cublasComputeType_t.

    >>> compute_type(DataType.named("tf32"))
    CudaName(name='CUBLAS_COMPUTE_32F_FAST_TF32', number=77)
    """
    if data_type.ptx in ("s8", "u8"):
        return _COMPUTE_S32
    return _COMPUTE_TF32 if data_type.ptx == "tf32" else _COMPUTE_F32
