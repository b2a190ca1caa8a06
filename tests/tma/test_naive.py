"""The emulator against a second, naive implementation: loops over elements and bytes, straight from the rules."""

import itertools
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import tilescope as ts

# ── The rules, one element at a time ─────────────────────────────────────────────────────────────────────────────────

# Chunk stored at each place of a line (PTX ISA, "Swizzling Modes"); the flip exchanges halves of chunks in odd lines.
PATTERNS = {
    "none": ["01234567"],
    "32B": ["01234567", "10325476"],
    "96B": ["01234567", "10325476"],
    "64B": ["01234567", "10325476", "23016745", "32107654"],
    "128B": ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"],
    "128B_ATOM_32B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_ATOM_32B_FLIP_8B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_ATOM_64B": ["01234567", "45670123"],
}
SPANS = {"none": 0, "32B": 32, "64B": 64, "96B": 96}


def physical(mode, address):
    line, within = divmod(address, 128)
    chunk, byte = divmod(within, 16)
    row = PATTERNS[mode][line % len(PATTERNS[mode])]
    if mode.endswith("FLIP_8B") and line % 2:
        byte = (byte + 8) % 16
    return line * 128 + row.index(str(chunk)) * 16 + byte


def visited(a, coords, offsets):
    """The first element (or pixel) of each row, in the order of shared memory."""
    slices = a.interleave.slice_bytes
    if isinstance(a, ts.TensorMap):
        places = []
        for axis in range(a.rank):
            if axis == 0 and not slices:
                places.append([coords[0]])
            elif slices and axis == a.rank - 2:
                places.append([coords[axis]])  # one slice a copy
            else:
                places.append([coords[axis] + k for k in range(0, a.box[axis], a.element_strides[axis])])
        return [index[::-1] for index in itertools.product(*places[::-1])]
    if isinstance(a, ts.Im2colWideMap):
        return visited_wide(a, coords, offsets)
    first = 0 if slices else 1
    spatial = range(first, first + len(offsets))
    base, found = list(coords), []
    for _ in range(a.pixels_per_column):
        pixel = list(base)
        for axis, offset in zip(spatial, offsets, strict=True):
            pixel[axis] += offset
        found.append(tuple(pixel))
        for axis in spatial:
            base[axis] += a.element_strides[axis]
            if base[axis] < a.dims[axis] + a.upper_corner[axis - first]:
                break
            base[axis] = a.lower_corner[axis - first]
        else:
            base[-1] += a.element_strides[-1]
    return found


def visited_wide(a, coords, offsets):
    halo, shift = offsets
    pixels, group = (128, 32) if a.mode == "W128" else (a.pixels_per_column, a.pixels_per_column)
    base, found = list(coords), []
    base[1] += shift
    for number in range(1, pixels + 1):
        found.append(tuple(base))
        if number % group == 0:
            found += [(base[0], base[1] + a.element_strides[1] * k, *base[2:]) for k in range(1, halo + 1)]
        base[1] += a.element_strides[1]
        if base[1] >= a.dims[1] + a.upper_width + shift:
            base[1] = a.lower_width + shift
            base[-1] += a.element_strides[-1]
    return found


def in_tensor(a, index):
    return all(0 <= place < extent for place, extent in zip(index, a.dims, strict=True))


def row_pitch(a):
    if a.interleave.slice_bytes:
        return a.interleave.slice_bytes
    inner = a.inner_elements * (8 if a.data_type.name in PADDED else a.data_type.bits) // 8
    return max(inner, SPANS.get(a.swizzle.name, 128))


PADDED = {"16u4_align16b": 8, "16u6_align16b": 12}  # global bytes behind each 16 shared ones


