"""A recipe's data is looked through before training: what would stop it, and what would spoil it.

report = check_recipe(read_recipe("mine.toml"))
report.findings                 # each with a sentence, what to do, files and lines
"""

from plait.analysis.check.findings import Finding, Level, Place
from plait.analysis.check.report import Report, SplitSummary, check_recipe

__all__ = ["Finding", "Level", "Place", "Report", "SplitSummary", "check_recipe"]
