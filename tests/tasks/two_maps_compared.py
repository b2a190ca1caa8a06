"""Our map works, the one of a colleague's branch is refused. In what do they differ?"""

ENCODE = "tilescope encode --type bf16 --dims 4096,1000 --swizzle 128B"
REFUSED = '{"data_type": "bf16", "dims": [4096, 1000], "strides_bytes": [8192], "box": [128, 64], "swizzle": "128B"}'


def solve(desk):
    assert desk.type(f"{ENCODE} --box 64,64 --out ours.bin").status == 0
    assert desk.type(f"{ENCODE} --box 64,32 --out theirs.bin").status == 0
    said = desk.type("tilescope diff ours.bin theirs.bin -q")
    assert said.status == 1
    assert "1 argument: box[1] is 64 and 32." in said.first
    assert desk.type("tilescope diff ours.bin ours.bin -q").status == 0
    desk.write("theirs.json", REFUSED)
    said = desk.type("tilescope diff ours.bin theirs.json")
    assert said.status == 1
    assert said.first.startswith("The second map is refused:")
    assert "box[0] = 128 elements x 2 bytes = 256 bytes" in said.first
    assert "box[0] 64 128" in said.text
    assert "swizzle" not in said.out.partition("\n\n")[2].partition("box[0]")[2]  # what is equal is not listed
