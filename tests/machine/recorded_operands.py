"""The operands of golden/instructions.npz, made from a seed as its recorder made them."""

import numpy as np

COUNT = 500  # operand tuples a form
FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}  # bits of exponent and fraction
SMALL_INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256)
LARGE_POWERS = (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64)  # of two, at the ends of integer types
BITS = {
    "pred": 1,
    "small": 32,
    "selector": 32,
    "e4m3x2": 16,
    "e5m2x2": 16,
    **{f"{kind}{bits}": bits for kind in "bus" for bits in (16, 32, 64)},
    **{f"{kind}x2": 32 for kind in ("u16", "s16", "f16", "bf16")},
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
}


def word(number):
    return np.uint64(number)


def splitmix(seed, count):
    """`count` words of 64 bits."""
    with np.errstate(over="ignore"):
        state = word(seed) * word(0xD1342543DE82EF95)
        mixed = state + np.arange(1, count + 1, dtype=np.uint64) * word(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> word(30)) * word(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> word(27)) * word(0x94D049BB133111EB)
        return mixed ^ mixed >> word(31)


def operand_tuple(kinds):
    """The operand arrays of a form. The third operand of a fma is now and then near minus the product."""
    arrays = [operands(kind.removesuffix("!"), position) for position, kind in enumerate(kinds)]
    if len(kinds) == 3 and kinds[2].endswith("!"):
        near = cancelling(kinds[2].removesuffix("!"), arrays[0], arrays[1])
        arrays[2] = np.concatenate([arrays[2][:300], near[300:]])
    return arrays


def operands(kind, position):
    """The bits of operand `position` (0, 1, 2 …) of all tuples."""
    seed = 1000 * position + 31 * sum(map(ord, kind))
    words = [splitmix(seed + 7 * number, COUNT) for number in range(4)]
    if kind == "pred":
        return (words[0] & word(1)).astype(bool)
    if kind in ("e4m3x2", "e5m2x2"):
        return (words[0] >> word(7)).astype(np.uint16)
    if kind == "selector":
        return (words[0] >> word(9)).astype(np.uint32)
    if kind == "small":
        return small_operands(words)
    if kind in ("f16x2", "bf16x2"):
        low = operands(kind[:-2], position).astype(np.uint32)
        high = np.roll(operands(kind[:-2], position + 3), 5 * position + 3).astype(np.uint32)
        return low | high << np.uint32(16)
    if kind in FLOATS:
        return float_operands(kind, position, words)
    return integer_operands(BITS[kind], position, words)


def small_operands(words):
    """Counts of bits and shift amounts: mostly 0 to 65, sometimes anything."""
    pool = np.array(SMALL_INTEGERS, np.uint64)
    chosen = pool[words[1] % word(len(pool))]
    mixed = np.where(words[0] % word(8) < 5, words[1] % word(66), chosen)
    return np.where(words[0] % word(16) == 15, words[2], mixed).astype(np.uint32)


