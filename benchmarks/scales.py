"""Time packing a matrix of scale factors into 128 x 4 atoms and back, compared with copying the same bytes."""

import numpy as np
from ratio import FAST_EXTRA, Work, optional, print_ratios, run, sized

from tilescope.mma import scale_packing
from tilescope.mma.scale_packing import pack_scales, unpack_scales

SHAPE = sized((16384, 512), tiny=(256, 16))


def with_numpy(call):
    """The same call without the compiled loop."""

    def moved():
        streaming, scale_packing._streaming = scale_packing._streaming, lambda: None
        try:
            call()
        finally:
            scale_packing._streaming = streaming

    return moved


def main():
    scales = np.random.default_rng(0).integers(0, 256, SHAPE).astype(np.uint8)
    copied, packed = np.empty_like(scales), pack_scales(scales)
    pack, unpack = lambda: pack_scales(scales, out=packed), lambda: unpack_scales(packed, SHAPE, out=copied)
    works = [Work("np.copyto", lambda: np.copyto(copied, scales))]
    if optional("numba", FAST_EXTRA):
        works += [Work("pack, fast extra", pack, goal=3.0), Work("unpack, fast extra", unpack)]
    works += [Work("pack, numpy alone", with_numpy(pack)), Work("unpack, numpy alone", with_numpy(unpack))]
    print_ratios(f"{SHAPE[0]} x {SHAPE[1]} scale factors", *works)


if __name__ == "__main__":
    run(main)
