"""tcgen05.mma: one thread lets the tensor core of its block, or of a pair, multiply into tensor memory.

    tcgen05.mma.cta_group::1.kind::f16     [d], a-desc, b-desc, idesc, enable-input-d;
    tcgen05.mma.sp.cta_group::1.kind::f16  [d], a-desc, b-desc, [metadata], idesc, enable-input-d;

This module reads the instruction and takes its operands when a lane issues it; product_under_way.py does the rest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tilescope.errors import RuleError
from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_INSTRUCTION, KernelFaultError, fault_of
from tilescope.machine.execution.tmem_state import pair_ranks
from tilescope.machine.instructions.load_store import AddressOf, decode_address
from tilescope.machine.instructions.modifiers import Words
from tilescope.machine.instructions.tensor_core.pending_product import ProductForm, TensorProduct
from tilescope.machine.program import Assembler
from tilescope.machine.step import RefusedError, Step
from tilescope.mma.instruction_descriptor import InstructionDescriptor
from tilescope.mma.tcgen05_kind import KINDS, Tcgen05Kind
from tilescope.ptx.syntax import Address, Immediate, Instruction, Operand, Vector
from tilescope.sync.cluster_shape import LaneNumbers, Lanes

_CACHED_DESCRIPTORS = 64
_SCALE_WORDS = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")


class Multiplication(NamedTuple):
    """One tcgen05.mma as it was decoded: registers of its operands."""

    form: ProductForm
    d: AddressOf
    a_tmem: AddressOf | None
    a_descriptor: int | None
    b_descriptor: int
    idesc: int
    adds_d: tuple[int, bool]  # enable-input-d: a predicate, and whether it is negated
    a_scales: AddressOf | None = None
    b_scales: AddressOf | None = None
    disabled: tuple[int, ...] = ()
    d_shift: int = 0  # scale-input-d: D is multiplied by 2 to the power of minus this
    zero_mask: int | None = None
    metadata: AddressOf | None = None  # of a sparse A

    def issue(self, cluster: Cluster, at: Lanes) -> None:
        """Every lane issues a separate product; kernels let one lane do so."""
        lanes = cluster.lanes(at)
        cluster.launch.charge(len(lanes))
        for lane in lanes.tolist():
            self._issue_one(cluster, lane)

    def _issue_one(self, cluster: Cluster, lane: int) -> None:
        lanes = np.array([lane])
        registers = cluster.registers
        number, is_negated = self.adds_d
        if self.zero_mask is not None and int(registers[self.zero_mask][lane]):
            reason = "a zero-column mask: PTX and CuTe say opposite things of its spans, and tilescope does not guess"
            raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, lane)
        word = int(registers[self.idesc][lane]) & 0xFFFF_FFFF
        try:
            descriptor = _descriptor(word, self.form.kind.name)
        except RuleError as error:
            raise fault_of(error, lane) from None
        product = TensorProduct(
            form=self.form,
            descriptor=descriptor,
            pc=cluster.pc,
            lane=lane,
            ranks=pair_ranks(int(cluster.block_of_lane[lane]), self.form.cta_group, cluster.blocks, lane),
            d=_word(self.d, cluster, lanes),
            a_tmem=None if self.a_tmem is None else _word(self.a_tmem, cluster, lanes),
            a_word=0 if self.a_descriptor is None else int(registers[self.a_descriptor][lane]),
            b_word=int(registers[self.b_descriptor][lane]),
            a_scales=None if self.a_scales is None else _word(self.a_scales, cluster, lanes),
            b_scales=None if self.b_scales is None else _word(self.b_scales, cluster, lanes),
            adds_d=bool(registers[number][lane]) != is_negated,
            d_shift=self.d_shift,
            disabled=tuple(int(registers[mask][lane]) for mask in self.disabled),
            metadata=None if self.metadata is None else _word(self.metadata, cluster, lanes),
        )
        try:
            product.begin(cluster)
        except RuleError as error:
            raise fault_of(error, lane) from None


def _word(address: AddressOf, cluster: Cluster, at: LaneNumbers) -> int:
    """The 32-bit address that one lane names."""
    return int(address(cluster, at)[0]) & 0xFFFF_FFFF


@lru_cache(maxsize=_CACHED_DESCRIPTORS)
def _descriptor(word: int, kind: str) -> InstructionDescriptor:
    return InstructionDescriptor.decode(word, kind)


def decode_product(assembler: Assembler, instruction: Instruction, words: Words, cta_group: int) -> Step:
    """The words after tcgen05.mma: .sp, .ws, cta_group and kind."""
    sparse = words.flag("sp")
    if words.flag("ashift"):
        raise RefusedError(".ashift moves the rows of A down, and no document says which way that is")
    ws = words.flag("ws")
    kind = KINDS[words.required([f"kind::{name}" for name in KINDS], "kind").removeprefix("kind::")]
    is_scaled = words.flag("block_scale")
    scale_word = words.one_of(_SCALE_WORDS)
    words.without_effect()  # .collector: reuse of a buffer for the next product changes no value
    words.done()
    if is_scaled != kind.is_scaled:
        raise RefusedError(f"kind::{kind.name} {'needs' if kind.is_scaled else 'has no'} .block_scale")
    if kind.name == "mxf4nvf4" and scale_word is None:
        raise RefusedError("kind::mxf4nvf4 names its scale factors: .block16 or .block32")
    form = ProductForm(kind, cta_group, ws, scale_word, sparse)
    d, a, b, *rest = instruction.operands
    metadata = decode_address(assembler, rest.pop(0)) if sparse else None
    idesc = rest.pop(0)
    in_tmem = isinstance(a, Address)
    scale_addresses: list[AddressOf] = []
    if is_scaled:
        scale_addresses = [decode_address(assembler, operand) for operand in rest[:2]]
        rest = rest[2:]
    disabled: tuple[int, ...] = ()
    if rest and isinstance(rest[0], Vector):
        disabled = _masks(assembler, rest.pop(0), cta_group)
    adds_d = assembler.predicate(rest.pop(0))
    return Multiplication(
        form=form,
        d=decode_address(assembler, d),
        a_tmem=decode_address(assembler, a) if in_tmem else None,
        a_descriptor=None if in_tmem else assembler.source(a, "b64"),
        b_descriptor=assembler.source(b, "b64"),
        idesc=assembler.source(idesc, "b32"),
        adds_d=adds_d,
        a_scales=scale_addresses[0] if is_scaled else None,
        b_scales=scale_addresses[1] if is_scaled else None,
        disabled=disabled,
        d_shift=_d_shift(kind, rest) if not ws else 0,
        zero_mask=assembler.source(rest.pop(0), "b64") if ws and rest else None,
        metadata=metadata,
    ).issue


def _masks(assembler: Assembler, vector: Operand, cta_group: int) -> tuple[int, ...]:
    masks = tuple(assembler.source(mask, "b32") for mask in assembler.vector(vector))
    if len(masks) != 4 * cta_group:
        raise RefusedError(
            f"disable-output-lane has {4 * cta_group} masks with cta_group::{cta_group}, not {len(masks)}"
        )
    return masks


def _d_shift(kind: Tcgen05Kind, operands: list[Operand]) -> int:
    """scale-input-d, 0 to 15, of kinds f16 and tf32."""
    if not operands:
        return 0
    operand = operands.pop(0)
    if kind.name not in ("f16", "tf32") or not isinstance(operand, Immediate) or not 0 <= operand.value <= 15:
        raise RefusedError("scale-input-d is a constant from 0 to 15, with kind::f16 and kind::tf32")
    return operand.value
