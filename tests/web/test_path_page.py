"""The page of one element's way says what the library says."""

import re

import numpy as np
import pytest

import tilescope as ts

STATES = [
    ({"tile": "128x64", "data_type": "bf16"}, {}),
    ({"tile": "128x128", "data_type": "f16", "major": "MN"}, {"major": "MN"}),
    ({"tile": "64x256", "data_type": "e4m3"}, {}),
    ({"tile": "64x64", "data_type": "tf32", "swizzle": "64B"}, {"swizzle": "64B"}),
    ({"tile": "64x64", "data_type": "f16", "consumer": "ldmatrix"}, {"consumer": "ldmatrix"}),
    ({"tile": "128x64", "data_type": "bf16", "arch": "sm_100"}, {"arch": "sm_100"}),
]


def check(client, state, options, count):
    tile = tuple(map(int, state["tile"].split("x")))
    plan = ts.plan(tile, state["data_type"], **options).best
    for mn, k in np.random.default_rng(3).integers(0, tile, (count, 2)).tolist():
        path = plan.path(mn, k)
        page = client.get("/path", params=state | {"element": f"{mn},{k}"}).text
        verdict = re.search(r'<h2 class="verdict">(.*?)</h2>', page)[1]
        assert verdict.startswith(f"Element ({mn},")
        assert f"{k}) is at byte {path.address:#x}" in verdict
        assert f"line {path.line}, chunk {path.smem_chunk}" in verdict
        assert f"bank {path.bank}" in verdict
        if path.descriptor is not None:
            assert f"K step {path.descriptor.k_step} reads it by descriptor {path.descriptor.word:#018x}" in verdict
        else:
            assert f"lane {path.register.lane} holds it in register {path.register.register}" in verdict
        framed = re.search(
            r'<rect [^>]*class="c\d"[^>]*data-link="([0-9.]+)"[^>]*>(?=<title>[^<]*at '
            rf"{path.address // 16 * 16:#x},)",
            page,
        )
        assert framed[1] == f"{path.row}.{path.chunk}"


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("state", "options"), STATES)
def test_the_page_says_where_an_element_lies(client, state, options):
    check(client, state, options, count=2)


@pytest.mark.slow
@pytest.mark.parametrize(("state", "options"), STATES)
def test_the_page_says_where_many_elements_lie(client, state, options):
    check(client, state, options, count=20)


def test_an_element_outside_the_tile_marks_its_field(client):
    answer = client.get("/path?element=128,0")
    assert answer.status_code == 422
    assert "path-element" in answer.text
    assert re.search(r'id="field-element"[^>]*aria-invalid="true"', answer.text)


def verdict_of(page):
    return re.search(r'<h2 class="verdict">(.*?)</h2>', page)[1]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("arch", "operand"), [("sm_90", "A"), ("sm_90", "B"), ("sm_100", "B")])
def test_the_page_follows_an_operand_of_a_gemm(client, arch, operand):
    gemm = ts.plan_gemm(1024, 1024, 1024, "bf16", arch=arch)
    plan = {"A": gemm.a, "B": gemm.b}[operand]
    path = plan.path(7, 21, gemm.smem_offsets()[operand.lower()][0])
    state = {"given": "gemm", "shape": "1024x1024x1024", "operand": operand, "arch": arch, "element": "7,21"}
    page = client.get("/path", params=state).text
    assert f"is at byte {path.address:#x}: line {path.line}" in verdict_of(page)
    assert f"by descriptor {path.descriptor.word:#018x}" in verdict_of(page)


def test_the_page_follows_an_element_through_a_map_and_a_descriptor(client):
    page = client.get("/path?given=map&word=0x4000004000010006&element=100,40").text
    path = ts.plan((128, 64), "bf16").best.path(100, 40)
    assert f"is at byte {path.address:#x}" in verdict_of(page)
    assert f"K step {path.descriptor.k_step} reads it" in verdict_of(page)


def test_a_descriptor_that_does_not_read_the_tile_marks_its_field(client):
    answer = client.get("/path?given=map&word=0x8000004000010006")
    assert answer.status_code == 422
    assert "path-descriptor" in answer.text
    assert re.search(r'id="field-word"[^>]*aria-invalid="true"', answer.text)


def test_every_cell_of_a_tile_leads_to_an_element_of_it(client):
    for state in ("", "&major=MN", "&data_type=e4m3", "&data_type=tf32", "&arch=sm_100", "&consumer=ldmatrix"):
        page = client.get(f"/path?tile=64x64&element=37,21{state}").text
        led = [tuple(map(int, place.split(","))) for place in re.findall(r'data-goes="([^"]*)"', page)]
        assert (37, 21) in led
        assert all(0 <= mn < 64 and 0 <= k < 64 for mn, k in led)


def test_a_cell_of_shared_memory_leads_to_the_element_that_lies_there(client):
    plan = ts.plan((128, 64), "bf16").best
    page = client.get("/path").text
    found = re.findall(r'data-goes="(\d+),(\d+)"><title>mn \d+, k [^:]*: at (0x[0-9a-f]+),', page)
    assert len(found) > 128
    for mn, k, address in found:
        assert plan.address(int(mn), int(k)) // 16 * 16 == int(address, 0)


@pytest.mark.parametrize(("rows", "lanes"), [(64, [0, 15, 32, 47, 64, 96]), (128, [0, 15, 16, 31, 32, 48])])
def test_a_row_of_d_lies_in_the_lane_of_tensor_memory_that_its_data_path_has(rows, lanes):
    plan = ts.plan((rows, 64), "bf16", arch="sm_100").best
    held = ts.tmem_layout((rows, 128))
    found = [plan.path(row, 0).result.lane_or_column for row in (0, 15, 16, 31, 32, 48)]
    assert found == lanes == [held.place(row, 0).lanes[0] for row in (0, 15, 16, 31, 32, 48)]
