"""Answer a million rows on a Ray of this machine, kill a worker in the middle, count the answers.

    python benchmarks/ray_predict.py [--rows 1000000] [--files 8] [--out FILE]

The run has a very small encoder of random weights, scarcely trained: what is shown is that every
row is answered once, and how much memory all processes hold together while that goes on. The
worker is killed as a lost machine would take it, without a warning, once a third of the rows are
done. Afterwards the answers are compared with those of a part that this process answers itself.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import encoders
import pyarrow.parquet
import ray_workers
import records

from plait import Predictor
from plait.model.sources import find_encoder

WORDS = (
    *("the", "a", "film", "story", "meal", "song", "was", "is", "not", "very", "quite", "and"),
    *("fine", "dull", "bright", "slow", "warm", "good", "bad", "great", "poor", "kind"),
)
TASK = "sentiment"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--out", type=Path, help="the record; benchmarks/records/ray unless given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-bench-") as temporary:
        folder = Path(temporary)
        run = train(folder)
        size = write_rows(folder / "rows", args.rows, args.files)
        began = time.monotonic()
        memory, killed = predict(run, folder, args.rows)
        seconds = round(time.monotonic() - began, 1)
        counts = count_answers(folder, run)
    half = len(memory) // 2
    figures = {
        "seconds": seconds,
        "rows_per_second": round(args.rows / seconds),
        "input_mib": size,
        "memory_mib": {"first_half": max(memory[:half]), "second_half": max(memory[half:])},
        "killed": killed,
        **counts,
    }
    print(json.dumps(figures, indent=1))
    if not (counts["rows"] == counts["different_keys"] == args.rows and killed):
        sys.exit("not every row has one answer, or no worker was killed")
    records.write(
        "ray_predict",
        args.out or records.FOLDER / "ray" / "predict.json",
        settings={"rows": args.rows, "files": args.files, "encoder": "mini", "task": TASK},
        **figures,
    )


def train(folder: Path) -> Path:
    """Make a run of the demo's tasks with a very small encoder."""
    tokenizer = find_encoder("packaged").tokenizer
    encoder = encoders.write_encoder("mini", tokenizer, folder / "encoder")
    words = [sys.executable, "-m", "plait", "train", "demo", "--out", str(folder / "run")]
    words += ["-o", f"encoder.source={encoder}", "-o", "train.epochs=1", "-o", "listeners=[]"]
    subprocess.run(words, check=True, capture_output=True)
    return folder / "run"


def write_rows(folder: Path, num_rows: int, num_files: int) -> float:
    """Write CSV files of random sentences; return their size in MiB."""
    folder.mkdir()
    draw = random.Random(0)
    for number in range(num_files):
        rows = range(number * num_rows // num_files, (number + 1) * num_rows // num_files)
        with (folder / f"{number:03}.csv").open("w", encoding="utf-8") as file:
            file.write("name,sentence\n")
            for row in rows:
                file.write(f"r{row},{' '.join(draw.choices(WORDS, k=draw.randint(4, 12)))}\n")
    return round(sum(path.stat().st_size for path in folder.iterdir()) / (1 << 20), 1)


def predict(run: Path, folder: Path, num_rows: int) -> tuple[list[float], int]:
    """Answer the rows; return the memory held at each look, and how many workers were killed."""
    words = [sys.executable, "-m", "plait", "predict", str(run), "--jobs", "ray"]
    words += ["--input", str(folder / "rows" / "*.csv"), "--out", str(folder / "answers")]
    words += ["--task", TASK, "--format", "parquet"]
    memory, killed = [], 0
    with (
        (folder / "said").open("w+", encoding="utf-8") as said,
        subprocess.Popen(words, stdout=said, stderr=said) as process,
    ):
        while process.poll() is None:
            done = sum(note["rows"] for note in read_notes(folder))
            if done:
                memory.append(ray_workers.memory_mib(process.pid))
            if not killed and done > num_rows // 3:
                killed = int(ray_workers.kill_one(process.pid, "_answer"))
            time.sleep(2)
        said.seek(0)
        told = said.read()
    if process.returncode:
        sys.exit(f"the prediction failed: {told}")
    return memory, killed


def read_notes(folder: Path) -> list[dict[str, int]]:
    """Return the notes of the parts that are done."""
    path = folder / "answers" / "_manifest.jsonl"
    written = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = written.rpartition("\n")[0].splitlines()  # the last may be half there
    return [note for note in map(json.loads, lines) if "part" in note]


def count_answers(folder: Path, run: Path) -> dict[str, int]:
    """Count rows, keys that are different, and rows of one part that are answered otherwise."""
    keys: set[tuple[str, int]] = set()
    names: set[str] = set()
    rows = 0
    paths = sorted((folder / "answers").glob("part-*"))
    for path in paths:
        table = pyarrow.parquet.read_table(path)
        rows += len(table)
        columns = [table[name].to_pylist() for name in ("input_file", "input_row", "name")]
        keys |= set(zip(columns[0], columns[1], strict=True))
        names |= set(columns[2])
    table = pyarrow.parquet.read_table(paths[len(paths) // 2]).slice(0, 1000)
    here = Predictor.load(run, precision="auto").predict(TASK, table["sentence"].to_pylist())
    pairs = zip(here, table[TASK].to_pylist(), strict=True)
    other = sum(answer.value != there for answer, there in pairs)
    same = {"parts": len(paths), "rows": rows, "different_keys": len(keys)}
    return {**same, "different_names": len(names), "answered_otherwise": other}


if __name__ == "__main__":
    main()
