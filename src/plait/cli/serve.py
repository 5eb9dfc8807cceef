"""`plait serve`: serve trained runs over HTTP."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import DeviceOption, PrecisionOption

if TYPE_CHECKING:
    from types import ModuleType

DEMO = Path("runs/demo")


def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN", help="Folders of runs or ensembles; default runs/demo."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--runs", metavar="DIR", help="Serve every run directly below this folder."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = 8000,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=256, help="Processes; each loads all runs.")
    ] = 1,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="Require an API key: one per line."),
    ] = None,
    queue: Annotated[
        int,
        typer.Option("--queue", min=1, help="Queue size in texts; beyond it, HTTP 429."),
    ] = 1024,
    plugins: Annotated[
        list[Path] | None,
        typer.Option("--plugins", metavar="FILE", help="Code that runs may use; repeatable."),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Serve trained runs over HTTP, with a web page to try them.

    Only this machine is accepted, unless --host and --key-file are given. The log goes to standard
    output, one JSON object per line. Press Ctrl-C to stop.
    """
    # Before torch is imported: its idle threads must leave the cores to the web server.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    server = _import_server()
    from plait.cli.display import make_console
    from plait.errors import UsageError
    from plait.serve.middleware import read_keys

    if runs and folder is not None:
        raise UsageError("give runs or --runs, not both")
    if not runs and folder is None and not DEMO.is_dir():
        raise UsageError(f"name a run to serve: there is no {DEMO}, which `plait demo` makes")
    cores = os.cpu_count() or 1
    settings = server.Settings(
        runs=server.list_runs(folder) if folder else server.name_runs(runs or [DEMO]),
        folder=folder,
        plugins=tuple(plugins or ()),
        device=device,
        precision=precision,
        num_threads=max(1, cores // workers) if workers > 1 else None,
        queue_size=queue,
        keys=read_keys(key_file) if key_file else (),
    )
    console = make_console(stderr=True)
    console.print(f"loading {', '.join(settings.runs)}")

    def announce(address: str) -> None:
        console.print(f"Serving on {address} (API: {address}/docs). Press Ctrl-C to stop.")

    server.serve(settings, host=host, port=port, num_workers=workers, ready=announce)


def _import_server() -> ModuleType:
    from plait.errors import UsageError

    try:
        return import_module("plait.serve.server")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("plait"):
            raise
        raise UsageError(
            f"plait serve needs {error.name}, which is not installed: pip install 'plait[serve]'"
        ) from error
