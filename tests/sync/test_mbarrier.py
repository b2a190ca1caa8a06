"""An mbarrier's state after every operation, and its 64 bits, as an H200 has them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilescope as ts
from tilescope.cli import run
from tilescope.value import Value

RECORDED = np.load(Path(__file__).parent.parent / "golden" / "mbarriers.npz")
OPERATIONS = (None, "arrive", "expect_tx", "complete_tx", "arrive_drop", "arrive_expect_tx")
ARRIVALS = (1, 4, 5)

# PTX spelled out by hand: (phase, pending, tx, expected) and the word
WORDS = [
    ((0, 1, 0, 1), 0x7FFFF800001FFFFE),
    ((0, 128, 0, 128), 0x7FFC0000001FFF00),
    ((0, 0, 32768, 1), 0x000003F0001FFFFE),
    ((1, 1, 0, 1), 0xFFFFF800001FFFFE),
    ((0, 1, -4096, 1), 0x7FFFF802001FFFFE),
]


def test_every_recorded_sequence_passes_waits_and_ends_as_on_the_card():
    columns = [RECORDED[name].tolist() for name in ("op", "argument", "token_high", "passes")]
    for number, word in enumerate(RECORDED["word"].tolist()):
        barrier = None
        for op, argument, token_high, passes in zip(*(column[number] for column in columns), strict=True):
            before = barrier
            barrier = ts.Mbarrier(argument) if op == 0 else getattr(barrier, OPERATIONS[op])(argument)
            assert (barrier.passes(0), barrier.passes(1)) == (bool(passes & 1), bool(passes & 2)), number
            if op in ARRIVALS:
                assert before.encode() >> 32 == token_high
                token = ts.Mbarrier.decode_token(token_high << 32 | 0x1234)
                assert (token.phase, token.pending) == (before.phase, before.pending)
                assert token.tx_bytes_lowest <= before.tx_bytes <= token.tx_bytes_highest
                assert token.plausible
        assert barrier.encode() == word
        assert ts.Mbarrier.decode(word) == barrier
        assert barrier.plausible


@pytest.mark.parametrize(("state", "word"), WORDS)
def test_words(state, word):
    phase, pending, tx_bytes, expected = state
    barrier = ts.Mbarrier(expected, phase=phase, pending=pending, tx_bytes=tx_bytes)
    assert barrier.encode() == word
    assert ts.Mbarrier.decode(word) == barrier
    assert barrier.expected == expected


@given(
    st.integers(1, (1 << 20) - 1),
    st.integers(0, 1),
    st.integers(0, (1 << 20) - 1),
    st.integers(1 - (1 << 20), (1 << 20) - 1),
)
def test_decode_undoes_encode(count, phase, pending, tx_bytes):
    barrier = ts.Mbarrier(count, phase=phase, pending=pending, tx_bytes=tx_bytes)
    assert ts.Mbarrier.decode(barrier.encode()) == barrier
    assert Value.from_dict(barrier.to_dict()) == barrier
    token = ts.Mbarrier.decode_token(barrier.encode())
    assert token.tx_bytes_lowest <= tx_bytes <= token.tx_bytes_highest <= token.tx_bytes_lowest + 2047


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        (lambda: ts.Mbarrier(1).arrive(2), "mbarrier-arrivals"),
        (lambda: ts.Mbarrier(1).arrive_expect_tx(16).arrive(), "mbarrier-arrivals"),
        (lambda: ts.Mbarrier(1).arrive_drop(2), "mbarrier-arrivals"),
        (lambda: ts.Mbarrier(1).expect_tx((1 << 20) - 1).expect_tx(1), "mbarrier-bytes"),
        (lambda: ts.Mbarrier(1).complete_tx(1 << 20), "mbarrier-bytes"),
    ],
)
def test_what_the_chip_answers_with_a_launch_failure(operation, rule):
    with pytest.raises(ts.LaunchFailureError) as failure:
        operation()
    assert failure.value.code == 719
    assert [each.rule for each in failure.value.violations] == [rule]


@pytest.mark.parametrize(
    "operation",
    [
        lambda: ts.Mbarrier(0),
        lambda: ts.Mbarrier(1 << 20),
        lambda: ts.Mbarrier("1"),
        lambda: ts.Mbarrier(1, phase=2),
        lambda: ts.Mbarrier(1).arrive(0),
        lambda: ts.Mbarrier(1).arrive(True),
        lambda: ts.Mbarrier(1).expect_tx(-1),
        lambda: ts.Mbarrier(1).passes(2),
        lambda: ts.Mbarrier.decode(1),
        lambda: ts.Mbarrier.decode(1 << 42),
        lambda: ts.Mbarrier.decode(1 << 64),
        lambda: ts.Mbarrier.decode_token(1 << 42),
        lambda: ts.Mbarrier.decode_token(None),
    ],
)
def test_what_is_no_barrier_and_no_operation_is_refused(operation):
    with pytest.raises(ts.RuleError) as refused:
        operation()
    assert not isinstance(refused.value, ts.FaultError)


def test_the_largest_counts_are_taken():
    assert ts.Mbarrier((1 << 20) - 1).expect_tx((1 << 20) - 1).complete_tx((1 << 20) - 1).tx_bytes == 0
    assert ts.Mbarrier(1).complete_tx((1 << 20) - 1).tx_bytes == 1 - (1 << 20)


def test_decode_reads_a_barrier_and_a_token(capsys, wording):
    assert run(["decode", "0x000003f0001ffffe"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("0x3f0001ffffe is an mbarrier: ")
    assert "0 of 1 arrival and 32768 bytes" in shown
    assert "bulk stores show stale bytes" in shown
    assert run(["decode", "0x7ffff80012345678"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("0x7ffff80012345678 is an mbarrier token: ")
    assert "1 arrival and -2047 to 0" in shown
    wording("a token", shown.partition(". ")[0])
    assert run(["decode", "0x000003f0001ffffe", "--json"]) == 0
    assert '"tx_bytes": 32768' in capsys.readouterr().out
