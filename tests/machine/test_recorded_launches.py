"""Launches that were recorded on a card leave the same bytes here."""

from pathlib import Path

import numpy as np
import pytest

import tilescope as ts
from tilescope.machine.launch.described_launch import run_launch
from tilescope.machine.launch.launch_archive import read_archive, write_archive
from tilescope.machine.launch.launch_description import BytesArgument, LaunchDescription, MemoryDescription
from tilescope.machine.launch.launch_file import format_launch, read_launch
from tilescope.machine.memory import contents_of

RECORDINGS = Path(__file__).parent.parent / "golden" / "recordings"


def replayed(name):
    archive = read_archive((RECORDINGS / f"{name}.launch").read_bytes(), name)
    kernel = ts.Kernel((RECORDINGS / f"{name}.ptx").read_text(), archive.launch.entry)
    return run_launch(kernel, archive.launch, archive.read_array)


@pytest.mark.parametrize("name", ["matmul_tma", pytest.param("gemm_kernel", marks=pytest.mark.slow)])
def test_a_recorded_launch_leaves_the_cards_bytes(name):
    done = replayed(name)
    assert (done.run.outcome, done.run.exact) == ("finished", True)
    assert not [finding for finding in done.run.findings if finding.severity == "error"]
    assert [one.differing_bytes for one in done.memory] == [0] * len(done.memory)
    assert sum(one.changed_bytes for one in done.memory) > 30_000


ADD_ONE = """
.version 8.0 .target sm_90 .address_size 64
.visible .entry add_one(.param .u64 place) {
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [place];
    ld.global.u64 %rd2, [%rd1];
    ld.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""
POINTER, NUMBER = 0x7F5D_C5E0_0000, 0x7F5D_C600_0000


def chained(after):
    """A pointer in memory to a number, recorded at addresses of a card; the number was 41."""
    arrays = {
        "memory0.npy": np.array([NUMBER], np.uint64).view(np.uint8),
        "memory1.npy": np.array([41], np.uint32).view(np.uint8),
        "after1.npy": np.array([after], np.uint32).view(np.uint8),
    }
    launch = LaunchDescription(
        entry="add_one",
        grid=(1,),
        block=(1,),
        arguments=(BytesArgument(content=POINTER.to_bytes(8, "little").hex()),),
        memory=(
            MemoryDescription(address=POINTER, file="memory0.npy", after="memory0.npy"),
            MemoryDescription(address=NUMBER, file="memory1.npy", after="after1.npy", missing_bytes=12),
        ),
    )
    return launch, arrays


def test_pointers_inside_recorded_memory_are_followed():
    launch, arrays = chained(after=42)
    done = run_launch(ts.Kernel(ADD_ONE), launch, arrays.__getitem__)
    assert [(one.changed_bytes, one.differing_bytes) for one in done.memory] == [(0, 0), (1, 0)]
    assert arrays["memory1.npy"].view(np.uint32).tolist() == [41]  # the recording itself stays as it was


def test_a_byte_that_differs_from_the_cards_is_named():
    launch, arrays = chained(after=42 + (1 << 8))
    done = run_launch(ts.Kernel(ADD_ONE), launch, arrays.__getitem__)
    assert (done.memory[1].differing_bytes, done.memory[1].first_difference) == (1, NUMBER + 1)


def test_memory_of_a_launch_file_is_written_and_read_again():
    launch, arrays = chained(after=42)
    assert read_launch(format_launch(launch).encode(), "launch.toml") == launch
    archive = read_archive(write_archive(launch, arrays), "k.launch")
    assert archive.launch == launch
    assert archive.read_array("memory1.npy").tolist() == [41, 0, 0, 0]
    assert write_archive(launch, arrays) == write_archive(launch, arrays)


@pytest.mark.parametrize("address", [0x7C00_0000_0000 - 4, 0x7D00_1000_0000, 0x7E00_0000_0000])
def test_memory_in_a_window_of_the_machine_is_refused(address):
    memory = (MemoryDescription(address=address, file="a"),)
    launch = LaunchDescription(grid=(1,), block=(1,), arguments=(BytesArgument(content="00" * 8),), memory=memory)
    with pytest.raises(ts.RuleError, match="launch-memory"):
        run_launch(ts.Kernel(ADD_ONE), launch, lambda _: np.zeros(64, np.uint8))


def test_memory_that_overlaps_is_refused(wording):
    both = tuple(MemoryDescription(address=POINTER + offset, file="a") for offset in (0, 63))
    launch = LaunchDescription(grid=(1,), block=(1,), arguments=(BytesArgument(content="00" * 8),), memory=both)
    with pytest.raises(ts.RuleError) as refused:
        run_launch(ts.Kernel(ADD_ONE), launch, lambda _: np.zeros(64, np.uint8))
    assert [(violation.rule, violation.values["size_bytes"]) for violation in refused.value.violations] == [
        ("launch-memory", 64)
    ]
    assert refused.value.violations[0].values["address"] == POINTER + 63
    wording("memory that overlaps", refused.value)


def test_bytes_after_the_launch_that_are_more_or_fewer_than_before_are_refused(wording):
    launch, arrays = chained(after=42)
    arrays["after1.npy"] = np.zeros(7, np.uint8)
    with pytest.raises(ts.RuleError) as refused:
        run_launch(ts.Kernel(ADD_ONE), launch, arrays.__getitem__)
    assert refused.value.violations[0].values == {
        "file": "after1.npy",
        "after_bytes": 7,
        "address": 0x7F5DC6000000,
        "size_bytes": 4,
    }
    wording("memory of another size after the launch", refused.value)


@pytest.mark.parametrize("address", ['"-0x10"', "-16", '"0x200000000000000"', '"here"', "[]"])
def test_an_address_that_no_card_has_is_refused(address):
    text = f'[launch]\n[[memory]]\naddress = {address}\nfile = "a.npy"'
    with pytest.raises(ts.RuleError, match=r"memory\[0\]\.address"):
        read_launch(text.encode(), "launch.toml")


def test_a_file_that_is_not_in_the_archive_is_named():
    launch, arrays = chained(after=42)
    archive = read_archive(write_archive(launch, {"memory0.npy": arrays["memory0.npy"]}), "k.launch")
    with pytest.raises(ts.RuleError, match=r"memory1\.npy: not in the archive"):
        run_launch(ts.Kernel(ADD_ONE), archive.launch, archive.read_array)


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"PK\x03\x04" + bytes(60)])
def test_a_broken_archive_is_refused(content):
    with pytest.raises(ts.RuleError, match="launch-file"):
        read_archive(content, "k.launch")


def test_an_archive_without_a_launch_is_refused():
    content = write_archive(LaunchDescription(grid=(1,)), {}).replace(b"launch.toml", b"lunch.tomll")
    with pytest.raises(ts.RuleError, match=r"an archive without launch\.toml"):
        read_archive(content, "k.launch")


def test_arrays_that_are_placed_later_keep_away_from_recorded_memory():
    first = ts.Memory().place(np.zeros(16, np.uint8))
    memory = ts.Memory()
    assert contents_of(memory).place_at(first + 8, np.zeros(16, np.uint8))
    assert memory.place(np.zeros(16, np.uint8)) > first + 24
