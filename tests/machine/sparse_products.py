"""Products of a sparse A, as a card was asked for them: PTX of every form, operands from a seed, the recorder.

    python tests/machine/sparse_products.py text sparse.ptx            # then: ptxas -arch sm_90a sparse.ptx -o sparse.cubin
    python tests/machine/sparse_products.py record sparse.cubin NPZ    # with an H200 and cupy

Every entry executes one instruction a case. Registers hold random codes, shared memory random bytes, and the metadata of all
lanes random nibbles, also those of lanes that the selector does not choose.
"""

import hashlib
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

MMA_CASES = 16
WGMMA_CASES = 8
WARP = 32
WARPGROUP = 128
B_START = 4096  # where B lies in shared memory
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32}
BITS |= {"e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}
FLOATS = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 23),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
}
ORDERED = (0x4, 0x8, 0xC, 0x9, 0xD, 0xE)
ORDERED_TF32 = (0x4, 0xE)
SWAPPED = (0x1, 0x2, 0x3, 0x6, 0x7, 0xB)


class Form(NamedTuple):
    """One instruction: what stands in the text."""

    family: str  # mma or wgmma
    n: int
    k: int
    d: str
    a: str
    b: str
    selector: int
    ordered: bool = False  # mma.sp::ordered_metadata
    saturates: bool = False
    a_in_registers: bool = False
    a_sign: int = 1
    trans_a: int = 0
    trans_b: int = 0

    @property
    def name(self):
        parts = [self.family, f"n{self.n}k{self.k}", self.d, self.a, self.b, f"s{self.selector}"]
        flags = ("ordered", "saturates", "a_in_registers", "trans_a", "trans_b")
        parts += [word for word in flags if getattr(self, word)]
        if self.a_sign < 0:
            parts.append("negative")
        return "_".join(parts)

    @property
    def lanes(self):
        return WARP if self.family == "mma" else WARPGROUP

    @property
    def cases(self):
        return MMA_CASES if self.family == "mma" else WGMMA_CASES

    @property
    def a_words(self):
        """Registers of A: half of its elements are stored."""
        return (16 * self.k // 2) * BITS[self.a] // 32 // WARP

    @property
    def b_words(self):
        return 8 * self.k * BITS[self.b] // 32 // WARP if self.family == "mma" else 0

    @property
    def d_words(self):
        return 16 * self.n * BITS[self.d] // 32 // WARP

    @property
    def words(self):
        """Registers that a lane loads: A, B, C and the metadata."""
        return self.a_words + self.b_words + self.d_words + 1

    @property
    def smem_bytes(self):
        return B_START + 32768


MMA_SHAPES = (
    # k, types of A and B, of D, selectors
    (16, ("f16",), ("f16", "f32"), 4),
    (32, ("f16",), ("f16", "f32"), 2),
    (16, ("bf16",), ("f32",), 4),
    (32, ("bf16",), ("f32",), 2),
    (8, ("tf32",), ("f32",), 4),
    (16, ("tf32",), ("f32",), 2),
    (32, ("s8", "u8"), ("s32",), 2),
    (64, ("s8", "u8"), ("s32",), 1),
    (64, ("s4", "u4"), ("s32",), 2),
    (128, ("s4", "u4"), ("s32",), 1),
    (64, ("e4m3", "e5m2"), ("f32",), 1),
)
WGMMA_SHAPES = (
    # k, types of A and B, of D, selectors
    (32, ("f16",), ("f32",), 2),
    (32, ("f16",), ("f16",), 2),
    (32, ("bf16",), ("f32",), 2),
    (16, ("tf32",), ("f32",), 2),
    (64, ("e4m3", "e5m2"), ("f16", "f32"), 1),
    (64, ("s8", "u8"), ("s32",), 1),
)
SOME_N = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def mma_forms():
    for k, types, results, selectors in MMA_SHAPES:
        for d in results:
            for a in types:
                for b in types:
                    for selector in range(selectors):
                        for ordered in (False, True):
                            saturates = d == "s32" and ordered
                            yield Form("mma", 8, k, d, a, b, selector, ordered, saturates)


def wgmma_forms():
    number = 0
    for k, types, results, selectors in WGMMA_SHAPES:
        for d in results:
            for a in types:
                for b in types:
                    every_n = d == "f32" and a == "f16"
                    for n in range(8, 257, 8) if every_n else SOME_N:
                        number += 1
                        in_registers = number % 3 == 0
                        selector = number % selectors
                        negative = -1 if BITS[a] == 16 and number % 5 == 0 else 1
                        trans_a = int(BITS[a] == 16 and not in_registers and number % 4 == 0)
                        trans_b = int(BITS[a] == 16 and number % 4 < 2)
                        saturates = d == "s32" and number % 2 == 0
                        yield Form(
                            "wgmma",
                            n,
                            k,
                            d,
                            a,
                            b,
                            selector,
                            saturates=saturates,
                            a_in_registers=in_registers,
                            a_sign=negative,
                            trans_a=trans_a,
                            trans_b=trans_b,
                        )


FORMS = (*mma_forms(), *wgmma_forms())


def vector(prefix, count):
    return "{" + ", ".join(f"%{prefix}{number}" for number in range(count)) + "}"


def entry(form):
    """The entry of one form: operands from global memory, one instruction, D to global memory."""
    lines = [f".visible .entry {form.name}(", "  .param .u64 words, .param .u64 smem, .param .u64 descriptors,"]
    lines += ["  .param .u64 results)", "{", "  .reg .b32 %t, %u, %case, %lane, %index, %e;"]
    lines += ["  .reg .b64 %base, %offset, %in, %out, %from, %da, %db;", "  .reg .pred %all;"]
    for prefix, count in (("a", form.a_words), ("b", form.b_words), ("d", form.d_words)):
        lines.append(f"  .reg .b32 %{prefix}<{count + 1}>;")
    lines += ["  .reg .b32 %v<4>;"]
    if form.family == "wgmma":
        lines.append(f"  .shared .align 1024 .b8 tile[{form.smem_bytes}];")
    lines += ["  mov.u32 %t, %tid.x;", "  mov.u32 %u, %ntid.x;", "  mov.u32 %case, %ctaid.x;"]
    lines += ["  mad.lo.u32 %t, %case, %u, %t;", f"  shr.u32 %case, %t, {form.lanes.bit_length() - 1};"]
    lines += [f"  and.b32 %lane, %t, {form.lanes - 1};"]
    for parameter, register, count in (("words", "in", form.words), ("results", "out", form.d_words)):
        lines += [f"  ld.param.u64 %base, [{parameter}];"]
        lines += [f"  mad.lo.u32 %index, %case, {count * form.lanes}, %lane;"]
        lines += ["  mul.wide.u32 %offset, %index, 4;", f"  add.u64 %{register}, %base, %offset;"]
    registers = [f"%a{i}" for i in range(form.a_words)] + [f"%b{i}" for i in range(form.b_words)]
    registers += [f"%d{i}" for i in range(form.d_words)] + ["%e"]
    for number, register in enumerate(registers):
        lines.append(f"  ld.global.b32 {register}, [%in + {4 * form.lanes * number}];")
    lines += mma_lines(form) if form.family == "mma" else wgmma_lines(form)
    for number in range(form.d_words):
        lines.append(f"  st.global.b32 [%out + {4 * form.lanes * number}], %d{number};")
    return "\n".join([*lines, "  ret;", "}", ""])


def mma_lines(form):
    word = "sp::ordered_metadata" if form.ordered else "sp"
    clamp = ".satfinite" if form.saturates else ""
    d = vector("d", form.d_words)
    opcode = f"mma.{word}.sync.aligned.m16n8k{form.k}.row.col{clamp}.{form.d}.{form.a}.{form.b}.{form.d}"
    return [f"  {opcode} {d}, {vector('a', form.a_words)}, {vector('b', form.b_words)}, {d}, %e, {form.selector};"]


def wgmma_lines(form):
    lines = ["  ld.param.u64 %base, [smem];", f"  mul.wide.u32 %offset, %case, {form.smem_bytes};"]
    lines += [
        "  add.u64 %from, %base, %offset;",
        "  mul.wide.u32 %offset, %lane, 16;",
        "  add.u64 %from, %from, %offset;",
    ]
    lines += ["  mov.u32 %t, tile;", "  shl.b32 %u, %lane, 4;", "  add.u32 %u, %t, %u;"]
    step = 16 * WARPGROUP
    for first in range(0, form.smem_bytes, step):
        end = form.smem_bytes - first
        guard = ""
        if end < step:
            lines.append(f"  setp.lt.u32 %all, %lane, {end // 16};")
            guard = "@%all "
        lines.append(f"  {guard}ld.global.v4.b32 {vector('v', 4)}, [%from + {first}];")
        lines.append(f"  {guard}st.shared.v4.b32 [%u + {first}], {vector('v', 4)};")
    lines += ["  fence.proxy.async.shared::cta;", "  bar.sync 0;"]
    lines += ["  ld.param.u64 %base, [descriptors];", "  mul.wide.u32 %offset, %case, 16;"]
    lines += ["  add.u64 %from, %base, %offset;", "  ld.global.v2.b64 {%da, %db}, [%from];"]
    lines += [
        "  cvt.u64.u32 %offset, %t;",
        "  shr.u64 %offset, %offset, 4;",
    ]  # the tile lies behind what the driver takes
    lines += ["  add.u64 %da, %da, %offset;", "  add.u64 %db, %db, %offset;"]
    lines += ["  setp.eq.u32 %all, 0, 0;", "  wgmma.fence.sync.aligned;"]
    clamp = ".satfinite" if form.saturates else ""
    a = vector("a", form.a_words) if form.a_in_registers else "%da"
    options = ["%all"]
    if form.d != "s32":
        options += [str(form.a_sign), "1"]
    if BITS[form.a] == 16:
        options += [] if form.a_in_registers else [str(form.trans_a)]
        options += [str(form.trans_b)]
    opcode = f"wgmma.mma_async.sp.sync.aligned.m64n{form.n}k{form.k}{clamp}.{form.d}.{form.a}.{form.b}"
    operands = [vector("d", form.d_words), a, "%db", "%e", str(form.selector), *options]
    lines += [f"  {opcode} {', '.join(operands)};"]
    return [*lines, "  wgmma.commit_group.sync.aligned;", "  wgmma.wait_group.sync.aligned 0;"]


def text(forms=FORMS):
    """PTX of some forms."""
    return ".version 8.5\n.target sm_90a\n.address_size 64\n\n" + "\n".join(entry(form) for form in forms)


class Operands(NamedTuple):
    """What every case of a form is given; descriptors count from the first byte of the tile."""

    words: np.ndarray  # (cases, registers, lanes)
    smem: np.ndarray  # (cases, bytes)
    descriptors: np.ndarray  # (cases, 2)


class Random:
    """Words of a seed; PCG64's own stream does not change between versions of numpy."""

    def __init__(self, seed):
        self.bits = np.random.PCG64(seed)

    def words(self, *shape):
        return self.bits.random_raw(int(np.prod(shape))).reshape(shape)

    def chosen(self, pool, *shape):
        return np.array(pool, np.uint64)[self.words(*shape) % np.uint64(len(pool))]


def codes(random, data_type, kind, shape):
    """Codes of elements: their exponents close, few values, all but infinities and NaN, or any bits."""
    bits = BITS[data_type]
    words = random.words(*shape) >> np.uint64(64 - bits)
    if data_type not in FLOATS or kind == "bits":
        return words
    exponent_bits, fraction_bits = FLOATS[data_type]
    sign = words & np.uint64(1 << bits - 1)
    fraction = words & np.uint64((1 << fraction_bits) - 1)
    bias = (1 << exponent_bits - 1) - 1
    if kind == "close":
        exponent = random.chosen(range(bias - 2, bias + 3), *shape)
        return sign | exponent << np.uint64(fraction_bits) | fraction
    if kind == "few":
        exponent = random.chosen((0, bias - 1, bias, bias), *shape)
        return sign | exponent << np.uint64(fraction_bits)
    exponent = random.words(*shape) % np.uint64((1 << exponent_bits) - 1)
    return sign | exponent << np.uint64(fraction_bits) | fraction


KINDS = ("close", "wide", "few", "bits")


def packed(elements, bits):
    """Elements (…, n) as words of 32 bits, the first in the lowest."""
    per_word = 32 // bits
    parts = elements.reshape(*elements.shape[:-1], elements.shape[-1] // per_word, per_word).astype(np.uint64)
    shifts = np.arange(per_word, dtype=np.uint64) * np.uint64(bits)
    return (parts << shifts).sum(axis=-1, dtype=np.uint64).astype(np.uint32)


def metadata(random, form, case):
    """A word for every lane: in the first cases valid and in order, then valid, in the last any nibbles."""
    ordered = ORDERED_TF32 if form.a == "tf32" else ORDERED
    pools = [ordered, ordered, (*ordered, *SWAPPED), range(16)]
    if form.family == "wgmma":
        pools = pools[1::2]
    if form.a == "tf32":
        pools = [ordered, *pools[:-2], range(16)] if form.family == "mma" else pools
    return packed(random.chosen(pools[case // len(KINDS)], form.lanes, 8), 4)[:, 0]


def matrix_words(random, data_type, kind, count, lanes):
    return packed(codes(random, data_type, kind, (count, lanes, 32 // BITS[data_type])), BITS[data_type])[..., 0]


# How A and B lie in shared memory: leading and stride bytes, and the number of the swizzle in a descriptor.
A_FORMS = ((128, 256, 0), (1024, 128, 0), (16, 256, 3), (16, 512, 2))
B_FORMS = ((128, 512, 0), (16, 512, 2), (16, 1024, 1), (8192, 256, 3))
A_FORMS_MN = ((1024, 128, 0), (128, 256, 0), (2048, 1024, 1), (1024, 512, 2))
B_FORMS_MN = ((512, 128, 0), (128, 512, 0), (4096, 1024, 1), (2048, 512, 2))


def descriptor(start, leading_bytes, stride_bytes, swizzle):
    return start >> 4 | leading_bytes >> 4 << 16 | stride_bytes >> 4 << 32 | swizzle << 62


def operands(form):
    """The operands of all cases of a form."""
    random = Random(int(hashlib.sha256(form.name.encode()).hexdigest()[:12], 16))
    words = np.empty((form.cases, form.words, form.lanes), np.uint32)
    smem = np.zeros((form.cases, form.smem_bytes if form.family == "wgmma" else 0), np.uint8)
    descriptors = np.zeros((form.cases, 2), np.uint64)
    for case in range(form.cases):
        kind = KINDS[case % len(KINDS)]
        parts = [
            matrix_words(random, form.a, kind, form.a_words, form.lanes),
            matrix_words(random, form.b, kind, form.b_words, form.lanes),
            matrix_words(random, form.d, kind, form.d_words, form.lanes),
            metadata(random, form, case)[None],
        ]
        words[case] = np.concatenate(parts)
        if form.family == "wgmma":
            a = matrix_words(random, form.a, kind, B_START // 4, 1)
            b = matrix_words(random, form.b, kind, (form.smem_bytes - B_START) // 4, 1)
            smem[case] = np.concatenate([a, b]).view(np.uint8).ravel()
            a_form = (A_FORMS_MN if form.trans_a else A_FORMS)[case % 4]
            b_form = (B_FORMS_MN if form.trans_b else B_FORMS)[(case + form.n // 8) % 4]
            descriptors[case] = (descriptor(0, *a_form), descriptor(B_START, *b_form))
    return Operands(words, smem, descriptors)


def digest(result):
    """Eight bytes that stand for the bits of one D."""
    return np.frombuffer(hashlib.sha256(result.tobytes()).digest()[:8], np.uint64)[0]


def recorded_by_card(cubin):
    """D of every case of every form, (cases, registers, lanes), by the card."""
    cupy = import_module("cupy")
    module = cupy.RawModule(path=cubin)
    for form in FORMS:
        given = operands(form)
        on_card = [cupy.asarray(array if array.size else np.zeros(16, np.uint8)) for array in given]
        result = cupy.zeros((form.cases, form.d_words, form.lanes), np.uint32)
        module.get_function(form.name)((form.cases,), (form.lanes,), (*on_card, result))
        yield result.get()


def main():
    action, first, *others = sys.argv[1:]
    if action == "text":
        Path(first).write_text(text())
    else:
        digests = [digest(case) for result in recorded_by_card(first) for case in result]
        names = "\n".join(form.name for form in FORMS)
        np.savez_compressed(others[0], forms=np.array(names), digests=np.array(digests, np.uint64))


if __name__ == "__main__":
    main()
