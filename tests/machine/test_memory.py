"""Global memory: arrays at addresses, and accesses that leave them."""

import numpy as np
import pytest
from ptx_texts import kernel

from tilescope.errors import RuleError
from tilescope.machine.memory import GlobalMemory, Memory


def test_addresses_are_multiples_of_256_and_arrays_are_apart():
    memory = Memory()
    first = memory.place(np.zeros(1000, np.uint8))
    second = memory.place(np.zeros(3, np.float64))
    assert first % 256 == 0
    assert second % 256 == 0
    assert second >= first + 1000 + 4096


def test_an_array_keeps_its_address_and_its_parts_lie_inside_it():
    memory = Memory()
    matrix = np.zeros((8, 16), np.float32)
    address = memory.place(matrix)
    assert memory.place(matrix) == address
    assert memory.place(matrix[3]) == address + 3 * 64
    assert memory.place(matrix.copy()) != address


def test_an_array_of_objects_is_refused(wording):
    with pytest.raises(RuleError) as refused:
        Memory().place(np.zeros(3, object))
    assert [(violation.rule, violation.argument) for violation in refused.value.violations] == [("host-array", "array")]
    wording("an array of objects", refused.value)


def test_an_array_whose_bytes_do_not_follow_each_other_is_refused():
    with pytest.raises(RuleError, match="ascontiguousarray"):
        Memory().place(np.zeros((8, 16), np.float32)[:, ::2])


def test_what_is_no_array_is_refused():
    with pytest.raises(RuleError, match="a numpy array"):
        Memory().place("text")


def test_a_map_lies_on_its_array():
    memory = Memory()
    matrix = np.zeros((256, 192), np.float16)
    tensor_map = memory.map(matrix, (64, 128), swizzle="128B")
    assert tensor_map.address == memory.place(matrix)
    assert tensor_map.dims == (192, 256)
    assert tensor_map.box == (64, 128)
    assert tensor_map.swizzle.name == "128B"


COPY_WORD = """
    ld.param.u64 %d1, [from];
    ld.param.u64 %d2, [to];
    ld.global.u32 %r1, [%d1];
    st.global.u32 [%d2], %r1;
"""


def copied(source, target, memory=None):
    return kernel(COPY_WORD, ".param .u64 from, .param .u64 to").run(1, 1, [source, target], memory=memory)


def test_a_store_is_seen_in_the_array():
    target = np.zeros(4, np.uint32)
    assert copied(np.array([77], np.uint32), target).outcome == "finished"
    assert target.tolist() == [77, 0, 0, 0]


@pytest.mark.parametrize("offset", [-4, 16, 1 << 20])
def test_an_access_outside_every_array_is_fault_700(offset):
    memory = Memory()
    source = np.zeros(4, np.uint32)
    target = np.zeros(4, np.uint32)
    run = copied(memory.place(source) + offset, target, memory)
    assert run.outcome == "fault"
    assert run.findings[0].values["code"] == 700


def test_a_word_at_an_odd_address_is_fault_716():
    memory = Memory()
    source = np.zeros(4, np.uint32)
    run = copied(memory.place(source) + 2, np.zeros(4, np.uint32), memory)
    assert run.outcome == "fault"
    assert run.findings[0].values["code"] == 716


def test_a_read_only_array_can_be_read_and_not_written():
    constant = np.arange(4, dtype=np.uint32)
    constant.flags.writeable = False
    target = np.zeros(4, np.uint32)
    assert copied(constant, target).outcome == "finished"
    assert copied(target, constant).outcome == "fault"


def test_threads_may_read_several_arrays_in_one_instruction():
    memory = Memory()
    arrays = [np.full(4, number, np.uint32) for number in range(4)]
    table = np.array([memory.place(array) for array in arrays], np.uint64)
    out = np.zeros(4, np.uint32)
    gather = kernel(
        """
        ld.param.u64 %d1, [table];
        ld.param.u64 %d2, [out];
        mov.u32 %r1, %tid.x;
        mul.wide.u32 %d3, %r1, 8;
        add.s64 %d4, %d1, %d3;
        ld.global.u64 %d5, [%d4];
        ld.global.u32 %r2, [%d5+8];
        mul.wide.u32 %d3, %r1, 4;
        add.s64 %d4, %d2, %d3;
        st.global.u32 [%d4], %r2;
        """,
        ".param .u64 table, .param .u64 out",
    )
    assert gather.run(1, 4, [table, out], memory=memory).outcome == "finished"
    assert out.tolist() == [0, 1, 2, 3]


