"""What random programs on an H200 showed about single instructions, which no recorded operand had shown."""

import numpy as np
import pytest

from tilescope.machine.arithmetic import operation
from tilescope.machine.instructions.atomics import change_of


def computed(opcode, *operands):
    name, *modifiers = opcode.split(".")
    known = operation(name, tuple(modifiers))
    bits = 16 if modifiers[-1] in ("f16", "bf16") else 32
    with np.errstate(all="ignore"):
        return int(known.compute(*[np.array([operand], f"u{bits // 8}") for operand in operands])[0])


@pytest.mark.parametrize(
    ("opcode", "operands", "card"),
    [
        # tiny once rounded to all bits: flushed, though the subnormal numbers would round it up to a normal one
        ("fma.rn.ftz.relu.f16", (0x0400, 0x8EAB, 0x0400), 0x0000),
        ("mul.rn.ftz.f32", (0x20181F7C, 0x1FD76797), 0x00000000),
        ("mul.rp.ftz.f32", (0x2018CD66, 0x1FD6726C), 0x00000000),
        ("fma.rp.ftz.f32", (0x94181F7C, 0x20181F7C, 0x00800000), 0x00000000),
        ("div.rp.ftz.f32", (0x1B181F7B, 0x5A181F7C), 0x00000000),
        # so close to the smallest normal number that all bits round up to it
        ("fma.rn.ftz.f16", (0x84ED, 0x04ED, 0x0400), 0x0400),
        ("mul.rn.ftz.f16", (0x2010, 0x1FE0), 0x0400),
        ("mul.rn.ftz.f16", (0xB91C, 0x0643), 0x8400),
        # the NaN of elements outside a tensor, with a sign
        ("fma.rn.oob.f16", (0xFFF7, 0x0037, 0xB0E2), 0x0000),
        ("fma.rn.oob.relu.bf16", (0xFFF7, 0x41C0, 0xBFA0), 0x0000),
        ("fma.rn.oob.f16", (0xFFFF, 0x0000, 0x34BA), 0x7FFF),
    ],
)
def test_the_card_gave(opcode, operands, card):
    assert computed(opcode, *operands) == card


QUIET, SIGNALLING, ONE = 0x7FF8000000000001, 0xFFF0000000000004, 0x3FF0000000000000
INFINITY, MINUS_INFINITY = 0x7FF0000000000000, 0xFFF0000000000000


@pytest.mark.parametrize(
    ("old", "operand", "in_global", "in_shared"),
    [
        (ONE, SIGNALLING, SIGNALLING, SIGNALLING | 1 << 51),
        (SIGNALLING, ONE, SIGNALLING, SIGNALLING | 1 << 51),
        (SIGNALLING, QUIET, QUIET, SIGNALLING | 1 << 51),
        (QUIET, SIGNALLING, SIGNALLING, QUIET),
        (INFINITY, MINUS_INFINITY, 0xFFF8000000000000, 0xFFF8000000000000),
    ],
)
def test_additions_of_f64_hand_nans_on_as_the_card_does(old, operand, in_global, in_shared):
    change = change_of("add", "f64")
    words = np.array([old], np.uint64), np.array([operand], np.uint64)
    with np.errstate(all="ignore"):
        assert hex(int(change.combine(*words)[0])) == hex(in_global)
        assert hex(int(change.in_shared(*words)[0])) == hex(in_shared)
