"""Measure whether words that an explanation calls strong are: by what is lost without them.

    python benchmarks/explain.py RUN --task TASK [--data DIR] [--rows 100] [--out FILE]

Of dev rows, the words with the largest effects are left out, one, two and three of them, and the
probability of what was answered is looked at again; beside it, words drawn by chance. What is lost
more of is a better explanation (the comprehensiveness of DeYoung and others, 2020). RUN has a task
of classes, on one text.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from records import hardware, versions

import plait
from plait.analysis.explanation import leave, split_parts

MOST = 3
FEWEST_WORDS = 6
"""Of a text that is looked at."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--task", required=True)
    parser.add_argument("--data")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    model = plait.load(args.run)
    dev = model.load_split("dev", data=args.data, tasks=[args.task])[args.task]
    texts = [text for (text,) in dev.texts() if len(text.split()) >= FEWEST_WORDS]
    texts = texts[: args.rows]
    sides = {}
    for method in ("shapley", "occlusion", "chance"):
        began = time.monotonic()
        lost = np.array([measure(model, args.task, text, method, args.draws) for text in texts])
        error = lost.std(0, ddof=1) / np.sqrt(len(texts))
        sides[method] = {
            "lost": lost.mean(0).round(4).tolist(),
            "error": error.round(4).tolist(),
            "seconds_a_text": round((time.monotonic() - began) / len(texts), 3),
        }
    record = {
        "benchmark": "explain",
        "settings": {"task": args.task, "rows": len(texts), "draws": args.draws},
        "run": {"recipe": model.config.name, "seed": model.config.seed},
        "hardware": hardware(),
        "versions": versions(),
        "sides": sides,
    }
    print(json.dumps(record, indent=1))
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure(model: plait.Predictor, task: str, text: str, method: str, draws: int) -> list[float]:
    """Return how much of the answer's probability is lost without its strongest words."""
    if method == "chance":
        parts = split_parts([text])
        order = np.random.default_rng(len(text)).permutation(len(parts)).tolist()
    else:
        found = plait.explain(model, task, text, method=method, draws=draws)  # type: ignore[arg-type]
        parts = list(found.parts)
        order = sorted(range(len(parts)), key=lambda i: -parts[i].effect)
    whole = 2 ** len(parts) - 1
    left = [whole]
    for number in order[:MOST]:
        left.append(left[-1] ^ 1 << number)
    rows = [leave([text], parts, subset) for subset in left]
    answers = model.answer(task, model.tokenise(rows, blank=True))
    values = answers[:, int(answers[0].argmax())]
    return (values[0] - values[1:]).tolist()


if __name__ == "__main__":
    main()
