"""plait: one text encoder, many sentence tasks, trained together.

plait.train("demo", "runs/demo")
model = plait.load("runs/demo")
model.predict("sentiment", ["What a fine day."])
model.predict_file("reviews.csv", "answers.csv", tasks=["sentiment"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plait.config import read_recipe as read_recipe
    from plait.ensemble import Ensemble as Ensemble
    from plait.ensemble import load as load
    from plait.errors import PlaitError as PlaitError
    from plait.estimator import TextClassifier as TextClassifier
    from plait.estimator import TextRegressor as TextRegressor
    from plait.explanation import explain as explain
    from plait.predict import Predictor as Predictor
    from plait.runs import train as train
    from plait.types import Prediction as Prediction

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `plait --help`
# does not wait for torch.
_HOMES = {
    "Ensemble": "plait.ensemble",
    "PlaitError": "plait.errors",
    "Prediction": "plait.types",
    "Predictor": "plait.predict",
    "TextClassifier": "plait.estimator",
    "TextRegressor": "plait.estimator",
    "explain": "plait.explanation",
    "load": "plait.ensemble",
    "read_recipe": "plait.config",
    "train": "plait.runs",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
