"""An exported page is one file: nothing in it leads elsewhere, and its policy names exactly its own style and script."""

import base64
import gzip
import hashlib
import json
import re
import xml.etree.ElementTree as ET

import pytest

import tilescope.cli
from tilescope.errors import RuleError
from tilescope.web.pages import PAGES
from tilescope.web.rendering import export_page

STATES = [
    "/swizzle?mode=64B&step=3",
    "http://127.0.0.1:8765/load?coords=16,8",
    "load?kind=im2col_map",
    "/tensor-core",
    "/banks",
]


def named(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("state", [*STATES, *PAGES])
def test_the_policy_names_the_style_and_the_script_and_nothing_else(state):
    page = export_page(state)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert f"style-src '{named(style)}'" in policy
    assert f"script-src '{named(script)}'" in policy
    assert policy.startswith("default-src 'none'")


@pytest.mark.parametrize("state", STATES)
def test_nothing_leads_out_of_the_file(state):
    page = re.sub(r"<script>.*?</script>", "", export_page(state), flags=re.DOTALL)
    links = re.findall(r'(?:href|src|action)="([^"]*)"', page)
    assert links == []
    assert "<form" not in page
    assert "url(http" not in page


def test_the_drawing_and_the_value_are_inside():
    page = export_page("/swizzle?mode=64B")
    packed = dict(re.findall(r'id="save-(svg|json)"[^>]*data-packed="([^"]*)"', page))
    found = {name: gzip.decompress(base64.b64decode(text)) for name, text in packed.items()}
    assert json.loads(found["json"])["name"] == "64B"
    assert ET.fromstring(found["svg"]).tag.endswith("svg")


def test_a_card_says_what_the_page_shows():
    page = export_page("/swizzle?mode=64B", image="https://docs.example/swizzle.png")
    card = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)">', page))
    assert card["title"].startswith("Swizzle: Swizzle 64B")
    assert card["description"]
    assert card["image"] == "https://docs.example/swizzle.png"
    assert "og:image" not in export_page("/swizzle?mode=64B")


@pytest.mark.parametrize(
    "url", ["/nowhere", "", "/swizzle?mode=64B&mode=32B", "/swizzle?mode=7", "/swizzle?mood=1", "http://[", "//"]
)
def test_what_is_no_page_is_refused(url):
    with pytest.raises(RuleError):
        export_page(url)


def test_the_command_writes_the_file(tmp_path, capsys):
    path = tmp_path / "page.html"
    assert tilescope.cli.run(["serve", "--export", "/swizzle?mode=64B", "-o", str(path)]) == 0
    assert path.read_text("utf-8") == export_page("/swizzle?mode=64B")
    assert tilescope.cli.run(["serve", "--export", "/swizzle?mode=64B", "-o", "-"]) == 0
    assert capsys.readouterr().out == export_page("/swizzle?mode=64B")
