"""What copies do to elements, bit for bit: a load rounds tf32, a reduction combines, 4- and 6-bit types are packed.

    f32   s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm        a tf32 load: round to nearest even at bit 13, denormals too
    tf32  s eeeeeeee mmmmmmmmmm 0000000000000        infinity stays, every NaN becomes 0x7FFFE000

A reduction, memory = op(memory, shared):

    add        integers wrap; floats round to nearest even; every NaN of 16 or 32 bits becomes 0x7FFF, 0x7FFFFFFF.
               A 64-bit NaN passes as it is, the shared one first; infinities that cancel give 0xFFF8000000000000
    min, max   a NaN loses against a number, two NaNs give 0x7FFF; -0 lies below +0
    inc        old >= new ? 0 : old + 1
    dec        old == 0 or old > new ? new : old - 1

float32_ftz flushes denormal inputs and results to zero, sign kept; the other types keep denormals. tfloat32 adds
like float32, tfloat32_ftz like float32_ftz: nothing is rounded to tf32.

Types of 4 and 6 bits are packed more densely in global memory than in shared memory, where a piece of 16 bytes has 16
values:

    type             in global memory       a load leaves in shared memory      a store expects there
    16u4_align8b     8 bytes, dense         the same 8 bytes                    the same
    16u4_align16b    8 bytes, dense         8 bytes, then 8 of padding          (cannot be stored)
    16u6_align16b    12 bytes, dense        12 bytes, then 4 of padding         16 bytes, a value in the low 6 bits of each

The padding after a load is undefined: here it keeps the old contents. Value i of a dense group of 6-bit values has bits
6 i to 6 i + 5, counted from the lowest bit of the first byte.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tilescope.data_type import DataType
from tilescope.swizzle import CHUNK_BYTES

TF32_TYPES = ("tfloat32", "tfloat32_ftz")
SIX_BIT_TYPE = "16u6_align16b"
Words = npt.NDArray[np.integer]  # unsigned integers: the bits of elements
Combination = Callable[[Words, Words], Words]


def combine_elements(operation: str, data_type: DataType, old: Words, new: Words) -> Words:
    """The bits that memory holds after the reduction; `old` and `new` are bits of elements, as unsigned integers.

    >>> one, half = np.array([0x3C00], np.uint16), np.array([0x3800], np.uint16)
    >>> hex(combine_elements("add", DataType.named("f16"), one, half)[0])
    '0x3e00'
    """
    if data_type.is_float and operation == "add":
        return _float_add(data_type, old, new)
    if data_type.is_float:
        return _float_extreme(operation, data_type, old, new)
    if data_type.name in _SIGNED and operation in ("min", "max"):
        signed = f"i{old.itemsize}"
        return _INTEGER[operation](old.view(signed), new.view(signed)).view(old.dtype)
    return _INTEGER[operation](old, new)


def _increment(old: Words, new: Words) -> Words:
    return np.where(old >= new, 0, old + old.dtype.type(1)).astype(old.dtype)


def _decrement(old: Words, new: Words) -> Words:
    return np.where((old == 0) | (old > new), new, old - old.dtype.type(1))


_INTEGER: dict[str, Combination] = {
    "add": np.add,
    "inc": _increment,
    "dec": _decrement,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_SIGNED = ("int32", "int64")
_FLUSHING = ("float32_ftz", "tfloat32_ftz")
_CANCELLED_INFINITIES = np.uint64(0xFFF8000000000000)
_EXPONENT = {
    "float16": 0x7C00,
    "bfloat16": 0x7F80,
    "float32": 0x7F800000,
    "float32_ftz": 0x7F800000,
    "float64": 0x7FF0000000000000,
}


def _is_nan(data_type: DataType, words: Words) -> npt.NDArray[np.bool_]:
    magnitude = words & words.dtype.type(_all_but_sign(words))
    is_nan: npt.NDArray[np.bool_] = magnitude > words.dtype.type(_EXPONENT[data_type.name])
    return is_nan


def _all_but_sign(words: Words) -> int:
    return (1 << words.itemsize * 8 - 1) - 1


def _float_add(data_type: DataType, old: Words, new: Words) -> Words:
    if data_type.name == "bfloat16":
        return _bfloat16_sum(old, new)
    flushes = data_type.name in _FLUSHING
    if flushes:
        old = _flush_denormals(old)
        new = _flush_denormals(new)
    kind = f"f{old.itemsize}"
    with np.errstate(all="ignore"):
        sums = old.view(kind) + new.view(kind)
    nan = np.isnan(sums)
    total: Words = sums.view(old.dtype)
    if flushes:
        total = _flush_denormals(total)
    if data_type.name == "float64":
        passed = np.where(_is_nan(data_type, old), old, _CANCELLED_INFINITIES)
        passed = np.where(_is_nan(data_type, new), new, passed)
        return np.where(nan, passed, total)
    return np.where(nan, _canonical_nan(total), total)


def _bfloat16_sum(old: Words, new: Words) -> Words:
    """f32 has more than twice the digits: rounding its sum again gives the correctly rounded one."""
    with np.errstate(all="ignore"):
        wide = (old.astype(np.uint32) << 16).view(np.float32) + (new.astype(np.uint32) << 16).view(np.float32)
        bits = wide.view(np.uint32)
        odd = bits >> 16 & 1
        total: Words = (bits + 0x7FFF + odd >> 16).astype(np.uint16)
    return np.where(np.isnan(wide), _canonical_nan(total), total)


def _canonical_nan(words: Words) -> np.integer:
    """What every NaN of 16 or 32 bits becomes: all bits but the sign."""
    return words.dtype.type(_all_but_sign(words))


def _flush_denormals(words: Words) -> Words:
    """Denormals as zeros of their sign."""
    return np.where(words & 0x7F800000, words, words & np.uint32(0x80000000))


def _float_extreme(operation: str, data_type: DataType, old: Words, new: Words) -> Words:
    old_key = _order_key(old)
    new_key = _order_key(new)
    old_wins = old_key <= new_key if operation == "min" else old_key >= new_key
    old_nan = _is_nan(data_type, old)
    new_nan = _is_nan(data_type, new)
    chosen = np.where((old_wins & ~old_nan) | new_nan, old, new)
    return np.where(old_nan & new_nan, _canonical_nan(old), chosen)


def _order_key(words: Words) -> npt.NDArray[np.signedinteger]:
    """Integers in the order of the floats whose bits are given: as integers, negative floats run backwards."""
    mask = words.dtype.type(_all_but_sign(words))
    key: npt.NDArray[np.signedinteger] = np.where(words > mask, words ^ mask, words).view(f"i{words.itemsize}")
    return key


def rounded_to_tf32(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The words of f32 numbers as a tf32 load leaves them.

    >>> [hex(word) for word in rounded_to_tf32(np.array([0x3F801000, 0x3F803000, 0xFFC00001], np.uint32))]
    ['0x3f800000', '0x3f804000', '0x7fffe000']
    """
    odd = words >> np.uint32(13) & np.uint32(1)
    rounded = words + np.uint32(0xFFF) + odd & np.uint32(0xFFFFE000)
    return np.where((words & 0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FFFE000), rounded)


