"""Whole kernels: what fits is laid out without overlap in use and proven; what is refused does not fit."""

import contextlib
import itertools
import random

import pytest
from exhaustive_placement import fits_side_by_side, fits_somehow, has_pair_to_share, shared_tiles
from random_kernels import random_kernel, ring_kernel
from refused_kernels import MAMBA3_BACKWARD, SIDE_BY_SIDE, flashinfer_prefill

import tilescope as ts
from tilescope.arch import ARCH
from tilescope.kernel_plan.interval_packing import Item, pack
from tilescope.kernel_plan.kernel_file import read_kernel
from tilescope.kernel_plan.stage_search import Limits, StageSearch


def conflicting_bytes(plan):
    """Pairs of tiles that are alive in the same step and share bytes, with that step: a naive walk over all of them."""
    found = []
    for one, other in itertools.combinations(plan.tiles, 2):
        ring = plan.kernel.tile(one.name).ring
        if ring and ring == plan.kernel.tile(other.name).ring:
            continue
        shared = range(max(one.offset_bytes, other.offset_bytes), min(one.end_bytes, other.end_bytes))
        if shared:
            steps = range(len(plan.kernel.steps))
            both = [step for step in steps if all(is_in_use(plan.kernel, tile, step) for tile in (one, other))]
            found += [(one.name, other.name, step) for step in both]
    return found


def is_in_use(kernel, tile, step):
    """Whether a tile may hold data in a step: by its accesses and the loops around them alone."""
    accesses = [place for place, row in enumerate(kernel.steps) if tile.name in (*row.reads, *row.writes, row.a, row.b)]
    if min(accesses) <= step <= max(accesses):
        return True
    loops = {kernel.steps[place].loop for place in accesses}
    inner = len(loops) == 1 and tile.stages > 1
    crosses = len(loops) > 1 and kernel.steps[step].loop == "inner" and "inner" in loops
    return (inner and kernel.steps[step].loop in loops) or crosses


@pytest.mark.thinned(24)
@pytest.mark.parametrize("seed", range(200))
def test_random_kernels_are_laid_out_without_overlap_in_use_and_proven(seed):
    try:
        plan = ts.plan_kernel(random_kernel(seed))
    except ts.PlanError as error:
        refused_by = {violation.rule for violation in error.violations}
    else:
        refused_by = set()
    if refused_by:
        assert refused_by == {"kernel-smem"}
        return
    assert conflicting_bytes(plan) == []
    barriers = range(
        plan.barriers_offset_bytes, plan.barriers_offset_bytes + 8 * sum(row.stages for row in plan.barriers)
    )
    for tile in plan.tiles:
        assert tile.offset_bytes % tile.alignment_bytes == 0
        assert tile.end_bytes <= plan.smem_bytes <= plan.smem_limit_bytes
        assert not range(max(tile.offset_bytes, barriers.start), min(tile.end_bytes, barriers.stop))
    assert ts.simulate(plan.pipeline).verdict == "proven"


@pytest.fixture
def placements(monkeypatch):
    """`placements(kernel)`: how many choices of stages are placed until it is planned or refused."""
    placed = []
    place = StageSearch._place

    def counted(search, counts, **options):
        placed.append(counts)
        return place(search, counts, **options)

    monkeypatch.setattr(StageSearch, "_place", counted)

    def count(kernel):
        placed.clear()
        with contextlib.suppress(ts.PlanError):
            ts.plan_kernel(kernel)
        return len(placed)

    return count


@pytest.mark.parametrize(("rings", "most"), list(itertools.product((4, 8, 12), (4, 8, 32))))
@pytest.mark.thinned(4)
def test_kernels_of_many_rings_are_placed_a_few_times_for_each_ring(placements, rings, most):
    """There are most ** rings choices of stages: planning has to take milliseconds."""
    for seed, loops in enumerate((1, 4)):
        assert placements(ring_kernel(seed, rings, (1, most), loops=loops)) <= 40 * rings


def test_kernels_of_any_kind_are_placed_a_few_times(placements):
    assert max(placements(random_kernel(seed)) for seed in range(20)) <= 40


