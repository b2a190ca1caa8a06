"""Time counting wavefronts, one report and one search, and compare them with tensor-layouts.

tensor-layouts counts conflicts from a CuTe layout, one access per call. It treats all 32 lanes as one group for every
access width, so it reports a conflict for wide accesses that have none (last table).
"""

import numpy as np
from ratio import FAST_EXTRA, PEERS, Work, optional, print_ratios, run, sized

from tilescope.smem import banks
from tilescope.smem.access import Access
from tilescope.smem.banks import wavefronts
from tilescope.smem.layout_search import find_layouts
from tilescope.smem.report import bank_report

BATCH = sized(50_000, tiny=50)
LANES = np.arange(32)


def with_numpy(call):
    """The same call without the compiled loop."""

    def counted():
        kernel, banks.kernel = banks.kernel, lambda _: None
        try:
            call()
        finally:
            banks.kernel = kernel

    return counted


def batches():
    generator = np.random.default_rng(0)
    for op, width in (("ld.b32", 4), ("ld.b64", 8), ("ld.b128", 16), ("ldmatrix.x4", 16)):
        strides = generator.integers(0, 64, (BATCH, 1)) * width
        scattered = generator.integers(0, 32768 // width, (BATCH, 32)) * width
        yield f"{op}, strided", op, LANES * strides, None
        yield f"{op}, scattered", op, scattered, None
        yield f"{op}, scattered, masked", op, scattered, generator.random((BATCH, 32)) < 0.8


def conflicts_by(peer, stride_words, words):
    """The conflict count of tensor-layouts for lanes of `words` 4-byte words, `stride_words` apart."""
    layout = peer.Layout((32, words), (stride_words, 1)) if words > 1 else peer.Layout(32, stride_words)
    return peer.bank_conflicts(layout, element_bytes=4)


def main():
    has_fast_extra = optional("numba", FAST_EXTRA) is not None
    peer = optional("tensor_layouts.analysis", PEERS["tensor_layouts"])
    for name, op, address, active in batches():

        def count(op=op, address=address, active=active):
            wavefronts(op, address, active)

        works = [Work("numpy alone", with_numpy(count), units=BATCH, goal_seconds=1e-6)]
        if has_fast_extra:
            works.insert(0, Work("fast extra", count, units=BATCH, goal_seconds=0.35e-6))
        print_ratios(f"one access: {name}", *works)
    column = LANES * 128
    works = [
        Work("wavefronts", lambda: wavefronts("ld.b32", column)),
        Work("bank_report", lambda: bank_report("ld.b32", column), goal_seconds=100e-6),
        Work("bank_report, ld.b128", lambda: bank_report("ld.b128", column), goal_seconds=100e-6),
    ]
    if peer:
        works += [
            Work("tensor-layouts bank_conflicts", lambda: conflicts_by(peer, 32, 1)),
            Work("tensor-layouts, 16 bytes a lane", lambda: conflicts_by(peer, 128, 4)),
        ]
    print_ratios("one access alone", *works)
    tile = (128, 64)
    bf16 = [Access.rows(tile, 16, "st.b128"), Access.ldmatrix(tile, 16)]
    f32 = [Access.rows(tile, 32, "st.b32"), Access.transpose(tile, 32)]
    u8 = [Access.rows(tile, 8, "st.b8"), Access.transpose(tile, 8)]
    print_ratios(
        "find_layouts, two patterns on 128 x 64",
        Work("bf16: row stores, ldmatrix", lambda: find_layouts(bf16, tile=tile, element_bits=16), goal_seconds=50e-3),
        Work("f32: transposition", lambda: find_layouts(f32, tile=tile, element_bits=32), goal_seconds=50e-3),
        Work("u8: transposition", lambda: find_layouts(u8, tile=tile, element_bits=8), goal_seconds=50e-3),
    )
    if peer:
        print_answers(peer)


def print_answers(peer):
    print("adjacent lanes            wavefronts  conflict-free   tensor-layouts")
    for words, op in ((1, "ld.b32"), (2, "ld.b64"), (4, "ld.b128")):
        report, conflicts = bank_report(op, LANES * words * 4), conflicts_by(peer, words, words)
        print(
            f"{op:22}{report.wavefronts:14}{report.conflict_free!s:>15}   {conflicts['max_ways']}-way, {conflicts['conflict_free']}"
        )


if __name__ == "__main__":
    run(main)
