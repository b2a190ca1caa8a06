"""The state of a run at any step: every register, byte, mbarrier and pending piece of work of a naive replay."""

from dataclasses import replace

import numpy as np
import pytest
from pair_kernels import run as run_pair
from pair_kernels import variant
from pair_table import TABLE
from tensor_memory_text import SMEM, SMEM_BYTES, Operand, text

import tilescope as ts
from tilescope.machine.decoding.access_decoder import decode_accesses
from tilescope.machine.schedule import Schedule
from tilescope.sync.events import Store

KERNELS = {pairs.name: pairs for pairs in TABLE}
RESERVED = 0x400


class NaiveRecorder:
    """Copies all that a cluster holds before every instruction: copy number n is the state after step n."""

    def __init__(self):
        self.copies = []
        self.last = None

    def schedule(self, cluster):
        recorder = self

        class Copying(Schedule):
            def _turn(self, front):
                recorder.keep(self.cluster, front.pc, front.lanes)
                return Schedule._turn(self, front)

        schedule = Copying(cluster)
        self.last = schedule
        cluster.bus.subscribe({Store: lambda _: None})
        cluster.accesses = cluster.program.fact(decode_accesses)
        return schedule

    def keep(self, cluster, pc, lanes):
        self.copies.append(
            (
                cluster,
                [register.copy() for register in cluster.registers],
                cluster.shared.copy(),
                dict(cluster.mbarriers),
                [work.pc for work in cluster.works],
                (pc, cluster.lanes(lanes)),
                cluster.local.copy(),
                cluster.tensor_memory.cells.copy(),
            )
        )

    def program(self, program):
        def wrap(pc, step):
            def take(cluster, at):
                self.keep(cluster, pc, at)
                step(cluster, at)

            return take

        return replace(
            program, steps=[None if step is None else wrap(pc, step) for pc, step in enumerate(program.steps)]
        )


def naive_copies(run):
    """The naive states of a run, and one after its last step."""
    naive = NaiveRecorder()
    run._replay.run_again(naive.program(run._replay.program), naive)
    cluster = naive.last.cluster
    naive.keep(cluster, 0, cluster.shape.all_lanes)
    return naive.copies


def content(smem):
    """The bytes of a picture, None where nobody wrote."""
    found = [None] * smem.bytes
    for stretch in smem.stretches:
        if stretch.content:
            found[stretch.address : stretch.address + stretch.bytes] = bytes.fromhex(stretch.content)
    return found


def compare(run, steps=40):
    """Compare the states of some steps with the naive ones, for every block of the cluster that runs."""
    copies = naive_copies(run)
    assert run.state(0).steps == len(copies) - 1
    chosen = {0, 1, len(copies) - 1, *np.linspace(0, len(copies) - 1, steps).astype(int).tolist()}
    for step in sorted(chosen):
        cluster, registers, shared, barriers, works, following, local, tmem = copies[step]
        shape = cluster.shape
        for rank in range(shape.blocks):
            thread = (step * 7) % shape.block_threads
            state = run.state(step, block=shape.block_index(rank), thread=thread)
            if state.smem is None:
                continue  # another cluster runs
            where = (step, rank, thread)
            lane = rank * shape.block_lanes + thread
            compare_registers(run, state, registers, lane, where)
            compare_local(state, local[lane * cluster.local_stride :][: cluster.program.local_bytes], where)
            compare_tmem(run, state, tmem[rank], rank, where)
            own = shared[rank * shape.shared_stride :][: shape.shared_end]
            for address, byte in enumerate(content(state.smem)):
                assert byte == (own[address] if byte is not None else None), (*where, hex(address))
                assert byte is not None or address < RESERVED or own[address] == 0, (*where, hex(address))
            told = {one.address: (one.parity, one.pending, one.tx_bytes) for one in state.mbarriers}
            held = {a & 0xFFFFFF: (b.phase, b.pending, b.tx_bytes) for a, b in barriers.items() if a >> 24 == rank}
            assert told == held, where
            if shape.blocks == 1:
                assert len(state.pending) == len(works), where
            if step < len(copies) - 1 and copies[step + 1][0] is cluster:
                compare_place(run, state, following, rank, shape, where)


