"""What to change where nothing fits: fewer stages, overlays, shared lanes, a smaller size, a narrower type.

Every change is tried. It is suggested only if the kernel fits with it; the suggestion has the bytes and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import combinations, groupby
from typing import NamedTuple

from tilescope.arch import Arch
from tilescope.errors import PlainData, RuleError
from tilescope.kernel_plan.kernel_file import KernelDescription, read_kernel
from tilescope.kernel_plan.registers import check_registers, count_registers
from tilescope.kernel_plan.stage_search import Limits, StageSearch

_NARROWER = {"float32": "bfloat16", "bfloat16": "e4m3", "float16": "e4m3"}
_LEAST_SIZE = 16
_HALVINGS = 3
MAX_CHANGES = 3
_BLOCKS = "blocks on an SM"


class KernelChange(NamedTuple):
    """A change after which a kernel fits, in words, with what it then needs."""

    text: str
    smem_bytes: int
    tmem_columns: int


class _Edit(NamedTuple):
    """A change of a kernel's data; of several that change the same thing, the first that helps is enough."""

    subject: str
    text: str
    data: PlainData


def nearest_changes(kernel: KernelDescription, arch: Arch, limits: Limits) -> list[KernelChange]:
    """Up to three changes after which the kernel fits; two changes together only if no single one does."""
    groups = [_without_unreadable(list(group)) for _, group in groupby(_edits(kernel), lambda edit: edit.subject)]
    changes: list[KernelChange] = []
    for group in groups:
        enough = _weakest(group, arch, limits)
        if enough is not None:
            changes.append(enough.change)
            if len(changes) == MAX_CHANGES:
                break
    if changes:
        return changes
    for first, second in combinations([group for group in groups if group], 2):
        enough = _weakest([_merge_edits(kernel, edit, second[-1]) for edit in first], arch, limits)
        if enough is not None:
            weaker = _weakest([_merge_edits(kernel, first[enough.number], edit) for edit in second], arch, limits)
            return [(weaker or enough).change]
    return []


def _without_unreadable(edits: list[_Edit]) -> list[_Edit]:
    """Edits up to the strongest that leaves a kernel."""
    while edits and _readable(edits[-1]) is None:
        edits.pop()
    return edits


class _Enough(NamedTuple):
    """Which of some edits is enough."""

    number: int
    change: KernelChange


def _weakest(edits: Sequence[_Edit], arch: Arch, limits: Limits) -> _Enough | None:
    """The first of some edits that is enough, found by halving: each changes more than the one before."""
    low, high = 0, len(edits) - 1
    weakest: _Enough | None = None
    while low <= high:
        middle = (low + high) // 2 if weakest else high  # the strongest first: mostly it is not enough
        change = _try_edit(edits[middle], arch, limits)
        if change is not None:
            weakest = _Enough(middle, change)
            high = middle - 1
        elif weakest is None:
            return None
        else:
            low = middle + 1
    return weakest


def _edits(kernel: KernelDescription) -> Iterator[_Edit]:
    """Changes of one kind each, the smallest first."""
    yield from _fewer_stages(kernel)
    if any(tile.memory == "tensor" and not tile.share_lanes for tile in kernel.tiles):
        yield _edit_tiles(kernel, "let accumulators of 64 rows share columns", share_lanes=True)
    if any(tile.memory != "registers" and not tile.overlay for tile in kernel.tiles):
        yield _edit_tiles(kernel, "let tiles overlap (overlay = true)", overlay=True)
    for name, value in kernel.sizes.items():
        halved = value
        for _ in range(_HALVINGS):
            halved //= 2
            if halved < _LEAST_SIZE:
                break
            data = deepcopy(dict(kernel.written))
            data["sizes"] = {**data["sizes"], name: halved}
            yield _Edit(name, f"use {name} = {halved}", data)
    for wide, narrow in _NARROWER.items():
        names = [tile.name for tile in kernel.in_memory("shared") if tile.data_type.name == wide]
        if names:
            data = deepcopy(dict(kernel.written))
            for name in names:
                data["tiles"][name]["data_type"] = narrow
            yield _Edit(wide, f"store {', '.join(names)} as {narrow}", data)
    if kernel.blocks_per_sm > 1:
        data = deepcopy(dict(kernel.written))
        data["blocks_per_sm"] = 1
        yield _Edit(_BLOCKS, "use one block on an SM", data)


def _fewer_stages(kernel: KernelDescription) -> Iterator[_Edit]:
    """One stage fewer of all tiles that have most, again and again."""
    least = {tile.name: tile.least_stages for tile in kernel.tiles if tile.memory != "registers"}
    while max(least.values(), default=1) > 1:
        deepest = max(least.values())
        names = [name for name, count in least.items() if count == deepest]
        least |= dict.fromkeys(names, deepest - 1)
        data = deepcopy(dict(kernel.written))
        for name, count in least.items():
            if count < kernel.tile(name).least_stages:
                data["tiles"][name]["stages"] = [count, max(count, kernel.tile(name).most_stages)]
        word = "stage" if deepest == 2 else "stages"
        yield _Edit("stages", f"use {deepest - 1} {word} of {', '.join(names)}", data)


def _edit_tiles(kernel: KernelDescription, text: str, **fields: bool) -> _Edit:
    data = deepcopy(dict(kernel.written))
    for tile in kernel.tiles:
        if tile.memory != "registers":
            data["tiles"][tile.name] |= fields
    return _Edit(text, text, data)


def _merge_edits(kernel: KernelDescription, one: _Edit, other: _Edit) -> _Edit:
    """Both edits together."""
    data = deepcopy(one.data)
    for name, value in other.data.get("sizes", {}).items():
        if value != kernel.sizes[name]:
            data["sizes"][name] = value
    if other.subject == _BLOCKS:
        data["blocks_per_sm"] = other.data["blocks_per_sm"]
    before = kernel.written["tiles"]
    for name, row in other.data["tiles"].items():
        for key, value in row.items():
            if before[name].get(key) != value:
                data["tiles"][name][key] = value
    return _Edit(f"{one.subject} {other.subject}", f"{one.text} and {other.text}", data)


def _readable(edit: _Edit) -> KernelDescription | None:
    """The kernel with a change; None if it is none any more."""
    try:
        return read_kernel(edit.data)
    except RuleError:
        return None


def _try_edit(edit: _Edit, arch: Arch, limits: Limits) -> KernelChange | None:
    """The change with its numbers, if the kernel fits with it."""
    kernel = _readable(edit)
    if kernel is None:
        return None
    if _BLOCKS in edit.subject:
        limits = Limits.of(arch, 1)
    search = StageSearch(kernel, arch, limits, is_thorough=False)
    candidate = search.best_of(search.least)
    uses = count_registers(kernel, candidate.lifetimes, kernel.blocks_per_sm)
    if not candidate.fits(limits) or check_registers(kernel, uses, kernel.blocks_per_sm):
        return None
    return KernelChange(edit.text, candidate.shared.needed, candidate.tensor.needed)
