"""Check a recipe's data before training: what would stop it, and what would spoil it.

report = check_recipe(read_recipe("mine.toml"))
report.findings                 # each with a sentence, advice, files and lines
"""

from plait.analysis.check.report import Report, SplitSummary, check_recipe
from plait.analysis.check.rows import Finding, Level, Place

__all__ = ["Finding", "Level", "Place", "Report", "SplitSummary", "check_recipe"]
