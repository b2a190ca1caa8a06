"""What accesses cost while a kernel runs: wavefronts, sectors, requests of copies, operands of wgmma; and the advice."""

import numpy as np
import pytest
from kernel_recording import kernel as recorded_kernel
from kernel_recording import recording, run_again
from ptx_texts import finished, kernel

import tilescope as ts
from tilescope.machine.observers.access_cost import AccessCounter
from tilescope.machine.observers.access_cost import wavefronts_of as wavefronts_by_rule
from tilescope.machine.report.line_count import costly_lines, line_counts

SMEM = 0x400  # where static shared memory begins
RNG = np.random.default_rng(30)


def row_of(run, opcode):
    """The count of the only instruction that has this in its text."""
    (row,) = [row for row in run.instructions if opcode in row.ptx_text]
    return row


def wavefronts_of(run, opcode):
    row = row_of(run, opcode)
    return row.wavefronts, row.least_wavefronts


def sectors_of(run, opcode):
    row = row_of(run, opcode)
    return row.sectors, row.least_sectors


def rules(run):
    """The rules of the findings, but for bytes that these small kernels read without writing them."""
    return [finding.rule for finding in run.findings if finding.rule != "run-unwritten"]


AT_ADDRESS = """
    .shared .align 1024 .b8 buffer[16384];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d1, %r1, 4;
    ld.param.u64 %d2, [out];
    add.s64 %d2, %d2, %d1;
    ld.global.u32 %r2, [%d2];
"""  # %r2: the shared address that the array has for the thread
INSTRUCTIONS = {
    "ld.b8": "ld.shared.u8 %r3, [%r2];",
    "ld.b16": "ld.shared.u16 %h3, [%r2];",
    "ld.b32": "ld.shared.u32 %r3, [%r2];",
    "ld.b64": "ld.shared.v2.u32 {%r3, %r4}, [%r2];",
    "ld.b128": "ld.shared.v2.u64 {%d3, %d4}, [%r2];",
    "st.b8": "st.shared.u8 [%r2], %r1;",
    "st.b16": "st.shared.u16 [%r2], %h1;",
    "st.b32": "st.shared.f32 [%r2], %r1;",
    "st.b64": "st.shared.u64 [%r2], %d1;",
    "st.b128": "st.shared.v4.u32 [%r2], {%r1, %r1, %r1, %r1};",
    "ldmatrix.x1": "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];",
    "ldmatrix.x2.trans": "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r3, %r4}, [%r2];",
    "ldmatrix.x4": "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];",
    "stmatrix.x4": "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r2], {%r1, %r1, %r1, %r1};",
}


def at_addresses(instruction, addresses, **options):
    """Run one instruction with the shared address of every thread in %r2."""
    made = kernel(f"{AT_ADDRESS}{instruction} ret;")
    return finished(made, len(addresses), [np.array(addresses, np.uint32)], **options)


