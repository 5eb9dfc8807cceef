"""A run does not depend on how its rows are spread over files."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet

from csv_rows import read_rows
from plait.config import read_recipe
from plait.training.run import train


def test_a_folder_of_parquet_trains_as_one_file(tiny_recipe, tmp_path):
    """Down to the bits, pre-training included."""
    recipe = tiny_recipe()
    rows = read_rows(recipe.parent / "mood-train.csv")
    (recipe.parent / "parts").mkdir()
    for number, start in enumerate((0, 7, 30)):
        some = rows[start : (7, 30, len(rows))[number]]
        path = recipe.parent / "parts" / f"{number}.parquet"
        pyarrow.parquet.write_table(pa.Table.from_pylist(some), path, row_group_size=5)
    stages = ["stages=['first', 'then']", "stage.first.kind='mlm'", "stage.then.kind='finetune'"]
    stages += ["train.max_steps=2"]
    weights = [
        (train(read_recipe(recipe, [*stages, *own]), tmp_path / out).folder / "model.safetensors")
        for out, own in (
            ("one", []),
            ("folder", ["tasks.mood.train='parts'"]),
        )
    ]
    assert len({path.read_bytes() for path in weights}) == 1
