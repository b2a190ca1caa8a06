"""What a pipeline is made of: barriers, slots, roles, and the table of steps with the instruction that each stands for.

A role is a group of threads that act together; a role of a warpgroup arrives once for each of its threads where the step
says count = 128. A step is written as its name with what it acts on, and its arguments beside it:

    {wait = "full[i % 4]", parity = "(i / 4) % 2"}
    {copy = "a[i % 4]", bytes = 16384, barrier = "full[i % 4]"}

Operators of an expression bind as in Python and, comparisons apart, as in C; / divides integers. Names are loop counters,
the pipeline's constants, and what a block or a role knows of itself: rank, x, y, instance. The text is parsed, and only
arithmetic on integers is let through.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Literal, NamedTuple

from tilescope.arithmetic import rounded_up
from tilescope.errors import RuleError, unknown_name
from tilescope.pipeline.demands import GRAMMAR, example, pipeline_rule
from tilescope.pipeline.mbarrier import ARRIVALS_END
from tilescope.reading import plain_int
from tilescope.sentence import printed, shortened
from tilescope.value import Value
from tilescope.written import INTEGER_OPERATIONS

MAX_BLOCKS = 16
MAX_STAGES = 64
WARP_THREADS = 32
WARPGROUP_THREADS = 128
BARS = 16  # barriers of threads that a block has

MAX_CHARACTERS = 200
MAX_SHIFT = 32
_FORMS = (
    ast.Expression, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load,
    *INTEGER_OPERATIONS, ast.Not, ast.And, ast.Or, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip

EXPRESSION = pipeline_rule(
    "pipeline-expression",
    "An expression is arithmetic on integers and the names that are known where it stands.",
    example({"wait": "full", "parity": "abs(1)"}),
    source=GRAMMAR,
)
REFERENCE = pipeline_rule(
    "pipeline-reference",
    "A barrier or slot is referred to by its name, or by its name and stage: full[i % 4].",
    example({"arrive": "full["}),
    source=GRAMMAR,
)
NUMBER = pipeline_rule(
    "pipeline-number",
    "Numbers of a step are ones that its instruction takes: parities 0 and 1, bars 0 to 15, no negative counts.",
    example({"wait": "full", "parity": 2}),
    source="PTX ISA, mbarrier, bar, setmaxnreg",
)
GROUPS = ("wgmma", "bulk", "cp.async")


class Argument(NamedTuple):
    """What a step acts on, or an argument of it: what it may be, and the field of an Action that holds it.

    A barrier with choices may be one of these instead: commit closes a group, or arrives at a barrier. A number lies
    between `least` and `most` and is a multiple of `step`.
    """

    name: str
    kind: Literal["number", "bar", "flag", "barrier", "barriers", "counter", "slot", "choice"]
    field: str
    default: int | str | bool | None = None  # None: it must be there; "": it may be left out
    choices: tuple[str, ...] = ()
    many: bool = False
    least: int | None = None
    most: int | None = None
    step: int = 1

    def checked(self, number: int) -> int:
        """The number, or a RuleError where it is none that the instruction takes."""
        within = (self.least is None or number >= self.least) and (self.most is None or number <= self.most)
        if within and number % self.step == 0:
            return number
        limit = f"{self.least} to {self.most}" if self.most is not None else f"at least {self.least}"
        multiple = f", a multiple of {self.step}" if self.step > 1 else ""
        raise NUMBER.error(self.name, f"{self.name} = {number}", limit + multiple, self._nearest(number), number=number)

    def _nearest(self, number: int) -> str:
        if self.name == "parity":
            return "Take it modulo 2: (i / stages) % 2."
        bounded = max(self.least or 0, number if self.most is None else min(number, self.most))
        return f"Use {bounded // self.step * self.step}, for example."


class Operation(NamedTuple):
    """A kind of step: what it acts on, how its actions are said, and its arguments."""

    name: str
    target: Argument
    said: str
    arguments: tuple[Argument, ...]


_BARRIER = Argument("", "barrier", "barriers")
_CHOICE = Argument("", "choice", "choice")
_BAR = Argument("", "bar", "number", least=0, most=BARS - 1)  # a bar is a barrier of threads
_FLAG = Argument("", "counter", "barriers")  # a counter in global memory
_SLOT = Argument("", "slot", "slots")
_SLOTS = Argument("", "slot", "slots", many=True)
# bits of the ranks whose barrier or memory it acts on; "": the role's own
_OWN = Argument("mask", "number", "mask", "")
_TILE = Argument("tile", "number", "tile", "")  # which tile the slot then holds, or must hold; "": any
_COUNT = Argument("count", "number", "times", 1, least=0, most=ARRIVALS_END - 1)
_PARITY = Argument("parity", "number", "number", least=0, most=1)
_BYTES = Argument("bytes", "number", "number", least=0)
_THREADS = Argument("threads", "number", "times", 0, least=0, most=1024, step=WARP_THREADS)
_SCOPE = Argument("scope", "choice", "scope", "", ("cta", "cluster"))  # "": as far as the barrier is


def _operation(name: str, target: Argument, said: str, *arguments: Argument) -> Operation:
    return Operation(name, target._replace(name=name), said, arguments)


_ROWS = (
    # mbarrier.init of all stages; without any such step barriers are ready at the start
    _operation("init", Argument("", "barriers", "barriers", many=True), "init {barriers}"),
    # mbarrier.try_wait.parity: until the phase of this parity has ended; a tail is the same, before the role leaves
    _operation("wait", _BARRIER, "wait {barriers}, parity {number}", _PARITY),
    _operation("tail", _BARRIER, "tail {barriers}, parity {number}", _PARITY),
    # mbarrier.arrive.expect_tx, or expect_tx
    _operation(
        "expect",
        _BARRIER,
        "{only}expect {number} bytes on {barriers}",
        _BYTES,
        Argument("arrive", "flag", "flag", True),
        _OWN,
        _SCOPE,
    ),
    # mbarrier.arrive; a release is the same: the slot may be filled again
    _operation(
        "arrive",
        _BARRIER,
        "arrive {barriers}{arrivals}",
        _COUNT,
        _OWN,
        Argument("drop", "flag", "flag", False),
        _SCOPE,
    ),
    _operation("release", _BARRIER, "release {barriers}{arrivals}", _COUNT, _OWN, _SCOPE),
    # cp.async.bulk.tensor, cp.async.bulk, cp.async; its bytes count on a barrier. `lanes` threads issue it
    _operation(
        "copy",
        _SLOT,
        "copy into {slots}, {number} bytes{on}",
        _BYTES,
        Argument("barrier", "barrier", "barriers", ""),
        Argument("by", "choice", "choice", "tma", ("tma", "bulk", "cp.async")),
        _OWN,
        Argument("barrier_rank", "number", "owner", ""),
        _TILE,
        Argument("offset", "number", "offset", "", least=0),  # "": behind the copies of the same phase
        Argument("lanes", "number", "times", 1, least=1, most=1024),
        Argument("source", "slot", "sources", ""),  # a slot of global memory; "": what nobody writes meanwhile
    ),
    # when the role's cp.async have landed
    _operation(
        "cp_arrive", _BARRIER, "cp_arrive {barriers}{arrivals}", _COUNT, Argument("noinc", "flag", "flag", False)
    ),
    _operation("read", _SLOTS, "read {slots}", _TILE),  # ld.shared, tcgen05.ld
    _operation("write", _SLOTS, "write {slots}", _TILE),  # st.shared
    # a tensor core reads until a group or a commit is waited for
    _operation(
        "multiply",
        _SLOTS,
        "multiply {slots}{into}",
        Argument("unit", "choice", "choice", "wgmma", ("wgmma", "tcgen05", "mma")),
        Argument("into", "slot", "into", ""),
        _OWN,
        _TILE,
    ),
    # cp.async.bulk.tensor.global: TMA reads
    _operation(
        "store", _SLOTS, "store {slots}{into}", _BYTES._replace(default=0), Argument("into", "slot", "into", "")
    ),
    # closes a group; on a barrier tcgen05.commit
    _operation("commit", _BARRIER._replace(choices=GROUPS), "commit {choice}{to}", _OWN),
    _operation(
        "wait_group",
        _CHOICE._replace(choices=GROUPS),
        "wait_group {choice} {number}{read}",
        Argument("pending", "number", "number", 0, least=0),
        Argument("read", "flag", "flag", False),
    ),
    _operation(
        "fence",
        _CHOICE._replace(choices=("proxy.async", "mbarrier_init", "tcgen05.before", "tcgen05.after")),
        "fence {choice}",
    ),
    _operation("sync", _BAR, "sync {number}{threads}", _THREADS),  # bar.sync of `threads` threads; 0: all of the block
    _operation("bar_arrive", _BAR, "bar_arrive {number}{threads}", _THREADS),  # arrives there without waiting
    _operation("cluster", _CHOICE._replace(choices=("sync", "arrive", "wait")), "cluster {choice}"),  # barrier.cluster
    # red.release.gpu.add on a flag in global memory; ld.acquire.gpu until it has a value
    _operation("signal", _FLAG, "signal {barriers}", _COUNT),
    _operation("poll", _FLAG, "poll {barriers} for {number}", Argument("value", "number", "number", least=0)),
    # wait: until the grid before has ended; launch: the next grid may start
    _operation("griddepcontrol", _CHOICE._replace(choices=("wait", "launch")), "griddepcontrol {choice}"),
    # setmaxnreg
    _operation("registers", Argument("", "number", "number", least=24, most=256, step=8), "registers {number}"),
)
OPERATIONS = {row.name: row for row in _ROWS}


@dataclass(frozen=True, slots=True)
class Barrier(Value):
    """An mbarrier of every block, or one for each of `stages` stages; `count` arrivals end a phase."""

    name: str
    count: int
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Slot(Value):
    """Memory that is filled and emptied in turn: `stages` buffers of every block, in shared or tensor memory.

    In global memory ("gmem") all blocks share them.
    """

    name: str
    stages: int = 1
    bytes: int = 0
    space: str = "smem"


@dataclass(frozen=True, slots=True)
class Flag(Value):
    """A counter in global memory that all blocks share, or one for each of `stages` stages; 0 at the start."""

    name: str
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Step(Value):
    """One thing a role does: an operation of the table, what it acts on, and its arguments."""

    op: str
    target: Any  # a reference, a tuple of them, a name, or an expression
    arguments: Mapping[str, Any] = field(default_factory=dict)
    when: Any = None  # an expression: the step is left out where it is 0

    @property
    def targets(self) -> tuple[Any, ...]:
        """What it acts on, always as a tuple."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

    def values(self) -> Iterator[tuple[Argument, Any]]:
        """What it acts on and every argument, defaults included, with their rows of the table."""
        row = OPERATIONS[self.op]
        yield from ((row.target, target) for target in self.targets)
        yield from ((argument, self.arguments.get(argument.name, argument.default)) for argument in row.arguments)

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        target = list(self.target) if isinstance(self.target, tuple) else self.target
        return {self.op: target} | dict(self.arguments) | ({} if self.when is None else {"when": self.when})


