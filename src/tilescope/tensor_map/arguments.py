"""The arguments of a map whose kind they decide: what JSON, a command line, a pasted dump or an example give.

{"data_type": "bf16", "dims": …, "box": …}             a tiled map
{… "lower_corner": …, "upper_corner": …}               an im2col map
{… "lower_width": …, "upper_width": …}                 an im2col-wide map

A dump may say beside them where the map itself lies, and what the driver answered:

driver's answer           rules             what follows
1, invalid value          one is broken     that rule is the reason
1, invalid value          none is broken    an older driver (a null address was refused once), or another call
700 to 719, a fault       whatever          an earlier kernel faulted: the answer is not about these arguments
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

from tilescope.cuda_error import CUDA_ERROR
from tilescope.data_type import DataType
from tilescope.errors import RuleError, TensorMapError, Violation, unknown_name
from tilescope.reading import integers
from tilescope.rule import ARGUMENT_TYPE, UNKNOWN_NAME
from tilescope.sentence import counted
from tilescope.tensor_map.any_map import AnyMap
from tilescope.tensor_map.checking import stated
from tilescope.tensor_map.kinds import Im2colMap, Im2colWideMap, TensorMap
from tilescope.tensor_map.option import Interleave
from tilescope.tensor_map.repair import repaired_arguments
from tilescope.tensor_map.samples import CUDA_H, IMAGES, MATRIX, WIDE
from tilescope.value import Row, Value

# Of the kinds whose arguments could be meant, the first one is.
_OWN_ARGUMENTS: dict[type[AnyMap], set[str]] = {
    Im2colWideMap: {"lower_width", "upper_width", "mode"},
    Im2colMap: {"lower_corner", "upper_corner", "channels_per_pixel", "pixels_per_column"},
    TensorMap: set(),
}
MAP_KINDS = {map_class.kind: map_class for map_class in reversed(_OWN_ARGUMENTS)}
_NOT_UNDERSTOOD = (UNKNOWN_NAME.name, ARGUMENT_TYPE.name)
_EXAMPLES: dict[str, Any] = WIDE | IMAGES | MATRIX  # arguments by name, for the fix where one is missing
_CORNERS = {f"{end}_corner": f" (pixelBox{end.title()}Corner of the driver)" for end in ("lower", "upper")}
argument_missing = stated(
    "argument-missing",
    "Every argument that has no default is given.",
    found="no {argument}{driver_name}",
    limit="{kind} map needs {needed}",
    fix="Add {argument}, such as {example}.",
    source=CUDA_H,
    passing=MATRIX,
    failing={name: value for name, value in MATRIX.items() if name != "strides_bytes"},
)
argument_json = stated(
    "argument-json",
    "Arguments in JSON are one object, by name.",
    argument="json",
    limit="a map is one JSON object",
    fix='Use what json.dumps(tensor_map.to_dict()) prints: {{"data_type": "bf16", "dims": [64, 64], …}}.',
    source="RFC 8259",
    subjects=("paste",),
    passing='ts.tensor_map.MapArguments.from_json("""{"data_type": "u8", "dims": [64], "strides_bytes": [], "box": [64]}""")',
    failing='ts.tensor_map.MapArguments.from_json("""["u8", [64], [], [64]]""")',
)
MAP_ALIGNMENT_BYTES = 64  # what the copy and the documents of the call ask for
MAP_ALIGNMENTS = "cuda.h aligns CUtensorMap to 64 bytes up to CUDA 12, to 128 from CUDA 13 on"
_FAULTED = range(700, 720)  # what a kernel leaves behind for every later call
# What the driver answers, by its CUresult: what we call it, and how a dump may say it.
_RESULTS = {
    1: ("invalid value", "invalid argument", "invalid_value"),
    700: ("illegal address", "illegal memory access", "illegal_address"),
    715: ("illegal instruction", "illegal_instruction"),
    716: ("misaligned address", "misaligned"),
    719: ("unspecified launch failure", "launch failure", "launch_failed"),
    801: ("not supported", "not_supported"),
    201: ("invalid device context", "context"),
    0: ("success", "no error"),
}
_FAULT = "an earlier kernel of the context faulted, and every later call answers so, whatever its arguments"
_FIND = "Find that kernel with compute-sanitizer or CUDA_LAUNCH_BLOCKING=1; "
# What an answer means and what to do, by the answer and what else is known of the call; 700 stands for every fault.
_FOLLOWS = {
    (700, "broken"): (_FAULT, _FIND + "mend the rules above too."),
    (700, ""): (_FAULT, _FIND + "these arguments break no rule."),
    (1, "broken"): ("the broken rules are the reason", "Do what they say."),
    (1, "null"): (
        "driver 580 takes these arguments, the null address too; older drivers refuse it",
        "Pass the device pointer, or update the driver.",
    ),
    (1, ""): (
        "driver 580 takes these arguments",
        "Update the driver, which may be older than what they need; or check that the dump shows what was passed.",
    ),
    (801, ""): ("the device or the driver has no TMA", "Use sm_90 or later and a driver of CUDA 12."),
    (201, ""): ("the call needs a current context", "Call cudaFree(0) or cuCtxSetCurrent in this thread before it."),
}
_DUMP = (
    "TMA Desc Addr:   {at}\nformat         6\ndim            3\ngmem_address   0x7f5a20000000\nglobalDim      (1024,1024,1,1,1)\n"
    "globalStrides  (2,2048,2097152,0,0)\nboxDim         (64,128,1,1,1)\nelementStrides (1,1,1,1,1)\ninterleave     0\n"
    "swizzle        3\nl2Promotion    0\noobFill        0\nError: Failed to initialize the TMA descriptor {result}\n"
)
_SAID = "ts.tensor_map.dumped_arguments({!r})[0].check()"
_SOUND = _SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=0))
DRIVER_RESULT = stated(
    "driver-result",
    "The driver's answer, where a dump has it, is 0; what another answer says depends on whether a rule is broken.",
    "the driver answered {result}{name}",
    argument="tensor_map",
    source="cuda.h, CUresult; NVIDIA/cutlass#947 (1, an old driver and a null address), vllm-project/vllm#13961 (715, after an "
    "earlier fault)",
    subjects=("paste",),
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800c0", result=715)),
)
MAP_ADDRESS = stated(
    "map-address",
    f"The tensor map itself lies at a multiple of 64 bytes; {MAP_ALIGNMENTS}.",
    "TMA Desc Addr {address:#x}, {beyond_bytes} bytes past {nearest:#x}",
    "a multiple of 64 bytes; some drivers encode it anywhere, and a copy through it from global memory ends in error 716, "
    "misaligned address",
    f"Leave the alignment to the type, or allocate it at a multiple of 128: {MAP_ALIGNMENTS}.",
    argument="tensor_map",
    severity="warning",
    source="cuda.h, cuTensorMapEncodeTiled: tensorMap is aligned to 64 bytes; cuda.h of CUDA 12.9 and 13.0, CUtensorMap_st; "
    "driver 580 encodes it anywhere, and a copy through a map off 64 bytes in global memory then faults on an H200",
    subjects=("paste",),
    code=716,
    passing=_SOUND,
    failing=_SAID.format(_DUMP.format(at="0x7ffd7d2800d0", result=0)),
)
DUMP_TYPE = stated(
    "dump-type",
    "A dump says the type of the elements; where it has their size alone, a type of that size is checked.",
    "the dump does not say the type",
    "{type_from} says {size} an element, and most rules ask for no more",
    "Give the type (--type) where rules of NaN fill or of 4-bit values matter.",
    argument="data_type",
    severity="note",
    source="what flash-attention and DeepGEMM print; most rules ask for the size alone",
    subjects=("paste",),
    passing=_SOUND,
    failing=_SAID.format("globalDim (64,64,1) globalStrides (2,128,0) boxDim (64,8,1) swizzle 3"),
)


def answer_code(words: str) -> int | None:
    """The CUresult that a dump prints, as its number or in the driver's words; None for words that are none.

    >>> answer_code("1"), answer_code("an illegal memory access was encountered"), answer_code("CUDA_ERROR_NOT_SUPPORTED")
    (1, 700, 801)
    """
    if number := re.match(r"\s*(\d{1,4})\b", words):
        return int(number[1])
    said = words.casefold()
    return next((code for code, spellings in _RESULTS.items() if any(word in said for word in spellings)), None)


@dataclass(frozen=True, slots=True)
class DriverAnswer:
    """Where the map lies (`TMA Desc Addr`) and what the driver answered; None for what a dump does not say."""

    map_address: int | None = None
    result: int | None = None
    type_from: str = ""  # what told the size of an element, where the dump does not say the type
    element_bytes: int = 0

    def violations(self, violations: Sequence[Violation], address: Any) -> Iterator[Violation]:
        """What follows for a map at a global address, in whose arguments the rules found these violations.

        >>> [answer.found for answer in DriverAnswer(0x7FFD7D2800C8, 715).violations((), 0x1000)]
        ['TMA Desc Addr 0x7ffd7d2800c8, 8 bytes past 0x7ffd7d2800c0', 'the driver answered 715, illegal instruction']
        """
        if self.map_address is not None and (beyond := self.map_address % MAP_ALIGNMENT_BYTES):
            nearest = self.map_address - beyond
            yield MAP_ADDRESS.told(address=self.map_address, beyond_bytes=beyond, nearest=nearest)
        if self.type_from:
            size = counted(self.element_bytes, "byte")
            yield DUMP_TYPE.told(type_from=self.type_from, size=size, element_bytes=self.element_bytes)
        if self.result:
            is_broken = any(violation.severity == "error" for violation in violations)
            more = "broken" if is_broken else "null" if address == 0 else ""
            code = 700 if self.result in _FAULTED else self.result
            if self.result in CUDA_ERROR:
                other = (
                    "0 is success; no rule explains this answer",
                    f"`tilescope explain {self.result}` says what it is.",
                )
                words = _RESULTS.get(self.result, (CUDA_ERROR[self.result].words,))[0]
            else:
                words = "unknown: no CUDA error has that number"
                other = "0 is success; every other answer is a CUresult", "Check how the number was printed."
            limit, fix = _FOLLOWS.get((code, more)) or _FOLLOWS.get((code, ""), other)
            name = f", {words}" if words else ""
            yield DRIVER_RESULT.told(result=self.result, name=name, limit=limit, fix=fix)


@dataclass(frozen=True, slots=True)
class MapReport(Value):
    """Whether a map is accepted, everything the rules say about it, and the map itself if it is one."""

    accepted: bool
    violations: tuple[Violation, ...]
    tensor_map: AnyMap | None

    @property
    def not_understood(self) -> tuple[Violation, ...]:
        """Violations by arguments that say nothing: a name that no table has, a value of the wrong type."""
        return tuple(broken for broken in self.violations if broken.rule in _NOT_UNDERSTOOD)


class ArgumentChange(NamedTuple):
    """An argument of a map, as it was given and as the driver takes it."""

    argument: str
    old: Any
    new: Any

    def __str__(self) -> str:
        is_address = self.argument == "address"
        old, new = (f"{value:#x}" if is_address else f"{value}" for value in (self.old, self.new))
        return f"{self.argument}: {old} → {new}"


@dataclass(frozen=True, slots=True)
class MapArguments:
    """Arguments by name, and the kind of map that they are for.

    >>> asked = MapArguments.of({"data_type": "bf16", "dims": [64, 64], "strides_bytes": [128], "box": [128, 8]})
    >>> asked.map_class.__name__, [violation.rule for violation in asked.check()]
    ('TensorMap', ['box-larger'])
    """

    map_class: type[AnyMap]
    given: Mapping[str, Any]
    answer: DriverAnswer = field(default=DriverAnswer(), compare=False)  # what a dump says beside them
    are_strides_computed: bool = field(default=False, compare=False)  # dense: nobody gave them

    @classmethod
    def of(cls, arguments: Any) -> MapArguments:
        """The kind that `kind` or the names of the arguments say; a hexadecimal address may be text."""
        if not isinstance(arguments, Mapping):
            raise RuleError([unknown_name("arguments by name, not", "arguments", arguments, TensorMap.readers)])
        named = dict(arguments)
        kind = named.pop("kind", None)
        if kind is None:
            kind = next(known.kind for known, own in _OWN_ARGUMENTS.items() if not own or own & named.keys())
        if not isinstance(kind, str) or kind not in MAP_KINDS:
            raise RuleError([unknown_name("kind of map", "kind", kind, MAP_KINDS)])
        if isinstance(named.get("address"), str):
            with suppress(ValueError):  # it stays text, which the rule argument-type names
                named["address"] = int(named["address"], 0)
        ordered = {name: named[name] for name in signature(MAP_KINDS[kind]).parameters if name in named}
        return cls(MAP_KINDS[kind], ordered | named)

    @classmethod
    def from_json(cls, text: str | bytes) -> tuple[MapArguments, ...]:
        r"""The maps that JSON lines hold, each once; what is not in lines is one map's. Lines without a map are left out.

        A map is what its `to_dict` prints; an inspection or a convolution holds its map.

        >>> line = '{"tensor_map": {"data_type": "u8", "dims": [%d], "strides_bytes": [], "box": [16]}, "result": 0}'
        >>> lines = [line % 64, line % 128, '{"tensor_map": null, "result": 1}']
        >>> [asked.given["dims"] for asked in MapArguments.from_json("\n".join(lines))]
        [[64], [128]]
        """
        try:
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            try:
                values = [json.loads(text)]
            except (ValueError, RecursionError) as error:
                raise RuleError([argument_json.told(found=f"no JSON: {error}")]) from None
        maps = [value.get("tensor_map", value) if isinstance(value, dict) else value for value in values]
        held = [value for value in maps if value is not None] or maps
        if others := [value for value in held if not isinstance(value, dict)]:
            found = "tensor_map is null" if others[0] is None else f"a {type(others[0]).__name__}"
            raise RuleError([argument_json.told(found=found)])
        return distinct(map(cls.of, held))

    def completed(self, base: MapArguments | None = None) -> MapArguments:
        """These arguments, the rest from `base`; strides that nobody gives are dense, which takes a type that is known.

        The strides of `base` hold for as many dims as it has:

        >>> base = MapArguments.of({"data_type": "bf16", "dims": (100, 8), "strides_bytes": (256,), "box": (8, 8)})
        >>> MapArguments.of({"dims": (64, 8)}).completed(base).given["strides_bytes"]
        (256,)
        >>> MapArguments.of({"dims": (64, 4, 2)}).completed(base).given["strides_bytes"]
        (128, 512)
        """
        arguments = dict(self.given)
        if base is not None:
            known = {"kind": base.map_class.kind} | dict(base.given)
            if "dims" in arguments and len(arguments["dims"]) != len(known.get("dims", ())):
                known.pop("strides_bytes", None)
            arguments = known | arguments
        computed = False
        if {"dims", "data_type"} <= arguments.keys() and "strides_bytes" not in arguments:
            slice_bytes = Interleave.named(arguments.get("interleave", "none")).slice_bytes
            step_bits = slice_bytes * 8 if slice_bytes else DataType.named(arguments["data_type"]).tma.bits
            steps = accumulate((step_bits, *integers("dims", arguments["dims"])[:-1]), mul)
            arguments["strides_bytes"] = tuple(bits // 8 for bits in steps)[1:]
            computed = True
        kept = base is None or set(self.given) <= {"arch"}  # of other arguments the driver was not asked
        answer = (base or self).answer if kept else DriverAnswer()
        return replace(MapArguments.of(arguments), answer=answer, are_strides_computed=computed)

    def check(self) -> tuple[Violation, ...]:
        """Every rule that the arguments break; missing and unknown ones are violations too."""
        if wrong := self.misnamed():
            return wrong
        violations: tuple[Violation, ...] = self.map_class.check(**self.given)  # type: ignore[attr-defined]
        return *violations, *self.answer.violations(violations, self.given.get("address"))

    def report(self) -> MapReport:
        """What the rules say, and the map if they accept it."""
        violations = self.check()
        refused = [violation.rule for violation in violations if violation.severity == "error"]
        return MapReport(
            not refused, violations, self.tensor_map() if set(refused) <= {DRIVER_RESULT.rule.name} else None
        )

    def tensor_map(self) -> AnyMap:
        """The map, or TensorMapError with every violation."""
        if wrong := self.misnamed():
            raise TensorMapError(wrong)
        return self.map_class(**self.given)

    def repaired(self) -> MapArguments:
        """The nearest map that the driver takes; TensorMapError where a broken rule names no change that helps.

        No error is left, and no warning but those that the values cause which were given and are legal.

        >>> broken = {"data_type": "bf16", "dims": (4096, 1000), "strides_bytes": (8200,), "box": (128, 300), "swizzle": "128B"}
        >>> mended = MapArguments.of(broken).repaired().given
        >>> mended["strides_bytes"], mended["box"]
        ((8208,), (64, 256))
        """
        if wrong := self.misnamed():
            raise TensorMapError(wrong)
        check = self.map_class.check  # type: ignore[attr-defined]
        mended = repaired_arguments(check, self.given, are_strides_given=not self.are_strides_computed)
        return MapArguments(self.map_class, mended)

    def changes_to(self, other: MapArguments) -> tuple[ArgumentChange, ...]:
        """The arguments that differ in `other`, with both values; one that was not given had its default.

        >>> broken = MapArguments.of({"data_type": "u8", "dims": (64,), "strides_bytes": (), "box": (300,)})
        >>> [str(change) for change in broken.changes_to(broken.repaired())]
        ['box: (300,) → (256,)']
        """
        parameters = signature(self.map_class).parameters
        changes = []
        for name, new in other.given.items():
            old = self.given.get(name, parameters[name].default)
            if name == "element_strides" and old is None:
                old = (1,) * len(self.given["dims"])
            if new is not None and _plain(old) != _plain(new):
                changes.append(ArgumentChange(name, _plain(old), _plain(new)))
        return tuple(changes)

    def misnamed(self) -> tuple[Violation, ...]:
        """What keeps the arguments from being a map's at all: unknown names, and missing ones."""
        parameters = signature(self.map_class).parameters
        unknown = (self._unknown(str(name), parameters) for name in self.given if name not in parameters)
        needed = [name for name, parameter in parameters.items() if parameter.default is Parameter.empty]
        facts = {
            "kind": f"{'an' if self.map_class is Im2colMap else 'a'} {self.map_class.subject}",
            "needed": ", ".join(needed),
        }
        missing = (
            argument_missing.told(
                argument=name, driver_name=_CORNERS.get(name, ""), example=repr(_EXAMPLES[name]), **facts
            )
            for name in needed
            if name not in self.given
        )
        return *unknown, *missing

    def _unknown(self, name: str, parameters: Iterable[str]) -> Violation:
        """The violation for an argument that this kind of map does not have: another kind has it, or none."""
        others = [kind.subject for kind in reversed(_OWN_ARGUMENTS) if name in signature(kind).parameters]
        if not others:
            return unknown_name("argument", name, name, parameters)
        own = self.map_class.subject
        makes_it = [given for given in self.given if given in _OWN_ARGUMENTS[self.map_class]]
        return UNKNOWN_NAME.violation(
            name,
            f"{name} in the arguments of {'an' if own.startswith('i') else 'a'} {own} map",
            f"{others[0]} maps have it, {own} maps do not",
            f"Leave {name} out"
            + (f"; or, for a {others[0]} map, leave out {', '.join(makes_it)}." if makes_it else "."),
        )

    def lacking(self) -> tuple[Violation, ...]:
        """What has to be said before there is a map: as `misnamed`, without the strides, which follow from the rest."""
        wrong = self.misnamed()
        return tuple(violation for violation in wrong if violation.argument != "strides_bytes") or wrong


def _plain(value: Any) -> Any:
    """A value as a change shows it: the name of a row, a sequence as a tuple."""
    if isinstance(value, Row):
        return value.name
    return tuple(value) if isinstance(value, list) else value


def distinct(maps: Iterable[MapArguments]) -> tuple[MapArguments, ...]:
    """The arguments that differ from those before them."""
    return tuple({repr(asked.given): asked for asked in maps}.values())
