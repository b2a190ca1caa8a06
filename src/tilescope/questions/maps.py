"""The questions about tensor maps: would the driver take one, how do two differ, which one does a convolution need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tilescope.arch import ARCH
from tilescope.errors import TensorMapError, Violation
from tilescope.questions.call import Call
from tilescope.questions.first_lines import refused
from tilescope.questions.first_lines.maps import of_convolution, of_difference, of_fixed, of_log, of_report
from tilescope.questions.inputs import ELEMENT_TYPE, TYPE
from tilescope.questions.page import Leads, PageForm, address
from tilescope.questions.question import Answer, Asked, FirstLine, Input, Question, defaults, flag, in_words, refuse
from tilescope.swizzle import SWIZZLE
from tilescope.tensor_map import (
    AnyMap,
    Convolution,
    Im2colMap,
    Im2colWideMap,
    MapArguments,
    MapLog,
    MapLogDiff,
    MapReport,
    TensorMap,
    TensorMapDiff,
    inspect_tensor_map,
)
from tilescope.tensor_map.arguments import MAP_KINDS, ArgumentChange
from tilescope.tensor_map.convolution import PASSES
from tilescope.tensor_map.driver_answer import DRIVER_RESULT
from tilescope.tensor_map.map_log import lines_in_words
from tilescope.tensor_map.option import INTERLEAVE, L2_PROMOTION, OOB_FILL
from tilescope.tensor_map.source import MapSource
from tilescope.value import Value
from tilescope.written import extents, number, numbers

_WIDE = defaults(Im2colWideMap)
DIMS = Input("dims", "--dims", "Extents", "elements, innermost first.", read=numbers)
STRIDES = Input("strides_bytes", "--strides", "Strides in bytes", "of dims 1, 2, …", read=numbers, unsaid="dense")
BOX = Input("box", "--box", "Box", "elements, innermost first.", read=numbers)
LOWER_CORNER = Input("lower_corner", "--lower", "Lower corner", "im2col maps only; W first.", read=numbers)
UPPER_CORNER = Input("upper_corner", "--upper", "Upper corner", "im2col maps only; W first.", read=numbers)
CHANNELS = Input(
    "channels_per_pixel",
    "--channels",
    "Channels of a pixel",
    "im2col maps only; how many one copy brings.",
    read=number,
)
PIXELS = Input("pixels_per_column", "--pixels", "Pixels of a copy", "im2col maps only.", read=number)
WIDE_MODE = Input("mode", "--wide", "Im2col-wide mode", choices=("W", "W128"))
MAP_OPTIONS = (
    Input("element_strides", "--element-strides", "Element strides", "1 to 8.", read=numbers, unsaid="1"),
    Input("interleave", "--interleave", "Interleave", choices=tuple(INTERLEAVE)),
    Input(
        "swizzle",
        "--swizzle",
        "Swizzle",
        f"im2col-wide maps: {_WIDE['swizzle']} if nobody says it.",
        choices=tuple(SWIZZLE),
    ),
    Input("l2_promotion", "--l2", "L2 promotion", choices=tuple(L2_PROMOTION)),
    Input("oob_fill", "--fill", "Fill outside", "zero is the driver's NONE.", choices=tuple(OOB_FILL)),
    Input("address", "--address", "Global address", read=number, is_hex=True),
    Input(
        "arch",
        "--arch",
        "Architecture",
        f"im2col-wide maps: {_WIDE['arch']} if nobody says it.",
        choices=tuple(ARCH),
    ),
)
MAP_INPUTS = (
    TYPE,
    DIMS,
    STRIDES,
    BOX,
    LOWER_CORNER,
    UPPER_CORNER,
    CHANNELS,
    PIXELS,
    WIDE_MODE,
    *MAP_OPTIONS,
)
SOURCE = Input("words", read=str, is_many=True, is_required=False, shown_as="[SOURCE]...")
FROM_JSON = Input("from_json", "--from-json", "SOURCE as JSON; - is stdin", file="input", shown_as="FILE")
DESCRIBED_MAP = (SOURCE, *MAP_INPUTS, FROM_JSON)  # of a question about a map: `source` is what SOURCE gives


def map_arguments(asked: Asked) -> MapArguments | None:
    """The arguments of a map that inputs say; None if nobody says one.

    The width of an im2col-wide map is its only corner.
    """
    said = asked.options(MAP_INPUTS)
    if not said and "kind" not in asked:
        return None
    if "mode" in said:
        for corner, width in (("lower_corner", "lower_width"), ("upper_corner", "upper_width")):
            if corner in said:
                ends = said.pop(corner)
                said[width] = ends[0] if isinstance(ends, tuple) and len(ends) == 1 else ends
    kind = {"kind": asked["kind"]} if "kind" in asked else {}
    return MapArguments.of(kind | said)


def described(asked: Asked) -> MapSource:
    """The map that SOURCE gives, with the options' arguments in place of its own."""
    options = map_arguments(asked)
    source: MapSource | None = asked.get("source")
    if source is None:
        return _complete(MapSource(None, ((options or MapArguments.of({})).completed(),)))
    refuse(
        source.blob is not None and options is not None,
        "options replace arguments, not the bytes of a descriptor.",
    )
    if source.blob is not None:
        return source
    if options is not None:
        source = source._replace(asked=tuple(options.completed(base) for base in source.asked))
    return _complete(source)


