"""Whole buffers swizzled: every mode, start, shape, size and path agrees with moving one byte at a time."""

import itertools
import re
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from tilescope.errors import RuleError
from tilescope.swizzle import SWIZZLE, Swizzle, permutation

ALL = pytest.mark.parametrize("mode", SWIZZLE.values(), ids=str)
OTHERS = [
    Swizzle.xor(*triple)
    for triple in [(5, 2, 5), (3, 0, 4), (1, 1, 6), (2, 3, 7), (3, 4, 9), (1, 4, -8), (3, 0, -4), (2, 2, -9), (0, 9, 5)]
]
ALL_AND_OTHERS = pytest.mark.parametrize("mode", [*SWIZZLE.values(), *OTHERS], ids=str)


def moved_one_by_one(mode, data, address):
    """Each logical byte put where the map says, in a loop."""
    stored = bytearray(len(data))
    for offset, byte in enumerate(data):
        stored[mode.apply(address + offset) - address] = byte
    return bytes(stored)


def random_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def assert_same_bytes(found, expected):
    found, expected = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (found, expected))
    wrong = np.flatnonzero(found != expected)
    assert wrong.size == 0, (
        f"{wrong.size} of {found.size} bytes differ; the first, {wrong[0]:#x} (line {wrong[0] // 128}, "
        f"chunk {wrong[0] % 128 // 16}), is {found[wrong[0]]}, not {expected[wrong[0]]}"
    )