def bytes_of_row(a, index):
    """(global offset or None, byte in the shared row, coordinates) for each byte of a row that the copy moves."""
    slices = a.interleave.slice_bytes
    outer = sum(place * stride for place, stride in zip(index[1:], a.strides_bytes, strict=True))
    if slices:
        for byte in range(slices):
            yield (index[0] * slices + outer + byte if in_tensor(a, index) else None), byte
        return
    bits = a.data_type.bits
    group = PADDED.get(a.data_type.name, 16)
    for byte in range(a.inner_elements * bits // 8):
        element = (index[0] + byte * 8 // bits, *index[1:])
        offset = index[0] * bits // 8 + byte + outer
        yield (offset if in_tensor(a, element) else None), byte // group * 16 + byte % group


def naive_tf32(word):
    if word & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFFE000
    kept, dropped = word & ~0x1FFF, word & 0x1FFF
    if dropped > 0x1000 or (dropped == 0x1000 and word >> 13 & 1):
        kept += 0x2000
    return kept


def naive_load(a, memory, coords, *, offsets, smem, smem_address):
    for row, index in enumerate(visited(a, coords, offsets)):
        for offset, byte in bytes_of_row(a, index):
            if offset is None:
                value = 0 if a.oob_fill.name == "zero" else (0xF7, 0x7F)[byte % 2]
            elif a.data_type.name.startswith("tfloat32"):
                word = int.from_bytes(memory[offset // 4 * 4 : offset // 4 * 4 + 4].tobytes(), "little")
                value = naive_tf32(word) >> 8 * (offset % 4) & 0xFF
            else:
                value = int(memory[offset])
            smem[physical(a.swizzle.name, smem_address + row * row_pitch(a) + byte) - smem_address] = value


def naive_store(a, smem, memory, coords, *, smem_address, reduce=None, rows=None):
    for row, index in enumerate(rows or visited(a, coords, (0,) * (a.rank - 2))):
        shared = [
            int(smem[physical(a.swizzle.name, smem_address + row * row_pitch(a) + byte) - smem_address])
            for byte in range(a.interleave.slice_bytes or a.inner_bytes)
        ]
        places = [offset for offset, _ in bytes_of_row(a, index)]
        inside = [offset for offset in places if offset is not None]
        if not inside:
            continue
        if a.data_type.name == "16u6_align16b":
            number = sum((value & 0x3F) << 6 * i for i, value in enumerate(shared))
            shared = list(number.to_bytes(len(places), "little"))
        count = min(-(-len(inside) // 16) * 16, len(places))  # the end of the row, rounded up to 16 bytes
        target = slice(inside[0], inside[0] + count)
        if reduce is None:
            memory[target] = shared[:count]
        else:
            size = a.data_type.bits // 8
            old, new = memory[target].tobytes(), bytes(shared[:count])
            words = [
                naive_reduce(
                    reduce,
                    a.data_type.name,
                    int.from_bytes(old[k : k + size], "little"),
                    int.from_bytes(new[k : k + size], "little"),
                ).to_bytes(size, "little")
                for k in range(0, count, size)
            ]
            memory[target] = np.frombuffer(b"".join(words), np.uint8)


FORMATS = {
    "float16": (5, 10),
    "bfloat16": (8, 7),
    "float32": (8, 23),
    "float32_ftz": (8, 23),
    "tfloat32": (8, 23),
    "tfloat32_ftz": (8, 23),
    "float64": (11, 52),
}


def naive_reduce(operation, name, old, new):
    if name in FORMATS:
        return naive_float(operation, name, old, new)
    bits = 64 if name.endswith("64") else 32
    if operation in ("min", "max"):
        signed = [(word ^ 1 << bits - 1) if name.startswith("int") else word for word in (old, new)]
        return (old, new)[signed.index((min if operation == "min" else max)(signed))]
    return {
        "add": (old + new) % (1 << bits),
        "inc": 0 if old >= new else old + 1,
        "dec": new if old == 0 or old > new else old - 1,
        "and": old & new,
        "or": old | new,
        "xor": old ^ new,
    }[operation]


def naive_float(operation, name, old, new):
    form = NaiveFloat(name)
    return form.added(old, new) if operation == "add" else form.extreme(operation, old, new)


class NaiveFloat:
    """Floats of one format by their bits, worked out as fractions."""

    def __init__(self, name):
        self.name = name
        self.exponent_bits, self.mantissa_bits = FORMATS[name]
        self.sign_bit = 1 << self.exponent_bits + self.mantissa_bits
        self.infinity = (1 << self.exponent_bits) - 1 << self.mantissa_bits
        self.nan = self.sign_bit - 1
        self.bias = (1 << self.exponent_bits - 1) - 1
        self.flushes = name in ("float32_ftz", "tfloat32_ftz")

    def is_nan(self, word):
        return word & self.nan > self.infinity

    def number(self, word):
        exponent = (word & self.nan) >> self.mantissa_bits
        mantissa = word & (1 << self.mantissa_bits) - 1
        if exponent == 0 and self.flushes:
            mantissa = 0
        if exponent:
            mantissa += 1 << self.mantissa_bits
        value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa_bits)
        return -value if word & self.sign_bit else value

    def extreme(self, operation, old, new):
        if self.is_nan(old):
            return self.nan if self.is_nan(new) else new
        if self.is_nan(new):
            return old
        keys = [self.order(old), self.order(new)]
        return (old, new)[keys.index((min if operation == "min" else max)(keys))]

    def order(self, word):
        """What words are compared by: infinities lie beyond every number, and -0 below +0."""
        is_positive = not word & self.sign_bit
        if word & self.nan != self.infinity:
            return self.number(word), is_positive
        beyond = Fraction(2) ** 4096
        return (beyond if is_positive else -beyond), is_positive

    def added(self, old, new):
        if self.is_nan(old) or self.is_nan(new):
            if self.name != "float64":
                return self.nan
            return new if self.is_nan(new) else old
        infinite = {word for word in (old, new) if word & self.nan == self.infinity}
        if len(infinite) == 2:
            return 0xFFF8 << 48 if self.name == "float64" else self.nan
        if infinite:
            return infinite.pop()
        total = self.number(old) + self.number(new)
        if total == 0:
            return old & new & self.sign_bit
        return self.rounded(total)

    def rounded(self, total):
        """The bits of the nearest float; of two that are as near, of the even one."""
        sign = self.sign_bit if total < 0 else 0
        size = abs(total)
        bits = size.numerator.bit_length() - size.denominator.bit_length()
        exponent = max(1 - self.bias, bits - 1)  # or one or two more
        while size >= Fraction(2) ** (exponent + 1):
            exponent += 1
        scaled = size / Fraction(2) ** (exponent - self.mantissa_bits)
        kept = int(scaled)
        rest = scaled - kept
        if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept % 2):
            kept += 1
        word = kept + (
            exponent + self.bias - 1 << self.mantissa_bits
        )  # a carry out of the mantissa raises the exponent
        if self.flushes and word < 1 << self.mantissa_bits:
            word = 0
        return sign | min(word, self.infinity)


# ── Maps of every kind ───────────────────────────────────────────────────────────────────────────────────────────────

PLAIN = (
    "uint8",
    "uint16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
    "bfloat16",
    "float32_ftz",
    "tfloat32",
    "tfloat32_ftz",
)
PACKED = ("16u4_align8b", "16u4_align16b", "16u6_align16b")
BITS = {name: ts.DataType.named(name).bits for name in PLAIN + PACKED}


def strides(draw, dims, row_bytes, unit):
    """Dense rows, padded ones, any multiple of the alignment, or none at all."""
    found, dense = [], int(-(-row_bytes // unit)) * unit
    for extent in dims[1:]:
        found.append(draw(st.sampled_from([dense, dense, dense + unit, unit * draw(st.integers(0, 9))])))
        dense = max(dense, found[-1]) * extent
    return tuple(found)


@st.composite
def tiled_maps(draw, types=PLAIN, interleaves=("none", "16B", "32B"), swizzles=tuple(PATTERNS), ranks=(1, 5)):
    data_type = draw(st.sampled_from(types))
    interleave = draw(st.sampled_from(interleaves)) if data_type in PLAIN else "none"
    rank = draw(st.integers(ranks[0] if interleave == "none" else 3, ranks[1]))
    bits, unit = BITS[data_type], 128 // BITS[data_type] if data_type != "16u6_align16b" else 128
    padded = data_type in PADDED
    known = ("none", "128B", "128B_ATOM_32B") if padded else swizzles
    swizzle = draw(st.sampled_from(known if interleave == "none" else [name for name in known if name != "96B"]))
    dims = [draw(st.integers(1, 5)) for _ in range(rank)]
    box = [draw(st.integers(1, 4)) for _ in range(rank)]
    if interleave == "none":
        dims[0] = 128 * draw(st.integers(1, 2)) if padded else draw(st.integers(1, 5 * unit))
        dims[0] += dims[0] % 2 if data_type == "16u4_align8b" else 0
        box[0] = 128 if padded else unit * draw(st.integers(1, widest_units(swizzle)))
    else:
        box[0] = unit * draw(st.integers(1, 2))
    slice_bytes = {"none": 0, "16B": 16, "32B": 32}[interleave]
    alignment = 32 if padded or slice_bytes == 32 else 16
    return ts.TensorMap(
        data_type,
        dims,
        strides(draw, dims, dims[0] * (slice_bytes or bits / 8), alignment),
        box=box,
        element_strides=[draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)],
        interleave=interleave,
        swizzle=swizzle,
        oob_fill=draw(st.sampled_from(["zero", "nan"])) if "float" in data_type else "zero",
        arch=arch_for(swizzle, data_type),
    )


def widest_units(swizzle):
    """How many chunks of 16 bytes a row may have."""
    return (SPANS.get(swizzle, 128) or 128) // 16


@st.composite
def im2col_maps(draw, padded=True):
    interleave = draw(st.sampled_from(["none", "16B", "32B"]))
    data_type, rank = draw(st.sampled_from(PLAIN)), draw(st.integers(3, 5))
    unit = 128 // BITS[data_type]
    first = 0 if interleave != "none" else 1
    dims = [draw(st.integers(1, 5)) for _ in range(rank)]
    if first:
        dims[0] = draw(st.integers(1, 4 * unit))
    lower = [
        draw(st.integers(-2 if padded else 0, 1 if extent > 1 else 0)) for extent in dims[first : first + rank - 2]
    ]
    upper = [
        draw(st.integers(max(-2, low - extent + 1), 2 if padded else 0))
        for low, extent in zip(lower, dims[first:], strict=False)
    ]
    swizzle = draw(st.sampled_from(["none", "32B", "64B", "128B"]))
    slice_bytes = {"none": 0, "16B": 16, "32B": 32}[interleave]
    row_bytes = dims[0] * (slice_bytes or BITS[data_type] / 8)
    return ts.Im2colMap(
        data_type,
        dims,
        strides(draw, dims, row_bytes, max(16, slice_bytes)),
        lower_corner=lower,
        upper_corner=upper,
        channels_per_pixel=unit * draw(st.integers(1, widest_units(swizzle))),
        pixels_per_column=draw(st.integers(1, 40)),
        element_strides=[draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank)],
        interleave=interleave,
        swizzle=swizzle,
        oob_fill=draw(st.sampled_from(["zero", "nan"])) if "float" in data_type else "zero",
    )


@st.composite
def wide_maps(draw):
    data_type, rank = draw(st.sampled_from(PLAIN)), draw(st.integers(3, 5))
    unit = 128 // BITS[data_type]
    dims = [
        draw(st.integers(1, 4 * unit)),
        draw(st.integers(1, 40)),
        *(draw(st.integers(1, 4)) for _ in range(rank - 2)),
    ]
    lower = draw(st.integers(-2, min(1, dims[1])))
    return ts.Im2colWideMap(
        data_type,
        dims,
        strides(draw, dims, dims[0] * BITS[data_type] / 8, 16),
        lower_width=lower,
        upper_width=draw(st.integers(max(-2, lower - dims[1] + 1), 2)),
        channels_per_pixel=unit * draw(st.integers(1, 4)),
        pixels_per_column=draw(st.integers(1, 40)),
        mode=draw(st.sampled_from(["W", "W128"])),
        arch="sm_100",
        element_strides=[1, draw(st.integers(1, 3)), *[1] * (rank - 3), draw(st.integers(1, 3))],
        swizzle=draw(st.sampled_from(["64B", "128B", "128B_ATOM_32B"])),
    )


def arch_for(swizzle, data_type):
    if swizzle == "96B":
        return "sm_103"
    return "sm_100" if swizzle.startswith("128B_") or data_type in PACKED else "sm_90"


def corner(draw, a, least):
    """Coordinates that the instruction takes: in the tensor, or anywhere around it."""
    around = draw(st.booleans())
    coords = [draw(st.integers(least, extent + 2) if around else st.integers(0, extent - 1)) for extent in a.dims]
    if not a.interleave.slice_bytes:
        unit = 128 if a.data_type.name in PADDED else 128 // a.data_type.bits
        farthest = (a.dims[0] - 1) // unit
        coords[0] = unit * draw(st.integers(max(least, -2), farthest + 2) if around else st.integers(0, farthest))
    if isinstance(a, ts.Im2colMap):  # the base pixel stays in its bounding box
        first = 0 if a.interleave.slice_bytes else 1
        for axis, (low, high) in enumerate(zip(a.lower_corner, a.upper_corner, strict=True), first):
            coords[axis] = draw(st.integers(low, a.dims[axis] - 1 + high))
    if isinstance(a, ts.Im2colWideMap):  # which may begin left of its bounding box, but not right of it
        coords[1] = draw(st.integers(a.lower_width - 4, a.dims[1] - 1 + a.upper_width))
    return tuple(coords)


def memory_of(draw, a):
    """Random bytes as long as the tensor, and some more for a store that overruns it."""
    inner_bits = (a.interleave.slice_bytes or 0) * 8 or a.data_type.bits
    end = a.dims[0] * inner_bits // 8 + sum(
        (extent - 1) * stride for extent, stride in zip(a.dims[1:], a.strides_bytes, strict=True)
    )
    noise = np.random.default_rng(draw(st.integers(0, 2**32)))
    memory = noise.integers(0, 256, end + 16, dtype=np.uint8)
    if a.data_type.is_float and draw(st.booleans()):  # infinities, NaNs, zeros and halfway cases
        size = a.data_type.bits // 8
        words = memory[: len(memory) // size * size].view(f"u{size}")
        words[:] = noise.choice(special_words(a.data_type.name, size), len(words))
    return memory


def special_words(name, size):
    exponent_bits, mantissa_bits = FORMATS.get(name, (8, 23))
    infinity = (1 << exponent_bits) - 1 << mantissa_bits
    one = infinity >> 1 & infinity
    sign = 1 << 8 * size - 1
    positive = [
        0,
        1,
        3,
        (1 << mantissa_bits) - 1,
        1 << mantissa_bits,
        (1 << mantissa_bits) + 5,
        one,
        one + 1,
        infinity - 1,
        infinity,
        infinity + 1,
        infinity | 0x1000 % sign,
    ]
    halves = [0x3F801000, 0x3F803000, 0x3F800FFF] if size == 4 else []
    return np.array(positive + halves + [word | sign for word in positive], f"u{size}")


SMEM_ADDRESSES = st.integers(0, 16).map(lambda line: line * 128)
LOADS = {"tiled": tiled_maps(), "packed": tiled_maps(types=PACKED), "im2col": im2col_maps(), "wide": wide_maps()}


@pytest.mark.parametrize("kind", LOADS)
@given(data=st.data())
def test_loads_agree(kind, data):
    a = data.draw(LOADS[kind])
    coords, smem_address = corner(data.draw, a, -3), data.draw(SMEM_ADDRESSES)
    offsets = ()
    if kind == "im2col":
        offsets = tuple(data.draw(st.integers(0, 3)) for _ in range(a.rank - 2))
    elif kind == "wide":
        offsets = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 4))
    memory = memory_of(data.draw, a)[:-16]
    smem = np.random.default_rng(0).integers(
        0, 256, len(visited(a, coords, offsets)) * row_pitch(a) + 128, dtype=np.uint8
    )
    wanted = smem.copy()
    naive_load(a, memory, coords, offsets=offsets, smem=wanted, smem_address=smem_address)
    found = ts.load(a, memory, coords, offsets=offsets, smem=smem, smem_address=smem_address)
    assert found is smem
    assert np.flatnonzero(found != wanted)[:4].tolist() == []
    event(f"interleave {a.interleave.name}")
    fresh = ts.load(a, memory, coords, offsets=offsets, smem_address=smem_address)
    naive = np.zeros(len(smem), np.uint8)
    naive_load(a, memory, coords, offsets=offsets, smem=naive, smem_address=smem_address)
    assert np.array_equal(fresh, naive[: len(fresh)])
    assert not naive[len(fresh) :].any()
    if not a.data_type.name.startswith("tf"):
        traced = ts.trace(a, coords, offsets=offsets, smem_address=smem_address)
        assert np.array_equal(rebuilt(traced, memory), fresh)


def rebuilt(traced, memory):
    """Shared memory as the trace of a load says it is."""
    source = traced.source_offset
    nan = traced.tensor_map.oob_fill.name == "nan"
    found = np.where(source == traced.FILL, np.resize([0xF7, 0x7F], len(source)) if nan else 0, 0).astype(np.uint8)
    found[source >= 0] = memory[source[source >= 0]]
    return found


STORED_SWIZZLES = tuple(name for name in PATTERNS if name != "128B_ATOM_32B_FLIP_8B")  # which is for loads alone
STORED = {
    "tiled": tiled_maps(swizzles=STORED_SWIZZLES),
    "packed": tiled_maps(types=("16u4_align8b", "16u6_align16b"), swizzles=STORED_SWIZZLES),
    "im2col": im2col_maps(padded=False),
}


@pytest.mark.parametrize("kind", STORED)
@given(data=st.data())
def test_stores_agree(kind, data):
    a = data.draw(STORED[kind])
    coords, smem_address = corner(data.draw, a, 0), data.draw(SMEM_ADDRESSES)
    memory = memory_of(data.draw, a)
    smem = np.random.default_rng(1).integers(0, 256, a.rows * row_pitch(a) + 128, dtype=np.uint8)
    wanted = memory.copy()
    naive_store(a, smem, wanted, coords, smem_address=smem_address)
    traced = ts.trace(a, coords, smem_address=smem_address, operation="store")
    ts.store(a, smem, memory, coords, smem_address=smem_address)
    assert np.flatnonzero(memory != wanted)[:4].tolist() == []
    event("overrun" if traced.overrun_bytes else "no overrun")
    if a.data_type.bits != 6:
        moved = traced.source_offset >= 0
        assert traced.written_bytes == moved.sum()
        places = traced.source_offset[moved]
        if len(np.unique(places)) == len(places):  # where rows overlap, only one of them stays
            assert np.array_equal(memory[places], smem[: len(moved)][moved])


REDUCED_TYPES = {
    "add": "uint32 int32 uint64 float16 float32 float64 bfloat16 float32_ftz tfloat32 tfloat32_ftz",
    "min": "uint32 int32 uint64 int64 float16 bfloat16",
    "max": "uint32 int32 uint64 int64 float16 bfloat16",
    "inc": "uint32",
    "dec": "uint32",
    "and": "uint32 int32 uint64",
    "or": "uint32 int32 uint64",
    "xor": "uint32 int32 uint64",
}
REDUCED = [(operation, name) for operation, names in REDUCED_TYPES.items() for name in names.split()]


@pytest.mark.parametrize(("operation", "data_type"), REDUCED)
@settings(max_examples=10)
@given(data=st.data())
def test_reductions_agree(operation, data_type, data):
    a = data.draw(tiled_maps(types=(data_type,), swizzles=("none", "128B")))
    assume(a.rows * a.pitch_bytes <= 4096)
    coords, smem_address = corner(data.draw, a, 0), data.draw(SMEM_ADDRESSES)
    memory, wanted = memory_of(data.draw, a), None
    noise = memory_of(data.draw, a)
    smem = np.resize(noise[: len(noise) // 16 * 16], a.rows * row_pitch(a) + 128)
    wanted = memory.copy()
    naive_store(a, smem, wanted, coords, smem_address=smem_address, reduce=operation)
    ts.store(a, smem, memory, coords, reduce=operation, smem_address=smem_address)
    assert np.flatnonzero(memory != wanted)[:4].tolist() == []


def test_every_reduction_of_the_table_is_among_the_tested():
    from tilescope.tensor_map import REDUCTIONS

    assert {(op, name) for op, names in REDUCTIONS.items() for name in names} == set(REDUCED)


FLOATS = [("add", name) for name in FORMATS] + [(op, name) for op in ("min", "max") for name in ("float16", "bfloat16")]


@pytest.mark.parametrize(("operation", "data_type"), FLOATS)
def test_floats_combine_right_for_all_kinds_of_operands(operation, data_type):
    size = ts.DataType.named(data_type).bits // 8
    words = special_words(data_type, size).tolist() + (list(range(0, 65536, 2039)) if size == 2 else [])
    pairs = list(itertools.product(words, words))
    old, new = (np.array(column, f"u{size}") for column in zip(*pairs, strict=True))
    count = -(-len(old) // 256) * 256
    memory, smem = np.resize(old, count), np.resize(new, count)
    wanted = [naive_float(operation, data_type, *pair) for pair in zip(memory.tolist(), smem.tolist(), strict=True)]
    a = ts.TensorMap(data_type, (count,), (), (256,))
    for start in range(0, count, 256):
        ts.store(a, smem[start : start + 256], memory, (start,), reduce=operation)
    assert memory.tolist() == wanted


def test_rows_that_share_memory_are_written_and_combined_one_after_another():
    a = ts.TensorMap("u32", (4, 3), (0,), (4, 3))  # three rows, all of them the same
    rows = np.arange(1, 13, dtype=np.uint32)
    assert ts.store(a, rows, np.zeros(4, np.uint32), (0, 0)).tolist() == [9, 10, 11, 12]
    assert ts.store(a, rows, np.zeros(4, np.uint32), (0, 0), reduce="add").tolist() == [15, 18, 21, 24]
    half = ts.TensorMap("u32", (8, 3), (16,), (8, 3))  # each row begins in the middle of the one before
    after = ts.store(half, np.ones(24, np.uint32), np.zeros(16, np.uint32), (0, 0), reduce="add")
    assert after.tolist() == [1] * 4 + [2] * 8 + [1] * 4


def test_tf32_rounds_every_exponent_and_every_halfway_case():
    words = [
        sign << 31 | exponent << 23 | mantissa
        for sign, exponent, mantissa in itertools.product(
            (0, 1),
            range(256),
            (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001, 0x7FEFFF, 0x7FF000, 0x7FFFFF),
        )
    ]
    memory = np.array(words, np.uint32)
    a = ts.TensorMap("tf32", (len(words),), (), (256,))
    for start in range(0, len(words), 256):
        found = ts.load(a, memory, (start,)).view(np.uint32)
        assert found.tolist() == [naive_tf32(word) for word in words[start : start + 256]]


@given(st.data())
def test_gather_and_scatter_agree(data):
    a = data.draw(tiled_maps(interleaves=("none",), ranks=(2, 2)))
    a = ts.TensorMap(
        a.data_type,
        a.dims,
        a.strides_bytes,
        (a.box[0], 1),
        swizzle=a.swizzle,
        oob_fill=a.oob_fill,
        arch="sm_103" if a.swizzle.name == "96B" else "sm_100",
    )
    column = corner(data.draw, a, -2)[0]
    rows = [data.draw(st.integers(-2, a.dims[1] + 2)) for _ in range(4)]
    smem_address = data.draw(SMEM_ADDRESSES)
    memory = memory_of(data.draw, a)
    wanted = np.zeros(4 * row_pitch(a), np.uint8)
    for place, row in enumerate(rows):
        naive = np.zeros(8 * row_pitch(a), np.uint8)
        offset = place * row_pitch(a)  # as if each row were a box of its own, at its own shared address
        for source, byte in bytes_of_row(a, (column, row)):
            value = naive_load_byte(a, memory, source, byte)
            naive[physical(a.swizzle.name, smem_address + offset + byte) - smem_address] = value
        wanted |= naive[: len(wanted)]
    assert np.array_equal(ts.gather4(a, memory, column, rows, smem_address=smem_address), wanted)

    column, rows = abs(column), [abs(row) for row in rows]
    after, expected = memory.copy(), memory.copy()
    if a.swizzle.name not in STORED_SWIZZLES:
        with pytest.raises(ts.RuleError, match="flip-store"):
            ts.scatter4(a, wanted, after, column, rows, smem_address=smem_address)
        return
    ts.scatter4(a, wanted, after, column, rows, smem_address=smem_address)
    naive_store(a, wanted, expected, None, smem_address=smem_address, rows=[(column, row) for row in rows])
    assert np.array_equal(after, expected)


def naive_load_byte(a, memory, offset, byte):
    if offset is None:
        return 0 if a.oob_fill.name == "zero" else (0xF7, 0x7F)[byte % 2]
    if a.data_type.name.startswith("tfloat32"):
        (word,) = struct.unpack("<I", memory[offset // 4 * 4 : offset // 4 * 4 + 4].tobytes())
        return naive_tf32(word) >> 8 * (offset % 4) & 0xFF
    return int(memory[offset])


@pytest.mark.parametrize("kind", ["tiled", "packed"])
@given(data=st.data())
def test_load_then_store_is_the_identity(kind, data):
    types = ("16u4_align8b",) if kind == "packed" else [name for name in PLAIN if not name.startswith("tf")]
    a = data.draw(tiled_maps(types=types, swizzles=STORED_SWIZZLES))
    coords, smem_address = corner(data.draw, a, 0), data.draw(SMEM_ADDRESSES)
    memory = memory_of(data.draw, a)
    stored = ts.trace(a, coords, smem_address=smem_address, operation="store")
    sources = stored.source_offset[stored.source_offset >= 0]
    assume(len(np.unique(sources)) == len(sources))  # rows that overlap would overwrite each other
    tile = ts.load(a, memory, coords, smem_address=smem_address)
    loaded = ts.trace(a, coords, smem_address=smem_address).source_offset
    visited_bytes = loaded[loaded >= 0]
    cleared = memory.copy()
    cleared[visited_bytes] ^= 0xFF
    ts.store(a, tile, cleared, coords, smem_address=smem_address)
    assert np.array_equal(cleared[visited_bytes], memory[visited_bytes])
