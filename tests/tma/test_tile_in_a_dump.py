"""A tile anywhere in a dump of memory is found: held against layouts written by plain arithmetic, and against noise."""

import json

import ml_dtypes
import numpy as np
import pytest

import tilescope as ts
from tilescope.cli import run
from tilescope.tma.array_file import dump_bytes

NOISE = np.random.default_rng(0).integers(0, 256, 60_000, np.uint8)
TILE = np.random.default_rng(1).integers(0, 1 << 16, (32, 64), dtype=np.uint16)


def strewn(tile, *, offset, pitch, xor=(0, 0, 1), phase=0):
    """The tile in noise: byte b of row r at offset + r * pitch + b, with bits of the address XORed into lower ones."""
    bits, base, shift = xor
    dump = NOISE.copy()
    for row, line in enumerate(np.ascontiguousarray(tile).view(np.uint8).reshape(len(tile), -1)):
        for byte, value in enumerate(line.tolist()):
            address = phase + offset + row * pitch + byte
            dump[(address ^ (address >> base + shift & (1 << bits) - 1) << base) - phase] = value
    return dump


@pytest.mark.thinned(24)
@pytest.mark.parametrize(
    ("xor", "name", "offset", "pitch"),
    [
        ((0, 0, 1), "none", 0x309, 128),
        ((0, 0, 1), "none", 0x800, 160),
        ((3, 4, 3), "128B", 0x1400, 128),
        ((2, 4, 3), "64B", 0x1480, 128),
        ((1, 4, 3), "32B", 0x2000, 384),
        ((2, 4, 4), "xor:2,4,4", 0x800, 128),
        ((5, 2, 5), "xor:5,2,5", 0x1000, 128),
        ((3, 3, 4), "xor:3,3,4", 0x400, 144),
    ],
)
def test_finds_offset_pitch_and_any_xor(xor, name, offset, pitch):
    dump = strewn(TILE, offset=offset, pitch=pitch, xor=xor)
    found = ts.identify(dump, TILE)
    assert (found.explained, found.found, found.fitting_share) == (True, True, 1)
    assert (found.swizzle.name, found.offset, found.layout.as_rows().tiling.pitch_bytes) == (name, offset, pitch)
    assert ts.Value.from_dict(found.to_dict()) == found


def test_a_tile_of_a_few_pieces_is_found_behind_other_bytes():
    row = np.arange(1, 5, dtype=np.float64).reshape(1, 4)
    found = ts.identify(np.concatenate([NOISE[:3], row.view(np.uint8).reshape(-1)]), row)
    assert (found.explained, found.swizzle.name, found.offset) == (True, "none", 3)


