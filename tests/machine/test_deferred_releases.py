"""Releases of atomics that are kept in a graph order what they order when each is joined at once: findings are equal."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilescope as ts
from tilescope.machine.edits import remedy
from tilescope.machine.execution import launch_grid
from tilescope.machine.report import remedy_report
from tilescope.sync import release_graph
from tilescope.sync.detector import fences

BLOCKS = 3
THREADS = 64
WORDS = 64  # of each array

HEADER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 counts) {
    .reg .pred %p;
    .reg .b32 %tid, %block, %i, %v, %w, %at;
    .reg .b64 %to, %count, %a;
    .shared .align 4 .b8 s[256];
    ld.param.u64 %to, [data];
    ld.param.u64 %count, [counts];
    mov.u32 %tid, %tid.x;
    mov.u32 %block, %ctaid.x;
    mad.lo.u32 %i, %block, 64, %tid;
    mov.u32 %v, %i;
    shl.b32 %at, %tid, 2;
    mov.u32 %w, s;
    add.u32 %at, %at, %w;
"""

# {k} and {m} differ from draw to draw. Guards leave some lanes, or all of them but one, aside.
WORD = "mul.lo.u32 %w, {i}, {k}; add.u32 %w, %w, {m}; and.b32 %w, %w, {mask}; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, {array}; "
COUNT = WORD.format(i="%i", k="{k}", m="{m}", mask="{mask}", array="%count")
DATA = WORD.format(i="%i", k="{k}", m="{m}", mask="63", array="%to")
LANES = "setp.lt.u32 %p, %tid, {lanes}; "

# All blocks store, count at a word, wait for the last one, and load what the next block has stored.
STORE_OWN = "mul.wide.u32 %a, %i, 4; add.u64 %a, %a, %to; st.global.u32 [%a], %v; "
ARRIVE = "add.u64 %a, %count, {meeting}; atom.relaxed.gpu.global.add.u32 %w, [%a], 1;"
WAIT = "\nW{meeting}: ld.volatile.global.u32 %w, [%a]; setp.lt.u32 %p, %w, {all}; @%p bra W{meeting};"
LOAD_NEXT = " add.u32 %w, %i, 64; rem.u32 %w, %w, {threads}; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, %to; ld.global.u32 %v, [%a];"


def meet(before, arrive, waiting, after):
    """A barrier of the grid between a store and a load."""
    return STORE_OWN + before + arrive + WAIT.replace("{all}", waiting) + after + LOAD_NEXT


FRAGMENTS = {
    "meet": meet(
        "bar.sync 0; setp.ne.u32 %p, %tid, 0; @%p bra E{meeting}; fence.acq_rel.gpu; ",
        ARRIVE,
        "{blocks}",
        " fence.acq_rel.gpu;\nE{meeting}: bar.sync 0;",
    ),
    "meet without a fence": meet(
        "bar.sync 0; setp.ne.u32 %p, %tid, {m}; @%p bra E{meeting}; fence.acq_rel.gpu; ",
        ARRIVE,
        "{blocks}",
        "\nE{meeting}: bar.sync 0;",
    ),
    "meet each": meet("fence.acq_rel.gpu; ", ARRIVE, "{threads}", " fence.acq_rel.gpu;"),
    "meet in halves": meet(
        "fence.acq_rel.gpu; ",
        "and.b32 %w, %tid, 1; mul.wide.u32 %a, %w, 256; add.u64 %a, %a, %count; add.u64 %a, %a, {meeting};"
        " atom.relaxed.gpu.global.add.u32 %w, [%a], 1;",
        "{half}",
        " fence.acq_rel.gpu;",
    ),
    "count": COUNT + LANES + "@%p atom.acq_rel.gpu.global.add.u32 %w, [%a], 1;",
    "count apart": "mad.lo.u32 %w, %block, {m}, %tid; and.b32 %w, %w, 63; mul.wide.u32 %a, %w, 4; add.u64 %a, %a, %count;"
    " atom.acq_rel.gpu.global.add.u32 %w, [%a], 1;",
    "count and keep": COUNT + LANES + "@%p atom.acq_rel.gpu.global.add.u32 %v, [%a], 1;",
    "count in shared memory": LANES + "@%p atom.acq_rel.gpu.shared.add.u32 %w, [s], 1;",
    "release": COUNT + LANES + "@%p atom.release.gpu.global.add.u32 %w, [%a], 1;",
    "acquire": COUNT + LANES + "@%p atom.acquire.gpu.global.add.u32 %w, [%a], 0;",
    "relaxed": COUNT + LANES + "@%p atom.relaxed.gpu.global.add.u32 %w, [%a], 1;",
    "fence": "fence.acq_rel.gpu;",
    "fence and count": LANES + "fence.sc.gpu; " + COUNT + "@%p atom.acquire.gpu.global.add.u32 %w, [%a], 1;",
    "fence, count, fence": "fence.acq_rel.gpu; " + COUNT + LANES + "@%p atom.relaxed.gpu.global.add.u32 %w, [%a], 1;"
    " fence.acq_rel.gpu;",
    "store a flag": COUNT + LANES + "@%p st.release.gpu.global.u32 [%a], 5;",
    "load a flag": COUNT + LANES + "@%p ld.acquire.gpu.global.u32 %w, [%a];",
    "store volatile": COUNT + LANES + "@%p st.volatile.global.u32 [%a], 7;",
    "load volatile": COUNT + LANES + "@%p ld.volatile.global.u32 %w, [%a];",
    "store": DATA + LANES + "@%p st.global.u32 [%a], %v;",
    "load": DATA + LANES + "@%p ld.global.u32 %w, [%a];",
    "store in turn": "setp.eq.u32 %p, %block, {block}; " + DATA + "@%p st.global.u32 [%a], %tid;",
    "load in turn": "setp.eq.u32 %p, %block, {block}; " + DATA + "@%p ld.global.u32 %w, [%a];",
    "share": "st.shared.u32 [%at], %v;",
    "take": "xor.b32 %w, %at, 4; ld.shared.u32 %w, [%w];",
    "barrier": "bar.sync 0;",
    "warp barrier": "bar.warp.sync -1;",
    "shuffle": "shfl.sync.bfly.b32 %w, %v, 1, 31, -1;",
}
DRAWS = st.lists(
    st.tuples(
        st.sampled_from(sorted(FRAGMENTS)),
        st.integers(0, 5),
        st.integers(0, 63),
        st.sampled_from([0, 1, 7, 63]),
        st.sampled_from([1, 8, 40, 64]),
        st.integers(0, BLOCKS - 1),
    ),
    min_size=3,
    max_size=9,
)