@dataclass(frozen=True, slots=True)
class Loop(Value):
    """Steps repeated with a counter from `start` to `start + count - 1`."""

    counter: str
    count: Any  # expressions, as those of the steps
    steps: tuple[Step | Loop, ...]
    start: Any = 0

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        start = {} if self.start == 0 else {"start": self.start}
        return {"loop": self.counter, "count": self.count} | start | {"steps": [step.plain() for step in self.steps]}


@dataclass(frozen=True, slots=True)
class Role(Value):
    """Threads that act together: `instances` groups of `threads` threads in the blocks of `mask`."""

    name: str
    steps: tuple[Step | Loop, ...]
    threads: int = 1
    instances: int = 1
    mask: int | None = None  # bits of ranks; None: every block
    earlier: bool = False  # of the grid that runs before this one

    def plain(self) -> dict[str, Any]:
        """As it is written in a file."""
        optional: dict[str, Any] = {} if self.mask is None else {"mask": self.mask}
        if self.earlier:
            optional["earlier"] = True
        steps = [step.plain() for step in self.steps]
        return {"name": self.name, "threads": self.threads, "instances": self.instances, **optional, "steps": steps}

    @property
    def warps(self) -> int:
        """Its warps; threads of less than a warp are one."""
        return self.whole_threads(WARP_THREADS) // WARP_THREADS

    def whole_threads(self, group: int) -> int:
        """Its threads in whole warps (32) or warpgroups (128)."""
        return rounded_up(self.threads, group)

    def all_steps(self) -> Iterator[Step]:
        """Every step, those in loops too."""
        return flattened(self.steps)