@pytest.mark.parametrize("line", [1, 3, 6])
def test_the_line_on_which_the_dump_starts_is_found_too(line):
    dump = strewn(TILE, offset=0x1000, pitch=128, xor=(3, 4, 3), phase=128 * line)
    for address in (None, 128 * line):
        found = ts.identify(dump, TILE, smem_address=address)
        assert (found.explained, found.swizzle.name, found.base_offset) == (True, "128B", (line + 0x1000 // 128) % 8)


def test_a_part_of_the_tile_is_said_with_its_share():
    dump = strewn(TILE, offset=0x1400, pitch=128, xor=(3, 4, 3))
    dump[0x1400 + 24 * 128 :] = 0
    found = ts.identify(dump, TILE)
    assert (found.found, found.explained, found.offset) == (True, False, 0x1400)
    assert found.fitting_share == pytest.approx(0.75, abs=0.01)
    cut = strewn(TILE, offset=len(NOISE) // 128 * 128 - 128 * 32, pitch=128)[: len(NOISE) // 128 * 128 - 128 * 8]
    found = ts.identify(cut, TILE)
    assert (found.missing_bytes, found.wrong_bytes, found.first_wrong) == (8 * 128, 0, None)
    assert "outside the dump" in str(found)


@pytest.mark.parametrize("dump", [NOISE, np.zeros(20_000, np.uint8), np.tile(np.arange(256, dtype=np.uint8), 100)])
@pytest.mark.parametrize("tile", [TILE, TILE.astype(np.float64), TILE[:, :63]])
def test_nothing_found_is_said_without_noise(dump, tile):
    found = ts.identify(dump, tile)
    assert not found.found
    assert not any(word in str(found) for word in ("swizzle", "closest", "element"))


def test_a_transposed_tile_and_a_block_of_a_matrix_are_found():
    found = ts.identify(strewn(TILE.T, offset=0x800, pitch=64), TILE)
    assert (found.explained, found.transposed, found.offset) == (True, True, 0x800)
    matrix = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    found = ts.identify(matrix, matrix[100:116, 64:96].copy())
    assert (found.offset, found.layout.as_rows().tiling.pitch_bytes) == ((100 * 256 + 64) * 4, 1024)


def test_boxes_of_a_stage_deep_in_a_dump():
    tile = np.random.default_rng(4).integers(0, 1 << 16, (32, 128), dtype=np.uint16)
    dump = NOISE.copy()
    a = ts.TensorMap.from_array(tile, (32, 64), swizzle="128B", address=0)
    for box in range(2):
        ts.load(a, tile, (64 * box, 0), smem=dump[0x4000 + 0x1000 * box :], smem_address=0x4000 + 0x1000 * box)
    found = ts.identify(dump, tile)
    assert (found.explained, found.offset, found.swizzle.name, found.order) == (True, 0x4000, "128B", "atoms down")


SWIZZLED = strewn(TILE, offset=0x1400, pitch=128, xor=(3, 4, 3))[:0x3000]
FORMS = {
    "bin": SWIZZLED.tobytes(),
    "hex": SWIZZLED.tobytes().hex().encode(),
    "xxd": "\n".join(
        f"{at:08x}: {SWIZZLED[at : at + 16].tobytes().hex(' ', 2)}  {'.' * 16}" for at in range(0, len(SWIZZLED), 16)
    ).encode(),
    "hexdump": "\n".join(
        f"{at:08x}  {SWIZZLED[at : at + 8].tobytes().hex(' ')}  {SWIZZLED[at + 8 : at + 16].tobytes().hex(' ')}  |{'.' * 16}|"
        for at in range(0, len(SWIZZLED), 16)
    ).encode()
    + b"\n00003000\n",
    "gdb": "\n".join(
        f"0x7f{at:08x}:\t" + "\t".join(f"0x{word:08x}" for word in SWIZZLED[at : at + 16].view("<u4").tolist())
        for at in range(0, len(SWIZZLED), 16)
    ).encode(),
    "words": "".join(f"0x{word:x}, " for word in SWIZZLED.view("<u8").tolist()).encode(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_command_reads_what_people_have(form, tmp_path, capsys):
    (tmp_path / "dump").write_bytes(FORMS[form])
    assert dump_bytes(FORMS[form]).tobytes() == SWIZZLED.tobytes()
    np.save(tmp_path / "tile.npy", TILE)
    assert run(["identify", str(tmp_path / "dump"), str(tmp_path / "tile.npy")]) == 0
    said = capsys.readouterr().out
    assert "byte 0x1400 of the dump" in said
    assert "128B, base offset 0" in said
    assert "4096 of 4096 bytes" in said


@pytest.mark.parametrize("text", [b"0x (", b"0x" + b"1" * 17, b"0x12 34", b"3f8", b"nothing"])
def test_text_that_is_no_dump_is_refused_by_its_first_wrong_word(text):
    with pytest.raises(ts.RuleError, match=r"dump-text: '(0x|0x1+…?|34|3f8|nothing)' among"):
        dump_bytes(text)


def test_the_command_in_all_its_ways(tmp_path, capsys):
    for name, content in (("dump.bin", FORMS["bin"]), ("tile.bin", TILE.tobytes()), ("noise.bin", NOISE.tobytes())):
        (tmp_path / name).write_bytes(content)
    dump, tile, noise = (str(tmp_path / f"{name}.bin") for name in ("dump", "tile", "noise"))
    assert run(["identify", dump, tile]) == 2
    assert "--type bf16 --shape 64x64" in capsys.readouterr().err
    raw = ["--type", "bf16", "--shape", "32x64"]
    assert run(["identify", dump, tile, *raw, "--json"]) == 0
    assert ts.Value.from_dict(json.loads(capsys.readouterr().out)) == ts.identify(SWIZZLED, TILE)
    assert run(["identify", dump, tile, *raw, "--svg", str(tmp_path / "a.svg"), "--smem-address", "0"]) == 0
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    capsys.readouterr()
    assert run(["identify", noise, tile, *raw]) == 1
    assert capsys.readouterr().out.startswith("The tile is not in")
    assert run(["identify", dump, tile, "--type", "bf16", "--shape", "32x63"]) == 2
    assert "take 4032 bytes" in capsys.readouterr().err
    np.save(tmp_path / "bf16.npy", TILE.view(ml_dtypes.bfloat16))
    assert run(["identify", dump, str(tmp_path / "bf16.npy"), "--type", "bf16"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "content",
    [b"", b"hello world", b"0x1 2 zz", b"\x93NUMPY\x01\x00", b"\x93NUMPY" + bytes(100), b"0x" + b"f" * 999, b"abc"],
)
def test_hostile_files_are_answered_with_a_reason(content, tmp_path, capsys):
    (tmp_path / "hostile").write_bytes(content)
    np.save(tmp_path / "tile.npy", TILE)
    for files in (("hostile", "tile.npy"), ("tile.npy", "hostile")):
        assert run(["identify", *(str(tmp_path / name) for name in files)]) in (1, 2)
        said = capsys.readouterr()
        assert "mistake in tilescope" not in said.err
        assert len(said.err) < 600


def test_a_name_that_no_file_has_is_refused(capsys):
    for name in ("\x00", "no such file", "/"):
        assert run(["identify", name, name]) == 2
        assert "mistake in tilescope" not in capsys.readouterr().err
