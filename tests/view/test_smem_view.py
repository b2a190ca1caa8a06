"""The drawing of shared memory: chunks by writer, tiles by element, lines that look alike as one row."""

import numpy as np

import tilescope as ts
from tilescope import view
from tilescope.view.palette import colour_of

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
STORES = ts.Kernel(f"""{HEAD}.visible .entry k() {{
    .shared .align 128 .b8 s[1024];
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
    st.shared.u32 [%r2], %r1;
    st.shared.u32 [%r2+256], %r1;
    st.shared.u32 [%r2+384], %r1;
    st.shared.u16 [s+2], 7;
    ret;
}}""")
COPY = ts.Kernel(f"""{HEAD}.visible .entry k(.param .align 64 .b8 map[128]) {{
    .shared .align 1024 .b8 s[3072]; .shared .align 8 .b64 m;
    .reg .b32 %r<4>; .reg .b64 %d1; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.b64 %d1, map;
    @%p1 bra WAIT;
    mbarrier.init.shared.b64 [m], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [m], 2048;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1, {{8, 56}}], [m];
    WAIT: bar.sync 0;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0;
    @!%p2 bra AGAIN;
    ret;
}}""")


def tile(at=None):
    memory = ts.Memory()
    box = memory.map(np.zeros((64, 64), np.uint16), (64, 16), swizzle="128B")
    return COPY.run(1, 32, [box], memory=memory, smem=((0, 0, 0), at)).smem


def test_a_picture_is_drawn_whole():
    picture = STORES.run(1, 32, smem=(0, 0, 0)).smem
    assert view.draw(picture).text(80).splitlines() == [
        "Shared memory of block (0, 0, 0)",
        "",
        "The 1024 bytes of block (0, 0, 0) at its end, and who wrote them last.",
        "",
        "Lines of 128 bytes; those that look alike are one row",
        "         byte bank  0   4   8   12  16  20  24  28",
        "       0x0400      A D  A   A   A   A   A   A   A",
        "       0x0480       ·   ·   ·   ·   ·   ·   ·   ·",
        "       0x0500       B   B   B   B   B   B   B   B",
        "       0x0580       C   C   C   C   C   C   C   C",
        "0x0600-0x07ff       ·   ·   ·   ·   ·   ·   ·   ·",
        "",
        " A  PTX line 6 (st.shared.u32 [%r2], %r1): 126 bytes",
        " B  PTX line 7 (st.shared.u32 [%r2+256], %r1): 128 bytes",
        " C  PTX line 8 (st.shared.u32 [%r2+384], %r1): 128 bytes",
        " D  PTX line 9 (st.shared.u16 [s+2], 7): 2 bytes    ·  not written",
    ]


def cells(picture):
    return [row.cells for row in view.draw(picture)["smem"].rows]


def test_of_a_tile_the_lines_of_one_swizzle_pattern_are_drawn_with_their_elements():
    rows = view.draw(tile())["smem"].rows
    assert [row.labels[0] for row in rows[6:10]] == ["0x0700", "0x0780", "0x0800-0x0bff", "0x0c00-0x0fff"]
    assert [cell.text for cell in rows[1].cells[:3]] == ["A 16,57", "A 8,57", "A 32,57"]


def test_elements_outside_the_tensor_are_fill():
    (first, *_) = cells(tile())
    assert [cell.text for cell in first[-2:]] == ["A 56,56", "A fill"]


def test_a_copy_under_way_has_a_sign_and_an_entry():
    drawn = view.draw(tile(10))
    assert drawn["smem"].rows[0].cells[0].text == "~A 8,56"
    assert "a pending copy" in drawn.text()
    assert "~" not in view.draw(tile()).text()


def test_an_mbarrier_is_marked():
    marked = [cell for row in cells(tile()) for cell in row if cell.mark]
    assert [(cell.text, cell.mark) for cell in marked] == [("mbar", "focus")]
    assert "mbarrier at 0x1000" in marked[0].title


def test_a_tooltip_says_who_what_and_which_element():
    title = cells(tile())[0][0].title
    assert title.startswith("bytes 0x400 to 0x40f, banks 0-3; written by A:")
    assert "PTX line 9 (cp.async.bulk.tensor" in title
    assert "element (8, 56) of the tensor" in title
    assert "uint16 with dims (64, 64) at 0x" in title
    assert title.endswith("holds 00000000 00000000 00000000 00000000")


def test_writers_have_the_colours_of_the_palette():
    first, _, third, *_ = cells(STORES.run(1, 32, smem=(0, 0, 0)).smem)
    assert [colour_of(row[1].colour).name for row in (first, third)] == ["c0", "c1"]


def test_the_moment_is_a_sentence():
    assert "right before PTX line 7 runs" in view.draw(STORES.run(1, 32, smem=((0, 0, 0), 7)).smem).text()
    second = view.draw(STORES.run(1, 32, smem=((0, 0, 0), "7:2")).smem).text(200)
    assert "PTX line 7 came" in second
    assert "thread at most 1 time." in second
    assert "block (0, 0, 0)" in second


def test_a_run_shows_the_picture_in_place_of_its_lines():
    run = STORES.run(1, 32, smem=(0, 0, 0))
    assert "What ran" not in view.draw(run, smem=run.smem).text()
    assert "0x0600-0x07ff" in view.draw(run, smem=run.smem).text()
    assert "0x0600-0x07ff" not in view.draw(run).text()
