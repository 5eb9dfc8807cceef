"""Encoders are found in the package, in folders and on a stand-in for the Hub."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from plait.config import list_recipes, lists_members, read_recipe
from plait.errors import EncoderError
from plait.model import sources
from plait.model.sources import PINNED, find_encoder, hash_weights

COMMIT, OLD_COMMIT = "a" * 40, "b" * 40
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"weights"}


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def refused(source: str, said: str, **settings: str) -> str:
    """Check that a source is refused in one sentence, and return it."""
    with pytest.raises(EncoderError, match=said) as caught:
        find_encoder(source, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- folders -----------------------------------------------------------------------------


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path / "mine", FILES)
    files = find_encoder(str(folder))
    assert files.config == folder / "config.json"
    assert files.tokenizer == folder / "tokenizer.json"
    assert files.weights == (folder / "model.safetensors",)
    assert (files.origin, files.revision, files.notes) == (str(folder), None, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("mine", "./mine", "../" + tmp_path.name + "/mine", "~/mine"):
        assert find_encoder(name).weights[0].read_bytes() == b"weights"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("config.json", "no config.json"),
        ("tokenizer.json", "neither tokenizer.json nor vocab.txt"),
        ("model.safetensors", "has no model.safetensors"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, missing: str, said: str) -> None:
    folder = fill(tmp_path, FILES)
    (folder / missing).unlink()
    assert str(folder) in refused(str(folder), said)


def test_shards_are_those_of_the_index(tmp_path: Path) -> None:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = {"weight_map": {"z": names[0], "a": names[1], "b": names[1]}}
    fill(tmp_path, {**FILES, names[0]: b"one", names[1]: b"two"})
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    files = find_encoder(str(tmp_path))
    assert [path.name for path in files.weights] == names
    assert hash_weights(files) == hashlib.sha256(b"onetwo").hexdigest()
    (tmp_path / names[1]).unlink()
    refused(str(tmp_path), f"names '{names[1]}', which is not a file beside it")
    for broken in ("[]", "{", '{"weight_map": 3}'):
        (tmp_path / "model.safetensors.index.json").write_text(broken)
        refused(str(tmp_path), "not a readable index")


# --- the package -------------------------------------------------------------------------


def test_the_package_is_never_imported_and_its_weights_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "stand_in" / "model", FILES)
    (tmp_path / "stand_in" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sources, "PACKAGE", "stand_in")
    refused("packaged", "the weights of 'packaged' are not those expected")
    monkeypatch.setattr(sources, "PACKAGE_SHA256", hashlib.sha256(b"weights").hexdigest())
    assert find_encoder("packaged").folder == tmp_path / "stand_in" / "model"


# --- the Hub -----------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["foo/bar/baz", "", "a b", "owner/", "http://x/y", "-x..y"])
def test_what_cannot_be_a_source(source: str) -> None:
    refused(source, "is not 'packaged', a folder, or a Hub id|cannot be a Hub id")


@dataclass
class Hub:
    """What the stand-in serves, and what it was asked."""

    url: str = ""
    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body for a path of the Hub's API."""
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repo, verb, revision = "/".join(parts[:2]), parts[2], parts[3]
        files = self.repos.get(repo)
        if files is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        if repo in self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b""
        if revision not in ("main", COMMIT, OLD_COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        commit = COMMIT if revision == "main" else revision
        if api and verb == "revision":
            siblings = [{"rfilename": name} for name in files]
            return 200, {}, json.dumps({"id": repo, "sha": commit, "siblings": siblings}).encode()
        if api and verb == "tree":
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": etag(body)}
                for name, body in files.items()
            ]
            return 200, {}, json.dumps(tree).encode()
        body = files["/".join(parts[4:])]
        return 200, {"X-Repo-Commit": commit, "ETag": f'"{etag(body)}"'}, body


def etag(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on this machine, with a cache of its own."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            hub.asked.append(path)
            status, headers, body = hub.answer(path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # These are read from the environment once, when the library is imported.
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    yield hub
    server.shutdown()
    server.server_close()
    thread.join()


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens on 'discard'


def test_a_hub_id_is_fetched_and_its_commit_told(hub: Hub) -> None:
    extra = {"pytorch_model.bin": b"?", "onnx/model.safetensors": b"?", "modeling.py": b"?"}
    hub.repos["owner/name"] = {**FILES, **extra}
    files = find_encoder("owner/name")
    assert (files.origin, files.revision) == ("owner/name", COMMIT)
    assert files.weights[0].read_bytes() == b"weights"
    fetched = {p.relative_to(files.folder).as_posix() for p in files.folder.rglob("*.*")}
    assert fetched == set(FILES)
    assert find_encoder("owner/name", revision=OLD_COMMIT).revision == OLD_COMMIT


def test_a_pinned_id(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    right = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    hub.repos["owner/name"] = FILES
    monkeypatch.setattr("plait.model.sources.PINNED", {"owner/name": (OLD_COMMIT, right)})
    assert find_encoder("owner/name").revision == OLD_COMMIT
    assert find_encoder("owner/name", revision="main").revision == COMMIT
    refused("owner/name", "not those expected", sha256="0" * 64)
    monkeypatch.setattr("plait.model.sources.PINNED", {"owner/name": (OLD_COMMIT, "1" * 64)})
    refused("owner/name", "not those expected")
    assert find_encoder("owner/name", revision=OLD_COMMIT).revision == OLD_COMMIT
    monkeypatch.setattr("plait.model.sources.PINNED", {"owner/name": ("9" * 40, right)})
    refused("owner/name", "revision = 'main' takes the newest")


def test_what_packaged_recipes_take_from_the_hub_is_pinned() -> None:
    whole = (name for name, table in list_recipes().items() if "name" in table)
    names = [name for name in whole if not lists_members(name)]
    found = {read_recipe(name).encoder.source for name in names}
    found |= {"intfloat/e5-small"}  # laid over recipes by reproduction/profiles/small.toml
    assert found - {"packaged"} == set(PINNED)
    for commit, sha256 in PINNED.values():
        assert re.fullmatch("[0-9a-f]{40}", commit)
        assert re.fullmatch("[0-9a-f]{64}", sha256)


def test_the_cache_serves_when_the_hub_does_not(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repos["owner/name"] = FILES
    first = find_encoder("owner/name")
    unreachable(monkeypatch)
    assert find_encoder("owner/name") == first
    assert find_encoder("owner/name", revision=COMMIT) == first
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.asked.clear()
    assert find_encoder("owner/name") == first
    assert hub.asked == []


def test_a_commit_that_is_there_needs_no_question(hub: Hub) -> None:
    hub.repos["owner/name"] = FILES
    first = find_encoder("owner/name", revision=COMMIT)
    hub.asked.clear()
    assert find_encoder("owner/name", revision=COMMIT) == first
    assert hub.asked == []
    for path in first.weights:  # as of a download that was cut off
        path.unlink()
    assert find_encoder("owner/name", revision=COMMIT) == first
    assert hub.asked
    hub.asked.clear()
    assert find_encoder("owner/name").revision == COMMIT  # a branch may have moved
    assert hub.asked
