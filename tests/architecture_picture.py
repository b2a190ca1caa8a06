"""Draws docs/images/architecture.svg: the packages in layers, and what hears of an event.

python tests/architecture_picture.py      writes it; test_architecture.py holds it against the packages
"""

from pathlib import Path

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "architecture.svg"
WIDTH, HEIGHT = 960, 640
LEFT, ROW, GAP = 240, 60, 14
INK, LINE, ANSWER = "#1b2328", "#5b6770", "#b3541e"

LAYERS = (
    ("facts and rules", ("errors · rule · value", "arch · card · data_type", "sentence · reading"), "#eef2f7"),
    ("where bytes lie", ("swizzle", "layout", "tensor_map", "tma", "mma", "smem", "notation"), "#e6f4ea"),
    ("what happens, and when", ("sync", "pipeline", "ptx", "machine", "triton"), "#fdf0e0"),
    ("what to write", ("planner", "kernel_plan", "emitter"), "#f0eafa"),
    ("what people ask", ("symptoms", "view", "questions"), "#e8f1fb"),
    ("where it meets the world", ("gpu", "web", "cli", "testing"), "#f7eaea"),
)
SUBSCRIBERS = (
    ("sync/detector", "data races, missing fences"),
    ("machine/observers", "costs, tiles, pictures"),
    ("machine/proof", "recorder → pipeline"),
)
LABEL = "Six layers of packages, each importing only from those above it; instructions emit events to a bus with subscribers"


def text(x, y, words, size=15, *, bold=False, middle=True, color=INK):
    weight = ' font-weight="600"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{anchor} fill="{color}"{weight}>{words}</text>'


def box(x, y, width, height, fill):
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="{LINE}"/>'


def arrow(start, end, *, is_answer=False):
    (x1, y1), (x2, y2) = start, end
    kind = "answer" if is_answer else "event"
    style = f'stroke="{ANSWER}" stroke-dasharray="5 4"' if is_answer else f'stroke="{LINE}"'
    return f'<path d="M {x1:g} {y1:g} L {x2:g} {y2:g}" {style} stroke-width="1.5" marker-end="url(#{kind})"/>'


def head(name, color):
    shape = f'<path d="M0,0 L8,4 L0,8" fill="none" stroke="{color}"/>'
    return f'<marker id="{name}" markerWidth="10" markerHeight="10" refX="8" refY="4" orient="auto">{shape}</marker>'


def layers():
    top = 16
    for name, packages, fill in LAYERS:
        yield text(20, top + ROW / 2 + 5, name, 14, middle=False)
        width = (WIDTH - 20 - LEFT - (len(packages) - 1) * 10) / len(packages)
        for number, package in enumerate(packages):
            left = LEFT + number * (width + 10)
            yield box(left, top, width, ROW, fill)
            yield text(left + width / 2, top + ROW / 2 + 5, package, 13 if width < 100 else 15, bold=True)
        top += ROW + GAP
    yield arrow((225, top - 20), (225, 20))


def events():
    top = 16 + len(LAYERS) * (ROW + GAP) + 40
    yield text(20, top - 16, "Inside a run", 14, bold=True, middle=False)
    for left, width, fill, name, what in (
        (20, 200, "#fdf0e0", "machine/instructions", "emit events"),
        (330, 130, "#fff7c9", "sync/bus", "typed events"),
    ):
        yield box(left, top, width, 100, fill)
        yield text(left + width / 2, top + 40, name, bold=True)
        yield text(left + width / 2, top + 62, what, 13)
    for number, (name, what) in enumerate(SUBSCRIBERS):
        row = top - 8 + number * 42
        yield box(560, row, 380, 34, "#e8f1fb")
        yield text(575, row + 22, f'<tspan font-weight="600">{name}</tspan>  {what}', middle=False)
        yield arrow((460, top + 50), (556, row + 17))
    yield arrow((220, top + 40), (326, top + 40))
    yield arrow((330, top + 75), (224, top + 75), is_answer=True)
    yield text(275, top + 92, "two answers", 12, color="#8a3c10")


def picture():
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    name = f'font-family="system-ui, sans-serif" role="img" aria-label="{LABEL}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {name}>',
        f"<defs>{head('event', LINE)}{head('answer', ANSWER)}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *layers(),
        *events(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), "utf-8")
