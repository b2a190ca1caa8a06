"""Pictures of shared memory: who wrote what, at the end of a block or right before a line runs."""

import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.observers.smem_picture import SmemPicture

HEAD = ".version 8.0 .target sm_90 .address_size 64\n"
# Thread t writes word t (line 7), then round after round word 64 + 32 * round + t (line 11); word 0 at last (line 16).
BLOCK = (0, 0, 0)
ROUNDS = ts.Kernel(f"""{HEAD}.visible .entry k() {{
    .shared .align 128 .b8 s[1024];
    .reg .b32 %r<8>; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r2, %r2, %r3;
    mov.u32 %r4, 0;
    st.shared.u32 [%r2], %r1;
    LOOP:
    setp.eq.u32 %p1, %r4, 2;
    add.u32 %r2, %r2, 128;
    st.shared.u32 [%r2+128], %r4;
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p2, %r4, 3;
    @%p2 bra LOOP;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [s], 99;
    bar.sync 0;
    ret;
}}""")
COPY = ts.Kernel(f"""{HEAD}.visible .entry k(.param .align 64 .b8 map[128]) {{
    .shared .align 1024 .b8 s[2048]; .shared .align 8 .b64 m;
    .reg .b32 %r<4>; .reg .b64 %d1; .reg .pred %p<3>;
    mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; mov.b64 %d1, map;
    @%p1 bra WAIT;
    mbarrier.init.shared.b64 [m], 1;
    mbarrier.arrive.expect_tx.shared.b64 _, [m], 1024;
    cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1, {{8, 16}}], [m];
    WAIT: bar.sync 0;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0;
    @!%p2 bra AGAIN;
    st.shared.u32 [s+1024], %r1;
    ret;
}}""")


def written(at=None):
    return ROUNDS.run(2, 32, smem=(BLOCK, at)).smem


def lines_at(picture, *addresses):
    """The PTX line that wrote each byte last; None for nobody."""
    found = []
    for address in addresses:
        held = next(one for one in picture.stretches if one.address <= address < one.address + one.bytes)
        found.append(None if held.writer is None else picture.writers[held.writer].ptx_lines[0])
    return found


def test_the_end_of_a_block_shows_the_last_writer_of_every_byte():
    picture = written()
    assert lines_at(picture, 0x400, 0x403, 0x404, 0x47F, 0x480, 0x500, 0x680) == [16, 16, 7, 7, None, 11, None]
    assert [writer.bytes for writer in picture.writers] == [124, 384, 4]
    assert picture.is_at_end


def test_stretches_cover_shared_memory_once():
    picture = written()
    ends = [one.address + one.bytes for one in picture.stretches]
    assert [one.address for one in picture.stretches] == [0x400, *ends[:-1]]
    assert ends[-1] == picture.bytes == 0x800


def test_stretches_hold_the_bytes():
    picture = written()
    first = picture.stretches[0]
    assert (first.bytes, first.content) == (4, "63000000")
    assert picture.stretches[1].content.startswith("0100000002000000")


@pytest.mark.parametrize(("at", "rounds"), [("11", 0), (11, 0), ("11:1", 0), ("11:2", 1), ("11:3", 2)])
def test_a_moment_is_right_before_the_line_runs(at, rounds):
    picture = written(at)
    expected = [11 if number < rounds else None for number in range(3)]
    assert lines_at(picture, 0x500, 0x580, 0x600) == expected
    assert (picture.at, picture.came, picture.is_at_end) == ("PTX line 11", rounds + 1, False)


def test_a_line_that_runs_less_often_shows_the_end():
    picture = written("11:4")
    assert (picture.came, picture.is_at_end) == (3, True)
    assert lines_at(picture, 0x600) == [11]


def test_only_threads_whose_guard_holds_come_to_an_instruction():
    never = ts.Kernel(ROUNDS.ptx.replace("setp.eq.u32 %p1, %r1, 0;", "setp.eq.u32 %p1, %r1, 77;"))
    assert never.run(1, 32, smem=(BLOCK, 16)).smem.came == 0
    assert ROUNDS.run(1, 32, smem=(BLOCK, 16)).smem.came == 1


def test_a_moment_at_a_barrier():
    assert lines_at(written(17), 0x400, 0x500) == [16, 11]


