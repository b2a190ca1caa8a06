"""The way of one element, drawn: the same chunks of 16 bytes in global memory, in shared memory and as they are read.

    Global memory          Shared memory            Read in K step
    k    0-7  8-15 …       bank  0-3   4-7 …        k    0-7  8-15 …
    36    ■    □           line 36  36.4  36.5 …    36    0    0     1
    37    ■    □           line 37  37.5  37.4 …    37    0    0     1

A chunk has one colour and one link in all of them, so that hovering it anywhere shows it everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tilescope.layout import Major, oriented
from tilescope.mma.readings import inspect_descriptor
from tilescope.planner.consumers import operand_of
from tilescope.planner.element_path import ElementPath, fragment_of, row_threads, tmem_lane
from tilescope.sentence import by, counted
from tilescope.swizzle import CHUNK_BYTES, SMEM_LINE_BYTES
from tilescope.view.drawing import Beside, Drawing, Part, Table
from tilescope.view.grid import Cell, Grid
from tilescope.view.memory_grid import bank_of, memory_grid
from tilescope.view.number_span import extent, number_span
from tilescope.view.palette import Mark
from tilescope.view.ruler import BitRuler
from tilescope.view.step import Step
from tilescope.view.word_ruler import word_ruler

_SHOWN_ROWS = 8  # of the tile: those of a swizzle's pattern
_SHOWN_CHUNKS = 8  # of a row


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
    window = _Window(path)
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
    window = _Window(path)
    row, column = oriented(window.major, path.mn, path.k)
    rows, columns = oriented(window.major, *path.plan.problem.tile)
    around = {
        "ArrowUp": (row - 1, column),
        "ArrowDown": (row + 1, column),
        "ArrowLeft": (row, column - window.elements),
        "ArrowRight": (row, column + window.elements),
    }
    inside = {key: place for key, place in around.items() if 0 <= place[0] < rows and 0 <= place[1] < columns}
    return {key: _written(*oriented(window.major, *place)) for key, place in inside.items()}


def _written(mn: int, k: int) -> str:
    """An element as the field of a page holds it."""
    return f"{mn},{k}"


def _stops(path: ElementPath) -> dict[str, str]:
    """What is said of each stop."""
    plan = path.plan
    chunk_at = f"byte {path.gmem_offset_bytes:#x} from the tile's corner, in chunk {path.chunk} of row {path.row}"
    stops = {"global memory": chunk_at + (f", from bit {path.first_bit}" if path.first_bit else "")}
    if path.copy is not None:
        copy = path.copy
        stops["copy"] = (
            f"{counted(plan.tma_instructions, 'copy', 'copies')} of box {by(plan.box or ())}: number {copy.number}, at "
            f"coordinates {copy.coords}, brings it as element {copy.place} of its box, to +{copy.smem_offset_bytes:#x}"
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
    """The chunk of its line in which it would lie without the swizzle."""
    return path.plan.swizzle.apply(path.address) % SMEM_LINE_BYTES // CHUNK_BYTES


def _reading_stops(path: ElementPath) -> dict[str, str]:
    """What is said of those who read it."""
    stops: dict[str, str] = {}
    if path.descriptor is not None:
        read = path.descriptor
        stops["descriptor"] = (
            f"`{read.word:#018x}`, from {read.start_address:#x}: instruction {read.mn_block} along mn, K step {read.k_step}; "
            f"element ({read.mn}, {read.k}) of what it reads"
        )
    if path.register is not None:
        held = path.register
        bits = extent(held.first_bit, path.plan.problem.data_type.bits, " to ")
        stops["registers"] = (
            f"fragment {held.block} of {held.instruction}: lane {held.lane}, register {held.register}, bits {bits}"
        )
        if held.address_lane is not None:
            stops["registers"] += f"; ldmatrix.x4 takes its row's address from lane {held.address_lane}"
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


@dataclass(frozen=True)
class _Window:
    """The rows and chunks of the tile around an element that are drawn."""

    path: ElementPath

    @cached_property
    def rows(self) -> range:
        """Of the tile, contiguous index across."""
        rows = oriented(self.major, *self.path.plan.problem.tile)[0]
        first = self.path.row // _SHOWN_ROWS * _SHOWN_ROWS
        return range(first, min(first + _SHOWN_ROWS, rows))

    @cached_property
    def chunks(self) -> range:
        """Of a row."""
        columns = oriented(self.major, *self.path.plan.problem.tile)[1]
        chunks = max(1, columns // self.elements)
        first = self.path.chunk // _SHOWN_CHUNKS * _SHOWN_CHUNKS
        return range(first, min(first + _SHOWN_CHUNKS, chunks))

    @property
    def major(self) -> Major:
        """The contiguous dimension of the tile."""
        return self.path.plan.problem.major

    @property
    def names(self) -> tuple[str, str]:
        """Of rows and columns."""
        return oriented(self.major, "mn", "k")

    @cached_property
    def elements(self) -> int:
        """Of a chunk."""
        return CHUNK_BYTES * 8 // self.path.plan.containers.element_bits

    @cached_property
    def places(self) -> dict[tuple[int, int], int]:
        """The shared address of every chunk that is drawn, by row and chunk."""
        tile = self.path.plan.containers.with_start(self.path.smem_address).as_rows()
        return {
            (row, chunk): int(tile.address(row, chunk * self.elements)) for row in self.rows for chunk in self.chunks
        }

    def headers(self) -> dict[int, str]:
        """The columns that each chunk holds."""
        return {chunk: extent(chunk * self.elements, self.elements) for chunk in self.chunks}

    def cell(self, row: int, chunk: int, text: str, said: str = "") -> Cell:
        """A chunk, as every picture shows it."""
        down, across = self.names
        address = self.places[row, chunk]
        title = (
            f"{down} {row}, {across} {extent(chunk * self.elements, self.elements, ' to ')}: at {address:#x}, "
            f"banks {number_span(bank_of(address), bank_of(address) + 3)}; {said or self.reader_words(row, chunk)}"
        )
        is_asked = (row, chunk) == (self.path.row, self.path.chunk)
        mark: Mark = "focus" if is_asked else ""
        return Cell(text, chunk % 8, mark, title, link=f"{row}.{chunk}", goes=self.element_in(row, chunk))

    def element_in(self, row: int, chunk: int) -> str:
        """The element of a chunk that has the place which the asked one has in its own."""
        columns = oriented(self.major, *self.path.plan.problem.tile)[1]
        column = min(chunk * self.elements + self._column % self.elements, columns - 1)
        return _written(*oriented(self.major, row, column))

    @cached_property
    def _column(self) -> int:
        """Of the tile, that the element is in."""
        return oriented(self.major, self.path.mn, self.path.k)[1]

    def element_grid(self) -> Grid:
        """The elements of the chunk, one by one."""
        down, across = self.names
        row, chunk = self.path.row, self.path.chunk
        columns = oriented(self.major, *self.path.plan.problem.tile)[1]
        first = chunk * self.elements
        tile = self.path.plan.containers.with_start(self.path.smem_address).as_rows()

        def cell(_: str, column: int) -> Cell:
            address = int(tile.address(row, column))
            title = f"{down} {row}, {across} {column}: byte {address:#x}, bank {bank_of(address)}"
            mark: Mark = "focus" if column == self._column else ""
            goes = _written(*oriented(self.major, row, column))
            return Cell(str(column), chunk % 8, mark, title, link=f"{row}.{chunk}.{column} {row}.{chunk}", goes=goes)

        return Grid.of(
            f"The elements of chunk {chunk} of {down} {row}",
            ("", across),
            [f"{down} {row}"],
            range(first, min(first + self.elements, columns)),
            cell,
        )

    def gmem_grid(self) -> Grid:
        """The chunks as they lie in the matrix."""
        return Grid.of(
            "Global memory: the rows of the tile",
            self.names,
            self.rows,
            self.headers(),
            lambda row, chunk: self.cell(row, chunk, f"{row}.{chunk}"),
            notes=["A cell is 16 bytes: row.chunk. The framed one holds the element."],
        )

    def smem_grid(self) -> Grid:
        """The lines of shared memory that hold the chunks."""
        chunk_at = {address: place for place, address in self.places.items()}
        lines = sorted({address // SMEM_LINE_BYTES * SMEM_LINE_BYTES for address in chunk_at})

        def cell(address: int) -> Cell:
            if address not in chunk_at:
                return Cell("", "unused", title=f"{address:#x}: rows that are not drawn")
            row, chunk = chunk_at[address]
            return self.cell(row, chunk, f"{row}.{chunk}")

        return memory_grid("Shared memory: where they lie", lines, cell)

    def k_of(self, row: int, chunk: int) -> int:
        """The first k of a chunk."""
        return oriented(self.major, row, chunk * self.elements)[1]

    def has_k_of(self, place: tuple[int, int], taken: range) -> bool:
        """Whether a chunk, by its row and number, holds a k of a K step."""
        first = self.k_of(*place)
        last = first + (self.elements - 1 if self.names[1] == "k" else 0)
        return first < taken.stop and last >= taken.start

    def reader_words(self, row: int, chunk: int) -> str:
        """Who reads a chunk, as a piece of a sentence."""
        text = self.reader(row, chunk)
        if self.path.descriptor is not None:
            return f"read in K step {text}"
        if self.path.register is not None:
            return f"held by {text}"
        return f"read by {self.path.plan.problem.consumer_name}"

    @cached_property
    def _k_per_step(self) -> int:
        return self.path.plan.descriptors().k_per_step

    def reader(self, row: int, chunk: int) -> str:
        """Who reads a chunk, in a cell: the K step, or the lanes and register that hold it."""
        if self.path.descriptor is not None:
            first = self.k_of(row, chunk) // self._k_per_step
            is_along_k = self.names[1] == "k"
            last = (self.k_of(row, chunk) + (self.elements - 1 if is_along_k else 0)) // self._k_per_step
            return number_span(first, last)
        if self.path.register is not None:
            return self._held(row, chunk)
        return f"{row}.{chunk}"

    def _held(self, row: int, chunk: int) -> str:
        """The lanes and the register that hold a chunk after ldmatrix."""
        problem = self.path.plan.problem
        operand = problem.operand or "A"
        held = fragment_of(operand, problem.data_type.name)
        assert held is not None  # a register was found in it
        columns = (chunk * self.elements, (chunk + 1) * self.elements - 1)
        lanes, registers = [], []
        for column in columns:
            mn, k = oriented(self.major, row, column)
            place = (
                (mn % held.shape[0], k % held.shape[1]) if operand == "A" else (k % held.shape[0], mn % held.shape[1])
            )
            lane, value = held.holder(*place)
            lanes.append(lane)
            registers.append(held.register_of(value)[0])
        return f"T{number_span(lanes[0], lanes[1])} r{number_span(registers[0], registers[1])}"

    def reading_grid(self) -> Grid:
        """The chunks as the tensor core takes them."""
        titles = {True: "Tensor core: the K step that reads them", False: "Registers: the threads that hold them"}
        title = titles[self.path.descriptor is not None]
        if self.path.descriptor is None and self.path.register is None:
            title = f"Read by {self.path.plan.problem.consumer_name}"
        return Grid.of(
            title,
            self.names,
            self.rows,
            self.headers(),
            lambda row, chunk: self.cell(row, chunk, self.reader(row, chunk)),
        )

    def result_grid(self) -> Grid:
        """The rows or columns of D to which the chunks contribute."""
        result = self.path.result
        assert result is not None
        if self.names[0] == "mn":
            groups = {str(row): ([(row, chunk) for chunk in self.chunks], row, row) for row in self.rows}
        else:
            groups = {
                header: ([(row, chunk) for row in self.rows], chunk * self.elements, (chunk + 1) * self.elements - 1)
                for chunk, header in self.headers().items()
            }
        block_mn = self.path.plan.descriptors().block_mn
        asked = (self.path.row, self.path.chunk)

        def cell(name: str, _: str) -> Cell:
            chunks, first, last = groups[name]
            text = self._holder_text(first % block_mn, last % block_mn)
            is_asked = first <= self.path.mn <= last
            link = " ".join(f"{row}.{chunk}" for row, chunk in chunks)
            title = f"{result.axis} {number_span(first % block_mn, last % block_mn)} of D: {text}"
            goes = self.element_in(*(next((place for place in chunks if place == asked), chunks[0])))
            return Cell(text, None, "focus" if is_asked else "", title, link=link, goes=goes)

        where = "registers" if result.memory == "registers" else "tensor memory"
        return Grid.of(
            f"Result: {result.axis}s of D in {where}", ("mn", "held by"), {name: name for name in groups}, ["D"], cell
        )

    def _holder_text(self, first: int, last: int) -> str:
        """Who holds rows or columns of D."""
        result = self.path.result
        assert result is not None
        if result.memory == "tensor memory":
            if operand_of(self.path.plan.problem) == "B":
                return f"col {number_span(first, last)}"
            lanes = [tmem_lane(row, self.path.plan.descriptors().block_mn) for row in (first, last)]
            if lanes[0] is None or lanes[1] is None:
                return "by layout"
            return f"lane {number_span(lanes[0], lanes[1])}"
        if result.axis == "column":
            return f"col {number_span(first, last)}"
        return f"T{number_span(row_threads(first)[0], row_threads(last)[-1])}"


def walk_element_path(path: ElementPath, **_: object) -> Iterator[Step]:
    """The K loop, one step after the other; then the chunks of the rows that are drawn, from left to right.

    >>> from tilescope.planner import plan
    >>> steps = [*walk_element_path(plan((128, 64), "bf16").best.path(37, 21))]
    >>> [(step.walk, step.goes) for step in steps[:5]]
    [('K loop', '37,5'), ('K loop', '37,21'), ('K loop', '37,37'), ('K loop', '37,53'), ('chunks', '32,5')]
    """
    window = _Window(path)
    yield from _k_loop(window)
    yield from _chunk_walk(window)


def _k_loop(window: _Window) -> Iterator[Step]:
    """The steps along k: of descriptors, or of the fragments that registers hold."""
    path = window.path
    if path.descriptor is not None:
        k_per_step = path.plan.descriptors().k_per_step
        noun = "K step"
    elif path.register is not None:
        problem = path.plan.problem
        operand = problem.operand or "A"
        held = fragment_of(operand, problem.data_type.name)
        assert held is not None  # a register was found in it
        k_per_step = held.shape[1] if operand == "A" else held.shape[0]
        noun = "fragment"
    else:
        return
    places = [(row, chunk) for row in window.rows for chunk in window.chunks]
    for step in range(path.plan.problem.tile[1] // k_per_step):
        taken = range(step * k_per_step, (step + 1) * k_per_step)
        read = [place for place in places if window.has_k_of(place, taken)]
        sentence = f"{noun} {step}: k {extent(taken.start, len(taken), ' to ')}"
        if read:
            addresses = sorted(window.places[place] for place in read)
            sentence += f", {counted(len(read), 'chunk')} of these rows, from {addresses[0]:#x} on"
        links = " ".join(f"{row}.{chunk}" for row, chunk in read)
        yield Step(links, sentence, _written(path.mn, taken.start + path.k % k_per_step), "K loop")


def _chunk_walk(window: _Window) -> Iterator[Step]:
    """The chunks of the rows that are drawn, with where each lies."""
    down, _ = window.names
    columns = oriented(window.major, *window.path.plan.problem.tile)[1]
    tile = window.path.plan.containers.with_start(window.path.smem_address).as_rows()
    for row in window.rows:
        for chunk in range(max(1, columns // window.elements)):
            address = int(tile.address(row, chunk * window.elements))
            sentence = f"{down} {row}, chunk {chunk}: at {address:#x}, banks {number_span(bank_of(address), bank_of(address) + 3)}"
            yield Step(f"{row}.{chunk}", sentence, window.element_in(row, chunk), "chunks")


DRAWINGS = {ElementPath: draw_element_path}
WALKS = {ElementPath: walk_element_path}
