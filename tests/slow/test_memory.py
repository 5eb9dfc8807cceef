"""Memory does not grow with the data, but for a few bytes a row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

# Trains two updates; tells how much more memory of its own it had meanwhile than before, in bytes.
CODE = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from plait.config import read_recipe
from plait.data import Tokenizer
from plait.training.run import train

def own():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))

def watch():
    global peak
    while True:
        peak = max(peak, own())
        time.sleep(0.02)

recipe, out, *overrides = sys.argv[1:]
if overrides[-1] == "quick":  # what the tokenizer does is not at issue
    overrides.pop()
    Tokenizer.encode = lambda _, texts, **__: (
        np.full(2 * len(texts), 5, np.int32), np.full(len(texts), 2, np.int32)
    )
peak = before = own()
threading.Thread(target=watch, daemon=True).start()
train(read_recipe(recipe, overrides), out)
print(json.dumps({"grown": peak - before}))
"""


def train(recipe: Path, out: Path, *overrides: str) -> int:
    few = ["train.max_steps=2", "train.batch_size=4", "train.tasks=['mood']"]
    given = [str(recipe), str(out), *few, *overrides]
    shown = subprocess.check_output([sys.executable, "-c", CODE, *given])
    grown: int = json.loads(shown.splitlines()[-1])["grown"]
    return grown


def write(folder: Path, text: str, num_rows: int, group: int = 50_000) -> str:
    """Write rows that differ in their beginnings, in Parquet files; return the folder's name."""
    folder.mkdir()
    for number in range(4):
        rows = range(number, num_rows, 4)
        table = {"id": [str(i) for i in rows], "text": [f"{i} {text}" for i in rows]}
        table |= {"label": [("bad", "so-so", "good")[i % 3] for i in rows]}
        path = folder / f"{number}.parquet"
        pa.parquet.write_table(pa.table(table), path, compression="none", row_group_size=group)
    return folder.name


def test_files_larger_than_what_is_grown(tiny_recipe, tmp_path: Path) -> None:
    recipe = tiny_recipe()
    small = train(recipe, tmp_path / "small")
    # Few words, and long: so that there is much to read and little to train on.
    name = write(recipe.parent / "large", ("x" * 4000 + " ") * 8, 10_000, 100)
    size = sum(path.stat().st_size for path in (recipe.parent / name).iterdir())
    assert size > 300 << 20
    grown = train(recipe, tmp_path / "large", f"tasks.mood.train='{name}'", "quick")
    assert grown - small < size / 2


@pytest.mark.parametrize(
    "overrides",
    [(), ("data.drop_overlap=true",), ("stages=['texts']", "stage.texts.kind='mlm'")],
    ids=["finetune", "overlap", "mlm"],
)
def test_bytes_a_row(tiny_recipe, tmp_path: Path, overrides: tuple[str, ...]) -> None:
    """A string of Python's and its place in a list are 60 bytes and its letters."""
    recipe, counts = tiny_recipe(), (50_000, 250_000)
    few, many = (
        train(
            recipe,
            tmp_path / f"{count}",
            f"tasks.mood.train='{write(recipe.parent / f'rows-{count}', 'good film', count)}'",
            *overrides,
        )
        for count in counts
    )
    assert (many - few) / (counts[1] - counts[0]) < 200  # of which memory's own ways are half
