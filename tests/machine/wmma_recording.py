"""What a card does for every form of wmma: PTX of every form, operands from a seed, the recorder.

    python tests/machine/wmma_recording.py text wmma.ptx             # then: ptxas -arch sm_90a wmma.ptx -o wmma.cubin
    python tests/machine/wmma_recording.py record wmma.cubin NPZ     # with an H200 and cupy

A load reads memory whose elements hold their own numbers (narrow ones a digit a launch) and shows the registers of all lanes. A store
writes registers that hold their own numbers, and shows the memory. A product gets random registers: where an element lies in two
registers, these differ. Beside it every load and store is tried at addresses and strides that are less and less aligned.
"""

import hashlib
import itertools
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sparse_products import BITS, FLOATS, KINDS, Random, codes, digest, packed

WARP = 32
MEMORY_BYTES = 8192
NUMBER_BITS = 16  # of an element's own number
CASES = 16
SHAPES = {
    "m16n16k16": (16, 16, 16),
    "m32n8k16": (32, 8, 16),
    "m8n32k16": (8, 32, 16),
    "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
    "m8n8k32": (8, 8, 32),
    "m8n8k128": (8, 8, 128),
}
WIDE = ("m16n16k16", "m32n8k16", "m8n32k16")
ROWS = (
    # types of A and B, shapes, types of C and D
    (("f16",), WIDE, ("f16", "f32")),
    (("bf16",), WIDE, ("f32",)),
    (("s8", "u8"), WIDE, ("s32",)),
    (("tf32",), ("m16n16k8",), ("f32",)),
    (("f64",), ("m8n8k4",), ("f64",)),
    (("s4", "u4"), ("m8n8k32",), ("s32",)),
    (("b1",), ("m8n8k128",), ("s32",)),
)
SPACES = ("generic", "global", "shared")


def extents(shape, operand):
    """Rows and columns of an operand."""
    m, n, k = SHAPES[shape]
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[operand]


def fragment_bytes(shape, operand, data_type):
    """Bytes of a lane's registers: f16 operands always fill eight, some elements twice or four times."""
    if operand in "ab" and data_type == "f16":
        return 32
    rows, columns = extents(shape, operand)
    return rows * columns * BITS[data_type] // 8 // WARP


def register_bits(data_type):
    return max(32, BITS[data_type])


def registers(shape, operand, data_type):
    return fragment_bytes(shape, operand, data_type) * 8 // register_bits(data_type)


