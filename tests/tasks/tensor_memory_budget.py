"""Two accumulators of 128 x 256 and the scale factors of a K step of 256: does that fit into tensor memory?"""


def solve(desk):
    said = desk.type("tilescope mma tmem --budget D:128x256*2,SFA:128x256:nvfp4,SFB:256x256:nvfp4 -q")
    assert said.status == 1
    assert "560 columns, tensor memory has 512" in said.first
    assert "Use a narrower accumulator" in said.out
    narrower = desk.type("tilescope mma tmem --budget D:128x224*2,SFA:128x256:nvfp4,SFB:256x256:nvfp4 -q")
    assert narrower.status == 0
    assert "496 of 512 columns" in narrower.first