@pytest.mark.parametrize("op", INSTRUCTIONS)
@pytest.mark.parametrize("span_bytes", [256, 4096])
def test_wavefronts_are_those_of_the_measured_rule(op, span_bytes):
    size_bytes = ts.bank_report(op, np.zeros(32, np.int64)).op.access_bytes
    addresses = SMEM + RNG.integers(0, span_bytes // size_bytes, (3, 32)) * size_bytes
    run = at_addresses(INSTRUCTIONS[op], addresses.ravel())
    reports = [ts.bank_report(op, warp) for warp in addresses]
    name = INSTRUCTIONS[op].split()[0]
    assert wavefronts_of(run, name) == (int(ts.wavefronts(op, addresses).sum()), sum(one.ideal for one in reports))
    worst = row_of(run, name).worst
    excesses = [one.excess for one in reports]
    if max(excesses):
        assert worst.warp == excesses.index(max(excesses))
        assert worst.report() == reports[worst.warp]
    else:
        assert worst is None


@pytest.mark.parametrize(
    ("places", "wavefronts"),
    [
        (np.arange(32) * 4, 1),  # a row
        (np.arange(32) * 128, 32),  # a column of bank 0
        (np.arange(32) * 132, 1),  # the same, rows padded by a word
        (np.arange(32) * 128 ^ np.arange(32) % 8 * 16, 4),  # the same, swizzled by 128B: 8 chunks for 32 rows
        (np.zeros(32, np.int64), 1),  # one word for all
        (np.arange(32) * 64, 16),  # every other line
    ],
)
def test_conflicts_counted_by_hand(places, wavefronts):
    assert wavefronts_of(at_addresses("ld.shared.u32 %r3, [%r2];", SMEM + places), "ld.shared") == (wavefronts, 1)


def test_lanes_whose_guard_does_not_hold_cost_nothing():
    run = at_addresses("setp.lt.u32 %p1, %r1, 5; @%p1 ld.shared.u32 %r3, [%r2];", SMEM + np.arange(64) * 128)
    assert wavefronts_of(run, "ld.shared") == (5, 1)
    assert row_of(run, "ld.shared").worst.lanes == (0, 1, 2, 3, 4)


def test_an_atomic_is_charged_once():
    column = SMEM + np.arange(32) * 128
    assert wavefronts_of(at_addresses("red.shared.add.u32 [%r2], 1;", column), "red.shared") == (32, 1)
    assert wavefronts_of(at_addresses("atom.shared.exch.b32 %r3, [%r2], %r1;", column), "atom.shared") == (32, 1)


def test_generic_addresses_are_counted_where_they_lead():
    body = """
        cvt.u64.u32 %d4, %r2;
        cvta.shared.u64 %d3, %d4;
        setp.lt.u32 %p1, %r1, 16;
        selp.b64 %d5, %d3, %d2, %p1;
        ld.u32 %r3, [%d5];
    """
    run = at_addresses(body, SMEM + np.arange(32) * 128)
    assert wavefronts_of(run, "ld.u32") == (16, 1)  # lanes 0 to 15
    assert sectors_of(run, "ld.u32") == (2, 2)  # lanes 16 to 31: 64 bytes


def test_the_banks_of_another_block_are_not_counted():
    """Lanes 0 to 15 go to the other block; their words lie in other banks than those of the own block."""
    body = """
        mov.u32 %r4, %cluster_ctarank;
        xor.b32 %r5, %r4, 1;
        setp.lt.u32 %p1, %r1, 16;
        selp.u32 %r5, %r5, %r4, %p1;
        mapa.shared::cluster.u32 %r6, %r2, %r5;
        ld.shared::cluster.u32 %r3, [%r6];
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
    """
    run = at_addresses(body, SMEM + np.arange(32) * 128, blocks=2, cluster=2)
    assert wavefronts_of(run, "ld.shared::cluster") == (2 * 16, 2)


def test_a_loop_adds_up():
    body = """
        mov.u32 %r5, 0;
    AGAIN:
        ld.shared.u32 %r3, [%r2];
        add.u32 %r2, %r2, 4;
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 10;
        @%p1 bra AGAIN;
    """
    run = at_addresses(body, SMEM + np.arange(64) * 128)
    assert wavefronts_of(run, "ld.shared") == (10 * 2 * 32, 10 * 2)


def test_the_worst_access_names_warp_lanes_and_bank():
    addresses = SMEM + np.concatenate([np.arange(32) * 4, np.arange(32) // 16 * 128 + np.arange(32) % 16 * 8 + 4])
    addresses[63] = SMEM + 4 + 1024
    worst = row_of(at_addresses("ld.shared.u32 %r3, [%r2];", addresses), "ld.shared").worst
    assert (worst.op, worst.block, worst.warp, worst.wavefronts, worst.least_wavefronts) == (
        "ld.b32",
        (0, 0, 0),
        1,
        3,
        1,
    )
    assert (worst.bank, worst.lanes) == (1, (0, 16, 31))


def test_nobody_counts_without_findings():
    run = at_addresses("ld.shared.u32 %r3, [%r2];", SMEM + np.arange(32) * 128, findings=False)
    assert wavefronts_of(run, "ld.shared") == (None, None)
    assert (run.findings, run.traffic, run.operands) == ((), (), ())


def test_local_memory_parameters_and_constants_are_not_counted():
    made = kernel(
        """
        .local .align 4 .b8 depot[16];
        ld.param.u64 %d1, [out];
        mov.u64 %d2, depot;
        st.local.u32 [%d2], 1;
        mov.u64 %d3, table;
        ld.const.u32 %r1, [%d3];
        ret;""",
        before=".const .align 4 .b8 table[16];",
    )
    run = finished(made, 32, [np.zeros(4, np.uint32)])
    assert {(row.wavefronts, row.sectors) for row in run.instructions} == {(None, None)}


def at_offsets(instruction, offsets, **options):
    """Run one instruction with the address of every thread in global memory in %d4."""
    made = kernel(
        f"""
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %d1, %r1, 4;
        ld.param.u64 %d2, [offsets];
        add.s64 %d2, %d2, %d1;
        ld.global.nc.u32 %r2, [%d2];
        ld.param.u64 %d3, [out];
        cvt.u64.u32 %d4, %r2;
        add.s64 %d4, %d3, %d4;
        {instruction} ret;""",
        ".param .u64 offsets, .param .u64 out",
    )
    arrays = [np.array(offsets, np.uint32), np.zeros(4096, np.uint32)]
    return finished(made, len(offsets), arrays, **options)


@pytest.mark.parametrize(
    ("instruction", "offsets", "sectors"),
    [
        ("ld.global.f32 %r3, [%d4];", np.arange(32) * 4, (4, 4)),
        ("ld.global.f32 %r3, [%d4];", np.arange(32) * 4 + 4, (5, 4)),
        ("ld.global.f32 %r3, [%d4];", np.arange(32) * 32, (32, 4)),
        ("ld.global.f32 %r3, [%d4];", np.zeros(32), (1, 1)),
        ("ld.global.f32 %r3, [%d4];", np.arange(32)[::-1] * 4, (4, 4)),
        ("ld.global.u8 %r3, [%d4];", np.arange(32), (1, 1)),
        ("ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%d4];", np.arange(32) * 16, (16, 16)),
        ("st.global.u16 [%d4], %h1;", np.arange(64) * 64, (64, 4)),
        ("red.global.add.u32 [%d4], 1;", np.arange(32) * 4, (4, 4)),
        ("setp.lt.u32 %p1, %r1, 2; @%p1 ld.global.f32 %r3, [%d4];", np.arange(32) * 64, (2, 1)),
    ],
)
def test_sectors_counted_by_hand(instruction, offsets, sectors):
    run = at_offsets(instruction, offsets)
    (row,) = [row for row in run.instructions if "[%d4]" in row.ptx_text]
    assert (row.sectors, row.least_sectors) == sectors
    assert row.wavefronts is None


def test_scattered_lanes_get_a_note_at_more_than_twice_the_least():
    twice = at_offsets("ld.global.f32 %r3, [%d4];", np.arange(32) * 8)
    assert sectors_of(twice, "ld.global.f32") == (8, 4)
    assert rules(twice) == []
    more = at_offsets("ld.global.f32 %r3, [%d4];", np.arange(32) * 12)
    assert sectors_of(more, "ld.global.f32") == (12, 4)
    assert [(one.rule, one.severity, one.values["sectors"], one.values["least"]) for one in more.findings] == [
        ("run-sectors", "note", 12, 4)
    ]
    (line,) = more.findings[0].values["ptx_lines"]
    assert f"PTX line {line} (ld.global.f32" in more.findings[0].argument


CP_ASYNC = """
    .shared .align 1024 .b8 buffer[8192];
    mov.u32 %r4, buffer;
    mad.lo.u32 %r4, %r1, 128, %r4;
    setp.lt.u32 %p1, %r1, 8;
    selp.u32 %r5, {size}, 0, %p1;
    {copy}
    cp.async.wait_all;
"""


@pytest.mark.parametrize(
    ("copy", "size", "wavefronts", "sectors"),
    [
        ("cp.async.ca.shared.global [%r4], [%d4], 4;", 4, (32, 1), (4, 4)),
        ("cp.async.ca.shared.global [%r4], [%d4], 4, %r5;", 4, (32, 1), (1, 1)),  # 8 lanes bring anything
        ("cp.async.cg.shared.global [%r4], [%d4], 16;", 16, (None, None), (16, 16)),  # past L1
    ],
)
def test_cp_async_is_counted_on_both_sides(copy, size, wavefronts, sectors):
    run = at_offsets(CP_ASYNC.format(copy=copy, size=size), np.arange(32) * size)
    assert wavefronts_of(run, "cp.async.c") == wavefronts
    assert sectors_of(run, "cp.async.c") == sectors


def recounted(execution, count):
    """(cost, least) of an execution."""
    cost = least = 0
    for warp in sorted({lane // 32 for lane in execution.lanes.tolist()}):
        is_own = execution.lanes // 32 == warp
        addresses = execution.addresses[is_own]
        if count is wavefronts_by_rule:
            lane_address, is_active = np.zeros(32, np.int64), np.zeros(32, np.bool_)
            lane_address[execution.lanes[is_own] % 32] = addresses
            is_active[execution.lanes[is_own] % 32] = True
            report = ts.bank_report(execution.kind.shared_op, lane_address, is_active)
            cost += report.wavefronts
            least += report.ideal
        else:
            touched = {place + byte for place in addresses.tolist() for byte in range(execution.kind.size_bytes)}
            cost += len({byte // 32 for byte in touched})
            least += -(-len(touched) // 32)
    return cost, least


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "name", ["softmax", "histogram", "cp_async", "matrices", pytest.param("atomics_shared", marks=pytest.mark.slow)]
)
def test_counts_equal_those_of_a_naive_recount(name, monkeypatch, launches):
    expected = {}

    add = AccessCounter.add

    def noted(counter, execution):
        key = (counter.count, execution.pc)
        cost, least = recounted(execution, counter.count)
        known_cost, known_least = expected.get(key, (0, 0))
        expected[key] = (known_cost + cost, known_least + least)
        add(counter, execution)

    monkeypatch.setattr(AccessCounter, "add", noted)
    run_again(name, seed=1)
    costs = launches[0].costs
    counters = (costs.wavefronts, costs.sectors)
    found = {(one.count, pc): (tally.cost, tally.least) for one in counters for pc, tally in one.tallies.items()}
    assert expected
    assert found == expected


def transposed(pitch_bytes):
    """Rows of 32 words are written, and columns read, with so many bytes from row to row."""
    return kernel(
        f"""
        .shared .align 1024 .b8 buffer[8192];
        .loc 1 7 0
        mov.u32 %r1, %tid.x;
        and.b32 %r2, %r1, 31;
        shr.u32 %r3, %r1, 5;
        mov.u32 %r4, buffer;
        .loc 1 8 0
        mad.lo.u32 %r5, %r3, {pitch_bytes}, %r4;
        mad.lo.u32 %r5, %r2, 4, %r5;
        st.shared.u32 [%r5], %r1;
        bar.sync 0;
        .loc 1 9 0
        mad.lo.u32 %r6, %r2, {pitch_bytes}, %r4;
        mad.lo.u32 %r6, %r3, 4, %r6;
        ld.shared.u32 %r7, [%r6];
        ret;""",
        "",
        before='.file 1 "turn.cu"',
    )


def test_a_conflict_is_told_with_its_line_its_lanes_and_a_padding(wording):
    run = finished(transposed(128), 1024, [])
    (finding,) = run.findings
    assert (finding.rule, finding.severity) == ("run-bank-conflict", "warning")
    told = ("wavefronts", "least", "lanes", "degree", "bank", "row_bytes", "padding_bytes")
    assert [finding.values[name] for name in told] == [1024, 32, tuple(range(32)), 32, 0, 128, 4]
    assert finding.argument.startswith(f"turn.cu:9, PTX line {finding.values['ptx_lines'][0]} ")
    wording("a conflict that padding removes", finding)
    assert finished(transposed(132), 1024, []).findings == ()


def test_a_swizzle_is_told_where_one_of_the_hardware_cures():
    """Rows of 128 bytes by stores of 16 bytes, and eight rows at once by ldmatrix."""
    run = at_addresses(
        """
        mov.u32 %r5, buffer;
        mad.lo.u32 %r5, %r1, 16, %r5;
        st.shared.v4.u32 [%r5], {%r1, %r1, %r1, %r1};
        bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r2];""",
        SMEM + np.arange(32) % 16 * 128 + np.arange(32) // 16 * 16,
    )
    (finding,) = [finding for finding in run.findings if finding.rule == "run-bank-conflict"]
    assert wavefronts_of(run, "ldmatrix") == (32, 4)
    assert finding.values["cure_swizzle"] == "128B"
    assert finding.fix.startswith("Swizzle the tile by 128B")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_advice_is_the_same_in_every_order(seed):
    calm, _ = run_again("transpose_tma")
    shuffled, _ = run_again("transpose_tma", seed=seed)
    assert rules(calm) == ["run-bank-conflict"]
    assert shuffled.findings == calm.findings


def test_lines_add_up_their_instructions_and_the_costly_come_first():
    run = finished(transposed(128), 1024, [])
    by_line = {count.line: count for count in line_counts(run)}
    assert (by_line["turn.cu:8"].wavefronts, by_line["turn.cu:8"].least_wavefronts) == (32, 32)
    assert (by_line["turn.cu:9"].wavefronts, by_line["turn.cu:9"].least_wavefronts) == (1024, 32)
    assert by_line["turn.cu:7"].wavefronts is None
    assert costly_lines(run)[0].line == "turn.cu:9"


def test_a_run_with_its_costs_is_plain_data():
    run = finished(transposed(128), 1024, [])
    assert ts.Value.from_dict(run.to_dict()) == run


LOAD_TILE = """
    .shared .align 1024 .b8 tile[16384];
    .shared .align 8 .b64 full;
    mov.u32 %r1, %tid.x;
    setp.eq.u32 %p1, %r1, 0;
    mov.u32 %r2, tile;
    mov.u32 %r3, full;
    mov.b64 %d1, map;
    @%p1 mbarrier.init.shared.b64 [%r3], 1;
    bar.sync 0;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], {tile_bytes};
    mov.u32 %r10, {column};
    @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1, {{%r10, 0}}], [%r3];
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;
    @!%p2 bra WAIT;
"""
MAP = ".param .align 64 .b8 map[128]"


def loaded(tile_bytes, column=0):
    return LOAD_TILE.format(tile_bytes=tile_bytes, column=column)


@pytest.mark.parametrize(
    ("column", "request_bytes"),
    [(0, 128), (96, 64)],  # the right half of the second box lies outside
)
def test_copies_are_summed_up_by_map(column, request_bytes):
    memory = ts.Memory()
    a = memory.map(np.zeros((64, 128), np.float16), (64, 64), swizzle="128B", l2_promotion="256B")
    run = finished(kernel(f"{loaded(8192, column)} ret;", MAP), 32, [a], blocks=3, memory=memory)
    (row,) = run.traffic
    assert (row.map_number, row.direction, row.boxes, row.requests) == (0, "load", 3, 3 * 64)
    assert (row.request_bytes, row.least_request_bytes, row.bytes) == (
        request_bytes,
        request_bytes,
        192 * request_bytes,
    )
    assert (row.swizzle, row.l2_promotion) == ("128B", "256B")


def test_a_multicast_asks_global_memory_once():
    run, _ = run_again("multicast")
    (loads,) = [row for row in run.traffic if row.direction == "load" and row.map_number is not None]
    received = [copy for copy in run.copies if copy.direction == "load" and copy.map_number == loads.map_number]
    assert loads.boxes < len(received)


def test_bulk_copies_are_summed_up_without_a_map():
    run, _ = run_again("bulk_copies")
    assert {row.map_number for row in run.traffic} == {None}
    assert {"load", "store"} <= {row.direction for row in run.traffic}


CODES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}
SPANS = {"128B": 128, "64B": 64, "32B": 32, "none": 128}


def multiplied(descriptor, before=""):
    """A tile, read as both operands by one descriptor; its start is added."""
    return f"""{before}
        shr.u32 %r11, %r2, 4;
        cvt.u64.u32 %d2, %r11;
        or.b64 %d2, %d2, {descriptor:#x};
        wgmma.fence.sync.aligned;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r20, %r21, %r22, %r23}}, %d2, %d2, 0, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned;
        wgmma.wait_group.sync.aligned 0;
        ret;
    """


def read_tile(written, read, *, base_offset=0, columns=128, before=""):
    """A run that loads a tile of 64 rows through a map of one swizzle, and reads it with another."""
    span = SPANS[written]
    memory = ts.Memory()
    a = memory.map(np.zeros((64, columns), np.float16), (span // 2, 64), swizzle=written)
    descriptor = ts.WgmmaDescriptor(
        0, leading_bytes=16, stride_bytes=8 * SPANS[read], swizzle=read, base_offset=base_offset
    )
    made = kernel(loaded(64 * span) + multiplied(descriptor.encode(), before), MAP)
    return finished(made, 128, [a], memory=memory)


@pytest.mark.parametrize("swizzle", ["128B", "64B", "32B"])
def test_operands_under_their_own_swizzle_are_read_and_decoded(swizzle):
    run = read_tile(swizzle, swizzle)
    assert rules(run) == []
    assert [(row.operand, row.rows, row.k, row.major, row.reads) for row in run.operands] == [
        ("A", 64, 16, "K", 1),
        ("B", 8, 16, "K", 1),
    ]
    a = run.operands[0]
    assert (a.swizzle, a.leading_bytes, a.stride_bytes, a.base_offset) == (swizzle, 16, 8 * SPANS[swizzle], 0)
    assert (a.first_start, a.starts) == (SMEM, 1)


@pytest.mark.parametrize(
    ("written", "read"), [("128B", "64B"), ("128B", "none"), ("64B", "128B"), ("32B", "64B"), ("none", "128B")]
)
def test_another_swizzle_is_found_for_either_operand(written, read):
    run = read_tile(written, read)
    assert rules(run) == ["run-swizzle-mismatch", "run-swizzle-mismatch"]
    finding = run.findings[0]
    assert finding.severity == "error"
    told = ("operand", "start", "read_swizzle", "written_swizzle", "written_code")
    assert [finding.values[name] for name in told] == ["A", SMEM, read, written, CODES[written]]
    assert "wgmma.mma_async" in finding.found
    assert "cp.async.bulk.tensor" in finding.found
    assert len(finding.values["ptx_lines"]) == 2
    assert all(f"PTX line {line} " in finding.found for line in finding.values["ptx_lines"])


def test_plain_rows_are_no_core_matrices():
    run = read_tile("none", "none")
    assert rules(run) == ["run-swizzle-mismatch", "run-swizzle-mismatch"]
    assert "plain rows of 128 bytes" in run.findings[0].found


def test_a_base_offset_moves_the_pattern_away_from_absolute_addresses():
    assert rules(read_tile("128B", "128B", base_offset=1)) == ["run-swizzle-mismatch", "run-swizzle-mismatch"]
    assert rules(read_tile("64B", "64B", base_offset=4)) == []  # the pattern of 64B repeats after 4 lines


def test_rows_that_follow_each_other_in_global_memory_may_be_packed_atoms():
    run = read_tile("none", "128B", columns=64)
    assert [(one.rule, one.severity) for one in run.findings] == [("run-packed-tile", "warning")] * 2


def test_what_threads_wrote_over_is_theirs():
    over = """
        mad.lo.u32 %r12, %r1, 64, %r2;
        st.shared.v4.u32 [%r12], {%r1, %r1, %r1, %r1};
        st.shared.v4.u32 [%r12+16], {%r1, %r1, %r1, %r1};
        st.shared.v4.u32 [%r12+32], {%r1, %r1, %r1, %r1};
        st.shared.v4.u32 [%r12+48], {%r1, %r1, %r1, %r1};
        fence.proxy.async.shared::cta;
        bar.sync 0;
    """
    assert "run-swizzle-mismatch" not in rules(read_tile("128B", "64B", before=over))


def test_the_map_is_to_swizzle_a_tile_that_tma_brings(wording):
    memory = ts.Memory()
    a = memory.map(np.zeros((64, 64), np.float16), (64, 64))
    rows = """
        and.b32 %r11, %r1, 7;
        mad.lo.u32 %r11, %r11, 128, %r2;
        ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r12}, [%r11];
        ret;
    """
    (finding,) = finished(kernel(loaded(8192) + rows, MAP), 32, [a], memory=memory).findings
    assert (finding.rule, finding.values["cure_swizzle"]) == ("run-bank-conflict", "128B")
    wording("a conflict that a swizzle removes", finding.fix)


def test_the_tile_of_an_operand_is_not_to_be_laid_out_otherwise(wording):
    """Threads write columns of the tile that wgmma reads then: only they can change."""
    column = """
        mad.lo.u32 %r12, %r1, 128, %r2;
        st.shared.u32 [%r12], %r1;
        fence.proxy.async.shared::cta;
        bar.sync 0;
    """
    (finding,) = read_tile("128B", "128B", before=column).findings
    assert (finding.rule, finding.values["wavefronts"], finding.values["least"]) == ("run-bank-conflict", 128, 4)
    assert (finding.values["cure_swizzle"], finding.values["padding_bytes"]) == (None, None)
    wording("a conflict at the operand of a tensor core", finding.fix)


@pytest.mark.parametrize(
    "name",
    [
        "mm_tma_f16",
        "emitted_gemm_mn",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("ring", "gluon_specialised")),
    ],
)
def test_recorded_kernels_read_their_operands_as_they_were_written(name):
    """The others are run, and held free of errors, where they are compared with the card."""
    run, _ = run_again(name)
    assert not {"run-swizzle-mismatch", "run-packed-tile"} & set(rules(run))
    assert run.operands


def test_a_recorded_kernel_with_another_swizzle_in_its_maps_is_found():
    launch = recording("mm_tma_f16").launch
    memory = ts.Memory()
    addresses = [memory.place(array.copy()) for array in recording("mm_tma_f16").before]
    args = []
    for parameter in launch["params"]:
        if parameter["kind"] == "map":
            given = {name: value for name, value in parameter.items() if name not in {"kind", "array", "swizzle"}}
            args.append(ts.TensorMap(**given, swizzle="none", address=addresses[parameter["array"]]))
        else:
            args.append(parameter["value"])
    run = recorded_kernel("mm_tma_f16").run(
        launch["grid"], launch["block"], args, memory=memory, smem_bytes=launch["smem_bytes"], blocks=[(0, 0)]
    )
    assert {(one.rule, one.values["operand"]) for one in run.findings if one.severity == "error"} == {
        ("run-swizzle-mismatch", "A"),
        ("run-swizzle-mismatch", "B"),
        ("run-swizzle-mismatch", None),  # the map through which threads store C
    }