def _complete(source: MapSource) -> MapSource:
    """These arguments, or everything they lack; strides follow from the rest."""
    lacking = [arguments.lacking() for arguments in source.asked]
    if not all(lacking):  # of several maps, a report says what one lacks
        return source
    raise TensorMapError([violation for missing in lacking for violation in missing])


def map_taken(asked: Asked) -> Mapping[str, object]:
    """What a map of that kind takes if nobody says it; --wide is always said: a command has the kind from it."""
    if "mode" in asked:
        return {name: value for name, value in _WIDE.items() if name != "mode"}
    return defaults(TensorMap)  # as an im2col map


def map_call(maps: MapSource) -> Call[AnyMap] | None:
    """The call that makes the map; None for the bytes of one."""
    if not maps.asked:
        return None
    given = maps.asked[0].given
    positional = [name for name in ("data_type", "dims", "strides_bytes", "box") if name in given]
    options = {name: value for name, value in given.items() if name not in positional}
    return Call(maps.asked[0].map_class, tuple(given[name] for name in positional), options, "tensor_map")


def check_answer(asked: Asked) -> Answer:
    """The verdict on a map, or on each map of a log."""
    maps = described(asked)
    if maps.is_log:
        return _log_answer(maps, is_fixed=bool(asked.get("fix")))
    (report,) = maps.reports()
    if report.not_understood:
        raise TensorMapError(report.not_understood)  # exit status 2, not 1
    if asked.get("fix"):
        fixed = _repaired(maps.asked[0]) if maps.asked else FixedMap(maps.tensor_map(), ())
        return Answer(
            fixed.tensor_map,
            first=of_fixed(fixed.tensor_map, fixed.changes),
            extra=_fixed_facts(fixed),
            text=_fixed_text(fixed),
        )
    return Answer(
        report,
        map_call(maps),
        first=of_report(report),
        shown={"asked": maps.asked[0].given if maps.asked else {}},
        is_yes=report.accepted,
        violations=report.violations,
        told_in="findings",
    )


def _log_answer(maps: MapSource, *, is_fixed: bool) -> Answer:
    """The verdicts on the maps of a log; fixed, the calls of those that are refused."""
    log = MapLog.of(maps)
    if all(one.verdict == "not understood" for one in log.maps):
        raise TensorMapError([broken for one in log.maps for broken in one.violations])  # exit status 2, not 1
    if is_fixed:
        return _fixed_log(log)
    title = "The maps of the log" if log.accepted else "The maps of the log, refused ones first"
    return Answer(log, first=of_log(log), shown={"title": title}, is_yes=log.accepted)


class FixedMap(NamedTuple):
    """A map with the fixes of the rules that it broke, and what was changed."""

    tensor_map: AnyMap
    changes: tuple[ArgumentChange, ...]


