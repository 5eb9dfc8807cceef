"""Load runs and serve them on a port, in this process or in several worker processes."""

from __future__ import annotations

import os
import signal
import socket
import sys
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from plait.errors import PlaitError, RunError, UsageError
from plait.serve.middleware import LOG, set_up_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fastapi import FastAPI

    from plait.inference.predictor import Answerer

BACKLOG = 2048
MAX_CONNECTIONS = 1000
"""Open connections of a worker; uvicorn answers 503 to more."""
LOAD_SECONDS = 600
HANG_SECONDS = 60
"""Time without a sign of life after which a worker is replaced. Importing torch can take 10 s."""
STOP_SECONDS = 31
"""Time for the open requests when the server stops; longer than a request may take."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a server serves."""

    runs: Mapping[str, Path]
    """Run folders by name. Requests give names, which never become part of a path."""
    folder: Path | None = None
    """The folder of all runs, if it was given: runs that cannot be loaded are left out then."""
    plugins: tuple[Path, ...] = ()
    """The only files of the user's code that runs may bring."""
    device: str = "auto"
    precision: str = "auto"
    num_threads: int | None = None
    """CPU threads of a worker; torch's default unless given."""
    queue_size: int = 1024
    keys: tuple[str, ...] = ()
    """API keys. Without any, only requests to this machine's own names are accepted."""


# --- runs --------------------------------------------------------------------------------


def name_runs(folders: Sequence[Path]) -> dict[str, Path]:
    """Return run folders by their names."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"there is no run at {folder}")
        path = folder.resolve()
        if found.get(path.name, path) != path:
            raise RunError(
                f"{folder} and {found[path.name]} have the same name, and requests select a run by "
                "its name; rename one of the folders"
            )
        found[path.name] = path
    return found


def list_runs(folder: Path) -> dict[str, Path]:
    """Return the folders directly below one, by name, without links: they may lead elsewhere."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    found = {path.name: path.resolve() for path in inside if not path.name.startswith(".")}
    if not found:
        raise UsageError(f"{folder} has no folders; --runs takes the folder above the runs")
    return found


def check_inside(run: Path, folder: Path) -> None:
    """Refuse a run that brings files from elsewhere, by links or as members of an ensemble."""
    from plait.inference.ensemble import is_ensemble, read_outlines

    members = read_outlines(run)[0] if is_ensemble(run) else []
    for path in (*run.rglob("*"), *members):
        if not path.resolve().is_relative_to(folder):
            raise RunError(f"{path} is outside {folder}; name the run itself to serve it")


def load_models(settings: Settings) -> dict[str, Answerer]:
    """Load the runs and answer one text with each, since a model's first batch is slow."""
    import torch

    from plait.inference.ensemble import load
    from plait.registry import only_plugins
    from plait.serve.batching import Job, answer_rows, make_rows

    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    models: dict[str, Answerer] = {}
    for name, folder in settings.runs.items():
        try:
            if settings.folder is not None:
                check_inside(folder, settings.folder.resolve())
            with only_plugins(settings.plugins):
                model = load(folder, device=settings.device, precision=settings.precision)
        except PlaitError as error:
            if settings.folder is None:
                raise
            LOG.warning("run_left_out", extra={"facts": {"run": name, "reason": str(error)}})
            continue
        for group in model.share_passes(list(model.tasks)):
            texts = ("warm",) * len(model.tasks[group[0]].spec.text)
            answer_rows(model, make_rows(Job(1), name, [group], [texts], [group]))
        models[name] = model
    if not models:
        raise RunError("no run could be loaded; the log says why")
    return models


# --- serving -----------------------------------------------------------------------------


def serve(
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    num_workers: int = 1,
    ready: Callable[[str], None],
) -> None:
    """Serve runs until SIGINT or SIGTERM; requests that were accepted are answered first.

    `ready` is called with the address once the runs are loaded.
    """
    if not settings.keys and not is_loopback(host):
        raise UsageError(
            f"--host {host} accepts requests from other machines, which needs API keys: set "
            "--key-file"
        )
    with _listen(host, port) as listener:
        shown = f"[{host}]" if ":" in host else host
        announce = partial(ready, f"http://{shown}:{listener.getsockname()[1]}")
        if num_workers == 1:
            app = start_app(settings)
            announce()
            # uvicorn raises the signal again at its end; an orderly stop is exit code 0.
            signal.signal(signal.SIGTERM, lambda *_: None)
            uvicorn.Server(_configure(app)).run(sockets=[listener])
        else:
            _serve_in_workers(settings, listener, num_workers, announce)


def start_app(settings: Settings) -> FastAPI:
    """Load the runs and return the application that serves them."""
    from plait.serve.app import make_app

    set_up_log()
    models = load_models(settings)
    LOG.info("started", extra={"facts": {"pid": os.getpid(), "runs": list(models)}})
    return make_app(
        models,
        keys=settings.keys,
        queue_size=settings.queue_size,
        local_only=not settings.keys,
    )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _configure(app: Any, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=STOP_SECONDS,
        **more,
    )


class _Workers(Multiprocess):
    """uvicorn's process manager, which replaces workers that die."""

    are_loaded = was_interrupted = False

    def __init__(self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]):
        super().__init__(config, [listener])
        self._ready = ready

    def init_processes(self) -> None:
        """Start the workers and wait until they have loaded the runs; stop if one cannot."""
        super().init_processes()
        self.are_loaded = all(process.wait_until_ready(LOAD_SECONDS) for process in self.processes)
        if self.are_loaded:
            self._ready()
        else:
            self.handle_signals()
            self.should_exit.set()

    def handle_int(self) -> None:
        """Stop, and remember that it was Ctrl-C."""
        super().handle_int()
        self.was_interrupted = True


def _serve_in_workers(
    settings: Settings, listener: socket.socket, num_workers: int, ready: Callable[[], None]
) -> None:
    set_up_log()
    config = _configure(
        partial(_start_worker, settings),
        factory=True,
        workers=num_workers,
        timeout_worker_healthcheck=HANG_SECONDS,
    )
    with TemporaryDirectory(prefix="plait-metrics-") as folder:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder  # where the workers add up their metrics
        workers = _Workers(config, listener, ready)
        workers.run()
        del os.environ["PROMETHEUS_MULTIPROC_DIR"]
    if workers.was_interrupted:
        raise KeyboardInterrupt
    if not workers.are_loaded:
        raise RunError("the workers could not load the runs; the message above says why")


def _start_worker(settings: Settings) -> FastAPI:
    """Load the runs in a worker process, or end it with one sentence."""
    try:
        return start_app(settings)
    except PlaitError as error:
        sys.exit(f"plait: {error}")


def _listen(host: str, port: int) -> socket.socket:
    """Take a port before the runs are loaded; clients that connect meanwhile wait."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"cannot listen on port {port} of {host} ({reason.lower()}); choose another --port or "
            "--host"
        ) from error