@ALL_AND_OTHERS
def test_every_start_in_a_period_over_two_periods(mode):
    """Each byte arrives where the map says, every start at which the map closes gives a permutation, and back."""
    data = random_bytes(2 * mode.repeat_bytes)
    step = max(mode.block_bytes, mode.repeat_bytes // 64)
    for start in (*range(0, mode.repeat_bytes, step), mode.repeat_bytes, 7 * mode.repeat_bytes + mode.block_bytes):
        stored = mode.swizzle(data, start)
        assert_same_bytes(stored[mode.apply(start + np.arange(len(data))) - start], data)
        assert_same_bytes(mode.unswizzle(stored, start), data)


@ALL_AND_OTHERS
def test_single_blocks_at_every_start(mode):
    """The shortest buffers, which are all edge: none of them is a whole group."""
    for start in range(0, min(mode.repeat_bytes, 64 * mode.block_bytes), mode.block_bytes):
        data = random_bytes(mode.block_bytes, start).tobytes()
        assert mode.swizzle(data, start) == moved_one_by_one(mode, data, start)


@ALL
def test_bytes_are_moved_as_one_by_one(mode):
    for start, blocks in itertools.product((0, mode.block_bytes, 5 * mode.block_bytes), (1, 3, 9, 70)):
        data = random_bytes(blocks * mode.block_bytes).tobytes()
        assert mode.swizzle(data, start) == moved_one_by_one(mode, data, start)


@given(st.data())
def test_any_swizzle_start_and_length(data):
    bits = data.draw(st.integers(0, 4))
    distance = data.draw(st.integers(max(bits, 1), 8))
    mode = Swizzle.xor(bits, data.draw(st.integers(0, 6)), distance * data.draw(st.sampled_from([1, -1])))
    blocks = data.draw(st.integers(0, max(1, 4096 // mode.block_bytes)))
    start = data.draw(st.integers(0, 40)) * mode.block_bytes
    logical = random_bytes(blocks * mode.block_bytes).tobytes()
    stored = mode.swizzle(logical, start)
    assert stored == moved_one_by_one(mode, logical, start)
    assert mode.unswizzle(stored, start) == logical


def test_far_start_is_its_place_in_the_period():
    data = random_bytes(4096)
    mode = SWIZZLE["128B"]
    assert_same_bytes(mode.swizzle(data, 2**70 + 384), mode.swizzle(data, 384))
    assert_same_bytes(mode.swizzle(data, np.uint64(2**63 + 384)), mode.swizzle(data, 384))


@pytest.mark.parametrize("triple", [(1, 4, 27), (2, 4, 20), (1, 0, 31), (1, 4, -16), (1, 3, 14)])
def test_long_period_needs_no_more_memory_than_the_buffer(triple):
    mode = Swizzle.xor(*triple)
    size = max(mode.block_bytes, 4096)
    data = random_bytes(size)
    high = mode.repeat_bytes // 2 // mode.block_bytes * mode.block_bytes  # where the causing bit is set
    for start in (0, high):
        stored = mode.swizzle(data, start)
        assert_same_bytes(stored[mode.apply(start + np.arange(size)) - start], data)


@pytest.mark.parametrize(
    "dtype",
    [
        "uint8",
        "int8",
        "bool",
        "float16",
        "int32",
        "float64",
        "complex128",
        "longdouble",
        "M8[s]",
        "S16",
        "V32",
        ">i4",
        [("a", "f4"), ("b", "u1", 12)],
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.int4,
    ],
    ids=str,
)
def test_any_dtype_keeps_its_bytes_shape_and_dtype(dtype):
    dtype = np.dtype(dtype)
    array = random_bytes(64 * 16 * dtype.itemsize).view(dtype).reshape(4, 16, -1)
    stored = SWIZZLE["128B"].swizzle(array)
    assert (stored.dtype, stored.shape) == (array.dtype, array.shape)
    assert stored.tobytes() == SWIZZLE["128B"].swizzle(array.tobytes())


@given(st_numpy.array_shapes(max_dims=5, max_side=6))
def test_any_shape_is_kept(shape):
    array = random_bytes(int(np.prod(shape)) * 128).view("S128").reshape(shape)
    stored = SWIZZLE["128B"].swizzle(array)
    assert stored.shape == shape
    assert stored.tobytes() == SWIZZLE["128B"].swizzle(array.tobytes())


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_give_bytes(kind):
    data = random_bytes(1024).tobytes()
    stored = SWIZZLE["64B"].swizzle(kind(data))
    assert isinstance(stored, bytes)
    assert stored == SWIZZLE["64B"].swizzle(np.frombuffer(data, np.uint8)).tobytes()


def test_views_with_strides_are_read_in_their_logical_order():
    base = random_bytes(4 * 64 * 128).reshape(4, 64, 128)
    mode = SWIZZLE["128B"]
    for view in (base[:, ::2], base[::-1], base.transpose(1, 0, 2), base[..., ::-1], np.asfortranarray(base)):
        assert_same_bytes(mode.swizzle(view), mode.swizzle(view.copy(order="C")))
        assert mode.swizzle(view).shape == view.shape
    assert mode.swizzle(memoryview(base.tobytes())[::2]) == mode.swizzle(base.tobytes()[::2])
    assert_same_bytes(mode.swizzle(np.broadcast_to(base[0, 0], (8, 128))), mode.swizzle(np.tile(base[0, 0], (8, 1))))


def test_scalar_array_keeps_its_shape():
    scalar = np.array(b"x" * 128)
    assert SWIZZLE["128B"].swizzle(scalar).shape == ()


def test_list_is_taken_as_an_array():
    numbers = list(range(128))
    assert SWIZZLE["128B"].swizzle(numbers).tolist() == SWIZZLE["128B"].swizzle(np.array(numbers)).tolist()


@ALL_AND_OTHERS
@pytest.mark.parametrize("empty", [b"", np.zeros(0), np.zeros((3, 0, 2), np.float32), np.zeros(4, "V0"), []], ids=repr)
def test_empty_buffer_stays_empty(mode, empty):
    stored = mode.swizzle(empty)
    assert memoryview(stored).nbytes == 0
    assert len(stored) == len(empty)


@ALL
def test_input_is_left_alone(mode):
    data = random_bytes(2048)
    kept = data.copy()
    stored = mode.swizzle(data)
    assert_same_bytes(data, kept)
    assert not np.may_share_memory(stored, data)
    assert stored.flags.writeable


def test_read_only_input_is_fine():
    data = random_bytes(1024)
    data.flags.writeable = False
    assert SWIZZLE["128B"].swizzle(data).flags.writeable


@ALL
@pytest.mark.parametrize("dtype", ["u1", "f4", "V64"])
def test_result_is_written_to_out(mode, dtype):
    data = random_bytes(4096)
    out = np.zeros(4096, np.uint8).view(dtype)
    assert mode.swizzle(data, 1024, out=out) is out
    assert_same_bytes(out, mode.swizzle(data, 1024))
    assert mode.swizzle(data.tobytes(), out=out) is out


@ALL
@pytest.mark.parametrize("shift", [0, 16, 128, 1000, -16, -1000])
def test_out_may_overlap_the_input(mode, shift):
    memory = random_bytes(8192)
    data = memory[2048:4096]
    expected = mode.swizzle(data)
    mode.swizzle(data, out=memory[2048 + shift : 4096 + shift])
    assert_same_bytes(memory[2048 + shift : 4096 + shift], expected)


@ALL_AND_OTHERS
@pytest.mark.parametrize("offset", [1, 2, 4, 8])
def test_unaligned_memory_is_fine(mode, offset):
    size = 2 * mode.repeat_bytes
    source, target = random_bytes(size + 16), np.zeros(size + 16, np.uint8)
    mode.swizzle(source[offset : size + offset], out=target[offset : size + offset])
    assert_same_bytes(target[offset : size + offset], mode.swizzle(source[offset : size + offset].copy()))
    assert not target[:offset].any()
    assert not target[size + offset :].any()


read_only_array = np.zeros(1024, np.uint8)
read_only_array.flags.writeable = False


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (np.zeros(1023, np.uint8), "an array of 1023 bytes; "),
        (np.zeros(2048, np.uint8)[::2], "not C-contiguous"),
        (read_only_array, "read-only"),
        (np.zeros(128, object), "objects"),
        (bytearray(1024), "a bytearray"),
        ("out", "a str"),
        (3, "a int"),
    ],
)
def test_unfit_out_is_refused(out, says):
    with pytest.raises(RuleError, match="out-array") as caught:
        SWIZZLE["128B"].swizzle(bytes(1024), out=out)
    assert says in str(caught.value)
    assert "np.empty(1024, np.uint8)" in caught.value.violations[0].fix


@pytest.mark.thinned(4)
@ALL
def test_buffers_that_are_not_whole_blocks_are_refused_and_the_padded_ones_taken(mode):
    block = mode.block_bytes
    for start, length in itertools.product(range(0, 3 * block, 8), range(0, 3 * block, 8)):
        if start % block == 0 and length % block == 0:
            mode.swizzle(bytes(length), start)
            continue
        with pytest.raises(RuleError, match="swizzle-closure") as caught:
            mode.swizzle(bytes(length), start)
        padded_start = start // block * block
        padded = -(-(start + length) // block) * block - padded_start
        assert re.findall(r"0x\w+|\d+", caught.value.violations[0].fix) == [hex(padded_start), str(padded)]
        mode.swizzle(bytes(padded), padded_start)


def test_refusal_names_the_first_byte_that_would_leave(wording):
    def found(mode, length, start):
        with pytest.raises(RuleError) as caught:
            mode.swizzle(bytes(length), start)
        return caught.value.violations[0].found

    mode = SWIZZLE["128B"]
    wording("refusal names the first byte that would leave", found(mode, 16, 128))
    assert found(mode, 1024 + 48, 0) == "1072 bytes from address 0x0"  # line 8 is line 0 again: nothing moves there
    assert found(mode, 1152 + 48, 0).endswith("logical byte 0x4a0 would leave to 0x4b0")
    assert found(mode, 100, 2**70 + 128).endswith(f"logical byte {2**70 + 0xE0:#x} would leave to {2**70 + 0xF0:#x}")


@given(st.integers(0, 600), st.integers(0, 600), st.sampled_from([*SWIZZLE.values(), *OTHERS]))
def test_named_byte_is_the_first_that_leaves(start, length, mode):
    leaving = [each for each in range(start, start + length) if not start <= mode.apply(each) < start + length]
    try:
        mode.swizzle(bytes(length), start)
    except RuleError as error:
        named = f"logical byte {leaving[0]:#x} would leave to {mode.apply(leaving[0]):#x}" if leaving else "bytes from"
        if named not in error.violations[0].found:
            pytest.fail(f"{error} does not name {named}")
    else:
        assert not leaving


def test_all_mistakes_are_named_at_once():
    with pytest.raises(RuleError) as caught:
        SWIZZLE["128B"].swizzle(bytes(100), 8, out=bytearray(3), threads=0)
    assert [each.rule for each in caught.value.violations] == ["out-array", "argument-range", "swizzle-closure"]
    with pytest.raises(RuleError) as caught:
        SWIZZLE["128B"].swizzle(bytes(100), "8", threads=1.5)
    assert [each.rule for each in caught.value.violations] == ["argument-type", "argument-type"]


@pytest.mark.parametrize(
    "strange",
    [None, "text", object(), [[1], [2, 3]], {}, np.array([None]), np.array(["text"]), [2**80], {1, 2}, int],
    ids=lambda each: type(each).__name__,
)
def test_what_is_no_buffer_is_refused(strange):
    with pytest.raises(RuleError, match="bytes, or an array"):
        SWIZZLE["128B"].swizzle(strange)


JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=300)
    | st.lists(st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=3), max_size=5)
    | st_numpy.arrays(st_numpy.scalar_dtypes(), st_numpy.array_shapes(min_dims=0, max_side=5))
)


