"""Copies of every kind on the card: what they leave in shared memory, on the barrier, or in global memory.

    suites            a case is one block, or a cluster of four, with
    loads … gather4   map, coords, smem, source        one load of the tensor at `source` in the pool
    plans             map, copies, source              all loads of one tile, as a plan has them
    stores …          map, coords, smem, image, memory, reduce
    bulk              direction, size, smem, global, image, memory

A load gives the barrier's word and shared memory, a store the span of global memory that it changed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

import numpy as np

from tilescope.arch import ArchName
from tilescope.arithmetic import ceil_div
from tilescope.data_type import DataType
from tilescope.gpu.driver.device import Device
from tilescope.gpu.verify.suites import UNTOUCHED, Array, Bytes, Case, Piece, Result, Suite, map_suite, memory, pool
from tilescope.gpu.verify.suites.map_suite import IMAGE_BYTES, TENSOR_BYTES, draw_place
from tilescope.layout import Major
from tilescope.planner import Plan, plan
from tilescope.tensor_map import REDUCTIONS as TYPES_OF_REDUCTION
from tilescope.tensor_map import AnyMap, Im2colMap, TensorMap
from tilescope.tma import bulk_load, bulk_store, gather4, load, load_multicast, scatter4, store
from tilescope.tma.bulk_copy import bulk_bytes

MEMORY_BYTES = TENSOR_BYTES // 2  # of global memory, as a case that stores sees it
TENSOR_OFFSET_BYTES = 1024  # of the tensor in it
OPERATIONS = (None, *TYPES_OF_REDUCTION)  # as kernels/copies.cu numbers them
_KINDS = ("tensor_map", "im2col_map", "bulk", "four rows")  # likewise
_ROWS = 4  # that gather4 and scatter4 take
_CLUSTER_BLOCKS = 4
_THREADS = 256  # of a block
_MAJORS: tuple[Major, ...] = ("K", "MN")
_MAP_SLOT_BYTES = 192  # of a map in the card's memory: room to put it off 64 bytes
# An mbarrier for one arrival after its first phase: phase 1, one arrival pending, no bytes outstanding
_WORD_AFTER = 0xFFFFF800001FFFFE
_PAIRS = [(operation, name) for operation, names in TYPES_OF_REDUCTION.items() for name in names]
_LARGEST_BULK_BYTES = 16400  # one chunk more than is drawn here: faults are drawn from these cases
_PLANNED_TYPES = ("bf16", "f16", "tf32", "f32", "e4m3", "s8")


def draw_copy(
    random: random.Random,
    arch: str,
    *,
    stores: bool = False,
    im2col: float = 0.0,
    rows4: bool = False,
    reduce: str | None = None,
    data_type: str | None = None,
) -> Case | None:
    """A load, or a store that overwrites no byte twice, near the tensor's edges; `im2col` is the share of such maps.

    With `rows4` a column and four rows of a matrix: in any order, some of them outside.
    """
    is_im2col = random.random() < im2col
    tensor_map = map_suite.draw_map(random, arch, data_type, im2col=is_im2col, dense=stores)
    too_few_rows = rows4 and (tensor_map.rank != 2 or tensor_map.dims[1] < _ROWS)
    if too_few_rows or (stores and map_suite.reach_bytes(tensor_map) > MEMORY_BYTES - TENSOR_OFFSET_BYTES):
        return None
    if isinstance(tensor_map, Im2colMap):
        coords = map_suite.draw_pixel(random, tensor_map, negative=not stores)
    else:
        coords = map_suite.draw_coords(random, tensor_map, negative=not stores)
    boxes = 1
    if rows4 and isinstance(tensor_map, TensorMap):
        boxes = _ROWS
        tensor_map = tensor_map.with_fields(box=(tensor_map.box[0], 1))
        rows = range(tensor_map.dims[1] + 2)
        chosen = random.sample(rows, _ROWS) if stores else random.choices((-1, *rows), k=_ROWS)
        coords = (coords[0], *chosen)
    room_bytes = IMAGE_BYTES - tensor_map.smem_bytes * boxes
    smem = 128 * random.randint(0, min(8, room_bytes // 128))
    case: Case = {"map": tensor_map.to_dict(), "coords": list(coords), "smem": smem}
    if rows4:
        case["gathers"] = True
    if stores:
        return case | {"reduce": reduce, "image": draw_place(random), "memory": draw_place(random)}
    if is_im2col:
        case["offsets"] = [random.randint(0, 4) for _ in range(tensor_map.rank - 2)]
    return case | {"source": draw_place(random)}


def _only_legal(case: Case | None) -> Case | None:
    """A copy that the chip should execute without a fault; copies refused by a RuleError belong to the suite of faults."""
    if case is not None:
        predict_copy(case)
    return case


def _draw_load(random: random.Random, arch: str) -> Case | None:
    return _only_legal(draw_copy(random, arch))


def _draw_im2col(random: random.Random, arch: str) -> Case | None:
    return _only_legal(draw_copy(random, arch, im2col=1.0))


def _draw_gather4(random: random.Random, arch: str) -> Case | None:
    return _only_legal(draw_copy(random, arch, rows4=True))


def _draw_store(random: random.Random, arch: str) -> Case | None:
    return _only_legal(draw_copy(random, arch, stores=True, im2col=0.2))


def _draw_scatter4(random: random.Random, arch: str) -> Case | None:
    return _only_legal(draw_copy(random, arch, stores=True, rows4=True))


def _draw_multicast(random: random.Random, arch: str) -> Case | None:
    """A load that one block may issue and, on sm_120, all of a cluster too: some go to .shared::cta alone there."""
    case = _draw_load(random, arch)
    if case is None:
        return None
    return _only_legal(case | {"mask": random.randint(1, (1 << _CLUSTER_BLOCKS) - 1)})


def _draw_reduction(random: random.Random, arch: str) -> Case | None:
    """Any operation of any type that it takes."""
    reduce, data_type = random.choice(_PAIRS)
    return _only_legal(draw_copy(random, arch, stores=True, im2col=0.2, reduce=reduce, data_type=data_type))


def draw_bulk(random: random.Random, _arch: str) -> Case:
    """A one-dimensional copy. Some sizes are not multiples of 16: the chip cuts them down and reports nothing."""
    size = random.randint(0, 1 << random.randint(0, 14))
    return {
        "direction": random.choice(("load", "store")),
        "size": size if random.random() < 0.4 else size // 16 * 16,
        "smem": 16 * random.randint(0, (IMAGE_BYTES - _LARGEST_BULK_BYTES) // 16 - 1),
        "global": 16 * random.randint(0, (MEMORY_BYTES - _LARGEST_BULK_BYTES) // 16 - 1),
        "memory": draw_place(random),
        "image": draw_place(random),
    }


def _draw_plan(random: random.Random, arch: str) -> Case | None:
    """One candidate of a random problem, somewhere on a matrix that need not be a multiple of the tile."""
    data_type = random.choice(_PLANNED_TYPES)
    size = DataType.named(data_type).bits // 8
    major = random.choice(_MAJORS) if size == 2 else "K"
    tile = (random.choice((8, 16, 24, 64, 96, 128)), 32 // size * random.choice((1, 2, 3, 4, 8)))
    consumer = random.choice(("ldmatrix", None)) if size == 2 else None
    fold = random.random() < 0.3
    contiguous = 16 // size * random.randint(1, 20)
    rows = random.randint(1, 200)
    shape = (rows, contiguous) if major == "K" else (contiguous, rows)
    candidates = _candidates(tile, data_type, major=major, arch=arch, fold=fold, consumer=consumer)
    if not candidates or rows * contiguous * size > TENSOR_BYTES:
        return None
    chosen = random.choice(candidates)
    tensor_map = chosen.tensor_map(1 << 30, shape)
    place = [random.randrange(ceil_div(extent, step)) * step for extent, step in zip(shape, tile, strict=True)]
    boxes: list[Case] = [
        {"coords": list(chosen.copy_coords(copy, *place)), "smem": copy.smem_offset_bytes} for copy in chosen.copies
    ]
    if max(copy["smem"] for copy in boxes) + tensor_map.smem_bytes > IMAGE_BYTES:
        return None
    return {"map": tensor_map.to_dict(), "copies": boxes, "source": draw_place(random)}


@cache
def _candidates(
    tile: tuple[int, int], data_type: str, *, major: Major, arch: ArchName, fold: bool, consumer: str | None
) -> tuple[Plan, ...]:
    """The plans of a problem: planning takes far longer than a copy, so a problem is planned once."""
    return plan(tile, data_type, major=major, arch=arch, fold=fold, consumer=consumer).candidates


def predict_copy(case: Case) -> list[Piece]:
    """The emulator's result of a case."""
    if _kernel(case) == "to_global":
        before = _memory_before(case)
        after = before.copy()
        _emulate_store(case, after)
        return _changed_pieces(before, after)
    images = np.full((_CLUSTER_BLOCKS if "mask" in case else 1, IMAGE_BYTES), UNTOUCHED, np.uint8)
    for copy in case.get("copies", [case]):
        _emulate_load(case, copy, images)
    mask = case.get("mask", 1)  # a block that receives nothing reports 1 as its word
    return _received_pieces([_WORD_AFTER if mask >> rank & 1 else 1 for rank in range(len(images))], images)


