"""Test vectors for tensor memory and block scaling.

Worked out from PTX ISA 9.0 to 9.2, CuTe (CUTLASS 4.2), TVM, JAX, Triton and DeepGEMM, and from what ptxas 13 accepts and checks at
run time; comments name the source of a group. None was measured on a card.
"""

import numpy as np
import pytest

from tilescope.errors import RuleError
from tilescope.mma.fragment import fragment
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.mma.scale_layout import scale_layout
from tilescope.mma.tensor_memory import TensorMemory
from tilescope.mma.tmem_address import TmemAddress
from tilescope.mma.tmem_copy import cp_shape
from tilescope.mma.tmem_form import named_move
from tilescope.mma.tmem_layout import tmem_layout


def test_an_address_word():  # PTX, "Tensor Memory Addressing"
    assert TmemAddress(96, 37).encode() == 0x00600025
    assert TmemAddress.decode(0x00600025) == TmemAddress(96, 37)


# The layouts of ld and st: CuTe, Triton, TVM.
@pytest.mark.parametrize(
    ("form", "thread", "register", "place"),
    [
        ("32x32b.x8", 5, 3, (5, 3)),
        ("16x64b.x4", 7, 3, (9, 7)),
        ("16x128b.x2", 13, 3, (11, 5)),
        ("16x256b.x2", 30, 7, (15, 13)),
    ],
)
def test_a_register_of_a_load(form, thread, register, place):
    assert fragment(f"tcgen05.ld.{form}").coord(thread, register) == place
    assert fragment(f"tcgen05.st.{form}").holder(*place) == (thread, register)


def numbered():
    """A memory whose cell holds its own address."""
    cells = (np.arange(128)[:, None] << 16 | np.arange(512)[None, :]).astype(np.uint32)
    return TensorMemory(cells, allocations=((0, 512),))


def test_a_load_at_an_address():
    assert numbered().load("32x32b.x8", TmemAddress(64, 16), warp=2)[5, 3] == TmemAddress(69, 19).encode()


def test_the_two_places_of_16x32bx2():
    assert numbered().load("16x32bx2.x4", 0, warp=0, split=64)[20, 2] == TmemAddress(4, 66).encode()


def test_packed_registers():  # CuTe, Triton
    wide = fragment("tcgen05.ld.32x32b.x4.pack::16b")
    assert [wide.coord(0, 2 * 3 + half) for half in (0, 1)] == [(0, 6), (0, 7)]
    assert fragment("tcgen05.ld.16x256b.x1.pack::16b").coord(5, 2 * 1 + 1) == (1, 7)
    assert named_move("tcgen05.ld.16x128b.x16.pack::16b").columns == 128


@pytest.mark.parametrize(
    "refused",
    [
        lambda: fragment("tcgen05.ld.16x256b.x64"),
        lambda: TensorMemory().alloc(48),
        lambda: TensorMemory().alloc(1024),
        lambda: cp_shape("64x128b"),
    ],
)
def test_what_ptxas_rejects(refused):
    with pytest.raises(RuleError):
        refused()


# Accumulators: PTX's figures; CuTe and TVM.
@pytest.mark.parametrize(
    ("shape", "options", "element", "letter", "place"),
    [
        ((64, 64), {"address": TmemAddress(16)}, (37, 5), "F", (0, (85,), 5, 0)),
        ((128, 128), {"cta_group": 2}, (70, 100), "B", (1, (70,), 36, 0)),
        ((32, 128), {"ws": True}, (9, 77), "G", (0, (73,), 13, 0)),
        ((64, 256), {"ws": True}, (10, 200), "E", (0, (74,), 72, 0)),
        ((256, 64), {"cta_group": 2}, (200, 9), "A", (1, (72,), 9, 0)),
        ((128, 32), {"operand": "A", "data_type": "bf16"}, (3, 5), "D", (0, (3,), 2, 16)),
        ((128, 32), {"operand": "A", "data_type": "e4m3"}, (100, 6), "D", (0, (100,), 1, 16)),
        ((128, 32), {"operand": "metadata", "data_type": "f16"}, (21, 19), "D", (0, (29,), 0, 3)),
        ((128, 32), {"operand": "metadata", "data_type": "f16"}, (28, 7), "D", (0, (20,), 0, 23)),
    ],
)
def test_a_place_in_tensor_memory(shape, options, element, letter, place):
    layout = tmem_layout(shape, **options)
    assert layout.datapath == letter
    assert layout.place(*element) == place


