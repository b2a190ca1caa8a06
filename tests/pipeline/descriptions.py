"""Small right pipelines, as plain data, and everything that can be changed in them."""

import copy

import tilescope as ts


def planned(tiles, options=None, **pipeline):
    plans = [ts.plan(tile, "bf16", **(options or {})).best for tile in tiles]
    return ts.plan_pipeline(plans, **pipeline).to_dict()


def ring(*, stages=2, steps=4, consumers=1, prologue=False, before=(), after=()):
    """A producer and consumers around `stages` slots; with `prologue` the consumers free every slot before they start."""
    s = stages
    start = 0 if prologue else 1
    freed = [{"loop": "f", "count": s, "steps": [{"release": "empty[f]"}]}] if prologue else []
    return {
        "name": "ring",
        "barriers": {"full": {"count": 1, "stages": s}, "empty": {"count": consumers, "stages": s}},
        "slots": {"a": {"stages": s, "bytes": 4096}, "b": {"stages": s, "bytes": 1024}},
        "roles": [
            {
                "name": "producer",
                "threads": 1,
                "steps": [
                    {
                        "loop": "i",
                        "count": steps,
                        "steps": [
                            {"wait": f"empty[i % {s}]", "parity": f"(i / {s}) % 2 ^ {start}"},
                            {"expect": f"full[i % {s}]", "bytes": 5120},
                            {"copy": f"a[i % {s}]", "bytes": 4096, "barrier": f"full[i % {s}]", "tile": "i"},
                            {
                                "copy": f"b[i % {s}]",
                                "bytes": 1024,
                                "barrier": f"full[i % {s}]",
                                "by": "bulk",
                                "tile": "i",
                            },
                        ],
                    }
                ],
            },
            {
                "name": "consumer",
                "threads": 128,
                "instances": consumers,
                "steps": [
                    *before,
                    *freed,
                    {
                        "loop": "i",
                        "count": steps,
                        "steps": [
                            {"wait": f"full[i % {s}]", "parity": f"(i / {s}) % 2"},
                            {"multiply": [f"a[i % {s}]", f"b[i % {s}]"], "tile": "i"},
                            {"commit": "wgmma"},
                            {"wait_group": "wgmma"},
                            {"release": f"empty[i % {s}]"},
                        ],
                    },
                    *after,
                ],
            },
        ],
    }


BLACKWELL = {"arch": "sm_100", "consumer": "tcgen05"}


def gemm(tile=(64, 64, 64), k=128, stages=2, **options):
    """A GEMM of two tiles a block, its epilogue included."""
    return ts.plan_pipeline(ts.plan_gemm(128, 64, k, "bf16", tile=tile, stages=stages, **options)).to_dict()


def split_meetings():
    """Two blocks: the first fills the second's slot by hand; arrivals and waits at both kinds of barriers stand apart."""
    return {
        "cluster": [2, 1],
        "barriers": {"full": {"count": 1}},
        "slots": {"a": {"bytes": 4096}, "b": {"bytes": 64}},
        "roles": [
            {
                "name": "maker",
                "threads": 32,
                "steps": [
                    {"init": ["full"]},
                    {"fence": "mbarrier_init"},
                    {"cluster": "arrive"},
                    {"write": ["b"]},
                    {"fence": "proxy.async"},
                    {"bar_arrive": 1, "threads": 64},
                    {"cluster": "wait"},
                    {"expect": "full", "bytes": 4096, "mask": 2, "when": "rank == 0"},
                    {"copy": "a", "bytes": 4096, "barrier": "full", "mask": 2, "when": "rank == 0"},
                    {"cluster": "sync"},
                ],
            },
            {
                "name": "taker",
                "threads": 32,
                "steps": [
                    {"cluster": "arrive"},
                    {"sync": 1, "threads": 64},
                    {"read": ["b"]},
                    {"store": ["b"]},
                    {"commit": "bulk"},
                    {"wait_group": "bulk", "pending": 0, "read": True},
                    {"cluster": "wait"},
                    {"wait": "full", "parity": 0, "when": "rank == 1"},
                    {"read": ["a"], "when": "rank == 1"},
                    {"cluster": "sync"},
                ],
            },
        ],
    }


