"""Checks across the parts of a kernel: names that exist, loops in one piece, operations that can access their tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilescope.errors import Violation, argument_range, raise_all, unknown_name
from tilescope.kernel_plan.kernel_description import MEMORIES, MULTIPLICATIONS, KernelParts, KernelStep, KernelTile
from tilescope.kernel_plan.kernel_rules import KERNEL_STEP
from tilescope.sync.thread_limits import BLOCK_THREADS

_BOX_ROWS = 256  # of a copy
_PATTERN_ROWS = 8  # of 128 bytes: a swizzle starts anew behind them


def check_parts(kernel: KernelParts) -> None:
    """Refuse a kernel whose parts contradict each other; names come first, because the other checks look them up."""
    raise_all([*_check_threads(kernel), *_check_names(kernel), *_check_nesting(kernel)])
    raise_all([*_check_loops(kernel), *_check_steps(kernel), *_check_multicast(kernel), *_check_images(kernel)])


def _check_threads(kernel: KernelParts) -> Iterator[Violation]:
    if kernel.threads > BLOCK_THREADS:
        limit = f"a block has at most {BLOCK_THREADS} threads"
        yield argument_range("roles", kernel.threads, limit, "Use fewer warps or instances.")


def _check_names(kernel: KernelParts) -> Iterator[Violation]:
    """Every name that a step, a loop or an overlay uses is one of the kernel's."""
    tiles = [tile.name for tile in kernel.tiles]
    loops = [loop.name for loop in kernel.loops]
    roles = [role.name for role in kernel.roles]
    for place, step in enumerate(kernel.steps):
        if step.role not in roles:
            yield unknown_name("role", f"steps[{place}].role", step.role, roles)
        if step.loop and step.loop not in loops:
            yield unknown_name("loop", f"steps[{place}].loop", step.loop, loops)
        for name in step.tiles:
            if name not in tiles:
                yield unknown_name("tile", f"steps[{place}]", name, tiles)
    for tile in kernel.tiles:
        for name in tile.overlay:
            if name not in ("*", *tiles):
                yield unknown_name("tile", f"tiles.{tile.name}.overlay", name, tiles)


def _check_nesting(kernel: KernelParts) -> Iterator[Violation]:
    """Every loop is inside a known one, and none inside itself."""
    loops = [loop.name for loop in kernel.loops]
    for loop in kernel.loops:
        around = loop.inside
        seen = {loop.name}
        while around:
            if around not in loops:
                yield unknown_name("loop", f"loops.{loop.name}.inside", around, loops)
                break
            if around in seen:
                limit = "a loop is not inside itself"
                yield argument_range(f"loops.{loop.name}.inside", around, limit, "Leave it out.")
                break
            seen.add(around)
            around = kernel.loop(around).inside


def _check_loops(kernel: KernelParts) -> Iterator[Violation]:
    """The steps of a loop follow one another."""
    closed: set[str] = set()
    running: tuple[str, ...] = ()
    for place, step in enumerate(kernel.steps):
        path = kernel.path(step.loop)
        again = next((name for name in path if name in closed), None)
        if again is not None:
            yield _refuse_step(
                place,
                found=f"loop {again} goes on after a step outside it",
                limit="the steps of a loop follow one another",
                fix="Move the step, or put the second part into a separate loop.",
            )
        closed |= set(running) - set(path)
        running = path


def _check_steps(kernel: KernelParts) -> Iterator[Violation]:
    """Every operation gets tiles of a memory that it reaches."""
    for place, step in enumerate(kernel.steps):
        if step.operation in MULTIPLICATIONS and not (step.a and step.b):
            yield _refuse_step(
                place,
                found=f"{step.operation} without a or b",
                limit="a product has both operands",
                fix='Add a = "Q" and b = "K", for example.',
            )
        for name in step.writes:
            yield from _check_write(kernel, place, step, kernel.tile(name))
        for name in step.inputs:
            yield from _check_read(place, step, kernel.tile(name))
    for tile in kernel.tiles:
        readers = list(kernel.reads_of(tile.name))
        writers = list(kernel.writes_of(tile.name))
        if readers and not writers:
            yield _refuse_step(
                readers[0][0],
                found=f"it reads {tile.name}, which no step writes",
                limit="a tile is written before it is read",
                fix="Add the step that writes it.",
            )
        if tile.memory == "registers" and len({step.role for _, step in (*readers, *writers)}) > 1:
            yield _refuse_step(
                (readers or writers)[0][0],
                found=f"{tile.name} is used by two roles",
                limit="registers belong to one role",
                fix="Pass it through shared or tensor memory.",
            )