def test_lanes_of_cp():  # TVM, CuTe
    assert cp_shape("64x128b.warpx2::02_13").lanes[40].tolist() == [40, 104]
    assert cp_shape("64x128b.warpx2::01_23").lanes[40].tolist() == [72, 104]
    assert (28 + cp_shape("4x256b").lanes).ravel().tolist() == [28, 60, 92, 124]


# Scales in global and shared memory: the documentation of nvmath-python, and the formula.
@pytest.mark.parametrize(
    ("rows", "blocks", "scale", "offset"),
    [(128, 8, (5, 2), 82), (128, 8, (5, 5), 593), (384, 8, (300, 6), 2758), (256, 10, (200, 9), 2697)],
)
def test_the_byte_of_a_scale(rows, blocks, scale, offset):
    layout = scale_layout(rows, blocks * 16, "nvfp4")
    assert layout.offset(*scale) == offset
    assert layout.locate(offset) == scale


def test_the_bytes_of_all_scales():
    assert scale_layout(200, 160, "nvfp4").size_bytes == 3072


# Scales in tensor memory: CuTe, JAX, Triton, TVM.
@pytest.mark.parametrize(
    ("rows", "operand", "options", "scale", "place"),
    [
        (128, "A", {}, (77, 5), (0, (13, 45, 77, 109), 6, 8)),
        (256, "B", {}, (200, 6), (0, (8, 40, 72, 104), 14, 16)),
        (256, "B", {"m": 128, "cta_group": 2}, (200, 0), (0, (72, 104), 2, 0)),
        (128, "B", {"m": 128, "cta_group": 2}, (70, 0), (0, (70, 102), 0, 0)),
    ],
)
def test_the_cells_of_a_scale(rows, operand, options, scale, place):
    assert scale_layout(rows, 256, "nvfp4").tensor_memory(operand, **options).place(*scale) == place


def test_the_descriptor_that_copies_an_atom():  # DeepGEMM
    (copy,) = scale_layout(128, 64, "nvfp4").copies(smem_address=0x2000)
    assert copy.descriptor.encode() == 0x0000400800000200


# Instruction descriptors: Triton's tests, and PTX's table for k = 96.
@pytest.mark.parametrize(
    ("arguments", "options", "word"),
    [
        (("mxf8f6f4", 128, 128), {"a_type": "e4m3", "b_type": "e2m1"}, 0x08A01400),
        (("mxf8f6f4", 128, 128), {"a_type": "e4m3", "b_type": "e2m1", "a_scale_id": 1, "b_scale_id": 1}, 0x28A01410),
        (("mxf4nvf4", 128, 256), {"scale_type": "ue4m3"}, 0x08400480),
        (("mxf4", 128, 256), {}, 0x08C00480),
        (("mxf4", 128, 256), {"a_scale_id": 2, "b_scale_id": 2}, 0x48C004A0),
        (("mxf4nvf4", 256, 256), {"scale_type": "ue4m3", "k": 96}, 0x90400480),
    ],
)
def test_an_instruction_descriptor(arguments, options, word):
    assert InstructionDescriptor(*arguments, **options).encode() == word


def test_lanes_of_block_scaled_mma_sync():  # PTX, CuTe, Triton
    assert ScaleLanes("mxfp8", "A", thread_id=1).lane(11) == 15
    assert ScaleLanes("mxfp8", "B", thread_id=2).lane(5) == 22
