"""Random GEMMs on the card, every form that is emitted: few kernels, many numbers of rows, each product against numpy.

    python tests/gpu/random_products.py --kernels 120 --rows 9 --seed 1
    compute-sanitizer python tests/gpu/random_products.py --forms 3/16          small: every 16th of all forms, from number 3

A kernel takes any number of rows, so one is compiled for several products. C is poisoned, with a margin around it; two launches must
give the same bits. Half of the products have small whole numbers, whose sums are exact: C must be right to the bit. The others have
normal numbers, and |C - C'| <= u |C'| + c sum |a| |b|, with u of C's rounding and c of the sums' (wgmma cuts sums of 8-bit floats to 14
bits before they are promoted).
"""

import argparse
import collections
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from math import prod
from pathlib import Path
from random import Random

import ml_dtypes
import numpy as np

import tilescope as ts
from tilescope.emitter.gemm_parameters import gemm_parameters
from tilescope.emitter.gemm_program import gemm_program
from tilescope.gpu.bench.gemm_timing import cubin
from tilescope.gpu.driver.device import Device
from tilescope.planner.gemm_maps import gemm_map, launch_rows

TYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "u32": np.uint32,
}
ROUNDING = {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 2.0**-20, "tf32": 2.0**-10, "e4m3": 2.0**-4, "e5m2": 2.0**-3}
SUMS = {"bf16": 2.0**-18, "f16": 2.0**-18, "tf32": 2.0**-18, "e4m3": 2.0**-11, "e5m2": 2.0**-11}
LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}  # conversions to them saturate
EPILOGUES = (
    "scale",
    "bias",
    "bias+relu",
    "gelu",
    "scale+bias+gelu",
    "silu",
    "swiglu",
    "scale+bias+swiglu",
    "swiglu-interleaved",
    "bias+swiglu-interleaved",
    "residual",
    "scale+bias+residual",
    "scale+bias+silu+residual",
)
SCHEDULES = (
    {"swapped": False},
    {"swapped": True},
    {"split": 2},
    {"split": 4, "parts": 1},
    {"parts": 3, "split": 1},
    {"tail": 2},
    {"multicast": (2, 1)},
    {"multicast": (1, 2)},
    {"multicast": (2, 1), "parts": 2},
    {"ping_pong": True},
    {"ping_pong": True, "multicast": (2, 1)},
)
MARGIN = 512  # elements around C that must stay as they are
POISON = 0xEE