def core_index(position):
    """Which of eight specials the first 64 tuples have: all pairs in the first two operands."""
    number = np.arange(64)
    return (number % 8, number // 8, (5 * number + number // 8) % 8)[position % 3]


def integer_operands(bits, position, words):
    mask = word((1 << bits) - 1)
    top = 1 << bits - 1
    specials = [0, 1, 2 * top - 1, top, top - 1, 2, 2 * top - 2, top + 1]
    pool = np.array(specials + [number & 2 * top - 1 for number in SMALL_INTEGERS], np.uint64)
    choice = words[0] % word(8)
    with np.errstate(over="ignore"):
        power = (word(1) << words[1] % word(bits)) + words[2] % word(3) - word(1)
        short = (words[1] & mask) >> words[2] % word(bits)
        values = np.where(choice == 5, word(0) - short, words[3])
    values = np.where(choice == 4, short, values)
    values = np.where(choice == 3, power, values)
    values = np.where(choice < 3, pool[words[1] % word(len(pool))], values)
    values[:64] = np.array(specials, np.uint64)[core_index(position)]
    return (values & mask).astype(f"u{bits // 8}")


def float_operands(kind, position, words):
    exponent_bits, fraction_bits = FLOATS[kind]
    bits = 1 + exponent_bits + fraction_bits
    bias = (1 << exponent_bits - 1) - 1
    shift = word(fraction_bits)
    core, pool = special_floats(kind)
    choice = words[0] % word(8)
    sign = (words[0] >> word(40) & word(1)) << word(bits - 1)
    fraction = words[1] & word((1 << fraction_bits) - 1)

    def exponents(reach):
        return word(bias - reach) + words[2] % word(2 * reach + 1)

    values = sign | exponents(4) << shift | fraction  # numbers whose bits meet in a sum
    halfway = fraction_half_way(fraction_bits, fraction, words[3])
    values = np.where(choice == 4, sign | exponents(min(bias - 1, 30)) << shift | halfway, values)
    values = np.where(choice == 5, sign | exponents(min(bias - 1, 150)) << shift | fraction, values)
    values = np.where(choice == 6, sign | integers_and_halves(kind, words), values)
    values = np.where(choice == 7, words[3] & word((1 << bits) - 1), values)
    values = np.where(choice < 3, np.array(pool, np.uint64)[words[1] % word(len(pool))], values)
    values[:64] = np.array(core, np.uint64)[core_index(position)]
    if kind == "f16" and position == 0:
        values[64:96] = np.arange(32) * 33  # more subnormals
    return values.astype(f"u{bits // 8}")


def special_floats(kind):
    """Eight floats whose pairs are all tried, and those with others."""
    exponent_bits, fraction_bits = FLOATS[kind]
    bias = (1 << exponent_bits - 1) - 1
    infinity = (1 << exponent_bits) - 1 << fraction_bits
    sign = 1 << exponent_bits + fraction_bits
    one = bias << fraction_bits
    doubled = 1 << fraction_bits
    quiet = 1 << fraction_bits - 1
    core = [0, sign, infinity, sign | infinity, infinity | quiet | 5, infinity - 1, 1, sign | one]
    pool = [*core, one, one + 1, one - 1, one + doubled, one - doubled, one - 2 * doubled, one | quiet]
    pool += [infinity | 1, sign | infinity | 3, sign | infinity | quiet, infinity | quiet | quiet - 1]
    pool += [
        doubled - 1,
        sign | doubled - 1,
        doubled,
        sign | doubled,
        sign | 1,
        sign | infinity - 1,
        sign | one - doubled,
    ]
    for power in LARGE_POWERS:
        if power <= bias:
            number = one + power * doubled
            pool += [number, number - 1, sign | number]
    return core, pool


def fraction_half_way(fraction_bits, fraction, random):
    """Fractions that end in 1000…, 0111… or 1000…1: half way between two shorter ones, or next to it."""
    with np.errstate(over="ignore"):
        half = word(1) << random % word(fraction_bits)
        tail = half + (random >> word(20)) % word(3) - word(1)
        return (fraction & ~(half * word(2) - word(1)) | tail) & word((1 << fraction_bits) - 1)


def integers_and_halves(kind, words):
    """The bits of n / 2 for integers n of any length: what conversions to integers round."""
    number = (words[1] >> word(11) >> words[2] % word(53)).astype(np.float64) / 2
    if kind == "f64":
        return number.view(np.uint64)
    if kind == "f16":
        return np.minimum(number, 65504).astype(np.float16).view(np.uint16).astype(np.uint64)
    single = number.astype(np.float32).view(np.uint32).astype(np.uint64)
    return single >> word(16) if kind == "bf16" else single


def cancelling(kind, a, b):
    """Bits near -(a * b): the sum of a fma then has nothing left but the product's lower half."""
    if kind.endswith("x2"):
        low = cancelling(kind[:-2], a.astype(np.uint16), b.astype(np.uint16)).astype(np.uint32)
        high = cancelling(kind[:-2], (a >> 16).astype(np.uint16), (b >> 16).astype(np.uint16)).astype(np.uint32)
        return low | high << np.uint32(16)
    with np.errstate(all="ignore"):
        if kind == "bf16":
            product = -((a.astype(np.uint32) << 16).view(np.float32) * (b.astype(np.uint32) << 16).view(np.float32))
            bits = (product.view(np.uint32) >> 16).astype(np.uint16)
        else:
            product = -(a.view(f"f{a.itemsize}") * b.view(f"f{a.itemsize}"))
            bits = product.view(a.dtype)
    noise = (splitmix(77, COUNT) % word(4)).astype(a.dtype)
    return np.where(np.isnan(product), a.dtype.type(0), bits ^ noise)