@given(st.sampled_from(["swizzle", "unswizzle"]), st.sampled_from([*SWIZZLE.values(), *OTHERS]), JUNK, JUNK, JUNK, JUNK)
def test_anything_is_swizzled_or_a_rule_error(method, mode, data, address, out, threads):
    for arguments in ({}, {"address": address}, {"address": address, "out": out, "threads": threads}):
        try:
            getattr(mode, method)(data, **arguments)
        except RuleError as error:
            if not error.violations:
                pytest.fail("a RuleError without violations")


@pytest.mark.thinned(11)
@ALL
@pytest.mark.parametrize("threads", [1, 2, 3, 7, np.int64(2), 10**9])
def test_threads_do_not_change_the_bytes(mode, threads):
    data = random_bytes((5 << 20) + 4 * 1024 + 128)
    start = 3 * mode.block_bytes
    stored = mode.swizzle(data, start, threads=threads)
    assert_same_bytes(stored[mode.apply(start + np.arange(len(data))) - start], data)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_byte_is_in_the_share_of_one_thread(threads):
    unit, shares = 1024, []
    permutation.in_shares(lambda *share: shares.append(share), 3 * unit, 8195 * unit, unit, threads=threads)
    assert len(shares) == threads
    begins, ends = zip(*sorted(shares), strict=True)
    assert begins == (3 * unit, *ends[:-1])
    assert ends[-1] == 8195 * unit
    assert all(end % unit == 0 for end in ends)


