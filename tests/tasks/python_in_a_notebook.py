"""In a notebook: plan a tile, look at it, get its descriptors, and learn what is wrong when I mistype."""

import pytest

import tilescope as ts


def solve(_desk):
    best = ts.plan((128, 64), "bf16").best
    assert (best.swizzle.name, best.box, best.transaction_bytes) == ("128B", (64, 128), 16384)
    assert [hex(step.encode()) for step in best.descriptors(0x400)[0]][:2] == [
        "0x4000004000010040",
        "0x4000004000010042",
    ]
    assert "<svg" in best._repr_mimebundle_()["image/svg+xml"]
    with pytest.raises(ts.TensorMapError) as refused:
        ts.TensorMap("bf16", (4096, 1000), (8192,), (128, 64), swizzle="128B")
    assert refused.value.violations[0].change == {"box": (64, 64)}
    with pytest.raises(AttributeError, match="Did you mean Swizzle"):
        ts.Swizle  # noqa: B018
    with pytest.raises(ts.RuleError, match="Did you mean 128B"):
        ts.Swizzle.named("256B")
