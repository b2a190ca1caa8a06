"""Time swizzling a large buffer, compared with copying it.

    python benchmarks/swizzle.py [MODE [MiB]]

Every work fills the same array with the same bytes in another order. tensor-layouts and pycute map one
address at a time, so they process a small part, and their times are scaled up.
"""

import numpy as np
from ratio import FAST_EXTRA, PEERS, Work, optional, print_ratios, run, sized

from tilescope.swizzle import Swizzle, permutation

MIB = sized(256, tiny=1)
SAMPLE_BYTES = sized(1 << 18, tiny=1 << 12)


def main(name="128B", mib=MIB):
    mode, size = Swizzle.named(name), int(mib) << 20
    source = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target = np.empty_like(source)
    target.fill(1)  # maps its pages

    def swizzled(threads, *, compiled):
        def call():
            threshold, permutation.STREAMED_BYTES = permutation.STREAMED_BYTES, 0 if compiled else size + 1
            try:
                mode.swizzle(source, out=target, threads=threads)
            finally:
                permutation.STREAMED_BYTES = threshold

        return call

    works = [Work("np.copyto", lambda: np.copyto(target, source))]
    if optional("numba", FAST_EXTRA) and mode.piece_bytes == 16:
        works += [
            Work("tilescope with numba, 1 thread", swizzled(1, compiled=True), goal=1.1),
            Work("tilescope with numba, 2 threads", swizzled(2, compiled=True), goal=0.6),
        ]
    works += [
        Work("tilescope with numpy, 1 thread", swizzled(1, compiled=False), goal=1.1),
        Work("tilescope with numpy, 2 threads", swizzled(2, compiled=False), goal=0.6),
        *others(mode, source, target),
    ]
    print_ratios(f"swizzle {mode.name}, {mib} MiB", *works)


def others(mode, source, target):
    """The same swizzle of one offset, by libraries that express it as Swizzle<bits, base, shift>."""
    chunks, chunks_target = (array[:SAMPLE_BYTES].reshape(-1, 16) for array in (source, target))
    share = SAMPLE_BYTES / len(source)

    def moving(their_swizzle):
        def call():
            chunks_target[:] = chunks[[their_swizzle(16 * place) // 16 for place in range(len(chunks))]]

        return call

    for module, command in PEERS.items():
        if library := optional(module, command):
            theirs = library.Swizzle(mode.bits, mode.base, mode.shift)
            yield Work(f"{module}, chunk by chunk", moving(theirs), units=share)


if __name__ == "__main__":
    run(main)
