"""Where the driver's signed 32 bits decide about a bounding box, as an H200 answered."""

import pytest

import tilescope as ts

# dim, lower, upper → accepted
ANSWERS = [
    ((1 << 31, -129, -129), True),  # dim + upper is still below 2^31
    (((1 << 31) - 1, 0, 1), False),  # dim + upper is not
    (((1 << 31) - 1, 0, 0), True),
    (((1 << 32) - 1, 0, 0), False),  # counts as -1
    ((1, 0, -1), False),
    ((1, -1, -1), True),
]


@pytest.mark.parametrize(("box", "accepted"), ANSWERS)
def test_the_end_of_the_box_is_kept_in_signed_32_bits(box, accepted):
    extent, lower, upper = box
    found = ts.Im2colMap.check(
        "u8",
        (16, extent, 1),
        (16, 16),
        lower_corner=(lower,),
        upper_corner=(upper,),
        channels_per_pixel=16,
        pixels_per_column=1,
    )
    assert ("bounding-box" not in {each.rule for each in found}) == accepted
