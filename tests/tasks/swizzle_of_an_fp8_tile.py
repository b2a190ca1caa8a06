"""A 192 x 48 fp8 operand for wgmma: which swizzle and box? The matrix has 48 columns, no more."""


def solve(desk):
    asked = desk.type("tilescope plan 192x48 fp8 -q")
    assert asked.status == 2
    assert "e4m3, e5m2" in asked.err  # there are two
    refused = desk.type("tilescope plan 192x48 e4m3 -q")
    assert refused.status == 1
    assert "wgmma takes k of e4m3 in multiples" in refused.first
    assert "32" in refused.first
    assert "Use 64; TMA" in refused.out
    planned = desk.type("tilescope plan 192x64 e4m3 -q")
    assert planned.status == 0
    assert "swizzle 64B, 1 copy of box 64 x 192" in planned.first
    assert "12288 bytes a stage" in planned.first
    loaded = desk.type("tilescope load --type e4m3 --dims 48,192 --box 64,192 --swizzle 64B -q")  # the rest is filled
    assert "the mbarrier expects 12288 bytes" in loaded.first
    assert "16 bytes of a row are outside" in loaded.first
