"""Kinds of stage: what a stage trains on, the tasks themselves or their bare texts.

One file each. Importing this package imports every file in it, so that a new one is
registered by being there.
"""

from importlib import import_module
from pkgutil import iter_modules

from plait.training.stages.base import STAGE_KINDS, Material, Objective, StageKind

__all__ = ["STAGE_KINDS", "Material", "Objective", "StageKind"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
