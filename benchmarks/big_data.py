"""Time the set-up of training on many rows, and the memory it takes: first and second start.

    python benchmarks/big_data.py [--rows N] [--files N] [--cases NAME ...] [--out FILE]

`--rows` short made texts in `--files` Parquet files (or one CSV file with --files 0), a tiny random
encoder, a few updates. Each start is a process of its own, which notes its memory ten times a
second: what it holds itself, and what it has mapped of files, which the system takes back when
others need it. The record goes to benchmarks/records/memory.

Cases: finetune (one task), overlap (with data.drop_overlap), draw (half of the rows), mlm (the
texts without labels, each once), pairs (simcse on pairs), implied (closure: looks at all rows).
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = {
    "finetune": {},
    "overlap": {"data": {"drop_overlap": True}},
    "draw": {"tasks": {"big": {"fraction": 0.5}}},
    "mlm": {"stages": ["texts"], "stage": {"texts": {"kind": "mlm"}}},
    "pairs": {"stages": ["texts"], "stage": {"texts": {"kind": "simcse-pairs"}}},
    "implied": {"tasks": {"big": {"augment": [{"name": "closure", "most": 1000}]}}},
}
PAIRED = ("pairs", "implied")
NUM_WORDS = 2000
CHUNK = 100_000
"""Rows made at a time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=8, help="Parquet files; 0 for one CSV file")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=["finetune"])
    parser.add_argument("--out", type=Path, help="write the record here instead")
    parser.add_argument(
        "--before", type=Path, help="a record of an earlier version, to keep beside"
    )
    parser.add_argument("--start", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.start:
        print(json.dumps(start(Path(args.start))))
        return
    import records

    figures = {}
    with tempfile.TemporaryDirectory() as temporary:
        for case in args.cases:
            figures[case] = measure(Path(temporary) / case, case, args.rows, args.files)
    records.write(
        "big_data",
        args.out or records.FOLDER / "memory" / "big_data.json",
        settings={"rows": args.rows, "files": args.files},
        unit="MiB and seconds",
        plait=figures,
        before=json.loads(args.before.read_text(encoding="utf-8")) if args.before else None,
    )


def measure(folder: Path, case: str, num_rows: int, num_files: int) -> dict[str, Any]:
    """Start a case twice in an empty cache."""
    folder.mkdir()
    size = write_case(folder, case, num_rows, num_files)
    found: dict[str, Any] = {"data_mb": round(size / 1e6, 1)}
    places = {"PLAIT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    for turn in ("first", "second"):
        command = [sys.executable, __file__, "--start", str(folder / f"{turn}.json")]
        (folder / f"{turn}.json").write_text(json.dumps({"turn": turn}), encoding="utf-8")
        shown = subprocess.check_output(command, env=os.environ | places)
        found[turn] = json.loads(shown.splitlines()[-1])
        print(case, turn, found[turn], flush=True)
    cached = sum(file.stat().st_size for file in (folder / "cache").glob("**/*.npy"))
    return found | {"cache_mb": round(cached / 1e6, 1)}


def start(request: Path) -> dict[str, float]:
    """Train a few updates; tell seconds until the first one, and memory until then and after."""
    from plait.config import read_recipe
    from plait.training.listeners import Listener
    from plait.training.run import train

    class Watch(Listener):
        ready = 0.0

        def step(self, record: object) -> None:  # noqa: ARG002
            if not self.ready:
                self.ready, self.cpu = time.perf_counter(), time.process_time()
                self.at_ready = memory.take()

    memory, watch = Memory(), Watch()
    config = read_recipe(request.parent / "recipe.toml")
    before, began, cpu = memory.take(), time.perf_counter(), time.process_time()
    train(config, request.with_suffix(".run"), listeners=[watch])
    training = memory.take()
    return {
        "seconds": round(watch.ready - began, 2),
        "cpu_seconds": round(watch.cpu - cpu, 2),
        "imports_mib": before[0],
        "own_peak_mib": watch.at_ready[0],
        "mapped_peak_mib": watch.at_ready[1],
        "training_own_peak_mib": training[0],
    }


class Memory:
    """Peaks of what the process holds itself and of what it has mapped, in MiB."""

    def __init__(self) -> None:
        self.peaks = [0, 0]
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.1)

    def _look(self) -> None:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        table = dict(line.split(":", 1) for line in lines)
        now = [int(table[name].split()[0]) >> 10 for name in ("RssAnon", "RssFile")]
        self.peaks = [max(pair) for pair in zip(self.peaks, now, strict=True)]

    def take(self) -> list[int]:
        """Return the peaks since the last time."""
        self._look()
        peaks, self.peaks = self.peaks, [0, 0]
        return peaks


# --- the data --------------------------------------------------------------------------------


def write_case(folder: Path, case: str, num_rows: int, num_files: int) -> int:
    """Write encoder, data and recipe; return how many bytes of data there are."""
    import tomli_w

    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(NUM_WORDS)]
    write_encoder(folder / "encoder", words)
    columns = ["first", "second"] if case in PAIRED else ["text"]
    train = write_files(folder, columns, words, num_rows, num_files)
    dev = write_files(folder, columns, words, 1000, 0, "dev.csv")
    change = CASES[case]
    recipe = {
        "name": "big",
        "device": "cpu",
        "listeners": [],
        "score_first": False,
        "data": {"root": str(folder)} | change.get("data", {}),
        "encoder": {"source": str(folder / "encoder"), "max_length": 32},
        "train": {"epochs": 1, "batch_size": 32, "max_steps": 50},
        "tasks": {
            "big": {
                "kind": "binary",
                "text": columns,
                "label": "label",
                "train": train,
                "dev": dev,
            }
            | change.get("tasks", {}).get("big", {})
        },
    } | {key: change[key] for key in ("stages", "stage") if key in change}
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
    files = [folder / train] if (folder / train).is_file() else (folder / "train").iterdir()
    return sum(file.stat().st_size for file in files)


