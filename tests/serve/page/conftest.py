"""The page in a real browser: Chromium, found at PLAIT_CHROMIUM or on the path."""

from __future__ import annotations

import csv
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from page_server import HTML, open_server

from plait.analysis.report import MARK
from plait.config import read_recipe
from plait.inference.ensemble import make_ensemble
from plait.serve.models import Models
from plait.serve.parcels import RunsToLoad
from plait.training.run import train


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs Chromium and Playwright")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


# --- runs and servers --------------------------------------------------------------------


@pytest.fixture(scope="session")
def runs(tiny_run: Path, tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: two alike, one of several labels, an ensemble, one that never began.

    The one of several labels has a report that somebody tampered with.
    """
    folder = tmp_path_factory.mktemp("page") / "runs"
    shutil.copytree(tiny_run, folder / "tiny")
    (folder / "empty").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIT_CACHE", str(folder.parent / "cache"))
        again = read_recipe(folder / "tiny" / "recipe.toml", extra={"seed": 8})
        train(again, folder / "again")
        train(read_recipe(_write_labels(folder.parent / "labels", tiny_encoder)), folder / "labels")
    script = (
        "<script>alert(1); parent.document.title = 'taken'</script><h1 onclick=alert(2)>Mine</h1>"
    )
    (folder / "labels" / "report.html").write_text(f"<!DOCTYPE html>\n{MARK}\n{script}")
    make_ensemble([folder / "tiny", folder / "again"], folder / "both", "mean")
    return folder


def _write_labels(folder: Path, encoder: Path) -> Path:
    """Write the recipe of a task with several labels, one of which looks like HTML."""
    folder.mkdir()
    rows = [
        ("the film was great .", "good"),
        ("a sad walk", HTML),
        ("fine and sad", f"good|{HTML}"),
    ]
    for split in ("train", "dev"):
        with (folder / f"{split}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "signs"), *(rows * 3)])
    task = {"kind": "labels", "labels": ["good", HTML], "text": "text", "label": "signs"}
    task |= {"label_separator": "|"}
    recipe = {
        "name": "labels",
        "about": f"Signs {HTML}",
        "device": "cpu",
        "listeners": [],
        "data": {"root": str(folder)},
        "encoder": {"source": str(encoder), "max_length": 32},
        "train": {"epochs": 1, "batch_size": 4},
        "tasks": {"signs": task | {"train": "train.csv", "dev": "dev.csv", "about": f"Any {HTML}"}},
    }
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return folder / "recipe.toml"


@pytest.fixture(scope="session")
def loaded(runs: Path) -> Models:
    folders = {path.name: path for path in sorted(runs.iterdir(), reverse=True)}
    return Models.load(RunsToLoad(folders, skip_bad=True, device="cpu", precision="fp32"))


@pytest.fixture(scope="session")
def address(loaded: Models, runs: Path) -> Iterator[str]:
    """Where all the runs are served."""
    with open_server(loaded, runs) as found:
        yield found


@pytest.fixture
def serve(loaded: Models, runs: Path) -> Callable[..., Any]:
    """Open a server of one's own."""
    return lambda *keys, models=loaded, **more: open_server(models, runs, *keys, **more)


# --- a browser ---------------------------------------------------------------------------


@pytest.fixture(scope="module")  # no longer: while it is open, a loop runs that others would meet
def browser() -> Iterator[Any]:
    """One Chromium for the tests of a file."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = os.environ.get("PLAIT_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium (install Debian's, or set PLAIT_CHROMIUM)")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Tabs:
    """Opens pages, and notes everything that should not happen in them."""

    def __init__(self, browser: Any):
        self._browser, self._contexts = browser, []
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Beginnings of troubles that a test brings about itself."""

    def open(self, url: str, *, phone: bool = False, dark: bool = False, **more: Any) -> Any:
        size = {"width": 390, "height": 800} if phone else {"width": 1100, "height": 800}
        scheme = "dark" if dark else "light"
        context = self._browser.new_context(viewport=size, color_scheme=scheme, **more)
        context.set_default_timeout(20_000)
        self._contexts.append(context)
        page = context.new_page()
        host = "/".join(url.split("/")[:3])
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._note("error", f"dialog {dialog.message}"))
        page.on("request", lambda asked: self._check(host, asked.url))
        page.goto(url)
        page.wait_for_load_state("networkidle")
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.troubles.append(text)

    def _check(self, host: str, url: str) -> None:
        if not url.startswith((f"{host}/", "blob:", "data:", "about:")):
            self.troubles.append(f"{url} is not this server's")

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def tabs(browser: Any) -> Iterator[Tabs]:
    opened = Tabs(browser)
    yield opened
    opened.close()
    assert not [one for one in opened.troubles if not one.startswith(opened.expected or ("\0",))]
