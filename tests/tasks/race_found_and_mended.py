"""Results differ from run to run. Threads reverse a tile through shared memory; is a barrier missing?"""

KERNEL = """\
.version 8.0
.target sm_90
.address_size 64
.visible .entry turned(.param .u64 a)
{
    .shared .align 4 .b8 tile[256];
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r4, [%rd3];
    mov.u32 %r3, tile;
    add.u32 %r5, %r3, %r2;
    st.shared.u32 [%r5], %r4;
    BARRIER
    sub.u32 %r5, 252, %r2;
    add.u32 %r5, %r3, %r5;
    ld.shared.u32 %r4, [%r5];
    st.global.u32 [%rd3], %r4;
    ret;
}
"""
RUN = "tilescope run turned.ptx --grid 1 --block 64 --arg u32:64:arange"


def solve(desk):
    desk.write("turned.ptx", KERNEL.replace("BARRIER", ""))
    said = desk.type(f"{RUN} -q")
    assert said.status == 1
    assert said.first.startswith("turned finished, with 1 error:")
    assert "at PTX line 21 a thread reads tile+252" in said.first
    assert "(run-race)" in said.first
    assert "Put `bar.sync 0;` before PTX" in said.out
    assert "line 21" in said.out
    desk.write("turned.ptx", KERNEL.replace("BARRIER", "bar.sync 0;"))
    mended = desk.type(RUN)
    assert mended.status == 0
    assert "63, 62, 61, 60" in mended.text
