"""The findings that the mistakes of pairs/ must get: one rule, or one of several where the schedule decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One of these rules, with this severity."""

    rules: frozenset[str]
    severity: str = "error"

    def __or__(self, other: Finding) -> Finding:
        assert self.severity == other.severity
        return Finding(self.rules | other.rules, self.severity)


RACE = Finding(frozenset({"run-race"}))
PROXY_FENCE = Finding(frozenset({"run-proxy-fence"}))
COPY_WAIT = Finding(frozenset({"run-copy-wait"}))
REFILL = Finding(frozenset({"run-refill"}))
EITHER_ORDER = COPY_WAIT | REFILL  # a copy and a read that nothing orders: which comes first is the schedule's choice
ACCUMULATORS = Finding(frozenset({"run-accumulators"}))
STORE_SOURCE = Finding(frozenset({"run-store-source"}))
CP_ASYNC = Finding(frozenset({"run-cp-async"}))
COPY_OF_OTHERS = CP_ASYNC | RACE | REFILL  # likewise, where cp.async copies
BARRIER_INIT = Finding(frozenset({"run-barrier-init"}))
MAP_FENCE = Finding(frozenset({"run-map-fence"}))
BLOCK_END = Finding(frozenset({"run-block-end"}))
COPY_LEFT = Finding(frozenset({"run-block-end"}), "note")  # of the block itself, from or to global memory
EXPECTED_BYTES = Finding(frozenset({"run-expected-bytes"}))
HANG = Finding(frozenset({"run-hang"}))
ARRIVALS = Finding(frozenset({"run-launch-failure"}))  # more than an mbarrier has room for
UNWRITTEN = Finding(frozenset({"run-unwritten"}))  # and the result depends on it
SWIZZLE = Finding(frozenset({"run-swizzle-mismatch"}))
UNWRITTEN_OPERAND = Finding(frozenset({"run-unwritten-operand"}))
EARLY_LOAD = Finding(frozenset({"run-early-load"}), "warning")
PHASE_PARITY = Finding(frozenset({"run-phase-parity"}))