@pytest.mark.parametrize("seed", range(30))
def test_stages_are_those_that_raising_one_ring_at_a_time_gives(seed):
    search = StageSearch(
        read_kernel(ring_kernel(seed, 3 + seed % 3, (1, 6), loops=1 + seed % 3)), ARCH["sm_90"], Limits(232448, 0)
    )
    counts, full = search.least, set()
    while len(full) < len(counts):
        ring = min((number for number in range(len(counts)) if number not in full), key=lambda each: counts[each])
        raised = tuple(count + (number == ring) for number, count in enumerate(counts))
        if counts[ring] < search.most[ring] and search.fits(raised):
            counts = raised
        else:
            full.add(ring)
    assert next(search.ranked()) == counts


def has_lower_layout(items, conflicts, height):
    """Whether some layout ends below `height`: all places of all items are tried."""
    places = [range(0, height - item.size, item.alignment) for item in items]
    for offsets in itertools.product(*places):
        placed = list(zip(items, offsets, strict=True))
        if all(
            (one.name, other.name) not in conflicts or start + one.size <= end or end + other.size <= start
            for (one, start), (other, end) in itertools.combinations(placed, 2)
        ):
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_no_layout_is_lower_than_the_one_found(seed):
    draw = random.Random(seed)
    items = [Item(name, draw.randint(1, 4), draw.choice((1, 1, 2))) for name in "abcd"]
    pairs = [pair for pair in itertools.combinations("abcd", 2) if draw.random() < 0.6]
    conflicts = frozenset([*pairs, *((right, left) for left, right in pairs)])
    found = pack(items, conflicts, lower_bound=0)
    assert found.is_lowest
    assert not has_lower_layout(items, conflicts, found.height)
    assert has_lower_layout(items, conflicts, found.height + 1)


SMALL = [seed for seed in range(200) if 2 <= len(shared_tiles(random_kernel(seed))) <= 5]
BLOCKS_PER_SM = (2, 3, 4, 6)


