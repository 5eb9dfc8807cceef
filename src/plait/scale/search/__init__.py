"""A recipe and a space of settings become trials, and the best of them a recipe."""

from plait.scale.search.request import Search, find_runs
from plait.scale.search.results import Trial
from plait.scale.search.study import run_search

__all__ = ["Search", "Trial", "find_runs", "run_search"]
