"""XOR swizzles with a negative shift: bits above are changed by bits below."""

import numpy as np
import pytest

from tilescope import RuleError, Swizzle


@pytest.mark.parametrize("triple", [(2, 8, -8), (2, 0, -3), (1, 4, -3), (3, 2, -5)])
def test_buffers_are_permuted_as_addresses_are(triple):
    swizzle = Swizzle.xor(*triple)
    data = np.arange(2 * swizzle.block_bytes).astype(np.uint32)
    addresses = np.arange(data.nbytes)
    swizzled = swizzle.swizzle(data)
    assert (swizzled.view(np.uint8)[swizzle.apply(addresses)] == data.view(np.uint8)).all()
    assert (swizzle.unswizzle(swizzled) == data).all()
    assert (swizzle.apply(addresses + swizzle.repeat_bytes) == swizzle.apply(addresses) + swizzle.repeat_bytes).all()


def test_all_bits_lie_inside_an_address():
    assert Swizzle.xor(3, 0, -29).block_bytes == 1 << 32
    with pytest.raises(RuleError, match="bits 0 to 31"):
        Swizzle.xor(3, 1, -29)