@pytest.mark.parametrize("threads", [0, -1, 1.0, "2", None, True, [2]])
def test_strange_number_of_threads_is_refused(threads):
    with pytest.raises(RuleError, match=r"argument-(range|type): threads = "):
        SWIZZLE["128B"].swizzle(bytes(1024), threads=threads)


@pytest.fixture
def streamed(monkeypatch):
    """Buffers of any size go through the compiled loop; the fixture counts how often."""
    from tilescope.swizzle import line_streaming

    calls = []

    def stream(*arguments):
        calls.append(arguments)
        line_streaming.stream(*arguments)

    counting = SimpleNamespace(**{**vars(line_streaming), "stream": stream})
    monkeypatch.setattr(permutation, "STREAMED_BYTES", 0)
    monkeypatch.setattr(permutation, "compiler", lambda: counting)
    return calls


STREAMABLE = [
    *(row for row in SWIZZLE.values() if row.bits and not row.flip_bytes),
    *(Swizzle.xor(*triple) for triple in [(2, 4, -3), (1, 5, -9), (3, 4, 9), (2, 6, 4)]),
]


@pytest.mark.parametrize("mode", STREAMABLE, ids=str)
@pytest.mark.parametrize("offset", [0, 16, 32, 48, 64])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_loop_stores_the_same_bytes(streamed, monkeypatch, mode, offset, threads):
    """Wherever the target lies to a line of the cache, and with edges on both sides."""
    size = (9 << 18) // mode.block_bytes * mode.block_bytes + 3 * mode.block_bytes
    source, memory = random_bytes(size), np.zeros(size + 256, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    start = 3 * mode.block_bytes
    mode.swizzle(source, start, out=memory[begin : begin + size], threads=threads)
    assert len(streamed) == threads
    monkeypatch.setattr(permutation, "compiler", lambda: None)
    assert_same_bytes(memory[begin : begin + size], mode.swizzle(source, start))
    assert not memory[:begin].any()
    assert not memory[begin + size :].any()


@pytest.mark.parametrize("mode", [SWIZZLE["128B_ATOM_32B_FLIP_8B"], *OTHERS[:4], Swizzle.xor(1, 4, 27)], ids=str)
def test_compiled_loop_leaves_small_pieces_and_long_periods_to_numpy(streamed, mode):
    data = random_bytes(1 << 19)
    stored = mode.swizzle(data)
    assert_same_bytes(stored[mode.apply(np.arange(len(data)))], data)
    assert streamed == []


def test_compiled_loop_leaves_unaligned_targets_to_numpy(streamed):
    data, memory = random_bytes(1 << 19), np.zeros((1 << 19) + 16, np.uint8)
    SWIZZLE["128B"].swizzle(data, out=memory[8:-8])
    assert_same_bytes(memory[8:-8], SWIZZLE["128B"].swizzle(data, out=np.empty_like(data)))
    assert len(streamed) == 1  # the second alone


def test_compiled_loop_reads_unaligned_sources(streamed):
    memory = random_bytes((1 << 19) + 16)
    for offset in (0, 1, 8):
        data = memory[offset : offset + (1 << 19)]
        assert_same_bytes(SWIZZLE["64B"].swizzle(data)[SWIZZLE["64B"].apply(np.arange(1 << 19))], data)
    assert len(streamed) == 3


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_large_buffers_are_the_same_with_and_without_numba(monkeypatch, threads):
    data = random_bytes(permutation.STREAMED_BYTES + 1024)
    for mode in SWIZZLE.values():
        stored = mode.swizzle(data, threads=threads)
        with monkeypatch.context() as without_numba:
            without_numba.setattr(permutation, "compiler", lambda: None)
            assert_same_bytes(stored, mode.swizzle(data))
        assert_same_bytes(mode.unswizzle(stored, out=stored, threads=threads), data)


def test_missing_numba_means_numpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "tilescope.swizzle.line_streaming", None)
    monkeypatch.delattr("tilescope.swizzle.line_streaming", raising=False)
    monkeypatch.setattr(permutation, "STREAMED_BYTES", 0)
    permutation.compiler.cache_clear()
    try:
        assert permutation.compiler() is None
        assert SWIZZLE["128B"].swizzle(bytes(1 << 19)) == bytes(1 << 19)
    finally:
        permutation.compiler.cache_clear()


