"""Nsight Compute reports bank conflicts in my epilogue: stmatrix.x4 into a plain 64 x 64 bf16 tile. How do I get rid of them?"""


def solve(desk):
    said = desk.type("tilescope banks 64x64 bf16 --pattern stmatrix.x4 --fix -q")
    assert "8-way conflict" in said.first
    assert "512 wavefronts where 64 would do" in said.first
    assert "Without a conflict: swizzle 128B" in said.first
    cured = desk.type("tilescope banks 64x64 bf16 --pattern stmatrix.x4 --swizzle 128B -q")
    assert cured.first == "stmatrix.x4: no conflict, 64 wavefronts."
    stored = desk.type("tilescope check --type bf16 --dims 4096,4096 --box 64,64 --swizzle 128B -q")  # TMA undoes it
    assert stored.status == 0
