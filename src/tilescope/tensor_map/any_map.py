"""A valid tensor map of any kind: its arguments, its findings, and the sizes of a copy.

arguments ── examination ──▶ record, violations ──▶ a map, with its findings
                                           └──────▶ TensorMapError, with every violation

Everything is innermost first and in the driver's units: elements for dims and box, bytes for strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, ClassVar, Self

from tilescope.arch import Arch, Basis
from tilescope.data_type import DataType
from tilescope.errors import TensorMapError, Violation, unknown_name
from tilescope.swizzle import Swizzle
from tilescope.tensor_map.examination import Examined, Reader
from tilescope.tensor_map.map_descriptor import encode_map
from tilescope.tensor_map.option import Interleave, L2Promotion, OobFill
from tilescope.tensor_map.record import MapRecord, MapSubject
from tilescope.tensor_map.replacement import replacement_fields
from tilescope.value import Row, Value, hex_field, row_field


@dataclass(frozen=True, init=False, repr=False, kw_only=True)  # without slots: made by one update, which is quick
class AnyMap(Value):
    """A valid tensor map of any kind; `findings` are the warnings and notes of the rules."""

    subject: ClassVar[MapSubject]
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
    _record: MapRecord = field(init=False, repr=False, compare=False)  # the arguments, of which the sizes follow

    def _make(self, examined: Examined) -> None:
        """Take over the record of sound arguments; raise where an error is among the violations."""
        for violation in examined.violations:
            if violation.severity == "error":
                raise TensorMapError(examined.violations)
        self.__dict__.update(examined.arguments, findings=examined.violations, _record=examined.record)

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
        unknown = [name for name in fields if name not in self.readers]
        if unknown:
            raise TensorMapError(unknown_name("argument", name, name, self.readers) for name in unknown)
        return type(self)(**{name: fields.get(name, getattr(self, name)) for name in self.readers})

    def encode(self) -> bytes:
        """The 128 bytes that the driver writes for this map on sm_90.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B").encode().hex()[16:24]
        '10650000'
        """
        return encode_map(self._record)

    def replace(self, **fields: Any) -> Self:
        """The map after tensormap.replace (or, if only the address changes, cuTensorMapReplaceAddress).

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (64, 64)).replace(address=0x1000).address
        4096
        """
        return self.with_fields(**replacement_fields(self._record, self.readers, fields))

    @property
    def rank(self) -> int:
        """The number of dimensions of the tensor."""
        return len(self.dims)

    @property
    def is_padded(self) -> bool:
        """Whether the values are padded in shared memory: 16u4_align16b and 16u6_align16b."""
        return self._record.is_padded

    @property
    def inner_elements(self) -> int:
        """Elements of one row of the copy: box[0], or the channels of a pixel."""
        return self._record.inner_elements

    def inner_change(self, elements: int) -> dict[str, Any]:
        """The arguments that make a row of the copy `elements` long."""
        return self._record.inner_change(elements)

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row in shared memory, without the gap up to the swizzle's span."""
        return self._record.inner_bytes

    @property
    def visited_elements(self) -> tuple[int, ...]:
        """How many elements (or pixels) the copy visits, innermost first; its product counts the elements.

        A traversal stride of s visits every s-th element of the box, and the last step may be cut:

            box 5, element stride 2:   x . x . x   → 3 visited
        """
        return self._record.visited_elements

    @property
    def box_bytes(self) -> int:
        """The size the driver checks and stores."""
        return self._record.box_bytes

    @property
    def rows(self) -> int:
        """Rows in shared memory; an interleaved map's rows are single pixels."""
        return self._record.rows

    @property
    def pitch_bytes(self) -> int:
        """From one row to the next in shared memory: a swizzled row takes its whole span."""
        return self._record.pitch_bytes

    @property
    def smem_bytes(self) -> int:
        """Shared memory that one copy covers, gaps included.

        >>> from tilescope.tensor_map import TensorMap
        >>> TensorMap("bf16", (64, 64), (128,), (32, 8), swizzle="128B").smem_bytes  # 8 rows of 128, half gap
        1024
        """
        return self._record.smem_bytes

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
        return self._record.transaction_bytes

    @property
    def reach_bytes(self) -> int:
        """Bytes of global memory from the tensor's first byte to its end."""
        return self._record.reach_bytes

    @property
    def is_dense(self) -> bool:
        """Whether the elements fill their memory without gaps or overlaps.

        >>> from tilescope.tensor_map import TensorMap
        >>> [TensorMap("u8", (16, 4), (step,), (16, 4)).is_dense for step in (0, 16, 32)]
        [False, True, False]
        """
        return self._record.is_dense

    @property
    def basis(self) -> Basis:
        """Whether the behaviour of this map was "measured" on a card or is only "documented"."""
        return self._record.basis
