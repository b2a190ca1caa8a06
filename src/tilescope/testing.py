"""Assertions about runs of kernels, for tests that need no GPU.

    run = kernel.run(grid=4, block=128, args=[out, a, 1000])
    assert_clean(run)                             it finished, and no finding is an error
    assert_clean(run, warnings=True)              nor a warning
    assert_conflict_free(run, "mm.py:12")         the accesses of that line cost as little as they can
    assert_equal_to(run, 0, reference)            argument 0 holds the reference
    campaign(kernel, launch, mutants=True)        which mutants would no finding tell?

The pytest plugin (`tilescope.pytest_plugin`) has the fixture `tilescope_run`, which runs a kernel and asserts that it is clean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from warnings import warn

import numpy as np
import numpy.typing as npt

from tilescope.machine.campaign import Campaign, Trial, campaign
from tilescope.machine.observers.last_writer import LastWriter
from tilescope.machine.report.finding_text import format_finding
from tilescope.machine.report.outcome import outcome_sentence
from tilescope.machine.report.run import ArgumentArray, InstructionCount, KernelRun
from tilescope.machine.report.verdict import judge_run, names_line
from tilescope.ptx.syntax import place_in_words
from tilescope.sentence import counted, listed

__all__ = ("Campaign", "Trial", "assert_clean", "assert_conflict_free", "assert_equal_to", "campaign")

Array = npt.NDArray[Any]
_ROWS_TOLD = 8


def assert_clean(run: KernelRun, *, warnings: bool = False, allow: Sequence[str] = ()) -> None:
    """Assert that the run finished without findings that are errors; the AssertionError lists the mistakes.

    With `warnings`, warnings fail too; notes never do. `allow` accepts findings that somebody has judged: a rule
    ("run-race"), or a rule at a line of the PTX text ("run-race@12") or of the source ("run-race@mm.py:12"). An entry
    that accepts nothing raises a Python warning.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel(".version 8.0 .target sm_90 .address_size 64 .entry k() { bar.sync 0; ret; }")
    >>> assert_clean(kernel.run(grid=2, block=64))
    """
    __tracebackhide__ = True
    verdict = judge_run(run, allow)
    for line in verdict.describe_unmatched():
        warn(line, stacklevel=2)
    if verdict.is_clean(strict=warnings):
        return
    failures = [*verdict.errors, *(verdict.warnings if warnings else ())]
    headline = outcome_sentence(run, accepted=verdict.accepted_findings)
    if run.outcome == "finished":
        counts = [counted(len(verdict.errors), "error")] if verdict.errors else []
        if warnings and verdict.warnings:
            counts.append(counted(len(verdict.warnings), "warning"))
        headline = f"{run.entry} finished, with {listed(counts)}:"
    lines = [line for finding in failures for line in format_finding(finding)]
    raise AssertionError("\n".join([headline, *(f"  {line}" for line in lines)]))


def assert_conflict_free(run: KernelRun, place: int | str | None = None) -> None:
    """Assert that accesses of shared memory have the minimum of wavefronts: those at `place`, or all of them.

    `place` is a line of the PTX text (12), a source line ("mm.py:12") or a part of an instruction ("ldmatrix"). A place
    where no access of shared memory ran is refused too: the assertion would hold nothing.
    """
    __tracebackhide__ = True
    rows = [access for row in run.instructions if _is_at(row, place) and (access := _access(row)) is not None]
    if not rows:
        where = "" if place is None else f" at {place!r}"
        raise AssertionError(f"no access of shared memory was counted{where}")
    conflicts = [row for row in rows if row.wavefronts > row.least_wavefronts]
    if not conflicts:
        return
    conflicts.sort(key=lambda row: row.least_wavefronts - row.wavefronts)
    lines = [f"{counted(len(conflicts), 'access', 'accesses')} of shared memory with bank conflicts:"]
    lines += [f"  {row.place}: {row.wavefronts} wavefronts, {row.least_wavefronts} would do" for row in conflicts]
    raise AssertionError("\n".join(_cut_lines(lines)))


def assert_equal_to(
    run: KernelRun, argument: int | Array, reference: object, *, rtol: float = 0.0, atol: float = 0.0
) -> None:
    """An array that the kernel worked on equals a reference, within `rtol` and `atol`; NaN equals NaN.

    `argument` is its number among the arguments (an array, its address, or a map over it), or the array itself. The
    AssertionError names the first element that differs, and the line that wrote it last.

    >>> from tilescope.machine.kernel import Kernel
    >>> kernel = Kernel('''.version 8.0 .target sm_90 .address_size 64
    ...     .entry set(.param .u64 a) {
    ...         .reg .b64 %rd1;
    ...         ld.param.u64 %rd1, [a];
    ...         st.global.u32 [%rd1+8], 7;
    ...         ret;
    ...     }''')
    >>> run = kernel.run(grid=1, block=1, args=[np.zeros(4, np.uint32)])
    >>> assert_equal_to(run, 0, [0, 0, 7, 0])
    """
    __tracebackhide__ = True
    if run.outcome != "finished":
        raise AssertionError(outcome_sentence(run))
    name, argument_array = _array_of(run, argument)
    actual = argument_array.array
    expected = np.asarray(reference)
    if actual.shape != expected.shape:
        raise AssertionError(f"{name} has the shape {actual.shape}, the reference {expected.shape}")
    is_wrong = ~_are_close(actual, expected, rtol, atol)
    if not is_wrong.any():
        return
    flat = int(is_wrong.argmax())
    index = [int(number) for number in np.unravel_index(flat, actual.shape)]
    message = (
        f"{name} differs from the reference in {np.count_nonzero(is_wrong)} of {counted(actual.size, 'element')}, "
        f"first at {index}: {actual.reshape(-1)[flat]}, not {expected.reshape(-1)[flat]}"
    )
    writer = run.last_writer(argument_array.address + flat * actual.itemsize)
    if writer is not None:
        message += f"; written last at {_place(writer)} by thread {writer.thread} of block {writer.block}"
    raise AssertionError(message)


class _Access(NamedTuple):
    """What an instruction cost in shared memory."""

    place: str
    wavefronts: int
    least_wavefronts: int


def _access(row: InstructionCount) -> _Access | None:
    """What a row cost in shared memory; None for one that did not go there."""
    if row.wavefronts is None or row.least_wavefronts is None or not row.warps:
        return None
    return _Access(_place(row), row.wavefronts, row.least_wavefronts)


def _place(row: InstructionCount | LastWriter) -> str:
    return place_in_words(row.source_line, row.ptx_line, row.ptx_text)


def _is_at(row: InstructionCount, place: int | str | None) -> bool:
    if place is None:
        return True
    if isinstance(place, int):
        return row.ptx_line == place
    return place in row.ptx_text or names_line(place, row.source_line or "")


def _cut_lines(lines: Sequence[str]) -> list[str]:
    if len(lines) <= _ROWS_TOLD + 1:
        return [*lines]
    return [*lines[: _ROWS_TOLD + 1], f"  … and {len(lines) - _ROWS_TOLD - 1} more"]


def _array_of(run: KernelRun, argument: int | Array) -> tuple[str, ArgumentArray]:
    """The array of an argument, and how a message names it."""
    if isinstance(argument, int):
        array = run.arrays[argument] if 0 <= argument < len(run.arrays) else None
        if array is None:
            raise AssertionError(f"args[{argument}] is not an array, nor the address or map of one")
        return f"args[{argument}]", array
    for number, array in enumerate(run.arrays):
        if array is not None and array.array is argument:
            return f"args[{number}]", array
    for number, array in enumerate(run.arrays):
        if array is not None and np.may_share_memory(array.array, argument):
            offset = argument.__array_interface__["data"][0] - array.array.__array_interface__["data"][0]
            return f"a part of args[{number}]", ArgumentArray(np.asarray(argument), array.address + offset)
    raise AssertionError("the array is none of the arguments of this run, nor a part of one")


def _are_close(found: Array, expected: Array, rtol: float, atol: float) -> npt.NDArray[np.bool_]:
    """Which elements are equal, within the tolerances."""
    is_whole = found.dtype.kind in "iub" and expected.dtype.kind in "iub"
    if is_whole and not rtol and not atol:
        return np.asarray(found == expected)
    return np.isclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)
