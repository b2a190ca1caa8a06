"""`tilescope draw`, `convert`: a layout in any notation; `tilescope banks`: what access patterns cost on one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tilescope.cli.command import STDOUT, Output, command, reading, refuse
from tilescope.data_type import DataType
from tilescope.errors import RuleError
from tilescope.inputs import Input, chosen
from tilescope.inputs.beside import comparison_facts
from tilescope.inputs.tiles import BANK_TILE, DRAWN_LAYOUT, ELEMENT, LAYOUT_TEXT
from tilescope.layout import Modes
from tilescope.notation import (
    NOTATION,
    Conversion,
    NoEquivalent,
    assumption,
    convert_layout,
    parse_layout,
    parse_layout_assuming,
    parse_layout_or_modes,
    parse_modes,
)
from tilescope.view.drawing import Drawing, Table
from tilescope.view.parts import Part
from tilescope.written import number, rows_and_columns

_BESIDE = [replace(row, name="start") if row.name == "smem_address" else row for row in LAYOUT_TEXT]
_START = _BESIDE[-1]
_MAX_PADDING = Input(
    "max_padding_bytes", "--max-padding", "Widest padding to try, in bytes", read=number, default="128"
)


@command(Input("text"), replace(ELEMENT, label="Say where this element lies"), DRAWN_LAYOUT[1], *_BESIDE)
def draw(text: str, output: Output, element: Any = None, other: str | None = None, **beside: Any) -> int:
    """Draw the layout TEXT: where each piece of a tile lies in shared memory, or which thread holds what.

    \b
    tilescope draw "Sw<3,4,3> o smem_ptr[16b](unset) o (_64,_64):(_64,_1)"
    tilescope draw "CU_TENSOR_MAP_SWIZZLE_64B" --bits 16 --shape 64x32
    tilescope draw "((32,4),4):((16,4),1)" --bits 8
    tilescope draw "((4,8),(2,2)):((32,1),(16,8))" --shape 16x8
    tilescope draw "(64,64):(64,1)" --bits 16 --other "(64,64):(72,1)"

    TEXT is in any notation that `tilescope convert` reads. A shape and stride without --bits is a thread-value layout:
    thread and value lead to an index of the tile, whose first index runs fastest; --shape draws who holds each element.
    """  # noqa: D301  \b keeps the lines below it apart
    layout = parse_layout_or_modes(text, **beside)
    if isinstance(layout, Modes):
        return output.show(layout, shape=beside.get("shape"))
    if other is None:
        return output.show(layout, element=element)
    compared = parse_layout(other, **beside)
    return output.show(layout, extra=comparison_facts(layout, compared), element=element, other=compared)


@command(Input("text"), *_BESIDE)
@click.option(
    "--to", "notation", type=click.Choice(list(NOTATION)), metavar="NOTATION",
    help=f"The notation of the answer: {', '.join(NOTATION)}. [default: all]",
)  # fmt: skip
@click.option("--draw", "picture", is_flag=True, help="Draw both layouts side by side.")
def convert(text: str, picture: bool, output: Output, notation: str | None = None, **beside: Any) -> int:
    """Translate the layout TEXT into another notation, or into all, and prove it: all addresses are compared.

    TEXT is what CuTe prints (Sw<3,4,3> o smem_ptr[16b](unset) o (_8,_64):(_64,_1), S<3,4,3> o 0 o (8,64):(64,1)), an
    atom's name (GMMA::Layout_K_SW128_Atom<half_t>), a Triton encoding (#ttg.nvmma_shared<{…}>), Mosaic's transforms,
    CU_TENSOR_MAP_SWIZZLE_128B, PTX's .swizzle_mode and .swizzle_atomicity, or Layout((64, 64), 16, swizzle="128B").

    Exit status 1, with the reason: there is no such text for this layout.
    """
    if notation is None:
        return _show_all_notations(text, output, **beside)
    conversion = _conversion(text, notation, **beside)
    if isinstance(conversion, NoEquivalent):
        layout, assumed = parse_layout_assuming(text, **beside)
        if output.as_json:
            return Output(as_json=True).show(conversion, ok=False, extra={"assumed": assumed} if assumed else None)
        click.echo(str(conversion))
        if assumed:
            click.echo(assumption(layout, assumed))
        if picture:
            click.echo()
            output.show(layout)
        return 1
    if not output.as_json and output.svg_path != STDOUT:
        click.echo(f"{conversion.result}\n")  # whole, on a line of its own, however narrow the terminal
    return output.show(conversion, picture=picture or output.svg_path is not None)


def _conversion(text: str, notation: str, **beside: Any) -> Conversion | NoEquivalent:
    try:
        return convert_layout(text, notation, **beside)
    except RuleError as refused:
        if any(violation.rule != "no-equivalent" for violation in refused.violations):
            raise
        return NoEquivalent(refused.violations)


def _show_all_notations(text: str, output: Output, **beside: Any) -> int:
    """The layout in every notation that has a text for it, and why the others have none."""
    texts = {notation: str(_conversion(text, notation, **beside)) for notation in NOTATION}
    layout, assumed = parse_layout_assuming(text, **beside)
    parts: list[Part] = [Table(tuple(texts.items()), ("notation", "text"))]
    if assumed:
        parts.append(assumption(layout, assumed))
    drawing = Drawing(f"{text.strip()} in every notation", parts)
    return output.show(layout, drawing, extra={"notations": texts} | ({"assumed": assumed} if assumed else {}))


@command(
    Input("text", "--layout", "The layout in any notation", "in place of tile and type."),
    Input("tv", "--tv", "An access", "(thread, value) → index of the layout, as CuTe writes it."),
    Input("op", "--op", "What --tv loads or stores with", default="the widest load"),
    *BANK_TILE,
    *(row for row in _BESIDE if row.name != "major"),
    _MAX_PADDING,
)
@click.argument("tile", type=reading(rows_and_columns), required=False)
@click.argument("data_type", metavar="[TYPE]", required=False)
@click.option("--pattern", "patterns", multiple=True, metavar="P", help="An access; may be repeated.")
@click.option("--fix", is_flag=True, help="Search for layouts that serve all patterns.")
def banks(
    patterns: tuple[str, ...], fix: bool, output: Output, tile: Any = None, data_type: str | None = None,
    text: str | None = None, tv: str | None = None, **said: Any,
) -> int:  # fmt: skip
    """Count the shared-memory wavefronts of patterns on a TILE such as 64x64 (rows x columns) of TYPE such as bf16.

    \b
    A pattern is one of
      "st.b128 rows", "ld.b32 columns"   lanes beside or below each other
      "ld.b32 lanes 8x4"                 lanes as 8 rows x 4 pieces of 4 bytes
      transpose                          single elements, column by column
      ldmatrix.x4, ldmatrix.x2.trans     a walk over the tile
      stmatrix.x4                        an epilogue
      cp.async, "cp.async.4 columns"     a copy, 16 or 4 bytes a lane
      "mma.m16n8k16 A bf16"              registers loaded straight from the tile
                                         (A.trans: MN-major)
      "ld.b32: lane * 33 * 4"            an expression of lane; it needs no tile

    \b
    tilescope banks 64x64 bf16 --swizzle 128B --pattern ldmatrix.x4
    tilescope banks 32x32 f32 --pattern transpose --pattern "st.b32 rows" --fix
    tilescope banks 128x64 bf16 --major MN --pattern ldmatrix.x4.trans
    tilescope banks 2048 f32 --pattern "ld.b64 rows"
    tilescope banks --pattern "ld.b32: lane * 33 * 4"
    tilescope banks --layout "(64,64):(72,1)" --bits 16 --pattern ldmatrix.x4
    tilescope banks --layout "(32,32):(32,1)" --bits 32 --tv "(32,32):(1,32)"

    A TILE such as 2048 is one row. With --major MN the first extent is contiguous: 128x64 lies as 64 rows of 128, and
    patterns walk these rows. Exit status 1: --fix found no layout without conflicts.
    """  # noqa: D301  \b keeps the lines below it apart
    from tilescope.smem.access import Access  # which draw and convert start without
    from tilescope.smem.report import cured_report, layout_as_written, padded_report, tile_report
    from tilescope.smem.search import find_layouts

    lanes = tile is None and text is None  # addresses that the patterns say themselves
    refuse(
        (not patterns and tv is None, "say what is accessed: --pattern P, or --tv TEXT of a --layout."),
        (text is not None and tile is not None, "--layout takes the place of the tile: give one of them."),
        (text is None and tv is not None, "--tv is a thread-value layout of a tile: give the tile as --layout TEXT."),
        (fix and (tv or lanes), "--fix needs a tile, such as 64x64 bf16, or a --layout, and patterns alone."),
        (tile is not None and data_type is None, "a tile needs the type of its elements, such as 64x64 bf16."),
        (tv is None and "op" in said, "--op is what --tv loads or stores with; a --pattern names its own."),
        ("max_padding_bytes" in said and not fix, "--max-padding is for --fix, which tries paddings."),
        *_out_of_place(said, tile, text),
    )
    if lanes:
        return output.show(tile_report([Access.named(pattern) for pattern in patterns]))
    if text is not None:
        layout = parse_layout(text, **chosen(_BESIDE, said))
    else:
        bits = DataType.named(data_type).smem_bits
        layout = layout_as_written(tile, bits, **chosen((*BANK_TILE, _START), said))
    tile, bits = layout.as_rows().shape, layout.element_bits
    accesses = [Access.named(pattern, tile, bits) for pattern in patterns]
    accesses += [] if tv is None else [Access.thread_values(parse_modes(tv), layout, said.get("op"))]
    report = padded_report(accesses, layout, said.get("pad", 0))
    if not fix:
        return output.show(report)
    search = find_layouts(
        accesses, tile=tile if data_type is None else layout, element_bits=bits, **chosen((_MAX_PADDING,), said)
    )
    cured = cured_report(accesses, layout, search.best.layout) if report.excess > search.best.excess else None
    return output.show(report, extra={"search": search.to_dict()}, ok=search.conflict_free, search=search, cured=cured)


def _out_of_place(said: dict[str, Any], tile: Any, text: str | None) -> list[tuple[object, str]]:
    """Options of `banks` that would count for nothing: of a tile beside a layout's text, and the other way round."""
    of_tile = [row for row in BANK_TILE if row.name != "major"]
    of_text = [row for row in _BESIDE if row.name in ("element_bits", "shape", "unit")]
    of_both = [row for row in BANK_TILE if row.name == "major"] + [_START]
    reasons = [
        (of_tile if tile is None else (), "describes a TILE such as 64x64 bf16; a --layout says it in its own text."),
        (of_text if text is None else (), "is for a --layout; a TILE and its TYPE say it themselves."),
        (of_both if tile is None and text is None else (), "needs a tile; patterns without one say their addresses."),
    ]
    return [(row.name in said, f"{row.option.split()[0]} {reason}") for rows, reason in reasons for row in rows]
