"""Time the first and second start on many sentence pairs, and the memory the first one takes.

    python benchmarks/tokenise.py [--tokenizer FILE] [--pairs FILE] [--rows N] [--peer]

Pairs are repeated until there are `--rows` of them (a million unless told otherwise), each time
with other new words in them, as more text has more words. Without `--pairs`, those of the embedded
sample are taken. Each start is a process of its own, so its peak memory is its alone. With
`--peer`, `datasets.map` with transformers' fast tokenizer does the same in turn with the first
start, several times (pip install datasets), and the record goes to benchmarks/records.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json; the packaged encoder's")
    parser.add_argument("--pairs", type=Path, help="a file of pairs in any known format")
    parser.add_argument("--columns", nargs=2, help="its two text columns")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--out", type=Path, help="write the numbers here as JSON")
    parser.add_argument("--peer", action="store_true", help="time datasets.map as well")
    parser.add_argument("--repeats", type=int, default=3, help="first starts of each, with --peer")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--map", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.tokenizer = args.tokenizer or packaged_tokenizer()
    if args.start:
        print(json.dumps(start(args.start, args.tokenizer, args.max_length)))
        return
    if args.map:
        print(json.dumps(map_dataset(args.map, args.tokenizer, args.max_length)))
        return
    if args.peer:
        compare(args)
        return
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "pairs.csv"
        write_pairs(args.pairs, args.columns, args.rows, data)
        os.environ["PLAIT_CACHE"] = str(Path(temporary) / "cache")
        command = [sys.executable, __file__, "--start", data, "--tokenizer", args.tokenizer]
        command += ["--max-length", str(args.max_length)]
        first, second = (json.loads(subprocess.check_output(command)) for _ in range(2))
        cached = sum(f.stat().st_size for f in Path(temporary).glob("cache/**/*.npy"))
        numbers = {
            "rows": args.rows,
            "file_mb": round(data.stat().st_size / 1e6, 1),
            "cache_mb": round(cached / 1e6, 1),
            "cores": os.cpu_count(),
            "first_start_s": first["seconds"],
            "rows_per_s": round(args.rows / first["seconds"]),
            "first_peak_mib": first["peak_mib"],
            "imports_mib": first["before_mib"],
            "second_start_s": second["seconds"],
            "second_peak_mib": second["peak_mib"],
        }
    for name, value in numbers.items():
        print(f"{name:16} {value:>12,}")
    if args.out:
        args.out.write_text(json.dumps(numbers, indent=2) + "\n", encoding="utf-8")


def packaged_tokenizer() -> Path:
    from plait.model.sources import find_encoder

    return find_encoder("packaged").tokenizer


def compare(args: argparse.Namespace) -> None:
    """Let first starts of plait and of datasets take turns, each with an empty cache."""
    import records

    found: dict[str, list[dict[str, float]]] = {"--map": [], "--start": []}
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "pairs.csv"
        write_pairs(args.pairs, args.columns, args.rows, data)
        for turn in range(args.repeats):
            for side, results in found.items():
                cache = Path(temporary) / f"cache{side}-{turn}"
                places = {"PLAIT_CACHE": str(cache), "HF_DATASETS_CACHE": str(cache)}
                command = [sys.executable, __file__, side, data, "--tokenizer", args.tokenizer]
                command += ["--max-length", str(args.max_length)]
                shown = subprocess.check_output(command, env=os.environ | places)
                results.append(json.loads(shown.splitlines()[-1]))
                shutil.rmtree(cache, ignore_errors=True)
    figures = {
        side: {
            "rows/s": records.spread([args.rows / r["seconds"] for r in results]),
            "peak MiB": records.spread([r["peak_mib"] for r in results]),
        }
        for side, results in found.items()
    }
    peer, plait = figures["--map"], figures["--start"]
    records.write(
        "tokenise",
        args.out,
        settings={"rows": args.rows, "max_length": args.max_length},
        unit="rows/s",
        best_peer="datasets.map",
        peers={"datasets.map": peer["rows/s"] | {"peak_mib": peer["peak MiB"]["median"]}},
        plait={"plait": plait["rows/s"] | {"peak_mib": plait["peak MiB"]["median"]}},
        ratios={
            "plait": round(plait["rows/s"]["median"] / peer["rows/s"]["median"], 2),
            "memory": round(plait["peak MiB"]["median"] / peer["peak MiB"]["median"], 2),
        },
        goals={"plait": 1.5, "memory": 0.25},
    )


def map_dataset(data: Path, tokenizer: Path, max_length: int) -> dict[str, float]:
    """Do with datasets and transformers what `start` does with plait."""
    import datasets
    import transformers

    datasets.disable_progress_bars()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tokenizer))
    before = peak_mib()
    began = time.perf_counter()
    rows = datasets.load_dataset(
        "csv",
        data_files=str(data),
        split="train",
        keep_default_na=False,  # a text may be "None"
    )
    rows = rows.map(
        lambda some: fast(
            some["sentence1"], some["sentence2"], truncation=True, max_length=max_length
        ),
        batched=True,
        remove_columns=["sentence1", "sentence2"],
    )
    seconds = time.perf_counter() - began
    assert len(rows) > 0
    return {"seconds": round(seconds, 2), "peak_mib": peak_mib(), "before_mib": before}


def write_pairs(source: Path | None, columns: list[str] | None, rows: int, target: Path) -> None:
    from plait.data import Columns, open_source, sample_root

    columns = columns or (["sentence1", "sentence2"] if source else ["question1", "question2"])
    source = source or sample_root() / "paraphrase-train.csv"
    pairs = [
        pair
        for chunk in open_source(source).chunks(Columns(tuple(columns)))
        for pair in zip(*(column.to_pylist() for column in chunk.columns), strict=True)
    ]
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "sentence1", "sentence2", "is_duplicate"])
        for i in range(rows):
            first, second = (text.decode() for text in pairs[i % len(pairs)])
            turn = i // len(pairs)
            if turn:
                first, second = renew(first, i, turn), renew(second, i, turn)
            writer.writerow([f"r{i}", first, second, i % 2])


def renew(text: str, row: int, turn: int) -> str:
    """Change one word in twenty: then as many are new as in a quarter of a million real pairs."""
    words = text.split(" ")
    return " ".join(f"{w}{turn}" if (row + k) % 20 == 0 else w for k, w in enumerate(words))


def start(data: Path, tokenizer: Path, max_length: int) -> dict[str, float]:
    from plait.config import TaskConfig
    from plait.data import Tokenizer, load_split

    text = ("sentence1", "sentence2")
    task = TaskConfig(kind="binary", text=text, label="is_duplicate", id="id", train=str(data))
    before = peak_mib()
    began = time.perf_counter()
    dataset = load_split(
        "pairs",
        task,
        "train",
        root=None,
        tokenizer=Tokenizer.from_file(tokenizer),
        max_length=max_length,
        bad_rows="error",
        seed=0,
    )
    seconds = time.perf_counter() - began
    assert len(dataset) > 0
    return {"seconds": round(seconds, 2), "peak_mib": peak_mib(), "before_mib": before}


def peak_mib() -> int:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit >> 20


if __name__ == "__main__":
    main()
