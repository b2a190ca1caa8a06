"""From one notation to another, with the proof that both texts name the same addresses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tilescope.arch import Basis
from tilescope.errors import RuleError, Violation, argument_type, unknown_name
from tilescope.layout import Layout, Major, Modes
from tilescope.notation import cute, cute_atom, layout_call, mosaic, swizzle_names, triton, triton_text
from tilescope.notation.hints import NO_EQUIVALENT, Hints, Unit
from tilescope.notation.text import NOTATION_TEXT, Fields, checked_text
from tilescope.sentence import by, shorten
from tilescope.swizzle import SWIZZLE
from tilescope.value import Value

NotationName = Literal[
    "tilescope", "driver", "ptx", "cute", "cute-elements", "cute-python", "cute-atom", "triton", "gluon", "mosaic"
]


@dataclass(frozen=True, slots=True)
class Notation:
    """A way to write layouts down, and what it leaves to be said beside the text.

    >>> NOTATION["driver"].unsaid
    ('element_bits', 'shape', 'major', 'start')
    """

    name: str
    unsaid: tuple[str, ...]  # by some text of the notation
    expresses: str  # which layouts have a text
    example: str
    # texts that may be the layout, the best first
    spell: Callable[[Layout], tuple[str, ...]] = field(repr=False, compare=False)


_BOXES = "boxes one span wide: row after row, and box after box, column by column"
_ENCODINGS = (
    "nvmma_shared stores spans of 32, 64 or 128 bytes column by column; swizzled_shared stores whole unpadded rows of a "
    "power of two with an XOR of row bits; padded_shared stores a power of two of elements, then padding of another"
)
_STRIDES = "strides of whole elements and one XOR swizzle"
_BITS: tuple[str, ...] = ("element_bits",)  # what a text leaves unsaid
_TILE = (*_BITS, "shape", "start")
_TMA = (*_BITS, "shape", "major", "start")
_ROWS = (
    Notation(
        name="tilescope",
        unsaid=(),
        expresses="grids of equal atoms",
        example='Layout((64, 64), 16, swizzle="128B")',
        spell=layout_call.spell,
    ),
    Notation(
        name="driver",
        unsaid=_TMA,
        expresses=_BOXES,
        example="CU_TENSOR_MAP_SWIZZLE_128B",
        spell=swizzle_names.spell_driver,
    ),
    Notation(
        name="ptx",
        unsaid=_TMA,
        expresses=_BOXES,
        example=".swizzle_mode = 128B, .swizzle_atomicity = 16B",
        spell=swizzle_names.spell_ptx,
    ),
    Notation(
        name="cute",
        unsaid=(),
        expresses=_STRIDES,
        example="Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)",
        spell=cute.spell,
    ),
    Notation(
        name="cute-elements",
        unsaid=_BITS,
        expresses=_STRIDES,
        example="Sw<3,3,3> o _0 o (_8,_64):(_64,_1)",
        spell=cute.spell_elements,
    ),
    Notation(
        name="cute-python",
        unsaid=_BITS,
        expresses=_STRIDES,
        example="S<3,4,3> o 0 o (8,64):(64,1)",
        spell=cute.spell_python,
    ),
    Notation(
        name="cute-atom",
        unsaid=(),
        expresses="tiles of the tensor core's atoms, by column or by row, with no address",
        example="GMMA::Layout_K_SW128_Atom<half_t>",
        spell=cute_atom.spell,
    ),
    Notation(
        name="triton",
        unsaid=_TILE,
        expresses=_ENCODINGS,
        example="#ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>",
        spell=triton.spell,
    ),
    Notation(
        name="gluon",
        unsaid=_TILE,
        expresses=_ENCODINGS,
        example="gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)",
        spell=triton.spell_gluon,
    ),
    Notation(
        name="mosaic",
        unsaid=_TILE,
        expresses="rows of a tile, then tiles by row or by column",
        example="(TileTransform((8, 64)), SwizzleTransform(128))",
        spell=mosaic.spell,
    ),
)
NOTATION: dict[str, Notation] = {row.name: row for row in _ROWS}

MORE_THAN_MODES = NOTATION_TEXT.worded(
    found='"{text}"',
    limit="a shape and its strides alone",
    fix="Use (8,64):(64,1), for example.",
)
UNSPELLED = NO_EQUIVALENT.worded(found="{layout}", limit="{expresses}", fix="Spell it as cute.")
ELEMENT_ELSEWHERE = UNSPELLED.worded(found="{layout}: element {element} would be elsewhere in {text}")


@dataclass(frozen=True, slots=True)
class Conversion(Value):
    """A layout in two notations, with the number of addresses that are equal.

    >>> print(convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "triton"))
    #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
    """

    source: str  # as the caller wrote it
    notation: str  # of the result
    result: str  # the layout in that notation
    unsaid: tuple[str, ...]  # properties that the notation of the result lacks: state them with the text
    layout: Layout
    compared: int  # addresses of the source and of the result, read again, that are equal: all of them
    basis: Basis  # measured: the swizzle was seen to act so on a card
    assumed: tuple[str, ...] = ()  # what neither the source nor the caller says: `layout` has what was taken for it

    @property
    def assumption(self) -> str:
        """What was assumed, as a sentence; empty where everything is said.

        >>> swizzled = "#ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
        >>> print(convert_layout(swizzled, "cute").assumption)
        The text does not say it, so assumed: elements of 16 bits, and a tile of 8 x 64. Say others with --bits and --shape.
        """
        return assumption(self.layout, self.assumed)

    @property
    def beside(self) -> Fields:
        """What the result's notation leaves unsaid, as arguments of `parse_layout`.

        >>> convert_layout("GMMA::Layout_K_SW128_Atom<half_t>", "mosaic").beside
        {'element_bits': 16, 'shape': (8, 64), 'start': 0}
        """
        return {name: getattr(self.layout, name) for name in self.unsaid}

    def read_again(self) -> Layout:
        """The layout as the result's text tells it: equal to `layout` in every address."""
        return parse_layout(self.result, **self.beside)

    def __str__(self) -> str:
        return self.result


