"""Say of every phrase of the treebank which training sentence it is part of.

    python scripts/group_phrases.py DATA

Reads ids-sst-train.csv and sst-phrases.tsv in DATA and writes sst-phrases-grouped.tsv beside them,
with the sentence in a column more. Where that is named as `group`, phrases go with their sentence
when rows are dealt into folds; a phrase in another fold would tell the sentence's label. Phrases of
one or two words stand in many sentences and tell little: they name none.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from hold_out import parts_of, read, words_of, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    data = parser.parse_args().data
    header, *rows = read(data / "ids-sst-train.csv")
    column = header.index("sentence")
    owner: dict[str, str] = {}
    for sentence in (row[column].strip() for row in rows):
        for part in parts_of(words_of(sentence)):
            owner.setdefault(part, sentence)  # of two sentences, the first
    header, *phrases = read(data / "sst-phrases.tsv")
    column = header.index("phrase")
    named = [[*row, owner.get(" ".join(words_of(row[column])), "")] for row in phrases]
    write(data / "sst-phrases-grouped.tsv", [[*header, "sentence"], *named])
    count = sum(bool(row[-1]) for row in named)
    print(f"{count:,} of {len(named):,} phrases are part of a sentence")


if __name__ == "__main__":
    main()