def _fixed_log(log: MapLog) -> Answer:
    """The encode calls of the refused maps with the fixes of the broken rules, and what was changed."""
    refused = log.with_verdict("refused")
    texts = [f"// {log.summary}"]
    facts: list[dict[str, object]] = []
    for one in refused:
        where = lines_in_words(one.lines)
        try:
            fixed = _repaired(one.asked)
        except TensorMapError as error:
            texts += [
                f"// {where}: no change that a rule names mends it",
                *(f"//   {said}" for said in error.violations),
            ]
            continue
        texts += [f"// {where}", _fixed_text(fixed)]
        facts.append({"lines": list(one.lines), "tensor_map": fixed.tensor_map.to_dict()} | _fixed_facts(fixed))
    is_yes = len(facts) == len(log.maps) - len(log.with_verdict("accepted"))
    return Answer(log, first=of_log(log), extra={"fixed": facts}, is_yes=is_yes, text="\n".join(texts))


def _repaired(asked: MapArguments) -> FixedMap:
    repaired = asked.repaired()
    return FixedMap(repaired.tensor_map(), tuple(asked.changes_to(repaired)))


def _fixed_facts(fixed: FixedMap) -> dict[str, object]:
    """What stands in JSON beside a map that was fixed."""
    return {"changes": [str(change) for change in fixed.changes], "encode": _encode_call(fixed.tensor_map)}


def _fixed_text(fixed: FixedMap) -> str:
    """What was changed, and the calls in C++ and Python."""
    from tilescope.emitter import snippet

    lines = [f"// {of_fixed(fixed.tensor_map, fixed.changes).sentence}"]
    lines += [f"// changed {change}" for change in fixed.changes] or ["// nothing changed: no rule is broken"]
    lines.append(_encode_call(fixed.tensor_map))
    lines.append(snippet(fixed.tensor_map, "encode-bindings"))
    return "\n".join(lines)


def diff_answer(asked: Asked) -> Answer:
    """How two maps or the maps of two logs differ; `one_source` and `other_source` are what they were read from."""
    one: MapSource = asked["one_source"]
    other: MapSource = asked["other_source"]
    if len(one.asked) > 1 or len(other.asked) > 1:
        return _log_difference(asked)
    refusals = {"first": _refusal(one), "second": _refusal(other)}
    if any(refusals.values()):
        return _refused_difference(asked, {side: broken for side, broken in refusals.items() if broken})
    call = _diff_call(asked, MapSource.tensor_map, TensorMapDiff.of, "tilescope.tensor_map.difference")
    difference = TensorMapDiff.of(one.tensor_map(), other.tensor_map())
    return Answer(difference, call, first=of_difference(difference), is_yes=difference.same)


def _log_difference(asked: Asked) -> Answer:
    """How the maps of two logs differ."""
    call = _diff_call(asked, log_of, MapLogDiff.of, "tilescope.tensor_map.log_difference")
    logs = MapLogDiff.of(log_of(asked["one_source"]), log_of(asked["other_source"]))
    return Answer(logs, call, first=FirstLine(logs.summary), shown={"title": "What differs"}, is_yes=logs.same)


def _refusal(source: MapSource) -> tuple[Violation, ...]:
    """Why the one map of a source is refused, by the rules of the hardware; nothing where it is accepted."""
    if source.blob is not None:
        return ()
    (asked,) = source.asked
    broken = [violation for violation in asked.check() if violation.severity == "error"]
    return () if asked.misnamed() else tuple(one for one in broken if one.rule != DRIVER_RESULT.name)


def _refused_difference(asked: Asked, refusals: Mapping[str, tuple[Violation, ...]]) -> Answer:
    """In what a map that the driver refuses differs from another one, and why it is refused."""
    found = _log_difference(asked)
    side, broken = next(iter(refusals.items()))
    first = refused(f"The {side} map is refused", broken)
    if len(refusals) > 1:
        first = refused("Both maps are refused; the first", broken)
    violations = tuple(violation for one in refusals.values() for violation in one)
    return replace(found, first=first, is_yes=False, violations=violations)


def _diff_call(asked: Asked, taken: Callable[..., object], compared: Callable[..., Value], module: str) -> Call[Value]:
    """The Python that reads both texts and compares what is taken from them."""
    sides: list[Call[Any]] = []
    for written, name in (("one", "first"), ("other", "second")):
        content = asked[written].encode("utf-8", errors="replace")
        source = Call(MapSource.read, (content,), name="", module="tilescope.tensor_map.source")
        if taken is log_of:
            sides.append(Call(log_of, (source,), name=name, module="tilescope.questions.maps"))
        else:
            sides.append(Call(taken, (), name=name, receiver=source, module="builtins"))
    return Call(compared, tuple(sides), name="difference", module=module)