def _emulate_load(case: Case, copy: Case, images: Bytes) -> None:
    start = copy["smem"]
    smems = [image[start:] for image in images]
    if "size" in case:
        bulk_load(_memory_before(case), case["global"], case["size"], smem=smems[0], smem_address=start)
        return
    tensor_map = AnyMap.from_dict(case["map"])
    memory = pool()[case["source"] :]
    if "mask" in case:
        load_multicast(tensor_map, memory, copy["coords"], smems, cta_mask=case["mask"], smem_address=start)
    elif "gathers" in case:
        column, *rows = copy["coords"]
        gather4(tensor_map, memory, column, rows, smem=smems[0], smem_address=start)
    else:
        offsets = copy.get("offsets", ())
        load(tensor_map, memory, copy["coords"], offsets=offsets, smem=smems[0], smem_address=start)


def _emulate_store(case: Case, memory: Bytes) -> None:
    start = case["smem"]
    tensor = memory[TENSOR_OFFSET_BYTES:]
    smem = pool()[case["image"] :][start:IMAGE_BYTES]
    if "size" in case:
        bulk_store(smem, memory, case["global"], case["size"], smem_address=start)
    elif "gathers" in case:
        column, *rows = case["coords"]
        scatter4(AnyMap.from_dict(case["map"]), smem, tensor, column, rows, smem_address=start)
    else:
        store(AnyMap.from_dict(case["map"]), smem, tensor, case["coords"], reduce=case["reduce"], smem_address=start)


