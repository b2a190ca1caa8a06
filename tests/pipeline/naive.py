"""A second simulator that tries every order: slow, small, and written from the rules alone.

It knows nothing of clocks. Its state is what a chip would hold; its moves are the next step of any role and the landing of
anything under way; what it calls bad it has seen happen in some order:

    hang    nobody can move and somebody has not left
    fault   more arrivals than pending, or bytes beyond 2^20 - 1
    race    an access begins while a conflicting one is under way, or threads' bytes are read by TMA or a tensor core unfenced
    wrong   a slot is read that holds another tile than meant, or nothing
"""

from __future__ import annotations

NEVER = object()


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


class Naive:
    def __init__(self, data, limit=400_000):
        self.limit = limit
        across, down = (*data.get("cluster", (1, 1)), 1)[:2]
        self.blocks = across * down
        self.counts = {name: each["count"] for name, each in data.get("barriers", {}).items()}
        self.barriers, self.slots = {}, {}
        for rank in range(self.blocks):
            for name, each in data.get("barriers", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.barriers[name, stage, rank] = len(self.barriers)
            for name, each in data.get("slots", {}).items():
                for stage in range(each.get("stages", 1)):
                    self.slots[name, stage, rank] = len(self.slots)
        self.programs, self.ranks, self.threads = [], [], []
        for rank in range(self.blocks):
            for role in data["roles"]:
                if not role.get("mask", -1) >> rank & 1:
                    continue
                for instance in range(role.get("instances", 1)):
                    names = {"rank": rank, "x": rank % across, "y": rank // across, "instance": instance,
                             "blocks": self.blocks, **data.get("constants", {})}  # fmt: skip
                    self.ranks.append(rank)
                    self.threads.append(-(-role.get("threads", 1) // 32) * 32)
                    self.programs.append(
                        [self.moved(step, names, rank) for step, names in unrolled(role["steps"], names)]
                    )

    def moved(self, step, names, rank):
        """A step as (op, numbers …) with barriers and slots as indices."""
        op = next(iter(step))
        ranks = [rank]
        if "mask" in step:
            mask = number(step["mask"], names)
            ranks = [each for each in range(self.blocks) if mask >> each & 1]
        target = step[op]

        def barrier(given, at):
            return self.barriers[place(given, at, names)]

        if op in ("wait", "tail"):
            return "wait", barrier(target, rank), number(step["parity"], names) & 1
        if op == "expect":
            return (
                "expect",
                [barrier(target, each) for each in ranks],
                number(step["bytes"], names),
                step.get("arrive", True),
            )
        if op in ("arrive", "release"):
            return "arrive", [barrier(target, each) for each in ranks], number(step.get("count", 1), names)
        if op == "cp_arrive":
            return "cp_arrive", barrier(target, rank), number(step.get("count", 1), names), step.get("noinc", False)
        if op == "copy":
            size, by = number(step["bytes"], names), step.get("by", "tma")
            size = size // 16 * 16 if by == "bulk" else size
            receivers = []
            for each in ranks:
                owner = number(step["barrier_rank"], {**names, "rank": each}) if "barrier_rank" in step else each
                signalled = barrier(step["barrier"], owner) if step.get("barrier") else None
                receivers.append((self.slots[place(target, each, names)], signalled))
            return "copy", receivers, size, by, number(step["tile"], names) if "tile" in step else None
        if op in ("read", "write", "multiply", "store"):
            targets = [target] if isinstance(target, str) else target
            touched = [self.slots[place(given, each, names)] for each in ranks for given in targets]
            into = [self.slots[place(step["into"], each, names)] for each in ranks] if step.get("into") else []
            tile = number(step["tile"], names) if "tile" in step else None
            return op, touched, into, step.get("unit", "wgmma"), tile
        if op == "commit" and target not in ("wgmma", "bulk", "cp.async"):
            return "commit_to", [barrier(target, each) for each in ranks]
        if op == "wait_group":
            return op, target, number(step.get("pending", 0), names)
        if op == "sync":
            return op, (rank, number(target, names)), number(step.get("threads", 0), names)
        return op, target

    # The state: step of each role, barriers (phase, pending, tx), flights, accesses under way, contents, groups, unfenced
    # writes, roles that stand in a meeting (with its round), rounds that are over.

    def explore(self):
        """The set of bad things that happen in some order, and whether all orders were seen; stops at the first."""
        count = len(self.programs)
        start = (
            (0,) * count,
            tuple((0, self.counts[name], 0) for name, _, _ in self.barriers),
            (), (), (NEVER,) * len(self.slots), ((),) * count, frozenset(), (None,) * count, (),
        )  # fmt: skip
        seen, stack = {start}, [start]
        while stack:
            state = stack.pop()
            found = list(self.next_states(state))
            if not found and any(at < len(program) for at, program in zip(state[0], self.programs, strict=True)):
                return "hang"
            for each in found:
                if isinstance(each, str):
                    return each
                if each not in seen:
                    if len(seen) >= self.limit:
                        return None
                    seen.add(each)
                    stack.append(each)
        return ""

    def next_states(self, state):
        for agent in range(len(self.programs)):
            if state[0][agent] < len(self.programs[agent]):
                result = self.step(state, agent)
                if result is not None:
                    yield result
        for flight in set(state[2]):
            yield self.land(state, flight)

    def count_on(self, barriers, which, arrivals=0, tx=0, more=0):
        phase, pending, outstanding = barriers[which]
        pending += more - arrivals
        outstanding += tx
        if pending < 0 or abs(outstanding) >= 1 << 20:
            return None
        if pending == 0 and outstanding == 0:
            name = next(key[0] for key, value in self.barriers.items() if value == which)
            phase, pending = phase + 1, self.counts[name]
        return (*barriers[:which], (phase, pending, outstanding), *barriers[which + 1 :])

    def begins(self, state, slot, agent, write, how, tag):
        """Accesses under way with one more, or a word for what goes wrong."""
        _, _barriers, _, active, _content, _, unfenced, *_ = state
        for other_slot, other_agent, other_write, other_how, other_tag in active:
            if other_slot != slot or not (write or other_write):
                continue
            same_fill = other_how == how == "tma" and tag == other_tag
            in_order = other_how == how == "tcgen05" and other_agent == agent
            if not same_fill and not in_order:
                return "race"
        if how in ("tma", "bulk", "wgmma", "tcgen05", "store") and any(each[0] == slot for each in unfenced):
            return "race"
        return (*active, (slot, agent, write, how, tag))

    def step(self, state, agent):
        at, barriers, flights, active, content, groups, unfenced, standing, rounds = state
        move = self.programs[agent][at[agent]]
        at = (*at[:agent], at[agent] + 1, *at[agent + 1 :])
        op = move[0]
        if op == "wait":
            if barriers[move[1]][0] & 1 == move[2]:
                return None
        elif op == "expect":
            for which in move[1]:
                barriers = self.count_on(barriers, which, arrivals=int(move[3]), tx=move[2])
                if barriers is None:
                    return "fault"
        elif op == "arrive":
            for which in move[1]:
                barriers = self.count_on(barriers, which, arrivals=move[2])
                if barriers is None:
                    return "fault"
        elif op == "copy":
            for slot, which in move[1]:
                how = move[3]
                tag = (which, barriers[which][0]) if which is not None else agent
                active = self.begins(
                    (at, barriers, flights, active, content, groups, unfenced), slot, agent, True, how, tag
                )
                if isinstance(active, str):
                    return active
                if how != "cp.async":
                    flights = tuple(
                        sorted((*flights, ("copy", which, move[2], slot, agent, how, tag, move[4])), key=str)
                    )
                else:
                    content = (*content[:slot], move[4], *content[slot + 1 :])
        elif op == "cp_arrive":
            if not move[3]:
                barriers = self.count_on(barriers, move[1], more=move[2])
            flights = tuple(sorted((*flights, ("cp", move[1], move[2], agent)), key=str))
        elif op in ("read", "write", "multiply", "store"):
            how = {"multiply": move[3], "store": "store"}.get(op, "generic")
            how = "generic" if how == "mma" else how
            for slot in move[1]:
                begun = self.begins(
                    (at, barriers, flights, active, content, groups, unfenced), slot, agent, op == "write", how, None
                )
                if isinstance(begun, str):
                    return begun
                if op in ("read", "multiply", "store") and (
                    content[slot] is NEVER or (None not in (move[4], content[slot]) and move[4] != content[slot])
                ):
                    return "wrong"
                if how != "generic":
                    active = tuple(sorted(set(begun), key=str))
                if op == "write":
                    unfenced = unfenced | {(slot, agent)}
                    content = (*content[:slot], move[4], *content[slot + 1 :])
            for slot in move[2]:
                begun = self.begins(
                    (at, barriers, flights, active, content, groups, unfenced), slot, agent, True, how, None
                )
                if isinstance(begun, str):
                    return begun
                active = tuple(sorted(set(begun), key=str))
                content = (*content[:slot], None, *content[slot + 1 :])
            if how in ("wgmma", "store"):
                kind = "wgmma" if how == "wgmma" else "bulk"
                groups = (*groups[:agent], (*groups[agent], (kind, "open", tuple(move[1]))), *groups[agent + 1 :])
        elif op == "commit":
            closed = tuple(
                (kind, "closed" if (kind, mark) == (move[1], "open") else mark, what)
                for kind, mark, what in groups[agent]
            )
            groups = (*groups[:agent], (*closed, (move[1], "end", ())), *groups[agent + 1 :])
        elif op == "commit_to":
            mine = tuple(each for each in active if each[1] == agent and each[3] == "tcgen05")
            for which in move[1]:
                flights = tuple(sorted((*flights, ("commit", which, 1, agent, mine)), key=str))
        elif op == "wait_group":
            ends = [place for place, each in enumerate(groups[agent]) if each[:2] == (move[1], "end")]
            if len(ends) > move[2]:
                last = ends[len(ends) - move[2] - 1]
                over, left = groups[agent][: last + 1], groups[agent][last + 1 :]
                freed = {slot for kind, _, what in over if kind == move[1] for slot in what}
                left = tuple(each for each in over if each[0] != move[1]) + left
                still = {slot for kind, _, what in left if kind == move[1] for slot in what}
                how = {"wgmma": "wgmma", "bulk": "store", "cp.async": "cp.async"}[move[1]]
                active = tuple(
                    each for each in active if not (each[1] == agent and each[3] == how and each[0] in freed - still)
                )
                groups = (*groups[:agent], left, *groups[agent + 1 :])
        elif op == "fence":
            if move[1] == "proxy.async":
                unfenced = frozenset(each for each in unfenced if each[1] != agent)
        elif op in ("sync", "cluster"):
            key = ("cluster", 0) if op == "cluster" else move[1]
            there = [each for each in range(len(self.programs)) if standing[each] == key]
            if standing[agent] == key:
                return None
            members = [
                each for each in range(len(self.programs)) if op == "cluster" or self.ranks[each] == self.ranks[agent]
            ]
            wanted = (move[2] if op == "sync" else 0) or sum(self.threads[each] for each in members)
            came = sum(self.threads[each] for each in there) + self.threads[agent]
            if came > wanted:
                return "fault"
            at = (*at[:agent], at[agent] - 1, *at[agent + 1 :])
            if came < wanted:
                standing = (*standing[:agent], key, *standing[agent + 1 :])
            else:
                at = tuple(each + 1 if number in (*there, agent) else each for number, each in enumerate(at))
                standing = tuple(None if number in there else each for number, each in enumerate(standing))
        return at, barriers, flights, active, content, groups, unfenced, standing, rounds

    def land(self, state, flight):
        at, barriers, flights, active, content, groups, unfenced, standing, rounds = state
        left = list(flights)
        left.remove(flight)
        kind, which = flight[:2]
        if kind == "copy":
            slot, agent, how, tag, tile = flight[3:]
            content = (*content[:slot], tile, *content[slot + 1 :])
            still = any(
                each[0] == "copy" and (each[3], each[4], each[5], each[6]) == (slot, agent, how, tag) for each in left
            )
            if not still:
                active = tuple(each for each in active if each != (slot, agent, True, how, tag))
            if which is not None:
                barriers = self.count_on(barriers, which, tx=-flight[2])
        else:
            if kind == "commit":
                active = tuple(each for each in active if each not in flight[4])
            else:
                active = tuple(each for each in active if not (each[1] == flight[3] and each[3] == "cp.async"))
            barriers = self.count_on(barriers, which, arrivals=flight[2])
        if barriers is None:
            return "fault"
        return at, barriers, tuple(left), active, content, groups, unfenced, standing, rounds


def naive(data, limit=400_000):
    """ "" where every order is right, else the first bad thing seen: hang, fault, race, wrong; None: too many orders."""
    return Naive(data, limit).explore()