@pytest.mark.parametrize("threads", [1, 2])
def test_without_a_swizzle_every_byte_is_copied_whatever_the_size(threads):
    for size in (1, 2, 3, 17, (2 << 20) + 1):
        data = random_bytes(size)
        assert_same_bytes(SWIZZLE["none"].swizzle(data, threads=threads), data)


@pytest.fixture(scope="module")
def compiled_loop_text():
    """The compiled loop as LLVM's instructions."""
    numba = pytest.importorskip("numba")
    from tilescope.swizzle import line_streaming

    compiled = numba.njit(line_streaming.stream.signatures)(line_streaming.stream.py_func)  # a cached one shows no text
    (text,) = compiled.inspect_llvm().values()
    return text


def test_the_compiled_loop_waits_for_its_stores(compiled_loop_text):
    """Non-temporal stores are not ordered by themselves: a reader on another core needs the fence behind them."""
    assert "!nontemporal" in compiled_loop_text
    assert "fence seq_cst" in compiled_loop_text


def test_the_compiled_loop_assumes_no_alignment_of_the_source_and_lines_of_the_target(compiled_loop_text):
    loads = re.findall(r"load <2 x i64>, .* align (\d+)", compiled_loop_text)
    stores = re.findall(r"store <8 x i64> .* align (\d+), !nontemporal", compiled_loop_text)
    assert set(loads) == {"1"}
    assert set(stores) == {"64"}