def test_generic_addresses_reach_shared_local_and_global_memory():
    spaces = kernel(
        """
        .shared .align 4 .b32 word;
        .local .align 4 .b8 depot[16];
        mov.u32 %r9, %tid.x;
        mov.u64 %d1, word;
        cvta.shared.u64 %d2, %d1;
        add.u32 %r1, %r9, 100;
        setp.eq.u32 %p1, %r9, 2;
        @%p1 st.u32 [%d2], %r1;
        mov.u64 %d3, depot;
        cvta.local.u64 %d4, %d3;
        st.u32 [%d4+4], %r9;
        bar.sync 0;
        ld.u32 %r2, [%d2];
        ld.u32 %r3, [%d4+4];
        ld.param.u64 %d5, [out];
        mul.wide.u32 %d6, %r9, 8;
        add.s64 %d6, %d5, %d6;
        st.v2.u32 [%d6], {%r2, %r3};
        """
    )
    out = np.zeros((4, 2), np.uint32)
    assert spaces.run(1, 4, [out]).outcome == "finished"
    assert out.tolist() == [[102, 0], [102, 1], [102, 2], [102, 3]]


def test_an_address_in_a_variable_is_an_operand():
    """name+offset of shared, local and global variables: their own addresses by mov, generic ones by cvta."""
    offsets = kernel(
        """
        .shared .align 16 .b8 tile[64];
        .local .align 4 .b8 depot[16];
        mov.u32 %r1, tile+8;
        mov.u32 %r2, tile;
        sub.u32 %r3, %r1, %r2;
        mov.u64 %d1, table+12;
        ld.global.u32 %r4, [%d1-4];
        cvta.shared.u64 %d2, tile+16;
        st.u32 [%d2], 77;
        ld.shared.u32 %r5, [tile+16];
        mov.u64 %d3, depot+4;
        st.local.u32 [%d3+4], 55;
        ld.local.u32 %r6, [depot+8];
        ld.param.u64 %d5, [out];
        st.global.v4.u32 [%d5], {%r3, %r4, %r5, %r6};
        """,
        before=".global .align 4 .u32 table[4] = {10, 20, 30, 40};",
    )
    out = np.zeros(4, np.uint32)
    assert offsets.run(1, 1, [out]).outcome == "finished"
    assert out.tolist() == [8, 30, 77, 55]


def test_tables_of_the_module_are_there_and_new_for_every_run():
    counted = kernel(
        """
        ld.const.u32 %r1, [table+8];
        ld.global.u32 %r2, [counter];
        add.u32 %r3, %r1, %r2;
        st.global.u32 [counter], %r3;
        ld.param.u64 %d1, [out];
        st.global.u32 [%d1], %r3;
        """,
        before=".const .align 4 .u32 table[4] = {1, 2, 30, 4}; .global .align 4 .u32 counter = 12;",
    )
    out = np.zeros(1, np.uint32)
    for _ in range(2):
        counted.run(1, 1, [out])
        assert out[0] == 42


@pytest.mark.parametrize("skipped_bytes", [0, 4, 8])  # where the array begins, from a multiple of 256 on
@pytest.mark.parametrize(
    ("dtype", "count"), [(np.uint8, 2), (np.uint16, 4), (np.uint32, 1), (np.uint32, 4), (np.uint64, 4)]
)
def test_words_are_those_that_bytes_make_one_by_one(dtype, count, skipped_bytes):
    """Vectors of words, wherever they lie: their bytes are the oracle; of several lanes at one place the last one wins."""
    rng = np.random.default_rng(5)
    content = rng.integers(0, 256, 4096 + skipped_bytes, np.uint8)[skipped_bytes:]
    start = 1 << 20 | skipped_bytes
    memory = GlobalMemory()
    assert memory.place_at(start, content)
    item_bytes = np.dtype(dtype).itemsize
    size_bytes = item_bytes * count
    for step_bytes in (item_bytes, size_bytes):
        places = rng.integers(0, (4096 - size_bytes) // step_bytes, 64) * step_bytes
        for addresses in (start + places, start + np.unique(places)):
            rows = (addresses - start)[:, None] + np.arange(size_bytes)
            shape = (len(addresses), count) if count > 1 else (len(addresses),)
            assert memory.load(addresses, np.dtype(dtype), count).tobytes() == content[rows].tobytes()
            values = rng.integers(0, 256, (len(addresses), size_bytes), np.uint8)
            expected = content.copy()
            for row, value in zip(rows, values, strict=True):
                expected[row] = value
            before = content[rows].tobytes()
            exchanged = memory.exchange(addresses, values.view(dtype).reshape(shape))
            assert exchanged.before.tobytes() == before
            if step_bytes == size_bytes:  # vectors that overlap in part are refused before
                np.testing.assert_array_equal(content, expected)
                assert exchanged.after.tobytes() == expected[rows].tobytes()