def run_fragments(choices, monkeypatch, *, at_once):
    """The findings of a kernel of fragments, and whether a release was kept."""
    if at_once:
        monkeypatch.setattr(fences.Fences, "_may_defer", lambda *_: False)
    for module in (remedy, remedy_report):  # no remedies are tried: what the conflicts are does not depend on them
        monkeypatch.setattr(module, "trial_step_budget", lambda _: 0)
    kept = []
    add = release_graph.ReleaseGraph.add_releases
    monkeypatch.setattr(
        release_graph.ReleaseGraph, "add_releases", lambda self, *args: (kept.append(1), add(self, *args))[1]
    )
    threads = BLOCKS * THREADS
    lines = [
        FRAGMENTS[name].format(
            k=k,
            m=m,
            mask=mask,
            lanes=lanes,
            block=block,
            meeting=4 * (WORDS + place),
            blocks=BLOCKS,
            threads=threads,
            half=threads // 2,
        )
        for place, (name, k, m, mask, lanes, block) in enumerate(choices)
    ]
    text = HEADER + "\n".join("    " + line for line in lines) + "\n    ret;\n}\n"
    arrays = [np.zeros(BLOCKS * THREADS, np.uint32), np.zeros(3 * WORDS, np.uint32)]
    run = ts.Kernel(text).run(BLOCKS, THREADS, arrays, advice="none")
    monkeypatch.undo()
    said = json.loads(json.dumps(run.to_dict(), default=str))
    return said["findings"], bool(kept)


TWO_RELEASES_OF_A_LANE = [
    ("acquire", 0, 0, 0, 1, 0),
    ("store", 1, 0, 0, 8, 0),
    ("fence and count", 0, 0, 0, 8, 0),
    ("store in turn", 0, 0, 0, 1, 0),
    ("acquire", 0, 0, 0, 1, 0),
    ("store", 0, 1, 0, 1, 0),
]

RELEASE_AFTER_AN_EARLIER_FENCE = [
    ("fence and count", 5, 36, 7, 40, 1),
    ("store in turn", 0, 43, 1, 8, 1),
    ("count in shared memory", 4, 39, 7, 64, 1),
    ("relaxed", 1, 17, 7, 64, 0),
    ("load in turn", 5, 18, 7, 1, 2),
]


@example(RELEASE_AFTER_AN_EARLIER_FENCE, release_graph._LONG_WALK)
@example(TWO_RELEASES_OF_A_LANE, release_graph._LONG_WALK)
@given(DRAWS, st.sampled_from([0, release_graph._LONG_WALK]))
@settings(max_examples=settings().max_examples // 2)
def test_a_kept_release_orders_what_one_that_is_joined_at_once_orders(choices, long_walk):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(launch_grid, "run_in_lockstep", lambda _: None)
        joined, none = run_fragments(choices, monkeypatch, at_once=True)
        monkeypatch.setattr(launch_grid, "run_in_lockstep", lambda _: None)
        monkeypatch.setattr(release_graph, "_LONG_WALK", long_walk)  # with 0, what every walk finds is kept
        monkeypatch.setattr(release_graph, "_MOST_COMPLETE", 2)
        kept, _ = run_fragments(choices, monkeypatch, at_once=False)
    assert not none
    assert kept == joined


def rules_of(choices, monkeypatch, at_once):
    findings, kept = run_fragments(choices, monkeypatch, at_once=at_once)
    assert kept is not at_once
    return {finding["rule"] for finding in findings}


@pytest.mark.parametrize("at_once", [False, True])
def test_only_atomics_at_one_word_order_a_load_after_a_store_of_another_block(monkeypatch, at_once):
    """Lane n of block 0 stores a word and counts; lane n of block 1 counts and loads that word."""
    store, load = ("store in turn", 1, 0, 63, 64, 0), ("load in turn", 1, 0, 63, 64, 1)
    at_one_word, between = ("count", 1, 0, 63, 64, 0), ("count", 1, 7, 15, 64, 0)
    elsewhere = ("count apart", 0, 5, 0, 64, 0)  # lane n of block 1 counts where lane n + 5 of block 0 does
    assert rules_of([store, at_one_word, load], monkeypatch, at_once) == set()
    assert rules_of([store, at_one_word, between, between, load], monkeypatch, at_once) == set()
    assert rules_of([store, elsewhere, load], monkeypatch, at_once) == {"run-unused-load"}  # nobody uses what it reads
    assert rules_of([store, elsewhere, ("barrier", 0, 0, 0, 0, 0), load], monkeypatch, at_once) == set()
