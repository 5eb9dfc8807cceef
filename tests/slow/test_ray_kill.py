"""Ray under kill: lost workers, a lost node and Ctrl-C lose no trial, no run and no row."""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

SECONDS = 300


def start(*words, **options):
    """Begin a plait command in a session of its own, as a terminal would."""
    return subprocess.Popen(
        [sys.executable, "-m", "plait", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **options,
    )


def end(process):
    said, _ = process.communicate(timeout=SECONDS)
    return process.returncode, said


def wait_until(something, process=None):
    until = time.monotonic() + SECONDS
    while not (found := something()):
        assert time.monotonic() < until, "it took too long"
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    return found


def find_workers(pid, word):
    """Return the Ray workers below a process that are at something, by the names Ray gives them."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(stat[1]), (entry / "cmdline").read_text()
        except (OSError, IndexError):
            continue

    def is_below(one):
        while one in parents:
            one = parents[one][0]
            if one == pid:
                return True
        return False

    titles = {one: title for one, (_, title) in parents.items() if is_below(one)}
    return [one for one, title in titles.items() if title.startswith("ray::") and word in title]


@pytest.fixture
def rows(tmp_path):
    """Files of 120,000 rows in all."""
    (tmp_path / "rows").mkdir()
    for name in "abc":
        lines = [f"{name}{i},the film was {'great' if i % 3 else 'dull'} ." for i in range(40_000)]
        (tmp_path / "rows" / f"{name}.csv").write_text("\n".join(["key,text", *lines]) + "\n")
    return tmp_path / "rows" / "*.csv"


def count_keys(out):
    keys = Counter()
    for path in out.glob("part-*"):
        with path.open(newline="") as file:
            keys.update((row["input_file"], row["input_row"]) for row in csv.DictReader(file))
    return keys


def count_parts(out):
    path = out / "_manifest.jsonl"
    return path.read_text().count('"part":') if path.exists() else 0


def test_a_prediction_that_loses_a_worker_answers_every_row_once(tiny_run, rows, tmp_path):
    words = ["predict", tiny_run, "--task", "mood", "--input", rows, "--out", tmp_path / "out"]
    process = start(*words, "--jobs", "ray")
    wait_until(lambda: count_parts(tmp_path / "out") > 1, process)
    os.kill(wait_until(lambda: find_workers(process.pid, "_answer"), process)[0], signal.SIGKILL)
    code, said = end(process)
    assert code == 0, said
    keys = count_keys(tmp_path / "out")
    assert (len(keys), set(keys.values())) == (120_000, {1})


def wait_for_node(log, node):
    def has_begun():
        assert node.poll() is None, log.read_text()
        return "Ray runtime started" in log.read_text()

    wait_until(has_begun)


@pytest.fixture
def two_nodes(tmp_path):
    """Two Ray nodes as processes of this machine: their address, the second one, the settings."""
    ray = Path(sys.executable).with_name("ray")
    folder = tempfile.mkdtemp(prefix="plait-", dir="/tmp")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    # As in a shell of its own: a Ray of this process's, had by a test before, keeps to itself by
    # settings with which no second node may join.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    settings |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    settings["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    common = ["--block", "--num-cpus=1", "--object-store-memory=100000000"]
    port = address.partition(":")[2]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    nodes = []
    try:
        for number, words in enumerate((head, [f"--address={address}"])):
            log = tmp_path / f"node-{number}"
            with log.open("w") as said:
                options = {"env": settings, "stdout": said, "stderr": said}
                node = [ray, "start", *words, *common]
                nodes.append(subprocess.Popen(node, start_new_session=True, **options))
            wait_for_node(log, nodes[-1])
        yield address, nodes[1], settings
    finally:
        for node in reversed(nodes):
            with_group(node, signal.SIGKILL)
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def with_group(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def test_runs_of_a_lost_node_are_tried_again_on_another(two_nodes, tiny_recipe, tmp_path):
    address, second, settings = two_nodes
    recipes = []
    for seed in (1, 2, 3):
        path = tiny_recipe().with_name(f"r{seed}.toml")
        path.write_text(f'extends = "recipe.toml"\nname = "r{seed}"\nseed = {seed}\n')
        recipes.append(path)
    out = tmp_path / "runs"
    process = start(
        *("train", *recipes, "--out", out, "--jobs", f"ray:{address}"),
        *("-o", "train.epochs=300"),
        env=settings,
    )
    wait_until(lambda: len(list(out.glob("*/metrics.jsonl"))) == 2, process)
    with_group(second, signal.SIGKILL)
    code, said = end(process)
    assert code == 0, said
    assert "2 at once" in said
    assert "its worker was lost" in said
    scores = [json.loads(path.read_text()) for path in out.glob("*/scores.json")]
    assert len(scores) == 3
