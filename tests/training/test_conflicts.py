"""How often the tasks' gradients disagree, from single updates to the log."""

from __future__ import annotations

import json

import pytest
import torch

from plait.training.conflicts import ConflictSums
from plait.training.step import StepResult

CPU = torch.device("cpu")


def result(rows: str, *cosines: float) -> StepResult:
    """What an update saw of tasks a, b, ...; cosines of the pairs in the order of the rows."""
    matrix, left = torch.eye(len(rows)), iter(cosines)
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            matrix[i, j] = matrix[j, i] = next(left)
    return StepResult({}, {}, torch.zeros(()), tuple(rows), matrix)


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


def test_what_an_earlier_sitting_kept_counts_as_well():
    sums, whole = ConflictSums("ab", {}, CPU), ConflictSums("ab", {}, CPU)
    sums.add(result("ab", 0.3))
    again = ConflictSums("ab", json.loads(json.dumps(sums.to_json())), CPU)
    again.add(result("ab", -0.7))
    for cosine in (0.3, -0.7):
        whole.add(result("ab", cosine))
    assert again.take() == whole.take()
    assert again.to_json() == {}
