"""Drawings that use everything, and a reader of SVG that knows as much CSS as they need."""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cache

import pytest

from tilescope import (
    InstructionDescriptor,
    Problem,
    TensorMap,
    TensorMemory,
    WgmmaDescriptor,
    canonical_layout,
    compatible,
    descriptor_readings,
    fragment,
    inspect_descriptor,
    plan,
    plan_gemm,
    plan_pipeline,
    scale_layout,
    simulate,
    sweep,
    tcgen05_descriptors,
    tmem_layout,
    view,
    wgmma_descriptors,
)
from tilescope.mma.scale_lanes import ScaleLanes
from tilescope.swizzle import SWIZZLE, Swizzle
from tilescope.view.drawing import Drawing
from tilescope.view.drawing_parts import Beside, Entry, Legend
from tilescope.view.grid import Cell, Grid, Header, Row, Tier
from tilescope.view.ruler import BitField, BitRuler
from tilescope.view.table import Table

SVG = "{http://www.w3.org/2000/svg}"
DEJAVU = {  # widths of DejaVu Sans in thousandths of the font size
    275: "'",
    278: "ijl",
    295: "IJ",
    318: " ,.·\u00a0",
    337: "/:;\\|",
    352: "f",
    361: "-",
    390: "()[]",
    392: "t",
    401: "!",
    411: "r",
    460: '"',
    500: "*_`",
    521: "s",
    525: "z",
    531: "?",
    550: "c",
    557: "L",
    575: "F",
    579: "k",
    592: "vxy",
    603: "P",
    611: "TY",
    612: "o",
    613: "a",
    615: "e",
    632: "E",
    634: "hnu",
    635: "Sbdgpq",
    636: "0123456789${}",
    656: "K",
    684: "AV",
    685: "XZ",
    686: "B",
    695: "R",
    698: "C",
    732: "U",
    748: "N",
    752: "H",
    770: "D",
    775: "G",
    780: "&",
    787: "OQ",
    818: "w",
    838: "#+<=>^~→\u00d7",
    863: "M",
    950: "%",
    974: "m",
    989: "W",
    1000: "@…\ufffd",
}
WIDTHS = {character: width / 1000 for width, characters in DEJAVU.items() for character in characters}
BOLD = 1.12  # the most that its bold digits and letters are wider, on average


def descriptor():
    """A descriptor of 1024 bits with narrow fields next to each other, like a tensor map's."""
    fields = [
        BitField(0, 56, "global address", "0x7f3a40000000", "where element 0 lies"),
        *(BitField(64 + bit, 64 + bit, f"flag {bit}", str(bit % 2)) for bit in range(12)),
        BitField(77, 78, "swizzle", "3", "128B"),
        BitField(81, 82, "L2 promotion", "2", "128B", mark="collision"),
        BitField(96, 127, "stride[0] / 16", "0x100", "4096 bytes"),
        *(BitField(6 * 64 + 32 + 3 * i, 6 * 64 + 34 + 3 * i, f"element_stride[{i}] - 1", "0") for i in range(5)),
        BitField(6 * 64 + 56, 6 * 64 + 63, "box[0] - 1", "63", "64 elements <of 2 bytes>"),
    ]
    return BitRuler("A descriptor", tuple(fields), bits=1024, notes=("Bits without a name are zero.",))


def instruction():
    """A word of 32 bits."""
    fields = (
        BitField(0, 1, "selector", "0"),
        BitField(2, 2, "sparse", "1", "every second element", mark="focus"),
        BitField(4, 5, "D type", "1", "f32"),
        BitField(7, 9, "A type", "1", "bf16"),
        BitField(17, 31, "N / 8", "32", "256 columns"),
    )
    return BitRuler("An instruction word", fields, bits=32, row_bits=32)


def banks(lines=64):
    """A dense grid with gaps, fill and collisions."""
    rows = []
    for line in range(lines):
        cells = []
        for bank in range(32):
            role = ("gap", "fill", "unused")[bank % 3] if (line + bank) % 7 == 0 else None
            mark = "collision" if line * bank % 29 == 3 else ""
            lane = (line * 5 + bank) % 32
            cells.append(Cell("" if role else str(lane), role or lane, mark, f"line {line}, bank {bank}"))
        rows.append(Row((str(line),), tuple(cells), ruled=line % 8 == 0 and line > 0))
    tiers = (Tier.of("chunk", range(8), span=4), Tier.of("bank", range(32)))
    return Grid(
        "Banks & lines", tiers, tuple(rows), ("line",), ("A note with `code < in it` and more words than fit.",)
    )


