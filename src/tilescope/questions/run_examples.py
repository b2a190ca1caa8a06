"""Kernels to start from on the page Run: the mistakes of the how-to pages, each with the corrected kernel.

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
    """A rule that a kernel breaks, the mistake, and how both kernels are launched."""

    rule: str
    mistake: str
    threads: int
    blocks: int = 1
    cluster: int = 1
    arguments: str = ""
    how_to: str = ""  # the title of the how-to page that the mistake belongs to

    def launch(self) -> str:
        """The launch file."""
        cluster = f"cluster = [{self.cluster}]\n" if self.cluster > 1 else ""
        arguments = f"\n{self.arguments}" if self.arguments else ""
        return f"[launch]\ngrid = [{self.blocks}]\nblock = [{self.threads}]\n{cluster}{arguments}".rstrip()

    def text(self, which: str) -> str:
        """The PTX of the wrong or the right kernel."""
        return (files("tilescope") / "rule_examples" / f"{self.rule}.{which}.ptx").read_text("utf-8").rstrip()


_HANG = "A hang"  # titles of the how-to pages that the mistakes belong to
_RACE = "A race"
_BANKS = "Bank conflicts"
_DESCRIPTORS = "LBO and SBO"
_STORES = "Stores that overwrite neighbours"
_BLACKWELL = "A new card"
EXAMPLES = (
    RunExample("run-hang", "An mbarrier expects an arrival that never comes", 32, how_to=_HANG),
    RunExample("run-phase-parity", "A wait for the wrong parity", 64, how_to=_HANG),
    RunExample("run-expected-bytes", "expect_tx and the copies disagree", 64, arguments=_WORDS, how_to=_HANG),
    RunExample("run-skipped-barrier", "A barrier that some threads skip", 64, how_to=_HANG),
    RunExample("run-barrier-init", "An mbarrier is used before others see its init", 64, how_to=_HANG),
    RunExample("run-init-fence", "fence.mbarrier_init is missing in a cluster", 64, blocks=2, cluster=2, how_to=_HANG),
    RunExample("run-barrier-lifetime", "The bytes of an mbarrier are written over", 128, how_to=_HANG),
    RunExample("run-race", "A barrier between stores and loads is missing", 64, how_to=_RACE),
    RunExample("run-early-load", "A word is read before another thread writes it", 128, how_to=_RACE),
    RunExample("run-copy-wait", "Bytes of a copy are read without a wait", 64, arguments=_WORDS, how_to=_RACE),
    RunExample("run-cp-async", "cp.async without its wait", 64, arguments=_WORDS, how_to=_RACE),
    RunExample("run-cp-async-fence", "cp.async without a fence before wgmma", 128, arguments=_WORDS, how_to=_RACE),
    RunExample("run-refill", "A stage is refilled while it is read", 64, arguments=_WORDS, how_to=_RACE),
    RunExample(
        "run-proxy-fence", "fence.proxy.async is missing before a bulk store", 64, arguments=_WORDS, how_to=_RACE
    ),
    RunExample(
        "run-store-source", "The source of a bulk store is overwritten too early", 64, arguments=_WORDS, how_to=_RACE
    ),
    RunExample("run-copies-left", "Threads end before their cp.async", 128, arguments=_WORDS, how_to=_RACE),
    RunExample("run-convergence", "A warp instruction in a branch", 64, how_to=_RACE),
    RunExample("run-unwritten", "A read of shared memory that was not written", 64, how_to=_RACE),
    RunExample("run-map-fence", "A tensor map is changed without its fence", 128, arguments=_MAP, how_to=_RACE),
    RunExample("run-bank-conflict", "Loads with a bank conflict", 32, how_to=_BANKS),
    RunExample(
        "run-swizzle-mismatch", "wgmma reads another swizzle than TMA wrote", 128, arguments=_MAP, how_to=_DESCRIPTORS
    ),
    RunExample("run-accumulators", "Accumulators are read before wgmma is waited for", 128, how_to=_DESCRIPTORS),
    RunExample("run-unwritten-operand", "wgmma reads an operand that was not written", 128, how_to=_DESCRIPTORS),
    RunExample(
        "run-out-of-bounds", "A load beyond its array", 32, arguments=_WORDS.replace("[64]", "[1]"), how_to=_STORES
    ),
    RunExample("run-array-end", "A read beyond the end of a shared array", 64, how_to=_STORES),
    RunExample("run-tmem-columns", "Columns of tensor memory that the block does not have", 128, how_to=_BLACKWELL),
    RunExample("run-tmem-fence", "tcgen05.fence is missing around a barrier", 128, how_to=_BLACKWELL),
    RunExample("run-tmem-order", "Tensor memory is read before its writes are waited for", 32, how_to=_BLACKWELL),
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
