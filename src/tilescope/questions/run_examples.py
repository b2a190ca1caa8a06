"""Kernels to start from on the page that runs them: mistakes that people make, each beside the right kernel.

/run?example=run-race.fail      the fields of the page are filled with the text and its launch
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from tilescope.errors import RuleError, unknown_name

EXAMPLE = "example"  # the name of the query
WRONG = "fail"
RIGHT = "pass"
_WORDS = '[[argument]]\nname = "a"\nkind = "array"\ntype = "u32"\nshape = [64]\nfill = "zeros"\n'
_MAP = (
    '[[argument]]\nname = "map"\nkind = "map"\ntype = "f16"\nshape = [64, 128]\nfill = "zeros"\n'
    'box = [64, 64]\nswizzle = "128B"\n'
)


class RunExample(NamedTuple):
    """A rule that a kernel breaks, what is wrong with it, and how both kernels are launched."""

    rule: str
    mistake: str
    threads: int
    blocks: int = 1
    cluster: int = 1
    arguments: str = ""

    def launch(self) -> str:
        """The launch file."""
        cluster = f"cluster = [{self.cluster}]\n" if self.cluster > 1 else ""
        arguments = f"\n{self.arguments}" if self.arguments else ""
        return f"[launch]\ngrid = [{self.blocks}]\nblock = [{self.threads}]\n{cluster}{arguments}".rstrip()

    def text(self, which: str) -> str:
        """The PTX of the wrong or the right kernel."""
        return (files("tilescope") / "rule_examples" / f"{self.rule}.{which}.ptx").read_text("utf-8").rstrip()


EXAMPLES = (
    RunExample("run-race", "A barrier between stores and loads is missing", 64),
    RunExample("run-hang", "An mbarrier expects an arrival that never comes", 32),
    RunExample("run-phase-parity", "A wait for the wrong parity", 64),
    RunExample("run-expected-bytes", "expect_tx and the copies disagree", 64, arguments=_WORDS),
    RunExample("run-barrier-init", "An mbarrier is used before others see its init", 64),
    RunExample("run-init-fence", "fence.mbarrier_init is missing in a cluster", 64, blocks=2, cluster=2),
    RunExample("run-proxy-fence", "fence.proxy.async is missing before a bulk store", 64, arguments=_WORDS),
    RunExample("run-store-source", "The source of a bulk store is overwritten too early", 64, arguments=_WORDS),
    RunExample("run-copy-wait", "Bytes of a copy are read without a wait", 64, arguments=_WORDS),
    RunExample("run-cp-async", "cp.async without its wait", 64, arguments=_WORDS),
    RunExample("run-refill", "A stage is refilled while it is read", 64, arguments=_WORDS),
    RunExample("run-skipped-barrier", "A barrier that some threads skip", 64),
    RunExample("run-convergence", "A warp instruction in a branch", 64),
    RunExample("run-bank-conflict", "Loads with a bank conflict", 32),
    RunExample("run-swizzle-mismatch", "wgmma reads another swizzle than TMA wrote", 128, arguments=_MAP),
    RunExample("run-accumulators", "Accumulators are read before wgmma is waited for", 128),
    RunExample("run-unwritten", "Shared memory is read that nobody wrote", 64),
    RunExample("run-out-of-bounds", "A load beyond its array", 32, arguments=_WORDS.replace("[64]", "[1]")),
)
_NAMES = {f"{example.rule}.{which}": (example, which) for example in EXAMPLES for which in (WRONG, RIGHT)}


def fill_example(query: Mapping[str, str]) -> Mapping[str, str] | None:
    """The fields of the example that a query names; None if it names none."""
    if EXAMPLE not in query:
        return None
    name = query[EXAMPLE]
    if name not in _NAMES:
        raise RuleError([unknown_name("example", EXAMPLE, name[:80], _NAMES)])
    example, which = _NAMES[name]
    return {"ptx": example.text(which), "launch": example.launch()}
