"""What every augmentation must do, over all registered ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from plait.data.augmentations import AUGMENTATIONS, Augmentation, add_rows
from plait.data.heldout import HeldOut
from plait.data.rows import Rows
from plait.tasks import TaskSpec

TEXTS = ["He told the girl a story", "a good film", "☃ him", "HER mother, she said.", "x"]
SPECS = {1: TaskSpec(kind="binary", text=("a",)), 2: TaskSpec(kind="binary", text=("a", "b"))}


def make_rows(num_texts: int) -> Rows:
    """Rows of all texts beside the next ones, a chain that closes."""
    count = 10 * len(TEXTS)
    columns = [[TEXTS[(i + c) % len(TEXTS)] for i in range(count)] for c in range(num_texts)]
    labels = np.array([float(i % len(TEXTS) < 3) for i in range(count)])
    ids = pa.array([str(i) for i in range(count)])
    return Rows(tuple(map(pa.array, columns)), labels, ids, 0, np.arange(count))


def add(table: dict[str, Any], rows: Rows, seed: int = 0) -> list[tuple[str, ...]]:
    """Return the texts of the rows that it adds."""
    part = AUGMENTATIONS.build(table, "x")
    generator = np.random.default_rng(seed)
    if isinstance(part, Augmentation):
        added = add_rows(rows, "x", part, generator)
        columns = [] if added is None else [column.to_pylist() for column in added.texts]
    else:
        columns = list(part(rows, HeldOut(()), generator).texts)
    return list(zip(*columns, strict=True))


def is_for(table: dict[str, Any], spec: TaskSpec) -> bool:
    try:
        AUGMENTATIONS.build(table, "x").check(spec)
    except ValueError:
        return False
    return True


def test_it_is_for_some_task(augmentation_table):
    assert any(is_for(augmentation_table, spec) for spec in SPECS.values())


@pytest.mark.parametrize("num_texts", [1, 2])
def test_it_gives_as_many_texts_as_it_gets_and_never_the_same(augmentation_table, num_texts):
    if not is_for(augmentation_table, SPECS[num_texts]):
        return
    rows = make_rows(num_texts)
    given = set(zip(*(column.to_pylist() for column in rows.texts), strict=True))
    added = add(augmentation_table, rows)
    assert added
    for made in added:
        assert len(made) == num_texts
        assert all(isinstance(text, str) for text in made)
        assert made not in given


def test_the_same_generator_gives_the_same_rows(augmentation_table):
    rows = make_rows(2)
    assert add(augmentation_table, rows, 1) == add(augmentation_table, rows, 1)


def test_what_it_depends_on_can_name_a_cache_entry(augmentation_table):
    augmentation = AUGMENTATIONS.build(augmentation_table, "tasks.x.augment.0")
    described = json.dumps(augmentation.describe(), sort_keys=True)
    again = AUGMENTATIONS.build(augmentation_table, "x").describe()
    assert json.dumps(again, sort_keys=True) == described
    for setting in AUGMENTATIONS.settings(augmentation_table["name"]):
        assert f'"{setting.name}"' in described
