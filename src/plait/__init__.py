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
    from plait.analysis.explanation import explain as explain
    from plait.config import read_recipe as read_recipe
    from plait.errors import PlaitError as PlaitError
    from plait.inference.ensemble import Ensemble as Ensemble
    from plait.inference.ensemble import load as load
    from plait.inference.predictor import Predictor as Predictor
    from plait.training.estimator import TextClassifier as TextClassifier
    from plait.training.estimator import TextRegressor as TextRegressor
    from plait.training.runs import train as train
    from plait.types import Prediction as Prediction

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `plait --help`
# does not wait for torch.
_HOMES = {
    "Ensemble": "plait.inference.ensemble",
    "PlaitError": "plait.errors",
    "Prediction": "plait.types",
    "Predictor": "plait.inference.predictor",
    "TextClassifier": "plait.training.estimator",
    "TextRegressor": "plait.training.estimator",
    "explain": "plait.analysis.explanation",
    "load": "plait.inference.ensemble",
    "read_recipe": "plait.config",
    "train": "plait.training.runs",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'plait' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
