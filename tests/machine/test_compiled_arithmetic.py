"""Machine code of arithmetic instructions has the bits of numpy's, which have those of the card."""

from __future__ import annotations

import os

import numpy as np
import pytest
from recorded_operands import COUNT, operand_tuple
from test_arithmetic_recorded import form_operands, recorded_forms

from tilescope.machine.arithmetic import UnknownForm, operation
from tilescope.machine.compiled import native_code
from tilescope.machine.compiled.native_code import compile_function
from tilescope.machine.compiled.register_tables import RegisterTables
from tilescope.machine.compiled.run_code import RunCode
from tilescope.machine.program import DTYPE_OF_BITS
from tilescope.machine.step import Arithmetic, WordOperation, WordSource
from tilescope.ptx.syntax import BITS_OF_TYPE

pytestmark = pytest.mark.usefixtures("numba")

LANES = 2048  # recorded operands, then random words, then special words
TRIED_AT_ONCE = 64  # instructions of one function
SPECIAL = {
    16: [0, 1, 0x3FF, 0x400, 0x3C00, 0x7BFF, 0x7C00, 0x7E00, 0x7C01, 0x3F80, 0x7F80, 0x7F81, 0x7F, 0x80],
    32: [
        *(0, 1, 31, 32, 33, 255, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7F800001),
        *(0x7FC00000, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x387FFFFF, 0x4F000000, 0x4EFFFFFF, 0x7FFFFFFF),
    ],
    64: [0, 1, 63, 64, 0x3FF << 52, 0x7FF << 52, (0x7FF << 52) + 1, (1 << 52) - 1, 1 << 52, (1 << 63) - 1],
}
OTHER_FORMS = [
    "add.f32x2",
    "sub.f32x2",
    "add.sat.f16",
    "sub.rn.bf16x2",
    "min.NaN.bf16x2",
    "max.ftz.f16",
    "neg.ftz.f32",
    "abs.bf16x2",
    "neg.f64",
    "abs.f64",
    "fma.rn.sat.f32",
    "add.ftz.f32",
    "setp.lt.and.s32",
    "setp.geu.or.f32",
    "setp.num.xor.f16",
    "setp.nan.bf16",
    "setp.hs.u64",
    "setp.ne.b16",
    "setp.equ.ftz.f32",
    "and.pred",
    "not.pred",
    "xor.pred",
    "selp.f16",
    "selp.b64",
    "sad.s16",
    "div.s32",
    "div.u64",
    "rem.s64",
    "rem.u16",
    "mul.hi.s64",
    "mad.hi.u32",
    "mad.wide.s16",
    "cnot.b16",
    "bfind.shiftamt.s64",
    "brev.b64",
    "cvt.s64.s8",
    "cvt.u8.s32",
    "cvt.rzi.ftz.u16.f32",
    "cvt.rpi.s8.f16",
    "cvt.rni.s64.f64",
    "cvt.rn.f64.u64",
    "cvt.rn.f32.s8",
    "cvt.rmi.f32.f32",
    "cvt.f32.f32",
    "cvt.f64.f64",
]
CONSTANT_SOURCES = [
    *[("lop3.b32", {3: table}) for table in range(256)],
    *[
        (f"{name}.b{bits}", {1: amount})
        for name in ("shl", "shr")
        for bits in (16, 32, 64)
        for amount in (0, 5, 16, 40, 99)
    ],
    *[("shr.s32", {1: amount}) for amount in (0, 31, 32, 1 << 31)],
    *[("bfe.s32", {1: start, 2: length}) for start, length in ((0, 1), (3, 7), (31, 1), (0, 32))],
    *[("bfe.u32", {1: start, 2: length}) for start, length in ((4, 8), (40, 3), (3, 0), (8, 255))],
    *[("prmt.b32", {2: selector}) for selector in (0x5410, 0x7632, 0x3210, 0x0123, 0x7654, 0x6420)],
]


