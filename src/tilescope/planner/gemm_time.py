"""How long a GEMM takes: a prediction with its parts, fitted to kernels of this emitter on an H200.

    launch      from one kernel of a graph to the next; less where it starts before that one has ended
    steps       the K steps of the busiest SM: a step takes what the longest of three takes
                    products    wgmma of all 64-row blocks and of all 32 bytes of k, by its columns or by what it reads of
                                shared memory
                    issue       one wait, one promise and the copies of a producer warp, one for every span of k of each
                                operand; two warps take turns
                    loads       the bytes of the step at one SM's rate
    memory      A and B read and C written once; operands again if the order of the tiles exceeds the L2
    L2          the longer of two: all bytes that it delivers, more where rows straddle lines, fewer where clusters share
                them; and the bytes that it reads, where rows that several of 16 blocks fetch count once (tile_groups.py)
    power       long products run slower: the clock falls
    main loop   the longest of steps, memory, L2 and power, a little more where they are close
    epilogue    the sums of the last round converted and stored; those of other rounds are part of the steps, less what loads go
                on meanwhile, and nothing where warpgroups take turns
    adding      what blocks that share k send each other

`gemm_rates.py` has the constants. Of tcgen05, and of mma where a card has nothing faster, no kernel was measured:
`documented_time.py` predicts those.

16 x 4096 x 4096 bf16, tile 16 x 64, swapped:  2.7 launch + 8.7 main loop (memory) + 0.0 epilogue = 11.4 us
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, gcd, log10, prod, sqrt
from typing import NamedTuple

from tilescope.arch import Basis
from tilescope.arithmetic import ceil_div
from tilescope.card import Card
from tilescope.planner.block_scales import scaled_step_us
from tilescope.planner.documented_time import multiplies_by_lanes, predict_by_documents
from tilescope.planner.gemm_plan import tile_grid
from tilescope.planner.gemm_rates import H200_RATES, GemmRates, transfer_us
from tilescope.planner.gemm_schedule import PLAIN, Schedule, clusters
from tilescope.planner.product import ACCUMULATOR_BYTES, Product, Tile
from tilescope.planner.ranked_tile import FloorTerm, Prediction
from tilescope.planner.tile_groups import count_fetched_bytes, count_operand_bytes, count_stored_bytes
from tilescope.planner.wgmma_sums import count_step_sums, needs_more_registers, share_rows

_LINE_BYTES = 128  # of the L2, and of a row of a tile
_WGMMA_ROWS = 64
_WIDE_ROWS = 128  # a block of 64 for each of two warpgroups
_WGMMA_K_BYTES = 32  # of k that one wgmma takes
_SPAN_BYTES = 128  # limit of k for one copy
_SLICE_BITS = 64 * 8  # of a row of C: half a swizzle span, into whose multiples tiles are sliced
_UNLIMITED_TFLOPS = 2000  # short products end before the clock falls
_MEASURED_GB_PER_S = 4559  # the memory of the card that was measured
_BIAS_GB_PER_S = 600  # of sums, in addition to the plain epilogue: 4096 x 4096 x 4096 in tiles of 128 x 256 on an H200
_ACTIVATION_GB_PER_S = 119
_RESIDUAL_GB_PER_S = 55
_POWER_FROM = 11.1  # log10 of the operations from which on a product is long enough for its power to count …
_POWER_IN_FULL = 12.0  # … and from which on it counts in full
_FLOOR_BOUNDS = {"arithmetic": "steps", "shared-memory reads": "steps", "loads of one SM": "steps", "memory": "memory"}


def raised_to(prediction: Prediction | None, terms: tuple[FloorTerm, ...], card: Card | None) -> Prediction | None:
    """A prediction as long as every floor: no kernel undercuts those, and few stages only they know.

    The time from one launch to the next includes the latency of the first load.
    """
    if prediction is None or not terms:
        return prediction
    latency_us = card.tma.latency_us if card is not None and card.tma is not None else 0.0
    floor_us = terms[0].us - min(latency_us, prediction.launch_us)
    if floor_us <= prediction.main_us:
        return prediction
    bound = _FLOOR_BOUNDS[terms[0].name]
    bounds_us = {**dict(prediction.bounds_us), bound: floor_us}
    return replace(prediction, main_us=floor_us, bound=bound, bounds_us=tuple(bounds_us.items()))


class _Work(NamedTuple):
    """What a tile and a schedule make of a product."""

    rows: int  # of the sums
    columns: int
    tiles_m: int  # of one product of a batch
    tiles_n: int
    products: int  # of such a shape
    k_tiles: int  # of a block
    blocks: int  # that run at once
    rounds: int
    full_rounds: float  # rounds, the last of them by its share of the K steps
    k_bytes: int  # of a row of a K step
    step_bytes: float  # of operands, without rows beyond the matrices
    asked_bytes: float  # of these, what the block itself loads: a cluster's blocks load parts

    @property
    def tiles(self) -> int:
        return self.tiles_m * self.tiles_n * self.products


def predicts(product: Product) -> bool:
    """Whether fitted rates predict the time of a product: wgmma, on a card whose TMA rates were measured."""
    card = product.card
    return product.consumer == "wgmma" and card is not None and card.tma is not None and product.sms is not None


def predict_time(product: Product, tile: Tile, schedule: Schedule, stages: int = 0) -> Prediction | None:
    """The time of a product with a tile and a schedule; None where it cannot be predicted.

    `stages` are those that fit; 0: enough. One of them is multiplied while the others are filled.
    """
    if not predicts(product):
        is_documented = product.in_tensor_memory or multiplies_by_lanes(product)
        return predict_by_documents(product, tile, schedule) if is_documented else None
    rates = H200_RATES
    work = _work(product, tile, schedule)
    fetched_bytes = work.tiles * work.step_bytes * ceil_div(product.shape[2], tile[2])
    straddling = _straddling(product, rates)
    products_us = _products_us(product, work, schedule, rates)
    step_us = _step_us(work, straddling, products_us, rates)
    if product.block_scales:
        step_us += scaled_step_us(work.rows, work.columns, swapped=schedule.swapped)
    if 0 < stages < work.rounds * work.k_tiles:  # a stage is filled again
        slot_us = rates.slot_us * sqrt(work.k_bytes / _SPAN_BYTES)  # larger stages take longer to come
        if work.rows > _WIDE_ROWS:
            slot_us *= rates.tall_slot_ratio
        step_us = max(step_us, (slot_us + step_us) / max(1, stages - 1))
    shares = schedule.multicast != PLAIN.multicast
    if shares and not product.is_promoted:
        step_us += rates.multicast_step_us
        if not (straddling or schedule.ping_pong):
            step_us *= rates.even_multicast_ratio
    asked_bytes = fetched_bytes * work.asked_bytes / work.step_bytes
    delivered_us = transfer_us(asked_bytes, rates.l2_gb_per_s)
    delivered_us += transfer_us(straddling * asked_bytes, rates.uneven_l2_gb_per_s)
    shared_us = transfer_us(count_fetched_bytes(product, tile, schedule), rates.shared_l2_gb_per_s)
    memory_bytes = _memory_bytes(product, tile, schedule, work, rates)
    share_bytes = work.rows * schedule.share(work.columns) * ACCUMULATOR_BYTES
    stored_us = rates.epilogue_us + transfer_us(share_bytes, rates.epilogue_gb_per_s) + _fused_us(product, share_bytes)
    if not schedule.swapped and schedule.share(work.columns) * product.output_type.bits % _SLICE_BITS:
        stored_us *= rates.unsliced_ratio
    tile_us = work.k_tiles * step_us
    between_us = max(0.0, stored_us - work.k_tiles * (step_us - products_us))  # loads go on while a tile is stored
    if schedule.ping_pong:  # one tile is stored while another is multiplied
        tile_us = max(tile_us + rates.turn_us, (tile_us + stored_us) / 2)
        between_us = 0.0
    bounds = {
        "steps": work.full_rounds * tile_us + (work.rounds - 1) * between_us,
        "memory": transfer_us(memory_bytes, _memory_gb_per_s(product, rates)),
        "L2": _longest((delivered_us, shared_us), rates.sharpness),
        "power": _power_us(product, tile, work, fetched_bytes, rates),
    }
    launch_us = rates.dependent_us if schedule.dependent else rates.launch_us
    return Prediction(
        launch_us=launch_us + rates.block_us * work.blocks + (rates.multicast_us if shares else 0.0),
        main_us=_longest(tuple(bounds.values()), rates.sharpness),
        bound=max(bounds, key=lambda name: bounds[name]),
        bounds_us=tuple(bounds.items()),
        epilogue_us=stored_us,
        adding_us=_adding_us(schedule, work.rounds, share_bytes, rates),
        basis=_basis(product),
    )


def _basis(product: Product) -> Basis:
    """Fitted to measurements of an H200 and 16-bit types; carried over to others."""
    fitted = product.card is not None and product.card.name == "H200" and product.data_type.bits == 16
    return "measured" if fitted else "documented"


def _work(product: Product, tile: Tile, schedule: Schedule) -> _Work:
    m, n, k = product.shape
    tile_m, tile_n, tile_k = tile
    tiles_m, tiles_n = tile_grid(product.shape, tile)
    tiles = tiles_m * tiles_n * product.batch.count
    if product.batch.is_of_experts:  # of rows of any number, half a tile is lost on average
        tiles = ceil(product.batch.count * (m / tile_m + 0.5)) * tiles_n
    sms = product.sms or 1
    k_tiles = schedule.k_tiles(k, tile_k)
    blocks = min(tiles * schedule.blocks_of_a_tile, sms)
    b_sharers, a_sharers = schedule.multicast
    rounds = ceil_div(tiles * schedule.parts, max(1, clusters(sms, schedule.split)))
    if a_sharers * b_sharers > 1:
        taken = prod(schedule.cluster_grid((tiles_m, tiles_n))) * product.batch.count
        rounds = ceil_div(taken * schedule.parts, max(1, clusters(sms, a_sharers * b_sharers)))
        blocks = min(taken * a_sharers * b_sharers * schedule.parts, sms)
    full_rounds = float(rounds)
    if schedule.tail > 1:
        shared_by = schedule.tail
        if product.batch.is_of_experts and tiles % sms:
            shared_by = max(1, min(schedule.tail, sms // (tiles % sms)))
        full_rounds = rounds - 1 + ceil_div(k_tiles, shared_by) / k_tiles
    if product.batch.is_of_experts and 2 * tiles > sms:  # their number is known only at the launch
        full_rounds = tiles / sms - 0.5 + _last_round(schedule.tail)
    row_bytes = tile_k * product.data_type.bits / 8
    step_bytes = (m / tiles_m + n / tiles_n) * row_bytes
    asked_bytes = (m / tiles_m / a_sharers + n / tiles_n / b_sharers) * row_bytes
    rows, columns = (tile_n, tile_m) if schedule.swapped else (tile_m, tile_n)
    k_bytes = tile_k * product.operand_type.smem_bits // 8
    count = product.batch.count
    return _Work(
        rows, columns, tiles_m, tiles_n, count, k_tiles, blocks, rounds, full_rounds, k_bytes, step_bytes, asked_bytes
    )


def _last_round(tail: int) -> float:
    """The mean time of a last round by that of a whole one, where any number of its tiles is as likely as another.

    Its tiles are shared by as many blocks as there are for each, at most `tail`.

    >>> _last_round(1), round(_last_round(4), 3)
    (1.0, 0.674)
    """
    shares = [(1 / blocks - 1 / (blocks + 1)) / blocks for blocks in range(1, tail)]
    return sum(shares) + 1 / tail**2


def _products_us(product: Product, work: _Work, schedule: Schedule, rates: GemmRates) -> float:
    """The wgmma of one K step, whose operands are there."""
    sums_cycles = work.columns / 2
    read_cycles = rates.smem_cycles * (_WGMMA_ROWS + work.columns) / 4
    instructions = ceil_div(work.k_bytes, _WGMMA_K_BYTES) * ceil_div(work.rows, _WGMMA_ROWS)
    alone = share_rows(work.rows).groups == 1
    step_sums = count_step_sums(product, work.rows, work.columns, ping_pong=schedule.ping_pong)
    if step_sums == 2:
        ratio = rates.alone_in_turn_ratio if alone else rates.in_turn_ratio
    elif step_sums == 1:
        ratio = rates.alone_promoted_ratio if alone else rates.promoted_ratio
    else:
        ratio = rates.alone_ratio if alone else 1.0
        if needs_more_registers(product, work.rows, work.columns, ping_pong=schedule.ping_pong):
            ratio = rates.wide_ratio
    return ratio * max(sums_cycles, read_cycles) * instructions * rates.cycle_ns / 1e3


def _step_us(work: _Work, straddling: float, products_us: float, rates: GemmRates) -> float:
    """One K step of a block whose loads nothing else delays."""
    issue_us = rates.issue_us + rates.issue_span_us * (ceil_div(work.k_bytes, _SPAN_BYTES) - 1)
    loads_us = transfer_us(work.step_bytes, rates.sm_gb_per_s)
    loads_us += transfer_us(straddling * work.asked_bytes, rates.uneven_sm_gb_per_s)
    return _longest((products_us, issue_us, loads_us), rates.sharpness)


def _longest(times: tuple[float, ...], sharpness: float) -> float:
    """The longest of several times that overlap; more than that where two are close."""
    longest = max(times)
    if longest == 0:
        return 0.0
    together = sum(float((time / longest) ** sharpness) for time in times)
    return longest * float(together ** (1 / sharpness))


def _fused_us(product: Product, share_bytes: float) -> float:
    """What a fused epilogue adds to the plain one."""
    fused = product.fused
    rates = []
    if fused.bias:
        rates.append(_BIAS_GB_PER_S)
    if fused.activation not in ("none", "relu"):
        rates.append(_ACTIVATION_GB_PER_S)
    if fused.residual:
        rates.append(_RESIDUAL_GB_PER_S)
    return sum(transfer_us(share_bytes, rate) for rate in rates)


def _straddling(product: Product, rates: GemmRates) -> float:
    """How much rows of A and B straddle lines of 128 bytes: 0 where all start at one, 1 where they start anywhere.

    Every row of a box then touches two lines, and a fifth sector of 32 bytes unless rows start at sectors.
    """
    m, n, k = product.shape
    a_row = k if product.a_major == "K" else m
    b_row = k if product.b_major == "K" else n
    return _line_share([row * product.data_type.bits // 8 for row in (a_row, b_row)], rates)


def _line_share(row_bytes: Iterable[int], rates: GemmRates) -> float:
    """0 where all rows start at lines of 128 bytes, a share where at halves or sectors, 1 where anywhere."""
    start_bytes = gcd(*row_bytes, _LINE_BYTES)
    if start_bytes == _LINE_BYTES:
        return 0.0
    if start_bytes == _LINE_BYTES // 2:
        return rates.half_line_share
    return rates.sector_share if start_bytes == _LINE_BYTES // 4 else 1.0


def _memory_gb_per_s(product: Product, rates: GemmRates) -> float:
    """The memory rate: for another card than the measured one, scaled by its documented rate."""
    card = product.card
    assert card is not None
    return rates.memory_gb_per_s * card.memory_gb_per_s / _MEASURED_GB_PER_S


def _memory_bytes(product: Product, tile: Tile, schedule: Schedule, work: _Work, rates: GemmRates) -> float:
    m, n, k = product.shape
    element = product.data_type.bits / 8
    a_bytes = m * k * element
    b_bytes = n * k * element
    c_bytes = count_stored_bytes(product, tile, schedule, rates)
    if product.fused.residual:
        c_bytes += prod(product.c_shape) * product.output_type.bits / 8
    if schedule.split > 1 and work.tiles_m > 1:
        b_bytes *= 1 + rates.read_twice_share
    again_bytes = count_operand_bytes(product, tile, schedule.group) - (m + n) * k * element
    return (again_bytes + a_bytes + b_bytes + c_bytes) * work.products


def _power_us(product: Product, tile: Tile, work: _Work, fetched_bytes: float, rates: GemmRates) -> float:
    """The time of a long product by the power that its sums and its fetches share."""
    operations = 2.0 * work.tiles * tile[0] * tile[1] * product.shape[2] * product.data_type.bits / 16
    share = min(1.0, max(0.0, (log10(operations) - _POWER_FROM) / (_POWER_IN_FULL - _POWER_FROM)))
    tflops = rates.sustained_tflops * share + _UNLIMITED_TFLOPS * (1 - share)
    return operations / tflops / 1e6 + transfer_us(share * fetched_bytes, rates.sustained_l2_gb_per_s)


def _adding_us(schedule: Schedule, rounds: int, share_bytes: int, rates: GemmRates) -> float:
    adding_us = 0.0
    if schedule.split > 1:
        meetings_us = rates.cluster_us + rates.cluster_block_us * schedule.split
        adding_us += rounds * (meetings_us + transfer_us(share_bytes * (schedule.split - 1), rates.cluster_gb_per_s))
    shared_by = max(schedule.parts, schedule.tail)
    if shared_by > 1:
        moved_us = transfer_us(share_bytes, rates.workspace_write_gb_per_s)
        moved_us += transfer_us(share_bytes * shared_by, rates.workspace_read_gb_per_s)
        times = rounds if schedule.parts > 1 else 1
        adding_us += times * (rates.workspace_us + moved_us)
    if schedule.parts > 1:
        adding_us += rates.workspace_part_us * schedule.parts
    return adding_us
