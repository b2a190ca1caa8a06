"""PTX texts for tests of the machine: a header, a body, and what most kernels begin with."""

from tilescope.machine.kernel import Kernel

HEADER = """
.version 8.7
.target sm_90a
.address_size 64
"""

REGISTERS = """
    .reg .pred %p<16>;
    .reg .b16 %h<32>;
    .reg .b32 %r<64>;
    .reg .b64 %d<32>;
"""


def kernel(body, parameters=".param .u64 out", before="", directives=""):
    """A kernel of one entry called k; `before` stands in front of it, at module scope."""
    text = f"{HEADER}{before}\n.visible .entry k({parameters}) {directives}\n{{{REGISTERS}{body}\n}}\n"
    return Kernel(text)


def per_thread(body, value="%r1", before=""):
    """A kernel whose every thread stores the 32-bit register `value` at out[its number in the grid]."""
    return kernel(
        f"""
        mov.u32 %r60, %ctaid.x;
        mov.u32 %r61, %ntid.x;
        mov.u32 %r62, %tid.x;
        mad.lo.s32 %r60, %r60, %r61, %r62;
        {body}
        ld.param.u64 %d30, [out];
        mul.wide.u32 %d31, %r60, 4;
        add.s64 %d31, %d30, %d31;
        st.global.u32 [%d31], {value};
        ret;
    """,
        before=before,
    )


def finished(made, threads, arguments, blocks=1, **options):
    """A run that came to its end."""
    run = made.run(blocks, threads, arguments, **options)
    assert run.outcome == "finished", run.findings
    return run


def fault_code(made, threads, arguments, **options):
    """The number of the fault that a kernel of one block ends with."""
    run = made.run(1, threads, arguments, **options)
    assert run.outcome == "fault", run.outcome
    return run.findings[0].values["code"]