def limit_of(blocks):
    """Bytes of a block where so many share an SM of sm_90, each with 1,024 reserved bytes."""
    return min(232448, 233472 // blocks - 1024)


@pytest.mark.thinned(24)
@pytest.mark.parametrize("seed", SMALL)
def test_what_is_infeasible_has_no_place_anywhere(seed):
    """A kernel is refused if, and only if, no placement of its tiles fits: all are tried."""
    kernel = random_kernel(seed) | {"arch": "sm_90"}
    for blocks in BLOCKS_PER_SM:
        refused_by = set()
        try:
            assert ts.plan_kernel(kernel, blocks_per_sm=blocks).smem_limit_bytes == limit_of(blocks)
        except ts.PlanError as error:
            refused_by = {violation.rule for violation in error.violations}  # registers may be too few besides
        assert ("kernel-smem" in refused_by) != fits_somehow(kernel, limit_of(blocks)), blocks


def test_small_kernels_fit_side_by_side_or_by_overlays_or_not_at_all():
    """So the search above decides something: each kind is there, of kernels whose tiles may share bytes."""
    kinds = set()
    for seed, blocks in itertools.product(SMALL, BLOCKS_PER_SM):
        kernel = random_kernel(seed)
        if has_pair_to_share(kernel):
            limit = limit_of(blocks)
            kinds.add((fits_side_by_side(kernel, limit), fits_somehow(kernel, limit)))
    assert kinds == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("stages", range(1, 8))
@pytest.mark.parametrize("rows", [64, 128, 256])
def test_what_is_refused_exceeds_the_block(stages, rows):
    """Without overlays the bytes are a plain sum, so whether a kernel fits is known."""
    kernel = {
        "arch": "sm_120",
        "roles": {"producer": {"warps": 1}, "consumer": {"warps": 4}},
        "tiles": {"a": {"shape": [rows, 64], "data_type": "bf16", "stages": stages}},
        "loops": {"k": {}},
        "steps": [
            {"role": "producer", "operation": "load", "writes": ["a"], "loop": "k"},
            {"role": "consumer", "operation": "threads", "reads": ["a"], "loop": "k"},
        ],
    }
    fits = stages * rows * 64 * 2 + stages * 2 * 8 <= 101376
    if fits:
        assert ts.plan_kernel(kernel).stages == {"a": stages}
    else:
        with pytest.raises(ts.PlanError, match=r"kernel-smem.*101376"):
            ts.plan_kernel(kernel)


def refusal(kernel, **options):
    """The violation of a kernel that does not fit."""
    with pytest.raises(ts.PlanError) as error:
        ts.plan_kernel(kernel, **options)
    (violation,) = error.value.violations
    return violation


def test_flash_attention_4_of_head_dimension_16_has_no_room_for_52_stages():
    sizes = {"D": 16, "DV": 16, "LEAST": 52, "STAGES": 52}  # (224 KiB - Q and O) / 4096, as its heuristic had it
    found = refusal("flash-attention-4-forward-64", sizes=sizes)
    assert found.rule == "kernel-smem"
    assert found.values["needed_bytes"] == 233472
    assert found.values["limit_bytes"] == 232448
    assert "51 stages" in found.fix
    assert ts.plan_kernel("flash-attention-4-forward-64", sizes=sizes | {"LEAST": 51, "STAGES": 51}).left_bytes >= 0


def test_mamba_3_backward_exceeds_sm_120():
    found = refusal(MAMBA3_BACKWARD)
    assert (found.values["needed_bytes"], found.values["limit_bytes"]) == (210112, 101376)


def test_two_accumulators_of_64_rows_side_by_side_exceed_tensor_memory():
    found = refusal(SIDE_BY_SIDE)
    assert (found.rule, found.values["needed_columns"], found.values["limit_columns"]) == ("kernel-tmem", 640, 512)
    assert "share columns: 320 columns" in found.fix
    tiles = {name: row | {"share_lanes": True} for name, row in SIDE_BY_SIDE["tiles"].items()}
    plan = ts.plan_kernel(SIDE_BY_SIDE | {"tiles": tiles})
    assert plan.tmem_columns == 320
    assert {(row.first_column, row.lane) for row in plan.columns if row.tile == "O"} in (
        {(0, 0), (0, 16)},
        {(64, 0), (64, 16)},
    )
    assert ts.simulate(plan.pipeline).verdict == "proven"


def test_scales_of_nvfp4_are_counted():
    assert ts.plan_kernel(flashinfer_prefill(8, scales=False)).smem_bytes == 128 * 128 * 2 + 8 * 16 * 128
    found = refusal(flashinfer_prefill(8, scales=True))
    assert found.values["needed_bytes"] == 128 * 128 * 2 + 8 * 16 * (128 + 2 * 128 // 16)
    assert ts.plan_kernel(flashinfer_prefill(7, scales=True)).left_bytes >= 0


def test_setmaxnreg_is_held_to_the_registers_at_entry():
    sizes = {"PRODUCER": 32, "CONSUMER": 240}
    assert refusal("flash-attention-3-forward-128", sizes=sizes).rule == "kernel-register-split"
    assert ts.plan_kernel("flash-attention-3-forward-128", sizes=sizes | {"CONSUMER": 232}).entry_registers == 168


def test_operations_that_an_architecture_lacks_are_refused():
    found = refusal("gemm", arch="sm_120")
    assert (found.rule, found.argument) == ("kernel-step", "steps[1]")
    assert "sm_90" in found.limit


def test_every_mistake_of_a_file_is_named_at_once():
    text = """
    [roles]
    p = {warps = 0}
    [tiles]
    a = {shape = [64], data_type = "bf17", stages = [3, 2]}
    [[steps]]
    role = "q"
    operation = "lode"
    """
    with pytest.raises(ts.RuleError) as error:
        ts.plan_kernel(text)
    assert len(error.value.violations) == 4


def test_a_plan_reads_back_from_its_json():
    plan = ts.plan_kernel("gemm")
    assert type(plan).from_dict(plan.to_dict()) == plan