def write_files(
    folder: Path,
    columns: list[str],
    words: list[str],
    num_rows: int,
    num_files: int,
    name: str = "train.csv",
) -> str:
    """Write rows, a chunk at a time; return what a recipe says for them."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet

    generator = np.random.default_rng(len(name))
    lexicon = np.array(words, object)

    def texts(count: int) -> list[str]:
        rows = lexicon[generator.integers(len(words), size=(count, 8))]
        return [" ".join(row[: 4 + i % 5]) for i, row in enumerate(rows)]

    def chunks(total: int) -> Any:
        for begin in range(0, total, CHUNK):
            count = min(CHUNK, total - begin)
            yield [*(texts(count) for _ in columns), generator.integers(2, size=count).tolist()]

    if not num_files:
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*columns, "label"])
            for chunk in chunks(num_rows):
                writer.writerows(zip(*chunk, strict=True))
        return name
    (folder / "train").mkdir()
    for number in range(num_files):
        low, high = (num_rows * place // num_files for place in (number, number + 1))
        schema = pa.schema([*((column, pa.string()) for column in columns), ("label", pa.int64())])
        path = folder / "train" / f"part-{number:03}.parquet"
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            for chunk in chunks(high - low):
                writer.write_table(pa.table(chunk, schema=schema))
    return "train"


def write_encoder(folder: Path, words: list[str]) -> None:
    """Write a random BERT of one layer that knows every word."""
    from safetensors.torch import save_file

    from plait.data import Tokenizer
    from plait.model.encoder import build_encoder, hub_weights

    folder.mkdir()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    Tokenizer.from_file(folder / "vocab.txt").save(folder / "tokenizer.json")
    (folder / "vocab.txt").unlink()
    config = {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "vocab_size": len(tokens),
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(hub_weights(build_encoder(config)), folder / "model.safetensors")


if __name__ == "__main__":
    main()
