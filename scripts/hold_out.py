"""Copy the course's files with part of each training file in the place of dev.

    python scripts/hold_out.py DATA OUT [--seed 1]

For choosing among recipes without a look at dev: train on OUT what is to be trained on DATA in the
end. The rows held out become the dev files; the real dev files stand in as test files, so that
whatever keeps dev and test rows out of training keeps out both. Phrases of three words or more that
are part of a held-out sentence leave sst-phrases.tsv: they tell its label.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import shutil
from pathlib import Path

HELD_OUT = {"ids-sst": 1700, "quora": 8000, "sts": 1000}
"""Rows that stand for dev, by how the files' names begin."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for path in sorted(args.data.iterdir()):
        if path.is_file():
            shutil.copyfile(path, args.out / path.name)
    draw = random.Random(args.seed)
    held = {name: hold_out(args.data, args.out, name, n, draw) for name, n in HELD_OUT.items()}
    phrases = args.data / "sst-phrases.tsv"
    if phrases.is_file():
        column = held["ids-sst"][0].index("sentence")
        drop_parts(phrases, args.out, [row[column] for row in held["ids-sst"][1:]])


def hold_out(data: Path, out: Path, name: str, count: int, draw: random.Random) -> list[list[str]]:
    """Deal a training file into train and dev; return dev, its header first."""
    header, *rows = read(data / f"{name}-train.csv")
    chosen = set(draw.sample(range(len(rows)), count))
    kept = [row for i, row in enumerate(rows) if i not in chosen]
    held = [header, *(row for i, row in enumerate(rows) if i in chosen)]
    write(out / f"{name}-train.csv", [header, *kept])
    write(out / f"{name}-dev.csv", held)
    shutil.copyfile(data / f"{name}-dev.csv", out / f"{name}-test-student.csv")
    print(f"{name}: {len(kept):,} rows to train on, {len(held) - 1:,} held out")
    return held


def drop_parts(path: Path, out: Path, sentences: list[str]) -> None:
    """Leave out phrases that are part of one of the sentences."""
    parts = {part for sentence in sentences for part in parts_of(words_of(sentence))}
    header, *rows = read(path)
    column = header.index("phrase")
    kept = [row for row in rows if " ".join(words_of(row[column])) not in parts]
    write(out / path.name, [header, *kept])
    print(f"{path.name}: {len(rows) - len(kept):,} of {len(rows):,} phrases left out")


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def parts_of(words: list[str]) -> set[str]:
    ends = range(3, len(words) + 1)
    return {" ".join(words[start:end]) for end in ends for start in range(end - 2)}


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def write(path: Path, rows: list[list[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