def test_a_source_line_with_its_instructions_is_one_writer():
    text = ROUNDS.ptx.replace(HEAD, f'{HEAD}.file 1 "/home/rounds.cu"\n', 1).replace(
        "    LOOP:\n", "    .loc 1 5 0\n LOOP:\n"
    )
    kernel = ts.Kernel(text)
    picture = kernel.run(1, 32, smem=(BLOCK, "rounds.cu:5:2")).smem
    assert picture.at == "rounds.cu:5"
    assert [(writer.source_line, writer.bytes) for writer in picture.writers] == [(None, 128), ("rounds.cu:5", 128)]
    whole = kernel.run(1, 32, smem=BLOCK).smem
    assert [(writer.ptx_lines, writer.bytes) for writer in whole.writers] == [((8,), 124), ((13, 18), 388)]


@pytest.mark.parametrize("at", ["", "here", "11:0", "11:x", ":", "99", 99, "rounds.cu:5", "1:2:3", -1, "9" * 40])
def test_what_names_no_moment_is_refused(at):
    with pytest.raises(ts.RuleError, match="smem-moment"):
        written(at)


def test_a_file_that_no_instruction_comes_from_is_named_with_what_to_do(wording):
    with pytest.raises(ts.RuleError) as refused:
        written("other.cu:5")
    (violation,) = refused.value.violations
    assert (violation.rule, violation.argument) == ("smem-moment", "smem")
    assert violation.values["file"] == "other.cu"
    assert f"PTX line such as {violation.values['first_line']}" in violation.fix
    wording("a picture of a file without lines", violation)


@pytest.mark.parametrize("at", ["a:1" * 1_000_000, "a:1" * 1650 + "x"], ids=["too long", "just not too long"])
def test_long_texts_are_refused(at):
    with pytest.raises(ts.RuleError, match="smem-moment"):
        written(at)  # which takes minutes where a pattern tries every way to read them


@pytest.mark.parametrize("block", [(2, 0, 0), (0, 1, 0), (-1, 0, 0)])
def test_a_block_outside_the_grid_is_refused(block):
    with pytest.raises(ts.RuleError):
        ROUNDS.run(2, 32, smem=block)


def test_a_picture_needs_findings():
    with pytest.raises(ts.RuleError, match="findings=False"):
        ROUNDS.run(1, 32, smem=BLOCK, findings=False)


def test_a_block_that_did_not_run_has_no_picture():
    assert ROUNDS.run(2, 32, smem=(1, 0, 0), blocks=[(0, 0, 0)]).smem is None
    assert ROUNDS.run(2, 32).smem is None


def copied(at=None, **options):
    tensor = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    memory = ts.Memory()
    box = memory.map(tensor, (64, 8), swizzle="128B")
    return COPY.run(1, 32, [box], memory=memory, smem=(BLOCK, at), **options).smem


def test_a_tile_knows_its_map_and_its_corner():
    (tile,) = copied().tiles
    assert (tile.address, tile.coords, tile.tensor_map.box) == (0x400, (8, 16), (64, 8))


def test_a_copy_is_under_way_until_it_is_waited_for():
    before = copied(10)
    assert (before.stretches[0].bytes, before.stretches[0].is_under_way) == (1024, True)
    assert not copied().stretches[0].is_under_way


def test_mbarriers_are_known_from_their_init_on():
    assert copied(7).mbarriers == ()
    assert copied(8).mbarriers == (0xC00,)


def test_a_tile_that_was_overwritten_is_gone():
    text = COPY.ptx.replace(
        "st.shared.u32 [s+1024], %r1;",
        "shl.b32 %r2, %r1, 5; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;"
        + "".join(f" st.shared.u32 [%r3+{4 * n}], 0;" for n in range(8)),
    )
    tensor, memory = np.zeros((64, 64), np.uint16), ts.Memory()
    run = ts.Kernel(text).run(1, 32, [memory.map(tensor, (64, 8))], memory=memory, smem=BLOCK)
    assert run.smem.tiles == ()


def test_the_block_of_a_cluster_has_its_own_memory():
    text = ROUNDS.ptx.replace("entry k()", "entry k() .reqnctapercluster 2, 1, 1").replace(
        "st.shared.u32 [s], 99", "st.shared.u32 [s+512], 99"
    )
    text = text.replace("setp.eq.u32 %p1, %r1, 0;", "mov.u32 %r5, %ctaid.x; setp.eq.u32 %p1, %r5, 3;")
    kernel = ts.Kernel(text)
    assert lines_at(kernel.run(4, 32, smem=(3, 0, 0)).smem, 0x600) == [16]
    assert lines_at(kernel.run(4, 32, smem=(2, 0, 0)).smem, 0x600) == [11]


def test_plain_data_leads_back_to_the_picture():
    picture = copied()
    assert SmemPicture.from_dict(picture.to_dict()) == picture


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_end_does_not_depend_on_the_order(seed):
    assert copied(seed=seed) == copied()