def compare_registers(run, state, registers, lane, where):
    """Registers that were written hold their bits; the others of the text still hold 0."""
    program = run._replay.program
    told = {(one.name, one.type): one.bits for one in state.registers}
    for (function, own), number in program.register_numbers.items():
        if function not in program.module.functions or own < 0:
            continue
        register = program.module.functions[function].registers[own]
        bits = int.from_bytes(registers[number][lane].tobytes(), "little")
        if list(program.module.functions[function].registers).count(register) == 1:
            assert told.get((register.name, register.type), 0) == bits, (*where, register.name)


def compare_local(state, held, where):
    """Bytes of local memory that the thread wrote hold what was stored; the others still hold 0."""
    told = bytearray(len(held))
    for stored in sorted(state.local, key=lambda stored: stored.step):
        content = bytes.fromhex(stored.content)
        told[stored.address : stored.address + len(content)] = content
    assert told == held.tobytes(), where


def compare_tmem(run, state, held, rank, where):
    """Every cell of tensor memory is as the recording has it, and writers say which."""
    if state.tmem is None:
        assert not held.any(), where
        return
    log = next(log for log in run._replay._recording.recorder.logs if log.cluster.shape.blocks > rank)
    contents = log.tmem.at(rank, state.step)
    assert (contents.cells == held).all(), where
    assert sum(writer.cells for writer in state.tmem.writers) == (contents.writes >= 0).sum()


def compare_place(run, state, following, rank, shape, where):
    """The threads that execute the next instruction stand at it."""
    pc, lanes = following
    instruction = run._replay.program.instructions[pc]
    own = [int(lane) % shape.block_lanes for lane in lanes if lane // shape.block_lanes == rank]
    for thread in [thread for thread in own if thread < shape.block_threads][:1]:
        places = [place for place in state.warps if thread in thread_numbers(place.threads)]
        assert len(places) == 1
        if places[0].doing == "ready":
            assert places[0].ptx_line == (None if instruction is None else instruction.line), where


def thread_numbers(text):
    """The threads of '0-3, 8'."""
    numbers = set()
    for part in text.split(", "):
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


@pytest.mark.thinned(16)
@pytest.mark.parametrize("name", KERNELS)
def test_every_state_of_a_right_kernel_is_that_of_a_naive_replay(name):
    result, _ = run_pair(KERNELS[name], ts.Kernel(variant(KERNELS[name].text)), None)
    compare(result, 12)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].mistakes][::4])
def test_every_state_of_a_wrong_kernel_is_that_of_a_naive_replay(name):
    mistake = next(iter(KERNELS[name].mistakes))
    result, _ = run_pair(KERNELS[name], ts.Kernel(variant(KERNELS[name].text, mistake)), 1)
    compare(result, 8)


SPILL = """.version 8.0 .target sm_90 .address_size 64
.entry spill() {
    .local .align 8 .b8 depot[24];
    .reg .b32 %r<4>; .reg .b64 %rd<3>; .reg .pred %p;
    mov.u32 %r1, %tid.x;
    st.local.u32 [depot+4], %r1;
    mov.u64 %rd1, depot;
    cvta.local.u64 %rd2, %rd1;
    setp.gt.u32 %p, %r1, 7;
    @%p st.u8 [%rd2+6], 200;
    st.local.v2.u32 [depot+8], {%r1, 9};
    st.local.u32 [depot+4], %r1;
    ret;
}"""


def test_local_memory_is_that_of_a_naive_replay():
    run = ts.Kernel(SPILL).run(grid=1, block=40)
    compare(run, 12)
    state = run.state(run.state(0).steps, thread=9)
    told = [(one.address, one.content, one.ptx_line) for one in state.local]
    assert told == [(4, "09000000", 12), (6, "c8", 10), (8, "0900000009000000", 11)]


