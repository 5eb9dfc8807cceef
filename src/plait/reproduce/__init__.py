"""Published rows, or recipes, become runs, and runs records: small files that are kept.

    results/reproduce/PROFILE/RECIPE/seed-N.json
    results/reproduce/PROFILE/RECIPE/alone/TASK/seed-N.json

A record that is there is not made again, so that many sittings make one set of results.
"""

from plait.reproduce.finished import find_runs, gather_records
from plait.reproduce.rows import find_rows, name_rows
from plait.reproduce.work import Order, Run, Work, plan_work

__all__ = [
    "Order",
    "Run",
    "Work",
    "find_rows",
    "find_runs",
    "gather_records",
    "name_rows",
    "plan_work",
]
