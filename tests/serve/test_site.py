"""The page's files: what a browser may do with them; nothing comes from elsewhere."""

from __future__ import annotations

import re

import pytest

from plait.analysis.plots import COLOURS
from plait.serve.site import PAGE

FILES = sorted(path for path in PAGE.iterdir())


def test_what_a_browser_may_do(asking):
    for path in ("/", "/docs", "/main.js", "/page.css", "/icon.svg"):
        headers = asking("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    policy = asking("GET", "/report?run=tiny").headers["content-security-policy"]
    assert "script-src 'self';" in policy  # a report's own style is all that is let in besides
    assert policy.count("unsafe") == policy.count("style-src 'self' 'unsafe-inline'") == 1


def test_types_and_caching(asking):
    done = asking("GET", "/main.js")
    assert done.headers["content-type"].startswith("text/javascript")
    assert done.headers["cache-control"] == "no-cache"
    again = asking("GET", "/main.js", headers={"If-None-Match": done.headers["etag"]})
    assert again.status_code == 304


def test_static_files_need_no_key(asking):
    for path in FILES:
        name = "/" if path.name == "index.html" else f"/{path.name}"
        assert asking("GET", name, given={"keys": ("k" * 20,)}).status_code == 200


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere(path):
    text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//[a-z]+\.", text)
    if path.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", text)
    if path.suffix == ".js":
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        )


def test_every_import_is_there():
    for path in FILES:
        for name in re.findall(r'from "\./(\w+\.js)"', path.read_text("utf-8")):
            assert (PAGE / name).is_file(), (path.name, name)


def test_colours_are_a_reports():
    light, dark = re.findall(r":root \{(.*?)\}", (PAGE / "page.css").read_text("utf-8"), re.DOTALL)
    for name, (one, other) in COLOURS.items():
        if name != "fill":  # a report's has text on it
            assert f"--{name}: {one};" in light
            assert f"--{name}: {other};" in dark
