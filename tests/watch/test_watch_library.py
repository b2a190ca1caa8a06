"""The injection library, driven by stand-ins for driver and CUPTI, plain and under the sanitizers."""

import json
import re
import socket
import subprocess
import time
from collections import Counter
from ctypes import sizeof

import pytest

from tilescope.gpu.watch import watch_call
from tilescope.gpu.watch.watch_build import SOURCE
from tilescope.gpu.watch.watch_call import CALL, HELLO, Call
from tilescope.gpu.watch.watch_session import CUPTI, INJECTION, SOCKET, Process
from tilescope.tensor_map.limits import MAX_RANK

EVERY_KIND = {
    "accepted": ("cuTensorMapEncodeTiled", "accepted", []),
    "refused": ("cuTensorMapEncodeTiled", "refused", ["address-alignment", "swizzle-span"]),
    "im2col": ("cuTensorMapEncodeIm2col", "accepted", []),
    "wide": ("cuTensorMapEncodeIm2colWide", "disagreement", ["arch-tma"]),
    "replace": ("cuTensorMapReplaceAddress", "accepted", []),
    "replace-refused": ("cuTensorMapReplaceAddress", "refused", ["address-alignment"]),
    "null": ("cuTensorMapEncodeTiled", "refused", ["null-pointer"]),
    "rank=6": ("cuTensorMapEncodeTiled", "refused", ["rank"]),
    "rank=0": ("cuTensorMapEncodeTiled", "refused", ["rank"]),
    "no-context": ("cuTensorMapEncodeTiled", "failed", []),
    "wrongly-accepted": ("cuTensorMapEncodeTiled", "disagreement", ["address-alignment"]),
    "wrongly-refused": ("cuTensorMapEncodeTiled", "disagreement", []),
}


def test_calls_of_every_kind_are_told_with_what_the_rules_say(watch, sanitizer):
    found = watch("init", *EVERY_KIND, "wild", "two-threads", "fork", sanitizer=sanitizer)
    assert found.status == 0
    assert [(each["function"], each["state"], found.rules(number)) for number, each in enumerate(found.maps)] == [
        *EVERY_KIND.values()
    ]
    # two threads make 100 accepted and 10 refused calls each; two children one of each; a wild pointer is like NULL
    # and a map whose address may not be replaced had it replaced before
    assert found.total("times") == len(EVERY_KIND) + 1 + 220 + 4 + 1
    assert found.total("refused") == 7 + 1 + 20 + 2
    assert found.summary["lost"] == 0
    assert {each["caller"] for each in found.summary["maps"]} == {"calls"}
    # the nearest caller is the same whether the stack was unwound (refused) or read off a remembered path (accepted)
    tiled = [each for each in found.maps if each["function"] == "cuTensorMapEncodeTiled"]
    assert len({each["called_by"][0]["place"] for each in tiled}) == 1
    assert len(tiled[1]["called_by"]) > 2 > len(tiled[0]["called_by"])


def test_wide_maps_are_judged_by_the_architecture(watch):
    assert watch("init", "wide", STANDIN_MAJOR="10").states == ["accepted"]
    assert watch("init", "wide", STANDIN_MAJOR="9").states == ["disagreement"]


