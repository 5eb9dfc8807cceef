"""Data files become a recipe: what the tasks are is guessed, and every guess has its reason.

draft = draft_recipe(["mood-train.csv", "mood-dev.csv"])
draft.write("mine")             # mine/recipe.toml, and mine/data/ where files had to be made
"""

from plait.analysis.draft.drafts import Draft, Request, draft_recipe
from plait.analysis.draft.files import Reading
from plait.analysis.draft.roles import Guess
from plait.analysis.draft.tasks import TaskDraft

__all__ = ["Draft", "Guess", "Reading", "Request", "TaskDraft", "draft_recipe"]
