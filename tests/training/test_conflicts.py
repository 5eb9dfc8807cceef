"""How often the tasks' gradients disagree, from single updates to the log."""

from __future__ import annotations

import json
import warnings

import pytest
import torch

from plait.training.conflicts import ConflictSums
from plait.training.listeners import MetricsLog, TensorBoard
from plait.training.loop import StepRecord
from plait.training.step import StepResult

CPU = torch.device("cpu")


def result(rows: str, *cosines: float) -> StepResult:
    """What an update saw of tasks a, b, ...; cosines of the pairs in the order of the rows."""
    matrix, left = torch.eye(len(rows)), iter(cosines)
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            matrix[i, j] = matrix[j, i] = next(left)
    return StepResult({}, {}, torch.zeros(()), tuple(rows), matrix)


def record(step: int = 1) -> StepRecord:
    return StepRecord("s", 1, step, 9, step, 0.1, 4, StepResult({}, {}, torch.zeros(())))


def test_means_and_shares_of_every_pair():
    sums = ConflictSums("abc", {}, CPU)
    sums.add(result("abc", 0.5, -0.5, 0.25))
    sums.add(result("ab", -0.1))
    sums.add(StepResult({}, {}, torch.zeros(()), ("a",)))  # one task alone
    taken = sums.take()
    assert taken == {
        "a,b": {"cosine": pytest.approx(0.2), "share": 0.5},
        "a,c": {"cosine": -0.5, "share": 1.0},
        "b,c": {"cosine": 0.25, "share": 0.0},
    }
    assert sums.take() == {}


def test_a_pair_has_one_name_in_the_order_of_the_recipe():
    sums = ConflictSums(["z", "a"], {}, CPU)
    sums.add(result("az", 0.5))
    sums.add(result("za", 0.25))
    assert sums.take() == {"z,a": {"cosine": 0.375, "share": 0.0}}


def test_what_an_earlier_sitting_kept_counts_as_well():
    sums, whole = ConflictSums("ab", {}, CPU), ConflictSums("ab", {}, CPU)
    sums.add(result("ab", 0.3))
    again = ConflictSums("ab", json.loads(json.dumps(sums.to_json())), CPU)
    again.add(result("ab", -0.7))
    for cosine in (0.3, -0.7):
        whole.add(result("ab", cosine))
    assert again.take() == whole.take()
    assert again.to_json() == {}


def open_log(folder) -> MetricsLog:
    log = MetricsLog()
    log.start(folder, {}, 0)
    return log


def test_the_log_has_them_on_the_line_of_the_losses(tmp_path):
    log = open_log(tmp_path)
    log.conflicts(record(5), {"a,b": {"cosine": 0.25, "share": 0.5}})
    log.losses(record(5), {"a": 1.0})
    log.losses(record(10), {"a": 1.0})
    log.conflicts(record(15), {"a,b": {"cosine": float("nan"), "share": 0.0}})
    log.losses(record(15), {"a": 1.0})
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line.get("conflicts") for line in lines] == [
        {"a,b": {"cosine": 0.25, "share": 0.5}},
        None,
        {"a,b": {"cosine": None, "share": 0.0}},
    ]


def test_tensorboard_has_both_figures(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports complain of their own
        accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        board = TensorBoard()
        board.conflicts(record(5), {"a,b": {"cosine": 0.25, "share": 0.5}})  # not open yet
        board.start(tmp_path, {}, 0)
        board.conflicts(record(5), {"a,b": {"cosine": 0.25, "share": 0.5}})
        board.close()
        found = accumulators.EventAccumulator(str(tmp_path / "tensorboard"))
        found.Reload()
        told = {
            tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]
        }
    assert told == {"conflict/a,b/cosine": [(5, 0.25)], "conflict/a,b/share": [(5, 0.5)]}
