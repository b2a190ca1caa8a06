"""What the three kinds of map share: their arguments, read and checked, and the sizes of a copy that follow from them.

arguments ── readers ──▶ fields ── rules ──▶ a map, with its findings
                │                    └─────▶ TensorMapError, with every violation
                └─ what cannot be read is a violation too; rules that need it are passed over

Everything is innermost first and in the driver's units: elements for dims and box, bytes for strides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from inspect import Signature, signature
from math import prod
from operator import itemgetter
from typing import Any, ClassVar, Concatenate, ParamSpec, Self

from tilescope.arch import Arch, Basis
from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.reading import integer, integers
from tilescope.sentence import counted
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.tensor_map.checking import CHECKS, Check, Subject, stated
from tilescope.tensor_map.descriptor import encoded
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.tensor_map.replacement import replacement_fields
from tilescope.tensor_map.samples import CUDA_H, MATRIX
from tilescope.value import Row, Value, hex_field, row_field

Arguments = ParamSpec("Arguments")  # of a constructor
Reader = Callable[[str, Any], Any]

argument_length = stated(
    "argument-length",
    "Every sequence has one entry for each dimension; strides_bytes one less, corners two less.",
    found="{argument} has {has} for rank {rank}",
    limit="{takes}: {which}",
    source=CUDA_H,
    passing=MATRIX | {"strides_bytes": (8192,)},
    failing=MATRIX | {"strides_bytes": (2, 8192)},
)
# Sequences: how many entries they have less than the tensor has dimensions.
_FEWER = {"strides_bytes": 1, "box": 0, "element_strides": 0, "lower_corner": 2, "upper_corner": 2}
_ENTRIES = ("one for each dimension", "one for each dimension but the innermost", "one for each of W, H, D")
_OPTIONS = ("data_type", "interleave", "swizzle", "l2_promotion", "oob_fill", "arch")
_options_in = itemgetter(*_OPTIONS)


def _hardware_swizzle(argument: str, value: Any) -> Swizzle:
    """A swizzle that TMA knows: one of the table, no software swizzle."""
    if (row := Swizzle.named(value)).feature is None:
        raise RuleError([unknown_name("swizzle of TMA", argument, row.name, SWIZZLE)])
    return row


# The readers of the arguments that all kinds of map have.
COMMON_READERS: dict[str, Reader] = {
    "data_type": lambda _, value: DataType.named(value).tma,  # the driver's type as which TMA moves it
    "dims": integers,
    "strides_bytes": integers,
    "element_strides": lambda argument, value: None if value is None else integers(argument, value),
    "interleave": lambda _, value: Interleave.named(value),
    "swizzle": _hardware_swizzle,
    "l2_promotion": lambda _, value: L2Promotion.named(value),
    "oob_fill": lambda _, value: OobFill.named(value),
    "address": integer,
    "arch": lambda _, value: Arch.named(value),
}


def check_of(
    construct: Callable[Concatenate[Any, Arguments], None],
) -> classmethod[AnyMap, Arguments, tuple[Violation, ...]]:
    """The class method `check`, which takes the arguments of a constructor."""

    def check(cls: type[AnyMap], /, *values: Arguments.args, **named: Arguments.kwargs) -> tuple[Violation, ...]:
        """Every rule that the constructor's arguments break, and the advice; empty for a sound map. Never raises.

        >>> from tilescope.tensor_map import TensorMap
        >>> [broken.rule for broken in TensorMap.check("bf16", (100,), (), (0,), address=8)]
        ['address-alignment', 'box-range', 'store-overrun']
        """
        checked = object.__new__(cls)
        try:
            construct(checked, *values, **named)
        except TensorMapError as error:
            return error.violations
        return checked.findings

    own, *arguments = signature(construct).parameters.values()
    check.__signature__ = Signature(  # type: ignore[attr-defined]
        [own.replace(name="cls"), *arguments], return_annotation="tuple[Violation, ...]"
    )
    return classmethod(check)


@dataclass(frozen=True, slots=True, init=False, repr=False, kw_only=True)
class AnyMap(Value):
    """A sound tensor map of whatever kind; `findings` are the warnings and notes of the rules."""

    subject: ClassVar[Subject]
    inner_argument: ClassVar[str]  # the argument that says how long a row of the copy is
    readers: ClassVar[Mapping[str, Reader]]  # of every constructor argument

    data_type: DataType = row_field(DataType.named)
    dims: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: Interleave = row_field(Interleave.named)
    swizzle: Swizzle = row_field(Swizzle.named)
    l2_promotion: L2Promotion = row_field(L2Promotion.named)
    oob_fill: OobFill = row_field(OobFill.named)
    address: int = hex_field()
    arch: Arch = row_field(Arch.named)
    findings: tuple[Violation, ...] = field(init=False, repr=False, compare=False)  # warnings and notes of the rules

    def _construct(self, arguments: Mapping[str, Any]) -> None:
        """Read the arguments into this map; raise when an error is among what the rules find."""
        place = object.__setattr__
        violations: list[Violation] = []
        values = _options_in(arguments)
        try:
            options, readers, lengths, checks = _settled(type(self), *values)  # type: ignore[arg-type]  # a class is hashable
        except (TypeError, ValueError):  # an option that is no key of a cache
            options, readers, lengths, checks = _settled.__wrapped__(type(self), *values)
        for name, row in options.items():
            place(self, name, row)
        for name, read in readers.items():
            try:
                place(self, name, read(name, arguments[name]))
            except RuleError as error:
                violations += error.violations
        violations += _wrong_lengths(self, lengths)
        is_whole = not violations and self.dims
        for check in checks:
            try:
                if answer := check.broken(self):
                    violations += check.violations(self, answer)
            except (AttributeError, IndexError, TypeError, ValueError):
                if is_whole:  # else an argument that could not be read is not there, or no dimension is the first
                    raise
        if "error" in [violation.severity for violation in violations]:
            raise TensorMapError(violations)
        place(self, "findings", tuple(violations))

    def __repr__(self) -> str:
        """The constructor call that makes this map, defaults left out."""
        shown = []
        for name, parameter in signature(type(self)).parameters.items():
            value = getattr(self, name)
            plain: Any = value.name if isinstance(value, Row) else value
            if plain == parameter.default or (name == "element_strides" and set(value) == {1}):
                continue
            text = hex(plain) if name == "address" else repr(plain)
            shown.append(text if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def with_fields(self, **fields: Any) -> Self:
        """A map with some constructor arguments replaced, checked like any other.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).with_fields(swizzle="128B").swizzle.name
        '128B'
        """
        if unknown := [name for name in fields if name not in self.readers]:
            raise TensorMapError(unknown_name("argument", name, name, self.readers) for name in unknown)
        return type(self)(**{name: fields.get(name, getattr(self, name)) for name in self.readers})

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes for this map on sm_90.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B").encode().hex()[16:24]
        '10650000'
        """
        return encoded(self)

    def replace(self, **fields: Any) -> Self:
        """The map after tensormap.replace (or, for an address alone, cuTensorMapReplaceAddress).

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).replace(address=0x1000).address
        4096
        """
        return self.with_fields(**replacement_fields(self, fields))

    @property
    def rank(self) -> int:
        """How many dimensions the tensor has."""
        return len(self.dims)

    @property
    def is_padded(self) -> bool:
        """Whether the values spread out in shared memory: 16u4_align16b and 16u6_align16b."""
        return self.data_type.smem_bits > self.data_type.bits

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy: box[0], or the channels of a pixel."""
        raise NotImplementedError

    def inner_change(self, elements: int) -> dict[str, Any]:
        """The arguments that make a row of the copy `elements` long."""
        raise NotImplementedError

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row in shared memory, without the gap up to the swizzle's span."""
        return self.inner_elements * self.data_type.smem_bits // 8

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """How many elements (or pixels) the copy visits, innermost first; its product counts the elements.

        A traversal stride visits every so many elements of the box, and the last one may be cut:

            box 5, element stride 2:   x . x . x   → 3 visited
        """
        raise NotImplementedError

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Rows in shared memory; an interleaved map's rows are single pixels."""
        visited = self.visited_elements
        return prod(visited if self.interleave.slice_bytes else visited[1:])

    @property
    def pitch_bytes(self) -> int:
        """From one row to the next in shared memory: a swizzled row takes its whole span."""
        return self.interleave.slice_bytes or max(self.inner_bytes, self.swizzle.span_bytes or 0)

    @property
    def smem_bytes(self) -> int:
        """Shared memory that one copy covers, gaps included.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").smem_bytes  # 8 rows of 128, half gap
        1024
        """
        return self.rows * self.pitch_bytes

    @property
    def smem_alignment_bytes(self) -> int:
        """Alignment at which the swizzle's pattern starts at its first line.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 8), swizzle="128B").smem_alignment_bytes
        1024
        """
        return self.swizzle.repeat_bytes

    @property
    def transaction_bytes(self) -> int:
        """What the mbarrier must expect for one copy: filled elements count, gaps and padding do not.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").transaction_bytes
        512
        """
        return self.rows * (self.interleave.slice_bytes or self.inner_elements * self.data_type.bits // 8)

    @property
    def reach_bytes(self) -> int:
        """Bytes of global memory from the tensor's first byte to behind its last."""
        steps = zip(self.dims[1:], self.strides_bytes, strict=True)
        return row_bytes(self) + sum(max(0, (extent - 1) * stride) for extent, stride in steps)

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps, and none lies on another.

        >>> from tilescope.tensor_map import TensorMap
        >>> [TensorMap("u8", (16, 4), (step,), (16, 4)).is_dense for step in (0, 16, 32)]
        [False, True, False]
        """
        filled = row_bytes(self)
        for step, extent in sorted(zip(self.strides_bytes, self.dims[1:], strict=True)):
            if extent > 1 and step != filled:
                return False
            filled *= extent
        return True

    @property
    def basis(self) -> Basis:
        """Whether what tilescope says of this map was "measured" on a card or rests on documents."""
        measured = self.arch.basis == self.swizzle.basis == "measured" and not self.data_type.is_packed
        return "measured" if measured else "documented"


def row_bytes(a: AnyMap) -> int:
    """Bytes of dim 0 in global memory."""
    slice_bytes = a.interleave.slice_bytes
    return a.dims[0] * slice_bytes if slice_bytes else a.dims[0] * a.data_type.bits // 8


def _wrong_lengths(a: AnyMap, lengths: Mapping[str, int]) -> list[Violation]:
    """The sequences that do not fit the rank; they are taken out of the map, as what cannot be read."""
    wrong: list[Violation] = []
    if not hasattr(a, "dims"):
        return wrong
    rank = len(a.dims)
    if getattr(a, "element_strides", ()) is None:
        object.__setattr__(a, "element_strides", (1,) * rank)
    for name, fewer in lengths.items():
        entries = getattr(a, name, None)
        if entries is not None and len(entries) != rank - fewer and (entries or rank > fewer):
            object.__delattr__(a, name)
            has, takes = (counted(count, "entry", "entries") for count in (len(entries), max(0, rank - fewer)))
            fix = f"Use {takes}, innermost first."
            if name == "strides_bytes" and len(entries) == rank:
                fix = "strides_bytes leaves out dim 0: drop the first entry."
            facts = {"argument": name, "entries": len(entries), "rank": rank, "which": _ENTRIES[fewer], "fix": fix}
            wrong.append(argument_length.told(has=has, takes=takes, **facts))
    return wrong


@lru_cache(maxsize=4096, typed=True)
def _settled(
    map_class: type[AnyMap], *values: Any
) -> tuple[dict[str, Row], dict[str, Reader], dict[str, int], list[Check]]:
    """What options written like this decide: the rows of those that can be read, and what is left to read, count and check.

    Most checks about packed types, interleave and newer architectures find nothing in a map that has its options and nothing
    else. Those that ask for more meet a field that is not there: they are left for the whole map.
    """
    bare = object.__new__(map_class)
    readers, options, checks = dict(map_class.readers), {}, []
    for name, value in zip(_OPTIONS, values, strict=True):
        with suppress(RuleError):
            options[name] = readers[name](name, value)
            object.__setattr__(bare, name, options[name])
            del readers[name]
    for check in CHECKS:
        with suppress(AttributeError):
            if map_class.subject not in check.rule.subjects or not check.broken(bare):
                continue
        checks.append(check)
    return options, readers, {name: fewer for name, fewer in _FEWER.items() if name in readers}, checks
