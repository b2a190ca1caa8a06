"""The suites by name; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from tilescope.errors import RuleError, unknown_name
from tilescope.gpu.suite import Suite

# suite: module in suites/ and name there, in the order of `tilescope verify`
_PLACE = {
    "encode": "encoding:ENCODE",
    "loads": "loading:LOADS",
    "im2col": "loading:IM2COL",
    "multicast": "loading:MULTICAST",
    "gather4": "loading:GATHER4",
    "bulk": "bulk:BULK",
    "plans": "planning:PLANS",
    "stores": "storing:STORES",
    "reductions": "storing:REDUCTIONS_SUITE",
    "scatter4": "storing:SCATTER4",
    "faults": "faulting:FAULTS",
    "mbarriers": "barriers:MBARRIERS",
    "wgmma": "operands:WGMMA",
    "tcgen05": "operands:TCGEN05",
    "tensor_memory": "tensor_memory:TENSOR_MEMORY",
    "fragments": "products:FRAGMENTS",
    "ldmatrix": "matrices:LDMATRIX",
    "banks": "wavefronts:BANKS",
    "emitted": "emitting:EMITTED",
}
SUITE_NAMES = tuple(_PLACE)


def suite_named(name: str) -> Suite:
    """The suite called `name`.

    >>> suite_named("loads").count
    2000
    """
    if name not in _PLACE:
        raise RuleError([unknown_name("suite", "suite", name, SUITE_NAMES)])
    module, row = _PLACE[name].split(":")
    suite: Suite = getattr(import_module(f"tilescope.gpu.suites.{module}"), row)
    return suite
