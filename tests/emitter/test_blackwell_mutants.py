"""Of mutants of emitted Blackwell programs, one thing wrong in each, the machine or the proof finds all but the equivalent ones."""

import pytest
from blackwell_mutants import MUTATED, SHARED_MUTATED, VALUE_MISTAKES, judge, mutants

# fence.mbarrier_init is for other blocks: in one block __syncthreads orders mbarrier.init before every use.
EQUIVALENT = {(name, "no fence of mbarrier.init") for name in MUTATED if "cta_group=1" in name}
# Producers and multipliers wait forevery arrival of other blocks before they leave: the last meeting of the cluster is one too many.
EQUIVALENT |= {(name, "shared: blocks leave alone") for name in SHARED_MUTATED}
# Where the two blocks of a cluster share B, all blocks are those that take it.
EQUIVALENT |= {(name, "shared: B to all blocks") for name in SHARED_MUTATED if "cta_group=1-multicast=(2,1)" in name}
MUTANTS = sorted(mutants())


def test_there_are_200_mutants_and_few_are_equivalent():
    assert len(MUTANTS) >= 270
    assert len(EQUIVALENT & set(MUTANTS)) <= len(MUTANTS) // 20


@pytest.mark.slow
@pytest.mark.sampled(10)
@pytest.mark.parametrize(("name", "mutation"), MUTANTS)
def test_the_machine_or_the_proof_finds_the_mutant(name, mutation):
    verdict = judge(name, mutation)
    if (name, mutation) in EQUIVALENT:
        assert verdict == ""
    elif mutation in VALUE_MISTAKES:
        assert verdict == "wrong"
    else:
        assert verdict in ("found", "disproved")
