"""st.bulk: zeros over a region of shared memory, written by one thread.

st.bulk.weak.shared::cta [a], 4096, 0;       512 words of 8 bytes, as ordinary stores of the generic proxy write them

The size is a multiple of 8 bytes and the value is 0; the PTX ISA has no other form. Documented, not measured.
"""

from __future__ import annotations

import numpy as np

from tilescope.machine.cluster import Cluster
from tilescope.machine.execution.fault import ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, KernelFaultError
from tilescope.machine.instructions.load_store import decode_address, space_of
from tilescope.machine.instructions.modifiers import Words, require_target
from tilescope.machine.program import Assembler, Decoder
from tilescope.machine.step import RefusedError, Step
from tilescope.mma.tcgen05_kind import BLACKWELL
from tilescope.ptx.syntax import Immediate, Instruction
from tilescope.sync.address import SHARED_WINDOW, is_in_window
from tilescope.sync.cluster_shape import Lanes

_WORD_BYTES = 8
_ZERO = np.zeros(1, np.uint64)


def _store_bulk(assembler: Assembler, instruction: Instruction) -> Step:
    require_target(assembler.module, BLACKWELL, "st.bulk")
    words = Words(instruction)
    words.flag("bulk")
    space = space_of(assembler, instruction.operands[0], words.space())
    words.without_effect()
    words.done()
    if len(instruction.operands) != 3 or instruction.operands[2] != Immediate(0):
        raise RefusedError("st.bulk has an address, a size and the value 0")
    if space not in ("shared", "generic"):
        raise RefusedError("st.bulk writes shared memory")
    addresses = decode_address(assembler, instruction.operands[0])
    size = assembler.source(instruction.operands[1], "u64")

    def store(cluster: Cluster, at: Lanes) -> None:
        lanes = cluster.lanes(at)
        places = addresses(cluster, at)
        sizes = np.broadcast_to(cluster.registers[size][at].astype(np.int64), places.shape)
        _require_sizes(sizes, lanes)
        if space == "generic":
            is_shared = is_in_window("shared", places)
            if not is_shared.all():
                first = int(np.argmin(is_shared))
                reason = f"st.bulk to {int(places[first]):#x}, which is no address of shared memory"
                raise KernelFaultError(ILLEGAL_ADDRESS, reason, int(lanes[first]))
            places = places - SHARED_WINDOW
        for offset in range(0, int(sizes.max(initial=0)), _WORD_BYTES):
            chosen = np.flatnonzero(sizes > offset)
            cluster.store("shared", lanes[chosen], places[chosen] + offset, _ZERO.repeat(len(chosen)))

    return store


def _require_sizes(sizes: np.ndarray[tuple[int, ...], np.dtype[np.int64]], lanes: Lanes) -> None:
    """A fault where a size is not a multiple of 8: the PTX ISA does not define it."""
    is_wrong = (sizes % _WORD_BYTES != 0) | (sizes < 0)
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        reason = f"st.bulk of {int(sizes[first])} bytes, which is no multiple of {_WORD_BYTES}"
        raise KernelFaultError(ILLEGAL_INSTRUCTION, reason, int(np.asarray(lanes)[first]))


FAMILIES: dict[str, Decoder] = {"st.bulk": _store_bulk}
