"""`plait serve`: trained runs answer over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import DataOption, DeviceOption, PrecisionOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.cli.display import Display
    from plait.serve.catalog import Catalog
    from plait.serve.parcels import RunsToLoad

DEMO = Path("runs/demo")


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Folders of runs, or of ensembles."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Serve every run directly below this folder."),
    ] = None,
    plugins: Annotated[
        bool, typer.Option("--plugins", help="Let runs below DIR bring plugins, which are code.")
    ] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Processes that hold the models.")
    ] = 1,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file", metavar="FILE", help="API keys, one a line; PLAIT_KEYS has some, too."
        ),
    ] = None,
    is_open: Annotated[
        bool, typer.Option("--open", help="Let other machines in without a key.")
    ] = False,
    wait_ms: Annotated[
        float,
        typer.Option("--wait-ms", min=0, max=10_000, help="How long a text may wait for company."),
    ] = 5.0,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Texts answered together, at most.")
    ] = 32,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Texts that may wait; beyond, 429 is answered.")
    ] = 1024,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Seconds a request may take.")
    ] = 30.0,
    max_inputs: Annotated[
        int, typer.Option("--max-inputs", min=1, help="Inputs of one request, at most.")
    ] = 256,
    max_chars: Annotated[
        int, typer.Option("--max-chars", min=1, help="Characters of one text, at most.")
    ] = 20_000,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="Write the texts into the log as well.")
    ] = False,
    reports: Annotated[
        bool | None,
        typer.Option(
            "--reports/--no-reports",
            help="Show reports and mistakes, which quote dev rows; with --open, not unless set.",
        ),
    ] = None,
    data: DataOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Serve trained runs over HTTP, with a web page to try them.

    Without a run, runs/demo is served. The log goes to standard output, a line of JSON an event.
    Only this machine is let in unless --host says otherwise, and then only with an API key.
    """
    from plait.cli.display import Display
    from plait.serve.keys import Keys, is_loopback, refuse_open
    from plait.serve.limits import Limits

    keys = Keys.read(key_file)
    refuse_open(host, keys, is_open=is_open)
    limits = Limits(
        inputs=max_inputs,
        text_chars=max_chars,
        queue=queue,
        seconds=timeout,
        batch_size=batch_size,
        wait_ms=wait_ms,
    )
    wanted = _choose_runs(runs, folder, plugins=plugins)._replace(
        device=device, precision=precision
    )
    start = _import_server()
    with Display() as display:
        display.begin(f"loading {', '.join(wanted.folders)}")

        def ready(address: str, catalog: Catalog) -> None:
            _announce(display, address, catalog)

        from plait.serve.logs import Log

        start(
            wanted,
            host=host,
            port=port,
            num_workers=workers,
            limits=limits,
            keys=keys,
            log=Log(),
            local_only=is_loopback(host),
            log_texts=log_texts,
            reports=not is_open if reports is None else reports,
            data=data,
            ready=ready,
        )


def _choose_runs(runs: list[Path] | None, folder: Path | None, *, plugins: bool) -> RunsToLoad:
    from plait.errors import UsageError
    from plait.serve.catalog import list_runs, name_runs
    from plait.serve.parcels import RunsToLoad

    if runs and folder is not None:
        raise UsageError("name runs, or a folder of runs with --runs, not both")
    if plugins and folder is None:
        raise UsageError(
            "--plugins is for the runs of --runs: those that are named may bring theirs"
        )
    if folder is not None:
        found = list_runs(folder)
        if not found:
            raise UsageError(f"{folder} holds no folders; --runs names one that holds runs")
        return RunsToLoad(found, skip_bad=True, plugins=plugins)
    if not runs and not DEMO.is_dir():
        raise UsageError(f"name a run to serve; there is no {DEMO}, which `plait demo` makes")
    return RunsToLoad(name_runs(runs or [DEMO]))


def _import_server() -> Callable[..., None]:
    from plait.errors import UsageError

    try:
        from plait.serve.server import serve as start
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("plait"):
            raise
        raise UsageError(
            f"plait serve needs {error.name}, which is not installed: pip install 'plait[serve]'"
        ) from error
    return start


def _announce(display: Display, address: str, catalog: Catalog) -> None:
    display.close()
    for name, reason in catalog.left_out.items():
        display.note(f"{name} is left out: {reason}")
    for run in catalog.runs.values():
        display.console.print(f"serving {run.name}: {', '.join(run.tasks)}")
    display.console.print(f"{address} is open, {address}/docs describes its API; Ctrl-C stops")
