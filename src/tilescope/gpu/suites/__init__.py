"""The suites of `tilescope verify` by name, in its order; the module of one is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from tilescope.errors import RuleError, unknown_name
from tilescope.gpu.suite import Suite

# module here: the suites that it holds, as constants of these names
_MODULES = {
    "maps": "encode",
    "copies": "loads im2col multicast gather4 bulk plans stores reductions scatter4",
    "barriers": "faults mbarriers",
    "tensor_cores": "wgmma tcgen05 fragments",
    "registers": "tensor_memory ldmatrix",
    "wavefronts": "banks",
    "emitting": "emitted",
}
_MODULE = {name: module for module, names in _MODULES.items() for name in names.split()}
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
