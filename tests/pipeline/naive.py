"""A second simulator that tries every order: slow, small, and written from the rules alone.

It knows nothing of clocks. Its state is what a chip would hold; its moves are the next step of any role and the landing of
anything under way, whole or up to the byte at which a barrier's count is 0. What it calls bad it has seen happen:

    hang        nobody can move and somebody has not left
    fault       more arrivals than pending, bytes beyond 2^20 - 1, an operation on a block that has left
    race        an access begins while a conflicting one is under way, or a fence that it needs has not come
    wrong       a slot is read that holds another tile than meant, or nothing
    undefined   a barrier is used before its init (in another block: its fence), threads meet in wrong numbers
"""

from __future__ import annotations

NEVER, ANY = -2, -1  # contents of a slot: nothing yet, no tile named
ASYNC = ("tma", "bulk", "wgmma", "tcgen05", "store")
GROUPS = ("wgmma", "bulk", "cp.async")
CLUSTER = (-1, 0)
MISSING_FENCES = ("written", "landed", "in tmem", "from tensor core")  # marks: kind, slot, agent


class BadOrderError(Exception):
    """What goes wrong in this order."""


def number(given, names):
    return given if isinstance(given, int) else int(eval(str(given).replace("//", "/").replace("/", "//"), {}, names))


def unrolled(steps, names):
    for step in steps:
        if "loop" in step:
            start = number(step.get("start", 0), names)
            for value in range(start, start + number(step["count"], names)):
                yield from unrolled(step["steps"], {**names, step["loop"]: value})
        elif number(step.get("when", 1), names):
            yield step, names


def place(given, rank, names):
    name, _, index = given.partition("[")
    return name, number(index.rstrip("]") or 0, names), rank


class World:
    """What a chip would hold."""

    __slots__ = (
        "active",
        "bars",
        "content",
        "flights",
        "groups",
        "marks",
        "met",
        "pcs",
        "pool",
        "registers",
        "standing",
    )

    def copy(self):
        other = World.__new__(World)
        for name in World.__slots__:
            value = getattr(self, name)
            setattr(other, name, value if isinstance(value, frozenset) else value.copy())
        return other

    def key(self):
        return (
            tuple(self.pcs), tuple(self.bars), tuple(sorted(self.flights)), tuple(sorted(self.active)), tuple(self.content),
            tuple(sorted(self.groups.items())), self.marks, tuple(self.standing), tuple(sorted(self.met.items())), tuple(self.pool),
        )  # fmt: skip