RIGHT = {
    "ring of one": lambda: ring(stages=1, steps=3),
    "ring of two": ring,
    "ring of three, seven steps": lambda: ring(stages=3, steps=7),
    "two consumers": lambda: ring(consumers=2, steps=3),
    "consumers free first": lambda: ring(prologue=True),
    "planned": lambda: planned([(64, 64), (64, 64)], stages=2, steps=3),
    "planned, by thread": lambda: planned([(64, 64)], stages=2, steps=3, arrivals="thread"),
    "multicast": lambda: planned([(64, 64), (64, 64)], stages=1, steps=2, cluster=2),
    "ldmatrix": lambda: planned([(64, 64)], {"consumer": "ldmatrix"}, stages=2, steps=3),
    "cp.async": lambda: planned([(64, 64)], {"consumer": "ldmatrix", "copy": "cp.async"}, stages=2, steps=3),
    "through registers": lambda: planned([(64, 64)], {"copy": "ld.global"}, stages=2, steps=3),
    "stores": lambda: planned([(64, 64)], {"direction": "store"}, stages=2, steps=4),
    "tcgen05": lambda: planned([(128, 64), (64, 64)], BLACKWELL, stages=2, steps=3),
    "gemm": gemm,
    "gemm, tcgen05": lambda: gemm((128, 64, 64), k=64, stages=1, arch="sm_100"),
    "registers": lambda: planned([(64, 64)], stages=1, steps=2, consumers=2),
    "split meetings": split_meetings,
    "pairs of blocks": lambda: planned([(128, 64)], BLACKWELL, stages=1, steps=2, cluster=2, cta_group=2),
}


def mutants(data):
    """(what was changed, the changed data) for every count, byte, parity, fence, wait, flag and step."""
    for path, key, value in _places(data):
        for said, replaced in _changes(key, value):
            changed = copy.deepcopy(data)
            _at(changed, path)[key] = replaced
            yield f"{'.'.join(map(str, path))}.{key}: {said}", changed
    for path, steps in _step_lists(data):
        for number, step in enumerate(steps):
            changed = copy.deepcopy(data)
            del _at(changed, path)[number]
            yield f"{'.'.join(map(str, path))}: without {next(iter(step))} {number}", changed
            if "mask" in step:
                changed = copy.deepcopy(data)
                del _at(changed, path)[number]["mask"]
                yield f"{'.'.join(map(str, path))}: {next(iter(step))} {number} without mask", changed
        for number in range(len(steps) - 1):
            changed = copy.deepcopy(data)
            swapped = _at(changed, path)
            swapped[number], swapped[number + 1] = swapped[number + 1], swapped[number]
            yield f"{'.'.join(map(str, path))}: steps {number} and {number + 1} exchanged", changed


def _changes(key, value):
    """(what is changed, the other value) of a field."""
    match key:
        case "threads" | "registers" if value and isinstance(value, int):
            return [(f"{value} -> {other}", other) for other in (value + 32, value - 32) if other > 0]
        case "count" | "start" if isinstance(value, str):  # of a loop
            return [("one more", f"{value} + 1"), ("one less", f"{value} - 1")]
        case "count" | "pending" | "bytes" if isinstance(value, int):
            others = {value + 1, value - 1, 2 * value, value + 16, value - 16, 0} - {value}
            return [(f"{value} -> {other}", other) for other in others if other >= 0]
        case "parity":
            return [("flipped", f"({value}) ^ 1"), ("0", 0), ("1", 1)]
        case "noinc" | "arrive" | "read" if isinstance(value, bool):
            return [("flipped", not value)]
    return []


def _places(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(value, dict | list):
                yield path, key, value
            yield from _places(value, (*path, key))
        if "expect" in data and "arrive" not in data:
            yield path, "arrive", True
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _places(value, (*path, number))


def _step_lists(data, path=()):
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "steps":
                yield (*path, key), value
            yield from _step_lists(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _step_lists(value, (*path, number))


def _at(data, path):
    for key in path:
        data = data[key]
    return data