class Listener:
    """tilescope's end of the socket, which reads when the test says so."""

    def __init__(self, build, library, folder):
        self.build, self.process, self.connection = build, Process(), None
        self.path = folder / "socket"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(str(self.path))
        self.socket.listen()
        self.environment = build.environment | {
            INJECTION: str(library),
            SOCKET: str(self.path),
            CUPTI: str(build.cupti.library),
        }

    def start(self, *words, **environment):
        return subprocess.Popen(
            self.build.command(*words),
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def packets(self):
        """All that lies in the socket."""
        if self.connection is None:
            self.connection = self.socket.accept()[0]
            self.connection.setblocking(False)
        found = []
        while True:
            try:
                data, files, *_ = socket.recv_fds(self.connection, watch_call.LARGEST_PACKET_BYTES, 1)
            except BlockingIOError:
                return found
            for file in files:
                self.process.share(file)
            if not data:
                return found
            found.append(Call(data))


@pytest.fixture
def listener(build, library, sanitizer, tmp_path):
    made = Listener(build(sanitizer), library(sanitizer), tmp_path)
    yield made
    made.socket.close()
    if made.connection is not None:
        made.connection.close()


def ended(program):
    output, errors = program.communicate(timeout=600)
    assert program.returncode == 0, errors
    assert not errors
    return output


def test_a_slow_reader_loses_calls_and_knows_how_many(listener):
    calls = 20_000  # more than fits into the socket, and than there are sites
    ended(listener.start("init", f"distinct={calls}", "refused"))
    kinds = Counter(packet.record.kind for packet in listener.packets())
    counts = listener.process.counts()
    assert kinds[HELLO] == 1
    assert counts.lost > 0
    assert counts.lost_refused in (0, 1)
    assert kinds[CALL] + counts.lost + sum(counts.repeats) == calls + 1


def test_a_reader_that_goes_away_is_not_missed(listener):
    program = listener.start("init", "accepted", "sleep=300", "distinct=100", "refused", "fork", "flood=1000")
    time.sleep(0.1)
    listener.packets()
    listener.connection.close()
    listener.socket.close()
    assert "1000 calls" in ended(program)


@pytest.mark.parametrize("path", ["/nonexistent/socket", "/" + "long" * 40, ""])
def test_without_a_reader_the_library_is_quiet(listener, path):
    assert "10 calls" in ended(listener.start("init", "refused", "flood=10", **{SOCKET: path}))


@pytest.mark.parametrize("sanitizer", ["plain"])  # the others need descriptors of their own
def test_a_number_that_the_program_reuses_is_left_alone(listener):
    assert "own socket untouched" in ended(listener.start("init", "accepted", "close-all", "refused"))


@pytest.mark.parametrize(
    "sanitizer", ["plain", pytest.param("address", marks=pytest.mark.slow)]
)  # ThreadSanitizer itself makes a file
def test_a_limit_on_files_does_not_kill_the_program(listener):
    limited = ["bash", "-c", 'ulimit -f 1; exec "$0" "$@"']
    done = subprocess.run(
        [*limited, *listener.build.command("init", "accepted", "refused")],
        env=listener.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_cupti_that_is_taken_is_reported_and_the_program_runs_on(watch, sanitizer):
    found = watch("init", "accepted", "exit=3", sanitizer=sanitizer, STANDIN_TAKEN="1")
    assert found.status == 3
    assert found.total("times") == 0
    (reason,) = found.summary["unwatched"]
    assert re.fullmatch(r"process \d+ \(calls\): CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED \(39\)", reason)


def test_a_missing_cupti_is_reported(listener):
    ended(listener.start("init", "accepted", **{CUPTI: "/nonexistent/libcupti.so"}))
    (hello,) = listener.packets()
    assert "CUPTI could not be loaded" in hello.told("failed")


@pytest.mark.parametrize("sanitizer", ["plain"])
def test_a_call_that_was_made_before_is_counted_and_not_told_again(listener):
    """What such a call costs, a test on the card measures."""
    ended(listener.start("init", "flood=10000"))
    kinds = Counter(packet.record.kind for packet in listener.packets())
    counts = listener.process.counts()
    assert kinds[CALL] < 10
    assert kinds[CALL] + sum(counts.repeats) == 10_000
    assert counts.lost == 0


LAYOUT = """
#include "watch.h"
#include <stdio.h>
int main(void) {
    printf("{\\"arguments\\": %zu, \\"address\\": %zu, \\"text_offset\\": %zu, \\"record\\": %zu, \\"counts\\": %zu, "
           "\\"sites\\": %d, \\"hello\\": %d, \\"call\\": %d, \\"dims\\": %d, \\"bits\\": [%d, %d, %d, %d, %d, %d, %d]}",
           sizeof(struct watch_arguments), offsetof(struct watch_record, address), offsetof(struct watch_record, text),
           sizeof(struct watch_record), sizeof(struct watch_counts), WATCH_SITES, WATCH_HELLO, WATCH_CALL, WATCH_DIMS,
           WATCH_READ_DIMS, WATCH_READ_STRIDES, WATCH_READ_BOX, WATCH_READ_ELEMENT_STRIDES, WATCH_READ_LOWER,
           WATCH_READ_UPPER, WATCH_READ_MAP);
    return 0;
}
"""


def test_the_record_is_laid_out_as_python_reads_it(require, tmp_path):
    require("gxx")
    (tmp_path / "layout.c").write_text(LAYOUT)
    command = ["gcc", "-std=gnu11", f"-I{SOURCE}", "-o", tmp_path / "layout", tmp_path / "layout.c"]
    subprocess.run(command, check=True)
    found = json.loads(subprocess.check_output([tmp_path / "layout"], text=True))
    assert found == {
        "arguments": sizeof(watch_call.Arguments),
        "address": watch_call.Record.address.offset,
        "text_offset": sizeof(watch_call.Record),
        "record": watch_call.LARGEST_PACKET_BYTES,
        "counts": sizeof(watch_call.Counts),
        "sites": watch_call.SITES,
        "hello": HELLO,
        "call": CALL,
        "dims": MAX_RANK,
        "bits": [pointer.bit for pointer in watch_call.POINTERS.values()],
    }