def _check_multicast(kernel: KernelParts) -> Iterator[Violation]:
    """TMA loads what is multicast, and slices of it are whole groups of the rows that a swizzle repeats after."""
    for tile in kernel.tiles:
        if tile.multicast is None:
            continue
        yield from (
            _refuse_step(
                place,
                found=f"{step.operation} writes {tile.name}, which is multicast",
                limit="TMA loads a tile into several blocks",
                fix='Use operation = "load", or leave multicast out.',
            )
            for place, step in kernel.writes_of(tile.name)
            if step.operation != "load"
        )
        group = _PATTERN_ROWS * kernel.cluster
        if tile.multicast == "slices" and tile.shape[0] % group:
            limit = f"{kernel.cluster} slices of whole groups of {_PATTERN_ROWS} rows"
            at = f"tiles.{tile.name}.shape[0]"
            yield argument_range(at, tile.shape[0], limit, f'Use a multiple of {group}, or multicast = "first".')


def _check_images(kernel: KernelParts) -> Iterator[Violation]:
    """A column of pixels is loaded by one copy, into one block."""
    for tile in kernel.tiles:
        image = tile.tensor
        if image is None or not image.filter:
            continue
        at = f"tiles.{tile.name}"
        extents = len(image.shape) - 2
        for name in ("filter", "padding", "stride", "dilation"):
            numbers = getattr(image, name)
            if len(numbers) != extents:
                limit = f"{extents} numbers for an image of {extents + 2} dimensions (N, extents, C)"
                yield argument_range(f"{at}.tensor.{name}", numbers, limit, "Use one for each extent, outermost first.")
        if tile.shape[0] > _BOX_ROWS:
            limit = f"a copy takes at most {_BOX_ROWS} pixels here"
            yield argument_range(f"{at}.shape[0]", tile.shape[0], limit, f"Use {_BOX_ROWS} rows, and several tiles.")
        if tile.multicast is not None:
            limit = "the pixels of an image are loaded into one block"
            yield argument_range(f"{at}.multicast", tile.multicast, limit, "Leave multicast out.")


def _check_write(kernel: KernelParts, place: int, step: KernelStep, tile: KernelTile) -> Iterator[Violation]:
    reached = {
        "load": ("shared",),
        "store": (),
        "wgmma": ("registers",),
        "tcgen05.mma": ("tensor",),
        "threads": MEMORIES,
    }[step.operation]
    if tile.memory not in reached:
        yield _refuse_memory(place, f"{step.operation} writes", tile, reached)
    shared_by_all = tile.memory != "registers" and not tile.per_instance
    if shared_by_all and kernel.role(step.role).instances > 1:
        yield _refuse_step(
            place,
            found=f"{kernel.role(step.role).instances} instances of {step.role} write {tile.name}",
            limit="every instance writes a separate tile",
            fix="Use per_instance = true with the shape of one instance.",
        )


def _check_read(place: int, step: KernelStep, tile: KernelTile) -> Iterator[Violation]:
    is_a = tile.name == step.a
    reached: tuple[str, ...] = MEMORIES
    if step.operation == "store":
        reached = ("shared",)
    elif step.operation in MULTIPLICATIONS:
        first = "registers" if step.operation == "wgmma" else "tensor"
        reached = ("shared", first) if is_a or tile.name in step.reads else ("shared",)
    elif step.operation == "load":
        reached = ()
    if tile.memory not in reached:
        yield _refuse_memory(place, f"{step.operation} reads", tile, reached)


def _refuse_memory(place: int, accesses: str, tile: KernelTile, reached: Sequence[str]) -> Violation:
    return _refuse_step(
        place,
        found=f"{accesses} {tile.name}, whose memory is {tile.memory}",
        limit=f"{accesses} {' or '.join(reached) or 'global memory'}",
        fix=f"Put {tile.name} there, or use another operation.",
    )


def _refuse_step(place: int, *, found: str, limit: str, fix: str) -> Violation:
    return KERNEL_STEP.violation(at=f"steps[{place}]", found=found, limit=limit, fix=fix)
