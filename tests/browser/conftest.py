"""Chromium, driven by playwright, on a running explorer."""

import sys
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tilescope.web.serving import open_listener, server

sys.path.insert(0, str(Path(__file__).parent))
from browser_page import PATIENCE_MS


@pytest.fixture(scope="session")
def address():
    """Where the explorer answers."""
    with open_listener("127.0.0.1", 0) as listener:
        explorer = server()
        thread = threading.Thread(target=explorer.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not explorer.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        explorer.should_exit = True
        thread.join(timeout=60)


# Pages of the browser's own address bar, which it would load for every window, though nobody sees one: a second of work each.
ADDRESS_BAR = "AimEnabled,WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup"


@pytest.fixture(scope="session")
def chromium(require):
    program = require("browser")
    with sync_playwright() as playwright:
        options = [
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--disable-features={ADDRESS_BAR}",
        ]
        browser = playwright.chromium.launch(executable_path=program, args=options, timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, address):
    """`open_page("/swizzle", width=390, scheme="dark")`: a page; what it says on the console is an error at the end."""
    opened, said = [], []

    def opening(path="/", *, width=1400, height=900, scheme="light", **options):
        context = chromium.new_context(
            base_url=address, viewport={"width": width, "height": height}, color_scheme=scheme, **options
        )
        opened.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: said.append(f"{path}: {message.type} {message.text}"))
        page.on("pageerror", lambda error: said.append(f"{path}: {error}"))
        page.goto(path)
        return page

    opening.said = said
    yield opening
    for context in opened:
        context.close()
    assert said == []
