"""Random kernels: a producer, consumers and sometimes an epilogue warp pass tiles through two loops, or rings through many."""

import random


def random_kernel(seed):
    """A kernel whose steps are in the order of its data; sizes, stages, overlays and roles are random."""
    draw = random.Random(seed)
    groups = draw.choice((1, 2))
    roles = {"producer": {"warps": draw.choice((1, 4))}, "consumer": {"warps": 4, "instances": groups}}
    tiles, steps = {}, []

    def tile(name, rows, columns, **fields):
        overlay = draw.choice((True, True, False))
        stages = fields.pop("stages", 1)
        row = {"shape": [rows, columns], "data_type": draw.choice(("bf16", "float16")), "overlay": overlay}
        tiles[name] = row | {"stages": stages} | fields

    def step(role, operation, loop, **fields):
        steps.append({"role": role, "operation": operation, "loop": loop} | fields)

    if draw.random() < 0.6:
        tile("q", 64, 64 * draw.choice((1, 2, 4)))
        step("producer", "load", "outer", writes=["q"])
    for number in range(draw.choice((1, 2, 3))):
        name = f"r{number}"
        least = draw.choice((1, 1, 2, 3))
        tile(
            name, 64 * draw.choice((1, 2, 3)), 64 * draw.choice((1, 2)), stages=[least, least + draw.choice((0, 1, 4))]
        )
        step("producer", "load", "inner", writes=[name])
        if draw.random() < 0.5:
            tiles[f"acc{number}"] = {"shape": [64, 64], "data_type": "float32", "memory": "registers"}
            step("consumer", "wgmma", "inner", a="q" if "q" in tiles else name, b=name, writes=[f"acc{number}"])
        else:
            step("consumer", "threads", "inner", reads=[name, *(["q"] if "q" in tiles else [])])
        if draw.random() < 0.4:
            tile(f"p{number}", 64, 64 * draw.choice((1, 2)), per_instance=True)
            step("consumer", "threads", "inner", writes=[f"p{number}"])
            step("consumer", draw.choice(("threads", "store")), "inner", reads=[f"p{number}"])
    if "q" in tiles:
        step("consumer", "threads", "outer", reads=["q"])
    if draw.random() < 0.7:
        tile("o", 64, 64 * draw.choice((1, 2, 4, 8)), per_instance=True)
        writer = "consumer"
        reader = "consumer"
        if draw.random() < 0.4:
            roles["epilogue"] = {"warps": 1}
            reader = "epilogue"
        step(writer, "threads", "outer", writes=["o"])
        step(reader, "store", "outer", reads=["o"])
    return {
        "cluster": _share_rings(draw, tiles),
        "name": f"random {seed}",
        "arch": draw.choice(("sm_90", "sm_90", "sm_120")) if not any("a" in row for row in steps) else "sm_90",
        "roles": roles,
        "tiles": tiles,
        "loops": {"outer": {"count": 2}, "inner": {"inside": "outer", "count": 4}},
        "steps": steps,
    }


def _share_rings(draw, tiles):
    """Lets blocks of a cluster share some of the rings; the blocks of the cluster."""
    rings = [name for name in tiles if name.startswith("r")]
    shared = [name for name in rings if draw.random() < 0.2]
    for name in shared:
        tiles[name]["multicast"] = draw.choice(("first", "slices"))
    return 2 if shared else 1


def ring_kernel(seed, rings, stages, *, loops):
    """Rings of random sizes that may all lie over each other, spread over some loops one after another."""
    draw = random.Random(seed)
    tiles, steps = {}, []
    for number in range(rings):
        shape = [64 * draw.choice((1, 2, 3)), 64 * draw.choice((1, 2))]
        tiles[f"r{number}"] = {"shape": shape, "data_type": "bf16", "stages": list(stages), "overlay": True}
        loop = f"loop{number * loops // rings}"
        steps.append({"role": "producer", "operation": "load", "writes": [f"r{number}"], "loop": loop})
        steps.append({"role": "consumer", "operation": "threads", "reads": [f"r{number}"], "loop": loop})
    return {
        "roles": {"producer": {"warps": 1}, "consumer": {"warps": 4}},
        "tiles": tiles,
        "loops": {f"loop{number}": {} for number in range(loops)},
        "steps": steps,
    }
