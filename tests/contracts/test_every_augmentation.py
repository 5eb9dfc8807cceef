"""What every augmentation must do, over all registered ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plait.data.augmentations import AUGMENTATIONS

TEXTS = ["He told the girl a story", "a good film", "", "HER mother, she said.", "☃ him"]


@pytest.fixture
def augmentation(augmentation_table):
    return AUGMENTATIONS.build(augmentation_table, "tasks.x.augment.0")


@pytest.mark.parametrize("num_texts", [1, 2])
def test_it_gives_as_many_texts_as_it_gets_and_never_the_same(augmentation, num_texts):
    generator = np.random.default_rng(0)
    found = 0
    for start in range(50):
        row = tuple(TEXTS[(start + i) % len(TEXTS)] for i in range(num_texts))
        made = augmentation(row, generator)
        if made is not None:
            found += 1
            assert isinstance(made, tuple)
            assert len(made) == num_texts
            assert all(isinstance(text, str) for text in made)
            assert made != row
    assert found


def test_the_same_generator_gives_the_same_rows(augmentation_table):
    def run(seed: int) -> list[object]:
        augmentation = AUGMENTATIONS.build(augmentation_table, "x")
        generator = np.random.default_rng(seed)
        return [augmentation((text,), generator) for text in TEXTS * 10]

    assert run(1) == run(1)


def test_what_it_depends_on_can_name_a_cache_entry(augmentation, augmentation_table):
    described = json.dumps(augmentation.describe(), sort_keys=True)
    again = AUGMENTATIONS.build(augmentation_table, "x").describe()
    assert json.dumps(again, sort_keys=True) == described
    for setting in AUGMENTATIONS.settings(augmentation_table["name"]):
        assert f'"{setting.name}"' in described
