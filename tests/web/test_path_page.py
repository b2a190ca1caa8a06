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
        assert verdict.startswith(
            f"Element ({mn}, {k}) lies at byte {path.address:#x}: line {path.line}, chunk {path.smem_chunk}, bank {path.bank}"
        )
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


@pytest.mark.parametrize(("state", "options"), STATES)
def test_the_page_says_where_an_element_lies(client, state, options):
    check(client, state, options, count=2)


@pytest.mark.slow
@pytest.mark.parametrize(("state", "options"), STATES)
def test_the_page_says_where_hundreds_of_elements_lie(client, state, options):
    check(client, state, options, count=84)


def test_an_element_outside_the_tile_marks_its_field(client):
    answer = client.get("/path?element=128,0")
    assert answer.status_code == 422
    assert "path-element" in answer.text
    assert re.search(r'id="field-element"[^>]*aria-invalid="true"', answer.text)