def deliver_elements(data_type: DataType, data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Bytes of elements as a load leaves them in shared memory."""
    return rounded_to_tf32(data.view(np.uint32)).view(np.uint8) if data_type.name in TF32_TYPES else data


def dense_bytes(data_type: DataType) -> int:
    """Global bytes of what fills 16 shared bytes: 16 but for the padded types.

    >>> [dense_bytes(DataType.named(name)) for name in ("f16", "16u4_align8b", "16u4_align16b", "16u6_align16b")]
    [16, 16, 8, 12]
    """
    return CHUNK_BYTES * data_type.bits // data_type.smem_bits


def unpack_values(dense: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """(…, n) dense bytes as (…, 8 n / bits) bytes, a value in the low bits of each.

    >>> unpack_values(np.array([0x21, 0x43], np.uint8), 4).tolist()
    [1, 2, 3, 4]
    """
    single = np.unpackbits(dense, axis=-1, bitorder="little").reshape(*dense.shape[:-1], -1, bits)
    values: npt.NDArray[np.uint8] = np.packbits(single, axis=-1, bitorder="little")[..., 0]
    return values


def pack_values(values: npt.NDArray[np.integer], bits: int) -> npt.NDArray[np.uint8]:
    """(…, m) values, of which the low bits count, as (…, m bits / 8) dense bytes: the inverse of `unpack_values`.

    >>> pack_values(np.array([1, 2, 3, 4], np.uint8), 4).tolist()
    [33, 67]
    """
    single = np.unpackbits(values.view(np.uint8)[..., None], axis=-1, count=bits, bitorder="little")
    dense: npt.NDArray[np.uint8] = np.packbits(single.reshape(*values.shape[:-1], -1), axis=-1, bitorder="little")
    return dense
