"""The public door: exactly these names, and nothing heavy behind `import plait`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import plait


def test_the_public_names():
    assert sorted(plait.__all__) == [
        "Ensemble",
        "PlaitError",
        "Prediction",
        "Predictor",
        "TextClassifier",
        "TextRegressor",
        "__version__",
        "explain",
        "load",
        "read_recipe",
        "train",
    ]
    assert dir(plait) == sorted(plait.__all__)


@pytest.mark.parametrize("name", plait.__all__)
def test_every_name_is_there_and_has_a_docstring(name):
    found = getattr(plait, name)
    assert name == "__version__" or found.__doc__


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="module 'plait' has no attribute 'trian'"):
        plait.trian  # noqa: B018


def test_train_is_the_function():
    from plait.training.runs import train

    assert plait.train is train


@pytest.mark.parametrize(
    "line",
    [
        "import plait",
        "from plait import PlaitError, Prediction, __version__",
        "from plait import read_recipe; read_recipe('demo')",
        "import plait.cli",
    ],
)
def test_little_is_imported_before_it_is_needed(line):
    code = f"{line}\nimport sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
