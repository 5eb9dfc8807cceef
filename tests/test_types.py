"""Tasks are checked when made; batches move; predictions know their confidence."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from plait.tasks import TaskSpec
from plait.types import Batch, Tokens


def test_a_number_of_classes_names_them():
    assert TaskSpec(kind="classes", labels=3, text="s").labels == ("0", "1", "2")


def test_binary_is_no_and_yes_unless_named():
    assert TaskSpec(kind="binary", text="s").labels == ("no", "yes")
    assert TaskSpec(kind="binary", labels=("ham", "spam"), text="s").labels == ("ham", "spam")


def test_one_column_or_a_pair():
    single = TaskSpec(kind="binary", text="s")
    pair = TaskSpec(kind="binary", text=("a", "b"), inputs="apart")
    assert (single.text, single.is_pair) == (("s",), False)
    assert (pair.text, pair.is_pair) == (("a", "b"), True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "binary", "text": ("a", "b", "c")}, "names 3 columns"),
        ({"kind": "binary", "text": ()}, "names 0 columns"),
        ({"kind": "binary", "text": "a", "inputs": "apart"}, "needs two text columns"),
        ({"kind": "classes", "text": "a"}, "two or more"),
        ({"kind": "classes", "text": "a", "labels": 1}, "two or more"),
        ({"kind": "classes", "text": "a", "labels": ("x", "y", "x")}, "'x' twice"),
        ({"kind": "binary", "text": "a", "labels": 3}, "2 labels, not 3"),
        ({"kind": "score", "text": "a", "labels": 2}, "has no labels"),
        ({"kind": "score", "text": "a", "range": (5, 5)}, "must be below"),
        ({"kind": "score", "text": "a", "range": (0, float("nan"))}, "finite"),
        ({"kind": "ranking", "text": "a"}, "no task-kind 'ranking'"),
        ({"kind": "labels", "text": "a"}, "the number of labels"),
        ({"kind": "labels", "text": "a", "labels": 2, "threshold": 1.0}, "between 0 and 1"),
        ({"kind": "binary", "text": "a", "threshold": 0.4}, "has no threshold"),
        ({"kind": "binary", "text": "a", "colour": 1}, "not permitted"),
    ],
)
def test_impossible_tasks_are_refused(table, message):
    with pytest.raises(ValidationError, match=message):
        TaskSpec(**table)


@pytest.mark.parametrize("labels", [None, torch.tensor([1])])
def test_a_batch_moves_whole(labels):
    tokens = Tokens(torch.ones(1, 2).long(), torch.zeros(1, 2).long(), torch.ones(1, 2).bool())
    moved = Batch(tokens, labels).to(torch.device("meta"))
    tensors = [moved.tokens.ids, moved.tokens.types, moved.tokens.mask]
    assert [t.dtype for t in tensors] == [torch.int64, torch.int64, torch.bool]
    tensors += [] if labels is None else [moved.labels]
    assert {t.device.type for t in tensors} == {"meta"}
