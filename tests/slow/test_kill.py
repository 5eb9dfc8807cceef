"""Real processes, really killed: what they leave can always be gone on from, exactly."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL here"),
]

SETTINGS = ["train.epochs=80"]  # 960 updates, so that a kill finds it training


def start(recipe: Path, out: Path, *settings: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(out)]
    for setting in (*SETTINGS, *settings):
        words += ["-o", setting]
    if out.exists():
        words.append("--resume")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
    )


def run_to_end(recipe: Path, out: Path, *settings: str) -> None:
    process = start(recipe, out, *settings)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def kill_in(process: subprocess.Popen[bytes], out: Path, moment: str, delay: float) -> bool:
    """Kill a process some seconds after a moment came; say whether it had not ended before."""
    lines: list[bytes] = []
    began = threading.Event()

    def listen() -> None:
        for line in process.stderr:
            lines.append(line)
            if line.startswith(b"training tiny"):
                began.set()
        began.set()

    listener = threading.Thread(target=listen)
    listener.start()
    if moment != "anywhere":
        began.wait(timeout=100)
    try:
        process.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        if moment == "writing":
            while process.poll() is None and not any("tmp" in p.name for p in out.iterdir()):
                pass
        process.kill()
    process.wait()
    listener.join()
    process.stderr.close()
    assert process.returncode in (0, -signal.SIGKILL), b"".join(lines).decode()
    return process.returncode != 0


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("unbroken") / "run"


@pytest.mark.parametrize(
    ("save_every", "moments"),
    [
        (1, ["writing", "training", "anywhere", "writing"]),
        (2, ["training", "writing", "anywhere"]),
        (3, ["anywhere", "training", "training"]),
    ],
)
def test_a_killed_run_ends_as_an_unbroken_one(tiny_recipe, tmp_path, unbroken, save_every, moments):
    recipe = tiny_recipe()
    if not unbroken.exists():  # how often a run saves does not show in it
        run_to_end(recipe, unbroken)
    draw = random.Random(save_every)
    out, setting = tmp_path / "run", f"save_every={save_every}"
    for moment in moments:
        delay = draw.uniform(0.5, 4.0) if moment == "anywhere" else draw.uniform(0.02, 0.7)
        was_killed = kill_in(start(recipe, out, setting), out, moment, delay)
        assert was_killed or moment == "anywhere", "the run is too short for so many kills"
    run_to_end(recipe, out, setting)

    for name in ("model.safetensors", "metrics.jsonl"):
        assert (out / name).read_bytes() == (unbroken / name).read_bytes(), name
    one, other = (load_file(run / "checkpoint.safetensors") for run in (out, unbroken))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    names = [sorted(path.name for path in run.iterdir()) for run in (out, unbroken)]
    assert names[0] == names[1]  # nothing half-written is left


# --- a disk that is really full ----------------------------------------------------------

FILL = """
set -eu
mount -t tmpfs -o size=$1k tmpfs "$2"
status=0
"$3" -m plait train "$4" --out "$2/run" -o save_every=1 2> "$5/errors" || status=$?
echo $status > "$5/status"
ls -A "$2/run" > "$5/files"
mount -o remount,size=100m "$2"
"$3" -m plait train "$4" --out "$2/run" -o save_every=1 --resume
cp -r "$2/run" "$5/run"
"""


def may_mount(folder: Path) -> bool:
    command = 'mount -t tmpfs tmpfs "$1"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", command, "sh"]
    try:
        return subprocess.run([*words, str(folder)], capture_output=True).returncode == 0
    except OSError:
        return False


def test_a_run_on_a_full_disk_goes_on_once_there_is_room(tiny_recipe, tmp_path):
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    kept.mkdir()
    if not may_mount(disk):
        pytest.skip("a small disk cannot be mounted here")
    recipe = tiny_recipe()
    whole = tmp_path / "whole"
    words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(whole)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(words, check=True, capture_output=True, env=environment)
    # Room for a checkpoint with its moments, but not for a second one beside it.
    weights = (whole / "model.safetensors").stat().st_size
    rest = ("recipe.toml", "tokenizer.json", "run.json", "encoder.json")
    small = sum((whole / name).stat().st_size // 4096 + 1 for name in rest) * 4096
    size = (small + int(3.5 * weights)) // 4096 * 4 + 40
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FILL, "sh"]
    words += [str(size), str(disk), sys.executable, str(recipe), str(kept)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert (kept / "status").read_text() == "1\n"
    last = (kept / "errors").read_text().strip().splitlines()[-1]
    assert last.startswith("plait: the disk is full: ")
    assert "Free some room" in last
    assert last.endswith("--resume")
    assert "Traceback" not in (kept / "errors").read_text()
    files = (kept / "files").read_text().split()
    assert "checkpoint.safetensors" in files
    assert not [name for name in files if "tmp" in name]
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (kept / "run" / name).read_bytes() == (whole / name).read_bytes()
