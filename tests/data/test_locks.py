"""Of several processes that want one cache entry, one makes it; none waits for a dead one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plait.data import cache_root
from plait.data.locks import turn

# Tells how many texts it encoded and what it heard of the work. `slow` stops in the midst of it.
CODE = """
import json, sys, time
from pathlib import Path
from plait.config import TaskConfig
from plait.data import Tokenizer, load_split, locks

folder, slow, patience = Path(sys.argv[1]), sys.argv[2] == "slow", float(sys.argv[3])
locks.PATIENCE_S = patience
locks.BEAT_S = 0.0
encode, encoded, heard = Tokenizer.encode, [], []

def watched(self, texts, *args, **settings):
    encoded.append(len(texts))
    if slow and len(encoded) == 2:
        (folder / "begun").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)
    return encode(self, texts, *args, **settings)

def hear(*numbers):
    heard.append(numbers)
    if not slow and not encoded:
        (folder / "go").touch()

Tokenizer.encode = watched
task = TaskConfig(kind="binary", text="a", label="label", train="*.csv")
tokenizer = Tokenizer.from_file(folder / "vocab.txt")
dataset = load_split("t", task, "train", root=folder, tokenizer=tokenizer, max_length=16,
    bad_rows="error", seed=1, progress=hear)
ids = int(dataset.tokens[0].ids.sum())
print(json.dumps({"encoded": sum(encoded), "heard": heard, "rows": len(dataset), "ids": ids}))
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path, vocabulary: Path) -> Iterator[Start]:
    """Start a process that wants the entry of three small files."""
    (tmp_path / "vocab.txt").write_bytes(vocabulary.read_bytes())
    for name in "abc":
        lines = ["a,label", *(f"good film {name} {i},{i % 2}" for i in range(50))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")
    running = []

    def run(kind: str = "quick", *, patience: float = 60.0) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CODE, str(tmp_path), kind, str(patience)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.communicate()


def until(path: Path) -> None:
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.02)


def told(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    shown, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(shown)
    return found


def left() -> list[str]:
    """Return what is in the cache beside whole entries."""
    return [path.name for path in (cache_root() / "tokens").iterdir() if path.name[0] == "."]


@pytest.mark.slow
def test_one_builds_and_the_other_waits(start: Start, tmp_path: Path) -> None:
    first = start("slow")
    until(tmp_path / "begun")
    second = start()  # lets the first go on once it has heard how far that is
    one, other = told(first), told(second)
    assert (one["encoded"], other["encoded"]) == (150, 0)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.csv"))
    assert other["heard"][0] == [50, size // 3, size]
    assert (one["rows"], one["ids"]) == (other["rows"], other["ids"])
    assert left() == []
    assert len(list((cache_root() / "tokens").iterdir())) == 1


@pytest.mark.slow
def test_nobody_waits_for_a_process_that_hangs(start: Start, tmp_path: Path) -> None:
    first = start("slow")
    until(tmp_path / "begun")
    first.send_signal(signal.SIGSTOP)
    second = told(start(patience=0.5))
    assert second["encoded"] == 150
    first.send_signal(signal.SIGCONT)  # its work comes to nothing, and it is content with that
    (tmp_path / "go").touch()
    assert told(first)["ids"] == second["ids"]
    assert len(list((cache_root() / "tokens").iterdir())) == 1


def test_a_failure_lets_the_next_one_in(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(RuntimeError, match="broken"), turn(path):
        raise RuntimeError("broken")
    assert not path.exists()
    heard: list[tuple[int, ...]] = []
    with turn(path, lambda *numbers: heard.append(numbers)) as tell:
        tell(1, 2, 3)
    assert heard == [(1, 2, 3)]
