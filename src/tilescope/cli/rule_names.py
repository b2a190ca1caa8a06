"""What the rules demand that are not about tensor maps, each in a sentence; `ts.RULES` has those of the maps.

A test reads the source for rule names, and fails when one stands in neither table.
"""

from __future__ import annotations

# fmt: off
RULE_NAMES = {
    # what commands are given
    "npy-file": "A .npy file holds one array of numbers, as np.save writes it.",
    "npy-type": "Elements of a .npy file that say no type, as bfloat16 and fp8 do there, are named by a --type of their width.",
    "drawing": "--svg is for values that have a drawing.",
    "unknown-topic": "explain knows terms, rules, fields, swizzle modes, data types and architectures.",
    # swizzles and layouts
    "tile": "A tile is an array of as many dimensions, and of such extents, as the call says.",
    # copies by TMA
    "dump-extent": "A dump is at least as long as the tile that is looked for in it.",
    # plans
    "plan-consumer": "The consumer exists on the architecture, or is an access pattern.",
    "plan-pattern": "The pattern of a load's consumer reads shared memory; that of a store's producer writes it.",
    "plan-copy": "Tiles are copied by tma, cp.async or ld.global; only TMA reads a tensor map.",
    "plan-type": "The consumer takes the type, on this architecture.",
    "plan-tile": "The tile is a whole number of what the consumer takes.",
    "plan-row": "Contiguous bytes of a tile are a multiple of 16, which is what copies move.",
    "plan-pitch": "Threads copy 16 aligned bytes: rows lie a multiple of 16 bytes apart.",
    "plan-strides": "A matrix has one stride: bytes from row to row.",
    "plan-swizzle": "Threads copy 16 bytes: they cannot follow a mode that exchanges halves of these.",
    "plan-rows": "Boxes lie one behind the other on lines of 128 bytes, and atoms are whole.",
    "plan-corner": "A folded map sees whole columns of spans: tiles start on one.",
    "plan-span": "The swizzle takes the rows: they are a whole number of its spans, or fit into one.",
    "plan-fold": "A folded map sees the contiguous elements as a whole number of columns of one span.",
    "plan-layout": "The consumer reads this layout.",
    "plan-descriptors": "wgmma and tcgen05 read shared memory by descriptor; other consumers have none.",
    "plan-card": "A card has one architecture: arch, where it is given too, is the same.",
    "plan-smem": "All stages fit into the shared memory of a block.",
    "plan-stages": "Stages are 1 to 1024.",
    "plan-proof": "The emulated copies bring every element where its consumer reads it.",
    "gemm-shape": "m, n and k of a product are 1 to 2^32.",
    "gemm-type": "The tensor core multiplies the type on this architecture, and the copies move it.",
    "gemm-major": "The tensor core reads A and B with mn contiguous only where their elements have certain widths.",
    "gemm-rows": "Rows of A, B and C in global memory are multiples of 16 bytes; of C only where TMA stores them.",
    "gemm-tile": "A tile of a product has three extents, m, n and k, which are whole multiples of an instruction's.",
    "gemm-accumulators": "The accumulators of a tile fit into the registers of an SM, or into tensor memory.",
    "gemm-consumer": "A product is computed by wgmma, tcgen05 or ldmatrix with mma, where the architecture has it.",
    "gemm-smem": "All stages, the epilogue and the barriers of a GEMM fit into the shared memory of a block.",
    "gemm-stages": "Stages of a GEMM are 1 to 1024.",
    "gemm-sms": "The multiprocessors of a card are a number from 1 to 1024.",
}
# fmt: on
