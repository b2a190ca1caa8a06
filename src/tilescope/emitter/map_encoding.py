"""A tensor map as a C function of the host, which has the driver encode it: cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col."""

from __future__ import annotations

from collections.abc import Iterable

from tilescope.emitter.tile_program import map_facts
from tilescope.tensor_map import Im2colMap, TensorMap


def encode_function(name: str, tensor_map: TensorMap | Im2colMap) -> str:
    """A function that encodes a map for the tensor at `address`.

    >>> map_of_a = TensorMap("bf16", (4096, 4096), (8192,), (64, 128), swizzle="128B")
    >>> "cuTensorMapEncodeTiled" in encode_function("A", map_of_a)
    True
    """
    facts = map_facts(tensor_map)
    arrays = {
        "cuuint64_t dims": tensor_map.dims,
        "cuuint64_t strides_bytes": tensor_map.strides_bytes,
        "cuuint32_t element_strides": tensor_map.element_strides,
    }
    if isinstance(tensor_map, Im2colMap):
        call = "cuTensorMapEncodeIm2col"
        arrays |= {"int lower": tensor_map.lower_corner, "int upper": tensor_map.upper_corner}
        kind_arguments = (
            f"lower, upper, {tensor_map.channels_per_pixel}, {tensor_map.pixels_per_column}, element_strides"
        )
    else:
        call = "cuTensorMapEncodeTiled"
        arrays |= {"cuuint32_t box": tensor_map.box}
        kind_arguments = "box, element_strides"
    lines = [f"inline CUresult encode_{name}(CUtensorMap* map, void* address) {{"]
    lines += [f"    const {declared}[] = {{{_write_list(values)}}};" for declared, values in arrays.items()]
    options = ", ".join(str(facts[option]) for option in ("interleave", "swizzle", "l2_promotion", "oob_fill"))
    lines += [
        "    void* function = nullptr;",
        "    cudaDriverEntryPointQueryResult found;",
        f'    if (cudaGetDriverEntryPointByVersion("{call}", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)',
        "        return CUDA_ERROR_NOT_FOUND;",
        "    if (found != cudaDriverEntryPointSuccess) return CUDA_ERROR_NOT_FOUND;",
        f"    return reinterpret_cast<decltype(&{call})>(function)(",
        f"        map, {facts['data_type']}, {facts['rank']}, address, dims, strides_bytes, {kind_arguments}, {options});",
    ]
    return "\n".join([*lines, "}"])


def _write_list(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
