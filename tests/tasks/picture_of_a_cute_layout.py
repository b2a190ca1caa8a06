"""What does Sw<3,4,3> o smem_ptr[16b] o (64,64):(64,1) look like? I want a picture for our wiki."""

from xml.etree import ElementTree as ET


def solve(desk):
    said = desk.type('tilescope draw "Sw<3,4,3> o smem_ptr[16b](unset) o (64,64):(64,1)" --svg layout.svg')
    assert said.status == 0
    assert "take 8192 bytes" in said.first
    assert "a ^ ((a >> 3) & 0x70)" in said.first
    assert "1 0x090 0x080 0x0b0 0x0a0 0x0d0 0x0c0 0x0f0 0x0e0" in said.text  # row 1: its chunks change places by pairs
    picture = ET.parse(desk.folder / "layout.svg").getroot()
    assert picture.tag.endswith("svg")
    assert "0x090" in "".join(picture.itertext())
