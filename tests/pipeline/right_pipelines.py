"""Right pipelines of known kinds as plain data, with random stages, steps, bytes and threads.

data = TEMPLATES["ring"](random.Random(7))
"""


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


def filling(rng, slot, size, barrier, tile=None):
    """Steps that fill a slot by copies and expect them."""
    common = {"barrier": barrier} | ({} if tile is None else {"tile": tile})
    way = rng.choice(("whole", "whole", "halves", "halves in places", "lanes"))
    if way == "lanes":
        copies = [{"copy": slot, "bytes": size // 2, "lanes": 2, "by": "bulk", **common}]
    elif way == "whole":
        copies = [{"copy": slot, "bytes": size, "by": rng.choice(("tma", "bulk")), **common}]
    else:
        copies = [{"copy": slot, "bytes": size // 2, **common} for _ in range(2)]
        if way == "halves in places":
            copies[0]["offset"], copies[1]["offset"] = rng.choice(((size // 2, 0), (0, size // 2)))
    expect = {"expect": barrier, "bytes": size}
    if rng.random() < 0.25:
        return [{**expect, "arrive": False}, *copies, {"arrive": barrier}]
    return rng.choice(([expect, *copies], [expect, *copies], [*copies, expect]))


def ring(rng):
    """A producer and consumers around some stages."""
    s = rng.choice((1, 1, 2, 2, 3))
    consumers = rng.choice((1, 1, 1, 2))
    count = rng.randint(1, 5 if consumers == 1 else 3)
    size = rng.choice((32, 64, 4096))
    tile = rng.choice((None, "i", "i"))
    freed_first = rng.random() < 0.2
    threads, steps, arrivals = consumption(rng, [f"a[i % {s}]"], tile)
    free = [loop("f", s, [{"release": f"empty[f % {s}]", "count": arrivals}])] if freed_first else []
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
    count, size = rng.randint(1, 3), rng.choice((32, 1024))
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
            role(
                "first", 1, [loop("i", count, [{"wait": "ae", "parity": "i % 2 ^ 1"}, *filling(rng, "a", size, "af")])]
            ),
            role(
                "middle",
                middle,
                [
                    loop(
                        "i",
                        count,
                        [
                            {"wait": "af", "parity": "i % 2"},
                            {"read": ["a"]},
                            {"wait": "be", "parity": "i % 2 ^ 1"},
                            {"write": ["b"], "tile": "i"},
                            {"fence": "proxy.async"},
                            {"arrive": "bf", "count": warps},
                            {"release": "ae", "count": warps},
                        ],
                    )
                ],
            ),
            role(
                "third",
                third[0],
                [
                    loop(
                        "i",
                        count,
                        [
                            {"wait": "bf", "parity": "i % 2"},
                            *third[1],
                            {"release": "be", "count": third[2]},
                        ],
                    )
                ],
            ),
        ],
    }


def pingpong(rng):
    """Two groups take turns with one buffer, which each writes and stores."""
    count, threads = rng.randint(1, 3), rng.choice((32, 64))
    sync = [{"sync": "1 + instance", "threads": 64}] if threads == 64 else []
    return {
        "barriers": {"turn": {"count": 1, "stages": 2}},
        "slots": {"d": {"bytes": rng.choice((0, 256))}},
        "roles": [
            role(
                "group",
                threads,
                [
                    loop(
                        "t",
                        count,
                        [
                            {"wait": "turn[instance]", "parity": "t % 2 ^ (instance == 0)"},
                            {"write": ["d"], "tile": "2 * t + instance"},
                            {"fence": "proxy.async"},
                            *sync,
                            {"store": "d"},
                            {"commit": "bulk"},
                            {"wait_group": "bulk", "read": True},
                            *sync,
                            {"arrive": "turn[1 - instance]"},
                        ],
                    )
                ],
                instances=2,
            )
        ],
    }


def cluster(rng):
    """Two blocks: one loads for both, or each loads a half for both; consumers free the slot where it is loaded."""
    count, size, halves = rng.choice((1, 2, 3)), rng.choice((64, 256)), rng.random() < 0.5
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
            role(
                "consumer",
                threads,
                [
                    *(met if starts else []),
                    loop(
                        "i",
                        count,
                        [
                            {"wait": "full", "parity": "i % 2"},
                            *steps,
                            {"release": "empty", "count": arrivals, "mask": loads},
                        ],
                    ),
                    *met,
                ],
            ),
        ],
    }


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
            role(
                "producer",
                threads,
                [
                    loop(
                        "i",
                        count,
                        [
                            {"wait": "empty", "parity": "i % 2 ^ 1"},
                            *copies,
                            *arrive,
                        ],
                    )
                ],
            ),
            role(
                "consumer",
                consumer,
                [
                    loop(
                        "i",
                        count,
                        [
                            {"wait": "full", "parity": "i % 2"},
                            {"fence": "proxy.async"},
                            *steps,
                            {"release": "empty", "count": arrivals},
                        ],
                    )
                ],
            ),
        ],
    }


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
        "roles": [
            role(
                "both",
                threads,
                [
                    copy_of("0"),
                    {"commit": "cp.async"},
                    loop(
                        "i",
                        count,
                        [
                            {**copy_of("(i + 1)"), "when": f"i + 1 < {count}"},
                            {"commit": "cp.async"},
                            {"wait_group": "cp.async", "pending": 1},
                            *sync,
                            *using,
                            *sync,
                        ],
                    ),
                ],
            )
        ],
    }


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
    tiles, k = rng.randint(1, 3), rng.randint(1, 2)
    size, threads = 64, rng.choice((32, 128))
    warps = threads // 32
    total = tiles * k
    return {
        "constants": {"K": k},
        "barriers": {"full": {"count": 1}, "empty": {"count": 1}, "done": {"count": 1}, "free": {"count": warps}},
        "slots": {"a": {"bytes": size}, "acc": {"space": "tmem"}},
        "roles": [
            role(
                "load",
                1,
                [
                    loop(
                        "i",
                        total,
                        [
                            {"wait": "empty", "parity": "i % 2 ^ 1"},
                            *filling(rng, "a", size, "full", "i"),
                        ],
                    )
                ],
            ),
            role(
                "mma",
                32,
                [
                    loop(
                        "t",
                        tiles,
                        [
                            {"wait": "free", "parity": "t % 2 ^ 1"},
                            {"fence": "tcgen05.after"},
                            loop(
                                "k",
                                k,
                                [
                                    {"wait": "full", "parity": "(t * K + k) % 2"},
                                    {"multiply": ["a"], "unit": "tcgen05", "into": "acc", "tile": "t * K + k"},
                                    {"commit": "empty"},
                                ],
                            ),
                            {"commit": "done"},
                        ],
                    )
                ],
            ),
            role(
                "epilogue",
                threads,
                [
                    loop(
                        "t",
                        tiles,
                        [
                            {"wait": "done", "parity": "t % 2"},
                            {"fence": "tcgen05.after"},
                            {"read": ["acc"]},
                            {"fence": "tcgen05.before"},
                            {"release": "free", "count": warps},
                        ],
                    ),
                    *([{"tail": "empty", "parity": (total - 1) % 2}] if rng.random() < 0.5 else []),
                ],
            ),
        ],
    }


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
            role(
                "writer",
                threads,
                [
                    loop(
                        "i",
                        count,
                        [
                            {"sync": 2, "threads": total, "when": "i > 0"},
                            {"write": ["a"], "tile": "i"},
                            {"fence": "proxy.async"},
                            {filled: 1, "threads": total},
                        ],
                    )
                ],
            ),
            role(
                "taker",
                32,
                [
                    loop(
                        "i",
                        count,
                        [
                            {"sync": 1, "threads": total},
                            *taking,
                            {rng.choice(("bar_arrive", "sync")): 2, "threads": total, "when": f"i < {count - 1}"},
                        ],
                    )
                ],
            ),
        ],
    }


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
            role(
                "producer",
                128,
                [
                    {"registers": fewer},
                    *filling(rng, "a", 128, "full"),
                    {"wait": "done", "parity": 0},
                ],
            ),
            role(
                "consumer",
                128,
                [
                    {"registers": more},
                    {"wait": "full", "parity": 0},
                    {"multiply": ["a"]},
                    {"commit": "wgmma"},
                    {"wait_group": "wgmma"},
                    {"arrive": "done"},
                    *([{"registers": entry}] if meets else []),
                ],
                instances=groups,
            ),
        ],
    }


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
