"""Broken rules as commands and pages tell them: the answer is no (exit status 1), or the input was not understood (2).

    plan 128x1000 bf16 …   a rule of the hardware is broken   →  1, on stdout: what was asked for does not exist
    plan 128x64 bf17       a rule of tilescope's input is     →  2, on stderr: nothing was asked

The distinction depends only on the rule, so that all commands agree.
"""

from __future__ import annotations

from collections import Counter

from tilescope.errors import FaultError, RuleError
from tilescope.sentence import counted

# Rules about what somebody writes: files, notations, names, the number of arguments. Every other rule is one of the hardware.
OF_INPUT = frozenset(
    [
        "address-window",
        "arch-partly-known",
        "argument-dump",
        "argument-json",
        "argument-length",
        "argument-missing",
        "argument-range",
        "argument-type",
        "array-box",
        "array-interface",
        "array-type",
        "bench-save",
        "capture",
        "capture-format",
        "coords-rank",
        "copy-past-l1",
        "cuda-compile",
        "descriptor-length",
        "descriptor-word",
        "drawing",
        "dump-extent",
        "dump-text",
        "dump-type",
        "emit",
        "encode-call",
        "encode-measured",
        "host-array",
        "input-binary",
        "input-empty",
        "input-file",
        "input-size",
        "kernel-argument",
        "kernel-arguments",
        "kernel-entry",
        "kernel-file",
        "lane-block",
        "lane-expression",
        "launch-argument",
        "launch-file",
        "launch-memory",
        "launch-missing",
        "layout-difference",
        "layout-size",
        "linear-bases",
        "memory-extent",
        "missing-field",
        "notation-argument",
        "notation-text",
        "npy-file",
        "npy-type",
        "one-map",
        "out-array",
        "pack-field",
        "page-limit",
        "page-query",
        "pasted-descriptor",
        "pattern-op",
        "pattern-tile",
        "pipeline-circle",
        "pipeline-expression",
        "pipeline-file",
        "pipeline-name",
        "pipeline-number",
        "pipeline-reference",
        "plan-card",
        "problem-file",
        "ptx-limit",
        "ptx-name",
        "ptx-syntax",
        "ptx-type",
        "ptx-unsupported",
        "saved-card",
        "serve-host",
        "serve-port",
        "shape-stride",
        "smem-moment",
        "thread-values",
        "tile-bounds",
        "tile-file",
        "tile-width",
        "tiles-map",
        "triton-argument",
        "triton-compile",
        "triton-parameters",
        "triton-signature",
        "unknown-name",
        "xor-swizzle",
    ]
)


def is_answer(error: RuleError) -> bool:
    """Whether broken rules are an answer: a fault, or only rules of the hardware."""
    return isinstance(error, FaultError) or not any(violation.rule in OF_INPUT for violation in error.violations)


def refusal_text(error: RuleError, *, is_quiet: bool) -> str:
    """The refused value and the reason, in a line; then every broken rule, or for --quiet the fix of the first."""
    below = error.violations[0].fix if is_quiet else f"\n{broken_rules(error)}"
    return f"{_answer(error)}\n{below}"


def refusal_json(error: RuleError) -> str:
    """The same as plain data."""
    import json

    if isinstance(error, FaultError):
        return json.dumps(error.to_dict(), indent=2)
    listed = [violation.to_dict() for violation in error.violations]
    document = {"answer": _answer(error), "advice": error.violations[0].fix, "violations": listed}
    return json.dumps(document, indent=2)


def broken_rules(error: RuleError) -> str:
    """Every broken rule on a separate line; rules that many maps of a log break are printed once, with their count."""
    times = Counter(f"{violation.severity}: {violation}" for violation in error.violations)
    return "\n".join(message if count == 1 else f"{message} ({count} times)" for message, count in times.items())


def _answer(error: RuleError) -> str:
    if isinstance(error, FaultError):
        return error.answer
    first, *more = error.violations
    others = f"; and {counted(len(more), 'more reason')}" if more else ""
    return f"Refused: {first.found}; {first.limit}{others}."
