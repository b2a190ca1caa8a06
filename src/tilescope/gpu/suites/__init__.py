"""The suites of `tilescope verify` by name, in its order; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from tilescope.errors import RuleError, unknown_name
from tilescope.gpu.suite import Suite

# suite: the module here that holds it, as a constant of that name
_MODULE = {
    "encode": "maps",
    "loads": "copies",
    "im2col": "copies",
    "multicast": "copies",
    "gather4": "copies",
    "bulk": "copies",
    "plans": "copies",
    "stores": "copies",
    "reductions": "copies",
    "scatter4": "copies",
    "faults": "faulting",
    "mbarriers": "barriers",
    "wgmma": "tensor_cores",
    "tcgen05": "tensor_cores",
    "tensor_memory": "registers",
    "fragments": "tensor_cores",
    "ldmatrix": "registers",
    "banks": "wavefronts",
    "emitted": "emitting",
}
SUITE_NAMES = tuple(_MODULE)


def suite_named(name: str) -> Suite:
    """The suite called `name`.

    >>> suite_named("loads").count
    2000
    """
    if name not in _MODULE:
        raise RuleError([unknown_name("suite", "suite", name, SUITE_NAMES)])
    suite: Suite = getattr(import_module(f"{__name__}.{_MODULE[name]}"), name.upper())
    return suite