def _memory_before(case: Case) -> Bytes:
    return pool()[case["memory"] :][:MEMORY_BYTES]


def _received_pieces(words: Iterable[int], images: Bytes) -> list[Piece]:
    """The barrier's word, then shared memory up to the last byte written; of a cluster, those of every block with their size."""
    pieces = []
    for rank, (word, image) in enumerate(zip(words, images, strict=True)):
        whose = f"block {rank}, " if len(images) > 1 else ""
        written = memory(f"{whose}shared memory", image.tobytes().rstrip(bytes([UNTOUCHED])))
        after = Piece(f"{whose}the barrier's word (0: it never passed)", np.array([word], "<u8"))
        size = Piece(f"{whose}bytes of its result", np.array([8 + written.numbers.size], "<u4"))
        pieces += [size, after, written] if len(images) > 1 else [after, written]
    return pieces


def _changed_pieces(before: Bytes, after: Bytes) -> list[Piece]:
    """Where memory changed first, and its bytes from there to the last that changed; 0 and none where it did not."""
    changed = np.flatnonzero(before != after)
    first, end = (changed[0], changed[-1] + 1) if changed.size else (0, 0)
    start = Piece("where memory changed first", np.array([first], "<u4"))
    return [start, memory("global memory from there", after[first:end])]


def _kernel(case: Case) -> str:
    """The kernel of kernels/copies.cu that runs a case."""
    if case.get("direction") == "store" or "reduce" in case:
        return "to_global"
    return "to_cluster" if "mask" in case else "to_shared"


def run(device: Device, cases: list[Case]) -> Iterable[Result]:
    """What the card makes of cases that one kernel runs."""
    kernel = _kernel(cases[0])
    source = device.upload(pool())
    if kernel == "to_global":
        results = _run_stores(device, cases, source)
    else:
        results = _run_loads(device, cases, source, blocks=_CLUSTER_BLOCKS if kernel == "to_cluster" else 1)
    return ([piece.numbers for piece in pieces] for pieces in results)


