"""Score the predictions under results/best/ and write the figures into their records.

    python scripts/score_best.py DATA

DATA has the dev and training files that the recipe `best/single` names. A candidate is a folder of
submission files beside a NAME.json that tells what it is; dev figures, their intervals over
draws of dev rows, and Quora without the pairs that training pairs imply are filled in.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from plait.config import read_recipe
from plait.data import Dataset, Tokenizer, find_implied
from plait.data.loading import load_data
from plait.inference.build import build_tasks
from plait.inference.intervals import bootstrap_metrics, percentile_interval
from plait.inference.scoring import score_answers
from plait.model.sources import find_encoder

FOLDER = Path(__file__).parents[1] / "results" / "best"
DRAWS = 1000


def main() -> None:
    data = sys.argv[1]
    config = read_recipe("best/single")
    tokenizer = Tokenizer.from_file(find_encoder("packaged").tokenizer)
    dev = load_data(config, tokenizer, "dev", data=data)
    train = load_data(config, tokenizer, "train", data=data, tasks={"quora": None})
    implied = find_implied(train["quora"], dev["quora"])
    for record in sorted(FOLDER.glob("*.json")):
        if record.name != "log.json":
            values = json.loads(record.read_text(encoding="utf-8"))
            values |= score(config, dev, ~implied, record.with_suffix(""))
            record.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def score(config: Any, dev: dict[str, Dataset], rest: Any, folder: Path) -> dict[str, Any]:
    """Return what a candidate's dev predictions come to."""
    tasks = build_tasks(config)
    answers = {name: read_answers(config, name, dev[name], folder) for name in dev}

    def answer(task: str, _: Dataset, rows: Any) -> Any:
        chosen = answers[task] if rows is None else answers[task][rows.numpy()]
        labels = tasks[task].spec.labels
        return np.eye(len(labels))[chosen.astype(int)] if labels else chosen

    scores = score_answers(tasks, dev, answer).to_json()
    for task in scores["tasks"].values():
        task["metrics"].pop("log_loss", None)  # probabilities are not among the predictions
    right = answers["quora"] == dev["quora"].labels.numpy()
    return {
        "dev": scores,
        "interval": draw_intervals(config, answers, dev),
        "quora_without_implied": float(right[rest].mean()),
        "quora_implied_rows": int((~rest).sum()),
    }


def read_answers(config: Any, name: str, dataset: Dataset, folder: Path) -> Any:
    """Return the predictions of a task's dev rows, in the data's order."""
    task = config.tasks[name]
    path = folder / f"{task.submit_name or name}-dev-output.csv"
    with path.open(encoding="utf-8", newline="") as file:
        given = {row["id"]: float(row[task.submit_column]) for row in csv.DictReader(file)}
    return np.array([given[i] for i in dataset.ids])


def draw_intervals(
    config: Any, answers: dict[str, Any], dev: dict[str, Dataset]
) -> dict[str, list[float]]:
    """Return the 95% interval of every figure over draws of each task's rows."""
    generator = np.random.default_rng(1)
    drawn = {}
    for name, given in answers.items():
        labels = dev[name].labels.numpy()

        is_score = config.tasks[name].kind == "score"

        def measure(
            rows: Any, given: Any = given, labels: Any = labels, is_score: bool = is_score
        ) -> dict[str, float]:
            if is_score:
                return {"figure": float(np.corrcoef(given[rows], labels[rows])[0, 1])}
            return {"figure": float((given[rows] == labels[rows]).mean())}

        drawn[name] = bootstrap_metrics(measure, len(labels), generator, draws=DRAWS)["figure"]
    parts = dict(drawn)
    drawn["mean"] = sum(parts.values()) / len(parts)
    drawn["overall"] = (parts["sst"] + parts["quora"] + (1 + parts["sts"]) / 2) / 3
    return {name: percentile_interval(values).to_json() for name, values in drawn.items()}


if __name__ == "__main__":
    main()
