"""What `naive` says of the smallest pipelines: one sentence of the rules each, on both sides of its limit."""

import pytest
from generated import pipelines
from naive import Naive, naive

F = {"fence": "proxy.async"}
BARRIERS = {"f": {"count": 1}, "g": {"count": 1}, "two": {"count": 2}}
SLOTS = {"a": {}, "b": {"bytes": 64}, "acc": {"space": "tmem"}}


def pipeline(*roles, **more):
    """Roles as lists of steps, or as (threads, steps); names p, q, r."""
    rows = []
    for name, each in zip("pqrs", roles, strict=False):
        threads, steps = each if isinstance(each, tuple) else (1, each)
        rows.append({"name": name, "threads": threads, "steps": steps})
    return {"barriers": BARRIERS, "slots": SLOTS, "roles": rows, **more}


def copy(slot="a", size=64, barrier="f", **more):
    return {"copy": slot, "bytes": size, "barrier": barrier, **more}


def expect(size=64, barrier="f", **more):
    return {"expect": barrier, "bytes": size, **more}


def wait(barrier="f", parity=0):
    return {"wait": barrier, "parity": parity}


def arrive(barrier="f", count=1, **more):
    return {"arrive": barrier, "count": count, **more}


def read(slot="a", **more):
    return {"read": [slot], **more}


def write(slot="a", **more):
    return {"write": [slot], **more}


def sync(number=1, threads=0):
    return {"sync": number, "threads": threads}


def cp_async(slot="a", size=64, **more):
    return {"copy": slot, "bytes": size, "by": "cp.async", **more}


WGMMA = [{"multiply": ["a"]}, {"commit": "wgmma"}, {"wait_group": "wgmma"}]
STORE = [{"store": "a"}, {"commit": "bulk"}, {"wait_group": "bulk"}]
TCGEN05 = {"multiply": ["a"], "unit": "tcgen05", "into": "acc"}
COMMIT = {"commit": "f"}
BEFORE, AFTER = {"fence": "tcgen05.before"}, {"fence": "tcgen05.after"}
GROUP = [{"commit": "cp.async"}, {"wait_group": "cp.async"}]
CLUSTER = {"cluster": "sync"}
PAIR = {"cluster": [2, 1]}
ONLY_FIRST, ONLY_SECOND = {"when": "rank == 0"}, {"when": "rank == 1"}

