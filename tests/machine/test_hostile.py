"""Texts that mean harm: recorded kernels with lines lost, exchanged and rewritten end in a refusal, a fault or a stop."""

import random
import re

import numpy as np
import pytest
from kernel_recording import PATHS, argument, recording

import tilescope as ts
from tilescope.errors import RuleError

NAMES = ("divergence", "calls", "bulk_copies", "ring_tokens", "cluster_arrivals", "matrices", "wgmma_forms", "cp_async")
NUMBERS = ("0", "1", "-1", "16", "31", "255", "65535", "2147483648", "4294967295", "1099511627776")
OUTCOMES = {"finished", "hang", "fault", "stopped"}


def _without(lines, place, _draw):
    lines[place] = ""


def _exchanged(lines, place, draw):
    other = draw.randrange(len(lines))
    lines[place], lines[other] = lines[other], lines[place]


def _with_another_number(lines, place, draw):
    lines[place] = re.sub(r"\b\d+\b(?=[^<]*$)", draw.choice(NUMBERS), lines[place], count=1)


def _with_another_register(lines, place, draw):
    lines[place] = re.sub(r"(%[a-z]+)\d+", lambda found: f"{found[1]}{draw.randrange(1, 9)}", lines[place], count=1)


def _with_its_operands_turned(lines, place, _draw):
    parts = lines[place].rstrip(";").split(",")
    lines[place] = ",".join(parts[::-1]) + ";"


def _with_another_word(lines, place, draw):
    words = re.findall(r"\.[a-z_0-9:]+", "".join(lines))
    lines[place] = re.sub(r"\.[a-z_0-9:]+", lambda _: draw.choice(words), lines[place], count=1)


CHANGES = (
    _without,
    _exchanged,
    _with_another_number,
    _with_another_register,
    _with_its_operands_turned,
    _with_another_word,
)


def damaged(text, draw):
    """A text with one to three of its instructions changed."""
    lines = text.split("\n")
    places = [place for place, line in enumerate(lines) if line.startswith("\t") and line.endswith(";")]
    for _ in range(draw.randint(1, 3)):
        draw.choice(CHANGES)(lines, draw.choice(places), draw)
    return "\n".join(lines)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_kernel_is_refused_or_comes_to_an_end(name, seed):
    draw = random.Random(f"{name} {seed}")
    launch = recording(name).launch
    memory = ts.Memory()
    addresses = [memory.place(array.copy()) for array in recording(name).before]
    options = {key: launch[key] for key in ("cluster", "arch") if key in launch}
    try:
        kernel = ts.Kernel(damaged(PATHS[name].with_suffix(".ptx").read_text(), draw), entry=launch["entry"])
    except RuleError:
        return
    run = kernel.run(
        launch["grid"],
        launch["block"],
        [argument(parameter, addresses) for parameter in launch["params"]],
        memory=memory,
        smem_bytes=launch["smem_bytes"],
        max_steps=5_000,
        **options,
    )
    assert run.outcome in OUTCOMES
    assert bool(run.findings) or run.outcome == "finished"


def test_no_fix_is_tried_behind_the_last_instruction():
    """Threads of two blocks race, and some never leave a loop: all paths join only at the end of the body."""
    text = PATHS["tables"].with_suffix(".ptx").read_text()
    pointer, branch = "cvta.to.global.u64 \t%rd14, %rd2;", "@%p2 bra \t$L__BB0_3;"
    assert text.count(pointer) == text.count(branch) == 1
    changed = text.replace(pointer, "…").replace(branch, pointer).replace("…", branch)
    words = [np.zeros(4096, np.uint32) for _ in range(2)]
    run = ts.Kernel(changed).run(2, 32, [*words, 7], smem_bytes=49152, max_steps=3000)
    assert run.outcome == "hang"
    assert "run-race" in {finding.rule for finding in run.findings}


def test_addresses_everywhere_are_faults():
    """Every thread loads from another corner of the 64-bit space."""
    text = """
        .version 8.0
        .target sm_90
        .address_size 64
        .visible .entry k(.param .u64 address) {
            .reg .b32 %r<2>;
            .reg .b64 %d<2>;
            ld.param.u64 %d1, [address];
            ld.u32 %r1, [%d1];
            ret;
        }"""
    kernel = ts.Kernel(text)
    for address in (0, 4, 1 << 20, 0x7C00_0000_1000, 0x7D00_0000_0000, 0x7E00_0100_0000, (1 << 63) - 4, -4):
        run = kernel.run(1, 32, [address], memory=ts.Memory())
        assert run.outcome == "fault", hex(address)
        assert run.findings[0].values["code"] in {700, 715}


def test_an_array_of_nothing_can_be_placed_and_not_read():
    assert ts.Memory().place(np.zeros(0, np.uint8)) % 256 == 0