def multiplied(seed=None):
    """A run that stores to tensor memory, multiplies into it and loads it."""
    word = ts.InstructionDescriptor("f16", 128, 32, a_type="f16")
    a = Operand(np.ones((128, 16), np.float16).view(np.uint16), SMEM, swizzle="32B")
    b = Operand(np.ones((32, 16), np.float16).view(np.uint16), SMEM + 0x8000, swizzle="32B")
    mma = f"mov.b32 %r8, {word.encode():#x}; tcgen05.mma.cta_group::1.kind::f16 [%r1], %a0, %a1, %r8, %p7;"
    image = np.zeros(SMEM_BYTES, np.uint8)
    a.write(image)
    b.write(image)
    arrays = [image, np.full((128, 64), 5, np.uint32), np.zeros((128, 64), np.uint32)]
    kernel = ts.Kernel(text(mma, 64, blocks=1, arguments=2, target="sm_100a"))
    return kernel.run(1, 128, [*arrays, a.word, b.word], smem_bytes=SMEM + SMEM_BYTES, advice="none", seed=seed)


@pytest.mark.slow
@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [None, 1])
def test_tensor_memory_is_that_of_a_naive_replay(seed):
    compare(multiplied(seed), 60)


def test_tensor_memory_names_allocations_and_writers():
    run = multiplied()
    states = [run.state(step) for step in range(0, run.state(0).steps + 1, 2)]
    told = [state.tmem for state in states]
    assert told[0] is None
    assert ((0, 64),) in [tmem.allocations for tmem in told if tmem is not None]
    assert told[-1].allocations == ()
    store, product = told[-1].writers
    assert ("tcgen05.st" in store.ptx_text, store.lanes, store.columns, store.first) == (True, "0-127", "32-63", 5)
    assert (product.columns, product.cells, product.first) == ("0-31", 128 * 32, 0x41800000)  # 16.0 in f32


def shifted():
    """A run of the kernel whose barrier is missing: TMA, an mbarrier, stores, loads."""
    from tilescope.questions.run_page import RUN_FORM

    memory = ts.Memory()
    source = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    out = np.zeros((8, 32), np.float32)
    kernel = ts.Kernel(RUN_FORM.presets["ptx"])
    return kernel.run(grid=1, block=256, args=[memory.map(source, (32, 8)), out], memory=memory)


def test_a_state_names_lines_registers_barriers_copies_and_writers():
    run = shifted()
    steps = [run.state(step) for step in range(run.steps + 1)]
    issued = next(state for state in steps if state.ran and state.ran.ptx_text.startswith("cp.async.bulk"))
    assert [(one.unit, one.bytes, one.coords, one.barrier) for one in issued.pending] == [("load", 1024, (0, 8), 0xC00)]
    assert [(one.address, one.pending, one.tx_bytes) for one in issued.mbarriers] == [(0xC00, 0, 1024)]
    assert issued.smem.stretches[0].is_under_way
    assert issued.last_writer(0x400) is None
    last = steps[-1]
    assert last.pending == ()
    assert last.last_writer(0x400).ptx_text.startswith("cp.async.bulk")
    writer = last.last_writer(0x800 + 4 * 37)
    assert (writer.ptx_text, writer.thread, writer.source_line) == ("st.shared.f32 [%r6], %f2", 37, "shift.cu:10")
    address = run.arrays[1].address
    assert last.last_writer(address + 4 * 200).thread == 200
    assert steps[-2].last_writer(address).ptx_text.startswith("st.global")
    assert steps[-3].last_writer(address) is None
    thread = run.state(run.steps, thread=37)
    values = {register.name: register.value for register in thread.registers}
    assert values["%r1"] == "37"
    assert values["%f1"] == str(8.0 * 32 + 37)
    assert {place.doing for place in last.warps} == {"exited"}


def test_states_do_not_depend_on_the_order_in_which_they_are_asked_for():
    run = shifted()
    forwards = [run.state(step) for step in range(run.steps + 1)]
    backwards = [run.state(step) for step in range(run.steps, -1, -1)]
    assert forwards == backwards[::-1]


