"""Models for the server's tests, loaded once, and an application over them."""

from __future__ import annotations

import csv
import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import tomli_w
from safetensors.torch import load_file, save_file

pytest.importorskip("fastapi", reason="plait[serve] is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi.testclient import TestClient

from plait.config import read_recipe
from plait.inference.ensemble import make_ensemble
from plait.serve.app import make_app
from plait.serve.middleware import JsonFormatter
from plait.serve.server import Settings, list_runs, load_models
from plait.training.run import train

HTML = "<img src=x onerror=alert(1)>"
"""A label that must stay text in the page."""


@pytest.fixture(scope="session")
def runs(tiny_run: Path, tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: tiny, the same with other weights, a multi-label run, an ensemble."""
    folder = tmp_path_factory.mktemp("serve") / "runs"
    for name in ("tiny", "again"):
        shutil.copytree(tiny_run, folder / name)
    weights = load_file(folder / "again" / "model.safetensors")
    flipped = {k: -v if k.startswith("heads.") else v for k, v in weights.items()}
    save_file(flipped, folder / "again" / "model.safetensors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIT_CACHE", str(folder.parent / "cache"))
        recipe = _write_labels_recipe(folder.parent / "data", tiny_encoder)
        train(read_recipe(recipe), folder / "labels")
    make_ensemble([folder / "tiny", folder / "again"], folder / "both", "mean")
    (folder / "empty").mkdir()
    return folder


def _write_labels_recipe(folder: Path, encoder: Path) -> Path:
    folder.mkdir()
    rows = [
        ("the film was great .", "good"),
        ("a sad walk", HTML),
        ("fine and sad", f"good|{HTML}"),
    ]
    with (folder / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "signs"), *(rows * 3)])
    task = {"kind": "labels", "labels": ["good", HTML], "text": "text", "label": "signs"}
    task |= {"label_separator": "|", "train": "rows.csv", "dev": "rows.csv", "about": f"Any {HTML}"}
    recipe = {
        "name": "labels",
        "device": "cpu",
        "listeners": [],
        "data": {"root": str(folder)},
        "encoder": {"source": str(encoder), "max_length": 32},
        "train": {"epochs": 1, "batch_size": 4},
        "tasks": {"signs": task},
    }
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return folder / "recipe.toml"


@pytest.fixture(scope="session")
def models(runs: Path) -> dict[str, Any]:
    """All models of the folder, by name, tiny first."""
    found = list_runs(runs)
    found = {"tiny": found.pop("tiny"), **found}
    return load_models(Settings(runs=found, folder=runs, device="cpu", precision="fp32"))


class Held:
    """A model that waits in each batch until `go` is set, and counts the rows of its batches."""

    def __init__(self, model: Any):
        self._model, self.go, self.sizes = model, Event(), []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def answer_together(self, tasks: Any, dataset: Any) -> Any:
        self.sizes.append(len(dataset))
        assert self.go.wait(30)
        return self._model.answer_together(tasks, dataset)


@pytest.fixture
def held(models: dict[str, Any]) -> Held:
    return Held(models["tiny"])


@pytest.fixture
def serving(models: dict[str, Any]) -> Callable[..., Any]:
    """Open a client of an application over some models, tiny unless others are given."""

    @contextmanager
    def open_(*names: str, served: dict[str, Any] | None = None, **more: Any) -> Iterator[Any]:
        served = served or {name: models[name] for name in names or ("tiny",)}
        with TestClient(make_app(served, **more), base_url="http://localhost") as client:
            yield client

    return open_


@pytest.fixture(scope="module")
def client(models: dict[str, Any]) -> Iterator[TestClient]:
    """A client of an application over tiny alone."""
    with TestClient(make_app({"tiny": models["tiny"]}), base_url="http://localhost") as opened:
        yield opened


@pytest.fixture
def log() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The server's log so far, as JSON."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("plait.serve")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield lambda: [json.loads(line) for line in lines.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.fixture
def code() -> Callable[[Any, int], str]:
    """Check the status and the shape of an error; return its code."""

    def check(response: Any, status: int) -> str:
        assert response.status_code == status, response.text
        error = response.json()["error"]
        assert set(error) == {"code", "message", "request_id"}
        assert error["request_id"] == response.headers["x-request-id"]
        return error["code"]

    return check
