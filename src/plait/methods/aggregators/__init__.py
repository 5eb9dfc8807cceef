"""Aggregators: the tasks' gradients on the shared encoder become one.

One file each. Importing this package imports every file in it, so that a new one is
registered by being there.
"""

from importlib import import_module
from pkgutil import iter_modules

from plait.methods.aggregators.base import AGGREGATORS, Aggregator, Mixing

__all__ = ["AGGREGATORS", "Aggregator", "Mixing"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
