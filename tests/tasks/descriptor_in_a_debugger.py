"""cuda-gdb stands before my wgmma, and the descriptor is in a register: what does the word say?"""

SAID = "start 0x800, leading 8192 bytes, stride 1024 bytes, 128B"
PASTES = [
    "0x4000004002000080",
    "$1 = 0x4000004002000080",
    "0x7fffc3fffdf0:\t0x4000004002000080",
    "desc_a = 0x4000004002000080ULL",
    "%rd5 4611686293338849408",
    "0x7fffc3fffdf0: 0x02000080 0x40000040",  # x/2wx
]


def solve(desk):
    for paste in PASTES:
        said = desk.type(f"tilescope decode '{paste}' -q")
        assert said.status == 0, paste
        assert SAID in said.first, paste
    as_mn = desk.type("tilescope decode 0x4000004002000080 --major MN")
    assert "8192 bytes from the atom" in as_mn.text
    assert "(mn 0, k 0) to the next 128 bytes" in as_mn.text
    assert desk.type("tilescope decode 'no word here' -q").status == 2
