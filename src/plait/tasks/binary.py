"""Task kind "binary": yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plait.tasks.classes import Classes
from plait.tasks.kind import TASK_KINDS
from plait.tasks.reading import LabelReader
from plait.tasks.regression import Linear, fit_yes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from plait.tasks.kind import Bools, Floats


@TASK_KINDS.register("binary")
@dataclass(frozen=True, kw_only=True)
class Binary(Classes):
    """Yes or no; label 1 is yes. Of a pair, yes means that both texts mean the same."""

    name: ClassVar[str] = "binary"
    default_loss: ClassVar[str] = "bce"
    dtype: ClassVar[type] = np.float32
    is_yes_no: ClassVar[bool] = True

    labels: tuple[str, ...] = ("no", "yes")

    def __post_init__(self) -> None:
        """Check the number of labels."""
        if len(self.labels) != 2:
            raise ValueError(f"a binary task has 2 labels, not {len(self.labels)}")

    def reader(
        self,
        columns: Sequence[str],  # noqa: ARG002
        label_map: Mapping[str, float],
        *,
        separator: str,  # noqa: ARG002
        scale: tuple[float, float] | None,  # noqa: ARG002
    ) -> LabelReader:
        """Return a reader that also reads true and false."""
        return LabelReader(self.labels, label_map, also={"false": 0.0, "true": 1.0})

    def same_meaning(self, labels: NDArray[Any], threshold: float | None = None) -> Bools | None:  # noqa: ARG002
        """Return the pairs labelled yes."""
        return np.asarray(labels == 1)

    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a logistic regression of the log-odds of a yes."""
        return fit_yes(features, labels.reshape(len(labels), -1), strength)

    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the probabilities of no and yes."""
        from scipy.special import expit

        yes = expit(outputs)
        return np.concatenate([1 - yes, yes], axis=1)
