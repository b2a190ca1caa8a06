"""One element of my nvfp4 product is off by a factor: row 133, k 1000 of 256 x 4096. Where is its scale factor?"""

import json


def solve(desk):
    said = desk.type("tilescope mma scales 256x4096 nvfp4 --element 133,1000 -q")
    assert said.status == 0
    assert "row 133, block 62 (k 992 to 1007) is byte 40530 (0x9e52)" in said.first
    told = json.loads(desk.type("tilescope mma scales 256x4096 nvfp4 --element 133,1000 --json").out)
    row, block = 133, 1000 // 16
    atom = row // 128 * (4096 // 16 // 4) + block // 4  # atoms of 128 rows x 4 scales, 512 bytes each
    within = row % 32 * 16 + row % 128 // 32 * 4 + block % 4
    assert told["extra"]["offset"] == atom * 512 + within
    outside = desk.type("tilescope mma scales 256x4096 nvfp4 --element 133,5000 -q")
    assert outside.status == 2
    assert "element = (133, 5000); (0, 0) to (255, 4095)" in outside.err
