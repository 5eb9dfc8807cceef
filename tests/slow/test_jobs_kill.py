"""`--jobs` with its parent really killed: the runs end with it, and are gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from plait.training.checkpoint import load_state

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]

SECONDS = 120


def wait_until(something, process=None):
    end = time.monotonic() + SECONDS
    while not something():
        assert time.monotonic() < end, "it took too long"
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def count_updates(run):
    path = run / "checkpoint.safetensors"
    return load_state(path).total_steps if path.exists() else 0


def find_children(pid: int) -> list[int]:
    """Return the processes below one, out of what Linux says of them."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(stat[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_runs_end_with_their_killed_parent_and_are_gone_on_with(tiny_recipe, tmp_path):
    recipe, out = tiny_recipe().with_name("pair.toml"), tmp_path / "pair"
    recipe.write_text("name = 'pair'\n[ensemble]\nmembers = ['recipe.toml']\nseeds = [1, 2]\n")
    words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(out), "--jobs", "2"]
    words += ["-o", "train.epochs=40", "-o", "save_every=5"]
    options = {"stderr": subprocess.STDOUT, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, start_new_session=True, **options)
    members = [out / "members" / f"tiny-seed-{seed}" for seed in (1, 2)]
    wait_until(lambda: all(map(count_updates, members)), process)
    children = find_children(process.pid)
    assert len(children) > 2  # the runs, and who started them
    process.kill()
    began = time.monotonic()
    wait_until(lambda: not any(map(is_alive, children)))
    assert time.monotonic() - began < 15
    process.communicate()
    assert not any((member / "scores.json").exists() for member in members)
    saved = [count_updates(member) for member in members]
    done = subprocess.run([*words, "--resume"], check=False, **options)
    assert done.returncode == 0, done.stdout
    for member, before in zip(members, saved, strict=True):
        result = json.loads((member / "scores.json").read_text())
        assert result["steps"] == 480 > before