class Naive:
    def __init__(self, data, limit=400_000):
        self.limit = limit
        across, down = (*data.get("cluster", (1, 1)), 1)[:2]
        self.blocks = across * down
        self.counts, self.barriers, self.slots, self.spaces = [], {}, {}, []
        for rank in range(self.blocks):
            for name, each in data.get("barriers", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.barriers[name, stage, rank] = len(self.barriers)
                    self.counts.append(each["count"])
            for name, each in data.get("slots", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.slots[name, stage, rank] = len(self.slots)
                    self.spaces.append(each.get("space", "smem"))
        self.barrier_ranks = [rank for _, _, rank in self.barriers]
        self.slot_ranks = [rank for _, _, rank in self.slots]
        self.programs, self.ranks, self.threads, self.warpgroups = [], [], [], []
        for rank in range(self.blocks):
            for role in data["roles"]:
                if not role.get("mask", -1) >> rank & 1:
                    continue
                for instance in range(role.get("instances", 1)):
                    names = {"rank": rank, "x": rank % across, "y": rank // across, "instance": instance,
                             "blocks": self.blocks, **data.get("constants", {})}  # fmt: skip
                    self.ranks.append(rank)
                    self.threads.append(-(-role.get("threads", 1) // 32) * 32)
                    self.warpgroups.append(-(-role.get("threads", 1) // 128) * 128)
                    self.programs.append(
                        [self.moved(step, names, rank) for step, names in unrolled(role["steps"], names)]
                    )
        self.agents = range(len(self.programs))
        self.initialises = any(move[0] == "init" for program in self.programs for move in program)
        self.entry = data.get("registers") or 0

    def moved(self, step, names, rank):
        """A step as (op, numbers …) with barriers and slots as indices."""
        op = next(iter(step))
        ranks = [rank]
        if "mask" in step:
            mask = number(step["mask"], names)
            ranks = [each for each in range(self.blocks) if mask >> each & 1]
        target = step[op]
        tile = number(step["tile"], names) if "tile" in step else ANY

        def barriers(given):
            return [self.barriers[place(given, each, names)] for each in ranks]

        if op in ("wait", "tail"):
            return "wait", self.barriers[place(target, rank, names)], number(step["parity"], names) & 1
        if op == "expect":
            return "expect", barriers(target), number(step["bytes"], names), step.get("arrive", True)
        if op in ("arrive", "release"):
            return "arrive", barriers(target), number(step.get("count", 1), names), step.get("drop", False)
        if op == "cp_arrive":
            return (
                op,
                self.barriers[place(target, rank, names)],
                number(step.get("count", 1), names),
                step.get("noinc", False),
            )
        if op == "copy":
            size, by = number(step["bytes"], names), step.get("by", "tma")
            size = size // 16 * 16 if by == "bulk" else size
            receivers = []
            for each in ranks:
                owner = number(step["barrier_rank"], {**names, "rank": each}) if "barrier_rank" in step else each
                signalled = self.barriers[place(step["barrier"], owner, names)] if step.get("barrier") else None
                receivers.append((self.slots[place(target, each, names)], signalled))
            return op, receivers, size, by, tile
        if op in ("read", "write", "multiply", "store"):
            targets = [target] if isinstance(target, str) else target
            touched = [self.slots[place(given, each, names)] for each in ranks for given in targets]
            into = [self.slots[place(step["into"], each, names)] for each in ranks] if step.get("into") else []
            how = {"multiply": step.get("unit", "wgmma"), "store": "store"}.get(op, "generic")
            return op, touched, into, "generic" if how == "mma" else how, tile
        if op == "commit" and target not in GROUPS:
            return "commit_to", barriers(target)
        if op == "wait_group":
            return op, target, number(step.get("pending", 0), names)
        if op in ("sync", "bar_arrive"):
            return op, (rank, number(target, names)), number(step.get("threads", 0), names)
        if op == "init":
            return op, [which for (name, _, at), which in self.barriers.items() if at == rank and name in target]
        if op == "registers":
            return op, number(target, names)
        return op, target

    def explore(self):
        """The first bad thing that happens in some order; "" where all orders were seen, None where there are too many."""
        start = World.__new__(World)
        start.pcs = [0] * len(self.programs)
        start.bars = [(0, count, 0, count) for count in self.counts]  # phase, pending, tx, expected
        start.flights, start.active, start.groups, start.met = [], [], {}, {}
        start.content = [NEVER] * len(self.slots)
        start.marks = frozenset()  # fences that are missing, barriers that are ready, arrivals at the cluster barrier
        start.standing = [()] * len(self.programs)  # the meeting that an agent waits in
        start.pool, start.registers = [0] * self.blocks, [self.entry] * len(self.programs)
        seen, stack = {start.key()}, [start]
        while stack:
            world = stack.pop()
            moves = [(self.step, agent) for agent in self.agents if self.ready(world, agent)]
            moves += [(self.land, flight) for flight in sorted(set(world.flights))]
            moves += [
                (self.land_piece, flight) for flight in sorted(set(world.flights)) if self.crosses_zero(world, flight)
            ]
            if not moves and not all(self.left(world, agent) for agent in self.agents):
                return "hang"
            for act, what in moves:
                following = world.copy()
                try:
                    act(following, what)
                except BadOrderError as bad:
                    return str(bad)
                key = following.key()
                if key not in seen:
                    if len(seen) >= self.limit:
                        return None
                    seen.add(key)
                    stack.append(following)
        return ""

    def left(self, world, agent):
        return world.pcs[agent] >= len(self.programs[agent])

    def gone(self, world, rank):
        return all(self.left(world, agent) for agent in self.agents if self.ranks[agent] == rank)

    def ready(self, world, agent):
        if self.left(world, agent) or world.standing[agent]:
            return False
        op, *rest = self.programs[agent][world.pcs[agent]]
        if op == "wait":
            return world.bars[rest[0]][0] & 1 != rest[1] or not self.usable(world, rest[0], agent)
        if op == "registers":
            return (rest[0] - world.registers[agent]) * self.warpgroups[agent] <= world.pool[self.ranks[agent]]
        return not (op == "cluster" and rest[0] == "wait" and ("arrived", agent) in world.marks)

    def usable(self, world, which, agent):
        """Whether a barrier is initialised, for another block also fenced."""
        made = any(mark[:2] == ("made", which) for mark in world.marks)
        own = self.barrier_ranks[which] == self.ranks[agent]
        return not self.initialises or (made and (own or ("fenced", which, 0) in world.marks))

    def reach(self, world, which, agent):
        """An agent acts on a barrier."""
        if not self.usable(world, which, agent):
            raise BadOrderError("undefined")
        if self.barrier_ranks[which] != self.ranks[agent] and self.gone(world, self.barrier_ranks[which]):
            raise BadOrderError("fault")

    def count(self, world, which, arrivals=0, tx=0, more=0, dropped=0):
        phase, pending, outstanding, expected = world.bars[which]
        pending, outstanding, expected = pending + more - arrivals, outstanding + tx, expected - dropped
        if pending < 0 or abs(outstanding) >= 1 << 20:
            raise BadOrderError("fault")
        if pending == 0 and outstanding == 0:
            phase, pending = phase + 1, expected
        world.bars[which] = phase, pending, outstanding, expected

    def begin(self, world, slot, agent, write, how, tag):
        """An access begins: it must meet no other, and no missing fence."""
        for other_slot, other_agent, other_write, other_how, other_tag in world.active:
            if other_slot == slot and (write or other_write):
                same_fill = how in ("tma", "bulk") and other_how in ("tma", "bulk") and tag == other_tag
                in_order = other_how == how == "tcgen05" and other_agent == agent
                if not same_fill and not in_order:
                    raise BadOrderError("race")
        for mark in world.marks:
            if mark[0] not in MISSING_FENCES or mark[1] != slot:
                continue
            kind, _, who, *reader = mark
            if kind == "written" and how in ASYNC and self.spaces[slot] == "smem":
                raise BadOrderError("race")
            if kind == "landed" and how in ASYNC and reader == [agent]:
                raise BadOrderError("race")
            if kind == "in tmem" and how == "tcgen05" and who != agent:
                raise BadOrderError("race")
            if kind == "from tensor core" and how == "generic" and who == agent:
                raise BadOrderError("race")
        if how != "generic":
            world.active.append((slot, agent, write, how, tag))

    def end(self, world, accesses):
        """Accesses under way end; some of them need a fence before others may follow."""
        for access in accesses:
            if access not in world.active:
                continue
            world.active.remove(access)
            slot, agent, _, how, _ = access
            if how == "cp.async":
                world.marks |= {("landed", slot, agent, reader) for reader in self.agents}
            if how == "tcgen05" and self.spaces[slot] == "tmem":
                world.marks |= {("from tensor core", slot, reader) for reader in self.agents if reader != agent}

    def step(self, world, agent):
        pc = world.pcs[agent]
        op, *rest = self.programs[agent][pc]
        getattr(self, f"do_{op}")(world, agent, pc, *rest)
        if op not in ("sync", "cluster") or (op == "cluster" and rest[0] != "sync"):
            self.advance(world, agent)

    def advance(self, world, agent):
        world.pcs[agent] += 1
        if self.left(world, agent):
            opened, closed = world.groups.get((agent, "bulk"), ((), ()))
            if opened or any(closed):
                raise BadOrderError("race")
            if CLUSTER in world.met:
                self.settle(world, CLUSTER)

    def do_wait(self, world, agent, _pc, which, _parity):
        self.reach(world, which, agent)

    def do_init(self, world, agent, _pc, barriers):
        world.marks |= {("made", which, agent) for which in barriers}

    def do_expect(self, world, agent, _pc, barriers, size, arrives):
        for which in barriers:
            self.reach(world, which, agent)
            self.count(world, which, arrivals=int(arrives), tx=size)

    def do_arrive(self, world, agent, _pc, barriers, times, drop):
        for which in barriers:
            self.reach(world, which, agent)
            self.count(world, which, arrivals=times, dropped=times if drop else 0)

    def do_copy(self, world, agent, pc, receivers, size, how, tile):
        for slot, which in receivers:
            if which is not None:
                self.reach(world, which, agent)
            tag = (which, world.bars[which][0]) if which is not None and how != "cp.async" else (NEVER, pc)
            if self.slot_ranks[slot] != self.ranks[agent] and self.gone(world, self.slot_ranks[slot]):
                raise BadOrderError("fault")
            self.begin(world, slot, agent, True, how, tag)
            if how == "cp.async":
                world.content[slot] = tile
                self.add(world, agent, "cp.async", tag)
            elif which is not None:
                world.flights.append(("copy", which, size, agent, (slot, how, tag, tile)))

    def do_cp_arrive(self, world, agent, _pc, which, times, noinc):
        self.reach(world, which, agent)
        if not noinc:
            self.count(world, which, more=times)
        mine = tuple(sorted(each for each in world.active if each[1] == agent and each[3] == "cp.async"))
        world.flights.append(("arrival", which, times, agent, mine))

    def do_commit_to(self, world, agent, _pc, barriers):
        mine = tuple(sorted(each for each in world.active if each[1] == agent and each[3] == "tcgen05"))
        for which in barriers:
            self.reach(world, which, agent)
            world.flights.append(("arrival", which, 1, agent, mine))

    def touch(self, world, agent, pc, slots, into, how, tile, write=False):
        for slot in slots:
            self.begin(world, slot, agent, write, how, (ANY, pc))
            held = world.content[slot]
            if write:
                world.content[slot] = tile
                world.marks |= {("written", slot, agent)}
            elif held == NEVER or (ANY not in (tile, held) and tile != held):
                raise BadOrderError("wrong")
            if how == "generic" and self.spaces[slot] == "tmem":
                world.marks |= {("in tmem", slot, agent)}
        for slot in into:
            self.begin(world, slot, agent, True, how, (ANY, pc))
            world.content[slot] = ANY
        if how in ("wgmma", "store"):
            self.add(world, agent, "wgmma" if how == "wgmma" else "bulk", (ANY, pc))

    do_read = do_multiply = do_store = touch

    def do_write(self, world, agent, pc, slots, into, how, tile):
        self.touch(world, agent, pc, slots, into, how, tile, write=True)

    def add(self, world, agent, kind, tag):
        opened, closed = world.groups.get((agent, kind), ((), ()))
        world.groups[agent, kind] = (*opened, tag), closed

    def do_commit(self, world, agent, _pc, kind):
        opened, closed = world.groups.get((agent, kind), ((), ()))
        world.groups[agent, kind] = (), (*closed, opened)

    def do_wait_group(self, world, agent, _pc, kind, pending):
        opened, closed = world.groups.get((agent, kind), ((), ()))
        over = max(0, len(closed) - pending)
        tags = {tag for group in closed[:over] for tag in group}
        how = "store" if kind == "bulk" else kind
        self.end(world, [each for each in world.active if each[1] == agent and each[3] == how and each[4] in tags])
        world.groups[agent, kind] = opened, closed[over:]

    def do_fence(self, world, agent, _pc, which):
        def satisfied(mark):
            kind, *rest = mark
            match which:
                case "proxy.async":
                    return (kind == "written" and rest[1] == agent) or (kind == "landed" and agent in rest[1:])
                case "tcgen05.before":
                    return kind == "in tmem" and rest[1] == agent
                case "tcgen05.after":
                    return kind == "from tensor core" and rest[1] == agent
            return False

        if which == "mbarrier_init":
            world.marks |= {("fenced", mark[1], 0) for mark in world.marks if mark[0] == "made" and mark[2] == agent}
        world.marks = frozenset(mark for mark in world.marks if not satisfied(mark))

    def do_sync(self, world, agent, _pc, key, threads):
        world.standing[agent] = key
        self.meet(world, agent, key, threads)

    def do_bar_arrive(self, world, agent, _pc, key, threads):
        self.meet(world, agent, key, threads)

    def do_cluster(self, world, agent, _pc, choice):
        if choice == "wait":
            if ("released", agent) not in world.marks:
                raise BadOrderError("undefined")
            world.marks -= {("released", agent)}
            return
        if choice == "sync":
            world.standing[agent] = CLUSTER
        else:
            world.marks |= {("arrived", agent)}
        self.meet(world, agent, CLUSTER, 0)

    def meet(self, world, agent, key, threads):
        members = [each for each in self.agents if self.ranks[each] == self.ranks[agent]]
        wanted = 0 if key == CLUSTER else threads or sum(self.threads[each] for each in members)
        there, asked = world.met.get(key, ((), wanted))
        if asked != wanted:
            raise BadOrderError("undefined")
        world.met[key] = tuple(sorted((*there, agent))), wanted
        self.settle(world, key)

    def settle(self, world, key):
        there, wanted = world.met[key]
        came = sum(self.threads[each] for each in there)
        if key == CLUSTER:
            if not all(each in there or self.left(world, each) for each in self.agents):
                return
        elif came != wanted:
            if came > wanted:
                raise BadOrderError("undefined")
            return
        del world.met[key]
        for each in there:
            if world.standing[each] == key:
                world.standing[each] = ()
                self.advance(world, each)
            elif key == CLUSTER:
                world.marks = world.marks - {("arrived", each)} | {("released", each)}

    def do_registers(self, world, agent, _pc, registers):
        world.pool[self.ranks[agent]] -= (registers - world.registers[agent]) * self.warpgroups[agent]
        world.registers[agent] = registers

    def crosses_zero(self, world, flight):
        """Whether a copy's bytes, which count piece by piece, leave a barrier's count at 0 on the way."""
        return flight[0] == "copy" and 0 < world.bars[flight[1]][2] < flight[2]

    def land_piece(self, world, flight):
        kind, which, size, agent, what = flight
        piece = world.bars[which][2]
        world.flights.remove(flight)
        world.flights.append((kind, which, size - piece, agent, what))
        self.count(world, which, tx=-piece)

    def land(self, world, flight):
        kind, which, amount, agent, what = flight
        world.flights.remove(flight)
        if kind == "copy":
            slot, how, tag, tile = what
            if self.gone(world, self.slot_ranks[slot]) or self.gone(world, self.barrier_ranks[which]):
                raise BadOrderError("fault")
            world.content[slot] = tile
            self.end(world, [(slot, agent, True, how, tag)])
            self.count(world, which, tx=-amount)
            return
        if self.barrier_ranks[which] != self.ranks[agent] and self.gone(world, self.barrier_ranks[which]):
            raise BadOrderError("fault")
        self.end(world, what)
        self.count(world, which, arrivals=amount)


def naive(data, limit=400_000):
    """ "" where every order is right, else the first bad thing seen; None: too many orders."""
    return Naive(data, limit).explore()