def spanning():
    """Cells and headers over several columns."""
    tiers = (Tier("part", (Header("a rather wide header", 3), Header("z", 1))), Tier.of("column", range(4)))
    rows = (
        Row(("first", "0x0"), (Cell("wide", 1, span=2), Cell("x", 2), Cell("y", 3, "focus"))),
        Row(("2nd", "0x80"), (Cell("a", 4), Cell("wider", 5, span=3))),
    )
    return Grid("Spans", tiers, rows, ("row", "byte"))


MATRIX = TensorMap("bf16", (64, 64), (128,), (64, 64), swizzle="128B")
PLAIN = TensorMap("bf16", (64, 64), (128,), (64, 64))


def tensor_core_drawings():
    """Operands, fragments and descriptors."""
    layout = canonical_layout("K", "128B", "bf16")
    return {
        "operand": view.draw(layout.tile((128, 64)), element=(77, 40)),
        "core matrices": view.draw(canonical_layout("MN", "none", "bf16").tile((128, 64), atom_order="row")),
        "atom": view.draw(canonical_layout("MN", "128B_ATOM_32B", "tf32")),
        "fragment": view.draw(fragment("mma.m16n8k16", "A", "bf16"), lane=22),
        "accumulator": view.draw(fragment("wgmma.m64n256k16", "D", "f32")),
        "matrices": view.draw(fragment("ldmatrix.x4.trans")),
        "wgmma descriptor": view.draw(inspect_descriptor(0x4000404000010040)),
        "reads": view.draw(inspect_descriptor(0x4000004000010040), rows=64),
        "loop": view.draw(wgmma_descriptors((128, 128), "bf16", swizzle="128B")),
        "blackwell loop": view.draw(tcgen05_descriptors((128, 32), "tf32", major="MN", swizzle="128B_ATOM_32B")),
        "readings": view.draw(descriptor_readings(0x08200490)),
        "no reading": view.draw(descriptor_readings(0x4000C04000010040)),
        "block-scaled": view.draw(InstructionDescriptor("mxf4nvf4", 256, 256, scale_type="ue4m3", k=96)),
        "bytes transposed": view.draw(fragment("ldmatrix.m16n16.x2.trans.b8")),
        "tensor memory": view.draw(tmem_layout((64, 256)), element=(37, 5)),
        "tensor memory of a pair": view.draw(tmem_layout((128, 128), cta_group=2), element=(70, 100)),
        "scale factors": view.draw(scale_layout(200, 512, "nvfp4"), element=(150, 100)),
        "scale factors in tensor memory": view.draw(
            scale_layout(256, 256, "nvfp4").tensor_memory("B"), element=(37, 5)
        ),
        "scale lanes": view.draw(ScaleLanes("mxfp4", "A", thread_id=1, byte_id=2)),
        "tensor memory load": view.draw(fragment("tcgen05.ld.16x32bx2.x4.pack::16b"), lane=20),
        "allocated columns": view.draw(TensorMemory().alloc(32).alloc(128).relinquish()),
        "budget": view.draw(TensorMemory.budget({"D": (tmem_layout((128, 256)), 3)})),
        "tensor-memory address": view.draw(descriptor_readings(0x00600025)),
        "agreement": view.draw(compatible(MATRIX, WgmmaDescriptor.decode(0x4000004000010000))),
        "wrong stride": view.draw(compatible(MATRIX, WgmmaDescriptor.decode(0x4000002000010000))),
        "core matrices of plain rows": view.draw(compatible(PLAIN, WgmmaDescriptor.decode(0x0000000800400000))),
    }


REFUSED_PROBLEM = {
    "tile": (64, 64),
    "data_type": "tf32",
    "major": "MN",
    "consumer": "wgmma",
    "swizzle": "128B",
    "arch": "sm_100",
}