@dataclass(frozen=True, slots=True)
class NoEquivalent(Value):
    """Why a layout has no text in a notation.

    >>> reason = NO_EQUIVALENT.violation(found="128B", limit="no such name", fix="Use cute.")
    >>> print(NoEquivalent((reason,)))
    no-equivalent: 128B; no such name. Use cute.
    """

    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.violations))


def parse_layout(
    text: str,
    *,
    element_bits: int | None = None,
    shape: tuple[int, ...] | None = None,
    major: Major | None = None,
    unit: Unit | None = None,
    start: int = 0,
) -> Layout:
    """The layout that a text of any notation describes.

    The arguments supply properties that the notation does not specify: the bits of an element, the (mn, k) shape of the tile,
    its contiguous dimension ("K" or "MN"), the unit of a swizzle in CuTe's Python form, and the shared address.

    >>> atom = parse_layout("Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1)")
    >>> atom == parse_layout("CU_TENSOR_MAP_SWIZZLE_128B", element_bits=16)
    True
    >>> atom == parse_layout("Sw<3,4,3> o _0 o (_8,_64):(_64,_1)", element_bits=16)  # counts elements: another
    False
    """
    hints = Hints(element_bits, shape, major, unit, start)
    line = checked_text(text)
    layout = _reader(line)(line, hints)
    hints.check_major(layout)
    return layout


def parse_modes(text: str) -> Modes:
    """The nested shape and stride of a text that says nothing else, such as a thread-value layout.

    >>> print(parse_modes("((_4,_8),(_2,_2)):((_32,_1),(_16,_8))"))
    ((4,8),(2,2)):((32,1),(16,8))
    """
    line = checked_text(text)
    modes = cute.read_modes(line)
    if modes is None:
        raise MORE_THAN_MODES.error(text=shorten(line, 60))
    return modes


def parse_layout_or_modes(
    text: str,
    *,
    element_bits: int | None = None,
    shape: tuple[int, ...] | None = None,
    major: Major | None = None,
    unit: Unit | None = None,
    start: int = 0,
) -> Layout | Modes:
    """What a text can be drawn as: a layout, or modes alone where nothing says how wide an element is.

    >>> parse_layout_or_modes("(32,2):(2,1)")
    Modes((32, 2), (2, 1))
    """
    line = checked_text(text)
    if element_bits is None and _reader(line) is cute.read:
        modes = cute.read_modes(line)
        if modes is not None:
            return modes
    return parse_layout(text, element_bits=element_bits, shape=shape, major=major, unit=unit, start=start)


def spell_layout(layout: Layout, notation: NotationName | str | Notation) -> str:
    """The layout in a notation; `RuleError` with the reason if the notation cannot express it.

    >>> print(spell_layout(Layout((64, 64), 16, swizzle="128B"), "mosaic"))
    (TileTransform((8, 64)), SwizzleTransform(128))
    """
    return _find_spelling(layout, notation)[0]


def convert_layout(
    text: str,
    notation: NotationName | str | Notation,
    *,
    element_bits: int | None = None,
    shape: tuple[int, ...] | None = None,
    major: Major | None = None,
    unit: Unit | None = None,
    start: int = 0,
) -> Conversion:
    """The same layout in another notation; every address is compared.

    >>> found = convert_layout("S<2,4,3> o 0 o (8,32):(32,1)", "ptx", element_bits=16)
    >>> found.result, found.compared, found.basis
    ('.swizzle_mode = 64B, .swizzle_atomicity = 16B', 256, 'measured')
    """
    layout, assumed = parse_layout_assuming(
        text, element_bits=element_bits, shape=shape, major=major, unit=unit, start=start
    )
    spelled, row = _find_spelling(layout, notation)
    unsaid = _unsaid(spelled, row)
    return Conversion(text, row.name, spelled, unsaid, layout, layout.elements, layout.swizzle.basis, assumed)


