"""Our kernel uses wgmma. What of it goes on an RTX 5090 (sm_120), and on a B200 (sm_100)?"""


def solve(desk):
    refused = desk.type("tilescope plan 128x64 bf16 --arch sm_120 --consumer wgmma -q")
    assert refused.status == 1
    assert "wgmma exists on sm_90" in refused.first
    assert "sm_120 has ldmatrix" in refused.first
    planned = desk.type("tilescope plan 128x64 bf16 --arch sm_120")
    assert "for ldmatrix on sm_120" in planned.text
    assert "128B, atoms in column order (documented)" in planned.text  # no such card was measured
    assert "for tcgen05 on sm_100" in desk.type("tilescope plan 128x64 bf16 --arch sm_100").text
    told = desk.type("tilescope explain sm_120")
    assert "at most 99 KiB a block" in told.first
    assert desk.type("tilescope check --type bf16 --dims 64,64 --box 64,64 --arch sm_80 -q").status == 1  # no TMA
