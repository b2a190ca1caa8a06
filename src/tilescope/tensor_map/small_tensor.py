"""A fault of the driver's encoder on Blackwell, and the bit that cures it.

cuTensorMapEncodeTiled and its im2col relatives configure a map wrongly where the allocation behind it is smaller than 128 KB
and the tensor is not dense; the symptom is an illegal access now and then (Xid 13). NVIDIA's driver notes (595) list it.
CUTLASS and Triton clear bit 85 of the map after encoding, whatever the tensor, if its span is below 131072 bytes:

    64-bit word 1    0x0000000200200510  ──▶  0x0000000200000510         bit 21 of the word, bit 85 of the map

What the bit means is not documented, and no map of sm_90 that was recorded has it set.
"""

from __future__ import annotations

from tilescope.errors import printed
from tilescope.rule import rule

MAP_BYTES = rule(
    "map-bytes", "A tensor map is 128 bytes.", source="cuda.h, CU_TENSOR_MAP_NUM_QWORDS",
    passing="ts.tensor_map.small_tensor.cleared_window_bit(bytes(128))",
    failing="ts.tensor_map.small_tensor.cleared_window_bit(bytes(64))",
)  # fmt: skip

WINDOW_BIT = 85
SMALL_SPAN_BYTES = 131072
_MAP_BYTES = 128


def cleared_window_bit(blob: bytes) -> bytes:
    """The 128 bytes of a tensor map with bit 85 cleared, as CUTLASS and Triton do for small tensors on Blackwell.

    >>> blob = bytes(10) + b" " + bytes(117)
    >>> cleared_window_bit(blob) == bytes(128)
    True
    """
    if not isinstance(blob, bytes | bytearray | memoryview) or len(bytes(blob)) != _MAP_BYTES:
        raise MAP_BYTES.error("blob", printed(blob), f"a tensor map is {_MAP_BYTES} bytes", "Use tensor_map.encode().")
    number = int.from_bytes(blob, "little") & ~(1 << WINDOW_BIT)
    return number.to_bytes(_MAP_BYTES, "little")
