"""Random small pipelines as plain data, the same for the same seed: right ones, changed ones, and ones grown step by step.

    template   a right pipeline of a known kind, with random stages, steps, bytes, threads
    mutation   a template with one or two random changes, which may or may not break it
    grown      steps of random roles, each of which is right where it is appended: one order is right, others may not be

    name, data = next(pipelines(seed=7, count=1))

Which of them are right, `naive` knows.
"""

import random

from naive import BadOrderError, Naive

KINDS = ("template", "mutation", "grown", "mutation", "grown", "mutation")


def pipelines(seed, count):
    """`count` pipelines with their names; each depends on the seed and its number alone."""
    for index in range(count):
        rng = random.Random(f"{seed} {index}")
        kind = KINDS[index % len(KINDS)]
        if kind == "grown":
            said, data = "", Growth(rng).data
        else:
            said = rng.choice(list(TEMPLATES))
            data = TEMPLATES[said](rng)
        changes = {"template": 0, "mutation": rng.choice((1, 1, 1, 2)), "grown": rng.choice((0, 0, 0, 1))}[kind]
        for _ in range(changes):
            said += f"; {mutate(rng, data)}"
        yield f"{kind} {index}: {said}", data


# ---- templates: right pipelines ----


def loop(counter, count, steps, start=0):
    return {"loop": counter, "count": count, "start": start, "steps": steps}


def role(name, threads, steps, **more):
    return {"name": name, "threads": threads, "steps": steps, **more}


def consumption(rng, slots, tile=None, sync="1 + instance"):
    """Threads, steps that read slots, and the arrivals with which the role then frees them."""
    named = {} if tile is None else {"tile": tile}
    way = rng.choice(("wgmma", "warp", "warps", "warps, synchronised", "mma"))
    if way == "wgmma":
        return 128, [{"multiply": slots, **named}, {"commit": "wgmma"}, {"wait_group": "wgmma"}], 1
    read = {"multiply": slots, "unit": "mma", **named} if way == "mma" else {"read": slots, **named}
    if way == "warps":
        return 64, [read], rng.choice((2, 64))
    if way == "warps, synchronised":
        return 64, [read, {"sync": sync, "threads": 64}], 1
    return rng.choice((1, 32)), [read], 1


