"""The way of one element, drawn: its stops as facts, and the chunks around it at every stop.

    Its way
    global memory    byte 0x12aa from the tile's corner, in chunk 2 of row 37
    copy             1 copy of box 64 x 128: number 0, …
    shared memory    byte 0x12fa: line 37, chunk 7, bank 30
    descriptor       0x4000004000010002, …: K step 1

`path_window` draws the chunks.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilescope.layout import oriented
from tilescope.mma.readings import inspect_descriptor
from tilescope.planner.plans import ElementPath
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.number_span import extent, number_span
from tilescope.view.path_window import Chunk, PathWindow
from tilescope.view.ruler import BitRuler
from tilescope.view.walk_step import Step
from tilescope.view.word_ruler import word_ruler


def draw_element_path(path: ElementPath) -> Drawing:
    """The stops of an element as facts, and the chunks around it in three or four pictures.

    >>> from tilescope.planner import plan
    >>> draw_element_path(plan((128, 64), "bf16").best.path(37, 21)).title
    'Element (37, 21) of 128 x 64 bfloat16, K-major, for wgmma on sm_90'
    """
    problem = path.plan.problem
    title = (
        f"Element ({path.mn}, {path.k}) of {by(problem.tile)} {problem.data_type.name}, {problem.major}-major, "
        f"for {problem.consumer_name} on {problem.arch.name}"
    )
    window = PathWindow(path)
    grids: dict[str, Part] = {"gmem": window.gmem_grid(), "smem": window.smem_grid(), "read": window.reading_grid()}
    if path.result is not None:
        grids["result"] = window.result_grid()
    return Drawing(
        title,
        {
            "grids": Beside(grids),
            "elements": window.element_grid(),
            "stops": Table(_stops(path), title="Its way"),
            "ruler": _descriptor_ruler(path),
        },
    )


def _descriptor_ruler(path: ElementPath) -> BitRuler | None:
    """The descriptor of the K step that reads it, bit by bit."""
    if path.descriptor is None:
        return None
    problem = path.plan.problem
    word = inspect_descriptor(
        path.descriptor.word,
        major=problem.major,
        element_bits=path.plan.containers.element_bits,
        instruction=problem.consumer_name,
    )
    return word_ruler(word, f"The descriptor of K step {path.descriptor.k_step}")


def moves_of(path: ElementPath) -> dict[str, str]:
    """The elements around one in its tile, a row or a chunk away, by the arrow key that leads there.

    >>> from tilescope.planner import plan
    >>> moves_of(plan((128, 64), "bf16").best.path(0, 21))
    {'ArrowDown': '1,21', 'ArrowLeft': '0,13', 'ArrowRight': '0,29'}
    """
    window = PathWindow(path)
    row, column = oriented(window.major, path.mn, path.k)
    rows, columns = window.extents
    around = {
        "ArrowUp": (row - 1, column),
        "ArrowDown": (row + 1, column),
        "ArrowLeft": (row, column - window.chunk_elements),
        "ArrowRight": (row, column + window.chunk_elements),
    }
    moves = {}
    for key, (to_row, to_column) in around.items():
        if 0 <= to_row < rows and 0 <= to_column < columns:
            moves[key] = window.written(to_row, to_column)
    return moves


def _stops(path: ElementPath) -> dict[str, str]:
    """The text of each stop."""
    plan = path.plan
    chunk_at = f"byte {path.gmem_offset_bytes:#x} from the tile's corner, in chunk {path.chunk} of row {path.row}"
    if path.first_bit:
        chunk_at += f", from bit {path.first_bit}"
    stops = {"global memory": chunk_at}
    if path.copy is not None:
        copy = path.copy
        stops["copy"] = (
            f"{counted(plan.tma_instructions, 'copy', 'copies')} of box {by(plan.box or ())}: number {copy.number}, at "
            f"coordinates {copy.coords}, loads it as element {copy.place} of its box, to +{copy.smem_offset_bytes:#x}"
        )
    elif plan.boxes is None:
        stops["copy"] = f"{plan.problem.copy} by threads, 16 bytes each"
    else:
        stops["copy"] = f"{counted(plan.tma_instructions, 'copy', 'copies')} through a folded map"
    stops["shared memory"] = f"byte {path.address:#x}: line {path.line}, chunk {path.smem_chunk}, bank {path.bank}"
    if plan.swizzle.bits:
        unmoved = _unswizzled_chunk(path)
        stops["swizzle"] = f"{plan.swizzle.name} moves chunk {unmoved} of this line to place {path.smem_chunk}"
    return stops | _reading_stops(path)


def _unswizzled_chunk(path: ElementPath) -> int:
    """The chunk of its line where it would be without the swizzle."""
    return path.plan.swizzle.apply(path.address) % SMEM_LINE_BYTES // CHUNK_BYTES


def _reading_stops(path: ElementPath) -> dict[str, str]:
    """The text of the readers."""
    stops: dict[str, str] = {}
    if path.descriptor is not None:
        read = path.descriptor
        stops["descriptor"] = (
            f"`{read.word:#018x}`, from {read.start_address:#x}: instruction {read.mn_block} along mn, K step {read.k_step}; "
            f"element ({read.mn}, {read.k}) of what it reads"
        )
    if path.register is not None:
        register = path.register
        bits = extent(register.first_bit, path.plan.problem.data_type.bits, " to ")
        stops["registers"] = (
            f"fragment {register.block} of {register.instruction}: lane {register.lane}, register {register.register}, bits {bits}"
        )
        if register.address_lane is not None:
            stops["registers"] += f"; ldmatrix.x4 takes its row's address from lane {register.address_lane}"
    if path.result is not None:
        stops["result"] = _result_words(path)
    return stops


def _result_words(path: ElementPath) -> str:
    """Where its products are added up."""
    result = path.result
    assert result is not None
    place = f"its products go to {result.axis} {result.index} of the instruction's D"
    if result.memory == "registers":
        if result.axis == "row":
            return f"{place}: threads {number_span(result.threads[0], result.threads[-1], ' to ')} of the warpgroup"
        return f"{place}: one thread of each four of the warpgroup, from thread {result.threads[0]}"
    if result.lane_or_column is None:
        return f"{place}, in tensor memory"
    if result.axis == "row":
        return f"{place}: lane {result.lane_or_column} of tensor memory, every column of D"
    return f"{place}: column {result.lane_or_column} of D in tensor memory, in every lane of D"


def walk_element_path(path: ElementPath, **_: object) -> Iterator[Step]:
    """The K loop, one step after the other; then the chunks of the rows that are drawn, from left to right.

    >>> from tilescope.planner import plan
    >>> steps = [*walk_element_path(plan((128, 64), "bf16").best.path(37, 21))]
    >>> [(step.walk, step.goes) for step in steps[:5]]
    [('K loop', '37,5'), ('K loop', '37,21'), ('K loop', '37,37'), ('K loop', '37,53'), ('chunks', '32,5')]
    """
    window = PathWindow(path)
    yield from _k_loop(window)
    yield from _chunk_walk(window)


def _k_loop(window: PathWindow) -> Iterator[Step]:
    """The steps along k: of descriptors, or of the fragments that registers hold."""
    path = window.path
    k_per_step = window.k_per_step
    if k_per_step is None:
        return
    noun = "fragment" if path.descriptor is None else "K step"
    for step in range(path.plan.problem.tile[1] // k_per_step):
        taken = range(step * k_per_step, (step + 1) * k_per_step)
        read = [chunk for chunk in window.chunks if _overlap(window.k_of(chunk), taken)]
        sentence = f"{noun} {step}: k {extent(taken.start, len(taken), ' to ')}"
        if read:
            first_address = min(map(window.address, read))
            sentence += f", {counted(len(read), 'chunk')} of these rows, from {first_address:#x} on"
        links = " ".join(chunk.link for chunk in read)
        goes = f"{path.mn},{taken.start + path.k % k_per_step}"
        yield Step(links, sentence, goes, "K loop")


def _overlap(one: range, other: range) -> bool:
    """Whether two ranges of steps of 1 share a number."""
    return one.start < other.stop and other.start < one.stop


def _chunk_walk(window: PathWindow) -> Iterator[Step]:
    """The chunks of the drawn rows, with the place of each."""
    row_name, _ = window.names
    for row in window.rows:
        for number in range(window.chunks_of_row):
            chunk = Chunk(row, number)
            sentence = f"{row_name} {row}, chunk {number}: {window.place_words(chunk)}"
            yield Step(chunk.link, sentence, window.element_in(chunk), "chunks")


DRAWINGS = {ElementPath: draw_element_path}
WALKS = {ElementPath: walk_element_path}
