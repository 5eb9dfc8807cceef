"""A recipe and a space of settings become trials, and the best of them a recipe."""

from plait.search.request import Search, find_runs
from plait.search.results import Trial
from plait.search.study import run_search

__all__ = ["Search", "Trial", "find_runs", "run_search"]