def parse_layout_assuming(
    text: str,
    *,
    element_bits: int | None = None,
    shape: tuple[int, ...] | None = None,
    major: Major | None = None,
    unit: Unit | None = None,
    start: int = 0,
) -> tuple[Layout, tuple[str, ...]]:
    """The layout of a text, and the names of the arguments that had to be assumed; Triton's encodings leave out most.

    >>> swizzled = "#shared1 = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>"
    >>> parse_layout_assuming(swizzled)
    (Layout((8, 64), 16, swizzle="128B"), ('element_bits', 'shape'))
    """
    line = checked_text(text)
    beside: Fields = {"element_bits": element_bits, "shape": shape, "major": major, "unit": unit, "start": start}
    assumed: Fields = {}
    if _reader(line) is triton.read:
        assumed = triton.assumed(line, Hints(**beside))
    return parse_layout(text, **beside | assumed), tuple(assumed)


def assumption(layout: Layout, assumed: tuple[str, ...]) -> str:
    """A sentence of what was assumed of a layout and how to say otherwise; empty where nothing was."""
    if not assumed:
        return ""
    taken = []
    options = []
    if "element_bits" in assumed:
        taken.append(f"elements of {layout.element_bits} bits")
        options.append("--bits")
    if "shape" in assumed:
        taken.append(f"a tile of {by(layout.shape)}")
        options.append("--shape")
    others = "another" if len(assumed) == 1 else "others"
    what = ", and ".join(taken)
    return f"The text does not say it, so assumed: {what}. Say {others} with {' and '.join(options)}."


def _find_spelling(layout: Layout, notation: object) -> tuple[str, Notation]:
    """The first text of the notation that, read again, has every address of the layout."""
    row = _notation_named(notation)
    if not isinstance(layout, Layout):
        raise RuleError([argument_type("layout", layout, "a Layout", "Use parse_layout first.")])
    refused = UNSPELLED.error(layout=repr(layout), expresses=row.expresses)
    for text in row.spell(layout):
        beside: Fields = {name: getattr(layout, name) for name in _unsaid(text, row)}
        try:
            again = parse_layout(text, **beside)
        except RuleError as error:
            refused = _unreadable(layout, text, error.violations[0])
            continue
        difference = layout.first_difference(again)
        if difference is None:
            return text, row
        refused = ELEMENT_ELSEWHERE.error(layout=repr(layout), text=text, element=difference, expresses=row.expresses)
    raise refused


def _notation_named(notation: object) -> Notation:
    if isinstance(notation, Notation):
        return notation
    if isinstance(notation, str) and notation in NOTATION:
        return NOTATION[notation]
    raise RuleError([unknown_name("notation", "notation", notation, NOTATION)])


def _unreadable(layout: Layout, text: str, reason: Violation) -> RuleError:
    """The error for a layout whose text cannot be read again, with the reason's own limit and values."""
    description = f"{layout!r} as {text}: {reason.found}"
    values: Fields = {"layout": repr(layout), **reason.values}
    return NO_EQUIVALENT.error(found=description, limit=reason.limit, fix="Spell it as cute.", **values)


def _unsaid(text: str, row: Notation) -> tuple[str, ...]:
    """What this text leaves unsaid: of Triton's encodings nvmma_shared has the element's bits, padded_shared the shape."""
    stated = set()
    if re.search("element_?bit_?width", text, re.IGNORECASE):
        stated.add("element_bits")
    if re.search("padded_shared|PaddedSharedLayout", text):
        stated.add("shape")
    return tuple(name for name in row.unsaid if name not in stated)


# What only a notation's texts have, and their reader: the first pattern that a text has says which notation it is in.
_READERS: tuple[tuple[re.Pattern[str], Callable[[str, Hints], Layout]], ...] = (
    (triton_text.SOME_TEXT, triton.read),
    (re.compile(r"Transform|^(?:transforms|swizzle)\s*=|^\(\s*\)$"), mosaic.read),
    (re.compile(r"^(?:tensormap\.\S*)?\.?swizzle_(?:mode|atomicity)"), swizzle_names.read_ptx),
    (re.compile(rf"^(?:(?i:{swizzle_names.DRIVER_PREFIX})|xor:|(?:{'|'.join(SWIZZLE)})$)"), swizzle_names.read_mode),
    (re.compile(r"^(?:\w+\.)*Layout(?:\.from_modes)?\s*\("), layout_call.read),
    (re.compile(""), cute.read),
)


def _reader(text: str) -> Callable[[str, Hints], Layout]:
    """The reader of the notation that a text is in."""
    return next(read for pattern, read in _READERS if pattern.search(text))
