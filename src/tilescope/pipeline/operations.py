"""The table of steps: what each acts on, its arguments, and the instruction that it describes.

    wait    {wait = "full[i % 4]", parity = "(i / 4) % 2"}    mbarrier.try_wait.parity    "wait full[2], parity 1"

A step is written as its name with its operand, followed by its arguments. `sentence` is the template for an executed
step (`tilescope.sentence` defines the language); `messages.describe_action` fills in its facts.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from tilescope.errors import Wording
from tilescope.pipeline.pipeline_rules import PLANNED, example
from tilescope.rule import Rule, rule
from tilescope.sync.mbarrier import ARRIVALS_END
from tilescope.sync.thread_limits import (
    BARS,
    BLOCK_THREADS,
    LEAST_REGISTERS,
    MOST_REGISTERS,
    REGISTER_STEP,
    WARP_THREADS,
)

Written: TypeAlias = int | str  # as a user writes it: a number, a flag, a name, or an expression

NUMBER = rule(
    "pipeline-number",
    "Every number of a step is valid for its instruction: parities 0 and 1, named barriers 0 to 15, no negative "
    "counts.",
    argument="{name}",
    found="{name} = {number}",
    limit="{name} is {least} to {most}[[, a multiple of {multiple}]]",
    fix="Use {nearest}, for example.",
    source="PTX ISA, mbarrier, bar, setmaxnreg",
    passing=PLANNED,
    failing=example({"wait": "full", "parity": 2}),
)
PARITY = NUMBER.worded(fix="Take it modulo 2: (i / stages) % 2.")
UNBOUNDED_NUMBER = NUMBER.worded(limit="{name} is at least {least}[[, a multiple of {multiple}]]")
GROUPS = ("wgmma", "bulk", "cp.async")


class Argument(NamedTuple):
    """What a step acts on, or an argument of it: what it may be, and the field of its event that holds it.

    A barrier with choices may be one of these instead: commit closes a group, or arrives at a barrier. A number is
    between `least` and `most` and is a multiple of `step`.
    """

    name: str
    kind: Literal["number", "bar", "flag", "barrier", "barriers", "counter", "slot", "choice"]
    field: str
    default: Written | None = None  # None: it must be there; "": it may be left out
    choices: tuple[str, ...] = ()
    many: bool = False
    least: int | None = None
    most: int | None = None
    step: int = 1

    def check_range(self, number: int) -> int:
        """The number, or a RuleError if the instruction does not take it."""
        within = (self.least is None or number >= self.least) and (self.most is None or number <= self.most)
        if within and number % self.step == 0:
            return number
        wording: Rule | Wording = NUMBER
        if self.name == "parity":
            wording = PARITY
        elif self.most is None:
            wording = UNBOUNDED_NUMBER
        raise wording.error(
            name=self.name,
            number=number,
            least=self.least,
            most=self.most,
            multiple=self.step if self.step > 1 else None,
            nearest=self._nearest(number),
        )

    def _nearest(self, number: int) -> int:
        """The nearest number at or below this one that the instruction takes, else the least one."""
        bounded = max(self.least or 0, number if self.most is None else min(number, self.most))
        return bounded // self.step * self.step


class Operation(NamedTuple):
    """A kind of step: what it acts on, its arguments, and the template of a sentence for it.

    Which event it becomes, and from which fields, is the business of `step_reading`.
    """

    name: str
    target: Argument
    arguments: tuple[Argument, ...]
    sentence: str


_BARRIER = Argument("", "barrier", "barriers")
_BARRIER_OR_GROUP = _BARRIER._replace(choices=GROUPS)
_GROUP = Argument("", "choice", "unit", choices=GROUPS)
_FENCE = Argument("", "choice", "form", choices=("proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after"))
_CLUSTER = Argument("", "choice", "form", choices=("sync", "arrive", "wait"))
_GRID = Argument("", "choice", "form", choices=("wait", "launch"))
_BAR = Argument("", "bar", "number", least=0, most=BARS - 1)  # a bar is a barrier of threads
_FLAG = Argument("", "counter", "barriers")  # a counter in global memory
_SLOT = Argument("", "slot", "slots")
_SLOTS = Argument("", "slot", "slots", many=True)
_REGISTERS = Argument("", "number", "registers", least=LEAST_REGISTERS, most=MOST_REGISTERS, step=REGISTER_STEP)

# bits of the ranks whose barrier or memory it acts on; "": the role's own
_OWN = Argument("mask", "number", "mask", "")
_TILE = Argument("tile", "number", "tile", "")  # which tile the slot then holds, or must hold; "": any
_COUNT = Argument("count", "number", "arrivals", 1, least=0, most=ARRIVALS_END - 1)
_PARITY = Argument("parity", "number", "parity", least=0, most=1)
_BYTES = Argument("bytes", "number", "size_bytes", least=0)
_INTO = Argument("into", "slot", "into", "")
_THREADS = Argument("threads", "number", "threads", 0, least=0, most=BLOCK_THREADS, step=WARP_THREADS)
_SCOPE = Argument("scope", "choice", "scope", "", ("cta", "cluster"))  # "": as far as the barrier is


def _operation(name: str, target: Argument, *arguments: Argument, sentence: str) -> Operation:
    """A row of the table. The key of a step's target is the step's name: {wait = "full"}."""
    return Operation(name, target._replace(name=name), arguments, sentence)


_ROWS = (
    # mbarrier.init of all stages; without any such step barriers are ready at the start
    _operation("init", Argument("", "barriers", "barriers", many=True), sentence="init {barriers}"),
    # mbarrier.inval, or a store over its bytes
    _operation("inval", _BARRIER, _OWN, sentence="inval {barriers}"),
    # mbarrier.try_wait.parity: until the phase of this parity has ended; a tail is the same, before the role leaves
    _operation("wait", _BARRIER, _PARITY, sentence="wait {barriers}, parity {parity}"),
    _operation("tail", _BARRIER, _PARITY, sentence="tail {barriers}, parity {parity}"),
    # mbarrier.arrive.expect_tx, or expect_tx
    _operation(
        "expect",
        _BARRIER,
        _BYTES,
        Argument("arrive", "flag", "arrives", True),
        _OWN,
        _SCOPE,
        sentence="[[{only} ]]expect {bytes} bytes on {barriers}",
    ),
    # mbarrier.arrive; a release is the same: the slot may be filled again
    _operation(
        "arrive",
        _BARRIER,
        _COUNT,
        _OWN,
        Argument("drop", "flag", "is_drop", False),
        _SCOPE,
        sentence="arrive {barriers}[[, {arrivals} arrivals]]",
    ),
    _operation("release", _BARRIER, _COUNT, _OWN, _SCOPE, sentence="release {barriers}[[, {arrivals} arrivals]]"),
    # cp.async.bulk.tensor, cp.async.bulk, cp.async; its bytes count on a barrier. `lanes` threads issue it
    _operation(
        "copy",
        _SLOT,
        _BYTES,
        Argument("barrier", "barrier", "barriers", ""),
        Argument("by", "choice", "form", "tma", ("tma", "bulk", "cp.async")),
        _OWN,
        Argument("barrier_rank", "number", "owner", ""),
        _TILE,
        Argument("offset", "number", "offset_bytes", "", least=0),  # "": after the other copies of the same phase
        Argument("lanes", "number", "lanes", 1, least=1, most=BLOCK_THREADS),
        Argument("source", "slot", "sources", ""),  # a slot of global memory; "": memory that is not written meanwhile
        sentence="copy into {slots}, {bytes} bytes[[ on {barriers}]]",
    ),
    # when the role's cp.async have landed
    _operation(
        "cp_arrive",
        _BARRIER,
        _COUNT,
        Argument("noinc", "flag", "is_counted", False),
        sentence="cp_arrive {barriers}[[, {arrivals} arrivals]]",
    ),
    _operation("read", _SLOTS, _TILE, sentence="read {slots}"),  # ld.shared, tcgen05.ld
    _operation("write", _SLOTS, _OWN, _TILE, sentence="write {slots}"),  # st.shared, st.shared::cluster
    # a tensor core reads until a group or a commit is waited for
    _operation(
        "multiply",
        _SLOTS,
        Argument("unit", "choice", "form", "wgmma", ("wgmma", "tcgen05", "mma")),
        _INTO,
        _OWN,
        _TILE,
        sentence="multiply {slots}[[ into {into}]]",
    ),
    # cp.async.bulk.tensor.global: TMA reads
    _operation("store", _SLOTS, _BYTES._replace(default=0), _INTO, sentence="store {slots}[[ into {into}]]"),
    # closes a group; on a barrier tcgen05.commit
    _operation("commit", _BARRIER_OR_GROUP, _OWN, sentence="commit {unit}[[to {barriers}]]"),
    _operation(
        "wait_group",
        _GROUP,
        Argument("pending", "number", "newest", 0, least=0),
        Argument("read", "flag", "only_read", False),
        sentence="wait_group {unit} {newest}[[ {read}]]",
    ),
    _operation("fence", _FENCE, sentence="fence {target}"),
    # bar.sync of `threads` threads; 0: all of the block. bar.arrive does not wait
    _operation("sync", _BAR, _THREADS, sentence="sync {number}[[, {threads} threads]]"),
    _operation("bar_arrive", _BAR, _THREADS, sentence="bar_arrive {number}[[, {threads} threads]]"),
    # barrier.cluster; a relaxed arrival does not order memory
    _operation(
        "cluster", _CLUSTER, Argument("relaxed", "flag", "is_relaxed", False), sentence="cluster {target}[[ {relaxed}]]"
    ),
    # red.release.gpu.add on a flag in global memory; ld.acquire.gpu until it has a value
    _operation("signal", _FLAG, _COUNT._replace(field="amount"), sentence="signal {barriers}"),
    _operation("poll", _FLAG, Argument("value", "number", "value", least=0), sentence="poll {barriers} for {value}"),
    # wait: until the grid before has ended; launch: the next grid may start
    _operation("griddepcontrol", _GRID, sentence="griddepcontrol {target}"),
    # setmaxnreg
    _operation("registers", _REGISTERS, sentence="registers {registers}"),
)
OPERATIONS = {row.name: row for row in _ROWS}