def flattened(steps: Iterable[Step | Loop]) -> Iterator[Step]:
    """The steps, with those of loops in their place."""
    for step in steps:
        yield from flattened(step.steps) if isinstance(step, Loop) else (step,)


@dataclass(frozen=True, slots=True)
class Expression:
    """An integer, or a text that gives one for the values of its names.

    >>> parity = Expression.read("parity", "(i / 4) % 2 ^ 1", ["i"])
    >>> [parity.value({"i": i}) for i in (0, 4, 8)]
    [1, 0, 1]
    """

    text: str
    code: CodeType | None  # None: a constant
    constant: int = 0

    @classmethod
    def read(cls, argument: str, written: Any, names: Collection[str]) -> Expression:
        """The expression that an integer or a text is; a RuleError where it is none, or uses a name that is not known."""

        def refused(found: str, limit: str) -> RuleError:
            fix = "Use an integer, or i % 4: integers, names, + - * / % ^ & | << >> and comparisons."
            return EXPRESSION.error(argument, found, limit, fix, text=written)

        number = int(written) if isinstance(written, bool) else plain_int(written)
        if number is not None:
            return cls("", None, number)
        if not isinstance(written, str) or len(written) > MAX_CHARACTERS:
            raise refused(printed(written), "an integer, or a text such as 'i % 4'")
        arithmetic = _arithmetic(written)
        if isinstance(arithmetic, _NotArithmetic):
            raise refused(arithmetic.found, arithmetic.limit)
        for name in arithmetic.co_names:
            if name not in names and name != _PLACES:
                raise RuleError([unknown_name("name", argument, name, names)])
        if arithmetic.co_names:
            return cls(written, arithmetic)
        return cls(written, None, cls(written, arithmetic).value({}))

    def value(self, names: Mapping[str, int]) -> int:
        """The integer that the expression gives."""
        if self.code is None:
            return self.constant
        try:
            return int(eval(self.code, _GLOBALS, names))  # noqa: S307  only arithmetic
        except (ArithmeticError, ValueError) as error:
            at = ", ".join(f"{name} = {value}" for name, value in names.items())
            fix = f"Use numbers for which it is defined: divisors other than 0, shifts from 0 to {MAX_SHIFT}."
            raise EXPRESSION.error(self.text, f"{self.text} with {at}", str(error), fix, **names) from None