def test_the_arrays_of_a_run_are_as_the_run_left_them():
    run = shifted()
    before = run.arrays[1].array.copy()
    run.arrays[0].array[:] = -1  # the replay has a copy of what the kernel began with
    state = run.state(run.steps, thread=37)
    assert {one.name: one.value for one in state.registers}["%f1"] == str(8.0 * 32 + 37)
    np.testing.assert_array_equal(run.arrays[1].array, before)


def test_threads_that_wait_say_what_they_wait_for():
    kernel = ts.Kernel(
        """.version 8.0 .target sm_90 .address_size 64
        .entry halves() {
            .reg .pred %p; .reg .u32 %r<3>;
            mov.u32 %r1, %tid.x;
            setp.lt.u32 %p, %r1, 32;
            @%p bra $low;
            add.u32 %r2, %r1, 1;
            add.u32 %r2, %r2, 1;
        $low:
            bar.sync 0;
            ret;
        }"""
    )
    run = kernel.run(grid=1, block=64)
    states = [run.state(step) for step in range(run.steps + 1)]
    assert states[-1].is_whole
    diverged = {tuple(place.ptx_line for place in state.warps) for state in states}
    assert (10, 7) in diverged  # warp 0 is at bar.sync, warp 1 is in the branch
    run = ts.Kernel(kernel.ptx.replace("bar.sync 0;", "bar.sync 0, 96;")).run(grid=1, block=64, advice="none")
    assert [(place.doing, place.waits_for, place.ptx_line) for place in run.state(run.steps).warps] == [
        ("waiting", "barrier 0", 10),
        ("waiting", "barrier 0", 10),
    ]


@pytest.mark.parametrize("step", [-1, 38, 10**9])
def test_a_step_out_of_range_is_refused_with_the_range(step):
    run = shifted()
    with pytest.raises(ts.RuleError, match="steps 0 to 37 were recorded"):
        run.state(step)


def test_a_thread_and_a_block_out_of_range_are_refused_with_the_range():
    run = shifted()
    with pytest.raises(ts.RuleError, match="threads 0 to 255"):
        run.state(3, thread=256)
    with pytest.raises(ts.RuleError, match="grid of 1 x 1 x 1"):
        run.state(3, block=(1,))


def test_a_run_without_findings_says_why_it_has_no_states():
    kernel = ts.Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { ret; }")
    with pytest.raises(ts.RuleError, match="findings=True"):
        kernel.run(grid=1, block=32, findings=False).state(0)


def test_recording_tells_its_progress_and_ends_at_its_limit(monkeypatch):
    from tilescope.machine.stepping import step_recorder as recorder

    monkeypatch.setattr(recorder, "MAX_RECORDED_SECONDS", 0.0)
    kernel = ts.Kernel(
        """.version 8.0 .target sm_90 .address_size 64
        .entry rounds() {
            .reg .pred %p; .reg .u32 %r1;
            mov.u32 %r1, 0;
        $again:
            add.u32 %r1, %r1, 1;
            setp.lt.u32 %p, %r1, 3000;
            @%p bra $again;
            ret;
        }"""
    )
    run = kernel.run(grid=1, block=32)
    told = []
    state = run.state(5, progress=told.append)
    assert told
    assert told[0] == 1024
    assert not state.is_whole
    assert state.steps < run.steps
    with pytest.raises(ts.RuleError, match="the recording ended before the run did"):
        run.state(run.steps)


def test_all_blocks_of_a_grid_are_recorded_one_after_another():
    kernel = ts.Kernel(
        """.version 8.0 .target sm_90 .address_size 64
        .entry own() {
            .reg .u32 %r<3>;
            mov.u32 %r1, %ctaid.x;
            add.u32 %r2, %r1, 10;
            ret;
        }"""
    )
    run = kernel.run(grid=3, block=32)
    assert run.state(0).steps == 9
    last = [run.state(9, block=(block,)) for block in range(3)]
    assert [{one.name: one.value for one in state.registers}["%r2"] for state in last] == ["10", "11", "12"]
    assert run.state(4).block == (1, 0, 0)
    assert {place.doing for place in run.state(3, block=(2,)).warps} == {"not started"}
