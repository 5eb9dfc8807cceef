"""Regularizers: terms added to a task's loss that look at the model again.

One file each; importing this package registers them all.
"""

from plait.regularizers.base import REGULARIZERS, Regularizer

__all__ = ["REGULARIZERS", "Regularizer"]