def _run_stores(device: Device, cases: list[Case], source: int) -> list[list[Piece]]:
    before = np.stack([_memory_before(case) for case in cases])
    target = device.upload(before)
    tensors = [target + number * MEMORY_BYTES + TENSOR_OFFSET_BYTES for number in range(len(cases))]
    device.launch(
        "copies:to_global",
        *_tables(device, cases, tensors),
        source,
        MEMORY_BYTES,
        target,
        blocks=len(cases),
        threads=_THREADS,
        smem_bytes=IMAGE_BYTES,
    )
    after = device.download(target, before.copy())
    return list(map(_changed_pieces, before, after))


def _run_loads(device: Device, cases: list[Case], source: int, *, blocks: int) -> list[list[Piece]]:
    """Loads of cases with this many blocks each."""
    tensors = [source + case.get("source", 0) for case in cases]
    words = np.empty((len(cases), blocks), "<u8")
    images = np.empty((*words.shape, IMAGE_BYTES), np.uint8)
    device.launch(
        f"copies:{_kernel(cases[0])}",
        *_tables(device, cases, tensors),
        source,
        IMAGE_BYTES,
        out=(images, words),
        blocks=words.size,
        threads=_THREADS,
        smem_bytes=IMAGE_BYTES,
    )
    return list(map(_received_pieces, words, images))


def _tables(device: Device, cases: list[Case], tensors: list[int]) -> tuple[Array, ...]:
    """The maps that the driver encodes, and the rows of integers of copies and blocks, as kernels/copies.cu reads them."""
    blobs = b""
    copies: list[list[int]] = []
    blocks: list[list[int]] = []
    for case, address in zip(cases, tensors, strict=True):
        case_copies = case.get("copies", [case])
        shift = case.get("map_shift", 0)
        if "map" in case:
            tensor_map = AnyMap.from_dict(case["map"])
            blob = device.encode_map(tensor_map, address)
            rank = tensor_map.rank
            kind = "four rows" if "gathers" in case else case["map"]["kind"]
            rows = _ROWS if "gathers" in case else 1
            expected = tensor_map.transaction_bytes * len(case_copies) * rows
        else:
            blob = b""
            rank = 1
            kind = "bulk"
            expected = bulk_bytes(case["size"])
        blocks.append([len(copies), len(case_copies), expected, IMAGE_BYTES])
        copies += [[_KINDS.index(kind), rank, *_row(case, copy, len(blobs) + shift)] for copy in case_copies]
        blobs += (bytes(shift) + blob).ljust(_MAP_SLOT_BYTES, b"\0")
    return np.frombuffer(blobs, np.uint8), np.array(copies, np.int32), np.array(blocks, np.int32)


def _row(case: Case, copy: Case, map_place: int) -> list[int]:
    """A copy as kernels/copies.cu reads it, behind its kind and rank."""
    coords = copy.get("coords")
    if coords is None:  # a bulk copy: a place in the pool, or in the memory of its block
        coords = [case["global"] + (case["memory"] if case["direction"] == "load" else 0)]
    size = OPERATIONS.index(case["reduce"]) if "reduce" in case else case.get("size", 0)
    mask = case["image"] if _kernel(case) == "to_global" else case.get("mask", 0)
    places = [*coords, *[0] * 4][:5] + [*copy.get("offsets", []), *[0] * 3][:3]
    return [*places, copy["smem"], map_place, size, mask, case.get("barrier_shift", 0), 0]


LOADS = Suite("loads", _draw_load, predict_copy, run, kernels=("copies",), kind=_kernel)
IM2COL = replace(LOADS, name="im2col", draw=_draw_im2col)
MULTICAST = replace(LOADS, name="multicast", draw=_draw_multicast, count=200, together=100, feature="multicast")
GATHER4 = replace(LOADS, name="gather4", draw=_draw_gather4, feature="gather4")
BULK = replace(LOADS, name="bulk", draw=draw_bulk)
PLANS = replace(LOADS, name="plans", draw=_draw_plan)
STORES = replace(LOADS, name="stores", draw=_draw_store)
REDUCTIONS = replace(LOADS, name="reductions", draw=_draw_reduction)
SCATTER4 = replace(LOADS, name="scatter4", draw=_draw_scatter4, feature="scatter4")
