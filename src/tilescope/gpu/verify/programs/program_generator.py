"""Generates the random program of a seed: how many steps of which kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from tilescope.errors import RuleError
from tilescope.gpu.verify.programs import copy_steps, product_steps, scalar_steps, shared_steps, warp_steps, wmma_steps
from tilescope.gpu.verify.programs.program_builder import NoRoomError, ProgramBuilder
from tilescope.gpu.verify.programs.random_program import Program

Draw = Callable[[ProgramBuilder], None]

# (kind of the numbers, type of the register) of every register that threads load at the start
_INPUTS = (
    *[("f32", "f32")] * 6,
    *[("u32", "u32")] * 4,
    *[("f16x2", "f16x2")] * 4,
    *[("bf16x2", "bf16x2")] * 3,
    *[("small", "u32")] * 2,
    *[("f64", "f64")] * 4,
    *[("u64", "u64")] * 2,
    *[("f16", "f16")] * 3,
    *[("bf16", "bf16")] * 2,
    *[("u16", "u16")] * 2,
    *[("pred", "pred")] * 3,
)
_SCALAR: tuple[tuple[Draw, int], ...] = (
    (scalar_steps.alone, 20),
    (scalar_steps.add_guarded_step, 2),
    (scalar_steps.branch, 1),
    (scalar_steps.loop, 1),
    (scalar_steps.carries, 1),
    (scalar_steps.add_repacking, 2),
)
_WARP: tuple[tuple[Draw, int], ...] = (
    (warp_steps.shuffle, 3),
    (warp_steps.vote, 2),
    (warp_steps.match, 1),
    (warp_steps.reduction, 2),
    (warp_steps.election, 1),
    (warp_steps.parted_shuffle, 1),
)
_SHARED: tuple[tuple[Draw, int], ...] = (
    (shared_steps.exchange, 4),
    (shared_steps.exchange_by_mbarrier, 2),
    (shared_steps.barrier_reduction, 1),
    (shared_steps.own_shared_atomic, 2),
    (shared_steps.own_global_atomic, 2),
    (shared_steps.meeting_global_atomic, 1),
    (shared_steps.meeting_shared_atomic, 1),
    (shared_steps.load_matrices, 2),
    (shared_steps.store_matrices, 2),
)
_COPIES: tuple[tuple[Draw, int], ...] = (
    (copy_steps.thread_copy, 2),
    (copy_steps.bulk_load, 2),
    (copy_steps.bulk_store, 2),
    (copy_steps.tensor_load, 3),
    (copy_steps.tensor_store, 3),
)
_PRODUCTS: tuple[tuple[Draw, int], ...] = ((product_steps.mma, 3), (product_steps.wgmma, 3), (wmma_steps.wmma, 3))
_FAMILIES = (_SCALAR, _WARP, _SHARED, _COPIES, _PRODUCTS)
_STEPS_AT_MOST = {_SCALAR: 48, _WARP: 10, _SHARED: 8, _COPIES: 4, _PRODUCTS: 4}
_THREADS = (32, 64, 128, 128)


@lru_cache(maxsize=1024)
def generate_program(seed: int) -> Program:
    """The program of a seed.

    >>> program = generate_program(1)
    >>> program == generate_program(1), program.threads, len(program.steps)
    (True, 128, 40)
    """
    choice = random.Random(f"shape {seed}")  # noqa: S311  programs, not secrets
    builder = ProgramBuilder(seed, choice.choice(_THREADS))
    for kind, type_name in _INPUTS:
        builder.input(kind, type_name)
    draws: list[Draw] = []
    for family in _FAMILIES:
        count = choice.randint(0, _STEPS_AT_MOST[family])
        draws += choice.choices([draw for draw, _ in family], [weight for _, weight in family], k=count)
    choice.shuffle(draws)
    for draw in draws or [scalar_steps.alone]:
        try:
            draw(builder)
        except (NoRoomError, RuleError):  # a RuleError: a copy that the card would refuse
            continue
    return builder.program()
