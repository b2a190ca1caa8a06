"""My wgmma reads A transposed from a 128 x 64 bf16 tile: what are LBO and SBO, and what do I add for each K step?"""

import json


def solve(desk):
    said = desk.type("tilescope mma descriptors 128x64 bf16 --major MN -q")
    assert said.status == 0
    assert "leading 8192, stride 1024 bytes, K step +2048 bytes" in said.first
    assert "imm-trans-a = 1" in said.first
    told = json.loads(desk.type("tilescope mma descriptors 128x64 bf16 --major MN --json").out)
    words = [int(word, 0) for block in told["extra"]["descriptors"] for word in block]
    starts = [(word & 0x3FFF) * 16 for word in words]
    assert starts == [0, 0x800, 0x1000, 0x1800, 0x2000, 0x2800, 0x3000, 0x3800]
    assert {(word >> 16 & 0x3FFF) * 16 for word in words} == {8192}
    assert {(word >> 32 & 0x3FFF) * 16 for word in words} == {1024}
    assert {word >> 62 for word in words} == {1}  # 128B
