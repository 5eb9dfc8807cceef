"""Regularizers: terms added to a task's loss that look at the model again.

One file each. Importing this package imports every file in it, so that a new one is
registered by being there.
"""

from importlib import import_module
from pkgutil import iter_modules

from plait.methods.regularizers.base import REGULARIZERS, Regularizer

__all__ = ["REGULARIZERS", "Regularizer"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
