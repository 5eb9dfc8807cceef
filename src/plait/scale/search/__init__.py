"""Hyperparameter search: train trials with Optuna and save the best one as a recipe."""

from plait.scale.search.request import Search, find_runs
from plait.scale.search.results import Trial
from plait.scale.search.study import run_search

__all__ = ["Search", "Trial", "find_runs", "run_search"]
