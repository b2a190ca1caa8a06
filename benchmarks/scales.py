"""Scale factors of a whole matrix packed into their 128 x 4 atoms and back, beside a plain copy of the same bytes."""

import numpy as np
from ratio import Work, print_ratios

from tilescope.mma import scale_packing
from tilescope.mma.scale_packing import pack_scales, unpack_scales

SHAPE = (16384, 512)


def with_numpy(call):
    """The same call with the compiled loop out of reach."""

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
    print_ratios(
        f"{SHAPE[0]} x {SHAPE[1]} scale factors",
        Work("np.copyto", lambda: np.copyto(copied, scales)),
        Work("pack, fast extra", pack, goal=3.0),
        Work("unpack, fast extra", unpack),
        Work("pack, numpy alone", with_numpy(pack)),
        Work("unpack, numpy alone", with_numpy(unpack)),
    )


if __name__ == "__main__":
    main()