class Trial:
    """An instruction, its operands as arrays of all lanes, and which of them are constants."""

    def __init__(self, opcode, arrays, constants=None):
        self.opcode = opcode
        self.name, *modifiers = opcode.split(".")
        self.modifiers = tuple(modifiers)
        self.constants = constants or {}
        self.operation = operation(self.name, self.modifiers, len(arrays) - (self.name in ("addc", "subc", "madc")), 1)
        self.arrays = [
            np.ascontiguousarray(array).astype(DTYPE_OF_BITS[BITS_OF_TYPE[kind]])
            for array, kind in zip(arrays, self.operation.source_types, strict=True)
        ]
        for place, value in self.constants.items():
            self.arrays[place] = np.full(LANES, value, self.arrays[place].dtype)

    def expected(self):
        """The results by numpy."""
        sources = [
            np.broadcast_to(array[0], array.shape) if place in self.constants else array
            for place, array in enumerate(self.arrays)
        ]
        with np.errstate(all="ignore"):
            computed = self.operation.compute(*sources)
        return (computed,) if self.operation.result_count == 1 else computed


def widened(arrays):
    """Operands of all lanes: those recorded, random ones, and special ones of either sign beside each other."""
    random = np.random.default_rng(7)
    found = []
    for place, array in enumerate(map(np.asarray, arrays)):
        count = LANES - COUNT
        if array.dtype == np.bool_:
            rest = random.integers(0, 2, count).astype(bool)
        else:
            bits = 8 * array.itemsize
            words = random.integers(0, 1 << 64, count, dtype=np.uint64, endpoint=False).astype(array.dtype)
            special = np.array([*SPECIAL[bits], *[word | 1 << bits - 1 for word in SPECIAL[bits]]], np.uint64)
            step = len(special) ** place
            mixed = special[np.arange(count // 2) // step % len(special)].astype(array.dtype)
            rest = np.concatenate([mixed, words[len(mixed) :]])
        found.append(np.concatenate([array, rest]))
    return found


def recorded_trials():
    for form in recorded_forms():
        constants = {} if form.immediate is None else {3: form.immediate}
        try:
            yield Trial(form.opcode, widened(form_operands(form)), constants)
        except (UnknownForm, ValueError):
            continue  # a form of two results, which other tests have


def other_trials():
    for opcode in OTHER_FORMS:
        name, *modifiers = opcode.split(".")
        kinds = operation(name, tuple(modifiers)).source_types
        yield Trial(opcode, widened([operands_of(kind, place) for place, kind in enumerate(kinds)]))
    for opcode, constants in CONSTANT_SOURCES:
        name, *modifiers = opcode.split(".")
        kinds = operation(name, tuple(modifiers)).source_types
        yield Trial(opcode, widened([operands_of(kind, place) for place, kind in enumerate(kinds)]), constants)


def operands_of(kind, place):
    if kind == "f32x2":
        low, high = operand_tuple(["f32", "f32"])
        return high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return operand_tuple(["b32"] * place + [kind])[place]


class Try:
    """Instructions in one function, each with registers of its own."""

    def __init__(self, lanes, *, guard=None):
        self.lanes = lanes
        self.registers = []
        self.constants = {}
        self.written = []  # (trial, registers of its results)
        self.guard = None if guard is None else WordSource(self.add(guard), 1)
        self.code = None

    def add(self, array):
        self.registers.append(np.array(array))
        return len(self.registers) - 1

    def run(self, trials):
        """The trials that have machine code, each with its results."""
        described = []
        for trial in trials:
            sources = []
            for place, (array, kind) in enumerate(zip(trial.arrays, trial.operation.source_types, strict=True)):
                number = self.add(array)
                if place in trial.constants:
                    self.constants[number] = trial.constants[place]
                sources.append(WordSource(number, BITS_OF_TYPE[kind]))
            bits = (BITS_OF_TYPE[trial.operation.result_type], 1)
            targets = [self.add(np.ones(LANES, DTYPE_OF_BITS[width])) for width in bits[: trial.operation.result_count]]
            described.append((trial, WordOperation(trial.name, trial.modifiers, tuple(sources), tuple(targets), bits)))
        code = RunCode([register.dtype for register in self.registers], self.constants)
        for trial, found in described:
            if code.write(Arithmetic((found,), self.guard)):
                self.written.append((trial, found.targets))
        function = compile_function(code.text("run"))
        assert function is not None
        tables = RegisterTables(self.registers, LANES)
        function(tables.table(tuple(code.numbers)), *tables.active(self.lanes, 4))
        return [(trial, [self.registers[target] for target in targets]) for trial, targets in self.written]


def different(written, lanes, holds=None):
    """The opcodes whose results differ from numpy's, with the operands of the first lane; lanes that are not active keep a 1."""
    is_active = np.zeros(LANES, bool)
    is_active[lanes] = True
    if holds is not None:
        is_active &= holds
    found = []
    for trial, results in written:
        for expected, result in zip(trial.expected(), results, strict=False):
            wanted = np.where(is_active, expected, np.ones_like(result))
            wrong = np.flatnonzero(wanted != result)
            if len(wrong):
                lane = wrong[0]
                words = [hex(int(array[lane])) for array in trial.arrays]
                found.append((trial.opcode, trial.constants, words, hex(int(wanted[lane])), hex(int(result[lane]))))
    return found


@pytest.fixture(scope="module")
def all_trials():
    return [*recorded_trials(), *other_trials()]


def test_every_covered_form_has_the_bits_of_numpy(all_trials):
    covered = []
    for start in range(0, len(all_trials), TRIED_AT_ONCE):
        written = Try(slice(None)).run(all_trials[start : start + TRIED_AT_ONCE])
        assert different(written, slice(None)) == []
        covered += [trial.opcode for trial, _ in written]
    assert set(OTHER_FORMS) <= set(covered)
    assert len(set(covered)) > 700


@pytest.mark.parametrize("lanes", [[0], [3, 4, 5, 9, 700], range(100, 1999), range(1, LANES, 7)], ids=str)
def test_other_lanes_keep_their_registers(all_trials, lanes):
    own = np.array(lanes)
    holds = np.random.default_rng(3).integers(0, 2, LANES).astype(bool)
    some = all_trials[:: len(all_trials) // TRIED_AT_ONCE]
    assert different(Try(own).run(some), own) == []
    assert different(Try(own, guard=holds).run(some), own, holds) == []


def test_machine_code_is_kept_and_a_damaged_file_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(native_code, "find_cache_folder", lambda: tmp_path)
    host = native_code._Host()
    code = RunCode([np.dtype(np.uint32)] * 3, {})
    code.write(Arithmetic((WordOperation("add", ("u32",), (WordSource(0, 32), WordSource(1, 32)), (2,), (32,)),)))
    text = code.text("run")
    host.function(text)
    (path,) = (tmp_path / "runs").iterdir()
    held = path.read_bytes()
    path.write_bytes(held[:-1] + b"?")
    other = native_code._Host()  # which owns the memory of its functions
    function = other.function(text)
    assert path.read_bytes() == held
    registers = [np.arange(32, dtype=np.uint32), np.full(32, 5, np.uint32), np.zeros(32, np.uint32)]
    tables = RegisterTables(registers, 32)
    function(tables.table(tuple(code.numbers)), *tables.active(slice(None), 4))
    assert registers[2].tolist() == list(range(5, 37))


def test_machine_code_beyond_the_limit_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(native_code, "find_cache_folder", lambda: tmp_path)
    monkeypatch.setattr(native_code, "_LIMIT_BYTES", 100_000)
    folder = tmp_path / "runs"
    folder.mkdir()
    for age in range(3):
        path = folder / f"{age}.o"
        path.write_bytes(bytes(40_000))
        os.utime(path, (1000 - age, 1000 - age))
    code = RunCode([np.dtype(np.uint32)] * 2, {})
    code.write(Arithmetic((WordOperation("not", ("b32",), (WordSource(0, 32),), (1,), (32,)),)))
    native_code._Host().function(code.text("run"))
    kept = {path.name for path in folder.iterdir()}
    assert {"0.o", "1.o"} < kept
    assert "2.o" not in kept


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(native_code, "find_cache_folder", lambda: tmp_path / "file")
    code = RunCode([np.dtype(np.uint32)] * 2, {})
    code.write(Arithmetic((WordOperation("mov", (), (WordSource(0, 32),), (1,), (32,)),)))
    assert native_code._Host().function(code.text("run")) is not None