class Move(NamedTuple):
    """A wmma.load or a wmma.store."""

    operand: str  # a, b, c: loaded; d: stored
    layout: str
    shape: str
    data_type: str
    space: str
    padding: int | None  # elements between the rows (or columns); None: no stride is written

    @property
    def name(self):
        stride = "tight" if self.padding is None else f"padded{self.padding}"
        return f"{self.operand}_{self.layout}_{self.shape}_{self.data_type}_{self.space}_{stride}"

    @property
    def entry(self):
        """The kernel: one for all strides that are written."""
        return "_".join((*self[:5], "tight" if self.padding is None else "strided"))

    @property
    def leading(self):
        """Elements of a row, or of a column where columns follow each other."""
        rows, columns = extents(self.shape, self.operand)
        return columns if self.layout == "row" else rows

    @property
    def stride(self):
        return self.leading + (self.padding or 0)

    @property
    def registers(self):
        return registers(self.shape, self.operand, self.data_type)

    @property
    def passes(self):
        return max(1, NUMBER_BITS // BITS[self.data_type]) if self.operand != "d" else 1


class Product(NamedTuple):
    """A wmma.mma."""

    a_layout: str
    b_layout: str
    shape: str
    d: str
    a: str  # and of B
    c: str
    words: str  # satfinite, xor, and, a rounding; or nothing

    @property
    def name(self):
        return "_".join(filter(None, ("mma", *self)))

    @property
    def opcode(self):
        parts = ["wmma.mma"]
        if self.a == "b1":
            parts.append(f"{self.words}.popc")
        parts += ["sync.aligned", self.a_layout, self.b_layout, self.shape]
        if self.a == "f64" and self.words:
            parts.append(self.words)
        parts.append(self.d)
        if self.a != "f16":
            parts += [self.a, self.a]
        parts.append(self.c)
        if self.words == "satfinite":
            parts.append(self.words)
        return ".".join(parts)

    @property
    def operands(self):
        """Letter and type of what the instruction reads."""
        return ("a", self.a), ("b", self.a), ("c", self.c)


def layouts(data_type, operand):
    if BITS[data_type] < 8:
        return {"a": ("row",), "b": ("col",)}[operand]
    return ("row", "col")


def moves():
    made = {}
    for types, shapes, sums in ROWS:
        for shape, operand in itertools.product(shapes, "abcd"):
            for data_type in types if operand in "ab" else sums:
                orders = layouts(data_type, operand) if operand in "ab" else ("row", "col")
                sixteen_bytes = 16 * 8 // BITS[data_type]
                paddings = (None, sixteen_bytes, 2 * sixteen_bytes)
                for layout, space, padding in itertools.product(orders, SPACES, paddings):
                    form = Move(operand, layout, shape, data_type, space, padding)
                    made[form.name] = form
    return tuple(made.values())


def words_of(data_type):
    """What may stand in the opcode beside types, layouts and the shape."""
    if data_type == "b1":
        return ("xor", "and")
    if data_type == "f64":
        return ("", "rn", "rz", "rm", "rp")
    return ("",) if data_type in FLOATS else ("", "satfinite")


def products():
    for types, shapes, sums in ROWS:
        for shape, data_type in itertools.product(shapes, types):
            orders = itertools.product(layouts(data_type, "a"), layouts(data_type, "b"))
            for (a, b), d, c, word in itertools.product(orders, sums, sums, words_of(data_type)):
                yield Product(a, b, shape, d, data_type, c, word)


MOVES = moves()
PRODUCTS = tuple(products())


def vector(prefix, count):
    return "{" + ", ".join(f"%{prefix}{number}" for number in range(count)) + "}"


def declared(prefix, count, bits):
    return f"  .reg .b{bits} %{prefix}<{count}>;"


def start(name, parameters):
    """An entry's head; %at has the number of the lane's first word among (…, registers, lanes), `per_case` words a block."""
    listed = ", ".join(f".param .{kind} {parameter}" for kind, parameter in parameters)
    return [
        f".visible .entry {name}({listed})",
        "{",
        "  .reg .b32 %lane, %case, %index, %stride, %u;",
        "  .reg .b64 %base, %offset, %memory, %in, %out;",
        "  .reg .pred %more;",
        "  mov.u32 %lane, %tid.x;",
        "  mov.u32 %case, %ctaid.x;",
    ]


def lane_address(register, parameter, words_per_case, word_bytes):
    """Where the lane's first register lies in an array (cases, registers, lanes)."""
    return [
        f"  ld.param.u64 %base, [{parameter}];",
        f"  mad.lo.u32 %index, %case, {words_per_case}, %lane;",
        f"  mul.wide.u32 %offset, %index, {word_bytes};",
        f"  add.u64 %{register}, %base, %offset;",
    ]


def registers_loaded(prefix, count, bits, first=0):
    return [f"  ld.global.b{bits} %{prefix}{i}, [%in + {bits // 8 * WARP * i + first}];" for i in range(count)]


def registers_stored(prefix, count, bits):
    return [f"  st.global.b{bits} [%out + {bits // 8 * WARP * i}], %{prefix}{i};" for i in range(count)]


def between_memories(form, direction):
    """Copy a case's memory to shared memory, or back."""
    to = "st.shared.b32 [%u], %index;" if direction == "in" else "st.global.b32 [%offset], %index;"
    come = "ld.global.b32 %index, [%offset];" if direction == "in" else "ld.shared.b32 %index, [%u];"
    label = f"{direction}_{form.entry}"
    return [
        "  mov.u32 %u, tile;",
        "  mad.lo.u32 %u, %lane, 4, %u;",
        "  mul.wide.u32 %offset, %lane, 4;",
        "  add.u64 %offset, %memory, %offset;",
        "  mov.u32 %stride, 0;",
        f"{label}:",
        f"  {come}",
        f"  {to}",
        f"  add.u32 %u, %u, {4 * WARP};",
        f"  add.u64 %offset, %offset, {4 * WARP};",
        f"  add.u32 %stride, %stride, {4 * WARP};",
        f"  setp.lt.u32 %more, %stride, {MEMORY_BYTES};",
        f"  @%more bra {label};",
        "  bar.sync 0;",
    ]


def move_entry(form):
    bits = register_bits(form.data_type)
    words = form.registers * WARP
    lines = start(form.entry, (("u64", "memory"), ("u32", "stride"), ("u64", "words")))
    lines += [declared("r", form.registers, bits)]
    if form.space == "shared":
        lines += [f"  .shared .align 128 .b8 tile[{MEMORY_BYTES}];"]
    lines += ["  ld.param.u64 %base, [memory];", f"  mul.wide.u32 %offset, %case, {MEMORY_BYTES};"]
    lines += ["  add.u64 %memory, %base, %offset;"]
    if form.space == "shared":
        lines += between_memories(form, "in")
    lines += ["  ld.param.u32 %stride, [stride];"]
    place = "tile" if form.space == "shared" else "%memory"
    space = "" if form.space == "generic" else f".{form.space}"
    stride = "" if form.padding is None else ", %stride"
    tail = f"sync.aligned.{form.layout}.{form.shape}{space}.{form.data_type}"
    held = vector("r", form.registers)
    if form.operand == "d":
        lines += lane_address("in", "words", words, bits // 8)
        lines += registers_loaded("r", form.registers, bits)
        lines += [f"  wmma.store.d.{tail} [{place}], {held}{stride};"]
        if form.space == "shared":
            lines += ["  bar.sync 0;", *between_memories(form, "out")]
    else:
        lines += lane_address("out", "words", words, bits // 8)
        lines += [f"  wmma.load.{form.operand}.{tail} {held}, [{place}]{stride};"]
        lines += registers_stored("r", form.registers, bits)
    return "\n".join([*lines, "  ret;", "}", ""])


def product_entry(form):
    lines = start(form.name, (*(("u64", letter) for letter, _ in form.operands), ("u64", "d")))
    held = []
    for letter, data_type in form.operands:
        bits = register_bits(data_type)
        count = registers(form.shape, letter, data_type)
        lines += [declared(letter, count, bits)]
        lines += lane_address("in", letter, count * WARP, bits // 8)
        lines += registers_loaded(letter, count, bits)
        held.append(vector(letter, count))
    bits = register_bits(form.d)
    count = registers(form.shape, "d", form.d)
    lines += [declared("d", count, bits)]
    lines += lane_address("out", "d", count * WARP, bits // 8)
    lines += [f"  {form.opcode} {vector('d', count)}, {', '.join(held)};"]
    lines += registers_stored("d", count, bits)
    return "\n".join([*lines, "  ret;", "}", ""])


def text(target="sm_90a"):
    """PTX of every form."""
    entries = {form.entry: move_entry(form) for form in MOVES}
    entries |= {form.name: product_entry(form) for form in PRODUCTS}
    return f".version 8.5\n.target {target}\n.address_size 64\n\n" + "\n".join(entries.values())


def numbered_memory(form):
    """Memory whose elements hold their own numbers: (passes, bytes), the lowest digits first."""
    bits = BITS[form.data_type]
    if form.operand == "d":
        return np.full((1, MEMORY_BYTES), 0xFF, np.uint8)
    numbers = np.arange(MEMORY_BYTES * 8 // bits)
    if bits > NUMBER_BITS:
        return numbers.astype(f"u{bits // 8}").view(np.uint8)[None]
    digits = [numbers >> number * bits & (1 << bits) - 1 for number in range(form.passes)]
    if bits >= 8:
        return np.stack([digit.astype(f"u{bits // 8}").view(np.uint8) for digit in digits])
    return np.stack([packed(digit.astype(np.uint64), bits).view(np.uint8) for digit in digits])


def numbered_registers(form):
    """Registers whose elements hold their own numbers: (1, registers, lanes)."""
    bits = BITS[form.data_type]
    parts = register_bits(form.data_type) // bits
    lane, register, part = np.ix_(range(WARP), range(form.registers), range(parts))
    numbers = (lane * form.registers + register) * parts + part
    words = np.ascontiguousarray(numbers).astype(f"u{bits // 8}").view(f"u{register_bits(form.data_type) // 8}")[..., 0]
    return np.ascontiguousarray(words.T)[None]


def operand_words(random, data_type, kind, count):
    bits = BITS[data_type]
    if bits == 64:
        return codes(random, data_type, kind, (count, WARP))
    return packed(codes(random, data_type, kind, (count, WARP, 32 // bits)), bits)[..., 0]


def operands(form):
    """A, B and C of all cases of a product: arrays (cases, registers, lanes)."""
    random = Random(int(hashlib.sha256(form.name.encode()).hexdigest()[:12], 16))
    made = []
    for letter, data_type in form.operands:
        count = registers(form.shape, letter, data_type)
        cases = [operand_words(random, data_type, KINDS[case % len(KINDS)], count) for case in range(CASES)]
        made.append(np.stack(cases))
    return made


def moved_by_card(cupy, module, form):
    """Registers (passes, registers, lanes) after a load, memory (1, bytes) after a store."""
    memory = cupy.asarray(numbered_memory(form))
    if form.operand == "d":
        words = cupy.asarray(numbered_registers(form))
    else:
        words = cupy.zeros((form.passes, form.registers, WARP), f"u{register_bits(form.data_type) // 8}")
    arguments = (memory, np.uint32(form.stride), words)
    module.get_function(form.entry)((form.passes,), (WARP,), arguments)
    return (memory if form.operand == "d" else words).get()


def multiplied_by_card(cupy, module, form):
    """D of every case: (cases, registers, lanes)."""
    count = registers(form.shape, "d", form.d)
    d = cupy.zeros((CASES, count, WARP), f"u{register_bits(form.d) // 8}")
    given = [cupy.asarray(array) for array in operands(form)]
    module.get_function(form.name)((CASES,), (WARP,), (*given, d))
    return d.get()


STRIDED = {form.entry: form for form in MOVES if form.padding is not None}
PROBES = tuple(
    (entry, kind)
    for entry, form in STRIDED.items()
    for kind in {"generic": ("offset", "stride"), "shared": ("stride",)}.get(form.space, ())
)


def probe_steps(form, kind):
    """Byte offsets and strides that are less and less aligned."""
    bits = BITS[form.data_type]
    if kind == "offset":
        return [(offset, form.leading + 2 * 128 // bits) for offset in (16, 8, 4, 2, 1) if offset * 8 >= bits]
    paddings = dict.fromkeys(max(1, step_bits // bits) for step_bits in (64, 32, 16, 8, 1))
    return [(0, form.leading + padding) for padding in paddings]


def probe_on_card(cubin, entry, kind):
    """One line for every step that the card took, and for the one that it did not: it ends the process."""
    cupy = import_module("cupy")
    form = STRIDED[entry]
    kernel = cupy.RawModule(path=cubin).get_function(entry)
    filled = numbered_memory(form)
    for offset, stride in probe_steps(form, kind):
        memory = cupy.zeros(filled.size + 64, np.uint8)
        memory[: filled.size] = cupy.asarray(filled.ravel())
        words = cupy.zeros(form.passes * form.registers * WARP, f"u{register_bits(form.data_type) // 8}")
        try:
            kernel((form.passes,), (WARP,), (memory[offset:], np.uint32(stride), words))
            cupy.cuda.Device().synchronize()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if "isaligned" not in str(error):
                raise
            sys.stdout.write(f"{entry} {offset} {stride} misaligned\n")
            return
        sys.stdout.write(f"{entry} {offset} {stride} ok\n")


def probed(cubin, entry, kind):
    """The lines of a probe in a process of its own."""
    command = [sys.executable, __file__, "probe", cubin, entry, kind]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    action, first, *others = sys.argv[1:]
    if action == "text":
        Path(first).write_text(text())
        return
    if action == "probe":
        probe_on_card(first, *others)
        return
    cupy = import_module("cupy")
    module = cupy.RawModule(path=first)
    digests = [digest(moved_by_card(cupy, module, form)) for form in MOVES]
    digests += [digest(case) for form in PRODUCTS for case in multiplied_by_card(cupy, module, form)]
    alignments = [line for entry, kind in PROBES for line in probed(first, entry, kind)]
    np.savez_compressed(
        others[0],
        forms=np.array("\n".join(form.name for form in (*MOVES, *PRODUCTS))),
        digests=np.array(digests, np.uint64),
        alignments=np.array("\n".join(alignments)),
    )


if __name__ == "__main__":
    main()
