"""Time the stages of a packaged recipe on a GPU, or run all of it.

    python benchmarks/gpu_recipe.py --data DIR --tokenizer FILE [--recipe d/concat-smart-pretrain]
    python benchmarks/gpu_recipe.py --data DIR --tokenizer FILE --whole --encoder DIR

The first times each stage's steps, on an encoder of random weights unless --encoder names one,
and estimates how long the stage trains, capturing included, scoring not. The second trains
the whole recipe as `plait train` does and splits its time: `reading_s` (encoder, data),
`scoring_s`, and `training_s`, which is all else, checkpoints included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from encoders import write_encoder
from steps import begin, clear, describe, peak, publish, run_settings, tick, time_stage

import plait
from plait.config import RunConfig, read_recipe
from plait.data.loading import load_data
from plait.training.build import build, build_stage, drop_heads, load_named_texts
from plait.training.listeners import Listener
from plait.training.plan import Plan


def main() -> None:
    parser = begin(__doc__, shape="e5-small")
    parser.add_argument("--recipe", default="d/concat-smart-pretrain")
    parser.add_argument("--encoder", type=Path, help="folder of an encoder, in the Hub's layout")
    parser.add_argument("--whole", action="store_true", help="train all of it")
    parser.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    record = describe("gpu-recipe", args)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = args.encoder or write_encoder(args.shape, args.tokenizer, folder / "encoder")
        config = read_recipe(args.recipe, args.overrides, run_settings(args, encoder))
        run = run_whole(config, args, folder) if args.whole else time_stages(config, args)
        record["plait"] = run
    publish(record, args)


def time_stages(config: RunConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Time every stage's first steps; each begins with what the one before left."""
    before = clear(args)
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train", data=str(args.data))
    texts = load_named_texts(Plan.build(config), parts.tokenizer, data=str(args.data))
    stages = {}
    for index, name in enumerate(config.stages):
        began = time.perf_counter()
        stage = build_stage(parts, index, data, texts)
        parts.model.train()
        figures = time_stage(stage, args, began)
        updates = stage.num_steps()
        after = updates - figures["first_steps"]
        estimate = figures["first_s"] + after * figures["step_ms"] / 1000
        stages[name] = figures | {"updates": updates, "estimate_s": estimate}
        drop_heads(parts)
    total = sum(stage["estimate_s"] for stage in stages.values())
    return {"stages": stages, "estimate_s": total, **peak(args, before)}


def run_whole(config: RunConfig, args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train a recipe to its end; split the time it takes."""
    before = clear(args)
    clock = Clock(args)
    outcome = plait.train(config, folder / "run", data=str(args.data), listeners=[clock])
    whole = tick(args) - clock.began
    return {
        "whole_s": whole,
        "reading_s": clock.read,
        "scoring_s": clock.scored,
        "training_s": whole - clock.read - clock.scored,
        "num_scorings": clock.num_scorings,
        "updates": outcome.result["steps"],
        "best_step": outcome.result["best_step"],
        "dev": {key: outcome.result["dev"][key] for key in ("primary", "summary")},
        **peak(args, before),
    }


class Clock(Listener):
    """Adds up what a run spends before its first update, and on scoring."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.began = time.perf_counter()
        self.read = self.scored = 0.0
        self.num_scorings = 0
        self._since: float | None = None

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:  # noqa: ARG002
        self.read = time.perf_counter() - self.began

    def scoring(self, task: str, done: int, total: int) -> None:  # noqa: ARG002
        if self._since is None:
            self._since = tick(self.args)

    def scores(self, step: int, split: str, scores: Any) -> None:  # noqa: ARG002
        self._stop()

    def end(self, result: dict[str, Any]) -> None:  # noqa: ARG002
        self._stop()  # the last scores come with the result alone

    def _stop(self) -> None:
        if self._since is not None:
            self.scored += tick(self.args) - self._since
            self.num_scorings += 1
            self._since = None


if __name__ == "__main__":
    main()
