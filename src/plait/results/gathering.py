"""Records and reports become all that the page and the pictures show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.results.findings import Judgement, judge_all, read_findings
from plait.results.records import BestModel, Experiment, Records, read_best, read_records
from plait.results.tables import Report, Table, read_reports

if TYPE_CHECKING:
    from pathlib import Path

FINDINGS_PICTURE = "findings"


@dataclass(frozen=True, slots=True)
class Results:
    """All that the page and the pictures show."""

    profile: str
    records: Records
    reports: list[Report]
    judgements: list[Judgement]
    best: list[BestModel]
    log: list[Experiment]

    @property
    def tables(self) -> list[Table]:
        """Every report's tables."""
        return [table for report in self.reports for table in report.tables]

    @property
    def pictures(self) -> list[str]:
        """Names of the pictures that have something of ours to show."""
        judged = [FINDINGS_PICTURE] if any(j.difference for j in self.judgements) else []
        return judged + [table.name for table in self.tables if self._is_drawn(table)]

    def _is_drawn(self, table: Table) -> bool:
        """Say whether a table has figures of both sides to draw."""
        return any(row.published.figures and self.records.row(row.run) for row in table.rows)


def gather(folder: Path, profile: str, best: Path) -> Results:
    """Read a profile's records and the best models, and judge the findings."""
    records = read_records(folder, profile)
    judgements = judge_all(read_findings(), records)
    return Results(profile, records, read_reports(), judgements, *read_best(best))
