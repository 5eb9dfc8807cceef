"""Records of runs become a page of results: tables, findings, pictures, costs."""

from plait.results.gathering import Results
from plait.results.records import Record, Records, read_records
from plait.results.writing import write_results

__all__ = ["Record", "Records", "Results", "read_records", "write_results"]
