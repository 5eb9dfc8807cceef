"""Prepare the course's files for the recipes best/folds and best/ten, or for choosing settings.

    python -m reproduction.course_files group DATA
    python -m reproduction.course_files hold-out DATA OUT [--seed 1]

`group` writes sst-phrases-grouped.tsv: the treebank's phrases with the training sentence that each
is part of, in a column that a recipe can name as `group`. Rows of one group stay in one fold,
because a phrase tells the label of its sentence. Phrases of one or two words have no sentence.

`hold-out` copies the files with part of each training file in place of dev, for choosing settings
without dev. The real dev files stand in for the test files, so that `drop_overlap` keeps their rows
out of training. Phrases of held-out sentences are left out of sst-phrases.tsv.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import shutil
from pathlib import Path

HELD_OUT = {"ids-sst": 1700, "quora": 8000, "sts": 1000}
"""Rows to hold out, by the first part of the files' names."""


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    group = commands.add_parser("group")
    group.add_argument("data", type=Path)
    hold_out = commands.add_parser("hold-out")
    hold_out.add_argument("data", type=Path)
    hold_out.add_argument("out", type=Path)
    hold_out.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.command == "group":
        group_phrases(args.data)
    else:
        hold_out_rows(args.data, args.out, args.seed)


def group_phrases(data: Path) -> None:
    """Write sst-phrases-grouped.tsv."""
    header, *rows = read(data / "ids-sst-train.csv")
    column = header.index("sentence")
    owner: dict[str, str] = {}
    for sentence in (row[column].strip() for row in rows):
        for part in parts_of(words_of(sentence)):
            owner.setdefault(part, sentence)
    header, *phrases = read(data / "sst-phrases.tsv")
    column = header.index("phrase")
    named = [[*row, owner.get(" ".join(words_of(row[column])), "")] for row in phrases]
    write(data / "sst-phrases-grouped.tsv", [[*header, "sentence"], *named])
    print(f"{sum(bool(row[-1]) for row in named):,} of {len(named):,} phrases are in a sentence")


def hold_out_rows(data: Path, out: Path, seed: int) -> None:
    """Copy all files, with held-out training rows as dev files."""
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(data.iterdir()):
        if path.is_file():
            shutil.copyfile(path, out / path.name)
    generator = random.Random(seed)
    for name, count in HELD_OUT.items():
        header, *rows = read(data / f"{name}-train.csv")
        chosen = set(generator.sample(range(len(rows)), count))
        kept = [row for i, row in enumerate(rows) if i not in chosen]
        held = [row for i, row in enumerate(rows) if i in chosen]
        write(out / f"{name}-train.csv", [header, *kept])
        write(out / f"{name}-dev.csv", [header, *held])
        shutil.copyfile(data / f"{name}-dev.csv", out / f"{name}-test-student.csv")
        print(f"{name}: {len(kept):,} rows to train on, {len(held):,} held out")
        if name == "ids-sst" and (data / "sst-phrases.tsv").is_file():
            column = header.index("sentence")
            drop_phrases(data / "sst-phrases.tsv", out, [row[column] for row in held])


def drop_phrases(path: Path, out: Path, sentences: list[str]) -> None:
    """Copy a file of phrases without those that are part of one of the sentences."""
    parts = {part for sentence in sentences for part in parts_of(words_of(sentence))}
    header, *rows = read(path)
    column = header.index("phrase")
    kept = [row for row in rows if " ".join(words_of(row[column])) not in parts]
    write(out / path.name, [header, *kept])
    print(f"{path.name}: {len(rows) - len(kept):,} of {len(rows):,} phrases left out")


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words."""
    return re.findall(r"\w+", text.lower())


def parts_of(words: list[str]) -> set[str]:
    """Return all sequences of three words or more."""
    ends = range(3, len(words) + 1)
    return {" ".join(words[start:end]) for end in ends for start in range(end - 2)}


def read(path: Path) -> list[list[str]]:
    """Read a tab-separated file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t"))


def write(path: Path, rows: list[list[str]]) -> None:
    """Write a tab-separated file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
