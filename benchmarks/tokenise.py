"""Time the first and second start on many sentence pairs, and the memory the first one takes.

    python benchmarks/tokenise.py --tokenizer ENCODER/tokenizer.json [--pairs FILE] [--rows N]

Pairs are repeated, each time with a small change, until there are `--rows` of them (a million
unless told otherwise). Without `--pairs`, those of the embedded sample are taken. Each start
is a process of its own, so its peak memory is its alone.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, help="a file of pairs in any known format")
    parser.add_argument("--columns", nargs=2, help="its two text columns")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--out", type=Path, help="write the numbers here as JSON")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.start:
        print(json.dumps(start(args.start, args.tokenizer, args.max_length)))
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
            if turn:  # not the same texts again
                first, second = f"{turn} {first}", f"{second} {turn}"
            writer.writerow([f"r{i}", first, second, i % 2])


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
