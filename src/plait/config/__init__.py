"""A recipe file becomes a RunConfig: read, extended, overridden, checked, saved resolved.

    name = "mine"
    extends = "course"              # a packaged recipe or a file beside this one

    [tasks.mood]                    # one table per task
    [encoder]                       # which encoder, and how its output is pooled
    [train]                         # settings of every stage
    [stage.warm-up]                 # settings of one stage, over those of [train]

Parts (heads, losses, schedules, ...) appear as a name or a table with a name; their own
settings live beside them and are checked by the registry when the run is built.
"""

from plait.config.ensembles import EnsembleConfig, MembersConfig, lists_members, read_ensemble
from plait.config.reading import list_recipes, read_recipe, read_resolved, split_overrides
from plait.config.saving import differences, flatten, list_settings, to_toml
from plait.config.sections import (
    BadRows,
    DataConfig,
    DropOverlap,
    DropRows,
    EarlyStopping,
    EncoderConfig,
    FileConfig,
    Files,
    Part,
    RangeConfig,
    RunConfig,
    SearchConfig,
    StageConfig,
    StartConfig,
    TaskConfig,
    TextsConfig,
    Values,
)

__all__ = [
    "BadRows",
    "DataConfig",
    "DropOverlap",
    "DropRows",
    "EarlyStopping",
    "EncoderConfig",
    "EnsembleConfig",
    "FileConfig",
    "Files",
    "MembersConfig",
    "Part",
    "RangeConfig",
    "RunConfig",
    "SearchConfig",
    "StageConfig",
    "StartConfig",
    "TaskConfig",
    "TextsConfig",
    "Values",
    "differences",
    "flatten",
    "list_recipes",
    "list_settings",
    "lists_members",
    "read_ensemble",
    "read_recipe",
    "read_resolved",
    "split_overrides",
    "to_toml",
]
