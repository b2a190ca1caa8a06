"""Every address, expression and notation that a plan prints names the byte where the emulator's copies put the element."""

import re
from functools import cache

import numpy as np
import pytest

import tilescope as ts
from tilescope.data_type import DATA_TYPE
from tilescope.layout import oriented
from tilescope.notation import NOTATION
from tilescope.swizzle import SWIZZLE
from tilescope.view.plan_view import draw_plan

PADDED = ("16u4_align16b", "16u6_align16b", "e2m3", "e3m2")
MOVED = [name for name in DATA_TYPE if name != "b1"]  # TMA moves eight bits of b1 as one uint8
MODES = [name for name in SWIZZLE if name != "96B"]
READERS = {
    "wgmma": "sm_90",
    "tcgen05": "sm_100",
    "ldmatrix": "sm_120",
    "ld.b128 rows": "sm_100",
    "ld.b32 columns": "sm_120",
}
STAGE = 0x2400  # a multiple of 1024, not of 0x4000


def plans(data_type, swizzle, **options):
    """The plans of a tile of two spans of the type in either order, or none where the problem has none."""
    row = DATA_TYPE[data_type]
    long = 256 if row.bits < 8 else 2048 // row.bits
    short = {"wgmma": 64, "tcgen05": 128}.get(options.get("consumer"), 16)
    tile = (short, long) if options["major"] == "K" else (long, short)
    try:
        return ts.plan(tile, data_type, swizzle=swizzle, fold=True, **options).candidates
    except ts.RuleError:
        return ()


def element_bytes(plan):
    """The global byte with the first bit of every element (mn, k) of the tile, rows one behind the other."""
    row, column = oriented(plan.problem.major, *np.indices(plan.problem.tile))
    return (row * plan.problem.columns + column) * plan.problem.data_type.bits // 8


def bytes_in_shared_memory(plan):
    """For every byte of the stage at STAGE, the global byte that the emulator copies from there or to there; -1: none."""
    found = np.full(plan.stage_bytes, -1)
    tensor_map = plan.tensor_map(0, plan.problem.tile)
    for copy in plan.copies:
        start = copy.smem_offset_bytes
        traced = ts.trace(
            tensor_map, plan.copy_coords(copy, 0, 0), smem_address=STAGE + start, operation=plan.problem.direction
        ).source_offset
        part = found[start : start + len(traced)]
        part[traced >= 0] = traced[traced >= 0]
    return found


def assert_where_the_emulator_has_them(plan, address, what):
    wrong = bytes_in_shared_memory(plan)[np.asarray(address) - STAGE] != element_bytes(plan)
    assert not wrong.any(), (
        f"{what}: element {np.argwhere(wrong)[0]} of {plan.problem.data_type.name}, {wrong.sum()} wrong"
    )


def by_ptx(plan, mn, k):
    """The address that the PTX instructions leave in %a."""
    registers = {"%base": STAGE, "%mn": mn, "%k": k}
    operations = {
        "mov.u32": lambda a: a,
        "add.u32": lambda a, b: a + b,
        "mad.lo.u32": lambda a, b, c: a * b + c,
        "div.u32": lambda a, b: a // b,
        "rem.u32": lambda a, b: a % b,
        "shr.u32": lambda a, b: a >> b,
        "shl.b32": lambda a, b: a << b,
        "and.b32": lambda a, b: a & b,
        "xor.b32": lambda a, b: a ^ b,
    }
    for line in plan.layout.terms().ptx.splitlines():
        operation, _, rest = line.removesuffix(";").partition(" ")
        target, *operands = rest.split(", ")
        values = [registers[name] if name.startswith("%") else int(name, 0) for name in operands]
        registers[target] = operations[operation](*values)
    return registers["%a"]


