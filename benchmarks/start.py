"""Time how long the command line takes to come up, beside Python itself and a heavier peer.

    python benchmarks/start.py [--runs N] [--out FILE]

Each start is a process of its own; the first of each is thrown away, since it fills the disk
cache. They take turns, so that other work on the machine slows all alike. Peers that are not
installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "plait --help": ["-m", "plait", "--help"],
    "plait train --help": ["-m", "plait", "train", "--help"],
    "import typer": ["-c", "import typer"],
    "import torch": ["-c", "import torch"],
    "import transformers": ["-c", "import transformers"],
}
"""What is started, by the name it is shown under; the first is what the others stand beside."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, help="write the numbers here as JSON")
    args = parser.parse_args()
    numbers = {"python": sys.version.split()[0], "cores": os.cpu_count(), "runs": args.runs}
    commands = {name: words for name, words in COMMANDS.items() if there(name)}
    turns = [{name: start(words) for name, words in commands.items()} for _ in range(args.runs + 1)]
    medians = {name: statistics.median(turn[name] for turn in turns[1:]) for name in commands}
    base = medians["python -c pass"]
    for name, seconds in medians.items():
        print(f"{name:28} {seconds * 1000:8.0f} ms {seconds / base:7.1f} x python")
    ratios = {name: round(seconds / base, 2) for name, seconds in medians.items()}
    numbers |= {"median_s": {name: round(s, 4) for name, s in medians.items()}, "ratio": ratios}
    if args.out:
        args.out.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


def there(name: str) -> bool:
    """Say whether what a command imports is installed."""
    package = name.removeprefix("import ")
    return package == name or importlib.util.find_spec(package) is not None


def start(words: list[str]) -> float:
    """Return the seconds one start takes."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, *words], capture_output=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"`{' '.join(words)}` fails: {done.stderr.decode()[-300:]}")
    return seconds


if __name__ == "__main__":
    main()
