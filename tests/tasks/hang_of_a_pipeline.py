"""A producer and two consumer warpgroups hang after four K tiles. I initialised `empty` with 256, all consumer threads."""


def solve(desk):
    start = desk.type("tilescope pipeline --template producer-consumers")
    right = "empty = {stages = 4, count = 2}"
    assert right in start.out
    desk.write("kernel.toml", start.out.replace(right, "empty = {stages = 4, count = 256}"))
    said = desk.type("tilescope pipeline kernel.toml -q")
    assert said.status == 1
    assert said.first.startswith("Hang: empty[0] counts 256,")
    assert "phase 0 gets 2 arrivals" in said.first
    assert "consumer 0 and consumer 1" in said.first
    assert "Initialise empty with 2." in said.out
    desk.write("kernel.toml", start.out)
    proven = desk.type("tilescope pipeline kernel.toml -q")
    assert proven.status == 0
    assert "no hang, no race" in proven.first