def say(text):
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def draw(random):
    """The arguments of plan_gemm for one kernel."""
    options = {}
    data_type = random.choice(("bf16", "bf16", "f16", "tf32", "e4m3", "e4m3", "e5m2", "s8"))
    form = random.choice(
        ("plain", "plain", "epilogue", "epilogue", "batch", "contiguous", "masked", "scales", "scales")
    )
    if form == "scales":
        data_type = random.choice(("e4m3", "e4m3", "e5m2"))
        options["scales"] = "block128"
        form = random.choice(("plain", "epilogue", "batch", "contiguous", "masked"))
    if data_type != "s8" and (form == "epilogue" or random.random() < 0.35):
        options["epilogue"] = random.choice(EPILOGUES)
    if form == "batch":
        options["batch"] = random.choice((2, 3, 5))
    if form in ("contiguous", "masked"):
        options |= {"experts": random.choice((2, 4, 7)), "rows": form}
    if data_type in ("bf16", "f16"):
        gated = options.get("epilogue", "").split("+")[-1] == "swiglu"
        options |= {
            "a_major": random.choice(("K", "K", "MN")),
            "b_major": "K" if gated else random.choice(("K", "K", "MN")),
        }
        options["output_type"] = random.choice((data_type, data_type, "f32", "bf16", "e4m3"))
    elif data_type in ("e4m3", "e5m2"):
        options["output_type"] = random.choice(("bf16", "bf16", "f32", "f16", "e4m3"))
    step = 64 if random.random() < 0.5 else 16
    m = random.choice((1, 8, 24, 64, 150, 256, 400, 700))
    if options.get("a_major") == "MN":
        m = max(8, m // 8 * 8)
    n, k = step * random.randint(1, 1152 // step), step * random.randint(1, 2048 // step)
    return (m, n, k, data_type), options


def make_kernel(seed):
    """A plan that is drawn by a seed, and its cubin; what cannot be planned is drawn again."""
    random = Random(seed)
    while True:
        asked, options = draw(random)
        try:
            chosen = any_schedule(asked, random) if random.random() < 0.5 else ranked_one(asked, options, random)
            plan = ts.plan_gemm(*asked, **options, **chosen)
            return seed, plan, cubin(plan)
        except ts.RuleError:
            continue


def ranked_one(asked, options, random):
    """Tile and schedule of one of the alternatives that a plan ranks."""
    plan = ts.plan_gemm(*asked, **options)
    ranked = random.choice(plan.ranked)
    chosen = {field.name: getattr(ranked.schedule, field.name) for field in fields(ranked.schedule)}
    if random.random() < 0.1 and not plan.batch.is_of_experts and not plan.block_scales:
        chosen["dependent"] = True
    return chosen | {"tile": ranked.tile}


def any_schedule(asked, random):
    """A schedule of the table with a tile that suits it, whatever its time."""
    chosen = dict(random.choice(SCHEDULES))
    rows, columns = random.choice((64, 128)), random.choice((32, 64, 128))
    spans = 1 if asked[3] in ("e4m3", "e5m2") else random.choice((1, 1, 2))
    k = spans * 128 * 8 // ts.DataType.named(asked[3]).bits
    swapped = chosen.setdefault("swapped", random.random() < 0.5)
    chosen["tile"] = (columns, rows, k) if swapped else (rows, columns, k)
    return chosen


def numbers(random, shape, data_type, *, exact):
    """A matrix of small whole or of normal numbers, as its type holds them."""
    dtype = TYPES[data_type]
    if exact or data_type in ("s8", "u8"):
        return random.integers(0 if data_type == "u8" else -2, 3, shape).astype(dtype)
    made = random.standard_normal(shape, np.float32)
    if data_type == "tf32":  # the tensor core ignores the low 13 bits
        return (made.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return made.astype(dtype)


def sizes(matrix):
    """What bounds an error need not be exact."""
    return np.abs(matrix).astype(np.float32)


class Case:
    """One product: its arrays, and what C should hold."""

    def __init__(self, plan, rows, seed, *, exact):
        self.plan, self.rows, self.exact = plan, rows, exact
        random = np.random.default_rng(seed)
        _, n, k = plan.shape
        count = plan.batch.count
        self.items = count if plan.batch.stacks("a") else 1
        self.a = numbers(random, (self.items, rows, k), plan.data_type.ptx, exact=exact)
        self.b = numbers(random, (count, n, k), plan.data_type.ptx, exact=exact)
        self.arrays = {}
        for each in gemm_parameters(plan):
            self.arrays[each.name] = self._parameter(each, random)

    def _parameter(self, each, random):
        plan, rows = self.plan, self.rows
        _, n, k = plan.shape
        count = plan.batch.count
        dtype = TYPES[each.data_type]
        match each.name:
            case "m_rows":
                return np.int32(rows)
            case "bias":
                return numbers(random, (count, n), "f32", exact=self.exact)
            case "residual":
                shape = (self.items, rows, plan.fused.columns(n))
                return numbers(random, shape, each.data_type, exact=self.exact)
            case "a_scales":
                shape = (self.items, -(-k // 128), -(-rows // 4) * 4)
                return self._scales(random, shape)
            case "b_scales":
                return self._scales(random, (count, -(-n // 128), -(-k // 512) * 4))
            case "experts" if plan.batch.rows == "contiguous":
                tile = plan.tile[0]
                whose = np.sort(random.integers(0, count, rows // tile))
                owned = whose.repeat(tile).astype(np.int32)
                for first in np.flatnonzero(random.integers(0, 2, rows // tile)) * tile:
                    owned[first + random.integers(1, tile + 1) : first + tile] = -1  # nobody's
                return owned
            case "experts":
                filled = random.integers(0, rows + 1, count).astype(np.int32)
                filled[random.integers(count)] = 0
                return filled
        if each.size:  # sums of blocks that share k, and their counters
            tiles = -(-rows // plan.tile[0]) * -(-n // plan.tile[1]) * self.items
            return np.zeros(max(each.size, each.size * 2 * tiles // max(1, plan.tiles) + each.size), dtype)
        return dtype(each.value)

    def _scales(self, random, shape):
        if self.exact:
            return random.choice(np.array([0.5, 1, 2], np.float32), shape)
        return random.uniform(0.25, 2, shape).astype(np.float32)

    def expected(self):
        """C in float64 and what it may differ by, items first; rows that nobody has are NaN."""
        plan, fused = self.plan, self.plan.fused
        _, n, k = plan.shape
        a, b = self.a.astype(np.float64), self.b.astype(np.float64)
        needs_error = not (self.exact and fused.is_exact)
        if plan.block_scales:
            a *= self.arrays["a_scales"].repeat(128, axis=1)[:, :k, : self.rows].transpose(0, 2, 1)
            b *= self.arrays["b_scales"].repeat(128, axis=1)[:, :n].repeat(128, axis=2)[..., :k]
        experts = self.arrays.get("experts")
        if plan.batch.rows == "contiguous":
            value, magnitude = (np.zeros((1, self.rows, n)) for _ in range(2))
            for item in np.unique(experts):
                own = experts == item
                value[0, own] = a[0, own] @ b[item].T
                if needs_error:
                    magnitude[0, own] = sizes(a[0, own]) @ sizes(b[item]).T
            bias = self.arrays["bias"][experts][None] if fused.bias else 0
        else:
            value = a @ b.transpose(0, 2, 1)
            magnitude = sizes(a) @ sizes(b).transpose(0, 2, 1) if needs_error else np.zeros_like(value)
            bias = self.arrays["bias"][:, None] if fused.bias else 0
        alpha = float(self.arrays.get("alpha", 1))
        value = value * alpha + bias
        error = SUMS.get(plan.data_type.ptx, 0.0) * magnitude * abs(alpha)
        if fused.gate == "side by side":
            pairs, errors = (np.split(each, 2, axis=-1) for each in (value, error))
        elif fused.gate == "interleaved":
            grouped = [each.reshape(*each.shape[:-1], n // 16, 2, 8) for each in (value, error)]
            pairs, errors = (
                [each[..., half, :].reshape(*value.shape[:-1], n // 2) for half in range(2)] for each in grouped
            )
        else:
            pairs, errors = [value], [error]
        value, error = self._activated(pairs[0], errors[0])
        if fused.is_gated:
            error = np.abs(pairs[1]) * error + np.abs(value) * errors[1] + error * errors[1]
            value = value * pairs[1]
        if fused.residual:
            value = value + float(self.arrays["beta"]) * self.arrays["residual"].astype(np.float64)
        return self._of_somebody(value), error

    def _of_somebody(self, value):
        """The same, with NaN in rows that are nobody's."""
        experts = self.arrays.get("experts")
        match self.plan.batch.rows:
            case "contiguous":
                return np.where(experts[None, :, None] >= 0, value, np.nan)
            case "masked":
                return np.where(np.arange(self.rows)[None, :, None] < experts[:, None, None], value, np.nan)
        return value

    def _activated(self, value, error):
        match self.plan.fused.activation:
            case "relu":
                return np.maximum(value, 0), error
            case "silu":
                made = value / (1 + np.exp(np.minimum(-value, 700)))
            case "gelu":
                made = value / 2 * (1 + np.tanh(0.7978845608028654 * (value + 0.044715 * value**3)))
            case _:
                return value, error
        return made, 1.13 * error + np.abs(made) * 2.0**-9 + 2.0**-10 * np.minimum(np.abs(value), 1) + 1e-6

    def wrong(self, c):
        """How many elements of C are wrong, and the first of them in words."""
        value, error = self.expected()
        output = self.plan.output_type.ptx
        largest = LARGEST.get(output)
        asked = ~np.isnan(value)
        if self.exact and self.plan.fused.is_exact:
            wanted = np.where(asked, value if largest is None else np.clip(value, -largest, largest), 0)
            with np.errstate(over="ignore"):  # sums beyond C's type are infinite
                wanted = wanted.astype(np.float32).astype(c.dtype) if output != "s32" else wanted.astype(np.int32)
            bad = asked & (c != wanted)
        else:
            wanted = value if largest is None else np.clip(value, -largest, largest)
            allowed = ROUNDING.get(output, 0.0) * np.abs(wanted) + error + 2.0**-9 * (output in ("e4m3", "e5m2")) + 1e-6
            with np.errstate(over="ignore", invalid="ignore"):
                ends = [
                    np.where(asked, wanted + side * allowed, 0).astype(np.float32).astype(c.dtype) for side in (-1, 1)
                ]
                overflows = np.isinf(c) & (
                    (c == ends[0]) | (c == ends[1])
                )  # an end of what is allowed is infinite, too
                bad = asked & ~overflows & ~(np.abs(c.astype(np.float64) - wanted) <= allowed)
                bad |= asked & np.isfinite(c) & np.isinf(ends[0]) & (ends[0] == ends[1])  # both ends are, and C is not
        if not bad.any():
            return 0, ""
        first = tuple(int(index) for index in np.argwhere(bad)[0])
        return int(bad.sum()), f"C{list(first)}: {c[first]}, not {wanted[first]}"


def started(device, name, case):
    """C after two launches, which must agree; the margins too."""
    plan, rows = case.plan, case.rows
    c = np.full(prod((case.items, rows, plan.product.c_shape[1])) + 2 * MARGIN, 0, TYPES[plan.output_type.ptx])
    c.view(np.uint8)[:] = POISON
    operands = {}
    for letter, matrix in (("a", case.a), ("b", case.b)):
        major = getattr(plan, letter).problem.major
        operands[letter] = device.upload(np.ascontiguousarray(matrix.transpose(0, 2, 1) if major == "MN" else matrix))
    others = {}
    for each in gemm_parameters(plan):
        value = case.arrays[each.name]
        others[each.name] = device.upload(value) if isinstance(value, np.ndarray) else value
    grid = blocks_of(plan, rows, case.items)
    results = []
    for _ in range(2):
        place = device.upload(c)
        inside = place + MARGIN * c.itemsize
        maps = [device.encode_map(gemm_map(plan, letter, 0, rows), operands[letter]) for letter in "ab"]
        maps.append(device.encode_map(gemm_map(plan, "c", 0, rows), inside))
        values = []
        for each in gemm_parameters(plan):
            value = others[each.name]
            if getattr(each, "by_map", False):
                values.append(device.encode_map(gemm_map(plan, "c", 0, rows), value))
            else:
                values.append(value.tobytes() if isinstance(value, np.generic) else value)
        device.launch(
            f"{name}:gemm_kernel",
            *maps,
            *values,
            blocks=grid,
            threads=gemm_program(plan).work.threads,
            smem_bytes=plan.smem_bytes,
        )
        results.append(device.download(place, np.empty_like(c)))
    device.free()
    return results


def blocks_of(plan, rows, items):
    """Blocks of a launch with that many rows."""
    if plan.schedule.tail > 1:
        return plan.blocks
    across = plan.schedule.cluster_grid((-(-rows // plan.tile[0]), -(-plan.shape[1] // plan.tile[1])))
    in_a_cluster = prod(plan.schedule.cluster)
    tiles = prod(across) * in_a_cluster * items
    if not plan.schedule.persistent:
        return tiles * plan.schedule.split * plan.schedule.parts
    return min(tiles, plan.sms // in_a_cluster * in_a_cluster)


def check(device, name, case):
    """Why a product is wrong, or ""."""
    first, second = started(device, name, case)
    if (first.view(np.uint8) != second.view(np.uint8)).any() and case.plan.batch.rows != "masked":
        return "two launches differ"
    margins = np.concatenate([first[:MARGIN], first[-MARGIN:]]).view(np.uint8)
    if (margins != POISON).any():
        return "the margin around C was written"
    c = first[MARGIN:-MARGIN].reshape(case.items, case.rows, -1)
    count, said = case.wrong(c)
    return f"{count} of {c.size} elements, {said}" if count else ""


def rows_of(plan, random):
    """Rows for a launch: of contiguous experts whole tiles; others any number up to twice the plan's."""
    tile = plan.tile[0]
    if plan.batch.rows == "contiguous":
        return tile * random.randint(1, 2 * launch_rows(plan) // tile)
    rows = random.randint(1, 2 * plan.shape[0] + 8)
    whole = plan.a.problem.major == "MN"  # rows of A^T are multiples of 16 bytes
    return max(8, rows // 8 * 8) if whole else rows


def describe(plan):
    """A kernel in a few words."""
    schedule = ts.planner.gemm_schedule.schedule_words(plan.schedule)
    words = [f"{plan.data_type.ptx} to {plan.output_type.ptx}", "x".join(map(str, plan.tile)), schedule]
    words += ["block128"] if plan.block_scales else []
    words += [str(plan.batch)] if plan.batch.count > 1 or plan.batch.is_of_experts else []
    words += [] if plan.fused.is_plain else [str(plan.fused)]
    return ", ".join(word for word in words if word)


def kernels_of_all_forms():
    """Small kernels of every form, by name: those that the machine runs in the emitter's tests, and one whose sums exceed float16."""
    import test_block_scales
    import test_gemm_clusters
    import test_gemm_forms
    import test_gemm_runs
    import test_gemm_three_warpgroups
    import test_gemm_turns

    cases = {f"form: {name}": case for name, case in test_gemm_forms.CASES.items()}
    cases |= {f"run: {number}": case for number, case in enumerate(test_gemm_runs.CASES)}
    cases |= {f"cluster: {name}": (shape, "bf16", each) for name, (shape, each) in test_gemm_clusters.CASES.items()}
    cases |= {f"turns: {name}": case for name, case in test_gemm_turns.CASES.items()}
    cases |= {f"large: {name}": case for name, case in test_gemm_three_warpgroups.CASES.items()}
    cases |= {f"scales: {name}": (shape, "e4m3", each) for name, (shape, each) in test_block_scales.CASES.items()}
    beyond = {
        "scales": "block128",
        "epilogue": "swiglu-interleaved",
        "output_type": "f16",
        "tile": (24, 64, 128),
        "split": 4,
    }
    return cases | {"sums beyond float16": ((24, 640, 1792), "e4m3", beyond)}


def make_form(name, case):
    """A kernel of the table, as `make_kernel` returns it."""
    shape, data_type, options = case
    plan = ts.plan_gemm(*shape, data_type, **options)
    return name, plan, cubin(plan)


def run(kernels, rows, seed, *, quiet=False):
    """How many products there were, and those that are wrong; counts of every form."""
    with ProcessPoolExecutor() as executor:
        return run_kernels(
            executor.map(make_kernel, range(1000 * seed, 1000 * seed + kernels)), rows, seed, quiet=quiet
        )


def run_forms(share, rows, seed, *, quiet=False):
    """The same of every so many-th kernel of all forms; "0/1": all."""
    first, step = map(int, share.split("/"))
    chosen = list(kernels_of_all_forms().items())[first::step]
    with ProcessPoolExecutor() as executor:
        return run_kernels(executor.map(make_form, *zip(*chosen, strict=True)), rows, seed, quiet=quiet)


def run_kernels(made, rows, seed, *, quiet):
    """Several products of each kernel, which comes with its name or number and its plan."""
    device = Device()
    random = Random(seed)
    counts, wrong, products = collections.Counter(), [], 0
    began = time.time()
    for number, (name, plan, image) in enumerate(made, 1000 * seed):
        loaded = device.load(image)
        for turn in range(rows):
            case = Case(plan, rows_of(plan, random), 100 * number + turn, exact=turn % 2 == 0)
            said = check(device, loaded, case)
            products += 1
            for form in forms(plan):
                counts[form] += 1
            if said:
                wrong.append(
                    f"kernel {name} ({describe(plan)}, {plan.shape}), {case.rows} rows, exact {case.exact}: {said}"
                )
                if not quiet:
                    say(wrong[-1])
    if not quiet:
        say(f"{time.time() - began:.1f} s")
    return products, wrong, counts


def forms(plan):
    """What a kernel is an example of."""
    schedule = plan.schedule
    yield plan.data_type.ptx
    yield f"C of {plan.output_type.ptx}"
    yield f"rows {plan.batch.rows}" if plan.batch.count > 1 or plan.batch.is_of_experts else "one product"
    yield f"epilogue {plan.fused}"
    if plan.block_scales:
        yield "block128"
    for field in fields(schedule):
        if getattr(schedule, field.name) != getattr(type(schedule)(), field.name):
            yield field.name


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("kernels", 120), ("rows", 9), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--forms", metavar="FIRST/STEP", help="kernels of all forms in place of random ones")
    asked = parser.parse_args(arguments)
    if asked.forms:
        products, wrong, counts = run_forms(asked.forms, asked.rows, asked.seed)
    else:
        products, wrong, counts = run(asked.kernels, asked.rows, asked.seed)
    say(json.dumps(dict(sorted(counts.items()))))
    say(f"{products - len(wrong)} of {products} products right, {products // asked.rows} kernels, seed {asked.seed}")
    return bool(wrong)


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "emitter"))
    sys.exit(main(sys.argv[1:]))