@dataclass(frozen=True, slots=True)
class _NotArithmetic:
    """What stands in a text that is no arithmetic, and what may stand there."""

    found: str
    limit: str


@lru_cache(maxsize=4096)  # a pipeline says the same few texts again and again
def _arithmetic(text: str) -> CodeType | _NotArithmetic:
    """The compiled text."""
    try:
        tree = ast.parse(text.strip().replace("//", "/").replace("/", "//"), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return _NotArithmetic(shortened(text), "arithmetic such as 'i % 4'")
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(op=ast.LShift()):  # a large one would take all memory
                node.right = ast.Call(ast.Name(_PLACES, ast.Load()), [node.right], [])
            case ast.Constant(value=value) if type(value) is not int:
                return _NotArithmetic(f"{value!r} in {shortened(text)}", "arithmetic on integers")
            case _ if not isinstance(node, _FORMS):
                return _NotArithmetic(f"{type(node).__name__} in {shortened(text)}", "arithmetic on integers")
    return compile(ast.fix_missing_locations(tree), "<pipeline>", "eval")


def _places(places: int) -> int:
    if not 0 <= places <= MAX_SHIFT:
        raise ValueError(f"a shift by {places}; at most {MAX_SHIFT}")
    return places


_PLACES = "places of a shift"  # no name that a text can hold
_GLOBALS: dict[str, Any] = {"__builtins__": {}, _PLACES: _places}


def reference(argument: str, written: Any) -> tuple[str, str]:
    """The name and the index of a reference such as "full[i % 4]"; without brackets the index is "0".

    >>> reference("wait", "full[i % 4]"), reference("wait", "done")
    (('full', 'i % 4'), ('done', '0'))
    """
    if isinstance(written, str):
        name, bracket, rest = written.strip().partition("[")
        name, rest = name.strip(), rest.rstrip()
        if name.isidentifier() and (not bracket or rest.endswith("]")):
            return name, rest[:-1].strip() if bracket else "0"
    limit = "a name, or a name and a stage: full[i % 4]"
    raise REFERENCE.error(argument, printed(written), limit, "Use full[i % 4], for example.", reference=written)
