"""Time vectors of texts on the CPU, beside sentence-transformers with the same weights.

    python benchmarks/cpu_embed.py [--run RUN] [--texts FILE] [--column NAME] [--rows N]

A run is exported for sentence-transformers first; one is trained on the sample where none is
given (a minute or two). Texts are a column of FILE, or else of the sample
inside plait. Every side gets the texts, and tokenises them in the time taken; they take turns.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import records
import torch
from cpu_predict import train

import plait
from plait.data import Columns, open_source, sample_root
from plait.export.run import export

Side = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path)
    parser.add_argument("--texts", type=Path, default=sample_root() / "sentiment-dev.csv")
    parser.add_argument("--column", default="sentence")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--out", type=Path, help="write the record here, not to benchmarks/records")
    args = parser.parse_args()
    texts = read_texts(args.texts, args.column, args.rows)
    with tempfile.TemporaryDirectory() as temporary:
        run = args.run or train("packaged", Path(temporary) / "run")
        sides = peers(run, Path(temporary) / "st", args.batch_sizes)
        for precision in ("fp32", "auto"):
            model = plait.load(run, device="cpu", precision=precision)
            sides[f"plait {precision}"] = model.embed
        times, vectors = measure(sides, texts, args.repeats)
    report(times, vectors, args, texts)


def read_texts(path: Path, column: str, rows: int) -> list[str]:
    chunks = open_source(path).chunks(Columns((column,)))
    found = [text.decode() for chunk in chunks for text in chunk.columns[0].to_pylist()]
    return (found * -(-rows // len(found)))[:rows]


def peers(run: Path, folder: Path, sizes: list[int]) -> dict[str, Side]:
    """Export a run, and let sentence-transformers read it."""
    from sentence_transformers import SentenceTransformer

    export(run, folder, form="sentence-transformers")
    model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: list[str], size: int) -> np.ndarray:
        return model.encode(texts, batch_size=size, show_progress_bar=False)

    return {
        f"SentenceTransformer, batches of {size}": lambda texts, size=size: encode(texts, size)
        for size in sizes
    }


def measure(sides: dict[str, Side], texts: list[str], repeats: int):
    """Let the sides take turns; the first turn is thrown away."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    vectors: dict[str, np.ndarray] = {}
    with torch.inference_mode():
        for turn in range(repeats + 1):
            for name, side in sides.items():
                given = texts[:64] if turn == 0 else texts
                began = time.perf_counter()
                vectors[name] = np.asarray(side(given))
                if turn:
                    times[name].append(len(texts) / (time.perf_counter() - began))
    return times, vectors


def report(times, vectors, args, texts: list[str]) -> None:
    exact = _unit(vectors["plait fp32"])
    figures = {}
    for name, rates in times.items():
        cosine = float((_unit(vectors[name]) * exact).sum(1).min())
        figures[name] = records.spread(rates) | {"lowest_cosine": round(cosine, 5)}
        print(f"{name:40} {figures[name]['median']:8.1f} texts/s  lowest cosine {cosine:.5f}")
    theirs = {name: f for name, f in figures.items() if not name.startswith("plait")}
    ours = {name: f for name, f in figures.items() if name.startswith("plait")}
    best = max(theirs, key=lambda name: theirs[name]["median"])
    ratios = {n: round(f["median"] / theirs[best]["median"], 2) for n, f in ours.items()}
    records.write(
        "cpu_embed",
        args.out,
        settings={"rows": len(texts), "texts": args.texts.stem},
        unit="texts/s",
        best_peer=best,
        peers=theirs,
        plait=ours,
        ratios=ratios,
        goals={"plait fp32": 1.2, "plait auto": 2.0},
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
