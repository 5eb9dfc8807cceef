"""Endpoints that show what runs are: listings, scores, curves, reports, mistakes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from starlette.responses import Response

from plait.errors import RunError, suggest
from plait.serve.errands import Busy
from plait.serve.making import hide_folders
from plait.serve.problems import Problem, describe_problems, respond
from plait.serve.records import find_report, read_curves, read_record
from plait.serve.schemas import Curves, Making, MistakeList, Record, RunList

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fastapi import FastAPI

    from plait.serve.catalog import Catalog, RunFacts
    from plait.serve.errands import Errands

T = TypeVar("T")

LOOKING = describe_problems(400, 401, 404, 422, 429)
MADE = {
    202: {"model": Making, "description": "It is being made; ask again in a second."},
    **LOOKING,
}
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What a report may do when it is opened by itself: look as it does, and nothing else."""


def look_up(catalog: Catalog, name: str) -> RunFacts:
    """Return a run that is served."""
    return _find(name, catalog.runs)


def _find(name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        message = f"there is no run {name[:80]!r}{suggest(name[:80], known)}"
        raise Problem(404, "unknown_run", message)
    return known[name]


def add_browsing(
    app: FastAPI, catalog: Catalog, folders: Mapping[str, Path], errands: Errands | None
) -> None:
    """Add the endpoints to an application."""

    @app.get("/v1/runs", response_model=RunList, responses=describe_problems(400, 401, 429))
    async def runs() -> Response:
        """List the runs that are served."""
        left_out = [
            {"name": name, "reason": hide_folders(reason)}
            for name, reason in catalog.left_out.items()
        ]
        served = [run.to_json() for run in catalog.runs.values()]
        return respond({"runs": served, "left_out": left_out, "shows_data": errands is not None})

    @app.get("/v1/runs/{run}", response_model=Record, responses=LOOKING)
    async def record(run: str) -> Response:
        """Tell what a run is, and how well it does."""
        told = await asyncio.to_thread(read_record, _find(run, folders))
        return respond({"name": run, "is_served": run in catalog.runs, **told})

    @app.get("/v1/runs/{run}/curves", response_model=Curves, responses=LOOKING)
    async def curves(run: str) -> Response:
        """Tell a run's losses and scores over its updates."""
        try:
            return respond(await asyncio.to_thread(read_curves, _find(run, folders)))
        except RunError as error:
            raise Problem(422, "damaged", hide_folders(str(error))) from error

    @app.get(
        "/v1/runs/{run}/report",
        response_class=Response,
        responses={200: {"content": {"text/html": {}}}, **MADE},
    )
    async def report(run: str) -> Response:
        """Return a run's report, or have it made."""
        folder = _find(run, folders)
        check_shown()
        found = await asyncio.to_thread(find_report, folder)
        if found is not None:
            return as_page(await asyncio.to_thread(found.read_bytes))
        return await run_errand("report", run, folder)

    @app.get("/v1/runs/{run}/mistakes", response_model=MistakeList, responses=MADE)
    async def mistakes(run: str) -> Response:
        """Return a run's worst mistakes on dev, or have them looked for."""
        folder = _find(run, folders)
        check_shown()
        return await run_errand("mistakes", run, folder)

    def check_shown() -> None:
        if errands is None:
            message = "this server shows no reports and no mistakes, since they quote data"
            raise Problem(422, "not_shown", f"{message}; start it with --reports to show them")

    async def run_errand(what: str, run: str, folder: Path) -> Response:
        assert errands is not None
        if run not in catalog.runs:
            raise Problem(422, "not_served", f"{run} cannot answer, so there is nothing to show")
        try:
            errand = await asyncio.to_thread(errands.ask, what, folder)
        except Busy as error:
            message = "too much is being made; come again in a few seconds"
            raise Problem(429, "busy", message, {"Retry-After": "5"}) from error
        if errand.error is not None:
            raise Problem(422, "not_made", f"it could not be made: {errand.error}")
        if errand.made is None:
            return respond({"status": "making", "step": errand.step}, 202, {"Retry-After": "1"})
        if what == "report":
            return as_page(errand.made)
        return Response(errand.made, media_type="application/json")


def as_page(content: bytes) -> Response:
    """Make a response of a report."""
    headers = {"Content-Security-Policy": SANDBOX, "Cache-Control": "no-store"}
    return Response(content, headers=headers, media_type="text/html; charset=utf-8")