def log_of(source: MapSource) -> MapLog:
    """The maps of a log; the bytes of one map are a log of one line."""
    if source.blob is None:
        return MapLog.of(source)
    tensor_map = source.tensor_map()
    named = {name: getattr(tensor_map, name) for name in tensor_map.readers}
    asked = replace(MapArguments.of({"kind": tensor_map.kind, **named}), lines=(1,))
    return MapLog.of(MapSource(None, (asked,)))


IMAGE = Input("image", "", "Image", "NxHxWxC, channels last; NxWxC or NxDxHxWxC too.", read=extents)
FILTERS = Input("filters", "", "Filter", "its count and taps: KxRxS; KxS or KxTxRxS too.", read=extents)
CONV_OPTIONS = (
    Input("direction", "--direction", "Direction", choices=PASSES),
    Input("pad", "--pad", "Padding", "one number, or one for each dimension, outermost (D, H) first.", read=numbers),
    Input("stride", "--stride", "Stride", "in the order of the padding.", read=numbers),
    Input("dilation", "--dilation", "Dilation", "in the order of the padding.", read=numbers),
    Input(
        "channels_per_pixel",
        "--channels",
        "Channels of one copy",
        read=number,
        unsaid="a span of the widest swizzle",
    ),
    Input("pixels_per_column", "--pixels", "Pixels of one copy", read=number),
    Input("swizzle", "--swizzle", "Swizzle", unsaid="the widest that divides the channels"),
    Input("arch", "--arch", "Architecture", unsaid=str(defaults(TensorMap)["arch"])),
)


def conv_answer(asked: Asked) -> Answer:
    """The map of a convolution, or why there is none."""
    call = Call(
        Convolution.of,
        (asked["image"], asked["filters"], asked["data_type"]),
        asked.options(CONV_OPTIONS),
        "convolution",
        module="tilescope.tensor_map",
    )
    try:
        convolution = call.run()
    except TensorMapError as error:
        return Answer(
            MapReport(False, error.violations, None),
            call,
            first=refused("No such map", error.violations),
            is_yes=False,
            violations=error.violations,
            told_in="findings",
        )
    encode = _encode_call(convolution.tensor_map)
    return Answer(
        convolution,
        call,
        first=of_convolution(convolution),
        shown={"copy": asked.get("copy")},
        extra={"encode": encode},
        violations=convolution.tensor_map.findings,
        told_in="findings",
        code=encode,
    )


def _encode_call(tensor_map: AnyMap) -> str:
    """The call of the driver in C++ that makes a map."""
    from tilescope.emitter import snippet  # which a check starts without

    return snippet(tensor_map, "encode")


CHECK = Question(
    name="check",
    help="""Say whether the driver takes a tensor map, and every reason why not.

    The map is described by options, or by SOURCE: a file or text with JSON, with the arguments that CUTLASS, TileLang,
    Triton and others print when a map fails, with a call of the driver in C++ or Python, or with the words of a
    descriptor; - is stdin. --from-json FILE takes nothing but JSON. Options replace what SOURCE says.

    A log may be of any length and hold any number of maps. The answer begins with how many are refused, and on which
    lines; then come the refused ones in full, and the others in one line each. FILE:3 is the third line of a file that
    holds one map a line, as watch writes it.
    """,
    inputs=(
        Input(
            "fix",
            "--fix",
            "Print the call of the nearest map that is accepted, in C++ and Python, and what was changed",
            read=flag,
        ),
        *DESCRIBED_MAP,
    ),
    answer=check_answer,
    functions=(TensorMap,),
    taken=map_taken,
)
DIFF = Question(
    name="diff",
    help="""Compare two tensor maps: arguments, what follows from them, and the words of their descriptors.

    ONE and OTHER are files or texts with JSON, with a dump of arguments, or with the bytes or words of a descriptor; -
    is stdin, FILE:3 the third line of a file that holds one map a line. Logs of several maps are compared map by map,
    whatever their addresses: how many are in both, which changed and how, which are in one alone.
    """,
    inputs=(Input("one", read=str), Input("other", read=str)),
    answer=diff_answer,
)
CONV = Question(
    name="conv",
    help="""Make the im2col map of a convolution, with the corners, the strides and the offsets of every filter tap.

    The image is NxWxC, NxHxWxC or NxDxHxWxC, channels last; the filter is its count and taps: KxS, KxRxS, KxTxRxS.

    wgrad's map is that of the activations.
    """,
    inputs=(IMAGE, FILTERS, ELEMENT_TYPE, *CONV_OPTIONS),
    answer=conv_answer,
    functions=(Convolution.of,),
)

