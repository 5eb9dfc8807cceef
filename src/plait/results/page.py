"""All that there is to show becomes one Markdown page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.results.sections.besides import show_alone, show_details, show_others
from plait.results.sections.best import show_best
from plait.results.sections.costs import show_costs
from plait.results.sections.findings import show_findings
from plait.results.sections.settings import show_settings
from plait.results.sections.summary import show_summary
from plait.results.sections.tables import show_report

if TYPE_CHECKING:
    from plait.results.gathering import Results

NOTE = "<!-- Made by `plait results` from the records of runs; do not edit. -->"


def make_page(results: Results, pictures: str | None) -> str:
    """Return the whole page; `pictures` is their folder as seen from it, none for no pictures."""
    lines = [NOTE, "", "# Results", "", *show_summary(results), *show_findings(results, pictures)]
    for report in results.reports:
        lines += show_report(report, results, pictures)
    lines += show_details(results.records)
    lines += show_alone(results.records)
    lines += show_others(results)
    lines += show_best(results)
    lines += show_costs(results.records)
    lines += show_settings(results.profile, results.records)
    return "\n".join(lines).rstrip() + "\n"
