"""Reads a kernel from TOML, JSON or plain data; every mistake is named at once.

    sizes = {M = 128, N = 128, D = 64}

    [roles]
    producer = {warps = 1}
    consumer = {warps = 4, instances = 2}

    [tiles]
    K = {shape = ["N", "D"], data_type = "bf16", stages = [1, 8]}

    [loops]
    kv = {}

    [[steps]]
    role = "producer"
    operation = "load"
    writes = ["K"]
    loop = "kv"

A number may be an expression of the names in `sizes`: shape = ["2 * M", "D"].
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from tilescope.arch import ARCH
from tilescope.errors import PlainData, argument_range, raise_all
from tilescope.kernel_plan.kernel_checks import check_parts
from tilescope.kernel_plan.kernel_description import KernelParts, Program
from tilescope.kernel_plan.kernel_rules import KERNEL_FILE
from tilescope.kernel_plan.kernel_tables import MAX_ROLES, MAX_STEPS, MAX_TILES, KernelTables
from tilescope.reading import known_name
from tilescope.sync.thread_limits import MAX_BLOCKS
from tilescope.value import Value, own_data

_PROGRAMS: tuple[Program, ...] = get_args(Program)
_TOP = (
    "kind",
    "name",
    "arch",
    "sizes",
    "roles",
    "tiles",
    "loops",
    "steps",
    "blocks_per_sm",
    "cluster",
    "program",
    "source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDescription(KernelParts, Value):
    """A kernel: roles, tiles, loops, and the steps of all roles in the order in which data passes through them.

    >>> kernel = read_kernel({
    ...     "sizes": {"M": 128},
    ...     "roles": {"producer": {"warps": 1}, "consumer": {"warps": 4}},
    ...     "tiles": {"A": {"shape": ["M", 64], "data_type": "bf16", "stages": 2}},
    ...     "loops": {"k": {}},
    ...     "steps": [{"role": "producer", "operation": "load", "writes": ["A"], "loop": "k"},
    ...               {"role": "consumer", "operation": "threads", "reads": ["A"], "loop": "k"}],
    ... })
    >>> kernel.tile("A").shape, kernel.tile("A").stage_bytes, kernel.threads
    ((128, 64), 16384, 160)
    """

    written: PlainData = field(default_factory=dict, repr=False, compare=False)  # as in the file

    def to_dict(self) -> PlainData:
        """The kernel as a file describes it."""
        return {"kind": self.kind, **self.written}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> KernelDescription:
        """The kernel that plain data describes."""
        return read_kernel(data)


def kernel_data(text: str | bytes, name: str) -> dict[str, object]:
    """The plain data of a TOML or JSON text; `name` is the file's.

    >>> kernel_data('name = "mine"', "mine.toml")
    {'name': 'mine'}
    """
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8")
        data = json.loads(decoded) if decoded.lstrip().startswith("{") else tomllib.loads(decoded)
    except UnicodeDecodeError:
        raise KERNEL_FILE.error(name=name, error="bytes that are not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise KERNEL_FILE.error(name=name, error=str(error)) from None
    if not isinstance(data, dict):
        raise KERNEL_FILE.error(name=name, error="it holds no table")
    return data


def read_kernel(data: object, sizes: Mapping[str, int] | None = None) -> KernelDescription:
    """The kernel that plain data describes, with some of its `sizes` replaced.

    >>> data = {"sizes": {"M": 64}, "roles": {"all": {"warps": 4}}, "steps": [],
    ...         "tiles": {"a": {"shape": ["M", 64], "data_type": "bf16"}}}
    >>> read_kernel(data, {"M": 128}).tile("a").shape
    (128, 64)
    """
    tables = KernelTables()
    top = dict(tables.table("kernel", own_data(data) if isinstance(data, Mapping) else data, _TOP))
    raise_all(tables.problems)
    tables.sizes = tables.read_sizes(top.get("sizes", {}), {} if sizes is None else sizes)
    loops = tuple(tables.read_loop(name, row) for name, row in tables.rows("loops", top, MAX_STEPS))
    roles = tuple(tables.read_role(name, row) for name, row in tables.rows("roles", top, MAX_ROLES))
    tiles = tuple(tables.read_tile(name, row) for name, row in tables.rows("tiles", top, MAX_TILES))
    listed = tables.list_of("steps", top.get("steps", ()))
    steps = tuple(tables.read_step(place, row) for place, row in enumerate(listed))
    arch = top.get("arch")
    program = top.get("program")
    kernel = KernelDescription(
        name=str(top.get("name", "kernel")),
        arch=None if arch is None else tables.attempt("sm_90", known_name, "arch", arch, tuple(ARCH)),
        sizes=tables.sizes,
        roles=roles,
        tiles=tiles,
        loops=loops,
        steps=steps,
        blocks_per_sm=tables.number("blocks_per_sm", top.get("blocks_per_sm", 1), 1, 32),
        cluster=tables.number("cluster", top.get("cluster", 1), 1, MAX_BLOCKS),
        program=None if program is None else tables.attempt(None, known_name, "program", program, _PROGRAMS),
        written={**{name: value for name, value in top.items() if name != "kind"}, "sizes": tables.sizes},
    )
    if not roles:
        tables.problems.append(argument_range("roles", {}, "a kernel has at least one role", "Add [roles]."))
    raise_all(tables.problems)
    check_parts(kernel)
    return kernel