def filling(rng, slot, size, barrier, tile=None, mask=None):
    """Steps that fill a slot by copies and expect them."""
    common = {"barrier": barrier} | ({} if tile is None else {"tile": tile}) | ({} if mask is None else {"mask": mask})
    way = rng.choice(("whole", "whole", "halves", "halves in places", "lanes"))
    if way == "lanes":
        copies = [{"copy": slot, "bytes": size // 2, "lanes": 2, "by": "bulk", **common}]
    elif way == "whole":
        copies = [{"copy": slot, "bytes": size, "by": rng.choice(("tma", "bulk")), **common}]
    else:
        copies = [{"copy": slot, "bytes": size // 2, **common} for _ in range(2)]
        if way == "halves in places":
            copies[0]["offset"], copies[1]["offset"] = rng.choice(((size // 2, 0), (0, size // 2)))
    expect = {"expect": barrier, "bytes": size} | ({} if mask is None else {"mask": mask})
    if rng.random() < 0.25:
        return [{**expect, "arrive": False}, *copies, {"arrive": barrier} | ({} if mask is None else {"mask": mask})]
    return rng.choice(([expect, *copies], [expect, *copies], [*copies, expect]))


def ring(rng):
    """A producer and consumers around some stages."""
    s = rng.choice((1, 1, 2, 2, 3))
    consumers = rng.choice((1, 1, 1, 2))
    count = rng.randint(1, 3 if consumers == 1 else 2)
    size = rng.choice((32, 64, 4096))
    tile = rng.choice((None, "i", "i"))
    freed_first = rng.random() < 0.2
    threads, steps, arrivals = consumption(rng, [f"a[i % {s}]"], tile)
    free = [loop("f", s, [{"release": "empty[f]", "count": arrivals}])] if freed_first else []
    tail = rng.random() < 0.3 and not freed_first
    produce = [
        {"wait": f"empty[i % {s}]", "parity": f"i / {s} % 2 ^ {int(not freed_first)}"},
        *filling(rng, f"a[i % {s}]", size, f"full[i % {s}]", tile),
    ]
    consume = [
        {"wait": f"full[i % {s}]", "parity": f"i / {s} % 2"},
        *steps,
        {"release": f"empty[i % {s}]", "count": arrivals},
    ]
    tails = [loop("j", s, [{"tail": f"empty[j % {s}]", "parity": f"j / {s} % 2 ^ 1"}], count)] if tail else []
    return {
        "barriers": {"full": {"count": 1, "stages": s}, "empty": {"count": consumers * arrivals, "stages": s}},
        "slots": {"a": {"stages": s, "bytes": rng.choice((size, size, 0))}},
        "roles": [
            role("producer", rng.choice((1, 32, 128)), [loop("i", count, produce), *tails]),
            role("consumer", threads, [*free, loop("i", count, consume)], instances=consumers),
        ],
    }


def chain(rng):
    """A copy, then threads that turn one slot into another, then a reader of that."""
    count, size = rng.randint(1, 2), rng.choice((32, 1024))
    middle, third = rng.choice((32, 64)), consumption(rng, ["b"], "i", sync=2)
    if rng.random() < 0.4:
        third = 32, [{"store": "b"}, {"commit": "bulk"}, {"wait_group": "bulk", "read": True}], 1
    warps = middle // 32
    return {
        "barriers": {
            "af": {"count": 1},
            "ae": {"count": warps},
            "bf": {"count": warps},
            "be": {"count": third[2]},
        },
        "slots": {"a": {"bytes": size}, "b": {"bytes": rng.choice((0, 512))}},
        "roles": [
            role("first", 1, [loop("i", count, [{"wait": "ae", "parity": "i % 2 ^ 1"}, *filling(rng, "a", size, "af")])]),
            role("middle", middle, [loop("i", count, [
                {"wait": "af", "parity": "i % 2"},
                {"read": ["a"]},
                {"wait": "be", "parity": "i % 2 ^ 1"},
                {"write": ["b"], "tile": "i"},
                {"fence": "proxy.async"},
                {"arrive": "bf", "count": warps},
                {"release": "ae", "count": warps},
            ])]),
            role("third", third[0], [loop("i", count, [
                {"wait": "bf", "parity": "i % 2"}, *third[1], {"release": "be", "count": third[2]},
            ])]),
        ],
    }  # fmt: skip


def pingpong(rng):
    """Two groups take turns with one buffer, which each writes and stores."""
    count, threads = rng.randint(1, 2), rng.choice((32, 64))
    sync = [{"sync": "1 + instance", "threads": 64}] if threads == 64 else []
    return {
        "barriers": {"turn": {"count": 1, "stages": 2}},
        "slots": {"d": {"bytes": rng.choice((0, 256))}},
        "roles": [role("group", threads, [loop("t", count, [
            {"wait": "turn[instance]", "parity": "t % 2 ^ (instance == 0)"},
            {"write": ["d"], "tile": "2 * t + instance"},
            {"fence": "proxy.async"},
            *sync,
            {"store": "d"},
            {"commit": "bulk"},
            {"wait_group": "bulk", "read": True},
            *sync,
            {"arrive": "turn[1 - instance]"},
        ])], instances=2)],
    }  # fmt: skip


def cluster(rng):
    """Two blocks: one loads for both, or each loads a half for both; consumers free the slot where it is loaded."""
    count, size, halves = rng.choice((1, 1, 2)), rng.choice((64, 256)), rng.random() < 0.5
    threads, steps, arrivals = consumption(rng, ["b"], rng.choice((None, "i")))
    if halves:
        copies = [{"copy": "b", "bytes": size // 2, "offset": f"rank * {size // 2}", "barrier": "full", "mask": 3}]
        loads, expects = 3, {"expect": "full", "bytes": size}
    else:
        copies = [{"copy": "b", "bytes": size, "barrier": "full", "mask": 3, "when": "rank == 0"}]
        loads, expects = 1, {"expect": "full", "bytes": size, "mask": 3, "when": "rank == 0"}
    if steps[0].get("tile"):
        copies[0]["tile"] = "i"
    starts = rng.random() < 0.6
    start = [{"init": ["full", "empty"]}, {"fence": "mbarrier_init"}, {"cluster": "sync"}] if starts else []
    met = rng.choice(([{"cluster": "sync"}], [{"cluster": "arrive"}, {"cluster": "wait"}]))
    wait = {"wait": "empty", "parity": "i % 2 ^ 1"} | ({} if halves else {"when": "rank == 0"})
    return {
        "cluster": [2, 1],
        "barriers": {"full": {"count": 1}, "empty": {"count": 2 * arrivals}},
        "slots": {"b": {"bytes": size}},
        "roles": [
            role("producer", 1, [*start, loop("i", count, [wait, expects, *copies]), *met]),
            role("consumer", threads, [
                *(met if starts else []),
                loop("i", count, [
                    {"wait": "full", "parity": "i % 2"}, *steps, {"release": "empty", "count": arrivals, "mask": loads},
                ]),
                *met,
            ]),
        ],
    }  # fmt: skip


def cp_async(rng):
    """cp.async and the arrivals that come when they have landed."""
    count, size, threads = rng.randint(1, 3), rng.choice((64, 512)), rng.choice((32, 64))
    warps, noinc = threads // 32, rng.random() < 0.6
    consumer, steps, arrivals = consumption(rng, ["a"], "i")
    copies = [{"copy": "a", "bytes": size, "by": "cp.async", "tile": "i"}]
    if rng.random() < 0.4:
        copies = [{**copies[0], "bytes": size // 2} for _ in range(2)]
    arrive = [{"cp_arrive": "full", "count": warps, "noinc": noinc}]
    if not noinc:
        arrive += [{"arrive": "full", "count": warps}]
    return {
        "barriers": {"full": {"count": warps}, "empty": {"count": arrivals}},
        "slots": {"a": {"bytes": rng.choice((size, 0))}},
        "roles": [
            role("producer", threads, [loop("i", count, [
                {"wait": "empty", "parity": "i % 2 ^ 1"}, *copies, *arrive,
            ])]),
            role("consumer", consumer, [loop("i", count, [
                {"wait": "full", "parity": "i % 2"}, {"fence": "proxy.async"}, *steps,
                {"release": "empty", "count": arrivals},
            ])]),
        ],
    }  # fmt: skip


def cp_async_groups(rng):
    """One role that copies ahead by cp.async and waits for its groups."""
    count, size, threads = rng.randint(2, 4), rng.choice((64, 512)), rng.choice((32, 128))
    sync = [{"sync": 1, "threads": threads}] if threads > 32 else []
    use = rng.choice(("read", "wgmma"))
    using = [{"read": ["a[i % 2]"], "tile": "i"}]
    if use == "wgmma":
        multiply = {"multiply": ["a[i % 2]"], "tile": "i"}
        using = [{"fence": "proxy.async"}, *sync, multiply, {"commit": "wgmma"}, {"wait_group": "wgmma"}]
    copies = {"copy": "a[{0} % 2]", "bytes": size, "by": "cp.async", "tile": "{0}"}

    def copy_of(index):
        return {**copies, "copy": copies["copy"].format(index), "tile": copies["tile"].format(index)}

    return {
        "slots": {"a": {"stages": 2, "bytes": rng.choice((size, 0))}},
        "roles": [role("both", threads, [
            copy_of("0"), {"commit": "cp.async"},
            loop("i", count, [
                {**copy_of("(i + 1)"), "when": f"i + 1 < {count}"},
                {"commit": "cp.async"}, {"wait_group": "cp.async", "pending": 1}, *sync, *using, *sync,
            ]),
        ])],
    }  # fmt: skip


def stores(rng):
    """Threads write, TMA stores, at most a slot's stores are under way."""
    s, count = rng.randint(1, 2), rng.randint(1, 3)
    together = rng.random() < 0.5
    slots = {"d": {"stages": s, "bytes": rng.choice((0, 512))}}
    wait = {"wait_group": "bulk", "pending": s - 1, "read": True}
    write = [{"write": [f"d[i % {s}]"], "tile": "i"}, {"fence": "proxy.async"}]
    store = [{"store": f"d[i % {s}]"}, {"commit": "bulk"}]
    if together:
        threads = rng.choice((32, 128))
        sync = [{"sync": 1, "threads": threads}] if threads > 32 else []
        steps = [loop("i", count, [wait, *sync, *write, *sync, *store]), {"wait_group": "bulk"}]
        return {"slots": slots, "roles": [role("epilogue", threads, steps)]}
    first, second = {"sync": 1, "threads": 96}, {"sync": 2, "threads": 96}
    return {
        "slots": slots,
        "roles": [
            role("storer", 32, [loop("i", count, [wait, first, second, *store]), {"wait_group": "bulk", "read": True}]),
            role("writer", 64, [loop("i", count, [first, *write, second])]),
        ],
    }


def tensor_memory(rng):
    """TMA, tcgen05 into tensor memory, an epilogue that reads it."""
    tiles, k = rng.randint(1, 2), rng.randint(1, 2)
    size, threads = 64, rng.choice((32, 128))
    warps = threads // 32
    total = tiles * k
    return {
        "constants": {"K": k},
        "barriers": {"full": {"count": 1}, "empty": {"count": 1}, "done": {"count": 1}, "free": {"count": warps}},
        "slots": {"a": {"bytes": size}, "acc": {"space": "tmem"}},
        "roles": [
            role("load", 1, [loop("i", total, [
                {"wait": "empty", "parity": "i % 2 ^ 1"}, *filling(rng, "a", size, "full", "i"),
            ])]),
            role("mma", 32, [loop("t", tiles, [
                {"wait": "free", "parity": "t % 2 ^ 1"},
                {"fence": "tcgen05.after"},
                loop("k", k, [
                    {"wait": "full", "parity": "(t * K + k) % 2"},
                    {"multiply": ["a"], "unit": "tcgen05", "into": "acc", "tile": "t * K + k"},
                    {"commit": "empty"},
                ]),
                {"commit": "done"},
            ])]),
            role("epilogue", threads, [loop("t", tiles, [
                {"wait": "done", "parity": "t % 2"},
                {"fence": "tcgen05.after"},
                {"read": ["acc"]},
                {"fence": "tcgen05.before"},
                {"release": "free", "count": warps},
            ]), *([{"tail": "empty", "parity": (total - 1) % 2}] if rng.random() < 0.5 else [])]),
        ],
    }  # fmt: skip


def bar(rng):
    """Threads hand a slot over by bar.sync and bar.arrive."""
    count, threads, size = rng.randint(1, 3), rng.choice((32, 64, 128)), rng.choice((0, 64))
    total = threads + 32
    if rng.random() < 0.5:
        taking = [{"store": "a"}, {"commit": "bulk"}, {"wait_group": "bulk"}]
    else:
        taking = [{"read": ["a"], "tile": "i"}]
    filled = rng.choice(("bar_arrive", "sync"))
    return {
        "slots": {"a": {"bytes": size}},
        "roles": [
            role("writer", threads, [loop("i", count, [
                {"sync": 2, "threads": total, "when": "i > 0"},
                {"write": ["a"], "tile": "i"},
                {"fence": "proxy.async"},
                {filled: 1, "threads": total},
            ])]),
            role("taker", 32, [loop("i", count, [
                {"sync": 1, "threads": total},
                *taking,
                {rng.choice(("bar_arrive", "sync")): 2, "threads": total, "when": f"i < {count - 1}"},
            ])]),
        ],
    }  # fmt: skip


def registers(rng):
    """setmaxnreg: a producer gives registers to consumers."""
    groups = rng.randint(1, 2)
    entry, fewer, more = rng.choice(((168, 40, 232), (128, 64, 160), (168, 24, 240)))
    meets = rng.random() < 0.5
    return {
        "registers": entry,
        "barriers": {"full": {"count": 1}, "done": {"count": groups}},
        "slots": {"a": {"bytes": 128}},
        "roles": [
            role("producer", 128, [
                {"registers": fewer}, *filling(rng, "a", 128, "full"), {"wait": "done", "parity": 0},
            ]),
            role("consumer", 128, [
                {"registers": more},
                {"wait": "full", "parity": 0},
                {"multiply": ["a"]}, {"commit": "wgmma"}, {"wait_group": "wgmma"},
                {"arrive": "done"},
                *([{"registers": entry}] if meets else []),
            ], instances=groups),
        ],
    }  # fmt: skip


TEMPLATES = {
    "ring": ring,
    "chain": chain,
    "pingpong": pingpong,
    "cluster": cluster,
    "cp_async": cp_async,
    "cp_async_groups": cp_async_groups,
    "stores": stores,
    "tensor_memory": tensor_memory,
    "bar": bar,
    "registers": registers,
}


# ---- mutations ----


def step_lists(steps):
    """A list of steps and those of the loops in it."""
    yield steps
    for step in steps:
        if "loop" in step:
            yield from step_lists(step["steps"])


def lists_of(data):
    return [steps for each in data["roles"] for steps in step_lists(each["steps"])]


def steps_of(data, *ops):
    return [step for steps in lists_of(data) for step in steps if next(iter(step)) in ops]


def mutate(rng, data):
    """Change the data at random; what was changed, in words."""
    for _ in range(100):
        change = rng.choice(MUTATIONS)
        said = change(rng, data)
        if said:
            return f"{change.__name__}: {said}"
    return "nothing"


def set_to(step, key, value):
    """Set a key of a step or a row; what was changed, in words, or "" where nothing was."""
    before = step.get(key)
    if before == value:
        return ""
    step[key] = value
    return f"{key} of {next(iter(step.values()))}: {before} -> {value}"


def barrier_count(rng, data):
    if not data.get("barriers"):
        return ""
    name = rng.choice(list(data["barriers"]))
    row = data["barriers"][name]
    return set_to(row, "count", max(1, rng.choice((row["count"] - 1, row["count"] + 1, 2 * row["count"])))) and name


def step_bytes(rng, data):
    steps = steps_of(data, "expect", "copy")
    if not steps:
        return ""
    step = rng.choice(steps)
    size = step["bytes"]
    return set_to(step, "bytes", max(0, rng.choice((size - 16, size + 16, size * 2, size // 2, 0, size - 8))))


def slot_bytes(rng, data):
    if not data.get("slots"):
        return ""
    name = rng.choice(list(data["slots"]))
    row = data["slots"][name]
    size = row.get("bytes", 0)
    return set_to(row, "bytes", max(0, rng.choice((size - 16, size + 16, size * 2, 0)))) and name


def parity(rng, data):
    steps = steps_of(data, "wait", "tail")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "parity", rng.choice((f"({step['parity']}) ^ 1", 0, 1)))


def neighbours(rng, data):
    steps = rng.choice(lists_of(data))
    if len(steps) < 2:
        return ""
    place = rng.randrange(len(steps) - 1)
    steps[place], steps[place + 1] = steps[place + 1], steps[place]
    return f"{place}, {steps[place]}"


def moved(rng, data):
    steps = rng.choice(lists_of(data))
    if len(steps) < 3:
        return ""
    step = steps.pop(rng.randrange(len(steps)))
    steps.insert(rng.randrange(len(steps) + 1), step)
    return str(step)


def dropped(rng, data):
    steps = rng.choice(lists_of(data))
    if not steps:
        return ""
    return str(steps.pop(rng.randrange(len(steps))))


def doubled(rng, data):
    steps = [each for each in lists_of(data) if each]
    steps = rng.choice(steps) if steps else []
    simple = [step for step in steps if "loop" not in step]
    if not simple:
        return ""
    step = rng.choice(simple)
    steps.insert(rng.randrange(steps.index(step), len(steps) + 1), dict(step))
    return str(step)


def some_place(rng, table):
    name = rng.choice(list(table))
    stages = table[name].get("stages", 1)
    return f"{name}[{rng.randrange(stages)}]" if stages > 1 else name


def other_barrier(rng, data):
    steps = steps_of(data, "wait", "tail", "expect", "arrive", "release", "cp_arrive", "copy")
    steps = [step for step in steps if step.get("by") != "cp.async"]
    if not steps:
        return ""
    step = rng.choice(steps)
    key = "barrier" if "copy" in step else next(iter(step))
    return set_to(step, key, some_place(rng, data["barriers"]))


def other_slot(rng, data):
    steps = steps_of(data, "copy", "read", "write", "multiply", "store")
    if not steps:
        return ""
    step = rng.choice(steps)
    key = next(iter(step))
    place = some_place(rng, data["slots"])
    return set_to(step, key, [place] if isinstance(step[key], list) else place)


def fences(rng, data):
    steps = rng.choice(lists_of(data))
    place, count = rng.randrange(len(steps) + 1), rng.choice((1, 1, 2, 6))
    steps[place:place] = [{"fence": "proxy.async"} for _ in range(count)]
    return f"{count} at {place}"


def inserted(rng, data):
    steps = rng.choice(lists_of(data))
    steps.insert(rng.randrange(len(steps) + 1), some_step(rng, data))
    return str(steps)


def some_step(rng, data):
    """A step that needs no others, with whatever the pipeline has."""
    choices = [{"sync": rng.randrange(1, 3), "threads": rng.choice((32, 64, 96))}]
    if data.get("barriers"):
        barrier = some_place(rng, data["barriers"])
        choices += [
            {"arrive": barrier},
            {"wait": barrier, "parity": rng.randrange(2)},
            {"expect": barrier, "bytes": rng.choice((0, 16)), "arrive": rng.random() < 0.5},
        ]
    if data.get("slots"):
        slot = some_place(rng, data["slots"])
        choices += [{"read": [slot]}, {"write": [slot]}]
    return rng.choice(choices)


def threads(rng, data):
    each = rng.choice(data["roles"])
    return set_to(each, "threads", rng.choice((1, 32, 64, 128)))


def instances(rng, data):
    each = rng.choice(data["roles"])
    return set_to(each, "instances", 3 - each.get("instances", 1)) if each.get("instances", 1) < 3 else ""


def offset(rng, data):
    steps = steps_of(data, "copy")
    if not steps:
        return ""
    step = rng.choice(steps)
    if "offset" in step and rng.random() < 0.5:
        return f"none instead of {step.pop('offset')}"
    return set_to(step, "offset", rng.choice((0, 16, step["bytes"] // 2, step["bytes"])))


def lanes(rng, data):
    steps = steps_of(data, "copy")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "lanes", rng.choice((1, 2, 32)))


def tile(rng, data):
    steps = steps_of(data, "copy", "read", "write", "multiply")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "tile", rng.choice((0, 1, f"{step.get('tile', 0)} + 1")))


def flag(rng, data):
    steps = steps_of(data, "expect", "cp_arrive")
    if not steps:
        return ""
    step = rng.choice(steps)
    key = "arrive" if "expect" in step else "noinc"
    return set_to(step, key, not step.get(key, "expect" in step))


def arrivals(rng, data):
    steps = steps_of(data, "arrive", "release", "cp_arrive")
    if not steps:
        return ""
    step = rng.choice(steps)
    count = step.get("count", 1)
    return set_to(step, "count", max(0, rng.choice((count - 1, count + 1, 2 * count, 1))))


def pending(rng, data):
    steps = steps_of(data, "wait_group")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "pending", max(0, step.get("pending", 0) + rng.choice((-1, 1))))


def meeting_threads(rng, data):
    steps = steps_of(data, "sync", "bar_arrive")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "threads", rng.choice((0, 32, 64, 96, 128)))


def mask(rng, data):
    steps = steps_of(data, "expect", "arrive", "release", "copy")
    if "cluster" not in data or not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "mask", rng.choice((1, 2, 3)))


def meeting(rng, data):
    steps = steps_of(data, "cluster")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "cluster", rng.choice(("sync", "arrive", "wait")))


def condition(rng, data):
    steps = [step for steps in lists_of(data) for step in steps if "when" in step]
    if not steps:
        return ""
    step = rng.choice(steps)
    return str(step.pop("when"))


def rounds(rng, data):
    steps = steps_of(data, "loop")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "count", step["count"] + rng.choice((-1, 1)))


def pool(rng, data):
    steps = steps_of(data, "registers")
    if not steps:
        return ""
    step = rng.choice(steps)
    return set_to(step, "registers", rng.choice((24, 40, 96, 160, 168, 232, 240)))


MUTATIONS = (
    barrier_count, step_bytes, slot_bytes, parity, parity, neighbours, neighbours, moved, dropped, dropped, doubled,
    other_barrier, other_slot, fences, inserted, inserted, threads, threads, instances, offset, lanes, tile, flag,
    arrivals, pending, meeting_threads, mask, mask, meeting, condition, rounds, pool, pool,
)  # fmt: skip


# ---- grown along one right order ----


class Growth:
    """A pipeline to which steps are appended that the naive chip takes as it is then, one after another."""

    def __init__(self, rng):
        self.rng = rng
        names = "pqrs"[: rng.choice((1, 2, 2, 2, 3, 3, 4))]
        blocks = rng.choice((1, 1, 2)) if len(names) > 1 else 1
        self.data = {
            "barriers": {name: {"count": rng.choice((1, 1, 1, 2))} for name in "fgh"[: rng.randint(1, 3)]},
            "slots": {name: {"bytes": rng.choice((0, 32, 32, 64))} for name in "ab"[: rng.randint(1, 2)]},
            "roles": [
                role(name, rng.choice((1, 32, 32, 64, 128)), [], mask=1 << rng.randrange(blocks))
                for name in names
            ],
        }
        if blocks == 1:
            for each in self.data["roles"]:
                del each["mask"]
        else:
            self.data["cluster"] = [2, 1]
            self.data["roles"][-1]["mask"] = 3 - self.data["roles"][0]["mask"]  # both blocks have a role
            self.data["roles"].sort(key=lambda each: each["mask"])  # agents have the order of roles
        self.tensor_memory = rng.random() < 0.15
        if self.tensor_memory:
            self.data["slots"]["acc"] = {"space": "tmem"}
        self.chip = Naive(self.data)
        self.world = self.chip.fresh_world()
        self.users = {}  # of a slot in a block: agents that touched it since it was filled
        self.tiles = 0
        self.begin()
        for _ in range(rng.randint(2, 7)):
            rng.choice(self.habits())()
        self.finish()

    def habits(self):
        habits = [self.fill_by_copy] * 4 + [self.fill_by_threads] * 3 + [self.use] * 5 + [self.stray] * 2
        habits += [self.hand_over_to_anyone, self.fill_by_cp_async, self.meet]
        if self.tensor_memory:
            habits += [self.multiply_into_tensor_memory] * 4
        return habits

    # ---- one step ----

    def rank(self, agent):
        return self.chip.ranks[agent]

    def some_agent(self, rank=None):
        return self.rng.choice([agent for agent in self.chip.agents if rank in (None, self.rank(agent))])

    def do(self, agent, **step):
        """Append a step to a role if the chip takes it now; whether it did."""
        steps = self.data["roles"][agent]["steps"]
        if len(steps) >= 14:
            return False
        program = self.chip.program([*steps, step], self.rank(agent))
        before = self.chip.programs[agent]
        self.chip.programs[agent] = program
        following = self.world.copy()
        try:
            if self.chip.ready(following, agent):
                self.chip.step(following, agent)
                self.world = following
                steps.append(step)
                return True
        except BadOrderError:
            pass
        self.chip.programs[agent] = before
        return False

    def land(self, chance=1.0):
        """Whatever is under way lands, or some of it."""
        for flight in sorted(self.world.flights):
            if self.rng.random() < chance:
                following = self.world.copy()
                try:
                    self.chip.land(following, flight)
                except BadOrderError:
                    continue
                self.world = following

    def barrier_state(self, name, rank):
        return self.world.barriers[self.chip.barriers[name, 0, rank]]

    def wait(self, agent, name):
        """Wait for the last phase that has ended."""
        phase = self.barrier_state(name, self.rank(agent))[0]
        return phase > 0 and self.do(agent, wait=name, parity=(phase - 1) & 1)

    # ---- several steps ----

    def begin(self):
        """Sometimes barriers are initialised by a role in each block, and all meet."""
        if self.rng.random() > 0.25:
            return
        self.chip.initialises = True
        names = list(self.data["barriers"])
        for rank in range(self.chip.blocks):
            first = next(agent for agent in self.chip.agents if self.rank(agent) == rank)
            self.do(first, init=names)
            if self.rng.random() < 0.9:
                self.do(first, fence="mbarrier_init")
        self.meet()

    def meet(self):
        """All agents of a block, or of the cluster, meet; now and then one of them is left out."""
        if self.chip.blocks == 2:
            apart = self.rng.random() < 0.3
            for agent in self.chip.agents:
                self.do(agent, cluster="arrive" if apart else "sync")
            if apart:
                for agent in self.chip.agents:
                    self.do(agent, cluster="wait")
            return
        number = self.rng.randrange(1, 4)
        for agent in self.chip.agents:
            self.do(agent, sync=number)

    def hand_over(self, first, second):
        """The first agent arrives at a barrier of the second's block, which waits for it."""
        rank = self.rank(second)
        name = self.rng.choice(list(self.data["barriers"]))
        _, pending, tx, _ = self.barrier_state(name, rank)
        if tx:
            return False
        step = {"arrive": name, "count": pending}
        if self.rank(first) != rank:
            step["mask"] = 1 << rank
        if self.chip.warps[first] > pending and self.rng.random() < 0.9:
            self.do(first, sync=8 + first, threads=32 * self.chip.warps[first])
        return self.do(first, **step) and self.rng.random() < 0.95 and self.wait(second, name)

    def hand_over_to_anyone(self):
        self.hand_over(self.some_agent(), self.some_agent())

    def come_to(self, slot, agent):
        """The agents that touched a slot let another agent know; mostly."""
        for other in sorted(self.users.get((slot, self.rank(agent)), ())):
            if other != agent and self.rng.random() < 0.92:
                self.hand_over(other, agent)

    def shared_slots(self):
        return [name for name, row in self.data["slots"].items() if row.get("space") != "tmem"]

    def named(self):
        """A tile, or none."""
        return {"tile": self.tiles} if self.rng.random() < 0.7 else {}

    def fill_by_copy(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        rank, barrier = self.rank(agent), self.rng.choice(list(self.data["barriers"]))
        there = {}
        if self.chip.blocks == 2 and self.rng.random() < 0.4:
            rank = 1 - rank
            there = {"mask": 1 << rank}
        for other in sorted(self.users.get((slot, rank), ())):
            if other != agent and self.rng.random() < 0.92:
                self.hand_over(other, agent)
        size = self.data["slots"][slot]["bytes"] or 32
        self.tiles += 1
        tile = self.named()
        _, pending, _, _ = self.barrier_state(barrier, rank)
        steps = [{"expect": barrier, "bytes": size, "arrive": pending == 1, **there}]
        parts = self.rng.choice((1, 1, 2))
        by = self.rng.choice(("tma", "bulk"))
        copies = [
            {"copy": slot, "bytes": size // parts, "barrier": barrier, "by": by, **tile, **there} for _ in range(parts)
        ]
        if parts == 2 and self.rng.random() < 0.5:
            copies[0]["offset"], copies[1]["offset"] = size // 2, 0
        steps += copies
        if pending > 1:
            steps.append({"arrive": barrier, "count": pending, **there})
        if self.rng.random() < 0.2:
            first, second = self.rng.sample(range(len(steps)), 2)
            steps[first], steps[second] = steps[second], steps[first]
        issued = [self.do(agent, **step) for step in steps]
        self.land(0.9)
        reader = self.some_agent(rank)
        if any(issued):
            self.users[slot, rank] = {reader}
        if self.rng.random() < 0.93 and self.wait(reader, barrier) and self.rng.random() < 0.7:
            self.read(reader, slot)

    def fill_by_threads(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        self.tiles += 1
        if self.do(agent, write=[slot], **self.named()):
            self.users[slot, self.rank(agent)] = {agent}
            if self.rng.random() < 0.6:
                self.do(agent, fence="proxy.async")

    def fill_by_cp_async(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        size = self.data["slots"][slot]["bytes"] or 32
        self.tiles += 1
        if not self.do(agent, copy=slot, bytes=size, by="cp.async", **self.named()):
            return
        self.users[slot, self.rank(agent)] = {agent}
        if self.rng.random() < 0.5:
            self.do(agent, commit="cp.async")
            self.do(agent, wait_group="cp.async")
            return
        barrier = self.rng.choice(list(self.data["barriers"]))
        _, pending, _, _ = self.barrier_state(barrier, self.rank(agent))
        self.do(agent, cp_arrive=barrier, count=pending, noinc=True)
        self.land()
        reader = self.some_agent(self.rank(agent))
        if self.wait(reader, barrier):
            self.users[slot, self.rank(agent)] = {reader}

    def use(self):
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        self.come_to(slot, agent)
        self.read(agent, slot)

    def read(self, agent, slot):
        """Read a slot by threads, by wgmma or by a store."""
        way = self.rng.choice(("read", "read", "wgmma", "store"))
        kind = {"wgmma": "wgmma", "store": "bulk"}.get(way)
        op = {"wgmma": "multiply"}.get(way, way)
        if kind and self.rng.random() < 0.3:
            self.do(agent, fence="proxy.async")
        named = self.named() if op != "store" and self.rng.random() < 0.8 else {}
        if not self.do(agent, **{op: [slot]}, **named):
            return
        if kind:
            self.do(agent, commit=kind)
            if self.rng.random() < 0.9:
                self.do(agent, wait_group=kind)
        self.users.setdefault((slot, self.rank(agent)), set()).add(agent)

    def multiply_into_tensor_memory(self):
        """tcgen05 reads a slot and writes tensor memory; somebody waits for it and reads that."""
        agent, slot = self.some_agent(), self.rng.choice(self.shared_slots())
        rank, barrier = self.rank(agent), self.rng.choice(list(self.data["barriers"]))
        self.come_to(slot, agent)
        self.come_to("acc", agent)
        if not self.do(agent, multiply=[slot], unit="tcgen05", into="acc"):
            return
        _, pending, _, _ = self.barrier_state(barrier, rank)
        for _ in range(pending):
            self.do(agent, commit=barrier)
        self.land(0.9)
        reader = self.some_agent(rank)
        self.users["acc", rank] = {reader}
        self.users[slot, rank] = {reader}
        if self.wait(reader, barrier):
            if self.rng.random() < 0.9:
                self.do(reader, fence="tcgen05.after")
            self.do(reader, read=["acc"])
            if self.rng.random() < 0.9:
                self.do(reader, fence="tcgen05.before")

    def stray(self):
        """A step for no reason."""
        self.do(self.some_agent(), **some_step(self.rng, self.data))

    def finish(self):
        """Whoever may leave too early waits, mostly; in a cluster all meet."""
        for agent in self.chip.agents:
            for kind in ("wgmma", "bulk"):
                opened, closed = self.world.groups[self.chip.group(agent, kind)]
                if (opened or closed) and self.rng.random() < 0.9:
                    self.do(agent, wait_group=kind)
        if self.chip.blocks == 2 and self.rng.random() < 0.8:
            self.meet()
