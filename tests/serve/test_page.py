"""The page in Chromium, found at PLAIT_CHROMIUM or on the path; skipped without it.

`PLAIT_SCREENSHOTS=RUNS` takes the pictures of docs/images anew, of the runs in a folder.
"""

from __future__ import annotations

import csv
import os
import shutil
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
import uvicorn

from plait.serve.app import make_app
from plait.serve.server import Settings, list_runs, load_models

TEXT = "the film was great ."
PAIR = ("the film was great .", "the film was superb .")
KEY = "a-key-of-enough-characters"
HTML = "<img src=x onerror=alert(1)>"  # a label of the run `labels`
IMAGES = Path(__file__).parents[2] / "docs" / "images"
SCREENSHOTS = os.environ.get("PLAIT_SCREENSHOTS")


@contextmanager
def serving(models, **more):
    """Serve models from a thread; yield the address."""
    app = make_app(models, **more)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def address(models):
    with serving(models) as found:
        yield found


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = os.environ.get("PLAIT_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium (install Debian's, or set PLAIT_CHROMIUM)")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def tab(browser):
    """Open pages; fail on any error in the console and on any request to another server."""
    contexts, troubles, expected = [], [], []

    def open_(url, *, phone=False, dark=False, ignore="", prompts=(), **more):
        expected.append(ignore)
        size = {"width": 390, "height": 800} if phone else {"width": 1100, "height": 800}
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme, **more)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        host = "/".join(url.split("/")[:3])

        def check(asked):
            if not asked.url.startswith((f"{host}/", "blob:", "data:")):
                troubles.append(asked.url)

        page.on("console", lambda said: said.type == "error" and troubles.append(said.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", check)
        answers = iter(prompts)
        page.on("dialog", lambda dialog: dialog.accept(next(answers)))
        page.goto(url)
        page.wait_for_load_state("networkidle")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert not [text for text in troubles if not any(e and e in text for e in expected)]


def ask(address, run, text):
    """Return the API's answers to one input."""
    body = {"run": run, "inputs": [text]}
    return httpx.post(f"{address}/v1/predict", json=body).json()["answers"][0]


def link(address, *texts, **params):
    return f"{address}/#/try?{urlencode([*params.items(), *(('text', one) for one in texts)])}"


def card(page, task):
    return page.locator("article.answer", has=page.get_by_role("heading", name=task))


# --- the six cases -----------------------------------------------------------------------


def test_try(tab, address):
    page = tab(link(address, run="tiny"))
    assert "one of: bad, so-so, good" in card(page, "mood").inner_text()
    page.get_by_label("Text", exact=True).fill(TEXT)
    card(page, "mood").locator(".verdict").wait_for()
    expected = ask(address, "tiny", TEXT)["mood"]
    shown = card(page, "mood").locator(".verdict").inner_text()
    assert shown == f"{expected['label']} {expected['confidence']:.0%} confidence"
    numbers = card(page, "mood").locator(".bars .number").all_inner_texts()
    assert numbers == [f"{share:.0%}" for share in expected["probabilities"].values()]
    assert page.get_by_role("status").inner_text() == f"mood: {expected['label']}"
    page.get_by_label("Input").select_option("Two texts")
    page.get_by_label("Second text").fill(PAIR[1])
    page.keyboard.press("Control+Enter")
    card(page, "near").locator(".scale").wait_for()
    near = ask(address, "tiny", PAIR)["near"]["value"]
    assert f"{near:.2f} on a scale of 0 to 5" in card(page, "near").inner_text()
    again = tab(page.url)  # a link leads to the same answers
    card(again, "near").locator(".scale").wait_for()
    assert card(again, "near").inner_text() == card(page, "near").inner_text()
    page = tab(link(address, "fine and sad", run="labels"))  # a label that looks like HTML
    card(page, "signs").locator(".verdict").wait_for()
    assert card(page, "signs").locator(".bars .label").all_inner_texts() == ["good", HTML]
    assert page.locator("img[src=x]").count() == 0


def test_compare(tab, address):
    page = tab(link(address, TEXT, run="tiny"))
    page.get_by_label("Compare with").select_option("again")
    sides = card(page, "mood").locator(".sides > div")
    sides.nth(1).wait_for()
    answers = [ask(address, run, TEXT)["mood"]["label"] for run in ("tiny", "again")]
    assert sides.locator("strong").all_inner_texts() == answers
    agree = answers[0] == answers[1]
    assert page.locator(".tag").inner_text() == ("they agree" if agree else "they differ")
    page.get_by_label("Compare with").select_option("labels")  # a run with another task
    page.get_by_text("has no such task").first.wait_for()


def test_words(tab, address):
    page = tab(link(address, TEXT, run="tiny"))
    place = card(page, "mood")
    place.get_by_role("button", name="Which words?").click()
    place.locator(".words li").first.wait_for()
    body = {"run": "tiny", "task": "mood", "input": TEXT}
    found = httpx.post(f"{address}/v1/explain", json=body).json()
    strongest = max(found["parts"], key=lambda part: abs(part["effect"]))
    assert strongest["text"] in place.locator(".words li").first.inner_text()
    assert place.locator(".marked").inner_text() == TEXT
    assert strongest["text"] in place.locator(".marked mark").all_inner_texts()
    assert f"The probability of “{found['explained']}” is" in place.inner_text()


DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name, { type: "text/csv" }));
  const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
  document.getElementById("drop").dispatchEvent(drop);
}"""


def test_file(tab, address):
    """A file of 152 rows, two of them bad; the server fails in the middle."""
    page = tab(f"{address}/#/file", ignore="Failed to load resource")
    page.evaluate(DROP, ["empty.csv", ""])
    page.get_by_role("alert").filter(has_text="needs a row of column names").wait_for()
    texts = [f'the film was {word} , "really" .' for word in ("great", "dull", "fine")] * 50
    rows = [[str(i), text, "x"] for i, text in enumerate(texts)]
    lines = [["id", "text", "mood"], *rows, ["150", "", "x"], ["151", "long " * 5000, "y"]]
    text = "".join(";".join('"' + c.replace('"', '""') + '"' for c in row) + "\n" for row in lines)
    page.evaluate(DROP, ["films.csv", "\ufeff" + text])
    assert page.get_by_label("Text column", exact=True).input_value() == "text"
    page.get_by_label("Run", exact=True).last.select_option("tiny")
    num_asked = 0

    def fail_later(route):
        nonlocal num_asked
        num_asked += 1
        route.continue_() if num_asked <= 2 else route.abort("connectionreset")

    page.route("**/v1/predict", fail_later)
    page.get_by_role("button", name="Answer 152 rows").click()
    page.get_by_role("button", name="Continue").wait_for()
    assert "The server cannot be reached" in page.get_by_role("alert").last.inner_text()
    page.unroute("**/v1/predict")
    page.get_by_role("button", name="Continue").click()
    download = page.get_by_role("link", name="Download films-answered.csv")
    download.wait_for()
    problem = page.locator(".outcome .problem").inner_text()
    assert problem.startswith("2 rows left empty. Row 151: it has no text.")
    with page.expect_download() as waiting:
        download.click()
    with waiting.value.path().open(encoding="utf-8-sig", newline="") as file:
        found = list(csv.DictReader(file, delimiter=";"))
    assert [[row["id"], row["text"], row["mood"]] for row in found] == lines[1:]
    answer = ask(address, "tiny", found[0]["text"])["mood"]
    assert found[0]["predicted_mood"] == str(answer["value"])
    assert found[0]["predicted_mood_label"] == answer["label"]
    shown = float(found[0]["predicted_mood_confidence"])
    assert shown == pytest.approx(answer["confidence"], abs=1e-4)
    assert [bool(row["predicted_mood_label"]) for row in found] == [True] * 150 + [False] * 2


def settle(page, name):
    """Bring a view to where there is something to see."""
    if name == "file":
        page.get_by_role("button", name="Sample").last.click()
        page.get_by_role("button", name="Answer 5 rows").click()
        page.get_by_role("link", name="Download").wait_for()
    elif name == "words":
        page.get_by_role("button", name="Which words?").first.click()
        page.locator(".words li").first.wait_for()
    elif name == "compare":
        page.locator(".tag").first.wait_for()


def views(first, second):
    text = "Not bad at all for a first novel, though the ending is rushed."
    pair = ("How do I stop my cat from scratching the sofa?", "What keeps a cat off the furniture?")
    return {
        "try": link("", text, run=first),
        "words": link("", text, run=first),
        "pair": link("", *pair, run=first),
        "compare": link("", text, run=first, beside=second),
        "file": "/#/file",
    }


def test_phone(tab, address):
    page = tab(address, phone=True)
    for name in ("words", "pair", "compare", "file"):
        page.goto(address + views("tiny", "again")[name])
        settle(page, name)
        wide, room = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= room, name


def test_accessibility_and_keys(tab, address, models):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for dark in (False, True):
        page = tab(address, dark=dark, bypass_csp=True)  # lets axe in
        for name in ("words", "compare", "file"):
            page.goto(address + views("tiny", "again")[name])
            settle(page, name)
            found = axe.run(page).response["violations"]
            assert not [v["id"] for v in found if v["impact"] in ("serious", "critical")], name
    with serving({"tiny": models["tiny"]}, keys=(KEY,)) as closed:
        page = tab(link(closed, TEXT), ignore="401", prompts=("wrong", KEY))
        card(page, "mood").locator(".verdict").wait_for()


# --- pictures ----------------------------------------------------------------------------

PICTURES = {
    "serve-words": ("words", {}),
    "serve-pair-dark": ("pair", {"dark": True}),
    "serve-compare": ("compare", {}),
    "serve-file": ("file", {}),
    "serve-phone": ("try", {"phone": True}),
}


@pytest.mark.skipif(SCREENSHOTS is None, reason="PLAIT_SCREENSHOTS is not set")
def test_pictures(tab):
    folder = Path(SCREENSHOTS)
    models = load_models(Settings(runs=list_runs(folder), folder=folder, device="cpu"))
    with serving(models) as address:
        for picture, (name, look) in PICTURES.items():
            page = tab(address + views(next(iter(models)), list(models)[-1])[name], **look)
            settle(page, name)
            page.screenshot(path=IMAGES / f"{picture}.png", full_page=True)
