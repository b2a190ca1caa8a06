"""Swizzling a large buffer, against copying it.

    python benchmarks/swizzle.py [MODE] [MiB]

Every work fills the same array with the same bytes in another order; tensor-layouts and pycute, which map
one address at a time, do a small part of it, and their times are scaled up.
"""

import sys

import numpy as np
from ratio import Work, print_ratios

from tilescope.swizzle import Swizzle, permutation

SAMPLE_BYTES = 1 << 18


def main(name="128B", mib="256"):
    mode, size = Swizzle.named(name), int(mib) << 20
    source = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
    target = np.empty_like(source)
    target.fill(1)  # so that its pages are there

    def swizzled(threads, *, compiled):
        def call():
            permutation.STREAMED_BYTES = threshold if compiled else size + 1
            mode.swizzle(source, out=target, threads=threads)

        return call

    threshold = permutation.STREAMED_BYTES
    works = [Work("np.copyto", lambda: np.copyto(target, source))]
    if permutation._streaming() is not None and size >= threshold and mode.piece_bytes == 16:
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
    """The same map by libraries that know it as Swizzle<bits, base, shift> of one offset."""
    chunks, chunks_target = (array[:SAMPLE_BYTES].reshape(-1, 16) for array in (source, target))
    share = SAMPLE_BYTES / len(source)

    def moving(their_swizzle):
        def call():
            chunks_target[:] = chunks[[their_swizzle(16 * place) // 16 for place in range(len(chunks))]]

        return call

    for package, module in (("tensor-layouts", "tensor_layouts"), ("pycute (NVIDIA)", "pycute.swizzle")):
        try:
            theirs = __import__(module, fromlist=["Swizzle"]).Swizzle(mode.bits, mode.base, mode.shift)
        except ImportError:
            print(f"{package} is not installed")
        else:
            yield Work(f"{package}, chunk by chunk", moving(theirs), units=share)


if __name__ == "__main__":
    main(*sys.argv[1:])