def gemm_drawings():
    """Products with and without TMA, with many stages, many copies, and every refusal."""
    return {
        "gemm": view.draw(plan_gemm(4096, 4096, 4096, "bf16")),
        "gemm without TMA": view.draw(plan_gemm(4096, 4096, 4096, "f16", arch="sm_80")),
        "gemm on sm_120": view.draw(plan_gemm(4096, 4096, 4096, "bf16", arch="sm_120", b_major="MN"), why=True),
        "gemm of many copies": view.draw(plan_gemm(1024, 1024, 1024, "bf16", tile=(256, 96, 128), output_type="f32")),
        "sweep": view.draw(sweep([Problem((128, 128), "e4m3", major="MN"), REFUSED_PROBLEM])),
        "pipeline": view.draw(simulate(plan_pipeline(plan((128, 64), "bf16").best, stages=2, cluster=2))),
    }


def addresses():
    """Cells with more than a few characters, roomy and dense."""
    cells = tuple(Cell(f"{0x7F3A4000 + number:#x}", number) for number in range(5))
    roomy = Grid("Addresses", (), (Row(("a",), cells),))
    dense = Grid("Many addresses", (Tier.of("", "abcde"),), tuple(Row((str(number),), cells) for number in range(50)))
    return Beside({"roomy": roomy, "dense": dense})


def sample_drawings():
    """Every drawing that the tests look at, by name."""
    legend = Legend(
        (
            Entry("lane 0, 8, 16, 24", 0, sample="0"),
            Entry("gap: keeps its bytes", "gap"),
            Entry("filled", "fill", sample="0"),
            Entry("collision", 3, "collision", "3"),
            Entry("focus", 7, "focus", "7"),
        ),
        "Legend",
    )
    table = Table(
        (
            ("128B", "1", "4552"),
            ("none", "8", "2461 GB/s, with `code in it` and words that go on until the line has to wrap"),
        ),
        ("mode", "boxes", "speed"),
        "A table",
        "lr",
        ("Measured.",),
    )
    samples = {f"swizzle {name}": view.draw(row) for name, row in SWIZZLE.items()}
    for mode, address in (("128B", 0x4A0), ("64B", 0x480), ("32B", 0x1FF80), ("128B_ATOM_32B_FLIP_8B", 0x80)):
        samples[f"swizzle {mode} at {address:#x}"] = view.draw(Swizzle.named(mode), address=address)
    for name in ("xor:5,2,5", "xor:3,4,-3", "xor:2,7,3", "xor:3,0,4", "xor:7,2,7", "xor:0,4,3"):
        samples[f"swizzle {name}"] = view.draw(Swizzle.named(name))
    samples |= tensor_core_drawings() | gemm_drawings()
    samples["descriptors"] = Drawing("Descriptors", {"descriptor": descriptor(), "instruction": instruction()})
    words = "Words beside a grid & <others>, which wrap to a column of their own and go on for a while."
    beside = Beside({"banks": banks(), "words": words})
    samples["banks"] = Drawing("Banks", {"legend": legend, "beside": beside, "table": table})
    long = Legend(tuple(Entry(f"lanes {lane}, {lane + 8}, {lane + 16}", lane, sample=str(lane)) for lane in range(8)))
    samples["addresses"] = Drawing("Addresses", {"addresses": addresses(), "legend": long})
    twice = Beside({"one": spanning(), "other": spanning()})
    samples["spans"] = Drawing("Spans", {"grids": twice, "words": words, "legend": legend})
    return samples


SAMPLES = sample_drawings()


@pytest.fixture(params=SAMPLES)
def sample(request):
    """One drawing after the other."""
    return SAMPLES[request.param]


@pytest.fixture(scope="session")
def samples():
    """All of them, by name."""
    return SAMPLES


@pytest.fixture(scope="session")
def parts():
    """The makers of single parts."""
    return {"descriptor": descriptor, "instruction": instruction, "banks": banks, "spanning": spanning}


