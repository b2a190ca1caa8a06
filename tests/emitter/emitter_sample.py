"""The plans whose programs are compiled, and on a card run: types, majors, swizzles, orders, stages, consumers, directions."""

from collections.abc import Mapping
from functools import partial

import tilescope as ts
from tilescope.data_type import DataType

WGMMA_TYPES = ("bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8")


def problems():
    """(tile, type, options) of one tile each."""
    for name in WGMMA_TYPES:
        span = 1024 // DataType.named(name).bits
        yield from (((64, span), name, {"swizzle": mode, "stages": 2}) for mode in ("128B", "64B", "32B", "none"))
    for order in ("row", "column"):
        yield (128, 128), "bf16", {"atom_order": order, "swizzle": "64B", "stages": 2}
        yield (64, 128), "bf16", {"major": "MN", "atom_order": order, "swizzle": "32B", "stages": 3}
        yield (128, 32), "f16", {"major": "MN", "atom_order": order, "swizzle": "64B", "operand": "B"}
    yield (256, 64), "bf16", {"operand": "B", "stages": 3}
    yield (96, 64), "bf16", {"operand": "B"}
    yield (8, 64), "s8", {"operand": "B"}
    yield (128, 64), "bf16", {"major": "MN", "operand": "A", "stages": 4}
    yield (128, 256), "bf16", {"fold": True}
    yield (64, 128), "bf16", {"fold": True, "atom_order": "row", "swizzle": "64B"}
    for arch in ("sm_80", "sm_89", "sm_90", "sm_120"):
        for name in ("bf16", "s8", "tf32"):
            yield (64, 64), name, {"consumer": "ldmatrix", "arch": arch, "stages": 3, "copy": "cp.async"}
        yield (64, 64), "f16", {"consumer": "ldmatrix", "arch": arch, "major": "MN", "stages": 2, "copy": "ld.global"}
        yield (24, 40), "bf16", {"consumer": "ldmatrix", "arch": arch, "copy": "cp.async"}
    for arch in ("sm_89", "sm_90", "sm_120"):
        yield (64, 64), "e4m3", {"consumer": "ldmatrix", "arch": arch, "stages": 3, "copy": "cp.async"}
    yield (64, 64), "bf16", {"copy": "cp.async"}
    yield (64, 64), "bf16", {"copy": "cp.async", "stages": 4, "global_shape": (200, 456)}
    yield (64, 64), "bf16", {"copy": "ld.global", "stages": 2, "major": "MN"}
    for arch in ("sm_90", "sm_120"):
        yield (64, 64), "bf16", {"consumer": "ldmatrix", "arch": arch, "stages": 2}
        yield (72, 136), "f16", {"consumer": "ldmatrix", "arch": arch, "major": "MN", "stages": 2}
    for name in ("u8", "u16", "f32", "f64", "u64", "bf16"):
        yield (64, 32), name, {"consumer": "ld.b128 columns", "stages": 2}
        yield (64, 32), name, {"consumer": "ld.b128 rows", "major": "MN"}
    yield (32, 32), "f32", {"consumer": "transpose", "copy": "cp.async", "arch": "sm_80"}
    for name in ("bf16", "f32", "s8", "f64"):
        yield from (((64, 64), name, {"direction": "store", "major": major, "stages": 2}) for major in ("K", "MN"))
    yield (128, 64), "bf16", {"direction": "store", "global_shape": (1000, 4094), "strides_bytes": (8192,)}
    yield (64, 128), "bf16", {"direction": "store", "fold": True, "stages": 2}
    yield (64, 64), "bf16", {"global_shape": (130, 200), "stages": 2}
    yield (64, 64), "e4m3", {"global_shape": (130, 208), "stages": 2}


class Sample(Mapping):
    """Plans by their names, which are known before: a plan is made when it is first asked for."""

    def __init__(self, makers):
        self.makers, self.made = makers, {}

    def __getitem__(self, name):
        if name not in self.made:
            self.made[name] = self.makers[name]()
        return self.made[name]

    def __iter__(self):
        return iter(self.makers)

    def __len__(self):
        return len(self.makers)


def best(tile, name, options):
    return ts.plan(tile, name, **options).best


def folded(tile, name, options):
    return next(plan for plan in ts.plan(tile, name, **options).candidates if plan.folded)


def named_problems():
    """Name, what makes the plan, and the options of every problem: the best plan, and the folded one where it was asked for."""
    for number, (tile, name, options) in enumerate(problems()):
        full_name = f"{number:02}-{tile[0]}x{tile[1]}-{name}"
        yield full_name, partial(best, tile, name, options), options
        if options.get("fold"):
            yield f"{full_name}-folded", partial(folded, tile, name, options), options


OPTIONS = {name: options for name, _, options in named_problems()}
PLANS = Sample({name: maker for name, maker, _ in named_problems()})


def is_load(name):
    return OPTIONS[name].get("direction") != "store"


def consumer(name):
    return OPTIONS[name].get("consumer", "wgmma")


def is_copied_by_tma(name):
    return "copy" not in OPTIONS[name]


GEMM_PROBLEMS = (
    ((4096, 4096, 4096), "bf16", {}),
    ((16, 4096, 4096), "bf16", {}),
    ((1000, 1000, 512), "bf16", {}),
    ((512, 512, 512), "s8", {}),
    ((512, 512, 512), "u8", {"output_type": "s32"}),
    ((512, 512, 512), "e4m3", {"output_type": "bf16"}),
    ((2048, 2048, 1024), "e4m3", {}),
    ((512, 512, 512), "tf32", {"output_type": "f32"}),
    ((512, 512, 512), "bf16", {"a_major": "MN", "b_major": "MN"}),
    ((1024, 2048, 256), "f16", {"b_major": "MN", "output_type": "f32", "ping_pong": False}),
    ((512, 512, 512), "bf16", {"consumer": "ldmatrix"}),
    ((2048, 2048, 1024), "bf16", {"consumer": "ldmatrix", "tile": (128, 128, 64)}),
    ((512, 512, 512), "bf16", {"arch": "sm_80"}),
    ((512, 512, 512), "s8", {"arch": "sm_80"}),
    ((328, 520, 96), "f16", {"arch": "sm_80", "a_major": "MN", "b_major": "MN"}),
    ((512, 512, 512), "bf16", {"arch": "sm_120"}),
)
NAMED_GEMMS = {
    f"{number:02}-{'x'.join(map(str, shape))}-{name}": (*shape, name, options)
    for number, (shape, name, options) in enumerate(GEMM_PROBLEMS)
}
GEMMS = Sample(
    {full_name: partial(ts.plan_gemm, *problem, **options) for full_name, (*problem, options) in NAMED_GEMMS.items()}
)
EVERY = Sample(PLANS.makers | GEMMS.makers)


def has_epilogue(name):
    """Whether the GEMM of a name stores its result by TMA."""
    *_, options = NAMED_GEMMS[name]
    return options.get("arch") != "sm_80"
