"""Measure how well a run's encoder learns a new task from few examples of each class.

    python -m reproduction.few_shot TASK.toml RUN... [--shots 16,32] [--draws 5] [--data DIR]

TASK.toml is a recipe with one task. Each draw takes N training rows of each class, trains the
recipe on them, from its own encoder ("raw") and from each RUN's, and scores dev once, at the end
of training. The same rows are drawn for every encoder.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import plait


def main() -> None:
    """Measure, print a table and write the scores."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("task", type=Path, help="a recipe with one task")
    parser.add_argument("runs", nargs="*", help="runs whose encoders are measured")
    parser.add_argument("--shots", default="16,32", help="training rows of each class (16,32)")
    parser.add_argument("--draws", type=int, default=5, help="draws of the rows (5)")
    parser.add_argument("--data", type=Path, default=Path(), help="folder of the recipe's files")
    parser.add_argument("--out", type=Path, help="write all scores to this JSON file")
    parser.add_argument("-o", dest="overrides", action="append", default=[])
    args = parser.parse_args()
    shots = [int(word) for word in args.shots.split(",")]
    scores: dict[str, dict[int, list[float]]] = {}
    for run in ["", *args.runs]:
        for count in shots:
            values = [measure(args, run, count, draw) for draw in range(args.draws)]
            scores.setdefault(run or "raw", {})[count] = values
            spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
            print(f"{run or 'raw'}, {count} a class: {fmean(values):.3f}{spread}", flush=True)
    if args.out:
        args.out.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")


def measure(args: argparse.Namespace, run: str, count: int, draw: int) -> float:
    """Train on one draw of rows and return the dev score."""
    ((name, task),) = plait.read_recipe(args.task, args.overrides).tasks.items()
    with tempfile.TemporaryDirectory() as folder:
        train = Path(folder, Path(task.train[0].path).name)
        label = task.train[0].label or task.label
        draw_rows(args.data / task.train[0].path, train, str(label), count, draw)
        overrides = [*args.overrides, f"tasks.{name}.train={json.dumps(str(train))}"]
        overrides += [f"seed={draw}", 'train.eval_every="end"', "listeners=[]"]
        overrides += [f"start={{run={json.dumps(run)}, keep=false}}"] if run else []
        config = plait.read_recipe(args.task, overrides)
        result: dict[str, Any] = plait.train(
            config, Path(folder, "run"), data=str(args.data)
        ).result
    return float(result["dev"]["primary"][name] or 0.0)


def draw_rows(source: Path, target: Path, label: str, count: int, draw: int) -> None:
    """Write `count` random rows of each class of a file with a header; more draws begin alike."""
    with source.open(encoding="utf-8", newline="") as file:
        header = file.readline()
        separator = "\t" if "\t" in header else ","
        file.seek(0)
        rows = list(csv.DictReader(file, delimiter=separator))
    classes: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        classes[row[label]].append(row)
    generator = random.Random(draw)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        for _, members in sorted(classes.items()):
            generator.shuffle(members)
            writer.writerows(members[:count])


if __name__ == "__main__":
    main()