@dataclass(frozen=True)
class TextBox:
    """Where a text stands on the page, its width reckoned from its font."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    fill: str
    size: float


@dataclass
class SvgCell:
    """A rectangle with its text, as a reader sees it."""

    left: float
    top: float
    width: float
    height: float
    fill: str
    title: str
    text: str = ""
    ink: str = ""
    mark: str = ""


class Page:
    """An SVG document, read."""

    def __init__(self, source):
        self.root = ET.fromstring(source)
        self.rules = self._rules(self.root.find(f"{SVG}defs/{SVG}style").text)
        self.patterns = {
            pattern.get("id"): pattern.find(f"{SVG}rect").get("fill") for pattern in self.root.iter(f"{SVG}pattern")
        }
        self.texts, self.rows = [], []
        self._walk(self.root, 0.0, 0.0, [])

    @staticmethod
    def _rules(sheet):
        rules = []
        for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet):
            declared = dict(item.split(":", 1) for item in body.split(";"))
            if "font" in declared:  # the shorthand: size and family
                size, _, family = declared.pop("font").partition(" ")
                declared |= {"font-size": size, "font-family": family}
            for selector in selectors.split(","):
                compounds = [
                    (re.match(r"\w*", each)[0], frozenset(re.findall(r"\.([\w-]+)", each))) for each in selector.split()
                ]
                weight = (sum(len(classes) for _, classes in compounds), sum(bool(tag) for tag, _ in compounds))
                rules.append((weight, compounds, declared))
        return [rule for _, rule in sorted(enumerate(rules), key=lambda entry: (entry[1][0], entry[0]))]

    def _style(self, path):
        """Declarations that hold for the last element of a path of (tag, classes)."""
        style = {}
        for _, compounds, declared in self.rules:
            remaining = list(path[:-1])
            if not self._is(path[-1], compounds[-1]):
                continue
            for compound in reversed(compounds[:-1]):
                while remaining and not self._is(remaining[-1], compound):
                    remaining.pop()
                if not remaining:
                    break
                remaining.pop()
            else:
                style |= declared
        return style

    @staticmethod
    def _is(element, compound):
        return compound[0] in {"", element[0]} and compound[1] <= element[1]

    def _walk(self, element, x, y, path):
        tag = element.tag.removeprefix(SVG)
        if tag == "defs":
            return
        path = [*path, (tag, frozenset(element.get("class", "").split()))]
        if moved := re.fullmatch(r"translate\(([\d.-]+) ([\d.-]+)\)", element.get("transform", "")):
            x, y = x + float(moved[1]), y + float(moved[2])
        if "cells" in path[-1][1]:
            self.rows.append([])
        if tag == "text":
            self._text(element, x, y, path)
        if tag == "rect" and any("cells" in classes for _, classes in path):
            self._rect(element, x, y, path)
        for child in element:
            self._walk(child, x, y, path)

    def _text(self, element, x, y, path):
        style = self._style(path)
        size = float(style["font-size"].removesuffix("px"))
        width = 0.0
        for text, mono in [(element.text or "", "mono" in style["font-family"])] + [
            piece for child in element for piece in ((child.text or "", True), (child.tail or "", False))
        ]:
            heavy = BOLD if "font-weight" in style and not mono else 1
            width += size * (0.602 * len(text) if mono else sum(WIDTHS.get(each, 1.0) for each in text) * heavy)
        at = x + float(element.get("x", 0))
        left = at - {"middle": width / 2, "end": width}.get(style.get("text-anchor"), 0)
        baseline = y + float(element.get("y"))
        content = "".join(element.itertext())
        self.texts.append(
            TextBox(content, left, baseline - 0.75 * size, left + width, baseline + 0.2 * size, style["fill"], size)
        )
        if any("cells" in classes for _, classes in path):
            self.rows[-1][-1].text += ("/" if self.rows[-1][-1].text else "") + content
            self.rows[-1][-1].ink = style["fill"]

    def _rect(self, element, x, y, path):
        classes = path[-1][1]
        if "halo" in classes:
            return
        style = self._style(path)
        if "frame" in classes:
            assert style["fill"] == "none"
            self.rows[-1][-1].mark = next(iter(classes - {"frame"}))
            return
        fill = re.sub(r"url\(#(.*)\)", lambda found: self.patterns[found[1]], style["fill"])
        title = element.find(f"{SVG}title")
        place = [float(element.get(name, 0)) for name in ("x", "y", "width", "height")]
        self.rows[-1].append(SvgCell(x + place[0], y + place[1], *place[2:], fill, "" if title is None else title.text))

    @property
    def size(self):
        _, _, width, height = map(float, self.root.get("viewBox").split())
        return width, height


@pytest.fixture(scope="session")
def read_svg():
    """SVG source → Page, which is read once for all that is asked of it."""
    return cache(Page)