# The width of an im2col-wide map is its only corner.
_LOWER_WIDTH = replace(LOWER_CORNER, name="lower_width", read=number, hint="")
_UPPER_WIDTH = replace(UPPER_CORNER, name="upper_width", read=number, hint="")
MAP_FIELDS = {
    TensorMap.kind: (TYPE, DIMS, STRIDES, BOX, *MAP_OPTIONS),
    Im2colMap.kind: (TYPE, DIMS, STRIDES, LOWER_CORNER, UPPER_CORNER, CHANNELS, PIXELS, *MAP_OPTIONS),
    Im2colWideMap.kind: (
        TYPE,
        DIMS,
        STRIDES,
        _LOWER_WIDTH,
        _UPPER_WIDTH,
        CHANNELS,
        PIXELS,
        WIDE_MODE,
        *MAP_OPTIONS,
    ),
}
_IMAGE = {
    "data_type": "bf16",
    "dims": "64,16,16,2",
    "channels_per_pixel": "64",
    "pixels_per_column": "64",
    "swizzle": "128B",
}
MAP_PRESETS = {
    TensorMap.kind: {"data_type": "bf16", "dims": "72,16", "box": "64,8", "swizzle": "128B"},
    Im2colMap.kind: _IMAGE | {"lower_corner": "-1,-1", "upper_corner": "-1,-1"},
    Im2colWideMap.kind: _IMAGE | {"lower_width": "-1", "upper_width": "0", "mode": "W", "arch": "sm_100"},
}


def asking_map(asked: Asked) -> Asked:
    """What the fields of a map say, as the options of a command say it."""
    if asked["kind"] != Im2colWideMap.kind:
        return asked
    asked = asked.saying(mode=asked.get("mode", _WIDE["mode"]))
    for width, corner in (("lower_width", "lower_corner"), ("upper_width", "upper_corner")):
        if width in asked:
            asked = asked.saying(**{corner: (asked[width],)})
    return asked


def _map_leads(asked: Asked, _: Answer) -> Leads:
    """The page that shows a copy through the map."""
    arguments = described(asked).asked[0].given
    query = {"kind": asked["kind"], "coords": ""} | written_map(arguments)
    return {"copy": {"See a copy through it": address("load", query)}}


def written_map(arguments: Mapping[str, object]) -> dict[str, str]:
    """The arguments of a map as the fields of a page hold them."""
    said = {name: in_words(value) for name, value in arguments.items() if value is not None}
    at = arguments.get("address")
    return said | ({"address": hex(at)} if isinstance(at, int) else {})


def filled_by_paste(query: Mapping[str, str]) -> dict[str, str] | None:
    """The query that a pasted map turns into: its arguments, or its bytes where they are no sound map."""
    if "paste" not in query:
        return None
    source = MapSource.read(query["paste"].encode("utf-8", errors="replace"))
    if source.blob is None:
        return {"kind": source.asked[0].map_class.kind} | written_map(source.asked[0].given)
    tensor_map = inspect_tensor_map(source.blob).tensor_map
    if tensor_map is None:
        return {"kind": "bytes", "hex": source.blob.hex()}
    return {"kind": tensor_map.kind} | written_map({name: getattr(tensor_map, name) for name in tensor_map.readers})


def _check_form(kind: str) -> PageForm:
    """The form of the page of one kind of map."""
    return PageForm(
        CHECK,
        inputs=MAP_FIELDS[kind],
        presets=MAP_PRESETS[kind],
        asking=asking_map,
        shown={"show_bytes": True},
        leads=_map_leads,
    )


CHECK_FORMS = {kind: _check_form(kind) for kind in MAP_KINDS}
QUESTIONS = (CHECK, DIFF, CONV)
