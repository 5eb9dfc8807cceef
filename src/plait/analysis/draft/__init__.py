"""Draft a recipe from data files: every guess has its reason and can be overridden.

with draft_recipe(["mood-train.csv", "mood-dev.csv"]) as draft:
    draft.write("mine")         # mine/recipe.toml
"""

from plait.analysis.draft.drafts import Draft, Request, draft_recipe
from plait.analysis.draft.task import Guessed, TaskDraft

__all__ = ["Draft", "Guessed", "Request", "TaskDraft", "draft_recipe"]
