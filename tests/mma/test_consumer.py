"""The table of consumers, held against the architectures, the descriptors and the readers that exist."""

from typing import get_args

import pytest

import tilescope as ts
from tilescope.mma.canonical import READERS
from tilescope.mma.consumer import CONSUMER, ConsumerName, Tcgen05Loop, WgmmaLoop, consumers_of


def test_the_names_are_those_of_the_table():
    assert tuple(CONSUMER) == get_args(ConsumerName)
    assert {row.instruction for row in READERS} == {
        name for row in CONSUMER.values() for name in row.instruction.values()
    }


# Who has the consumer, who describes its operands, and where its sums lie (PTX: wgmma.mma_async, tcgen05.mma, mma)
ROWS = {
    "wgmma": (("sm_90",), WgmmaLoop, "registers"),
    "tcgen05": (("sm_100", "sm_103", "sm_110"), Tcgen05Loop, "tensor memory"),
    "ldmatrix": (tuple(ts.ARCH), None, "registers"),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_cell_is_as_ptx_says(name):
    row = CONSUMER[name]
    has = tuple(arch for arch in ts.ARCH if name in consumers_of(ts.ARCH[arch]))
    assert (has, row.loop, row.accumulators) == ROWS[name]
    assert row.reads_by_descriptor == (row.loop is not None)


@pytest.mark.parametrize("arch", ts.ARCH.values(), ids=lambda arch: arch.name)
def test_every_architecture_has_its_own_and_says_what_it_lacks(arch):
    own = consumers_of(arch)[0]
    assert own == {"sm_90": "wgmma", "sm_100": "tcgen05", "sm_103": "tcgen05", "sm_110": "tcgen05"}.get(
        arch.name, "ldmatrix"
    )
    for name in CONSUMER.keys() - set(consumers_of(arch)):
        with pytest.raises(ts.RuleError) as refused:
            ts.plan((128, 64), "bf16", consumer=name, arch=arch.name)
        missing = refused.value.violations[0]
        assert (missing.rule, missing.found) == ("plan-consumer", f"consumer = {name} on {arch.name}")
        assert missing.limit.endswith(f"; {arch.name} has {', '.join(consumers_of(arch))}")
        assert missing.fix.startswith(f'Use consumer="{own}"')


@pytest.mark.parametrize("arch", [None, *ts.ARCH])
def test_a_plan_without_a_consumer_takes_the_architectures_own(arch):
    problem = ts.Problem((128, 64), "bf16", arch=arch)
    row = ts.ARCH[arch or "sm_90"]
    assert (problem.arch, problem.consumer) == (row, consumers_of(row)[0])
    assert problem.copy == ("tma" if row.has("tma") else "cp.async")
    assert ts.plan((128, 64), "bf16", arch=arch).problem == problem
    assert ts.plan((128, 64), "bf16", arch=arch).best.swizzle.name == "128B"