CASES = {
    # mbarriers
    "a wait on a fresh barrier passes with parity 1": ("", pipeline([wait(parity=1)])),
    "and waits forever with parity 0": ("hang", pipeline([wait()])),
    "more arrivals than pending": ("fault", pipeline([arrive(count=2)])),
    "as many arrivals as pending": ("", pipeline([arrive(count=1), wait()])),
    "an arrival of nothing": ("hang", pipeline([arrive(count=0), wait()])),
    "bytes beyond 2^20 - 1": ("fault", pipeline([expect(1 << 20, arrive=False)])),
    "bytes up to 2^20 - 1": ("", pipeline([expect((1 << 20) - 1, arrive=False)])),
    "bytes that never come": ("hang", pipeline([expect(80), copy(), wait()])),
    "bytes that nobody expected": ("hang", pipeline([copy(), arrive(), wait()])),
    "a phase that ends in the midst of a copy": (
        "race",
        pipeline([expect(32), copy(), expect(32, arrive=False)], [wait(), read()]),
    ),
    "a dropped arrival is never waited for again": (
        "",
        pipeline([arrive("two", drop=True), arrive("two"), wait("two"), arrive("two"), wait("two", 1)]),
    ),
    "a barrier of which all arrivals were dropped ends no phase any more": (
        "hang",
        pipeline([arrive(drop=True), wait(), expect(64, arrive=False), copy(), wait(parity=1)]),
    ),
    "whoever comes first decides": ("hang", pipeline([arrive()], [expect(16, arrive=False), wait(parity=1)])),
    # init
    "use before init": ("undefined", pipeline([arrive(), {"init": ["f"]}])),
    "use by another role, which did not wait": ("undefined", pipeline([{"init": ["f"]}], [arrive()])),
    "init, met, used": ("", pipeline([{"init": ["f"]}, sync()], [sync(), arrive()])),
    "init twice": ("undefined", pipeline([{"init": ["f"]}, {"init": ["f"]}])),
    "init in another block without its fence": (
        "undefined",
        pipeline([{"init": ["f"]}, CLUSTER, arrive(mask=2, **ONLY_FIRST), CLUSTER], **PAIR),
    ),
    "init in another block with its fence": (
        "",
        pipeline([{"init": ["f"]}, {"fence": "mbarrier_init"}, CLUSTER, arrive(mask=2, **ONLY_FIRST), CLUSTER], **PAIR),
    ),
    # extents
    "a copy larger than its slot": ("beyond", pipeline([expect(80), copy("b", 80), wait()])),
    "an offset that leads beyond": ("beyond", pipeline([expect(32), copy("b", 32, offset=48), wait()])),
    "lanes that lead beyond": ("beyond", pipeline([expect(128), copy("b", 32, lanes=4), wait()])),
    "lanes that fill the slot": ("", pipeline([expect(64), copy("b", 32, lanes=2), wait(), read("b")])),
    "two halves": ("", pipeline([expect(), copy("b", 32), copy("b", 32), wait(), read("b")])),
    "two halves and one more": (
        "overlap",
        pipeline([expect(96), copy("b", 32), copy("b", 32), copy("b", 32), wait()]),
    ),
    "two copies at one place": (
        "overlap",
        pipeline([expect(), copy("b", 32, offset=0), copy("b", 32, offset=16), wait()]),
    ),
    "one half": ("partial", pipeline([expect(32), copy("b", 32), wait(), read("b")])),
    "a bulk copy is cut to whole chunks": (
        "partial",
        pipeline([expect(48), copy("b", 63, by="bulk"), wait(), read("b")]),
    ),
    "a copy of nothing": ("unfilled", pipeline([expect(0), copy(size=8, by="bulk"), wait(), read()])),
    "one half from before": (
        "partial",
        pipeline(
            [expect(), copy("b"), wait(), read("b"), expect(32), copy("b", 32), wait(parity=1), read("b")],
        ),
    ),
    "one half from an earlier phase that nobody read": (
        "partial",
        pipeline([expect(), copy("b"), wait(), expect(32), copy("b", 32), wait(parity=1), read("b")]),
    ),
    "one half over what threads wrote and nobody read": (
        "",
        pipeline([write("b"), F, expect(32), copy("b", 32), wait(), read("b")]),
    ),
    "one half over what threads wrote and read": (
        "partial",
        pipeline([write("b"), F, read("b"), expect(32), copy("b", 32), wait(), read("b")]),
    ),
    "halves on two barriers": (
        "",
        pipeline(
            [expect(32), copy("b", 32), expect(32, "g"), copy("b", 32, "g", offset=32), wait(), wait("g"), read("b")]
        ),
    ),
    "parts of a slot without bytes": ("", pipeline([expect(128), copy(), copy(), wait(), read()])),
    "two tiles in one phase": ("overlap", pipeline([expect(128), copy(tile=0), copy(tile=1), wait()])),
    "another tile than meant": ("stale", pipeline([write(tile=0), read(tile=1)])),
    "nothing there": ("unfilled", pipeline([read()])),
    # races
    "a read beside a copy": ("race", pipeline([expect(), copy(), read()])),
    "two writes in no order": ("race", pipeline([write()], [write()])),
    "two reads in no order": ("", pipeline([write(), arrive(), read()], [wait(), read()])),
    "a copy over what is read": (
        "race",
        pipeline([expect(), copy(), expect(64, "g"), wait(), copy("a", 64, "g"), wait("g")], [wait(), read()]),
    ),
    "a copy while wgmma reads": (
        "race",
        pipeline([write(), F, *WGMMA[:2], expect(), copy(), WGMMA[2], wait()]),
    ),
    "a copy after wgmma has read": ("", pipeline([write(), F, *WGMMA, expect(), copy(), wait()])),
    "a write while a store reads": ("race", pipeline([write(), F, *STORE[:2], write(), STORE[2]])),
    "two multiplications on one accumulator": (
        "",
        pipeline([write(), F, TCGEN05, TCGEN05, COMMIT, wait(), read("acc")]),
    ),
    "an accumulator read before its commit arrives": (
        "race",
        pipeline([write(), F, TCGEN05, COMMIT, read("acc"), wait()]),
    ),
    # several warps
    "one warp writes and stores": ("", pipeline((32, [write(), F, *STORE]))),
    "two warps write, one thread stores": ("race", pipeline((64, [write(), F, *STORE]))),
    "two warps write, meet, one thread stores": ("", pipeline((64, [write(), F, sync(), *STORE]))),
    "two warps read, one arrives": (
        "race",
        pipeline([expect(), copy(), wait(), wait("g"), write()], (64, [wait(), read(), arrive("g")])),
    ),
    "two warps read, both arrive": (
        "",
        pipeline([expect(), copy(), wait(), wait("two"), write()], (64, [wait(), read(), arrive("two", 2)])),
    ),
    "two warps read and arrive elsewhere, one arrives": (
        "race",
        pipeline([write(), arrive(), wait("g"), write()], (64, [wait(), read(), arrive("two", 2), arrive("g")])),
    ),
    "two warps read and arrive, wait for each other, one arrives": (
        "",
        pipeline(
            [write(), arrive(), wait("g"), write()],
            (64, [wait(), read(), arrive("two", 2), wait("two"), arrive("g")]),
        ),
    ),
    "two warps write and arrive, one thread stores": ("race", pipeline((64, [write(), F, arrive("two", 2), *STORE]))),
    "two warps read, expect counts for one": (
        "race",
        pipeline([expect(), copy(), wait(), wait("g"), write()], (64, [wait(), read(), expect(0, "g")])),
    ),
    "two warps write and read their own": ("", pipeline((64, [write(), read(), write()]))),
    "two warps' cp.async, then one thread stores": ("race", pipeline((64, [cp_async(), *GROUP, F, *STORE]))),
    "two warps' cp.async, each reads": ("race", pipeline((64, [cp_async(), *GROUP, read()]))),
    "two warps' cp.async, met before they read": ("", pipeline((64, [cp_async(), *GROUP, sync(1, 64), read()]))),
    "two warps' cp.async, met": ("", pipeline((64, [cp_async(), *GROUP, F, sync(), *STORE]))),
    "one of two warps waits for its store, both write": (
        "race",
        pipeline((64, [write(), F, sync(1, 64), *STORE, write()])),
    ),
    "one of two warps waits for its store, both meet and write": (
        "",
        pipeline((64, [write(), F, sync(1, 64), *STORE, sync(1, 64), write()])),
    ),
    "both wait for somebody who waited for the one": (
        "",
        pipeline((64, [write(), F, sync(1, 64), *STORE, arrive(), wait("g"), write()]), [wait(), arrive("g")]),
    ),
    "both wait for somebody else": (
        "race",
        pipeline((64, [write(), F, sync(1, 64), *STORE, wait("g"), write()]), [arrive("g")]),
    ),
    "one of two warps initialises, both wait": ("undefined", pipeline((64, [{"init": ["f"]}, wait(parity=1)]))),
    "one of two warps initialises, both arrive": (
        "undefined",
        pipeline((64, [{"init": ["two"]}, arrive("two", 2)])),
    ),
    "one of two warps initialises and arrives": ("", pipeline((64, [{"init": ["f"]}, arrive()]))),
    "one of two warps initialises, both meet and wait": (
        "",
        pipeline((64, [{"init": ["f"]}, sync(1, 64), wait(parity=1)])),
    ),
    # fences
    "threads to wgmma": ("fence", pipeline([write(), *WGMMA])),
    "threads to TMA": ("fence", pipeline([write(), expect(), copy(), wait()])),
    "threads to threads": ("", pipeline([write(), arrive()], [wait(), read()])),
    "a fence by the reader": ("", pipeline([write(), arrive()], [wait(), F, *WGMMA])),
    "a fence by somebody on the way": (
        "",
        pipeline([write(), arrive()], [wait(), F, arrive("g")], [wait("g"), *WGMMA]),
    ),
    "a fence by somebody beside the way": (
        "fence",
        pipeline([write(), arrive("two"), arrive("two")], [wait("two"), F], [wait("two"), *WGMMA]),
    ),
    "a fence while others still write": (
        "fence",
        pipeline((64, [write(), arrive("f"), wait("g"), sync(1, 64), *STORE]), [wait(), F, arrive("g")]),
    ),
    "cp.async to wgmma": ("", pipeline([cp_async(), *GROUP, *WGMMA])),
    "cp.async to a store": ("fence", pipeline([cp_async(), *GROUP, *STORE])),
    "a fence before cp.async has landed": ("fence", pipeline([cp_async(), GROUP[0], F, GROUP[1], *STORE])),
    "a fence after cp.async has landed": ("", pipeline([cp_async(), *GROUP, F, *STORE])),
    "threads read, then TMA writes": ("", pipeline([write(), F, read(), expect(), copy(), wait()])),
    "tensor core to threads": ("", pipeline([write(), F, TCGEN05, COMMIT], [wait(), read("acc")])),
    "tensor core to threads, fenced": ("", pipeline([write(), F, TCGEN05, COMMIT], [wait(), AFTER, read("acc")])),
    "threads to tensor core": (
        "",
        pipeline([write("acc"), arrive("g")], [wait("g"), write(), F, TCGEN05, COMMIT, wait()]),
    ),
    "threads to tensor core, fenced": (
        "",
        pipeline([write("acc"), BEFORE, arrive("g")], [wait("g"), write(), F, TCGEN05, COMMIT, wait()]),
    ),
    "a fence that comes behind the arrival": ("fence", pipeline([write(), arrive(), F], [wait(), *WGMMA])),
    "tensor core and threads both read": (
        "",
        pipeline(
            [write("acc"), BEFORE, arrive("g")],
            [wait("g"), {"multiply": ["acc"], "unit": "tcgen05"}, COMMIT],
            [wait(), read("acc")],
        ),
    ),
    "what threads wrote over the tensor core's result needs no fence of a reader": (
        "",
        pipeline([write(), F, TCGEN05, COMMIT], [wait(), AFTER, write("acc"), arrive("g")], [wait("g"), read("acc")]),
    ),
    # cp.async
    "cp.async is under way until its group is waited for": ("race", pipeline([cp_async(), GROUP[0], read()])),
    "or the arrival that was asked for has come": (
        "",
        pipeline([cp_async(), {"cp_arrive": "f", "noinc": True}, wait(), read()]),
    ),
    "an arrival that adds itself first ends no phase": ("hang", pipeline([cp_async(), {"cp_arrive": "f"}, wait()])),
    "two cp.async of one group at one place": (
        "overlap",
        pipeline([cp_async("b", offset=0), cp_async("b", offset=0), *GROUP]),
    ),
    # leaving
    "stores under way": ("exit", pipeline([write(), F, *STORE[:2]])),
    "wgmma under way": ("exit", pipeline([write(), F, *WGMMA[:2]])),
    "tcgen05 without a commit": ("exit", pipeline([write(), F, TCGEN05])),
    "tcgen05 with a commit that nobody waits for": ("", pipeline([write(), F, TCGEN05, COMMIT])),
    "a copy that lands too late": ("fault", pipeline([expect(), copy()])),
    "an arrival at a block that has left": ("fault", pipeline([arrive(mask=2, **ONLY_FIRST)], **PAIR)),
    "an arrival at a block that stays": ("", pipeline([arrive(mask=2, **ONLY_FIRST), CLUSTER], **PAIR)),
    "the cluster's barrier waits for nobody who has left": (
        "",
        pipeline([arrive(mask=2, **ONLY_FIRST), {**CLUSTER, **ONLY_SECOND}], **PAIR),
    ),
    "a mask beyond the cluster": ("fault", pipeline([arrive(mask=4)], **PAIR)),
    # barriers of threads
    "threads that never come": ("hang", pipeline((32, [sync(1, 64)]))),
    "too many threads": ("undefined", pipeline((64, [sync(1, 32)]))),
    "different numbers": ("undefined", pipeline((32, [sync(1, 64)]), (32, [sync(1, 96)]))),
    "arriving without waiting": (
        "",
        pipeline((32, [write(), {"bar_arrive": 1, "threads": 64}]), (32, [sync(1, 64), read()])),
    ),
    "a cluster wait without an arrival": ("undefined", pipeline([{"cluster": "wait"}])),
    "two cluster arrivals without a wait": ("undefined", pipeline([{"cluster": "arrive"}, CLUSTER])),
    # registers
    "a pool that suffices": ("", pipeline((128, [{"registers": 96}]), (128, [{"registers": 240}]), registers=168)),
    "a pool that does not": ("hang", pipeline((128, [{"registers": 104}]), (128, [{"registers": 240}]), registers=168)),
}


@pytest.mark.parametrize("name", CASES)
def test_naive_follows_the_rules(name):
    expected, data = CASES[name]
    assert naive(data) == expected


def test_too_many_orders_are_no_answer():
    assert naive(pipeline([F, arrive(), wait()]), limit=1) is None


class EveryStep(Naive):
    """The same without the steps that are done at once."""

    def run_unseen(self, world):
        pass


def test_doing_unseen_steps_at_once_changes_no_answer():
    for name, data in pipelines(99, 120):
        assert bool(Naive(data).explore()) == bool(EveryStep(data).explore()), name
