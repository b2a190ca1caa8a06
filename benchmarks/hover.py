"""Time highlighting the cell under the mouse and its partners in Chromium, in drawings of many cells.

python benchmarks/hover.py

A frame lasts 16 ms. The time of one mouse move includes the script, and the style and layout of the elements that it changed.
"""

import shutil
import threading
import time

from ratio import end_for_want_of, needed, run, sized

GOAL_MS = 16.0
PAGES = {
    "a swizzle": "/swizzle",
    "two layouts of 128 x 128 in chunks": "/layout?text=(128,128):(128,1)&element_bits=16&other=(128,128):(136,1)",
    "a layout of 256 x 256": "/layout?text=(256,256):(256,1)&element_bits=16",
    "two layouts of 128 x 128, element by element": "/layout?text=(128,128):(128,1)&element_bits=16&other=(128,128):(1,128)",
    "a copy of 160 rows": "/load?dims=256,160&box=64,160&coords=0,0",
}
MOVES = 60
# Moves the mouse over the first figure, and times the script and the style and layout of each move.
MOVE = """async (moves) => {
    const area = document.querySelector("#drawing .cells-box svg:not(.labels)"), box = area.getBoundingClientRect();
    const seen = area.closest(".cells-box").getBoundingClientRect(), times = [];
    for (let move = 0; move < moves; move += 1) {
        const x = box.left + (0.05 + 0.9 * ((move * 37) % moves) / moves) * Math.min(box.width, seen.width - 40);
        const y = Math.max(box.top, seen.top) + 20 + ((move * 53) % moves) / moves * Math.min(box.height - 30, 300);
        const target = document.elementFromPoint(x, y) ?? area, start = performance.now();
        for (const kind of ["pointerover", "pointermove"])
            target.dispatchEvent(new PointerEvent(kind, { bubbles: true, clientX: x, clientY: y, pointerType: "mouse" }));
        document.body.getBoundingClientRect();
        getComputedStyle(document.querySelector("#drawing rect") ?? area).opacity;
        times.push(performance.now() - start);
        await new Promise(requestAnimationFrame);
    }
    return times;
}"""
CELLS = """() => document.querySelectorAll("#drawing g.cells rect:not(.frame, .halo)").length
    + [...document.querySelectorAll("#drawing .painted-cells")].flatMap((each) => JSON.parse(each.textContent).cells).flat().length"""


def hovered(browser, address, path):
    """The page's cells and nodes, and the median and maximum milliseconds of a move."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    start = time.perf_counter()
    page.goto(address + path)
    loaded = time.perf_counter() - start
    cells = page.evaluate(CELLS)
    nodes = page.evaluate("document.querySelectorAll('*').length")
    times = sorted(page.evaluate(MOVE, MOVES))
    page.close()
    return cells, nodes, loaded, times[len(times) // 2], times[-1]


def main():
    serving = needed("tilescope.web.serving", "pip install 'tilescope[web]'")
    playwright = needed("playwright.sync_api", "pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        end_for_want_of("chromium is missing: apt-get install -y chromium")
    with serving.open_listener("127.0.0.1", 0) as listener, playwright.sync_playwright() as driver:
        explorer = serving.server()
        thread = threading.Thread(target=explorer.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not explorer.started:
            time.sleep(0.02)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name in sized(list(PAGES), tiny=list(PAGES)[:1]):
            cells, nodes, loaded, middle, longest = hovered(browser, address, PAGES[name])
            verdict = "" if middle <= GOAL_MS else f"  more than {GOAL_MS:.0f} ms"
            print(
                f"{name}: {cells} cells, {nodes} nodes, shown in {loaded:.2f} s, "
                f"a move takes {middle:.1f} ms (longest {longest:.1f}){verdict}"
            )
        browser.close()
        explorer.should_exit = True
        thread.join(timeout=10)


if __name__ == "__main__":
    run(main)
