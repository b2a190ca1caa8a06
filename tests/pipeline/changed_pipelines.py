"""Random changes of a pipeline, which may or may not break it.

said = change(random.Random(7), data)    # the data is another one now, and `said` tells what was changed
"""


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


def change(rng, data):
    """Change the data at random; what was changed, in words."""
    for _ in range(100):
        changed = rng.choice(CHANGES)
        said = changed(rng, data)
        if said:
            return f"{changed.__name__}: {said}"
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
    steps = [step for step in steps_of(data, "expect", "arrive", "release", "copy") if step.get("by") != "cp.async"]
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


CHANGES = (
    barrier_count,
    step_bytes,
    slot_bytes,
    parity,
    parity,
    neighbours,
    neighbours,
    moved,
    dropped,
    dropped,
    doubled,
    other_barrier,
    other_slot,
    fences,
    inserted,
    inserted,
    threads,
    threads,
    instances,
    offset,
    lanes,
    tile,
    flag,
    arrivals,
    pending,
    meeting_threads,
    mask,
    mask,
    meeting,
    condition,
    rounds,
    pool,
    pool,
)
