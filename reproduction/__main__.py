"""Command line of the study: `python -m reproduction run` and `python -m reproduction page`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plait import PlaitError
from reproduction.claims import count_verdicts
from reproduction.page import HERE, write_results
from reproduction.records import RECORDS
from reproduction.run import RUNS, Request, run_rows


def main(args: list[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m reproduction")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train rows of the reports and write records of them")
    run.add_argument("rows", nargs="*", help="systems (a), tables (a/2) or recipes; all if omitted")
    run.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each row (1)")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at once (1)")
    run.add_argument("--data", metavar="DIR", help="folder of the course's files")
    run.add_argument("-o", dest="overrides", action="append", default=[], metavar="KEY=VALUE|FILE")
    run.add_argument("--each-alone", action="store_true", help="train each task of the rows alone")
    run.add_argument("--runs", type=Path, default=RUNS, metavar="DIR", help="where to train")
    run.add_argument("--out", type=Path, default=RECORDS, metavar="DIR", help="records")
    page = commands.add_parser("page", help="write results.md and its pictures from the records")
    page.add_argument("--records", type=Path, default=RECORDS, metavar="DIR")
    page.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="folder of the page")
    for command in (run, page):
        command.add_argument(
            "--profile",
            default="small",
            help="encoder: small (e5-small, the default), packaged, or published (BERT-base)",
        )
    given = parser.parse_args(args)
    try:
        return _page(given) if given.command == "page" else _run(given)
    except PlaitError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped: the same command continues", file=sys.stderr)
        return 130


def _run(given: argparse.Namespace) -> int:
    request = Request(
        profile=given.profile,
        num_seeds=given.seeds,
        num_jobs=given.jobs,
        data=given.data,
        overrides=tuple(given.overrides),
        each_alone=given.each_alone,
        records=given.out,
        runs=given.runs,
    )
    failed = run_rows(given.rows, request)
    print(f"The records are in {given.out / given.profile}.")
    if failed:
        print(f"{len(failed)} runs failed: {'; '.join(failed)} (errors above)", file=sys.stderr)
    return 1 if failed else 0


def _page(given: argparse.Namespace) -> int:
    given.out.mkdir(parents=True, exist_ok=True)
    results = write_results(given.profile, given.records, given.out)
    counts = (f"{number} {name}" for name, number in count_verdicts(results.judgements).items())
    print(f"{len(results.records)} records; claims: {', '.join(counts)}")
    print(f"The page is {given.out / 'results.md'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
