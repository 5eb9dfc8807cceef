"""How every view looks, light, dark and on a phone: readable by all, and nothing sticks out.

`PLAIT_SCREENSHOTS=RUNS` takes the pictures of docs/images from the runs of a folder.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from page_server import SCREENSHOTS, open_server

from plait.serve.catalog import list_runs
from plait.serve.models import Models
from plait.serve.parcels import RunsToLoad

IMAGES = Path(__file__).parents[3] / "docs" / "images"
LOOKS = {"light": {}, "dark": {"dark": True}, "phone": {"phone": True}}
LARGEST = 150_000


def try_link(texts, **params):
    return f"/#/try?{urlencode([*params.items(), *(('text', text) for text in texts)])}"


def views(first, second):
    """Every view of the page, by name, with two runs that have the same tasks."""
    text = "Not bad at all for a first novel, though the ending is rushed."
    pair = ("How do I stop my cat from scratching the sofa?", "What keeps a cat off the furniture?")
    return {
        "empty": try_link([], run=first),
        "try": try_link([text], run=first),
        "words": try_link([text], run=first),
        "pair": try_link(pair, run=first),
        "compare": try_link([text], run=first, beside=second),
        "file": "/#/file",
        "runs": "/#/runs",
        "run": f"/#/runs/{first}",
        "mistakes": f"/#/runs/{first}/mistakes",
        "api": "/docs",
    }


NAMES = list(views("", ""))


def settle(page, name):
    """Bring a view to where there is something to see."""
    if name == "file":
        page.get_by_role("button", name="Sample").click()
        page.get_by_role("button", name="Answer 5 rows").click()
        page.get_by_role("link", name="Download").wait_for()
    elif name == "words":
        page.get_by_role("button", name="Which words?").first.click()
        page.locator(".words li").first.wait_for()
    elif name == "mistakes":
        page.locator("ol.wrong").first.wait_for(timeout=120_000)
        for more in page.locator("summary").all():
            more.click()
    elif name == "run":
        page.locator(".chart svg").nth(1).wait_for()
        for more in page.locator("summary").all():
            more.click()


@pytest.fixture
def check():
    """Ask axe what shuts people out of a page; return where, by rule."""
    module = "axe_playwright_python.sync_playwright"
    axe = pytest.importorskip(module, reason="axe-playwright-python is not installed").Axe()

    def run(page):
        violations = axe.run(page).response["violations"]
        serious = [one for one in violations if one["impact"] in ("serious", "critical")]
        return {one["id"]: [node["target"] for node in one["nodes"]] for one in serious}

    return run


@pytest.mark.parametrize("look", LOOKS)
def test_nobody_is_shut_out_and_nothing_sticks_out(tabs, address, check, look):
    found = {}
    for name, path in views("tiny", "again").items():
        page = tabs.open(address + path, bypass_csp=True, **LOOKS[look])  # axe is let in
        settle(page, name)
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room, name
        found |= {f"{name}: {rule}": where for rule, where in check(page).items()}
    assert not found


def test_the_dialog_for_a_key_can_be_read_by_all(tabs, serve, check):
    tabs.expected = ("Failed to load resource: the server responded with a status of 401",)
    with serve("a-key-of-enough-characters") as address:
        page = tabs.open(f"{address}/", bypass_csp=True)
        page.get_by_role("dialog").wait_for()
        assert not check(page)


# --- pictures ----------------------------------------------------------------------------

PICTURES = {
    "serve-try": ("try", "light"),
    "serve-words": ("words", "light"),
    "serve-pair-dark": ("pair", "dark"),
    "serve-compare": ("compare", "light"),
    "serve-file": ("file", "light"),
    "serve-run": ("run", "light"),
    "serve-phone": ("try", "phone"),
}
"""By file: the view, and how it looks."""


@pytest.fixture(scope="module")
def gallery(request):
    """A server for the pictures, and two runs of it: those asked for, or the tiny ones."""
    if SCREENSHOTS is None:
        yield request.getfixturevalue("address"), "tiny", "again"
        return
    folders = list_runs(Path(SCREENSHOTS))
    models = Models.load(RunsToLoad(folders, skip_bad=True, device="cpu"))
    with open_server(models, Path(SCREENSHOTS)) as address:
        names = [*models.catalog.runs]
        yield address, names[0], names[-1]


@pytest.mark.parametrize("picture", PICTURES)
def test_pictures(tabs, gallery, tmp_path, picture):
    address, first, second = gallery
    name, look = PICTURES[picture]
    page = tabs.open(address + views(first, second)[name], **LOOKS[look])
    if name == "run":
        page.locator(".chart svg").nth(1).wait_for()
    else:
        settle(page, name)
    page.wait_for_timeout(400)  # bars have grown
    path = (IMAGES if SCREENSHOTS else tmp_path) / f"{picture}.png"
    path.parent.mkdir(exist_ok=True)
    page.screenshot(path=path, full_page=True)
    assert 5_000 < path.stat().st_size < LARGEST
