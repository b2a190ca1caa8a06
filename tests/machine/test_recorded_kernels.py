"""What a right kernel computes depends on no schedule: recorded kernels under random orders and completion times."""

import pytest
from kernel_recording import NAMES, recording, run_again

# A ring of TMA copies and wgmma, a cluster with remote arrivals, blocks that wait for each other, warps that pass flags on, Triton's.
OFTEN = ("ring", "cluster_arrivals", "split_k_semaphore", "flags", "mm_pointers_odd")


def assert_equal_to_the_card(name, seed):
    run, arrays = run_again(name, seed=seed)
    assert run.outcome == "finished", [str(finding) for finding in run.findings]
    assert list(recording(name).differences(arrays)) == []


SEEDS = [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NAMES)
def test_memory_does_not_depend_on_the_seed(name, seed):
    assert_equal_to_the_card(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("name", OFTEN)
def test_twenty_seeds_give_the_cards_memory(name, seed):
    assert_equal_to_the_card(name, seed)
