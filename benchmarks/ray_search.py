"""Search on a Ray of this machine, kill a worker in the middle, and count the trials at the end.

    python benchmarks/ray_search.py [--trials 20] [--jobs N] [--out FILE]

Trials are short runs of the demo's tasks with a very small encoder of random weights: what is
shown is that none is lost, not what they find. The worker is killed as a lost machine would take
it, without a warning, once a third of the trials are done.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import encoders
import ray_workers
import records

from plait.model.sources import find_encoder

SPACE = """[search.space]
"train.lr" = { low = 1e-4, high = 1e-2, log = true }
"train.warmup" = { low = 0.0, high = 0.3 }
"""
SHORT = ("train.epochs=2", "train.batch_size=32", "score_first=false", "listeners=[]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--jobs", type=int, help="trials at once; as many as fit unless given")
    parser.add_argument("--out", type=Path, help="the record; benchmarks/records/ray unless given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as temporary:
        folder = Path(temporary)
        words = make_words(folder, args.trials, args.jobs)
        began = time.monotonic()
        said, killed = search(words, folder, args.trials // 3)
        seconds = round(time.monotonic() - began, 1)
        trials = read_trials(folder)
    lost = [line for line in said.splitlines() if "worker was lost" in line]
    states = [trial["state"] for trial in trials]
    found: dict[str, object] = {state: states.count(state) for state in sorted(set(states))}
    print(f"{len(trials)} trials: {found}; {killed} worker killed; {lost}")
    whole = len({trial["trial"] for trial in trials}) == len(trials) == args.trials
    if not (whole and killed and lost and set(states) <= {"done", "pruned"}):
        sys.exit("not every trial came to a result, or no worker was lost")
    records.write(
        "ray_search",
        args.out or records.FOLDER / "ray" / "search.json",
        settings={
            "trials": args.trials,
            "encoder": "mini",
            "recipe": "demo",
        },
        seconds=seconds,
        killed=killed,
        tried_again=len(lost),
        states=found,
    )


def make_words(folder: Path, num_trials: int, jobs: int | None) -> list[str]:
    """Write an encoder and a space; return the command."""
    tokenizer = find_encoder("packaged").tokenizer
    encoder = encoders.write_encoder("mini", tokenizer, folder / "encoder")
    (folder / "space.toml").write_text(SPACE, encoding="utf-8")
    words = [sys.executable, "-m", "plait", "search", "demo", "--jobs", "ray"]
    words += ["-o", str(folder / "space.toml"), "--out", str(folder / "search")]
    words += ["--trials", str(num_trials)]
    words += ["--jobs", str(jobs)] if jobs else []
    for override in (f"encoder.source={encoder}", *SHORT):
        words += ["-o", override]
    return words


def search(words: list[str], folder: Path, kill_after: int) -> tuple[str, int]:
    """Run the search; return what it said, and how many workers were killed."""
    killed = 0
    with (
        (folder / "said").open("w+", encoding="utf-8") as said,
        subprocess.Popen(words, stdout=said, stderr=said) as process,
    ):
        while process.poll() is None:
            if not killed and len(read_trials(folder)) >= kill_after:
                killed = int(ray_workers.kill_one(process.pid, "trial"))
            time.sleep(0.5)
        said.seek(0)
        told = said.read()
    if process.returncode:
        sys.exit(f"the search failed: {told}")
    return told, killed


def read_trials(folder: Path) -> list[dict[str, str]]:
    """Return the trials that ended so far."""
    path = folder / "search" / "trials.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["state"] != "running"]


if __name__ == "__main__":
    main()