def by_c(expression, **indices):
    """The value of a C expression such as (a = base + mn * 128, a ^ 16), its integers divided as C does."""
    python = expression.replace("/", "//")
    assigned = re.fullmatch(r"\(a = (.*), (.*)\)", python)
    names = indices | {"base": STAGE}
    if assigned is None:
        return eval(python, names)
    return eval(assigned[2], names | {"a": eval(assigned[1], names)})


def check(plan):
    tile = plan.problem.tile
    mn, k = np.indices(tile)
    row, column = oriented(plan.problem.major, mn, k)
    first, second = plan.problem.extent_names
    found = {}
    exec(ts.snippet(plan, "address-python"), found)
    in_triton = {}
    exec(ts.snippet(plan, "address-triton").replace("@triton.jit\n", ""), in_triton)
    in_c = re.search(r"const unsigned a = (.*);\n  return (.*);|return (.*);", ts.snippet(plan, "address"))
    drawn = dict(draw_plan(plan).parts[0].rows)[f"({first}, {second}) at"].strip("`")
    printed = {
        "layout": plan.layout.with_start(STAGE).addresses(),
        "plan.address": plan.address(mn, k, STAGE),
        "drawn": by_c(drawn, **{first: mn, second: k}),
        "c_expression": by_c(plan.c_expression, r=row, c=column),
        "snippet in C": by_c(in_c[3] or f"(a = {in_c[1]}, {in_c[2]})", mn=mn, k=k),
        "snippet in Python": found["element_address"](STAGE, mn, k),
        "snippet in Triton": in_triton["element_address"](STAGE, mn, k),
        "PTX": by_ptx(plan, mn, k),
    }
    for what, address in printed.items():
        assert_where_the_emulator_has_them(plan, np.broadcast_to(address, tile), what)
    check_notations(plan)


@cache
def spelled(layout, notation):
    """The layout's text in a notation; None where it has none."""
    try:
        return ts.spell_layout(layout, notation)
    except ts.RuleError:
        return None


def check_notations(plan):
    """What a notation spells is read again as the same bytes; the spellings of a plan are among them, and say so or nothing."""
    said = {"cute-atom": plan.spellings["CuTe"], "triton": plan.spellings["Triton"]}
    for name, notation in NOTATION.items():
        text = spelled(plan.layout, name)
        assert said.get(name, text) == text
        if text is None:
            continue
        beside = {one: getattr(plan.layout, one) for one in notation.unsaid}
        if "bitwidth" in text.lower().replace("_", ""):
            beside.pop("element_bits", None)
        again = ts.parse_layout(text, **beside).with_start(STAGE)
        assert_where_the_emulator_has_them(plan, again.addresses(), name)


def types(quick):
    """All types; but for those named, under ./test --all only."""
    return [pytest.param(name, marks=[] if name in quick else [pytest.mark.slow]) for name in MOVED]


def check_all(data_type, **options):
    """The first plan of every swizzle, atom order and majorness, folded or not."""
    for major in ("K", "MN"):
        for swizzle in MODES:
            found = plans(data_type, swizzle, major=major, **options)
            for plan in {(one.atom_order, one.folded): one for one in reversed(found)}.values():
                check(plan)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("data_type", types(quick=("16u4_align16b", "16u6_align16b")))
def test_printed_addresses_are_the_emulators(data_type, reader):
    check_all(data_type, consumer=reader, arch=READERS[reader])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("data_type", types(quick=("bfloat16", "16u4_align8b", "e2m3")))
def test_printed_addresses_of_stores_are_the_emulators(data_type):
    check_all(data_type, direction="store", arch="sm_120")


@pytest.mark.parametrize("data_type", PADDED)
def test_a_padded_type_has_plans_for_every_kind_of_reader(data_type):
    """So that the sweep above is not empty."""
    for reader in ("tcgen05", "ldmatrix", "ld.b128 rows"):
        assert plans(data_type, "128B", consumer=reader, arch=READERS[reader], major="K")
    assert plans(data_type, "128B", consumer="ld.b128 rows", arch="sm_100", major="MN")
